//! A link on which a client sends messages to a queue.

use std::sync::Arc;

use highwater_amqp::{AmqpError, DecodeError, LinkTerms, condition};
use highwater_queue::{NewMessage, Queue};

use super::message::parse;
use super::{QueueEntity, queue_error};
use crate::amqp::broker::Broker;
use crate::amqp::error::ARGUMENT_ERROR;
use crate::amqp::event::unpack_batch;
use crate::amqp::links::{AcceptedLink, Link};

pub(in crate::amqp) struct QueueSender {
    pub(in crate::amqp) entity: QueueEntity,
    pub(in crate::amqp) queue: Queue,
}

pub(in crate::amqp) async fn accept_sender(
    broker: Arc<Broker>,
    entity: QueueEntity,
    queue: Queue,
) -> Result<Box<AcceptedLink>, AmqpError> {
    let stats = queue.stats().await.map_err(queue_error)?;
    let terms = LinkTerms {
        message_bytes_max: stats.settings.message_bytes_max.into(),
        credit: broker.limits.credit,
        ..LinkTerms::default()
    };
    let sender = QueueSender { entity, queue };
    Ok(AcceptedLink::new(Link::QueueSender(sender), terms))
}

impl QueueSender {
    /// The messages of a delivery: one, or those of a batch.
    pub(in crate::amqp) fn messages(
        payload: &[u8],
        message_format: u32,
    ) -> Result<Vec<NewMessage>, AmqpError> {
        let malformed =
            |error: DecodeError| AmqpError::new(condition::DECODE_ERROR, error.to_string());
        let messages = unpack_batch(payload, message_format).map_err(malformed)?;
        if messages.is_empty() {
            return Err(AmqpError::new(ARGUMENT_ERROR, "The batch has no messages."));
        }
        let parsed = messages.into_iter().map(parse);
        parsed.collect::<Result<_, _>>().map_err(malformed)
    }
}
