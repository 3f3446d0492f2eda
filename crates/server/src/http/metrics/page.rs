//! The page for Prometheus: metrics of every part of the node in its text format.
//!
//! The format takes a dozen lines to write, so there is no library behind it.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_flow::ProcessorStats;
use highwater_kafka::{ClientMetric, MetricsSnapshot};
use highwater_log::Log;
use highwater_queue::{Counts, Queues, Totals};
use highwater_workflow::Handle;
use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::families::*;
use super::{BUCKETS_MICROS, Metrics};
use crate::amqp::Metrics as AmqpMetrics;
use crate::http::app::{App, Backend};
use crate::http::processors;
use crate::http::reply::{self, Payload, Reply};
use crate::processors::{Entry, Processors};
use crate::tokens::Tokens;
use crate::workflows::Workflows;

/// Lines of a hub, and the bytes of each beside the name.
const HUB_LINES: usize = 4;
const HUB_LINE_BYTES: usize = 80;
/// All that is not about hubs.
const OTHER_BYTES: usize = 256 << 10;

/// The largest size of the page, by the names on it.
pub(in crate::http) fn bytes_max(app: &App) -> usize {
    let hubs = app.log().map(|log| log.hubs()).unwrap_or_default();
    let lines = |name: &str| HUB_LINES * (name.len() + HUB_LINE_BYTES);
    let of_hubs = hubs.iter().map(|hub| lines(hub.name.as_str()));
    OTHER_BYTES + of_hubs.sum::<usize>()
}

pub(in crate::http) async fn page(app: &App) -> Reply {
    let mut page = Page::default();
    http(&mut page, app);
    if let Ok(backend) = app.backend() {
        hubs(&mut page, backend);
        if let Some(queues) = &backend.queues {
            queue_side(&mut page, queues);
        }
        if let Some(jobs) = &backend.jobs {
            super::jobs::jobs(&mut page, jobs);
        }
        workflows(&mut page, &backend.workflows);
        if let Some(kafka) = &backend.kafka {
            kafka_side(&mut page, &kafka.metrics());
            kafka_clients(&mut page, &kafka.client_metrics());
        }
        if let Some(amqp) = app.amqp_metrics() {
            amqp_side(&mut page, amqp);
        }
        if let Some(running) = &backend.processors {
            processors(&mut page, app, running).await;
        }
    }
    process(&mut page);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    reply::typed(StatusCode::OK, kind, Payload::whole(page.out))
}

fn http(page: &mut Page, app: &App) {
    let metrics = &app.metrics;
    let classes = (1..=5).map(|class| (format!("{class}xx"), metrics.answers[class].get()));
    page.each(&HTTP_REQUESTS, classes);
    page.one(&HTTP_FULL, metrics.full.get());
    page.one(&HTTP_EVENTS, metrics.events.get());
    page.one(&HTTP_EVENT_BYTES, metrics.event_bytes.get());
    page.one(&HTTP_CONNECTIONS, metrics.connections.open.get());
    page.one(&HTTP_CONNECTIONS_REFUSED, metrics.connections.refused.get());
    page.one(&HTTP_LOGINS_REFUSED, metrics.logins_refused.get());
    if let Ok(backend) = app.backend() {
        page.one(&AUDIT_DROPPED, backend.audit.dropped());
    }
    if let Some(counts) = app.tokens().and_then(Tokens::fetch_counts) {
        page.one(&JWKS_FETCHES, counts.fetches);
        page.one(&JWKS_FETCH_FAILURES, counts.failures);
    }
    page.one(&HTTP_IN_FLIGHT, app.budget.taken());
    latency(page, metrics);
}

type WorkflowValue = fn(&Handle) -> usize;

fn workflows(page: &mut Page, workflows: &Workflows) {
    let values: [(_, WorkflowValue); 3] = [
        (&WORKFLOW_RUNNING, Handle::running),
        (&WORKFLOW_FAILED, Handle::failed),
        (&WORKFLOW_ENDED, Handle::ended),
    ];
    let workflows = workflows.list();
    for (family, value) in values {
        let of = |workflow| (Handle::name(workflow), value(workflow) as u64);
        page.each(family, workflows.iter().map(of));
    }
}

fn latency(page: &mut Page, metrics: &Metrics) {
    let name = HTTP_LATENCY.name;
    page.start(&HTTP_LATENCY);
    let mut sum = 0;
    for (count, end) in metrics.latency.iter().zip(BUCKETS_MICROS) {
        sum += count.get();
        let end = end as f64 / 1e6;
        page.line(format_args!("{name}_bucket{{le=\"{end}\"}} {sum}"));
    }
    sum += metrics.latency[BUCKETS_MICROS.len()].get();
    let seconds = metrics.latency_micros.get() as f64 / 1e6;
    page.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {sum}"));
    page.line(format_args!("{name}_sum {seconds}"));
    page.line(format_args!("{name}_count {sum}"));
}

