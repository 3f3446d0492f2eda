//! The audit log: to the log of the node, and to the hub `__audit`.
//!
//! Recording never blocks a request. The queue to the hub is bounded, and events that it has no capacity for are
//! counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use highwater_access::{AuditEvent, AuditLog};
use highwater_env::Clock;
use highwater_log::batch::NewRecord;
use highwater_log::{EnqueueTime, HubName, HubSettings, HubSpec, Log};
use serde_json::json;
use tokio::sync::mpsc;

use crate::text::time_text;

pub(crate) const AUDIT_HUB: &str = "__audit";

/// Wrong keys cause events too, so the hub is bounded in size as well.
const RETENTION: Duration = Duration::from_secs(365 * 24 * 3600);
const RETENTION_BYTES: u64 = 1 << 30;

const QUEUE_EVENTS: usize = 1024;
const BATCH_EVENTS: usize = 128;

/// The end of the queue that requests write to.
pub(crate) struct AuditQueue {
    clock: Arc<dyn Clock>,
    records: mpsc::Sender<String>,
    dropped: Arc<AtomicU64>,
}

/// Writes the queue to the hub.
pub(crate) struct AuditWriter {
    records: mpsc::Receiver<String>,
    dropped: Arc<AtomicU64>,
}

pub(crate) fn queue(clock: Arc<dyn Clock>) -> (Arc<AuditQueue>, AuditWriter) {
    let (sender, records) = mpsc::channel(QUEUE_EVENTS);
    let dropped = Arc::<AtomicU64>::default();
    let queue = AuditQueue {
        clock,
        records: sender,
        dropped: dropped.clone(),
    };
    (Arc::new(queue), AuditWriter { records, dropped })
}

impl AuditLog for AuditQueue {
    fn record(&self, event: AuditEvent) {
        let AuditEvent {
            who,
            from,
            operation,
            resource,
            outcome,
        } = event;
        let from = from.map(|from| from.to_string()).unwrap_or_default();
        tracing::info!(target: "audit", who, from, operation, resource, outcome, "audit");
        let at = EnqueueTime(self.clock.unix_millis());
        let record = json!({
            "at": time_text(at), "who": who, "from": from, "operation": operation,
            "resource": resource, "outcome": outcome,
        });
        if self.records.try_send(record.to_string()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl AuditWriter {
    /// Writes until every end of the queue is dropped.
    pub(crate) async fn run(mut self, log: Arc<dyn Log>) {
        let mut records = Vec::new();
        while self.records.recv_many(&mut records, BATCH_EVENTS).await > 0 {
            if let Err(error) = append(&*log, &records).await {
                let count = records.len() as u64;
                self.dropped.fetch_add(count, Ordering::Relaxed);
                tracing::error!(error, "audit events cannot be written to {AUDIT_HUB}");
            }
            records.clear();
        }
    }
}

async fn append(log: &dyn Log, records: &[String]) -> Result<(), String> {
    if log.hub(AUDIT_HUB).is_none() {
        let spec = HubSpec {
            name: HubName::new(AUDIT_HUB).map_err(|error| error.to_string())?,
            partitions: 1,
            settings: HubSettings {
                retention: Some(RETENTION),
                retention_bytes: Some(RETENTION_BYTES),
                ..HubSettings::default()
            },
        };
        log.create(spec).await.map_err(|error| error.to_string())?;
    }
    let partition = log.partition(AUDIT_HUB, 0).ok_or("the hub is gone")?;
    let records: Vec<NewRecord<'_>> = records
        .iter()
        .map(|record| NewRecord {
            key: None,
            value: Some(record.as_bytes()),
            headers: &[],
        })
        .collect();
    let appended = partition.append_records(&records).await;
    appended.map(drop).map_err(|error| error.to_string())
}
