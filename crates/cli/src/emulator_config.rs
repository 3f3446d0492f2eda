//! `Config.json` of Microsoft's emulators for Event Hubs and Service Bus, as settings of a node.
//!
//! Hubs, queues and topics become settings below `hubs`, `queues` and `topics`, which flags override. Settings without
//! an equivalent are left out, with a note to the user.

use std::path::Path;

use highwater_env::disk;
use serde_json::Value;

use crate::exit::UsageError;

/// A time to live of more days than this means no limit.
const DAYS_MAX: u64 = 36_500;

/// Where administration clients look for the emulator of Service Bus.
const ADMINISTRATION: &str = "127.0.0.1:5300";

/// The settings equivalent to the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EmulatorConfig {
    pub(crate) flags: Vec<(String, String)>,
}

impl EmulatorConfig {
    pub(crate) fn read(file: &Path) -> Result<EmulatorConfig, UsageError> {
        let shown = file.display();
        let text = disk::read_to_string(file)
            .map_err(|error| UsageError(format!("cannot read {shown}: {error}")))?;
        EmulatorConfig::parse(&text).map_err(|error| UsageError(format!("{shown}: {error}")))
    }

    fn parse(text: &str) -> Result<EmulatorConfig, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let user = &json["UserConfig"];
        let event_hubs = list(&user["NamespaceConfig"]);
        let service_bus = list(&user["Namespaces"]);
        if event_hubs.is_empty() && service_bus.is_empty() {
            return Err(
                "it has neither UserConfig.NamespaceConfig nor UserConfig.Namespaces".into(),
            );
        }
        let mut config = EmulatorConfig::default();
        for hub in event_hubs
            .iter()
            .flat_map(|namespace| list(&namespace["Entities"]))
        {
            config.add_hub(hub)?;
        }
        if !service_bus.is_empty() {
            let listener = "http.listeners.emulator";
            let flags = [("listen", ADMINISTRATION), ("optional", "true")];
            let flags =
                flags.map(|(setting, value)| (format!("{listener}.{setting}"), value.into()));
            config.flags.extend(flags);
        }
        for namespace in service_bus {
            for queue in list(&namespace["Queues"]) {
                config.add_queue(queue)?;
            }
            for topic in list(&namespace["Topics"]) {
                config.add_topic(topic)?;
            }
        }
        Ok(config)
    }

    fn set(&mut self, table: &str, name: &str, setting: &str, value: String) {
        let key = format!("{}.{setting}", join(table, name));
        self.flags.push((key, value));
    }

    fn add_topic(&mut self, topic: &Value) -> Result<(), String> {
        let topic_name = name(topic)?;
        let properties = &topic["Properties"];
        let live = time(properties, topic_name, "DefaultMessageTimeToLive")?.flatten();
        let live = live.unwrap_or_else(|| "forever".into());
        self.set("topics", topic_name, "time_to_live", live);
        self.set_duplicates("topics", topic_name, properties)?;
        self.set_auto_delete("topics", topic_name, properties)?;
        let table = format!("{}.subscriptions", join("topics", topic_name));
        for subscription in list(&topic["Subscriptions"]) {
            let subscription_name = name(subscription)?;
            self.set_receiving(&table, subscription_name, &subscription["Properties"])?;
            let table = format!("{}.rules", join(&table, subscription_name));
            for rule in list(&subscription["Rules"]) {
                self.add_rule(&table, rule)?;
            }
        }
        Ok(())
    }

    fn add_rule(&mut self, table: &str, rule: &Value) -> Result<(), String> {
        let name = name(rule)?;
        let properties = &rule["Properties"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let correlation = &properties["CorrelationFilter"];
        let mut conditions = Vec::new();
        for (key, setting) in CONDITIONS {
            let value = text(&correlation[key]).filter(|text| !text.is_empty());
            conditions.extend(value.map(|value| (setting.to_owned(), value)));
        }
        for (key, value) in correlation["Properties"].as_object().into_iter().flatten() {
            let value = text(value).unwrap_or_else(|| value.to_string());
            conditions.push((join("properties", key), value));
        }
        let sql = text(&properties["SqlFilter"]["SqlExpression"]);
        match (sql, conditions.is_empty()) {
            (_, false) => {
                for (setting, value) in conditions {
                    self.set(table, name, &setting, value);
                }
            }
            (Some(sql), true) => self.set(table, name, "sql", sql),
            (None, true) => return Err(format!("rule {name} has no filter")),
        }
        if let Some(action) = text(&properties["Action"]["SqlExpression"]) {
            self.set(table, name, "action", action);
        }
        Ok(())
    }

    fn add_hub(&mut self, hub: &Value) -> Result<(), String> {
        let name = name(hub)?;
        let partitions = &hub["PartitionCount"];
        let partitions = partitions
            .as_u64()
            .or_else(|| partitions.as_str()?.parse().ok());
        let partitions = partitions.ok_or_else(|| format!("{name} has no PartitionCount"))?;
        self.set("hubs", name, "partitions", partitions.to_string());
        Ok(())
    }

    fn add_queue(&mut self, queue: &Value) -> Result<(), String> {
        let name = name(queue)?;
        let properties = &queue["Properties"];
        self.set_receiving("queues", name, properties)?;
        self.set_duplicates("queues", name, properties)?;
        Ok(())
    }

    /// The settings shared by queues and subscriptions.
    fn set_receiving(&mut self, table: &str, name: &str, properties: &Value) -> Result<(), String> {
        let flag = |key: &str| properties[key].as_bool().unwrap_or_default();
        let sessions = flag("RequiresSession");
        self.set(table, name, "sessions", sessions.to_string());
        if let Some(lock) = time(properties, name, "LockDuration")?.flatten() {
            self.set(table, name, "lock", lock);
        }
        let expires = flag("DeadLetteringOnMessageExpiration");
        self.set(table, name, "dead_letter_expired", expires.to_string());
        if let Some(live) = time(properties, name, "DefaultMessageTimeToLive")? {
            let live = live.unwrap_or_else(|| "forever".into());
            self.set(table, name, "time_to_live", live);
        }
        self.set_auto_delete(table, name, properties)?;
        if let Some(count) = properties["MaxDeliveryCount"].as_u64() {
            self.set(table, name, "deliveries_max", count.to_string());
        }
        for (key, setting) in [
            ("ForwardTo", "forward_to"),
            ("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to"),
        ] {
            if let Some(to) = properties[key].as_str().filter(|to| !to.is_empty()) {
                self.set(table, name, setting, to.to_owned());
            }
        }
        Ok(())
    }

    fn set_auto_delete(
        &mut self,
        table: &str,
        name: &str,
        properties: &Value,
    ) -> Result<(), String> {
        if let Some(after) = time(properties, name, "AutoDeleteOnIdle")?.flatten() {
            self.set(table, name, "auto_delete_on_idle", after);
        }
        Ok(())
    }

    fn set_duplicates(
        &mut self,
        table: &str,
        name: &str,
        properties: &Value,
    ) -> Result<(), String> {
        if properties["RequiresDuplicateDetection"].as_bool() == Some(true) {
            let window = time(properties, name, "DuplicateDetectionHistoryTimeWindow")?.flatten();
            let window = window.unwrap_or_else(|| "10m".into());
            self.set(table, name, "duplicates_within", window);
        }
        Ok(())
    }
}

