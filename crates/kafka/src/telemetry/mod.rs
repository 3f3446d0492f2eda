//! Metrics that clients push (KIP-714), for `/metrics` of the node.
//!
//! Clients choose names and numbers, so everything is bounded: instances, metrics of each, lengths of names, and the
//! metrics themselves: only requested ones. An instance that stays silent is forgotten.

mod otlp;
mod subscriptions;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

pub(crate) use otlp::InvalidMetrics;
pub(crate) use subscriptions::{ClientFacts, INTERVAL_DEFAULT, Subscription, check_match};

const INSTANCES_MAX: usize = 500;
const METRICS_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 100;
/// Values on the page, over all clients.
const VALUES_MAX: usize = 1000;
const SILENT_INTERVALS_MAX: u32 = 3;

/// The last value of a metric, over the instances with this client id: the sum of sums, the largest of others.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientMetric {
    pub client: String,
    pub metric: String,
    pub value: f64,
}

#[derive(Debug, Default)]
pub(crate) struct ClientTelemetry(Mutex<BTreeMap<Uuid, Instance>>);

#[derive(Debug)]
struct Instance {
    client: String,
    /// How often it pushes.
    interval: Duration,
    /// On the clock's elapsed time.
    seen: Duration,
    pushed: Option<Duration>,
    /// With whether it is a sum.
    metrics: BTreeMap<String, (f64, bool)>,
}

/// Why a push is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// It did not subscribe, or was forgotten.
    Unknown,
    TooEarly,
    Invalid(InvalidMetrics),
}

impl ClientTelemetry {
    fn instances(&self) -> MutexGuard<'_, BTreeMap<Uuid, Instance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an instance that pushes in this interval. False if there are too many.
    pub(crate) fn subscribe(
        &self,
        id: Uuid,
        client: &str,
        interval: Duration,
        now: Duration,
    ) -> bool {
        let mut instances = self.instances();
        if let Some(known) = instances.get_mut(&id) {
            (known.seen, known.interval) = (now, interval);
            return true;
        }
        if instances.len() >= INSTANCES_MAX {
            forget_silent(&mut instances, now);
        }
        if instances.len() >= INSTANCES_MAX {
            return false;
        }
        let instance = Instance {
            client: client.chars().take(NAME_CHARS_MAX).collect(),
            interval,
            seen: now,
            pushed: None,
            metrics: BTreeMap::new(),
        };
        instances.insert(id, instance);
        true
    }

    /// Takes the metrics of an instance. One that terminates may push early, and is forgotten.
    pub(crate) fn push(
        &self,
        id: Uuid,
        subscription: &Subscription,
        terminating: bool,
        now: Duration,
        message: &[u8],
    ) -> Result<(), PushError> {
        let mut instances = self.instances();
        let instance = instances.get_mut(&id).ok_or(PushError::Unknown)?;
        // Clients wait for half an interval at least.
        let interval_min = instance.interval * 2 / 5;
        let is_early = |last: Duration| now.saturating_sub(last) < interval_min;
        if instance.pushed.is_some_and(is_early) && !terminating {
            return Err(PushError::TooEarly);
        }
        instance.pushed = Some(now);
        instance.seen = now;
        let mut metrics = BTreeMap::new();
        let read = otlp::readings(message, |reading| {
            let name = reading.name;
            let is_requested = subscription.asks_for(name);
            let has_room = metrics.len() < METRICS_MAX || metrics.contains_key(name);
            if is_requested && has_room && name.len() <= NAME_CHARS_MAX {
                metrics.insert(name.to_owned(), (reading.value, reading.is_sum));
            }
        });
        read.map_err(PushError::Invalid)?;
        instance.metrics = metrics;
        if terminating {
            instances.remove(&id);
        }
        Ok(())
    }

