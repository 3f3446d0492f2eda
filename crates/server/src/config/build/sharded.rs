//! Sharded hubs of the settings.

use super::Build;
use crate::sharded::ShardedHub;

impl Build<'_> {
    pub(super) fn sharded_hub(&mut self, name: &str) -> Option<ShardedHub> {
        let (table, key) = (format!("sharded.{name}."), format!("sharded.{name}.hubs"));
        let checked = self.name(&table, name)?;
        if self.settings.tables("hubs").iter().any(|hub| hub == name) {
            let message = format!("`{checked}` is a hub, and cannot be a sharded one too");
            self.problem(&table, message, "choose another name");
        }
        let Some(members) = self.settings.list(&key).map(<[String]>::to_vec) else {
            let message = format!("sharded hub `{checked}` has no members");
            self.problem(&table, message, "write hubs = [\"t0\", \"t1\"]");
            return None;
        };
        let mut hubs = Vec::with_capacity(members.len());
        for member in &members {
            let hub = self.name(&key, member)?;
            if hubs.contains(&hub) {
                let message = format!("`{hub}` is named twice");
                self.problem(&key, message, "name each hub once");
            }
            if self
                .settings
                .tables("sharded")
                .iter()
                .any(|name| name.trim_matches('"') == member)
            {
                let message = format!("`{hub}` is a sharded hub itself");
                self.problem(&key, message, "name plain hubs only");
            }
            hubs.push(hub);
        }
        Some(ShardedHub {
            name: checked,
            hubs,
        })
    }
}
