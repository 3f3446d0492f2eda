//! Records of the audit log: who did what, from where, and with which outcome.

use std::net::SocketAddr;

/// Refused logins, and every change to keys, hubs, jobs, processors, workflows, queues and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// The name of the key; `anonymous` on a node without keys.
    pub who: String,
    /// `None` for the node itself.
    pub from: Option<SocketAddr>,
    /// `POST /api/hubs/{hub}`, `CreateTopics`, or `login`.
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
