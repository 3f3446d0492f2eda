//! Listeners for AMQP clients.

use super::super::{AmqpListener, Origin};
use super::{Build, Listener, Table};

impl Build<'_> {
    pub(super) fn amqp(&mut self, has_keys: bool) -> Vec<AmqpListener> {
        let table = self.table("amqp");
        let how = "use a [[amqp.listeners]] table with tls, and keys";
        let first = self.amqp_listener(&table, has_keys, how);
        let more = table.tables("listeners");
        let more = more.iter().filter_map(|table| {
            if table.address("listen").is_none() {
                let hint = "write listen = \"127.0.0.1:5671\"";
                return self.refuse(&table.key(""), "an AMQP listener needs an address", hint);
            }
            self.amqp_listener(table, has_keys, "add a [[keys]] table")
        });
        first.into_iter().chain(more).collect()
    }

    fn amqp_listener(
        &mut self,
        table: &Table<'_>,
        has_keys: bool,
        how_to_require_keys: &str,
    ) -> Option<AmqpListener> {
        let anonymous = table.flag("anonymous");
        let Listener { listen, tls } =
            self.listener(table, has_keys && !anonymous, how_to_require_keys)?;
        Some(AmqpListener {
            listen,
            is_default: self.settings.origin(&table.key("listen")) == Origin::Default,
            tls,
            anonymous,
        })
    }
}
