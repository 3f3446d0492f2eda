//! Topics of the settings, with their subscriptions and rules.

use highwater_queue::{
    CorrelationFilter, Filter, FilterError, NewSubscription, NewTopic, Rule, Settings, SqlAction,
    SqlFilter, TopicLimits, Value,
};

use super::{Build, Table};
use crate::topics::CONDITIONS;

const PAGE: &str = "docs/servicebus.md has the rules and their limits";

impl Build<'_> {
    pub(super) fn topic(&mut self, table: &Table<'_>) -> Option<NewTopic> {
        let checked = self.own_name(table)?;
        let name = &table.name;
        if self.queue_names.contains(&name.to_ascii_lowercase()) {
            let message = format!("`{name}` is a queue and a topic");
            let hint = "choose another name for one of them";
            self.problem(&table.key(""), message, hint);
        }
        let settings = Settings {
            time_to_live: table.time("time_to_live"),
            duplicates_within: table.time("duplicates_within"),
            bytes_max: table.bytes("bytes_max") as u64,
            message_bytes_max: table.count("message_bytes_max"),
            auto_delete_on_idle: table.time("auto_delete_on_idle"),
            ..Settings::default()
        };
        self.check_settings(table, &settings);
        if settings.message_bytes_max > TopicLimits::MESSAGE_BYTES_MAX {
            let message = "the messages of a topic have 1 MiB at most";
            self.problem(&table.key("message_bytes_max"), message, PAGE);
        }
        let subscriptions = table.tables("subscriptions");
        let subscriptions = subscriptions
            .iter()
            .filter_map(|table| self.subscription(table));
        Some(NewTopic {
            name: checked.to_string(),
            subscriptions: subscriptions.collect(),
            settings,
        })
    }

    fn subscription(&mut self, table: &Table<'_>) -> Option<NewSubscription> {
        let name = self.own_name(table)?.to_string();
        let settings = self.delivery_settings(table);
        self.check_settings(table, &settings);
        let rules = table.tables("rules");
        let rules = rules
            .iter()
            .filter_map(|table| self.subscription_rule(table));
        Some(NewSubscription {
            name,
            rules: rules.collect(),
            settings,
        })
    }

    fn subscription_rule(&mut self, table: &Table<'_>) -> Option<Rule> {
        let at = table.key("");
        let conditions = CONDITIONS.iter();
        let properties = self.settings.texts(&table.key("properties")).into_iter();
        let correlation = CorrelationFilter {
            system: conditions
                .filter_map(|(setting, property)| Some((*property, table.owned(setting)?)))
                .collect(),
            user: properties
                .map(|(name, text)| (name, Value::Text(text)))
                .collect(),
        };
        let has_conditions = correlation != CorrelationFilter::default();
        let filter = match (table.text("sql"), has_conditions) {
            (Some(_), true) => {
                let message = "a rule has an SQL filter or a correlation filter";
                return self.refuse(&at, message, "write two rules");
            }
            (Some(sql), false) => {
                Filter::Sql(self.expression(&table.key("sql"), SqlFilter::parse(sql))?)
            }
            (None, true) => Filter::Correlation(correlation),
            (None, false) => Filter::True,
        };
        let action = match table.text("action") {
            Some(text) => Some(self.expression(&table.key("action"), SqlAction::parse(text))?),
            None => None,
        };
        let rule = Rule {
            name: table.name.trim_matches('"').to_owned(),
            filter,
            action,
            created_ms: 0,
        };
        if let Err(error) = rule.check() {
            self.problem(&at, error.to_string(), PAGE);
        }
        Some(rule)
    }

    fn expression<T>(&mut self, key: &str, parsed: Result<T, FilterError>) -> Option<T> {
        match parsed {
            Ok(parsed) => Some(parsed),
            Err(error) => self.refuse(key, error.to_string(), PAGE),
        }
    }
}
