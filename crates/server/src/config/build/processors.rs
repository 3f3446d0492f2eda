//! Processors and notifications of the settings, checked before anything is delivered.

use std::time::Duration;

use highwater_flow::CheckpointInterval;
use highwater_flow::circuit::{FailureShare, Rule};
use highwater_flow::{Assignment, Options, Order, StartPosition, ordinal};
use highwater_log::HubName;
use highwater_retry::{Backoff, RetryPolicy};

use super::{Build, Table};
use crate::processors::{HandlerSpec, ProcessorSpec, Secret, TransientFailures, notify};

/// With fewer deliveries than this, the share of failures is ignored.
const OUTCOMES_MIN: u32 = 20;

impl Build<'_> {
    pub(super) fn processor(&mut self, table: &Table<'_>) -> Option<ProcessorSpec> {
        // The name is part of the dead-letter hub's.
        let name = self.own_name(table)?;
        let Some(hub) = table.text("hub") else {
            let message = format!("processor `{name}` has no hub");
            return self.refuse(&table.key(""), message, "write hub = \"orders\"");
        };
        let hub = self.name(&table.key("hub"), hub)?;
        let dead = match table.text("dead") {
            Some(dead) => self.name(&table.key("dead"), dead)?,
            None => self.name(&table.key(""), &format!("{name}.dead"))?,
        };
        if dead == hub {
            let message = format!("processor `{name}` would read its own dead letters");
            self.problem(&table.key("dead"), message, "name another hub");
        }
        let share = self.share(table)?;
        let group = table.text("group").unwrap_or(name.as_str());
        Some(ProcessorSpec {
            group: group_of(group, share),
            start: match table.text("start") {
                Some("latest") => StartPosition::Latest,
                _ => StartPosition::Earliest,
            },
            handler: self.handler(table, &name)?,
            batch: table.count("batch"),
            only_json: table.text("format") == Some("json"),
            options: options(table),
            transient: TransientFailures::new(table.list("transient").unwrap_or_default()),
            checkpoint_interval: CheckpointInterval {
                events: table.count("checkpoint.events").into(),
                period: table.duration("checkpoint.period"),
            },
            rule: rule(table),
            poison_max: table.count("circuit.poison"),
            assignment: self.assignment(table)?,
            share,
            replays_max: table.count("replays"),
            name: name.to_string(),
            hub,
            dead,
        })
    }

    fn handler(&mut self, table: &Table<'_>, name: &HubName) -> Option<HandlerSpec> {
        match (table.owned("handler.url"), table.list("handler.command")) {
            (Some(url), None) => match crate::processors::parse_url(&url) {
                Ok(_) => Some(HandlerSpec::Webhook {
                    url,
                    authorization: table.owned("handler.authorization").map(Secret),
                    ca: table.path("handler.ca"),
                }),
                Err(why) => {
                    let hint = "write url = \"https://host/path\"";
                    self.refuse(&table.key("handler.url"), why, hint)
                }
            },
            (None, Some(command)) => Some(HandlerSpec::Command(command.to_vec())),
            (None, None) => {
                let message = format!("processor `{name}` has no handler");
                let hint = "write handler = { url = \"..\" } or handler = { command = [\"..\"] }";
                self.refuse(&table.key(""), message, hint)
            }
            (Some(_), Some(_)) => {
                let message = format!("processor `{name}` has two handlers");
                self.refuse(&table.key("handler.url"), message, "keep url or command")
            }
        }
    }

    fn assignment(&mut self, table: &Table<'_>) -> Option<Assignment> {
        let (instance, instances) = (table.key("instance"), table.key("instances"));
        let of = table.number_u32("instances");
        let Some(name) = table.text("instance") else {
            if of.is_some() {
                let message = format!("`{instances}` needs `{instance}`");
                self.problem(&instances, message, "write instance = \"reader-0\"");
            }
            return Some(Assignment::Shared { instance: None });
        };
        match ordinal(name) {
            Some(ordinal) if of.is_none_or(|of| ordinal < of) => {
                Some(Assignment::Numbered { ordinal, of })
            }
            _ => {
                let message = format!("`{name}` does not say which instance it is");
                let hint = "end it with a dash and a number below `instances`: reader-3";
                self.refuse(&instance, message, hint)
            }
        }
    }

    /// The outer `None`: invalid.
    fn share(&mut self, table: &Table<'_>) -> Option<Option<(u32, u32)>> {
        let Some(text) = table.text("share") else {
            return Some(None);
        };
        let parts = text.split_once('/');
        let parts = parts.and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Some(Some((index, of))),
            _ => {
                let message = format!("`{text}` is no share");
                let hint = "write 0/4, 1/4, 2/4 or 3/4 for four of them";
                self.refuse(&table.key("share"), message, hint)
            }
        }
    }

    pub(super) fn notify(&mut self) -> notify::Options {
        let table = self.table("notify");
        let url = table.owned("url");
        if let Some(Err(why)) = url.as_deref().map(crate::processors::parse_url) {
            self.problem("notify.url", why, "write url = \"https://host/path\"");
        }
        notify::Options {
            email: self.email(),
            url,
            authorization: table.owned("authorization").map(Secret),
            ca: table.path("ca"),
            public_url: table.owned("public_url"),
            link_lifetime: table.duration("link_lifetime"),
        }
    }

    fn email(&mut self) -> Option<notify::Email> {
        let table = self.table("notify.email");
        let server = table.owned("server")?;
        let to = table.list("to").unwrap_or_default().to_vec();
        let tls = match table.text("tls") {
            Some("tls") => notify::Tls::Always,
            Some("off") => notify::Tls::Off,
            _ => notify::Tls::Start,
        };
        let key = "notify.email.server";
        let address =
            |text: &String| text.contains('@') && !text.contains(['\r', '\n', '<', '>', ' ']);
        let Some(from) = table.owned("from").filter(address) else {
            let hint = "write from = \"highwater@example.org\"";
            return self.refuse(key, "mails need a sender", hint);
        };
        if to.is_empty() || !to.iter().all(address) {
            let hint = "write to = [\"ops@example.org\"]";
            self.problem(key, "mails need receivers", hint);
        }
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            self.problem(key, format!("`{server}` is no address"), "write host:port");
        }
        let password = table.owned("password");
        if password.is_some() && tls == notify::Tls::Off {
            let hint = "use tls = \"starttls\" or \"tls\"";
            self.problem(key, "a password would travel unencrypted", hint);
        }
        let login = table.owned("user").zip(password.map(Secret));
        Some(notify::Email {
            server,
            tls,
            login,
            from,
            to,
        })
    }
}

