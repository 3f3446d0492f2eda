//! The processors of a node: hubs whose events go to handlers.
//!
//! Every processor has a circuit of its name on the hub `__circuits` and a dead-letter hub of its own. [`Processors`]
//! starts them, has their state, and stops them: it waits for attempts in progress and stores positions.

mod command;
pub mod notify;
mod spec;
mod webhook;
mod wire;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_connect::http;
use highwater_env::random::Random;
use highwater_env::{Clock, EgressPolicy, disk, shutdown_signal};
use highwater_flow::{
    Breaker, Circuits, DeadLetterPartition, Delivery, Event, Failure, GroupMember, GroupTimeouts,
    Handler, Options, Processor, ProcessorStats,
};
use highwater_log::{
    AdminError, BoxFuture, CleanupPolicy, GroupCoordinator, HubName, HubSettings, HubSpec, Log,
};
use highwater_retry::{Backoff, RetryPolicy};
use highwater_settings::{Secrets, redact_url};
use hyper::Uri;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use notify::link::Signer;
use notify::{CircuitNotifier, Notifier};
pub use spec::{HandlerSpec, ProcessorSpec, Secret, TransientFailures};
pub(crate) use wire::event_json;

/// The hub with the states of circuits.
const CIRCUITS: &str = "__circuits";

/// The overhead of a dead letter over its event: sixteen reasons of a thousand characters.
const DEAD_LETTER_OVERHEAD_BYTES: u32 = 128 * 1024;

/// Idle connections kept to a webhook.
const IDLE_MAX: usize = 256;

/// The processors of a node.
pub struct Processors {
    entries: Vec<Entry>,
    circuits: Circuits,
    signer: Signer,
    clock: Arc<dyn Clock>,
    stop: watch::Sender<bool>,
    stop_services: watch::Sender<bool>,
    tasks: std::sync::Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    processors: Vec<JoinHandle<()>>,
    /// Circuits, notifications and commands, which stop after the processors.
    services: Vec<JoinHandle<()>>,
}

/// A running processor.
pub struct Entry {
    pub spec: ProcessorSpec,
    pub activity: Arc<ProcessorStats>,
    pub circuit: Breaker,
    pub letters: DeadLetterPartition,
    handler: Arc<dyn Handler>,
}

/// The parts of a node that processors use.
pub(crate) struct NodeParts {
    pub log: Arc<dyn Log>,
    /// Has the circuits and dead letters.
    pub state: Arc<dyn Log>,
    pub groups: Arc<dyn GroupCoordinator>,
    pub clock: Arc<dyn Clock>,
    pub egress: EgressPolicy,
}

/// Why a processor cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    #[error("processor `{name}` cannot run: {why}")]
    Handler { name: String, why: String },
    #[error("hub `{hub}` cannot be created: {error}")]
    Hub { hub: HubName, error: AdminError },
    #[error("{0}")]
    Key(String),
    #[error("circuits cannot be read: {0}")]
    Circuits(String),
}

