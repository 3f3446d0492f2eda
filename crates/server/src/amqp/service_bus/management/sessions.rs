//! Requests about sessions: their state, their lock, and which there are.

use bytes::Bytes;
use highwater_amqp::{AmqpError, Value};

use super::{ITEMS_MAX, ManagementRequest, argument, map};
use crate::amqp::request::Reply;
use crate::amqp::service_bus::queue_error;

const SESSION_NOT_FOUND: &str = "com.microsoft:session-not-found";

/// Sessions that a client may skip, in all its requests for a list.
const SKIP_MAX: usize = 100_000;

pub(super) async fn renew(request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let renewed = request.queue.renew_session(request.session()?).await;
    let until = Value::Timestamp(renewed.map_err(queue_error)?.until_ms);
    Ok(Reply::ok(200, map(vec![("expiration", until)])))
}

pub(super) async fn get_state(request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let state = request.queue.session_state(request.session()?).await;
    let state = match state.map_err(queue_error)? {
        Some(state) => Value::Binary(state.to_vec().into()),
        None => Value::Null,
    };
    Ok(Reply::ok(200, map(vec![("session-state", state)])))
}

pub(super) async fn set_state(request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let state = match request.field("session-state") {
        None => None,
        Some(Value::Binary(state)) => Some(Bytes::copy_from_slice(state)),
        Some(Value::String(state)) => Some(Bytes::copy_from_slice(state.as_bytes())),
        Some(_) => return Err(argument("The state of a session is binary.")),
    };
    let set = request.queue.set_session_state(request.session()?, state);
    set.await.map_err(queue_error)?;
    Ok(Reply::ok(200, map(Vec::new())))
}

/// Sessions with messages, a lock or a state, in the order of their ids.
pub(super) async fn list(request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let number = |name, default| {
        let number = request.number(name).unwrap_or(default);
        usize::try_from(number).unwrap_or(0)
    };
    let skip = number("skip", 0).min(SKIP_MAX);
    let top = number("top", 100).min(ITEMS_MAX);
    let sessions = request.queue.list_sessions(None, skip + top).await;
    let sessions = sessions.map_err(queue_error)?;
    let ids = sessions.into_iter().skip(skip);
    let ids: Vec<_> = ids.map(|info| Value::string(info.session)).collect();
    if ids.is_empty() {
        return Ok(Reply::no_content(Some(SESSION_NOT_FOUND)));
    }
    let next = i32::try_from(skip + ids.len()).unwrap_or(i32::MAX);
    let entries = vec![
        ("skip", Value::I32(next)),
        ("sessions-ids", Value::Array(ids)),
    ];
    Ok(Reply::ok(200, map(entries)))
}