/// Sums over the partitions of a hub.
#[derive(Default)]
struct HubSums {
    partitions: u64,
    end_offsets: u64,
    bytes: u64,
    stopped: u64,
}

type HubValue = fn(&HubSums) -> u64;

fn hubs(page: &mut Page, backend: &Backend) {
    let mut hubs = sum_hubs(&*backend.log);
    let status = backend.hub.as_ref().map(|hub| hub.status());
    let partitions = status.iter().flat_map(|status| &status.partitions);
    for partition in partitions.filter(|partition| partition.stopped.is_some()) {
        if let Some(sums) = hubs.get_mut(partition.topic_partition.hub.as_str()) {
            sums.stopped += 1;
        }
    }
    let values: [(_, HubValue); 4] = [
        (&HUB_PARTITIONS, |sums| sums.partitions),
        (&HUB_STOPPED, |sums| sums.stopped),
        (&HUB_END_OFFSETS, |sums| sums.end_offsets),
        (&HUB_BYTES, |sums| sums.bytes),
    ];
    for (family, value) in values {
        page.each(family, hubs.iter().map(|(hub, sums)| (hub, value(sums))));
    }
    let Some(status) = status else {
        return;
    };
    let totals = status.totals;
    page.one(&HUB_APPEND_RECORDS, totals.records);
    page.one(&HUB_APPEND_BATCHES, totals.batches);
    page.one(&HUB_APPEND_BYTES, totals.bytes);
    page.one(&HUB_WRITES, totals.groups);
    page.one(&HUB_SYNCS, totals.syncs);
    page.one(&HUB_SYNC_SECONDS, totals.sync_time.as_secs_f64());
    page.one(&HUB_WAITING, status.waiting_bytes);
    page.one(&HUB_TURNED_AWAY, totals.rejected);
    let reads = [("memory", totals.reads_tail), ("disk", totals.reads_disk)];
    page.each(&HUB_READS, reads);
    page.one(&HUB_READ_BYTES, totals.read_bytes);
}

fn sum_hubs(log: &dyn Log) -> BTreeMap<String, HubSums> {
    let mut hubs = BTreeMap::new();
    for hub in log.hubs() {
        let sums: &mut HubSums = hubs.entry(hub.name.to_string()).or_default();
        let partitions =
            (0..hub.partitions).filter_map(|number| log.partition(hub.name.as_str(), number));
        for bounds in partitions.map(|partition| partition.bounds()) {
            sums.partitions += 1;
            sums.end_offsets += bounds.end.0 as u64;
            sums.bytes += bounds.bytes;
        }
    }
    hubs
}

type QueueValue = fn(&(Counts, Totals)) -> u64;

fn queue_side(page: &mut Page, queues: &Queues) {
    let values: [(_, QueueValue); 14] = [
        (&QUEUE_ACTIVE, |(counts, _)| counts.active),
        (&QUEUE_SCHEDULED, |(counts, _)| counts.scheduled),
        (&QUEUE_DEFERRED, |(counts, _)| counts.deferred),
        (&QUEUE_LOCKED, |(counts, _)| counts.locked),
        (&QUEUE_DEAD, |(counts, _)| counts.dead),
        (&QUEUE_BYTES, |(counts, _)| counts.bytes),
        (&QUEUE_SENT, |(_, totals)| totals.sent),
        (&QUEUE_DUPLICATES, |(_, totals)| totals.duplicates),
        (&QUEUE_RECEIVED, |(_, totals)| totals.received),
        (&QUEUE_COMPLETED, |(_, totals)| totals.completed),
        (&QUEUE_ABANDONED, |(_, totals)| totals.abandoned),
        (&QUEUE_DEAD_LETTERED, |(_, totals)| totals.dead_lettered),
        (&QUEUE_EXPIRED, |(_, totals)| totals.expired),
        (&QUEUE_LOCKS_LOST, |(_, totals)| totals.locks_lost),
    ];
    let queues = queues.list();
    let counts: Vec<_> = (queues.iter())
        .map(|queue| (queue.name(), queue.counters()))
        .collect();
    for (family, value) in values {
        page.each(
            family,
            counts.iter().map(|(name, counts)| (*name, value(counts))),
        );
    }
}

fn amqp_side(page: &mut Page, amqp: &AmqpMetrics) {
    page.one(&AMQP_EVENTS_RECEIVED, amqp.events_in.get());
    page.one(&AMQP_EVENTS_SENT, amqp.events_out.get());
    page.one(&AMQP_REJECTED, amqp.rejected.get());
    page.one(&AMQP_THROTTLED, amqp.throttled.get());
    page.one(&AMQP_MALFORMED, amqp.malformed.get());
    page.one(&AMQP_RECEIVED, amqp.bytes_in.get());
    page.one(&AMQP_SENT, amqp.bytes_out.get());
    page.one(&AMQP_CONNECTIONS, amqp.connections.open.get());
    page.one(&AMQP_CONNECTIONS_ACCEPTED, amqp.connections.accepted.get());
    page.one(&AMQP_CONNECTIONS_REFUSED, amqp.connections.refused.get());
    page.one(&AMQP_LOGINS_REFUSED, amqp.logins_refused.get());
}

