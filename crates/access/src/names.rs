//! Names and prefixes that limit a key.

/// The names that a key covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePatterns {
    All,
    /// Names, and prefixes that end with `*`.
    Listed(Vec<String>),
}

impl NamePatterns {
    pub fn listed<T: Into<String>>(patterns: impl IntoIterator<Item = T>) -> NamePatterns {
        NamePatterns::Listed(patterns.into_iter().map(Into::into).collect())
    }

    pub fn cover(&self, name: &str) -> bool {
        self.matches(|exact| exact == name, |prefix| name.starts_with(prefix))
    }

    /// Whether `head` followed by `tail` is covered.
    pub(crate) fn cover_joined(&self, head: &str, tail: &str) -> bool {
        self.matches(
            |exact| exact.strip_prefix(head) == Some(tail),
            |prefix| match prefix.strip_prefix(head) {
                Some(rest) => tail.starts_with(rest),
                None => head.starts_with(prefix),
            },
        )
    }

    fn matches(&self, exact: impl Fn(&str) -> bool, prefix: impl Fn(&str) -> bool) -> bool {
        match self {
            NamePatterns::All => true,
            NamePatterns::Listed(patterns) => patterns
                .iter()
                .any(|pattern| matches_pattern(pattern, &exact, &prefix)),
        }
    }
}

/// Whether a name or prefix covers a name.
pub(crate) fn pattern_covers(pattern: &str, name: &str) -> bool {
    matches_pattern(
        pattern,
        |exact| exact == name,
        |prefix| name.starts_with(prefix),
    )
}

fn matches_pattern(
    pattern: &str,
    exact: impl Fn(&str) -> bool,
    prefix: impl Fn(&str) -> bool,
) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => prefix(start),
        None => exact(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_a_prefix() {
        let patterns = NamePatterns::listed(["app", "app-*"]);
        for name in ["app", "app-", "app-1"] {
            assert!(patterns.cover(name), "{name}");
        }
        for name in ["apple", "ap", "APP", "", "x-app-1", "app*"] {
            assert!(!patterns.cover(name), "{name}");
        }
        assert!(NamePatterns::All.cover(""));
        assert!(!NamePatterns::listed::<&str>([]).cover("app"));
    }

    #[test]
    fn a_joined_name_is_covered_as_if_it_were_joined() {
        let lists = [
            &["__workflow.a"][..],
            &["__workflow.a*"],
            &["__w*"],
            &["*"],
            &["a"],
            &["__workflow*"],
        ];
        for list in lists {
            let patterns = NamePatterns::listed(list.iter().copied());
            for name in ["a", "ab", "b", ""] {
                assert_eq!(
                    patterns.cover_joined("__workflow.", name),
                    patterns.cover(&format!("__workflow.{name}")),
                    "{list:?} {name}"
                );
            }
        }
    }
}