fn options(table: &Table<'_>) -> Options {
    let (order, concurrency) = match table.text("order") {
        Some("none") => (Order::None, table.count("concurrency")),
        Some("partition") => (Order::None, 1),
        _ => (Order::Key, table.count("concurrency")),
    };
    let first = table.duration("retry.first");
    Options {
        concurrency: concurrency as usize,
        order,
        retry: RetryPolicy {
            backoff: match table.text("retry.delay") {
                Some("fixed") => Backoff::Fixed(first),
                _ => Backoff::Exponential {
                    first,
                    cap: table.duration("retry.longest"),
                },
            },
            jitter_percent: table.count("retry.jitter_percent").min(100) as u8,
            tries_max: table.number_u32("retry.tries"),
            deadline: table.time("retry.deadline"),
            ..RetryPolicy::default()
        },
        timeout: Some(table.duration("timeout")),
        ..Options::default()
    }
}

/// When the circuit opens and closes.
fn rule(table: &Table<'_>) -> Rule {
    let percent = table.count("circuit.share_percent").min(100) as u8;
    let window = table.duration("circuit.window");
    Rule {
        window: window.max(Duration::from_millis(1)),
        failures_max: table.count("circuit.failures"),
        share: (percent > 0).then_some(FailureShare {
            percent,
            outcomes_min: OUTCOMES_MIN,
        }),
        open_for: table.time("circuit.open_for"),
        probes: table.count("circuit.probes"),
        successes: table.count("circuit.successes"),
    }
}

/// Positions are stored by group and partition, so each share of a partition has a group of its own.
fn group_of(group: &str, share: Option<(u32, u32)>) -> String {
    match share {
        Some((index, of)) => format!("{group}-{index}-of-{of}"),
        None => group.to_owned(),
    }
}
