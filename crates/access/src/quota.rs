//! Quotas of a key: rates of requests, bytes and new partitions, and a number of connections.
//!
//! Usage is charged when it is known, and may go over the limit once; a client that is over is delayed until its rate is
//! within the limit again. So quotas never lose anything: HTTP answers 429 with the delay, Kafka throttles for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of a key. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Sent by clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in_per_second: Option<u64>,
    /// Sent to clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions_per_hour: Option<u64>,
}

/// A kind of usage with a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Requests,
    BytesIn,
    BytesOut,
    Partitions,
}

/// The usage of one key, shared by all listeners. Times are those of a clock that never goes back.
#[derive(Debug, Default)]
pub struct Limiter {
    quota: Quota,
    requests: Bucket,
    bytes_in: Bucket,
    bytes_out: Bucket,
    partitions: Bucket,
    connections: Arc<AtomicU32>,
}

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<AtomicU32>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Limiter {
    pub fn new(quota: Quota) -> Limiter {
        let second = Duration::from_secs(1);
        Limiter {
            quota,
            requests: Bucket::new(quota.requests_per_second, second),
            bytes_in: Bucket::new(quota.bytes_in_per_second, second),
            bytes_out: Bucket::new(quota.bytes_out_per_second, second),
            partitions: Bucket::new(quota.partitions_per_hour, Duration::from_secs(3600)),
            connections: Arc::default(),
        }
    }

    pub fn quota(&self) -> Quota {
        self.quota
    }

    pub fn is_limited(&self) -> bool {
        self.quota != Quota::default()
    }

    /// Counts usage, and returns how long the client must wait before its next request; zero within the quota.
    pub fn charge(&self, usage: Usage, amount: u64, now: Duration) -> Duration {
        self.bucket(usage).charge(amount, now)
    }

    /// How long the client must wait for its usage so far.
    pub fn delay(&self, now: Duration) -> Duration {
        let buckets = [&self.requests, &self.bytes_in, &self.bytes_out];
        let delays = buckets.map(|bucket| bucket.delay(now));
        delays.into_iter().max().unwrap_or_default()
    }

    /// How long the client must wait before it may create partitions.
    pub fn partition_delay(&self, now: Duration) -> Duration {
        self.partitions.delay(now)
    }

    /// `None` if the key has as many connections as it may have.
    pub fn connect(&self) -> Option<ConnectionPermit> {
        let permit = ConnectionPermit(self.connections.clone());
        let before = permit.0.fetch_add(1, Ordering::Relaxed);
        let max = self.quota.connections_max.unwrap_or(u32::MAX);
        (before < max).then_some(permit)
    }

    fn bucket(&self, usage: Usage) -> &Bucket {
        match usage {
            Usage::Requests => &self.requests,
            Usage::BytesIn => &self.bytes_in,
            Usage::BytesOut => &self.bytes_out,
            Usage::Partitions => &self.partitions,
        }
    }
}

/// A token bucket that holds the amount of one period. It is kept as the time at which it is full again, so that one atomic
/// number is all its state.
#[derive(Debug, Default)]
struct Bucket {
    /// `None`: no limit.
    amount_per_period: Option<u64>,
    period: Duration,
    /// Nanoseconds.
    full_at: AtomicU64,
}

impl Bucket {
    fn new(amount_per_period: Option<u64>, period: Duration) -> Bucket {
        Bucket {
            amount_per_period,
            period,
            full_at: AtomicU64::new(0),
        }
    }

    fn charge(&self, amount: u64, now: Duration) -> Duration {
        let Some(limit) = self.amount_per_period else {
            return Duration::ZERO;
        };
        let cost = u128::from(amount) * self.period.as_nanos() / u128::from(limit.max(1));
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let now_nanos = nanos(now);
        let update = |full_at: u64| Some(full_at.max(now_nanos).saturating_add(cost));
        // The update always gives a value, so it cannot fail.
        let _ = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        self.delay(now)
    }

    /// The time until the bucket is no longer empty.
    fn delay(&self, now: Duration) -> Duration {
        if self.amount_per_period.is_none() {
            return Duration::ZERO;
        }
        let full_at = self.full_at.load(Ordering::Relaxed);
        let empty_until = full_at.saturating_sub(nanos(self.period));
        Duration::from_nanos(empty_until.saturating_sub(nanos(now)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(1_000_000 + millis)
    }

    // proves G5
    #[test]
    fn a_rate_is_kept_on_average_with_bursts_of_a_second() {
        let limiter = Limiter::new(Quota {
            requests_per_second: Some(10),
            ..Quota::default()
        });
        let request = |millis| limiter.charge(Usage::Requests, 1, at(millis));
        for _ in 0..10 {
            assert_eq!(request(0), Duration::ZERO);
        }
        assert_eq!(request(0), Duration::from_millis(100));
        assert_eq!(limiter.delay(at(40)), Duration::from_millis(60));
        assert_eq!(limiter.delay(at(100)), Duration::ZERO);
        assert_eq!(request(100), Duration::from_millis(100));
    }

    #[test]
    fn a_large_charge_is_paid_off_later() {
        let limiter = Limiter::new(Quota {
            bytes_in_per_second: Some(1000),
            ..Quota::default()
        });
        let delay = limiter.charge(Usage::BytesIn, 5000, at(0));
        assert_eq!(delay, Duration::from_secs(4));
        assert_eq!(limiter.delay(at(3999)), Duration::from_millis(1));
    }

    #[test]
    fn without_a_limit_there_is_no_delay() {
        let limiter = Limiter::default();
        assert_eq!(
            limiter.charge(Usage::BytesOut, u64::MAX, at(0)),
            Duration::ZERO
        );
        assert_eq!(limiter.delay(at(0)), Duration::ZERO);
    }

    #[test]
    fn connections_count_while_they_are_open() {
        let limiter = Limiter::new(Quota {
            connections_max: Some(1),
            ..Quota::default()
        });
        let first = limiter.connect().unwrap();
        assert!(limiter.connect().is_none());
        assert!(limiter.connect().is_none());
        drop(first);
        assert!(limiter.connect().is_some());
    }
}