    /// The values of the instances that pushed lately.
    pub(crate) fn snapshot(&self, now: Duration) -> Vec<ClientMetric> {
        let mut instances = self.instances();
        forget_silent(&mut instances, now);
        let mut values = BTreeMap::<(&str, &str), f64>::new();
        for instance in instances.values() {
            for (name, (value, is_sum)) in &instance.metrics {
                let all = values
                    .entry((&instance.client, name))
                    .or_insert(match is_sum {
                        true => 0.0,
                        false => f64::MIN,
                    });
                *all = match is_sum {
                    true => *all + value,
                    false => all.max(*value),
                };
            }
        }
        let values = values.into_iter().take(VALUES_MAX);
        values
            .map(|((client, metric), value)| ClientMetric {
                client: client.to_owned(),
                metric: metric.to_owned(),
                value,
            })
            .collect()
    }
}

fn forget_silent(instances: &mut BTreeMap<Uuid, Instance>, now: Duration) {
    instances.retain(|_, instance| {
        let silence_max = instance.interval * SILENT_INTERVALS_MAX;
        now.saturating_sub(instance.seen) <= silence_max
    });
}

#[cfg(test)]
mod tests {
    use super::otlp::tests::message;
    use super::*;

    const LATENCY: &str = "org.apache.kafka.producer.node.request.latency.avg";
    const ERRORS: &str = "org.apache.kafka.producer.record.error.total";

    const INTERVAL: Duration = Duration::from_secs(60);

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn subscription() -> Subscription {
        Subscription {
            id: 1,
            metrics: vec!["org.apache.kafka.producer.".to_owned()],
            interval: INTERVAL,
        }
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    // proves G2
    #[test]
    fn instances_are_added_up_by_client_id_and_forgotten_when_silent() {
        let telemetry = ClientTelemetry::default();
        for (number, value) in [(1, 2.0), (2, 3.0)] {
            assert!(telemetry.subscribe(id(number), "app", INTERVAL, secs(0)));
            let mut both = message(LATENCY, false, &[value]);
            both.extend(message(ERRORS, true, &[value]));
            both.extend(message("org.apache.kafka.other", true, &[value]));
            assert_eq!(
                telemetry.push(id(number), &subscription(), false, secs(1), &both),
                Ok(())
            );
        }
        let values: Vec<_> = (telemetry.snapshot(secs(2)).into_iter())
            .map(|one| (one.metric, one.value))
            .collect();
        assert_eq!(
            values,
            [(LATENCY.to_owned(), 3.0), (ERRORS.to_owned(), 5.0)]
        );
        let early = telemetry.push(id(1), &subscription(), false, secs(2), &[]);
        assert_eq!(early, Err(PushError::TooEarly));
        assert_eq!(
            telemetry.push(id(1), &subscription(), true, secs(2), &[]),
            Ok(())
        );
        assert_eq!(
            telemetry.push(id(1), &subscription(), true, secs(2), &[]),
            Err(PushError::Unknown)
        );
        let invalid = telemetry.push(id(2), &subscription(), false, secs(60), &[0xFF]);
        assert_eq!(invalid, Err(PushError::Invalid(InvalidMetrics)));
        assert!(telemetry.snapshot(secs(600)).is_empty());
    }

    // proves G2
    #[test]
    fn there_are_only_so_many_instances_and_metrics() {
        let telemetry = ClientTelemetry::default();
        for number in 0..INSTANCES_MAX as u128 {
            assert!(telemetry.subscribe(id(number), "app", INTERVAL, secs(0)));
        }
        assert!(!telemetry.subscribe(id(9999), "app", INTERVAL, secs(1)));
        assert!(telemetry.subscribe(id(9999), "app", INTERVAL, secs(1000)));
        let many: Vec<u8> = (0..100)
            .flat_map(|n| message(&format!("{LATENCY}.{n}"), false, &[1.0]))
            .collect();
        telemetry
            .push(id(9999), &subscription(), false, secs(1000), &many)
            .unwrap();
        assert_eq!(telemetry.snapshot(secs(1000)).len(), METRICS_MAX);
    }
}
