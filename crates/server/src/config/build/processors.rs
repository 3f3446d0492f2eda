//! Processors and notifications of the settings, checked before anything is delivered.

use std::time::Duration;

use highwater_flow::CheckpointInterval;
use highwater_flow::circuit::{FailureShare, Rule};
use highwater_flow::{Assignment, Options, Order, StartPosition, ordinal};
use highwater_log::HubName;
use highwater_retry::{Backoff, RetryPolicy};

use super::Build;
use crate::processors::{HandlerSpec, ProcessorSpec, Secret, TransientFailures, notify};

/// With fewer deliveries than this, the share of failures is ignored.
const OUTCOMES_MIN: u32 = 20;

impl Build<'_> {
    pub(super) fn processor(&mut self, table: &str) -> Option<ProcessorSpec> {
        let at = |part: &str| format!("processors.{table}.{part}");
        // The name is part of the dead-letter hub's.
        let name = self.name(&at(""), table)?;
        let Some(hub) = self.settings.text(&at("hub")).map(str::to_owned) else {
            let message = format!("processor `{name}` has no hub");
            self.problem(&at(""), message, "write hub = \"orders\"");
            return None;
        };
        let hub = self.name(&at("hub"), &hub)?;
        let dead = match self.settings.text(&at("dead")).map(str::to_owned) {
            Some(dead) => self.name(&at("dead"), &dead)?,
            None => self.name(&at(""), &format!("{name}.dead"))?,
        };
        if dead == hub {
            let message = format!("processor `{name}` would read its own dead letters");
            self.problem(&at("dead"), message, "name another hub");
        }
        let share = self.share(&at("share"))?;
        let group = self.settings.text(&at("group")).unwrap_or(name.as_str());
        Some(ProcessorSpec {
            group: group_of(group, share),
            start: match self.settings.text(&at("start")) {
                Some("latest") => StartPosition::Latest,
                _ => StartPosition::Earliest,
            },
            handler: self.handler(table, &name)?,
            batch: self.count(&at("batch")),
            only_json: self.settings.text(&at("format")) == Some("json"),
            options: self.options(&at("")),
            transient: TransientFailures::new(
                self.settings.list(&at("transient")).unwrap_or_default(),
            ),
            checkpoint_interval: CheckpointInterval {
                events: self.count(&at("checkpoint.events")).into(),
                period: self.time(&at("checkpoint.period")),
            },
            rule: self.rule(&at("circuit.")),
            poison_max: self.count(&at("circuit.poison")),
            assignment: self.assignment(&at(""))?,
            share,
            replays_max: self.count(&at("replays")),
            name: name.to_string(),
            hub,
            dead,
        })
    }

    fn handler(&mut self, table: &str, name: &HubName) -> Option<HandlerSpec> {
        let at = |part: &str| format!("processors.{table}.handler.{part}");
        let url = self.settings.text(&at("url")).map(str::to_owned);
        let command = self.settings.list(&at("command")).map(<[String]>::to_vec);
        match (url, command) {
            (Some(url), None) => {
                if let Err(why) = crate::processors::parse_url(&url) {
                    self.problem(&at("url"), why, "write url = \"https://host/path\"");
                    return None;
                }
                let authorization = self.settings.text(&at("authorization"));
                Some(HandlerSpec::Webhook {
                    url,
                    authorization: authorization.map(|text| Secret(text.to_owned())),
                    ca: self.path(&at("ca")),
                })
            }
            (None, Some(command)) => Some(HandlerSpec::Command(command)),
            (None, None) => {
                let message = format!("processor `{name}` has no handler");
                let hint = "write handler = { url = \"..\" } or handler = { command = [\"..\"] }";
                self.problem(&format!("processors.{table}."), message, hint);
                None
            }
            (Some(_), Some(_)) => {
                let message = format!("processor `{name}` has two handlers");
                self.problem(&at("url"), message, "keep url or command");
                None
            }
        }
    }

    fn options(&self, table: &str) -> Options {
        let at = |part: &str| format!("{table}{part}");
        let (order, concurrency) = match self.settings.text(&at("order")) {
            Some("none") => (Order::None, self.count(&at("concurrency"))),
            Some("partition") => (Order::None, 1),
            _ => (Order::Key, self.count(&at("concurrency"))),
        };
        let first = self.time(&at("retry.first"));
        Options {
            concurrency: concurrency as usize,
            order,
            retry: RetryPolicy {
                backoff: match self.settings.text(&at("retry.delay")) {
                    Some("fixed") => Backoff::Fixed(first),
                    _ => Backoff::Exponential {
                        first,
                        cap: self.time(&at("retry.longest")),
                    },
                },
                jitter_percent: self.count(&at("retry.jitter_percent")).min(100) as u8,
                tries_max: self
                    .settings
                    .number(&at("retry.tries"))
                    .map(|tries| u32::try_from(tries).unwrap_or(u32::MAX)),
                deadline: self.settings.time(&at("retry.deadline")),
                ..RetryPolicy::default()
            },
            timeout: Some(self.time(&at("timeout"))),
            ..Options::default()
        }
    }

    fn rule(&self, table: &str) -> Rule {
        let at = |part: &str| format!("{table}{part}");
        let percent = self.count(&at("share_percent")).min(100) as u8;
        Rule {
            window: self.time(&at("window")).max(Duration::from_millis(1)),
            failures_max: self.count(&at("failures")),
            share: (percent > 0).then_some(FailureShare {
                percent,
                outcomes_min: OUTCOMES_MIN,
            }),
            open_for: self.settings.time(&at("open_for")),
            probes: self.count(&at("probes")),
            successes: self.count(&at("successes")),
        }
    }

    fn assignment(&mut self, table: &str) -> Option<Assignment> {
        let (instance, instances) = (format!("{table}instance"), format!("{table}instances"));
        let of = self.settings.number(&instances).map(|of| of as u32);
        let Some(name) = self.settings.text(&instance).map(str::to_owned) else {
            if of.is_some() {
                let message = format!("`{instances}` needs `{instance}`");
                self.problem(&instances, message, "write instance = \"reader-0\"");
            }
            return Some(Assignment::Shared { instance: None });
        };
        match ordinal(&name) {
            Some(ordinal) if of.is_none_or(|of| ordinal < of) => {
                Some(Assignment::Numbered { ordinal, of })
            }
            _ => {
                let message = format!("`{name}` does not say which instance it is");
                let hint = "end it with a dash and a number below `instances`: reader-3";
                self.problem(&instance, message, hint);
                None
            }
        }
    }

    /// The outer `None`: invalid.
    fn share(&mut self, key: &str) -> Option<Option<(u32, u32)>> {
        let Some(text) = self.settings.text(key).map(str::to_owned) else {
            return Some(None);
        };
        let parts = text.split_once('/');
        let parts = parts.and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Some(Some((index, of))),
            _ => {
                let message = format!("`{text}` is no share");
                self.problem(key, message, "write 0/4, 1/4, 2/4 or 3/4 for four of them");
                None
            }
        }
    }

    pub(super) fn notify(&mut self) -> notify::Options {
        let text = |key: &str| self.settings.text(key).map(str::to_owned);
        let secret = |key: &str| text(key).map(Secret);
        let url = text("notify.url");
        let (authorization, public_url) =
            (secret("notify.authorization"), text("notify.public_url"));
        if let Some(why) = url
            .as_deref()
            .and_then(|url| crate::processors::parse_url(url).err())
        {
            self.problem("notify.url", why, "write url = \"https://host/path\"");
        }
        notify::Options {
            email: self.email(),
            url,
            authorization,
            ca: self.path("notify.ca"),
            public_url,
            link_lifetime: self.time("notify.link_lifetime"),
        }
    }

    fn email(&mut self) -> Option<notify::Email> {
        let text = |key: &str| {
            self.settings
                .text(&format!("notify.email.{key}"))
                .map(str::to_owned)
        };
        let server = text("server")?;
        let (from, user, password) = (text("from"), text("user"), text("password"));
        let to = self
            .settings
            .list("notify.email.to")
            .unwrap_or_default()
            .to_vec();
        let tls = match text("tls").as_deref() {
            Some("tls") => notify::Tls::Always,
            Some("off") => notify::Tls::Off,
            _ => notify::Tls::Start,
        };
        let key = "notify.email.server";
        let address =
            |text: &String| text.contains('@') && !text.contains(['\r', '\n', '<', '>', ' ']);
        let Some(from) = from.filter(address) else {
            self.problem(
                key,
                "mails need a sender".into(),
                "write from = \"highwater@example.org\"",
            );
            return None;
        };
        if to.is_empty() || !to.iter().all(address) {
            self.problem(
                key,
                "mails need receivers".into(),
                "write to = [\"ops@example.org\"]",
            );
        }
        if server
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.parse::<u16>().is_err())
        {
            self.problem(key, format!("`{server}` is no address"), "write host:port");
        }
        if password.is_some() && tls == notify::Tls::Off {
            let hint = "use tls = \"starttls\" or \"tls\"";
            self.problem(key, "a password would travel unencrypted".into(), hint);
        }
        let login = user.zip(password.map(Secret));
        Some(notify::Email {
            server,
            tls,
            login,
            from,
            to,
        })
    }
}

/// Positions are stored by group and partition, so each share of a partition has a group of its own.
fn group_of(group: &str, share: Option<(u32, u32)>) -> String {
    match share {
        Some((index, of)) => format!("{group}-{index}-of-{of}"),
        None => group.to_owned(),
    }
}
