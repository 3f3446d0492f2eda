//! Quotas of users and client ids, beside the quota of a key.
//!
//! The entity that fits a client best has its rate, as in Kafka: a user and client id, then the user, then the client
//! id, where a name comes before the default. A default is a rate for each matching entity, not for all of them
//! together. Clients choose their ids, so the buckets are bounded: idle ones are evicted, and further clients share one
//! bucket.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_access::{Limiter, Quota, Usage};
use tokio::sync::watch;

use crate::access::Identity;
use crate::broker::Broker;
use crate::dynamic::{DynamicSettings, QuotaName, SettingOwner, setting};

/// A client as quotas see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QuotaClient {
    user: Arc<str>,
    client_id: Arc<str>,
    /// The quota of the key, which the node enforces itself.
    own: Quota,
}

/// The buckets of a client; `None` without a rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientLimits {
    bytes_in: Option<Arc<Limiter>>,
    bytes_out: Option<Arc<Limiter>>,
}

impl ClientLimits {
    /// Counts usage. Returns how long the client must wait.
    pub(crate) fn charge(&self, usage: Usage, amount: u64, now: Duration) -> Duration {
        let limiter = match usage {
            Usage::BytesIn => &self.bytes_in,
            Usage::BytesOut => &self.bytes_out,
            Usage::Requests | Usage::Partitions => &None,
        };
        let delay = limiter.as_ref().map(|one| one.charge(usage, amount, now));
        delay.unwrap_or_default()
    }

    pub(crate) fn delay(&self, now: Duration) -> Duration {
        let limiters = [&self.bytes_in, &self.bytes_out].into_iter().flatten();
        let delays = limiters.map(|limiter| limiter.delay(now));
        delays.max().unwrap_or_default()
    }
}

/// Longer client ids have the bucket of their beginning.
const CLIENT_ID_BYTES_MAX: usize = 256;

const BUCKETS_MAX: usize = 10_000;

/// The owner of a bucket: a kind of usage, and the names that the entity of its rate has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BucketKey {
    rate: &'static str,
    user: Option<Arc<str>>,
    client_id: Option<Arc<str>>,
}

/// The buckets of all clients.
#[derive(Debug, Default)]
pub(crate) struct ClientQuotas(Mutex<BTreeMap<BucketKey, Arc<Limiter>>>);

impl ClientQuotas {
    fn limits(
        &self,
        settings: &DynamicSettings,
        client: &QuotaClient,
        now: Duration,
    ) -> ClientLimits {
        let bucket = |rate| {
            let (key, per_second) = rate_of(settings, client, rate)?;
            Some(self.bucket(key, per_second, now))
        };
        ClientLimits {
            bytes_in: bucket(setting::PRODUCER_RATE),
            bytes_out: bucket(setting::CONSUMER_RATE),
        }
    }

    fn bucket(&self, mut key: BucketKey, per_second: u64, now: Duration) -> Arc<Limiter> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(&key) && buckets.len() >= BUCKETS_MAX {
            let is_used = |limiter: &Arc<Limiter>| {
                Arc::strong_count(limiter) > 1 || !limiter.delay(now).is_zero()
            };
            buckets.retain(|_, limiter| is_used(limiter));
            if buckets.len() >= BUCKETS_MAX {
                (key.user, key.client_id) = (None, None);
            }
        }
        let limiter = buckets.entry(key.clone()).or_default();
        limiter.set_quota(match key.rate {
            setting::PRODUCER_RATE => Quota {
                bytes_in_per_second: Some(per_second),
                ..Quota::default()
            },
            _ => Quota {
                bytes_out_per_second: Some(per_second),
                ..Quota::default()
            },
        });
        limiter.clone()
    }
}

/// The limits of a connection, looked up again when the quotas or the client id change.
pub(crate) struct ConnectionQuotas {
    settings: watch::Receiver<Arc<DynamicSettings>>,
    has_quotas: bool,
    /// That of the limits.
    client: Option<QuotaClient>,
    limits: ClientLimits,
}

