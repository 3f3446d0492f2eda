//! The regular expression of a subscription, which the server evaluates.
//!
//! Clients send it, so its evaluation takes linear time, and its size is limited. As in Kafka it must match the whole
//! name.

use highwater_log::{GroupError, HubName};
use regex::{Regex, RegexBuilder};

/// The longest pattern. A list of names is the better subscription before that.
const PATTERN_BYTES_MAX: usize = 1024;
/// The largest compiled pattern, which exists for one evaluation.
const COMPILED_BYTES_MAX: usize = 1 << 18;

#[derive(Debug)]
pub(in crate::groups) struct NamePattern {
    names: Regex,
    names_internal: bool,
}

impl NamePattern {
    pub(in crate::groups) fn new(pattern: &str) -> Result<NamePattern, GroupError> {
        let invalid = |reason: String| GroupError::InvalidPattern(reason);
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(invalid(format!(
                "it is longer than {PATTERN_BYTES_MAX} bytes"
            )));
        }
        // Alone as well: a part such as `a)(b` is no pattern.
        compile(pattern).map_err(|error| invalid(error.to_string()))?;
        let whole = compile(&format!("^(?:{pattern})$"));
        Ok(NamePattern {
            names: whole.map_err(|error| invalid(error.to_string()))?,
            names_internal: pattern.contains(HubName::INTERNAL_PREFIX),
        })
    }

    /// Whether its text has the prefix of internal hubs.
    pub(in crate::groups) fn names_internal(&self) -> bool {
        self.names_internal
    }

    pub(in crate::groups) fn matches(&self, name: &str) -> bool {
        self.names.is_match(name)
    }
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .nest_limit(32)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        let pattern = NamePattern::new("toll-[0-9]+|gate").unwrap();
        assert!(pattern.matches("toll-17") && pattern.matches("gate"));
        assert!(
            !pattern.matches("toll-17b") && !pattern.matches("a-gate") && !pattern.matches("gates")
        );
    }

    #[test]
    fn a_pattern_that_is_no_pattern_or_too_large_is_refused() {
        let long = "a".repeat(PATTERN_BYTES_MAX + 1);
        for pattern in ["(", "a)(b", "[", "(?<=a)b", "(a{1000}){1000}", &long] {
            let refused = NamePattern::new(pattern);
            assert!(
                matches!(refused, Err(GroupError::InvalidPattern(_))),
                "{pattern}"
            );
        }
    }
}
