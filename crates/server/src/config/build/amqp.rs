//! Listeners for AMQP clients.

use super::super::{AmqpListener, Origin};
use super::{Build, ListenerCheck};

impl Build<'_> {
    pub(super) fn amqp(&mut self, has_keys: bool) -> Vec<AmqpListener> {
        let first = self.settings.address("amqp.listen").map(|listen| {
            let anonymous = self.settings.flag("amqp.anonymous");
            let listener = ListenerCheck {
                table: "amqp",
                listen,
                requires_keys: has_keys && !anonymous,
                tls: false,
            };
            self.check(
                listener,
                "use a [[amqp.listeners]] table with tls, and keys",
            );
            AmqpListener {
                listen,
                is_default: matches!(self.settings.origin("amqp.listen"), Origin::Default),
                tls: None,
                anonymous,
            }
        });
        let names = self.settings.tables("amqp.listeners");
        let more: Vec<_> = names
            .iter()
            .filter_map(|name| self.amqp_listener(name, has_keys))
            .collect();
        first.into_iter().chain(more).collect()
    }

    fn amqp_listener(&mut self, name: &str, has_keys: bool) -> Option<AmqpListener> {
        let table = format!("amqp.listeners.{name}");
        let Some(listen) = self.settings.address(&format!("{table}.listen")) else {
            let message = "an AMQP listener needs an address".into();
            self.problem(
                &format!("{table}."),
                message,
                "write listen = \"127.0.0.1:5671\"",
            );
            return None;
        };
        let tls = self.tls(&table);
        let anonymous = self.settings.flag(&format!("{table}.anonymous"));
        let listener = ListenerCheck {
            table: &table,
            listen,
            requires_keys: has_keys && !anonymous,
            tls: tls.is_some(),
        };
        self.check(listener, "add a [[keys]] table");
        Some(AmqpListener {
            listen,
            is_default: false,
            tls,
            anonymous,
        })
    }
}
