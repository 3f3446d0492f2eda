//! A link on which a client sends events to a hub.
//!
//! A delivery is one event or a batch of them. Its events go to one partition with one append, and the delivery is
//! accepted when that is durable.

use std::sync::Arc;
use std::time::Duration;

use highwater_amqp::{AmqpError, Attach, Properties, Value, condition};
use highwater_log::batch::{BatchBuilder, BatchOptions, NewRecord};
use highwater_log::{
    AppendError, AppendInfo, BoxFuture, HubInfo, InitProducerRequest, Partition,
    Producer as ProducerId, partition_for_key,
};

use super::broker::Broker;
use super::error::{ARGUMENT_ERROR, append_error, not_found};
use super::event::{IncomingEvent, partition_key, producer_sequence, unpack_batch};
use super::operations::AmqpOperation;

const IDEMPOTENT: &str = "com.microsoft:idempotent-producer";
const PRODUCER_ID: &str = "com.microsoft:producer-id";
const PRODUCER_EPOCH: &str = "com.microsoft:producer-epoch";
const PRODUCER_SEQUENCE: &str = "com.microsoft:producer-sequence-number";

/// Where the events of a link go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// By the key of each delivery, else in turn.
    Any,
    Partition(u32),
    /// All events of a publisher have its name as key.
    Key(String),
}

pub(super) struct Producer {
    pub(super) operation: AmqpOperation,
    /// The address, as tokens name it.
    pub(super) path: String,
    pub(super) hub: Arc<HubInfo>,
    pub(super) target: Target,
    /// Of a client that numbers its events.
    pub(super) idempotent: Option<ProducerId>,
}

/// Events in flight to the disk.
pub(super) struct PendingAppend {
    pub(super) events: usize,
    pub(super) appended: BoxFuture<Result<AppendInfo, AppendError>>,
}

/// A header of a record.
type Header<'a> = (&'a str, Option<&'a [u8]>);

impl Producer {
    /// Enqueues the events of a delivery. Their order is that of the calls.
    pub(super) fn append(
        &self,
        broker: &Broker,
        payload: &[u8],
        message_format: u32,
    ) -> Result<PendingAppend, AmqpError> {
        let malformed = |error: highwater_amqp::DecodeError| {
            AmqpError::new(condition::DECODE_ERROR, error.to_string())
        };
        let messages = unpack_batch(payload, message_format).map_err(malformed)?;
        let events = messages.iter().map(|message| IncomingEvent::parse(message));
        let events = events.collect::<Result<Vec<_>, _>>().map_err(malformed)?;
        if events.is_empty() {
            return Err(AmqpError::new(ARGUMENT_ERROR, "The batch has no events."));
        }
        let batch_key = partition_key(payload).map_err(malformed)?;
        let batch_key = match &self.target {
            Target::Key(publisher) => Some(publisher.as_str()),
            _ => batch_key.as_deref().or(events[0].key.as_deref()),
        };
        let partition = self.partition(broker, batch_key)?;
        let headers: Vec<Header<'_>> = events.iter().flat_map(headers).collect();
        let records = records(&events, batch_key, &headers);
        let appended = match self.idempotent {
            None => partition.append_records(&records),
            Some(producer) => {
                let sequence = producer_sequence(messages[0]).map_err(malformed)?;
                append_numbered(&*partition, &records, producer, sequence)?
            }
        };
        Ok(PendingAppend {
            events: events.len(),
            appended,
        })
    }

    fn partition(
        &self,
        broker: &Broker,
        key: Option<&str>,
    ) -> Result<Arc<dyn Partition>, AmqpError> {
        let name = self.hub.name.as_str();
        // It may have more partitions by now, or be another hub of the same name.
        let hub = broker.log.hub(name).ok_or_else(|| not_found(name))?;
        if key.is_none() && hub.settings.cleanup.compacts() {
            let text = format!("The hub '{name}' is compacted: an event needs a partition key.");
            return Err(AmqpError::new(ARGUMENT_ERROR, text));
        }
        let number = match (&self.target, key) {
            (Target::Partition(number), _) => *number,
            (_, Some(key)) => partition_for_key(key.as_bytes(), hub.partitions),
            (_, None) => broker.next_partition(&hub),
        };
        let partition = broker.log.partition(name, number);
        partition.ok_or_else(|| not_found(name))
    }
}

