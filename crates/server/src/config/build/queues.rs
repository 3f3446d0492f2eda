//! Queues of the settings.

use highwater_queue::Settings;

use super::{Build, Table};
use crate::queues::DeclaredQueue;

impl Build<'_> {
    pub(super) fn queue(&mut self, table: &Table<'_>) -> Option<DeclaredQueue> {
        let name = self.own_name(table)?.to_string();
        let feed = match table.text("feed") {
            Some(hub) => Some(self.name(&table.key("feed"), hub)?),
            None => None,
        };
        let settings = Settings {
            duplicates_within: table.time("duplicates_within"),
            message_bytes_max: table.count("message_bytes_max"),
            ..self.delivery_settings(table)
        };
        self.check_settings(table, &settings);
        Some(DeclaredQueue {
            name,
            settings,
            feed,
        })
    }

    /// The settings that a queue and a subscription have in common.
    pub(super) fn delivery_settings(&mut self, table: &Table<'_>) -> Settings {
        Settings {
            lock: table.duration("lock"),
            deliveries_max: table.count("deliveries_max"),
            time_to_live: table.time("time_to_live"),
            dead_letter_expired: table.flag("dead_letter_expired"),
            sessions: table.flag("sessions"),
            bytes_max: table.bytes("bytes_max") as u64,
            forward_to: self.forward_target(table, "forward_to"),
            forward_dead_letters_to: self.forward_target(table, "forward_dead_letters_to"),
            auto_delete_on_idle: table.time("auto_delete_on_idle"),
            ..Settings::default()
        }
    }

    /// The name of a queue or topic. Whether there is one is known when the node has started.
    fn forward_target(&mut self, table: &Table<'_>, setting: &str) -> Option<String> {
        let target = table.text(setting)?;
        Some(self.name(&table.key(setting), target)?.to_string())
    }

    pub(super) fn check_settings(&mut self, table: &Table<'_>, settings: &Settings) {
        if let Err(error) = settings.check() {
            let wrong = table.key(error.name);
            self.problem(&wrong, error.to_string(), "docs/queues.md has the limits");
        }
    }
}
