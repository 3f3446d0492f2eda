//! Receivers of the demo's queue: they check the takings of each window and now and then return a message.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use super::files::QUEUE;
use crate::client::{Client, Server};

/// The time that checking one message takes.
const WORK: Duration = Duration::from_millis(700);

/// Receives and settles messages, one at a time, until the task is aborted.
pub(super) async fn run(server: Server) -> anyhow::Result<()> {
    let mut client = Client::new(&server)?;
    let path = format!("/queues/{QUEUE}/receive?max=1&wait=10s");
    let mut settled = json!({});
    loop {
        let response = client.send_json(Method::POST, &path, &settled).await?;
        let received = response.success()?.json()?;
        settled = json!({});
        for message in received["messages"].as_array().into_iter().flatten() {
            tokio::time::sleep(WORK).await;
            settled = settlement(message);
        }
    }
}

/// Every ninth message cannot be checked: it returns to the queue until its deliveries are used up.
fn settlement(message: &Value) -> Value {
    let token = &message["token"];
    match message["sequence"].as_u64().unwrap_or_default() % 9 == 4 {
        true => json!({"abandon": [token]}),
        false => json!({"complete": [token]}),
    }
}