impl ConnectionQuotas {
    pub(crate) fn new(broker: &Broker) -> ConnectionQuotas {
        let has_quotas = has_quotas(&broker.settings.borrow());
        ConnectionQuotas {
            has_quotas,
            settings: broker.settings.clone(),
            client: None,
            limits: ClientLimits::default(),
        }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limits.bytes_in.is_some() || self.limits.bytes_out.is_some()
    }

    pub(crate) fn limits(&self) -> &ClientLimits {
        &self.limits
    }

    pub(crate) fn resolve<'a>(
        &mut self,
        broker: &Broker,
        user: &Identity,
        own: Option<&Limiter>,
        client_id: impl FnOnce() -> &'a str,
    ) {
        // Fails only if the store was dropped.
        if self.settings.has_changed().unwrap_or(false) {
            self.has_quotas = has_quotas(&self.settings.borrow_and_update());
            (self.client, self.limits) = (None, ClientLimits::default());
        }
        if !self.has_quotas {
            return;
        }
        let (client_id, own) = (client_id(), own.map(Limiter::quota).unwrap_or_default());
        let is_same = |known: &QuotaClient| {
            *known.user == *user.name() && *known.client_id == *cut(client_id) && known.own == own
        };
        if self.client.as_ref().is_some_and(is_same) {
            return;
        }
        let client = QuotaClient::new(user.shared_name(), client_id, own);
        let now = broker.services.clock.elapsed();
        let quotas = &broker.client_quotas;
        self.limits = quotas.limits(&self.settings.borrow(), &client, now);
        self.client = Some(client);
    }
}

/// Whether there are quotas of clients at all.
fn has_quotas(settings: &DynamicSettings) -> bool {
    let mut owners = settings.iter().map(|(owner, _)| owner);
    owners.any(|owner| matches!(owner, SettingOwner::ClientQuota { .. }))
}

/// The rate of the entity that fits the client best, and its bucket.
fn rate_of(
    settings: &DynamicSettings,
    client: &QuotaClient,
    rate: &'static str,
) -> Option<(BucketKey, u64)> {
    let exact = |name: &str| Some(QuotaName::Exact(name.to_owned()));
    let users = [exact(&client.user), Some(QuotaName::Default)];
    let clients = [exact(&client.client_id), Some(QuotaName::Default)];
    let [user, any_user] = users;
    let [id, any_id] = clients;
    let by_precedence = [
        (user.clone(), id.clone()),
        (user.clone(), any_id.clone()),
        (user, None),
        (any_user.clone(), id.clone()),
        (any_user.clone(), any_id.clone()),
        (any_user, None),
        (None, id),
        (None, any_id),
    ];
    let has_own = match rate {
        setting::PRODUCER_RATE => client.own.bytes_in_per_second.is_some(),
        _ => client.own.bytes_out_per_second.is_some(),
    };
    let before_own = if has_own { 2 } else { by_precedence.len() };
    let mut entities = by_precedence.into_iter().take(before_own);
    entities.find_map(|(user, client_id)| {
        let key = BucketKey {
            rate,
            user: user.is_some().then(|| client.user.clone()),
            client_id: client_id.is_some().then(|| client.client_id.clone()),
        };
        let owner = SettingOwner::ClientQuota { user, client_id };
        let value = settings.value(&owner, rate)?;
        Some((key, value.parse().ok()?))
    })
}

impl QuotaClient {
    fn new(user: Arc<str>, client_id: &str, own: Quota) -> QuotaClient {
        QuotaClient {
            user,
            client_id: cut(client_id).into(),
            own,
        }
    }
}

