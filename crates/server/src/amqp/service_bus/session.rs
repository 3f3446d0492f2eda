//! The session that a receiver asks for, and the one that the response names.

use std::time::Duration;

use highwater_amqp::{AmqpError, Attach, Properties, Value};
use highwater_queue::{Queue, SessionLock, WaitKey};

use super::queue_error;
use crate::amqp::error::{ARGUMENT_ERROR, TIMEOUT};

const SESSION_FILTER: &str = "com.microsoft:session-filter";
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";
const TIMEOUT_PROPERTY: &str = "com.microsoft:timeout";

/// How long a client waits for any session that has messages.
const WAIT_MAX: Duration = Duration::from_secs(65);

/// .NET counts units of 100 ns since the year 1.
const TICKS_OF_1970: i64 = 621_355_968_000_000_000;

/// The session of a receiver.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SessionRequest {
    /// `None`: the next one that is available.
    name: Option<String>,
    /// The descriptor of the filter, which the response repeats.
    descriptor: Option<Value<'static>>,
    wait: Duration,
}

impl SessionRequest {
    /// The request in the source of a link; `None` if the client wants no session.
    pub(super) fn of(attach: &Attach) -> Result<Option<SessionRequest>, AmqpError> {
        let Some(filter) = attach.filter().and_then(|map| map.get(SESSION_FILTER)) else {
            return Ok(None);
        };
        let descriptor = match filter {
            Value::Described(described) => Some(described.0.clone()),
            _ => None,
        };
        let name = match filter.undescribed() {
            Value::Null => None,
            Value::String(name) => Some(name.clone().into_owned()),
            _ => {
                let text = "The session of the filter is not a string.";
                return Err(AmqpError::new(ARGUMENT_ERROR, text));
            }
        };
        let wait_ms = attach
            .properties
            .get(TIMEOUT_PROPERTY)
            .and_then(Value::as_i64);
        let wait_ms = wait_ms.and_then(|ms| u64::try_from(ms).ok());
        let wait = wait_ms.map_or(WAIT_MAX, |ms| Duration::from_millis(ms).min(WAIT_MAX));
        Ok(Some(SessionRequest {
            // A named session is free or not.
            wait: if name.is_some() { Duration::ZERO } else { wait },
            name,
            descriptor,
        }))
    }

    pub(super) async fn accept(
        &self,
        queue: &Queue,
        key: WaitKey,
    ) -> Result<SessionLock, AmqpError> {
        let accepted = queue.accept_until(self.name.clone(), self.wait, Some(key));
        let accepted = accepted.await.map_err(queue_error)?;
        accepted.map(|accepted| accepted.lock).ok_or_else(|| {
            let text = "No session with messages became available in time.";
            AmqpError::new(TIMEOUT, text)
        })
    }

    /// The source that names the locked session, in the form of the request.
    pub(super) fn source(&self, attach: &Attach, lock: &SessionLock) -> Option<Value<'static>> {
        let name = Value::string(lock.session.clone());
        let value = match &self.descriptor {
            Some(descriptor) => Value::Described(Box::new((descriptor.clone(), name))),
            None => name,
        };
        attach.source_with_filter(SESSION_FILTER, value)
    }
}

/// The properties of a link that has locked a session.
pub(super) fn link_properties(lock: &SessionLock) -> Properties {
    let ticks = lock.until_ms.saturating_mul(10_000);
    let ticks = ticks.saturating_add(TICKS_OF_1970);
    Properties(vec![(Value::symbol(LOCKED_UNTIL), Value::I64(ticks))])
}