fn headers<'e>(event: &'e IncomingEvent<'_>) -> impl Iterator<Item = Header<'e>> {
    event
        .headers
        .iter()
        .map(|(name, value)| (&**name, value.as_deref()))
}

/// The records of events, whose headers follow each other in `headers`. An event without a key has that of its
/// batch.
fn records<'e>(
    events: &'e [IncomingEvent<'_>],
    batch_key: Option<&'e str>,
    headers: &'e [Header<'e>],
) -> Vec<NewRecord<'e>> {
    let mut rest = headers;
    let record = |event: &'e IncomingEvent<'_>| {
        let (headers, after) = rest.split_at(event.headers.len());
        rest = after;
        NewRecord {
            key: event.key.as_deref().or(batch_key).map(str::as_bytes),
            value: Some(&event.value),
            headers,
        }
    };
    events.iter().map(record).collect()
}

/// Appends events that their client has numbered, so that a repeated batch is recognised. Clients count from 1, the log
/// from 0.
fn append_numbered(
    partition: &dyn Partition,
    records: &[NewRecord<'_>],
    producer: ProducerId,
    sequence: Option<i32>,
) -> Result<BoxFuture<Result<AppendInfo, AppendError>>, AmqpError> {
    let sequence = sequence.and_then(|sequence| sequence.checked_sub(1));
    let Some(sequence) = sequence.filter(|sequence| *sequence >= 0) else {
        let text = "An event of an idempotent producer has no valid sequence number.";
        return Err(AmqpError::new(ARGUMENT_ERROR, text));
    };
    let mut builder = BatchBuilder::new();
    for record in records {
        builder.push(record);
    }
    let options = BatchOptions {
        producer: Some((producer, sequence)),
        ..BatchOptions::default()
    };
    let batch = builder.build(&options);
    let batch = batch.map_err(|error| append_error(&AppendError::Malformed(error)))?;
    Ok(partition.append(batch))
}

/// Numbers for a client that wants to send every event exactly once: the ones of an earlier link, or new ones. `None`
/// if it does not ask. The properties are for the answer.
pub(super) async fn idempotent_producer(
    broker: &Broker,
    attach: &Attach,
) -> Result<Option<(ProducerId, Properties)>, AmqpError> {
    if !attach.desires(IDEMPOTENT) {
        return Ok(None);
    }
    let number = |name: &str| attach.properties.get(name).and_then(Value::as_i64);
    let epoch = number(PRODUCER_EPOCH).and_then(|epoch| i16::try_from(epoch).ok());
    let producer = match (number(PRODUCER_ID), epoch) {
        (Some(id), Some(epoch)) => ProducerId { id, epoch },
        _ => {
            let request = InitProducerRequest {
                transactional_id: None,
                timeout: Duration::ZERO,
                current: None,
            };
            let created = broker.transactions.init_producer(request).await;
            created.map_err(|error| AmqpError::new(super::error::SERVER_BUSY, error.to_string()))?
        }
    };
    let sequence = number(PRODUCER_SEQUENCE).and_then(|number| i32::try_from(number).ok());
    let properties = vec![
        (Value::symbol(PRODUCER_ID), Value::I64(producer.id)),
        (Value::symbol(PRODUCER_EPOCH), Value::I16(producer.epoch)),
        (
            Value::symbol(PRODUCER_SEQUENCE),
            Value::I32(sequence.unwrap_or(0)),
        ),
    ];
    Ok(Some((producer, Properties(properties))))
}
