//! The outcome of a delivery as a settlement of the queue.

use highwater_amqp::{ClientOutcome, OutcomeKind, Value};
use highwater_queue::Disposition;

use super::message::edit;

/// Longer reasons and descriptions of dead letters are cut.
const REASON_CHARS_MAX: usize = 4096;

const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

/// The settlement of an outcome. Clients tell an abandoned from a deferred message by one flag alone.
pub(in crate::amqp) fn disposition(outcome: ClientOutcome) -> Disposition {
    match outcome.kind {
        OutcomeKind::Accepted => Disposition::Complete,
        OutcomeKind::Released | OutcomeKind::None => Disposition::Release,
        OutcomeKind::Modified {
            undeliverable_here: false,
        } => Disposition::Abandon(edit(outcome.details)),
        OutcomeKind::Modified {
            undeliverable_here: true,
        } => Disposition::Defer(edit(outcome.details)),
        OutcomeKind::Rejected => {
            let description = outcome.description.unwrap_or_default();
            dead_letter(outcome.details, description)
        }
    }
}

/// Dead-letters a message. The reason and the description are among the properties to change; `description` is the one
/// without an entry there.
pub(super) fn dead_letter(
    details: Vec<(Value<'static>, Value<'static>)>,
    description: String,
) -> Disposition {
    let (mut reason, mut description) = (String::new(), description);
    let mut changes = Vec::new();
    for (name, value) in details {
        match (name.as_text(), value.as_text()) {
            (Some(REASON), text) => reason = text.unwrap_or_default().to_owned(),
            (Some(DESCRIPTION), text) => description = text.unwrap_or_default().to_owned(),
            _ => changes.push((name, value)),
        }
    }
    Disposition::DeadLetter {
        reason: cut(reason),
        description: cut(description),
        edit: edit(changes),
    }
}

pub(super) fn cut(text: String) -> String {
    match text.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(kind: OutcomeKind) -> ClientOutcome {
        ClientOutcome {
            kind,
            details: Vec::new(),
            description: None,
        }
    }

    // proves A2
    #[test]
    fn outcomes_are_the_settlements_that_the_sdks_mean() {
        let modified = |undeliverable_here| OutcomeKind::Modified { undeliverable_here };
        for (kind, expected) in [
            (OutcomeKind::Accepted, "Complete"),
            (OutcomeKind::Released, "Release"),
            (OutcomeKind::None, "Release"),
            (modified(false), "Abandon(None)"),
            (modified(true), "Defer(None)"),
        ] {
            assert_eq!(format!("{:?}", disposition(outcome(kind))), expected);
        }
    }

    // proves A2
    #[test]
    fn a_rejected_message_has_its_reason_from_the_error() {
        let mut rejected = outcome(OutcomeKind::Rejected);
        rejected.description = Some("from the error".into());
        rejected.details = vec![
            (Value::symbol(REASON), Value::string("r".repeat(5000))),
            (Value::string("tried"), Value::I32(3)),
        ];
        let Disposition::DeadLetter {
            reason,
            description,
            edit,
        } = disposition(rejected)
        else {
            panic!("not a dead letter");
        };
        assert_eq!((reason.len(), &*description), (4096, "from the error"));
        assert!(edit.is_some());
    }
}
