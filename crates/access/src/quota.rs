//! Quotas of a key: rates of requests, bytes and new partitions, and a number of connections.
//!
//! Usage is charged when it is known, and may go over the limit once; a client that is over is delayed until its rate is
//! within the limit again. So quotas never lose anything: HTTP answers 429 with the delay, Kafka throttles for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
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

/// The usage of one key, shared by all listeners and connections, so that a new quota holds for those that are open. Times are
/// those of a clock that never goes back.
#[derive(Debug, Default)]
pub struct Limiter {
    quota: RwLock<Quota>,
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
        let limiter = Limiter::default();
        limiter.set_quota(quota);
        limiter
    }

    pub fn quota(&self) -> Quota {
        *self.quota.read().expect("no thread panics with the lock")
    }

    /// Usage so far still counts, by the time that it takes to pay it off.
    pub fn set_quota(&self, quota: Quota) {
        let second = Duration::from_secs(1);
        self.requests.set(quota.requests_per_second, second);
        self.bytes_in.set(quota.bytes_in_per_second, second);
        self.bytes_out.set(quota.bytes_out_per_second, second);
        let hour = Duration::from_secs(3600);
        self.partitions.set(quota.partitions_per_hour, hour);
        *self.quota.write().expect("no thread panics with the lock") = quota;
    }

    pub fn is_limited(&self) -> bool {
        self.quota() != Quota::default()
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
        let max = self.quota().connections_max.unwrap_or(u32::MAX);
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
    /// 0: no limit.
    amount_per_period: AtomicU64,
    period_nanos: AtomicU64,
    /// Nanoseconds.
    full_at: AtomicU64,
}

impl Bucket {
    /// `None`: no limit. A limit of nothing at all is one of the least amount.
    fn set(&self, amount_per_period: Option<u64>, period: Duration) {
        let amount = amount_per_period.map_or(0, |amount| amount.max(1));
        self.period_nanos.store(nanos(period), Ordering::Relaxed);
        self.amount_per_period.store(amount, Ordering::Relaxed);
    }

    fn charge(&self, amount: u64, now: Duration) -> Duration {
        let limit = self.amount_per_period.load(Ordering::Relaxed);
        if limit == 0 {
            return Duration::ZERO;
        }
        let period = self.period_nanos.load(Ordering::Relaxed);
        let cost = u128::from(amount) * u128::from(period) / u128::from(limit);
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
        if self.amount_per_period.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        let full_at = self.full_at.load(Ordering::Relaxed);
        let empty_until = full_at.saturating_sub(self.period_nanos.load(Ordering::Relaxed));
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

    // proves G5
    #[test]
    fn a_new_quota_holds_at_once_and_usage_still_counts() {
        let limiter = Limiter::default();
        let limit = |bytes_in_per_second| Quota {
            bytes_in_per_second,
            ..Quota::default()
        };
        assert_eq!(limiter.charge(Usage::BytesIn, 5000, at(0)), Duration::ZERO);
        limiter.set_quota(limit(Some(1000)));
        assert!(limiter.is_limited());
        let delay = limiter.charge(Usage::BytesIn, 3000, at(0));
        assert_eq!(delay, Duration::from_secs(2));
        limiter.set_quota(limit(Some(100)));
        assert_eq!(limiter.delay(at(0)), Duration::from_secs(2));
        limiter.set_quota(limit(None));
        assert_eq!(limiter.delay(at(0)), Duration::ZERO);
        assert!(!limiter.is_limited());
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
