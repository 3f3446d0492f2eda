//! PATINDEX and REGEXMATCH.

use highwater_query::functions::Function::*;
use proptest::prelude::*;

use super::*;
use crate::eval::like::Pattern;

// proves S1
#[test]
fn patindex_is_like_with_a_position() {
    for (pattern, text, expected) in [
        ("%1_%", "ab12", 3),
        ("b%", "abc", 0),
        ("a%", "abc", 1),
        ("%c", "abc", 3),
        ("%b", "abc", 0),
        ("abc", "abc", 1),
        ("b", "abc", 0),
        ("%b%", "abc", 2),
        ("%B%", "abc", 0),
        ("%[0-9]%", "ab7x9", 3),
        ("%[^a-z]%", "ab7x9", 3),
        ("%[%]%", "ab%", 3),
        ("%a%c%", "xaybzc", 2),
        ("%a%d%", "xaybzc", 0),
        ("%é_x%", "é😀é😀x", 3),
        ("%", "abc", 1),
        ("%%", "", 1),
        ("", "", 0),
        ("%[a", "abc", 0),
        ("__", "ab", 1),
        ("%__", "abc", 2),
    ] {
        check(PatIndex, args![pattern, text], expected);
    }
    check(PatIndex, args!["%2%", 123], 2);
    check(PatIndex, args![NULL, "a"], NULL);
    check(PatIndex, args!["a", NULL], NULL);
    check(PatIndex, args!["x".repeat(8000).as_str(), "x"], 0);
    let long = "é".repeat(8001);
    let message = format!(
        "argument 1 of PATINDEX is '{}..', but a pattern has at most 8000 characters",
        "é".repeat(60)
    );
    fails(PatIndex, args![long.as_str(), "x"], &message);
}

// proves S1
#[test]
fn regexmatch_is_ecmascript_that_ignores_case() {
    for (text, pattern, expected) in [
        ("aB7", "b[0-9]", 2),
        ("aB7", "x", 0),
        ("aB7", "", 1),
        ("", "", 1),
        ("é😀x", "X", 3),
        ("a\nb", "a.b", 1),
        ("a\nb", "^b", 0),
        ("a\nb", "a$", 0),
        ("ab\n", "b$", 0),
        ("ÉÀ", "à", 2),
        ("٣3", r"\d", 2),
        ("é_", r"\w", 2),
        ("a\u{a0} ", r"\s", 3),
        ("1é", r"\D", 2),
        ("aé", r"\W", 2),
        ("ſk\u{212a}", r"\W", 1),
        (" a", r"\S", 2),
        ("xab ab", r"\bab", 5),
        ("xab", r"\Bab", 2),
        ("a{2}", r"a\{2\}", 1),
        ("aa", "a{2}", 1),
        ("aaa", "a{2,}?", 1),
        ("a{", "a{", 1),
        ("a{,3}", "a{,3}", 1),
        ("}]", "}]", 1),
        ("a/b", r"\/", 2),
        ("a-b", r"[\w-]+$", 1),
        (".", r"[\w-.]", 1),
        ("b", "[a-c]", 1),
        ("[", "[[]", 1),
        ("a&b", "[&&b]", 2),
        ("~", "[~~a]", 1),
        ("x]", "[]x]", 0),
        ("ab", "a[^]", 1),
        ("ab", "[]", 0),
        ("\u{8}", r"[\b]", 1),
        ("a7", r"[^\D]", 2),
        ("A", r"\x41", 1),
        ("é", r"\u00e9", 1),
        ("😀", r"\ud83d\ude00", 1),
        ("😀", r"\u{1F600}", 1),
        ("\u{1}", r"\cA", 1),
        ("\0", r"\0", 1),
        ("x=1", r"(?:x|y)=(\d)", 1),
        ("x=1", r"(?<name>x)=", 1),
        ("a b#c", "b#c", 3),
        ("tab\t", r"\t", 4),
        ("a+b", r"[+--]", 2),
    ] {
        check(RegexMatch, args![text, pattern], expected);
    }
    check(RegexMatch, args![1234, 3], 3);
    check(RegexMatch, args![NULL, "("], NULL);
    check(RegexMatch, args!["a", NULL], NULL);
}

// proves S1
#[test]
fn patterns_that_are_invalid_or_cannot_be_done_match_nothing() {
    let long = format!("({})", "a".repeat(2_000_000));
    for pattern in [
        "(",
        ")",
        "[a",
        "a**",
        "a++",
        "*",
        "^*",
        "{2}",
        "a{2}{3}",
        "a{3,2}",
        "a|*",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        r"(a)\1",
        r"\k<a>",
        "(?i)a",
        "(?P<n>a)",
        "(?#a)",
        r"\p{L}",
        r"\A",
        r"\z",
        r"\a",
        r"\x4",
        r"\u00",
        r"\ud83d",
        r"\c1",
        r"\01",
        "[z-a]",
        "\\",
        "[\\",
        "a{99999999999}",
        "(((a{1000}){1000}){1000}){1000}",
        &long,
    ] {
        check(RegexMatch, args!["aa(x)", pattern], 0);
    }
}

// proves S1
#[test]
fn patterns_may_come_from_the_data() {
    let patterns: Vec<Value> = (0..200)
        .map(|n| Value::text(&format!("%{}%", n % 50)))
        .collect();
    let texts: Vec<Value> = (0..200)
        .map(|n| Value::text(&format!("x{}", n % 7)))
        .collect();
    let args = [patterns, texts].map(|values| Datum::Column(column(&values)));
    let answers = run(PatIndex, None, &args, 200);
    for (row, answer) in answers.into_iter().enumerate() {
        let expected = Value::Int(if row % 50 == row % 7 { 2 } else { 0 });
        assert_eq!(answer, Ok(format!("{expected:?}")), "{row}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    // proves S1
    #[test]
    fn patindex_finds_the_first_place_that_like_accepts(
        pattern in "[%_ab]{0,6}|[%a\\[\\]^-]{0,7}", text in "[abé]{0,8}",
    ) {
        let inner = pattern.trim_start_matches('%');
        let floats = inner.len() < pattern.len();
        let inner = if floats && inner.is_empty() { "%" } else { inner };
        let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        let like = Pattern::new(inner);
        let found = match (pattern.is_empty(), floats) {
            (true, _) => None,
            (_, true) => places.find(|at| like.matches(&text[*at..])),
            (_, false) => like.matches(&text).then_some(0),
        };
        let expected = found.map_or(0, |at| text[..at].chars().count() as i64 + 1);
        check(PatIndex, args![pattern.as_str(), text.as_str()], expected);
    }

    // proves S1
    #[test]
    fn no_pattern_makes_regexmatch_fail(
        pattern in r"[\\\[\]{}()?*+|^$.,:<=!&~dDwWsSbBucx0-9a-f\-é]{0,12}", text in "[ab0é]{0,6}",
    ) {
        let found = answer(RegexMatch, None, args![text.as_str(), pattern.as_str()]);
        prop_assert!(found.is_ok(), "{:?}", found);
    }
}
