//! Properties of records, their headers and keys, in queries.

use highwater_log::Log;
use highwater_log::batch::NewRecord;

use crate::live::world::{World, job, soon, to_the_end};

type Headers<'a> = &'a [(&'a str, Option<&'a [u8]>)];

async fn send(world: &World, key: Option<&[u8]>, value: &str, headers: Headers<'_>) {
    let record = NewRecord {
        key,
        value: Some(value.as_bytes()),
        headers,
    };
    let partition = world.log.partition("e", 0).unwrap();
    partition.append_records(&[record]).await.unwrap();
    world.advance(1);
}

async fn rows(world: &World, query: &str, rows: usize) -> Vec<String> {
    let text =
        format!("name = \"properties\"\nsql = \"\"\"{query}\"\"\"\n[inputs.e]\nhub = \"e\"\n");
    let handle = world.start(&job(&text), to_the_end());
    soon(world.recorder.until("out", rows)).await;
    soon(handle.ended()).await;
    world.recorder.rows("out")
}

// proves S1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_and_keys_are_properties_of_every_event_of_their_record() {
    let world = World::new(1);
    world.hub("e", 1).await;
    let kind: (&str, Option<&[u8]>) = ("Kind", Some(b"pump"));
    send(&world, Some(b"k1"), r#"{"id":1}"#, &[kind]).await;
    // An array is several events with the properties of one record.
    let again = [("kind", Some(&b"no"[..])), kind, ("Kind", Some(b"valve"))];
    send(&world, None, r#"[{"id":2},{"id":3}]"#, &again).await;
    // A value that is no event has properties of no event.
    send(&world, Some(b"k"), "{", &[kind]).await;
    let binary: Headers<'_> = &[("kind", Some(&[0xff, 0xfe])), ("other", None)];
    send(&world, Some(&[0xff]), r#"{"id":4}"#, binary).await;
    let query = "SELECT id, GetMetadataPropertyValue(e, '[User].[Kind]') AS kind, \
                 GetMetadataPropertyValue(e, '[EventHub].[PartitionKey]') AS pk INTO out FROM e";
    let expected = [
        r#"{"id":1,"kind":"pump","pk":"k1"}"#,
        r#"{"id":2,"kind":"valve","pk":null}"#,
        r#"{"id":3,"kind":"valve","pk":null}"#,
        r#"{"id":4,"kind":null,"pk":null}"#,
    ];
    assert_eq!(rows(&world, query, 4).await, expected);
}

// proves S1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_iot_hub_name_their_device() {
    let world = World::new(2);
    world.hub("e", 1).await;
    let headers: Headers<'_> = &[
        ("iothub-connection-device-id", Some(b"pump-1")),
        ("iothub-message-source", Some(b"Telemetry")),
        ("message-id", Some(b"m1")),
        ("colour", Some(b"red")),
    ];
    send(&world, None, r#"{"id":1}"#, headers).await;
    // What the event itself says comes first.
    let own = r#"{"id":2,"IoTHub":{"ConnectionDeviceId":"own"}}"#;
    send(&world, None, own, headers).await;
    send(&world, None, r#"{"id":3}"#, &[]).await;
    let query = "SELECT id, IoTHub.ConnectionDeviceId AS device, \
                 GetMetadataPropertyValue(e, 'IoTHub.MessageId') AS m, \
                 GetMetadataPropertyValue(e, 'EventHub.IoTMessageSource') AS source, \
                 GetMetadataPropertyValue(e, 'User') AS own INTO out FROM e";
    let expected = [
        r#"{"id":1,"device":"pump-1","m":"m1","source":"Telemetry","own":{"colour":"red"}}"#,
        r#"{"id":2,"device":"own","m":"m1","source":"Telemetry","own":{"colour":"red"}}"#,
        r#"{"id":3,"device":null,"m":null,"source":null,"own":{}}"#,
    ];
    assert_eq!(rows(&world, query, 3).await, expected);
}
