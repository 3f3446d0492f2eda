//! Services: their addresses and limits.

use std::time::Duration;

use highwater_flow::circuit;
use highwater_retry::{Backoff, RetryPolicy};
use serde::{Deserialize, Serialize};

/// A service that steps call, and the settings shared by all calls to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    pub name: String,
    pub target: Target,
    /// Maximum concurrent calls; further ones wait.
    pub concurrency: u32,
    pub circuit: Option<Breaker>,
}

/// The part of a URL that is the same for every call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub https: bool,
    pub host: String,
    pub port: u16,
    /// Path prefix; empty, or `/...` without a trailing slash.
    pub base: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of a service: write http://host:port")]
pub struct TargetError(pub String);

impl Target {
    /// The target of a URL. The host must be fixed, because it selects the service pool.
    pub fn parse(url: &str) -> Result<Target, TargetError> {
        let wrong = || TargetError(url.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let https = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let (authority, base) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let default = if https { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (authority, default),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if host.is_empty() || !host.chars().all(plain) || base.contains(['?', '#']) {
            return Err(wrong());
        }
        Ok(Target {
            https,
            host: host.to_owned(),
            port,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// As in the `Host` header.
    pub fn authority(&self) -> String {
        match (self.https, self.port) {
            (true, 443) | (false, 80) => self.host.clone(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }
}

/// How often and how soon a failed call is retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Maximum number of tries.
    pub tries: u32,
    /// Delay after the first try; it doubles.
    pub delay: Duration,
    pub delay_max: Duration,
    /// The random share of a delay, in percent.
    pub jitter: u8,
}

impl Retry {
    /// The default of a step.
    pub const STEP: Retry = Retry {
        tries: 5,
        delay: Duration::from_millis(200),
        delay_max: Duration::from_secs(30),
        jitter: 20,
    };

    /// The default of a compensation. Longer, because until it succeeds a resource stays taken.
    pub(crate) const UNDO: Retry = Retry {
        tries: 10,
        delay: Duration::from_millis(500),
        delay_max: Duration::from_secs(60),
        jitter: 20,
    };

    pub(crate) fn policy(&self) -> RetryPolicy {
        RetryPolicy {
            backoff: Backoff::Exponential {
                first: self.delay,
                cap: self.delay_max,
            },
            jitter_percent: self.jitter,
            tries_max: Some(self.tries),
            deadline: None,
            ..RetryPolicy::default()
        }
    }
}

/// When calls to a service are suspended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    pub window: Duration,
    /// More failures than this in the window open the circuit ...
    pub failures: u32,
    /// ... if they are also this share of all outcomes, in percent.
    pub percent: u8,
    /// How long it stays open before it probes.
    pub open: Duration,
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker {
            window: Duration::from_secs(10),
            failures: 20,
            percent: 50,
            open: Duration::from_secs(5),
        }
    }
}

impl Breaker {
    pub(crate) fn rule(&self) -> circuit::Rule {
        circuit::Rule {
            window: self.window,
            failures_max: self.failures,
            share: Some(circuit::FailureShare {
                percent: self.percent,
                outcomes_min: self.failures,
            }),
            open_for: Some(self.open),
            ..circuit::Rule::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let parts = |url| {
            let target = Target::parse(url).unwrap();
            (
                target.https,
                target.authority(),
                target.port,
                target.base.clone(),
            )
        };
        assert_eq!(parts("http://a"), (false, "a".into(), 80, String::new()));
        assert_eq!(
            parts("https://a.b:8443/v1/"),
            (true, "a.b:8443".into(), 8443, "/v1".into())
        );
        assert_eq!(
            parts("http://[::1]:70/x"),
            (false, "[::1]:70".into(), 70, "/x".into())
        );
        assert_eq!(parts("http://[::1]").1, "[::1]");
    }

    #[test]
    fn other_things_are_no_addresses() {
        for url in [
            "a:80",
            "ftp://a",
            "http://",
            "http://{{input.host}}/x",
            "http://a:99999",
            "http://a b",
            "http://a?x",
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }
}
