//! Percentiles of latencies in microseconds, as text and JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

pub(super) fn percentiles_text(latencies: &Histogram<u64>) -> String {
    let at = |quantile| Duration::from_micros(latencies.value_at_quantile(quantile));
    format!(
        "p50={:?} p99={:?} p99.9={:?} max={:?}",
        at(0.5),
        at(0.99),
        at(0.999),
        Duration::from_micros(latencies.max()),
    )
}

/// The percentiles in milliseconds, and the number of values as `count_field`.
pub(super) fn percentiles_json(count_field: &str, latencies: &Histogram<u64>) -> Value {
    let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    json!({
        (count_field): latencies.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999),
        "max_ms": latencies.max() as f64 / 1000.0,
    })
}
