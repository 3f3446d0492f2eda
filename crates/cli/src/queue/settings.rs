//! The settings that a queue and a subscription have in common.

/// An absent setting has its default at creation, and is unchanged by a change.
#[derive(clap::Args, serde::Serialize)]
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
    /// Delete it when it has not been used for this time, such as 1h, or `never`
    #[arg(long, value_name = "TIME")]
    auto_delete_on_idle: Option<String>,
}
