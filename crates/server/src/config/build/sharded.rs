//! Sharded hubs of the settings.

use super::{Build, Table};
use crate::sharded::ShardedHub;

impl Build<'_> {
    pub(super) fn sharded_hub(&mut self, table: &Table<'_>) -> Option<ShardedHub> {
        let (at, key) = (table.key(""), table.key("hubs"));
        let name = self.own_name(table)?;
        if self.settings.tables("hubs").contains(&table.name) {
            let message = format!("`{name}` is a hub, and cannot be a sharded one too");
            self.problem(&at, message, "choose another name");
        }
        let Some(members) = table.list("hubs") else {
            let message = format!("sharded hub `{name}` has no members");
            return self.refuse(&at, message, "write hubs = [\"t0\", \"t1\"]");
        };
        let sharded = self.settings.tables("sharded");
        let mut hubs = Vec::with_capacity(members.len());
        for member in members {
            let hub = self.name(&key, member)?;
            if hubs.contains(&hub) {
                let message = format!("`{hub}` is named twice");
                self.problem(&key, message, "name each hub once");
            }
            if sharded.iter().any(|name| name.trim_matches('"') == member) {
                let message = format!("`{hub}` is a sharded hub itself");
                self.problem(&key, message, "name plain hubs only");
            }
            hubs.push(hub);
        }
        Some(ShardedHub { name, hubs })
    }
}
