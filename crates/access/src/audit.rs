//! Records of the audit log: who did what, from where, and with which outcome.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Mutex;

/// Refused logins and rights, and every change to keys, hubs, jobs, processors, workflows, queues and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// The name of the key; `anonymous` on a node without keys.
    pub who: String,
    /// `None` for the node itself.
    pub from: Option<SocketAddr>,
    /// `POST /api/hubs/{hub}`, `CreateTopics`, `send to a queue`, or `login`.
    pub operation: String,
    /// The name of the hub, queue, group or job.
    pub resource: String,
    /// `ok`, or the code of the error.
    pub outcome: String,
}

/// Where audit events go. Recording never blocks.
pub trait AuditLog: Send + Sync {
    fn record(&self, event: AuditEvent);

    /// Events that could not be stored.
    fn dropped(&self) -> u64 {
        0
    }
}

/// Drops all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAudit;

impl AuditLog for NoAudit {
    fn record(&self, _event: AuditEvent) {}
}

/// Different refusals that one connection records.
const REFUSALS_MAX: usize = 64;

/// Names in refused requests are the client's, of any length.
const NAME_CHARS_MAX: usize = 256;

/// The refusals that one connection has recorded.
///
/// Clients repeat a refused request for as long as they run. Only the first refusal of each operation on each resource
/// is recorded, up to a limit, because a full queue to the audit log loses the events of all clients.
#[derive(Debug, Default)]
pub struct RefusalLog {
    /// Hashes, because the names may be long.
    recorded: Mutex<BTreeSet<u64>>,
}

impl RefusalLog {
    /// The event to record for this refusal: none if there is one already, and the last one says that no more follow.
    pub fn admit(&self, mut event: AuditEvent) -> Option<AuditEvent> {
        let mut hasher = DefaultHasher::new();
        (&event.who, &event.operation, &event.resource).hash(&mut hasher);
        let mut recorded = self
            .recorded
            .lock()
            .expect("no thread panics with the lock");
        if recorded.len() > REFUSALS_MAX || !recorded.insert(hasher.finish()) {
            return None;
        }
        if recorded.len() > REFUSALS_MAX {
            event.operation = "further refusals of this connection".into();
            event.resource.clear();
        } else if let Some((end, _)) = event.resource.char_indices().nth(NAME_CHARS_MAX) {
            event.resource.truncate(end);
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(operation: &str, resource: &str) -> AuditEvent {
        AuditEvent {
            who: "app".into(),
            from: None,
            operation: operation.into(),
            resource: resource.into(),
            outcome: "forbidden".into(),
        }
    }

    // proves G6
    #[test]
    fn each_refusal_of_a_connection_is_recorded_once_and_so_many_of_them() {
        let log = RefusalLog::default();
        for event in [
            refusal("Produce", "h"),
            refusal("Fetch", "h"),
            refusal("Fetch", "i"),
        ] {
            assert_eq!(log.admit(event.clone()), Some(event.clone()));
            assert_eq!(log.admit(event), None);
        }
        for count in 3..REFUSALS_MAX {
            let event = refusal("Fetch", &format!("h{count}"));
            assert_eq!(log.admit(event.clone()), Some(event));
        }
        let last = log.admit(refusal("Fetch", "one more"));
        let further = "further refusals of this connection";
        assert_eq!(last, Some(refusal(further, "")));
        for name in ["one more", "another"] {
            assert_eq!(log.admit(refusal("Fetch", name)), None);
        }
    }

    #[test]
    fn a_long_name_is_cut_but_told_from_others() {
        let log = RefusalLog::default();
        for end in ["a", "b"] {
            let long = format!("{}{end}", "ä".repeat(NAME_CHARS_MAX));
            let admitted = log
                .admit(refusal("Fetch", &long))
                .map(|event| event.resource);
            assert_eq!(admitted, Some("ä".repeat(NAME_CHARS_MAX)));
        }
    }
}
