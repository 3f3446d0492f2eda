//! The specification of a processor, from the settings.

use std::fmt;
use std::path::PathBuf;

use highwater_flow::CheckpointInterval;
use highwater_flow::circuit::Rule;
use highwater_flow::{Assignment, Options, StartPosition};
use highwater_log::HubName;

/// A hub whose events go to a handler.
#[derive(Clone, Debug)]
pub struct ProcessorSpec {
    pub name: String,
    pub hub: HubName,
    pub group: String,
    pub start: StartPosition,
    pub handler: HandlerSpec,
    /// The most events in one call.
    pub batch: u32,
    pub only_json: bool,
    pub options: Options,
    pub transient: TransientFailures,
    pub checkpoint_interval: CheckpointInterval,
    pub rule: Rule,
    pub poison_max: u32,
    pub assignment: Assignment,
    pub share: Option<(u32, u32)>,
    /// The hub of the dead letters.
    pub dead: HubName,
    pub replays_max: u32,
}

#[derive(Clone, Debug)]
pub enum HandlerSpec {
    Webhook {
        url: String,
        authorization: Option<Secret>,
        ca: Option<PathBuf>,
    },
    /// A program and its arguments.
    Command(Vec<String>),
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("********")
    }
}

/// The failures that are worth a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransientFailures {
    pub timeout: bool,
    pub connection: bool,
    words: Vec<String>,
}

impl TransientFailures {
    /// From `timeout`, `connection`, a status such as `429` or a class such as `5xx`.
    pub fn new(words: &[String]) -> TransientFailures {
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        TransientFailures {
            timeout: has("timeout"),
            connection: has("connection"),
            words: words.to_vec(),
        }
    }

    pub(crate) fn includes_status(&self, status: u16) -> bool {
        let (exact, class) = (status.to_string(), format!("{}xx", status / 100));
        self.words
            .iter()
            .any(|word| *word == exact || *word == class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves P2
    #[test]
    fn a_status_is_transient_by_itself_or_by_its_class() {
        let words = ["connection", "5xx", "429"].map(String::from);
        let transient = TransientFailures::new(&words);
        assert!(transient.connection && !transient.timeout);
        for (status, expected) in [
            (500, true),
            (503, true),
            (429, true),
            (400, false),
            (404, false),
        ] {
            assert_eq!(transient.includes_status(status), expected, "{status}");
        }
    }
}
