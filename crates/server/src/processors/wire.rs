//! The JSON form of events for handlers outside this process.

use highwater_flow::{Delivery, Event};
use highwater_log::EnqueueTime;

use crate::http::json::{write_headers, write_named, write_text, write_value};
use crate::text::write_time;

/// `{"id":"orders/0@7","attempt":1,"hub":"orders","partition":0,"offset":7,"enqueued":"..","key":"k",
/// "headers":{..},"value":..}`. A key or header that is not UTF-8 and a value that is not JSON are base64, under a name
/// that says so.
pub(super) fn write_delivery(out: &mut Vec<u8>, delivery: &Delivery<Event>) {
    let event = &delivery.event;
    out.extend_from_slice(b"{\"id\":");
    write_text(out, &event.id().to_string());
    out.extend_from_slice(format!(",\"attempt\":{}", delivery.attempt).as_bytes());
    write_event(out, event);
}

/// The fields after id and attempt.
fn write_event(out: &mut Vec<u8>, event: &Event) {
    let source = event.topic_partition();
    let (hub, partition, offset) = (&source.hub, source.partition, event.offset());
    let text =
        format!(",\"hub\":\"{hub}\",\"partition\":{partition},\"offset\":{offset},\"enqueued\":\"");
    out.extend_from_slice(text.as_bytes());
    write_time(out, EnqueueTime(event.timestamp()));
    out.push(b'"');
    if let Some(key) = event.key() {
        write_named(out, b"key", key);
    }
    write_headers(out, event.headers());
    write_value(out, event.value());
    out.push(b'}');
}

/// The event of a dead letter.
pub(crate) fn event_json(event: &Event) -> serde_json::Value {
    let mut out = b"{\"id\":".to_vec();
    write_text(&mut out, &event.id().to_string());
    write_event(&mut out, event);
    serde_json::from_slice(&out).unwrap_or_default()
}
