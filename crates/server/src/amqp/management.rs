//! `$management`: the properties of hubs and partitions.

use highwater_access::Resource;
use highwater_amqp::{AmqpError, Value, condition};
use highwater_log::{HubInfo, Offset};

use super::broker::Broker;
use super::credentials::Credentials;
use super::error::not_found;
use super::operations::{self, AmqpOperation};
use super::position::ISOLATION;
use super::request::{Reply, Request};

/// Answers a request.
pub(super) fn reply(broker: &Broker, credentials: &Credentials, request: &Request) -> Reply {
    match read(broker, credentials, request) {
        Ok(body) => Reply::ok(200, body),
        Err(error) => Reply::error(error),
    }
}

fn read(
    broker: &Broker,
    credentials: &Credentials,
    request: &Request,
) -> Result<Value<'static>, AmqpError> {
    let operation = request.text("operation").unwrap_or_default();
    let kind = request.text("type").unwrap_or_default();
    let name = request.text("name").unwrap_or_default();
    if operation != "READ" {
        let description = format!("The operation '{operation}' is not supported.");
        return Err(AmqpError::new(condition::NOT_IMPLEMENTED, description));
    }
    let operation = match kind {
        "com.microsoft:eventhub" => AmqpOperation::ReadHubProperties,
        "com.microsoft:partition" => AmqpOperation::ReadPartitionProperties,
        _ => {
            let description = format!("The type '{kind}' is not supported.");
            return Err(AmqpError::new(condition::NOT_IMPLEMENTED, description));
        }
    };
    let hub = broker.hub(name);
    let hub_name = hub.as_ref().map_or(name, |hub| hub.name.as_str());
    let path = format!("{hub_name}/$management");
    operations::authorize(credentials, &path, operation, Resource::Hub(hub_name))?;
    let hub = hub.ok_or_else(|| not_found(name))?;
    if operation == AmqpOperation::ReadHubProperties {
        return Ok(hub_properties(&hub));
    }
    let partition = request.text("partition").unwrap_or_default();
    partition_properties(broker, &hub, partition)
}

fn map(entries: Vec<(&'static str, Value<'static>)>) -> Value<'static> {
    let entry = |(name, value)| (Value::string(name), value);
    Value::Map(entries.into_iter().map(entry).collect())
}

fn hub_properties(hub: &HubInfo) -> Value<'static> {
    let ids = (0..hub.partitions).map(|id| Value::string(id.to_string()));
    let partitions = i32::try_from(hub.partitions).unwrap_or(i32::MAX);
    map(vec![
        ("name", Value::string(hub.name.as_str().to_owned())),
        ("type", Value::string("com.microsoft:eventhub")),
        ("created_at", Value::Timestamp(hub.created_ms)),
        ("partition_count", Value::I32(partitions)),
        ("partition_ids", Value::Array(ids.collect())),
        // Go waits for it.
        ("georeplication_factor", Value::I32(1)),
    ])
}

fn partition_properties(
    broker: &Broker,
    hub: &HubInfo,
    partition: &str,
) -> Result<Value<'static>, AmqpError> {
    let id = broker.partition_id(hub, partition)?;
    let handle = broker.log.partition(hub.name.as_str(), id);
    let handle = handle.ok_or_else(|| not_found(hub.name.as_str()))?;
    let bounds = handle.bounds();
    let end = bounds.visible(ISOLATION);
    let last = Offset(end.0 - 1);
    let time = bounds.last_time.map_or(0, |time| time.0);
    Ok(map(vec![
        ("name", Value::string(hub.name.as_str().to_owned())),
        ("type", Value::string("com.microsoft:partition")),
        ("partition", Value::string(id.to_string())),
        ("begin_sequence_number", Value::I64(bounds.start.0)),
        ("last_enqueued_sequence_number", Value::I64(last.0)),
        ("last_enqueued_offset", Value::string(last.0.to_string())),
        ("last_enqueued_time_utc", Value::Timestamp(time)),
        ("is_partition_empty", Value::Bool(bounds.start >= end)),
    ]))
}
