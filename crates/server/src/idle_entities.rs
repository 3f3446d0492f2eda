//! Deletes queues, topics and subscriptions that nobody has used for as long as their settings say.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::{AuditEvent, AuditLog};
use highwater_queue::{Queues, Topics};

/// An entity is deleted at most this much later than its settings say, which is 5 minutes at least.
const INTERVAL: Duration = Duration::from_secs(30);

pub(crate) async fn run(
    queues: Queues,
    topics: Topics,
    audit: Arc<dyn AuditLog>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Infallible> {
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            () = tokio::time::sleep(INTERVAL) => {}
        }
        for (name, result) in queues.delete_idle().await {
            record(&*audit, "delete an idle queue", name, result);
        }
        for (name, result) in topics.delete_idle().await {
            record(
                &*audit,
                "delete an idle topic or subscription",
                name,
                result,
            );
        }
    }
}

fn record(
    audit: &dyn AuditLog,
    operation: &str,
    resource: String,
    result: Result<(), impl Display>,
) {
    let outcome = match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => error.to_string(),
    };
    audit.record(AuditEvent {
        who: "node".into(),
        from: None,
        operation: operation.into(),
        resource,
        outcome,
    });
}
