//! The settings that a queue and a subscription have in common, and the bodies of requests that create and change them.

use serde_json::{Map, Value};

use crate::exit::UsageError;

/// An absent setting has its default at creation, and is unchanged by a change.
#[derive(clap::Args)]
pub(crate) struct DeliverySettings {
    /// How long a received message stays locked, such as 60s
    #[arg(long)]
    lock: Option<String>,
    /// Deliveries before an unsettled message becomes a dead letter
    #[arg(long)]
    deliveries_max: Option<u32>,
    /// Time to live of a message, such as 7d, or `forever`
    #[arg(long)]
    time_to_live: Option<String>,
    /// Move expired messages to the dead letters
    #[arg(long)]
    dead_letter_expired: Option<bool>,
    /// The largest total size of the messages, in bytes
    #[arg(long)]
    bytes_max: Option<u64>,
    /// The queue or topic that gets every message; "" ends it
    #[arg(long, value_name = "NAME")]
    forward_to: Option<String>,
    /// The queue or topic that gets every dead letter; "" ends it
    #[arg(long, value_name = "NAME")]
    forward_dead_letters_to: Option<String>,
    /// Delete it when nobody has used it for this time, such as 1h, or `never`
    #[arg(long, value_name = "TIME")]
    auto_delete_on_idle: Option<String>,
}

impl DeliverySettings {
    pub(crate) fn body(self) -> Map<String, Value> {
        let expired = self.dead_letter_expired;
        let dead_letters = self.forward_dead_letters_to;
        let auto_delete = self.auto_delete_on_idle;
        body([
            ("lock", self.lock.map(Value::from)),
            ("deliveries_max", self.deliveries_max.map(Value::from)),
            ("time_to_live", self.time_to_live.map(Value::from)),
            ("dead_letter_expired", expired.map(Value::from)),
            ("bytes_max", self.bytes_max.map(Value::from)),
            ("forward_to", self.forward_to.map(Value::from)),
            ("forward_dead_letters_to", dead_letters.map(Value::from)),
            ("auto_delete_on_idle", auto_delete.map(Value::from)),
        ])
    }
}

/// The settings that were given, as the body of a request.
pub(crate) fn body<const N: usize>(settings: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let given = settings
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    given.collect()
}

/// Refuses a change without any setting.
pub(crate) fn some_change(body: Map<String, Value>) -> Result<Value, UsageError> {
    match body.is_empty() {
        true => {
            let message =
                "nothing to set: give a setting such as --time-to-live 7d; --help lists them";
            Err(UsageError(message.into()))
        }
        false => Ok(body.into()),
    }
}