/// The conditions of a correlation filter, and their settings.
const CONDITIONS: [(&str, &str); 8] = [
    ("ContentType", "content_type"),
    ("CorrelationId", "correlation_id"),
    ("Label", "label"),
    ("MessageId", "message_id"),
    ("ReplyTo", "reply_to"),
    ("ReplyToSessionId", "reply_to_session_id"),
    ("SessionId", "session_id"),
    ("To", "to"),
];

/// The key of a table below another. A name with dots is quoted.
fn join(table: &str, name: &str) -> String {
    match name.contains('.') {
        true => format!("{table}.\"{name}\""),
        false => format!("{table}.{name}"),
    }
}

/// A duration of an entity; see [`duration`].
fn time(properties: &Value, name: &str, key: &str) -> Result<Option<Option<String>>, String> {
    let text = properties[key].as_str();
    text.map(|text| duration(text).ok_or_else(|| format!("{name}: {key} is no duration")))
        .transpose()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn name(entity: &Value) -> Result<&str, String> {
    let name = entity["Name"].as_str();
    name.filter(|name| !name.contains('"'))
        .ok_or_else(|| "an entity has no name".into())
}

/// An ISO 8601 duration such as `P1DT2H30M0.5S` in the form of our settings, such as `1d2h30m500ms`. The outer `None`:
/// it is no duration; the inner: it is one without an end.
fn duration(text: &str) -> Option<Option<String>> {
    let (days, times) = match text.strip_prefix('P')?.split_once('T') {
        Some((days, times)) => (days, times),
        None => (text.strip_prefix('P')?, ""),
    };
    let mut parts = String::new();
    if !days.is_empty() {
        let days: u64 = days.strip_suffix('D')?.parse().ok()?;
        if days > DAYS_MAX {
            return Some(None);
        }
        parts += &format!("{days}d");
    }
    let mut rest = times;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = (&rest[..end], &rest[end..=end]);
        rest = &rest[end + 1..];
        match unit {
            "H" => parts += &format!("{}h", number.parse::<u32>().ok()?),
            "M" => parts += &format!("{}m", number.parse::<u32>().ok()?),
            "S" => {
                let seconds: f64 = number.parse().ok()?;
                parts += &format!("{}ms", (seconds * 1000.0).round() as u64);
            }
            _ => return None,
        }
    }
    (!parts.is_empty()).then_some(Some(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &str) -> Vec<String> {
        let config = EmulatorConfig::parse(text).unwrap();
        let entities = config
            .flags
            .iter()
            .filter(|(key, _)| !key.starts_with("http."));
        let shown = |(key, value): &(String, String)| format!("{key}={value}");
        entities.map(shown).collect()
    }

    // proves A3
    #[test]
    fn the_file_of_the_event_hubs_emulator_makes_hubs() {
        let text = r#"{"UserConfig": {"NamespaceConfig": [{"Type": "EventHub", "Name": "emulatorNs1", "Entities": [
            {"Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]},
            {"Name": "eh.2", "PartitionCount": 4}
        ]}], "LoggingConfig": {"Type": "File"}}}"#;
        let expected = ["hubs.eh1.partitions=2", r#"hubs."eh.2".partitions=4"#];
        assert_eq!(flags(text), expected);
    }

    // proves A3
    #[test]
    fn the_file_of_the_service_bus_emulator_makes_queues() {
        let text = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "queue.1", "Properties": {
            "AutoDeleteOnIdle": "PT10M", "DeadLetteringOnMessageExpiration": true, "DefaultMessageTimeToLive": "PT1H",
            "DuplicateDetectionHistoryTimeWindow": "PT20S", "ForwardDeadLetteredMessagesTo": "", "ForwardTo": "other",
            "LockDuration": "PT1M", "MaxDeliveryCount": 3, "RequiresDuplicateDetection": true, "RequiresSession": false
        }}]}]}}"#;
        let flags = flags(text);
        let expected = [
            "sessions=false",
            "lock=1m",
            "dead_letter_expired=true",
            "time_to_live=1h",
            "auto_delete_on_idle=10m",
            "deliveries_max=3",
            "forward_to=other",
            "duplicates_within=20000ms",
        ];
        let expected = expected.map(|setting| format!(r#"queues."queue.1".{setting}"#));
        assert_eq!(flags, expected);
    }

    // proves A3
    #[test]
    fn the_file_of_the_service_bus_emulator_makes_topics_with_subscriptions_and_rules() {
        let text = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Topics": [{"Name": "topic.1",
            "Properties": {"DefaultMessageTimeToLive": "PT1H", "RequiresDuplicateDetection": false},
            "Subscriptions": [
                {"Name": "subscription.1", "Properties": {"LockDuration": "PT1M", "MaxDeliveryCount": 3, "ForwardTo": "x"},
                 "Rules": [{"Name": "app-prop", "Properties": {"FilterType": "Correlation", "CorrelationFilter": {
                    "ContentType": "application/text", "Label": "subject1", "Properties": {"prop1": "value1"}}}}]},
                {"Name": "s2", "Rules": [{"Name": "sql", "Properties": {"FilterType": "Sql",
                    "SqlFilter": {"SqlExpression": "a = 1, b"}, "Action": {"SqlExpression": "SET a = 2"}}}]}
            ]}]}]}}"#;
        let flags = flags(text);
        let topic = r#"topics."topic.1""#;
        let first = format!(r#"{topic}.subscriptions."subscription.1""#);
        let expected = [
            format!("{topic}.time_to_live=1h"),
            format!("{first}.sessions=false"),
            format!("{first}.lock=1m"),
            format!("{first}.dead_letter_expired=false"),
            format!("{first}.deliveries_max=3"),
            format!("{first}.forward_to=x"),
            format!("{first}.rules.app-prop.content_type=application/text"),
            format!("{first}.rules.app-prop.label=subject1"),
            format!("{first}.rules.app-prop.properties.prop1=value1"),
            format!("{topic}.subscriptions.s2.sessions=false"),
            format!("{topic}.subscriptions.s2.dead_letter_expired=false"),
            format!("{topic}.subscriptions.s2.rules.sql.sql=a = 1, b"),
            format!("{topic}.subscriptions.s2.rules.sql.action=SET a = 2"),
        ];
        assert_eq!(flags, expected);
    }

    // proves A3
    #[test]
    fn administration_clients_find_the_port_of_the_service_bus_emulator() {
        let listens = |text: &str| {
            let config = EmulatorConfig::parse(text).unwrap();
            let listen = (
                "http.listeners.emulator.listen".into(),
                "127.0.0.1:5300".into(),
            );
            config.flags.contains(&listen)
        };
        assert!(listens(
            r#"{"UserConfig": {"Namespaces": [{"Name": "n"}]}}"#
        ));
        assert!(!listens(
            r#"{"UserConfig": {"NamespaceConfig": [{"Name": "n"}]}}"#
        ));
    }

    #[test]
    fn durations_are_those_of_iso_8601() {
        let some = |text: &str| Some(Some(text.to_owned()));
        assert_eq!(duration("P1DT2H30M0.5S"), some("1d2h30m500ms"));
        assert_eq!(duration("P14D"), some("14d"));
        assert_eq!(duration("P10675199DT2H48M5.4775807S"), Some(None));
        for wrong in ["", "P", "1h", "PT", "PT5", "PT5X", "PTS", "P1W"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn other_files_are_refused() {
        for wrong in [
            "",
            "{}",
            r#"{"UserConfig":{"Namespaces":[{"Queues":[{}]}]}}"#,
        ] {
            assert!(EmulatorConfig::parse(wrong).is_err(), "{wrong}");
        }
    }
}