impl Processors {
    pub(crate) async fn start(
        specs: Vec<ProcessorSpec>,
        notifier: Notifier,
        data: &Path,
        parts: NodeParts,
    ) -> Result<Arc<Processors>, ProcessorError> {
        let hub = HubName::new(CIRCUITS).expect("the name is well-formed");
        ensure_hub(
            &*parts.state,
            &hub,
            unlimited_retention(CleanupPolicy::Delete, 0),
        )
        .await?;
        let Some(partition) = parts.state.partition(CIRCUITS, 0) else {
            return Err(ProcessorError::Circuits(
                "their hub has no partition".into(),
            ));
        };
        let (circuits, openings) = Circuits::new(partition, Arc::clone(&parts.clock));
        let (stop, stop_services) = (watch::Sender::new(false), watch::Sender::new(false));
        let mut tasks = Tasks::default();
        let mut entries = Vec::new();
        for spec in specs {
            let entry = Entry::new(spec, &parts, &circuits, &stop_services, &mut tasks).await?;
            entries.push(entry);
        }
        let loaded = circuits.load().await;
        loaded.map_err(|error| ProcessorError::Circuits(error.to_string()))?;
        let signer = Signer::open(data).map_err(ProcessorError::Key)?;
        let notifier = CircuitNotifier {
            notifier,
            circuits: circuits.clone(),
            signer: signer.clone(),
        };
        let running = circuits
            .clone()
            .run(shutdown_signal(stop_services.subscribe()));
        let stopped = shutdown_signal(stop_services.subscribe());
        tasks.services.push(tokio::spawn(running));
        tasks.services.push(tokio::spawn(async move {
            tokio::select! {
                () = notifier.run(openings) => {}
                () = stopped => {}
            }
        }));
        for entry in &entries {
            let running = entry.processor(&parts).run(
                Arc::clone(&entry.handler),
                shutdown_signal(stop.subscribe()),
            );
            tasks.processors.push(tokio::spawn(running));
        }
        Ok(Arc::new(Processors {
            entries,
            circuits,
            signer,
            clock: parts.clock,
            stop,
            stop_services,
            tasks: std::sync::Mutex::new(tasks),
        }))
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.spec.name == name)
    }

    pub fn circuits(&self) -> &Circuits {
        &self.circuits
    }

    pub(crate) fn signer(&self) -> &Signer {
        &self.signer
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Completes when the attempts in progress have ended and positions and circuits are stored.
    pub async fn stop(&self) {
        let tasks = {
            let mut tasks = self
                .tasks
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        // A panic has been reported, and leaves nothing to stop.
        self.stop.send_replace(true);
        for task in tasks.processors {
            let _ = task.await;
        }
        self.stop_services.send_replace(true);
        for task in tasks.services {
            let _ = task.await;
        }
    }
}

impl Entry {
    async fn new(
        spec: ProcessorSpec,
        parts: &NodeParts,
        circuits: &Circuits,
        stop: &watch::Sender<bool>,
        tasks: &mut Tasks,
    ) -> Result<Entry, ProcessorError> {
        let largest = parts.log.hub(spec.hub.as_str());
        let largest = largest.map_or(HubSettings::default().batch_bytes_max, |hub| {
            hub.settings.batch_bytes_max
        });
        ensure_hub(
            &*parts.state,
            &spec.dead,
            unlimited_retention(CleanupPolicy::Compact, largest),
        )
        .await?;
        let Some(dead) = parts.state.partition(spec.dead.as_str(), 0) else {
            let why = format!("hub `{}` has no partition", spec.dead);
            return Err(ProcessorError::Handler {
                name: spec.name,
                why,
            });
        };
        let handler = match handler(&spec, parts, stop, tasks) {
            Ok(handler) => handler,
            Err(why) => {
                return Err(ProcessorError::Handler {
                    name: spec.name,
                    why,
                });
            }
        };
        Ok(Entry {
            activity: Arc::default(),
            circuit: circuits.circuit(&spec.name, spec.rule.clone(), spec.poison_max),
            letters: DeadLetterPartition(dead),
            handler,
            spec,
        })
    }

    fn processor(&self, parts: &NodeParts) -> Processor {
        let spec = &self.spec;
        Processor {
            member: GroupMember {
                log: Arc::clone(&parts.log),
                groups: Arc::clone(&parts.groups),
                hub: spec.hub.clone(),
                group: spec.group.clone(),
                client: format!("processor {}", spec.name),
                assignment: spec.assignment.clone(),
                timeouts: GroupTimeouts::default(),
            },
            start: spec.start,
            share: spec.share,
            check: spec.only_json.then_some(is_json),
            batch: (spec.batch > 1).then_some(spec.batch as usize),
            options: Options {
                circuit: Some(self.circuit.clone()),
                seed: Random::from_os().next_u64(),
                // A timeout that is final is the business of the handler, `FinalTimeout`.
                timeout: spec.options.timeout.filter(|_| spec.transient.timeout),
                ..spec.options.clone()
            },
            checkpoint_interval: spec.checkpoint_interval,
            dead_letters: Arc::new(self.letters.clone()),
            clock: Arc::clone(&parts.clock),
            restart: RetryPolicy {
                backoff: Backoff::Exponential {
                    first: Duration::from_secs(1),
                    cap: Duration::from_secs(60),
                },
                tries_max: None,
                ..RetryPolicy::default()
            },
            stats: Arc::clone(&self.activity),
        }
    }

    /// Delivers one event to the handler, beside the processor's own deliveries, within the timeout.
    pub async fn deliver(&self, delivery: Delivery<Event>) -> Result<(), Failure> {
        let timeout = self.spec.options.timeout.unwrap_or(Duration::MAX);
        let handled = tokio::time::timeout(timeout, self.handler.handle(vec![delivery]));
        let timed_out = || Err(Failure::transient(format!("no answer within {timeout:?}")));
        handled.await.unwrap_or_else(|_| timed_out())
    }
}

/// Parses the URL of a webhook.
pub(crate) fn parse_url(url: &str) -> Result<Uri, String> {
    let shown = redact_url(url);
    let uri: Uri = (url.parse()).map_err(|error| format!("`{shown}` is no URL: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(format!("`{shown}` is neither http nor https"));
    }
    match uri.authority() {
        Some(authority) if !authority.as_str().contains('@') => Ok(uri),
        _ => Err(format!("`{shown}` names no host, or a user")),
    }
}

/// Reads a file of certificates.
fn read_certificates(path: Option<&Path>) -> Result<Option<String>, String> {
    let read = |path: &Path| {
        let failed = |error| format!("cannot read {}: {error}", path.display());
        disk::read_to_string(path).map_err(failed)
    };
    path.map(read).transpose()
}

/// The text of a setting with its secrets in place of the references.
fn resolve_secrets(text: &str) -> Result<Cow<'_, str>, String> {
    let resolved = Secrets::default().resolve(text);
    resolved.map_err(|error| error.to_string())
}

fn handler(
    spec: &ProcessorSpec,
    parts: &NodeParts,
    stop: &watch::Sender<bool>,
    tasks: &mut Tasks,
) -> Result<Arc<dyn Handler>, String> {
    let handler: Arc<dyn Handler> = match &spec.handler {
        HandlerSpec::Webhook {
            url,
            authorization,
            ca,
        } => {
            let options = http::Options {
                timeout: spec.options.timeout.unwrap_or(Duration::MAX),
                idle_max: IDLE_MAX,
                ca: read_certificates(ca.as_deref())?,
                egress: parts.egress.clone(),
                ..http::Options::default()
            };
            let resolved = resolve_secrets(url)?;
            let parsed = parse_url(&resolved).map_err(|why| match &resolved {
                Cow::Borrowed(_) => why,
                Cow::Owned(_) => format!("`{url}` is no URL with its secrets"),
            });
            Arc::new(webhook::Webhook::new(
                http::Client::new(options),
                parsed?,
                &spec.name,
                authorization.as_ref(),
                spec.transient.clone(),
                spec.batch > 1,
                Arc::clone(&parts.clock),
            )?)
        }
        HandlerSpec::Command(command) => {
            let (handler, running) = command::CommandHandler::new(
                &spec.name,
                command.clone(),
                shutdown_signal(stop.subscribe()),
            );
            tasks.services.push(tokio::spawn(running));
            Arc::new(handler)
        }
    };
    Ok(match (spec.transient.timeout, spec.options.timeout) {
        (false, Some(timeout)) => Arc::new(FinalTimeout { handler, timeout }),
        _ => handler,
    })
}

/// A handler whose timeouts are permanent failures.
struct FinalTimeout {
    handler: Arc<dyn Handler>,
    timeout: Duration,
}

impl Handler for FinalTimeout {
    fn handle(&self, deliveries: Vec<Delivery<Event>>) -> BoxFuture<Result<(), Failure>> {
        let (handled, timeout) = (self.handler.handle(deliveries), self.timeout);
        Box::pin(async move {
            let timed_out = |_| Err(Failure::permanent(format!("no answer within {timeout:?}")));
            tokio::time::timeout(timeout, handled)
                .await
                .unwrap_or_else(timed_out)
        })
    }
}

fn is_json(event: &Event) -> Result<(), String> {
    let value = event.value().unwrap_or(b"null");
    let read = serde_json::from_slice::<serde::de::IgnoredAny>(value);
    read.map(drop)
        .map_err(|error| format!("the value is no JSON: {error}"))
}

fn unlimited_retention(cleanup: CleanupPolicy, largest: u32) -> HubSettings {
    let settings = HubSettings::default();
    let largest = largest.saturating_add(DEAD_LETTER_OVERHEAD_BYTES);
    let mut settings = HubSettings {
        cleanup,
        retention: None,
        batch_bytes_max: settings.batch_bytes_max.max(largest),
        ..settings
    };
    settings.set_for_hub([
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "max.message.bytes",
    ]);
    settings
}

/// Creates a hub with one partition, or changes its settings.
async fn ensure_hub(
    log: &dyn Log,
    name: &HubName,
    settings: HubSettings,
) -> Result<(), ProcessorError> {
    let hub = name.clone();
    let ensured = match log.hub(name.as_str()) {
        None => {
            let (name, partitions) = (name.clone(), 1);
            log.create(HubSpec {
                name,
                partitions,
                settings,
            })
            .await
        }
        Some(found) if !found.settings.has_values_of(&settings) => log.change(name, settings).await,
        Some(found) => Ok(found),
    };
    ensured
        .map(drop)
        .map_err(|error| ProcessorError::Hub { hub, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_a_host_and_no_user() {
        for url in [
            "host/path",
            "ftp://host",
            "http://",
            "http://a:b@host",
            "http://ho st",
        ] {
            assert!(parse_url(url).is_err(), "{url}");
        }
        assert!(parse_url("https://[::1]/a?b=c").is_ok());
    }
}
