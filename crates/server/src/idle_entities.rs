//! Deletes queues, topics and subscriptions whose idle time exceeds their setting.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use highwater_access::{AuditEvent, AuditLog};
use highwater_queue::{Queues, Topics};

/// The longest delay of a deletion. Idle times are 5 minutes at least.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use highwater_env::{RealDisk, SimClock};
    use highwater_hub::Hub;
    use highwater_log::Log;
    use highwater_queue::{NewTopic, Settings};

    use super::*;
    use crate::queues::{self, DeclaredQueue};
    use crate::topics;

    #[derive(Default)]
    struct AuditEvents(Mutex<Vec<AuditEvent>>);

    impl AuditLog for AuditEvents {
        fn record(&self, event: AuditEvent) {
            self.0.lock().unwrap().push(event);
        }
    }

    fn deleted_after(minutes: u64) -> Settings {
        Settings {
            auto_delete_on_idle: Some(Duration::from_secs(60 * minutes)),
            ..Settings::default()
        }
    }

    fn queue(name: &str, settings: Settings) -> DeclaredQueue {
        DeclaredQueue {
            name: name.to_owned(),
            settings,
            feed: None,
        }
    }

    // proves A3, G4
    #[tokio::test(start_paused = true)]
    async fn the_node_deletes_what_nobody_uses_and_says_so_in_the_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimClock::at_unix_nanos(0));
        let options = highwater_hub::Options::default();
        let hub = Hub::open(
            Arc::new(RealDisk),
            folder.path(),
            options,
            clock.clone(),
            &|_| {},
        )
        .unwrap();
        let log: Arc<dyn Log> = Arc::new(hub);
        let declared = [
            queue("short", deleted_after(5)),
            queue("long", deleted_after(60)),
            queue("kept", Settings::default()),
        ];
        let running = queues::start(log.clone(), clock.clone(), &declared).await;
        let queues = running.map_err(|(name, _)| name).unwrap().queues;
        let topic = NewTopic {
            name: "prices".to_owned(),
            settings: deleted_after(5),
            subscriptions: Vec::new(),
        };
        let topics = topics::start(log, clock.clone(), &[topic]).await.unwrap();
        let audit = Arc::new(AuditEvents::default());
        clock.advance(Duration::from_secs(6 * 60));
        let shutdown = tokio::time::sleep(INTERVAL + Duration::from_secs(1));
        let running = run(queues.clone(), topics.clone(), audit.clone(), shutdown);
        running.await.unwrap();
        let names: Vec<_> = queues
            .list()
            .iter()
            .map(|it| it.name().to_owned())
            .collect();
        assert_eq!(names, ["kept", "long"]);
        let recorded = std::mem::take(&mut *audit.0.lock().unwrap());
        let lines = recorded.into_iter().map(|event| {
            assert_eq!((event.who.as_str(), event.from), ("node", None));
            format!("{}: {} {}", event.operation, event.resource, event.outcome)
        });
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                "delete an idle queue: short ok",
                "delete an idle topic or subscription: prices ok"
            ]
        );
    }
}
