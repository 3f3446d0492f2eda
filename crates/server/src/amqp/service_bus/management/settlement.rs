//! Requests that settle messages by their lock tokens, and renew locks.

use highwater_amqp::{AmqpError, Value};
use highwater_queue::Disposition;

use super::{ManagementRequest, argument, map};
use crate::amqp::request::Reply;
use crate::amqp::service_bus::message::edit;
use crate::amqp::service_bus::settlement::cut;
use crate::amqp::service_bus::{queue_error, refused};

pub(super) async fn renew(request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let renewed = request.queue.renew(request.tokens()?).await;
    let mut expirations = Vec::new();
    for result in renewed.map_err(queue_error)? {
        let until_ms = result.map_err(|refusal| refused(&refusal))?;
        expirations.push(Value::Timestamp(until_ms));
    }
    let expirations = Value::Array(expirations);
    Ok(Reply::ok(200, map(vec![("expirations", expirations)])))
}

pub(super) async fn update(request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let changes = match request.field("properties-to-modify") {
        Some(Value::Map(changes)) => changes.clone(),
        _ => Vec::new(),
    };
    let text = |name| request.text(name).unwrap_or_default().to_owned();
    let how = match request.text("disposition-status") {
        Some("completed") => Disposition::Complete,
        Some("abandoned") => Disposition::Abandon(edit(changes)),
        // The SDKs write it so.
        Some("defered" | "deferred") => Disposition::Defer(edit(changes)),
        Some("suspended") => Disposition::DeadLetter {
            reason: cut(text("deadletter-reason")),
            description: cut(text("deadletter-description")),
            edit: edit(changes),
        },
        _ => return Err(argument("The disposition is not known.")),
    };
    let settled = request.queue.settle(request.tokens()?, how).await;
    for result in settled.map_err(queue_error)? {
        result.map_err(|refusal| refused(&refusal))?;
    }
    Ok(Reply::ok(200, map(Vec::new())))
}