fn cut(client_id: &str) -> &str {
    let ends = (0..=CLIENT_ID_BYTES_MAX).rev();
    let mut cuts = ends.filter_map(|end| client_id.get(..end));
    match client_id.len() <= CLIENT_ID_BYTES_MAX {
        true => client_id,
        false => cuts.next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamic::SettingValues;

    fn name(name: &str) -> Option<QuotaName> {
        match name {
            "" => None,
            "*" => Some(QuotaName::Default),
            name => Some(QuotaName::Exact(name.to_owned())),
        }
    }

    /// Producer rates by user and client id; `*` is the default, nothing is none.
    fn settings(rates: &[(&str, &str, u64)]) -> DynamicSettings {
        DynamicSettings::new(rates.iter().map(|(user, client_id, rate)| {
            let owner = SettingOwner::ClientQuota {
                user: name(user),
                client_id: name(client_id),
            };
            let value = (setting::PRODUCER_RATE.to_owned(), rate.to_string());
            (owner, SettingValues::from([value]))
        }))
    }

    fn client(user: &str, client_id: &str) -> QuotaClient {
        QuotaClient::new(user.into(), client_id, Quota::default())
    }

    // proves G5
    #[test]
    fn the_entity_that_fits_best_has_the_rate() {
        let mut rates = vec![
            ("u", "c", 1),
            ("u", "*", 2),
            ("u", "", 3),
            ("*", "c", 4),
            ("*", "*", 5),
            ("*", "", 6),
            ("", "c", 7),
            ("", "*", 8),
        ];
        while let Some((_, _, expected)) = rates.first().copied() {
            let found = rate_of(&settings(&rates), &client("u", "c"), setting::PRODUCER_RATE);
            assert_eq!(found.map(|(_, rate)| rate), Some(expected));
            rates.remove(0);
        }
        let none = rate_of(
            &settings(&[("v", "", 1)]),
            &client("u", "c"),
            setting::PRODUCER_RATE,
        );
        assert_eq!(none, None);
        let with_own = QuotaClient {
            own: Quota {
                bytes_in_per_second: Some(9),
                ..Quota::default()
            },
            ..client("u", "c")
        };
        let of_user = |rates| rate_of(&settings(rates), &with_own, setting::PRODUCER_RATE);
        assert!(of_user(&[("*", "c", 4)]).is_none(), "its own comes first");
        assert!(of_user(&[("u", "*", 2)]).is_some());
        let of_default = settings(&[("*", "", 6)]);
        assert_eq!(
            rate_of(&of_default, &client("u", "c"), setting::CONSUMER_RATE),
            None
        );
    }

    // proves G5
    #[test]
    fn a_default_is_the_rate_of_each_client_and_is_kept_over_connections() {
        let (quotas, at) = (ClientQuotas::default(), Duration::from_secs(10));
        let settings = settings(&[("*", "", 100)]);
        let charge = |user: &str, amount| {
            let limits = quotas.limits(&settings, &client(user, "c"), at);
            limits.charge(Usage::BytesIn, amount, at)
        };
        assert_eq!(charge("u", 300), Duration::from_secs(2));
        assert_eq!(charge("v", 100), Duration::ZERO);
        assert_eq!(charge("u", 0), Duration::from_secs(2), "a new connection");
        let limits = quotas.limits(&settings, &client("u", "other"), at);
        assert_eq!(
            limits.delay(at),
            Duration::from_secs(2),
            "another client of the user"
        );
        assert_eq!(limits.charge(Usage::BytesOut, 1 << 30, at), Duration::ZERO);
    }

    // proves G2
    #[test]
    fn there_are_only_so_many_buckets() {
        let (quotas, at) = (ClientQuotas::default(), Duration::from_secs(10));
        let settings = settings(&[("", "*", 100)]);
        for number in 0..BUCKETS_MAX + 100 {
            let limits = quotas.limits(&settings, &client("u", &number.to_string()), at);
            limits.charge(Usage::BytesIn, 200, at);
        }
        let count = || quotas.0.lock().unwrap().len();
        assert_eq!(count(), BUCKETS_MAX + 1, "the last one is shared");
        let later = at + Duration::from_secs(600);
        quotas.limits(&settings, &client("u", "new"), later);
        assert_eq!(count(), 1, "the others are full again");
    }
}