fn kafka_side(page: &mut Page, kafka: &MetricsSnapshot) {
    let requests = kafka.requests.iter().map(|(api, count)| (api, *count));
    page.each(&KAFKA_REQUESTS, requests);
    page.one(&KAFKA_ERRORS, kafka.errors);
    page.one(&KAFKA_THROTTLED, kafka.throttled);
    page.one(&KAFKA_MALFORMED, kafka.malformed);
    page.one(&KAFKA_RECEIVED, kafka.bytes_in);
    page.one(&KAFKA_SENT, kafka.bytes_out);
    page.one(&KAFKA_CONNECTIONS, kafka.connections);
    page.one(&KAFKA_CONNECTIONS_ACCEPTED, kafka.connections_total);
    page.one(&KAFKA_CONNECTIONS_REFUSED, kafka.connections_refused);
    page.one(&KAFKA_LOGINS_REFUSED, kafka.logins_refused);
    page.one(&KAFKA_SESSIONS_EXPIRED, kafka.sessions_expired);
}

fn kafka_clients(page: &mut Page, metrics: &[ClientMetric]) {
    if metrics.is_empty() {
        return;
    }
    page.start(&KAFKA_CLIENT_METRIC);
    for metric in metrics {
        let labels = [metric.client.as_str(), metric.metric.as_str()];
        page.value(&KAFKA_CLIENT_METRIC, &labels, metric.value);
    }
}

type ProcessorCounter = fn(&ProcessorStats) -> &AtomicU64;

async fn processors(page: &mut Page, app: &App, running: &Processors) {
    let entries = running.entries();
    let counters: [(_, ProcessorCounter); 5] = [
        (&PROCESSOR_DELIVERIES, |stats| &stats.deliveries),
        (&PROCESSOR_FAILURES, |stats| &stats.failures),
        (&PROCESSOR_HANDLED, |stats| &stats.handled),
        (&PROCESSOR_DEAD, |stats| &stats.dead),
        (&PROCESSOR_RESTARTS, |stats| &stats.restarts),
    ];
    for (family, counter) in counters {
        let of = |entry: &Entry| {
            let count = counter(&entry.activity).load(Ordering::Relaxed);
            (entry.spec.name.clone(), count)
        };
        page.each(family, entries.iter().map(of));
    }
    let mut behind = Vec::new();
    for entry in entries {
        // Unknown while groups are loading.
        if let Ok(positions) = processors::positions(app, entry).await {
            let sum: i64 = positions.iter().map(processors::Position::behind).sum();
            behind.push((&entry.spec.name, sum as u64));
        }
    }
    page.each(&PROCESSOR_BEHIND, behind);
    let open = |entry: &Entry| {
        (
            entry.spec.name.clone(),
            u64::from(processors::is_open(entry)),
        )
    };
    page.each(&PROCESSOR_OPEN, entries.iter().map(open));
}

fn process(page: &mut Page) {
    let used = highwater_env::usage();
    if let Some(cpu) = used.cpu {
        page.one(&PROCESS_CPU, cpu.as_secs_f64());
    }
    if let Some(peak) = used.memory_peak_bytes {
        page.one(&PROCESS_MEMORY_PEAK, peak);
    }
}

#[derive(Default)]
pub(super) struct Page {
    out: String,
}

impl Page {
    pub(super) fn start(&mut self, family: &Family) {
        let Family {
            name, kind, help, ..
        } = family;
        let kind = kind.name();
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    /// A metric without labels.
    fn one(&mut self, family: &Family, value: impl Display) {
        self.start(family);
        self.line(format_args!("{} {value}", family.name));
    }

    /// A metric with one label whose values need no escaping, such as names of hubs and requests.
    fn each(&mut self, family: &Family, values: impl IntoIterator<Item = (impl Display, u64)>) {
        self.start(family);
        let label = family.labels.first().copied().unwrap_or_default();
        for (of, value) in values {
            self.line(format_args!("{}{{{label}=\"{of}\"}} {value}", family.name));
        }
    }

    /// A value of a metric that was started, with escaped labels.
    pub(super) fn value(&mut self, family: &Family, labels: &[&str], value: impl Display) {
        let escaped = |text: &str| {
            text.replace('\\', r"\\")
                .replace('"', "\\\"")
                .replace('\n', r"\n")
        };
        let labels = family.labels.iter().zip(labels);
        let labels: Vec<String> = labels
            .map(|(name, text)| format!("{name}=\"{}\"", escaped(text)))
            .collect();
        self.line(format_args!(
            "{}{{{}}} {value}",
            family.name,
            labels.join(",")
        ));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.out, "{line}").expect("writing to a string cannot fail");
    }
}
