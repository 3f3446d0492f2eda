//! Expiry of committed offsets and of groups.

use std::sync::Arc;

use super::coordinator::{Coordinator, LockedGroup};

impl Coordinator {
    /// Deletes offsets when they, and the time since their group became empty, are older than the retention, and
    /// groups without offsets. A group with members keeps everything.
    pub(super) fn expire(self: &Arc<Self>) {
        let retention = self.options.retention.as_millis() as i64;
        let before_ms = self.now_ms().saturating_sub(retention);
        for name in self.slots.names() {
            // A group that is being loaded or deleted has nothing to expire.
            let _ = self.with_group(&name, |locked| locked.expire(before_ms));
        }
    }
}

impl LockedGroup<'_> {
    fn expire(&mut self, before_ms: i64) {
        // A group without members has no deadline that would repeat a failed store.
        self.entry.retry_store();
        let offsets = &self.entry.offsets;
        if !self.entry.is_quiet() || self.entry.since_ms > before_ms && !offsets.is_empty() {
            return;
        }
        let old = offsets.older_than(before_ms);
        let all = old.len() == offsets.stored.len();
        // Nothing waits for the outcome; the next run repeats what fails.
        if all && offsets.pending.is_empty() {
            drop(self.delete());
        } else if !old.is_empty() {
            drop(self.forget(old));
        }
    }
}
