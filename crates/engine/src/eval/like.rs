//! LIKE patterns: `%` any run, `_` one character, `[a-z]` one of a set, `[^a-z]` one outside of it.
//!
//! Matching is by code point and case-sensitive. It takes time at most proportional to text times pattern: when a
//! match fails only the last `%` is tried further on, which is enough because an earlier one could not do better.
//! A `[` that is never closed makes a pattern that matches nothing, as in T-SQL; a literal `[` is written `[[]`.

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    shape: Shape,
}

/// Most patterns need no general matcher.
#[derive(Clone, Debug)]
enum Shape {
    Nothing,
    Exactly(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    General(Vec<Part>),
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Run,
    Any,
    Char(char),
    Set {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
}

impl Pattern {
    pub(super) fn new(pattern: &str) -> Pattern {
        let shape = match parse(pattern) {
            Some(parts) => simplify(parts),
            None => Shape::Nothing,
        };
        Pattern { shape }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match &self.shape {
            Shape::Nothing => false,
            Shape::Exactly(all) => text == all,
            Shape::Prefix(start) => text.starts_with(start.as_str()),
            Shape::Suffix(end) => text.ends_with(end.as_str()),
            Shape::Contains(inner) => text.contains(inner.as_str()),
            Shape::General(parts) => matches(parts, text),
        }
    }
}

/// The parts of a pattern, or `None` if a set is never closed.
fn parse(pattern: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '%' if parts.last() == Some(&Part::Run) => {}
            '%' => parts.push(Part::Run),
            '_' => parts.push(Part::Any),
            '[' => {
                let (set, after) = rest.as_str().split_once(']')?;
                parts.push(parse_set(set));
                rest = after.chars();
            }
            c => parts.push(Part::Char(c)),
        }
    }
    Some(parts)
}

/// A hyphen is a range between two characters and itself elsewhere.
fn parse_set(set: &str) -> Part {
    let (set, negated) = match set.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (set, false),
    };
    let chars: Vec<char> = set.chars().collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        if let [low, '-', high, ..] = chars[at..] {
            ranges.push((low, high));
            at += 3;
        } else {
            ranges.push((chars[at], chars[at]));
            at += 1;
        }
    }
    Part::Set { ranges, negated }
}

fn simplify(parts: Vec<Part>) -> Shape {
    let starts_open = parts.first() == Some(&Part::Run);
    let ends_open = parts.len() > 1 && parts.last() == Some(&Part::Run);
    let inner = &parts[usize::from(starts_open)..parts.len() - usize::from(ends_open)];
    let literal: Option<String> = inner
        .iter()
        .map(|part| {
            if let Part::Char(c) = part {
                Some(*c)
            } else {
                None
            }
        })
        .collect();
    match (literal, starts_open, ends_open) {
        (None, ..) => Shape::General(parts),
        (Some(text), false, false) => Shape::Exactly(text),
        (Some(text), false, true) => Shape::Prefix(text),
        (Some(text), true, false) => Shape::Suffix(text),
        (Some(text), true, true) => Shape::Contains(text),
    }
}

fn matches(parts: &[Part], text: &str) -> bool {
    let mut rest = text.chars();
    let mut at = 0;
    // Where to continue if the parts since the last `%` fail: after it, one character later each time.
    let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        match parts.get(at) {
            Some(Part::Run) => {
                at += 1;
                retry = Some((at, rest.clone()));
                continue;
            }
            None if rest.as_str().is_empty() => return true,
            Some(part) => {
                let mut after = rest.clone();
                if after.next().is_some_and(|c| part.accepts(c)) {
                    at += 1;
                    rest = after;
                    continue;
                }
            }
            None => {}
        }
        let Some((from, later)) = &mut retry else {
            return false;
        };
        if later.next().is_none() {
            return false;
        }
        at = *from;
        rest = later.clone();
    }
}

impl Part {
    fn accepts(&self, c: char) -> bool {
        match self {
            Part::Run => false,
            Part::Any => true,
            Part::Char(own) => *own == c,
            Part::Set { ranges, negated } => {
                ranges.iter().any(|&(low, high)| low <= c && c <= high) != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let compiled = Pattern::new(pattern);
        for text in matching {
            assert!(compiled.matches(text), "{text:?} LIKE {pattern:?}");
        }
        for text in others {
            assert!(!compiled.matches(text), "{text:?} NOT LIKE {pattern:?}");
        }
    }

    // proves S1
    #[test]
    fn wildcards_and_sets_match_as_documented() {
        check("abc", &["abc"], &["ABC", "abcd", "ab", ""]);
        check("a%", &["a", "abc"], &["ba", ""]);
        check("%c", &["c", "abc"], &["cb"]);
        check("%b%", &["b", "abc"], &["ac"]);
        check("%", &["", "anything\n"], &[]);
        check("%%", &["", "x"], &[]);
        check("", &[""], &["x"]);
        check("_b_", &["abc", "éb€"], &["ab", "abcd"]);
        check("[abc]x", &["ax", "cx"], &["dx", "x"]);
        check("[a-cx]%", &["b", "xyz"], &["d", "-"]);
        check("[^a-c]", &["d", "é"], &["a", "", "dd"]);
        check("[a-]", &["a", "-"], &["b"]);
        check("[-a]", &["a", "-"], &["b"]);
        check("[a^]", &["a", "^"], &["b"]);
        check("[[]x]", &["[x]"], &["[x", "x]"]);
        check("[%]", &["%"], &["a"]);
        check("a%b%c", &["abc", "a-b-b-c"], &["acb"]);
        check("a[b", &[], &["a[b", "ab"]);
        check("[]", &[], &["", "]", "a"]);
    }

    // proves S1
    #[test]
    fn a_hostile_pattern_does_not_blow_up() {
        let pattern = Pattern::new(&"%a_".repeat(50));
        assert!(!pattern.matches(&"a".repeat(99)));
        assert!(
            !pattern.matches(
                &"ab"
                    .repeat(5_000)
                    .replace('b', "_")
                    .replacen('a', "b", 4_990)
            )
        );
    }

    fn naive(parts: &[Part], text: &[char]) -> bool {
        match (parts.split_first(), text.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((Part::Run, more)), _) => (0..=text.len()).any(|skip| naive(more, &text[skip..])),
            (Some((part, more)), Some((c, rest))) => part.accepts(*c) && naive(more, rest),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        // proves S1
        #[test]
        fn like_agrees_with_a_naive_matcher(
            pattern in "[ab%_]{0,7}|[ab%_é]{0,3}\\[\\^?[ab-]{0,3}\\][ab%]{0,3}",
            text in "[abé]{0,8}",
        ) {
            let chars: Vec<char> = text.chars().collect();
            let expected = parse(&pattern).is_some_and(|parts| naive(&parts, &chars));
            prop_assert_eq!(Pattern::new(&pattern).matches(&text), expected);
        }
    }
}
