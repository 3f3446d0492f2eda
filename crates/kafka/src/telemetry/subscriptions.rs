//! Subscriptions to the metrics of clients: the metrics that a client must push, and how often.
//!
//! Administrators make them as resources of the type `client-metrics`. Without one that matches a client, it pushes
//! nothing.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use uuid::Uuid;

use crate::dynamic::{DynamicSettings, SettingOwner, SettingValues, setting};
use crate::handlers::configs::settings::list;

/// The interval of a subscription that sets none, as in Kafka.
pub(crate) const INTERVAL_DEFAULT: Duration = Duration::from_secs(300);

/// The largest compiled pattern, which exists for one evaluation.
const PATTERN_BYTES_MAX: usize = 1 << 18;

const INSTANCE_ID: &str = "client_instance_id";
const CLIENT_ID: &str = "client_id";
const ADDRESS: &str = "client_source_address";
const PORT: &str = "client_source_port";

/// A client, as patterns see it.
pub(crate) struct ClientFacts<'a> {
    pub(crate) instance: Uuid,
    pub(crate) client_id: &'a str,
    pub(crate) address: SocketAddr,
}

/// The requested metrics of a client, over all matching subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// Another one for other metrics or another interval.
    pub(crate) id: i32,
    /// Prefixes of names; an empty one stands for all metrics.
    pub(crate) metrics: Vec<String>,
    pub(crate) interval: Duration,
}

impl Subscription {
    pub(crate) fn of(client: &ClientFacts<'_>, settings: &DynamicSettings) -> Subscription {
        let of_clients = settings.iter().filter_map(|(owner, values)| match owner {
            SettingOwner::ClientMetrics(_) => Some(values),
            _ => None,
        });
        let mut metrics = BTreeSet::new();
        let mut interval = None;
        for values in of_clients.filter(|values| client.is_matched(values)) {
            let text = |name: &str| values.get(name).map_or("", String::as_str);
            let prefixes = list(text(setting::METRICS)).into_iter();
            metrics.extend(prefixes.map(|prefix| prefix.strip_suffix('*').unwrap_or(prefix)));
            let millis = text(setting::INTERVAL).parse().ok();
            let own = millis.map_or(INTERVAL_DEFAULT, Duration::from_millis);
            interval = Some(interval.map_or(own, |least: Duration| least.min(own)));
        }
        let interval = interval.unwrap_or(INTERVAL_DEFAULT);
        let mut hasher = DefaultHasher::new();
        (&metrics, interval).hash(&mut hasher);
        Subscription {
            id: hasher.finish() as i32,
            metrics: metrics.into_iter().map(str::to_owned).collect(),
            interval,
        }
    }

    pub(crate) fn asks_for(&self, metric: &str) -> bool {
        self.metrics.iter().any(|prefix| metric.starts_with(prefix))
    }
}

impl ClientFacts<'_> {
    fn is_matched(&self, values: &SettingValues) -> bool {
        let patterns = values.get(setting::MATCH).map_or("", String::as_str);
        let is_matched = |pattern: &str| {
            let (name, pattern) = parse(pattern).ok()?;
            let fact = match name {
                INSTANCE_ID => self.instance.to_string(),
                CLIENT_ID => self.client_id.to_owned(),
                ADDRESS => self.address.ip().to_string(),
                PORT => self.address.port().to_string(),
                _ => return None,
            };
            Some(pattern.is_match(&fact))
        };
        let mut patterns = list(patterns).into_iter();
        patterns.all(|pattern| is_matched(pattern) == Some(true))
    }
}

/// Checks a pattern of a subscription; an error names the expected value.
pub(crate) fn check_match(pattern: &str) -> Result<(), String> {
    parse(pattern).map(|_| ())
}

/// The name of a fact, and what it must match as a whole.
fn parse(pattern: &str) -> Result<(&str, Regex), String> {
    let expected = || {
        let known = [INSTANCE_ID, CLIENT_ID, ADDRESS, PORT].join(", ");
        format!(
            "NAME=REGEX, where NAME is one of {known} (the node does not keep the software of a client)"
        )
    };
    let (name, pattern) = pattern.split_once('=').ok_or_else(expected)?;
    if ![INSTANCE_ID, CLIENT_ID, ADDRESS, PORT].contains(&name) {
        return Err(expected());
    }
    let compiled = RegexBuilder::new(&format!("^(?:{pattern})$"))
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .nest_limit(32)
        .build();
    let compiled = compiled.map_err(|error| format!("a regular expression ({error})"))?;
    Ok((name, compiled))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The settings of subscriptions with these metrics, patterns and intervals.
    pub(crate) fn subscriptions(of: &[[&str; 3]]) -> DynamicSettings {
        let settings = of
            .iter()
            .enumerate()
            .map(|(number, [metrics, matches, interval])| {
                let values = [
                    (setting::METRICS, metrics),
                    (setting::MATCH, matches),
                    (setting::INTERVAL, interval),
                ];
                let values = values.into_iter().filter(|(_, value)| !value.is_empty());
                let values = values.map(|(name, value)| (name.to_owned(), (*value).to_owned()));
                let owner = SettingOwner::ClientMetrics(number.to_string());
                (owner, values.collect())
            });
        DynamicSettings::new(settings)
    }

    fn of(client_id: &str, settings: &DynamicSettings) -> (Vec<String>, u64) {
        let facts = ClientFacts {
            instance: Uuid::nil(),
            client_id,
            address: SocketAddr::from(([10, 0, 0, 1], 5000)),
        };
        let subscription = Subscription::of(&facts, settings);
        (subscription.metrics, subscription.interval.as_secs())
    }

    #[test]
    fn a_client_is_asked_for_the_metrics_of_all_subscriptions_that_match_it() {
        let settings = subscriptions(&[
            [
                "a.,b.",
                "client_id=app-.*,client_source_address=10\\..*",
                "60000",
            ],
            ["b.,c.", "", ""],
            ["d.", "client_id=app", "1000"],
            ["e.", "client_source_port=1", "1000"],
        ]);
        assert_eq!(
            of("app-1", &settings),
            (["a.", "b.", "c."].map(str::to_owned).to_vec(), 60)
        );
        assert_eq!(
            of("other", &settings),
            (["b.", "c."].map(str::to_owned).to_vec(), 300)
        );
        assert_eq!(of("app", &DynamicSettings::default()), (vec![], 300));
        assert_eq!(of("app", &subscriptions(&[["*", "", ""]])).0, [""]);
    }

    #[test]
    fn a_pattern_has_a_known_name_and_an_expression() {
        assert_eq!(check_match("client_id=a.*"), Ok(()));
        for wrong in ["client_id", "client_software_name=a", "client_id=("] {
            assert!(check_match(wrong).is_err(), "{wrong}");
        }
    }
}
