//! Forgetting what nobody has asked for in a long time.

use std::sync::Arc;

use super::coordinator::{Coordinator, LockedGroup};

impl Coordinator {
    /// Positions go when they and the emptiness of their group are older than the retention; a group
    /// goes when it has none left. A group with members keeps everything.
    pub fn expire(self: &Arc<Self>) {
        let names: Vec<String> = self.slots.read().keys().cloned().collect();
        let retention = self.options.retention.as_millis() as i64;
        let before_ms = self.now_ms().saturating_sub(retention);
        for name in names {
            // A group that is being loaded or deleted needs nothing from us.
            let _ = self.with_group(&name, |locked| locked.expire(before_ms));
        }
    }
}

impl LockedGroup<'_> {
    fn expire(&mut self, before_ms: i64) {
        if !self.entry.is_quiet() || self.entry.since_ms > before_ms && !self.has_no_positions() {
            return;
        }
        let old = self.entry.positions.older_than(before_ms);
        let all = old.len() == self.entry.positions.stored.len();
        // Nobody waits for the outcome; what fails is tried again the next time.
        if all && self.entry.positions.pending.is_empty() {
            drop(self.delete());
        } else if !old.is_empty() {
            drop(self.forget(old));
        }
    }

    fn has_no_positions(&self) -> bool {
        self.entry.positions.is_empty()
    }
}
