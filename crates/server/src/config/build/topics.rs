//! Topics of the settings, with their subscriptions and rules.

use highwater_queue::{
    CorrelationFilter, Filter, NewSubscription, NewTopic, Rule, Settings, SqlAction, SqlFilter,
    TopicLimits, Value,
};

use super::Build;
use crate::topics::CONDITIONS;

const PAGE: &str = "docs/servicebus.md has the rules and their limits";

impl Build<'_> {
    pub(super) fn topic(&mut self, name: &str) -> Option<NewTopic> {
        let table = format!("topics.{name}.");
        let key = |setting: &str| format!("{table}{setting}");
        let checked = self.name(&table, name)?;
        if self.queue_names.contains(&name.to_ascii_lowercase()) {
            let message = format!("`{name}` is a queue and a topic");
            self.problem(&table, message, "choose another name for one of them");
        }
        let settings = Settings {
            time_to_live: self.settings.time(&key("time_to_live")),
            duplicates_within: self.settings.time(&key("duplicates_within")),
            bytes_max: self.bytes(&key("bytes_max")) as u64,
            message_bytes_max: self.count(&key("message_bytes_max")),
            auto_delete_on_idle: self.settings.time(&key("auto_delete_on_idle")),
            ..Settings::default()
        };
        self.check_settings(&table, &settings);
        if settings.message_bytes_max > TopicLimits::MESSAGE_BYTES_MAX {
            let message = "the messages of a topic have 1 MiB at most".into();
            self.problem(&key("message_bytes_max"), message, PAGE);
        }
        let names = self
            .settings
            .tables(&format!("topics.{name}.subscriptions"));
        let subscriptions = names
            .iter()
            .filter_map(|subscription| self.subscription(name, subscription));
        Some(NewTopic {
            name: checked.to_string(),
            subscriptions: subscriptions.collect(),
            settings,
        })
    }

    fn subscription(&mut self, topic: &str, name: &str) -> Option<NewSubscription> {
        let table = format!("topics.{topic}.subscriptions.{name}.");
        let key = |setting: &str| format!("{table}{setting}");
        let checked = self.name(&table, name)?;
        let settings = Settings {
            lock: self.time(&key("lock")),
            deliveries_max: self.count(&key("deliveries_max")),
            time_to_live: self.settings.time(&key("time_to_live")),
            dead_letter_expired: self.settings.flag(&key("dead_letter_expired")),
            sessions: self.settings.flag(&key("sessions")),
            bytes_max: self.bytes(&key("bytes_max")) as u64,
            forward_to: self.forward_target(&key("forward_to")),
            forward_dead_letters_to: self.forward_target(&key("forward_dead_letters_to")),
            auto_delete_on_idle: self.settings.time(&key("auto_delete_on_idle")),
            ..Settings::default()
        };
        self.check_settings(&table, &settings);
        let names = self.settings.tables(&key("rules"));
        let rules = names
            .iter()
            .filter_map(|rule| self.subscription_rule(&table, rule));
        Some(NewSubscription {
            name: checked.to_string(),
            rules: rules.collect(),
            settings,
        })
    }

    fn check_settings(&mut self, table: &str, settings: &Settings) {
        if let Err(error) = settings.check() {
            let wrong = format!("{table}{}", error.name);
            self.problem(&wrong, error.to_string(), "docs/queues.md has the limits");
        }
    }

    fn subscription_rule(&mut self, subscription: &str, name: &str) -> Option<Rule> {
        let table = format!("{subscription}rules.{name}.");
        let key = |setting: &str| format!("{table}{setting}");
        let text = |setting: &str| self.settings.text(&key(setting)).map(str::to_owned);
        let (sql, action) = (text("sql"), text("action"));
        let system = CONDITIONS.iter();
        let correlation = CorrelationFilter {
            system: system
                .filter_map(|(setting, property)| Some((*property, text(setting)?)))
                .collect(),
            user: self
                .settings
                .texts(&key("properties"))
                .into_iter()
                .map(|(name, text)| (name, Value::Text(text)))
                .collect(),
        };
        let has_conditions = correlation != CorrelationFilter::default();
        let filter = match (sql, has_conditions) {
            (Some(_), true) => {
                let message = "a rule has an SQL filter or a correlation filter".into();
                self.problem(&table, message, "write two rules");
                return None;
            }
            (Some(sql), false) => {
                Filter::Sql(self.expression(&key("sql"), SqlFilter::parse(&sql))?)
            }
            (None, true) => Filter::Correlation(correlation),
            (None, false) => Filter::True,
        };
        let action = match action {
            Some(text) => Some(self.expression(&key("action"), SqlAction::parse(&text))?),
            None => None,
        };
        let rule = Rule {
            name: name.trim_matches('"').to_owned(),
            filter,
            action,
            created_ms: 0,
        };
        if let Err(error) = rule.check() {
            self.problem(&table, error.to_string(), PAGE);
        }
        Some(rule)
    }

    fn expression<T>(
        &mut self,
        key: &str,
        parsed: Result<T, highwater_queue::FilterError>,
    ) -> Option<T> {
        match parsed {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                self.problem(key, error.to_string(), PAGE);
                None
            }
        }
    }
}
