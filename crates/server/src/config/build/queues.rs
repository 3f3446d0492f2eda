//! Queues of the settings.

use highwater_queue::Settings;

use super::Build;
use crate::queues::DeclaredQueue;

impl Build<'_> {
    /// The name of a queue or topic. Whether there is one is known when the node has started.
    pub(super) fn forward_target(&mut self, key: &str) -> Option<String> {
        let target = self.settings.text(key)?.to_owned();
        Some(self.name(key, &target)?.to_string())
    }

    pub(super) fn queue(&mut self, name: &str) -> Option<DeclaredQueue> {
        let table = format!("queues.{name}.");
        let key = |setting: &str| format!("{table}{setting}");
        let checked = self.name(&table, name)?;
        let feed = match self.settings.text(&key("feed")).map(str::to_owned) {
            Some(hub) => Some(self.name(&key("feed"), &hub)?),
            None => None,
        };
        let settings = Settings {
            lock: self.time(&key("lock")),
            deliveries_max: self.count(&key("deliveries_max")),
            time_to_live: self.settings.time(&key("time_to_live")),
            dead_letter_expired: self.settings.flag(&key("dead_letter_expired")),
            duplicates_within: self.settings.time(&key("duplicates_within")),
            sessions: self.settings.flag(&key("sessions")),
            bytes_max: self.bytes(&key("bytes_max")) as u64,
            message_bytes_max: self.count(&key("message_bytes_max")),
            forward_to: self.forward_target(&key("forward_to")),
            forward_dead_letters_to: self.forward_target(&key("forward_dead_letters_to")),
            auto_delete_on_idle: self.settings.time(&key("auto_delete_on_idle")),
        };
        if let Err(error) = settings.check() {
            let wrong = key(error.name);
            self.problem(&wrong, error.to_string(), "docs/queues.md has the limits");
        }
        Some(DeclaredQueue {
            name: checked.to_string(),
            settings,
            feed,
        })
    }
}
