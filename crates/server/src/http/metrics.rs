//! What the HTTP side counts, and the page that Prometheus reads.
//!
//! Names, units and help stand in one place, [`page`]. The text form is a dozen lines of writing, so
//! there is no library behind it.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::app::App;
use super::reply::{self, Payload, Reply};

/// Upper ends of the latency buckets, in microseconds.
const BUCKETS_MICROS: [u64; 12] = [
    250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
];

#[derive(Debug, Default)]
pub struct Metrics {
    /// Answers by the first digit of their status.
    answers: [AtomicU64; 6],
    full: AtomicU64,
    events: AtomicU64,
    event_bytes: AtomicU64,
    /// Requests per bucket, not yet summed up; the last is for everything slower.
    latency: [AtomicU64; BUCKETS_MICROS.len() + 1],
    latency_micros: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) connections_refused: AtomicU64,
}

impl Metrics {
    pub fn answered(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).min(5);
        add(&self.answers[class], 1);
        if status == StatusCode::TOO_MANY_REQUESTS {
            add(&self.full, 1);
        }
        let micros = took.as_micros() as u64;
        let bucket = BUCKETS_MICROS.partition_point(|end| *end < micros);
        add(&self.latency[bucket], 1);
        add(&self.latency_micros, micros);
    }

    pub fn stored(&self, events: usize, bytes: usize) {
        add(&self.events, events as u64);
        add(&self.event_bytes, bytes as u64);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The page, in Prometheus' text form.
pub fn page(app: &App) -> Reply {
    let mut page = Page::default();
    let metrics = &app.metrics;
    page.start(
        "highwater_http_requests_total",
        "counter",
        "Requests answered, by class of status",
    );
    for class in 1..=5 {
        let labels = format!("class=\"{class}xx\"");
        page.value(
            "highwater_http_requests_total",
            &labels,
            get(&metrics.answers[class]),
        );
    }
    for (name, kind, help, value) in [
        (
            "highwater_http_full_total",
            "counter",
            "Requests answered with 429",
            get(&metrics.full),
        ),
        (
            "highwater_http_events_total",
            "counter",
            "Events stored",
            get(&metrics.events),
        ),
        (
            "highwater_http_event_bytes_total",
            "counter",
            "Bytes of values stored",
            get(&metrics.event_bytes),
        ),
        (
            "highwater_http_connections",
            "gauge",
            "Open connections",
            get(&metrics.connections),
        ),
        (
            "highwater_http_connections_refused_total",
            "counter",
            "Connections refused because there were too many",
            get(&metrics.connections_refused),
        ),
        (
            "highwater_http_in_flight_bytes",
            "gauge",
            "Bytes of requests being worked on",
            app.budget.taken() as u64,
        ),
    ] {
        page.start(name, kind, help);
        page.value(name, "", value);
    }
    latency(&mut page, metrics);
    hubs(&mut page, app);
    process(&mut page);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    reply::typed(StatusCode::OK, kind, Payload::whole(page.out))
}

fn latency(page: &mut Page, metrics: &Metrics) {
    let name = "highwater_http_request_seconds";
    page.start(
        name,
        "histogram",
        "From the head of a request to its answer",
    );
    let mut sum = 0;
    for (count, end) in metrics.latency.iter().zip(BUCKETS_MICROS) {
        sum += get(count);
        let label = format!("le=\"{}\"", end as f64 / 1e6);
        page.value(&format!("{name}_bucket"), &label, sum);
    }
    sum += get(&metrics.latency[BUCKETS_MICROS.len()]);
    page.value(&format!("{name}_bucket"), "le=\"+Inf\"", sum);
    page.float(
        &format!("{name}_sum"),
        get(&metrics.latency_micros) as f64 / 1e6,
    );
    page.value(&format!("{name}_count"), "", sum);
}

type FromBounds = fn(&highwater_log::Bounds) -> u64;

fn hubs(page: &mut Page, app: &App) {
    let Ok(log) = app.log() else {
        return;
    };
    let mut all = Vec::new();
    for hub in log.hubs() {
        for number in 0..hub.partitions {
            if let Some(partition) = log.partition(hub.name.as_str(), number) {
                let labels = format!("hub=\"{}\",partition=\"{number}\"", hub.name);
                all.push((labels, partition.bounds()));
            }
        }
    }
    let start = ("highwater_hub_start_offset", "First offset kept");
    let end = (
        "highwater_hub_end_offset",
        "Offset that the next event gets",
    );
    let bytes = ("highwater_hub_bytes", "Bytes on the disk");
    let values: [(_, FromBounds); 3] = [
        (start, |bounds| bounds.start.0 as u64),
        (end, |bounds| bounds.end.0 as u64),
        (bytes, |bounds| bounds.bytes),
    ];
    for ((name, help), value) in values {
        page.start(name, "gauge", help);
        for (labels, bounds) in &all {
            page.value(name, labels, value(bounds));
        }
    }
}

fn process(page: &mut Page) {
    let used = highwater_env::usage();
    if let Some(cpu) = used.cpu {
        page.start(
            "process_cpu_seconds_total",
            "counter",
            "CPU time of the process",
        );
        page.float("process_cpu_seconds_total", cpu.as_secs_f64());
    }
    if let Some(peak) = used.memory_peak_bytes {
        page.start(
            "highwater_process_memory_peak_bytes",
            "gauge",
            "The most memory it ever had",
        );
        page.value("highwater_process_memory_peak_bytes", "", peak);
    }
}

#[derive(Default)]
struct Page {
    out: String,
}

impl Page {
    fn start(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &str, value: u64) {
        let _ = match labels {
            "" => writeln!(self.out, "{name} {value}"),
            _ => writeln!(self.out, "{name}{{{labels}}} {value}"),
        };
    }

    fn float(&mut self, name: &str, value: f64) {
        let _ = writeln!(self.out, "{name} {value}");
    }
}
