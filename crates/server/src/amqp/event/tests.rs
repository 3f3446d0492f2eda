//! Messages to records and back: an AMQP client receives events as an AMQP client sent them; and others can read it.

use bytes::{Bytes, BytesMut};
use highwater_amqp::{Encoder, MessageReader, Section, Value};
use highwater_log::batch::{BatchBuilder, BatchOptions, Decompressor, NewRecord};
use proptest::prelude::*;

use super::*;

type Entry<'a> = (Value<'a>, Value<'a>);

/// A message as a client writes it.
fn message(properties: &[Value<'_>], application: &[Entry<'_>], body: &[Section<'_>]) -> Bytes {
    let mut out = BytesMut::new();
    let mut encoder = Encoder::new(&mut out);
    encoder.descriptor(Section::MESSAGE_ANNOTATIONS);
    let key = (Value::symbol(PARTITION_KEY), Value::string("key"));
    encoder.value(&Value::Map(vec![key]));
    encoder.descriptor(Section::PROPERTIES);
    encoder.value(&Value::List(properties.to_vec()));
    encoder.descriptor(Section::APPLICATION_PROPERTIES);
    encoder.value(&Value::Map(application.to_vec()));
    for section in body {
        match section {
            Section::Data(data) => encoder.data_section(data),
            Section::Value(value) => {
                encoder.descriptor(Section::VALUE);
                encoder.value(value);
            }
            Section::Sequence(value) => {
                encoder.descriptor(Section::SEQUENCE);
                encoder.value(value);
            }
            other => panic!("{other:?}"),
        }
    }
    out.freeze()
}

/// Stores the event as a record, and gives the message for a reader.
fn stored(event: &IncomingEvent<'_>) -> Bytes {
    let headers = event.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (&**name, value.as_deref()))
        .collect();
    through_log(&NewRecord {
        key: event.key.as_deref().map(str::as_bytes),
        value: Some(&event.value),
        headers: &headers,
    })
}

fn through_log(record: &NewRecord<'_>) -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(record);
    let batch = builder.build(&BatchOptions::default()).unwrap();
    let mut decompressor = Decompressor::default();
    let record = batch
        .records(&mut decompressor)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let mut encoder = MessageEncoder::new(None);
    encoder.push(&record);
    encoder.finish().next().unwrap()
}

fn round_trip(sent: &Bytes) -> Bytes {
    stored(&IncomingEvent::parse(sent).unwrap())
}

fn header<'e>(event: &'e IncomingEvent<'_>, name: &str) -> Option<&'e str> {
    let mut headers = event.headers.iter();
    let value = headers.find(|(own, _)| own == name)?.1.as_deref()?;
    std::str::from_utf8(value).ok()
}

fn sections(message: &[u8]) -> Vec<Section<'_>> {
    MessageReader::new(message).map(Result::unwrap).collect()
}

fn property() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        ".{0,20}".prop_map(Value::string),
        "[a-z]{0,8}".prop_map(Value::symbol),
        any::<bool>().prop_map(Value::Bool),
        any::<u8>().prop_map(Value::U8),
        any::<u16>().prop_map(Value::U16),
        any::<u32>().prop_map(Value::U32),
        any::<u64>().prop_map(Value::U64),
        any::<i8>().prop_map(Value::I8),
        any::<i16>().prop_map(Value::I16),
        any::<i32>().prop_map(Value::I32),
        any::<i64>().prop_map(Value::I64),
        any::<f32>()
            .prop_filter("NaN is not itself", |v| !v.is_nan())
            .prop_map(Value::F32),
        any::<f64>()
            .prop_filter("NaN is not itself", |v| !v.is_nan())
            .prop_map(Value::F64),
        any::<i64>().prop_map(Value::Timestamp),
        (-60_000_000_000_000i64..250_000_000_000_000).prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<u32>().prop_map(Value::Char),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|v| Value::Binary(v.into())),
        Just(Value::Null),
        any::<i64>().prop_map(|ticks| {
            let name = Value::symbol("com.microsoft:timespan");
            Value::Described(Box::new((name, Value::I64(ticks))))
        }),
    ]
}

proptest! {
    // proves A1
    #[test]
    fn application_properties_come_back_with_their_types(
        entries in prop::collection::btree_map("[a-z]{1,8}", property(), 0..6),
        data in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let entries: Vec<Entry<'_>> = entries.into_iter().map(|(name, value)| (Value::string(name), value)).collect();
        let sent = message(&[], &entries, &[Section::Data(&data)]);
        let got = round_trip(&sent);
        let got = sections(&got);
        let found = got.iter().find_map(|section| match section {
            Section::ApplicationProperties(found) => Some(found.clone()),
            _ => None,
        });
        prop_assert_eq!(found.unwrap_or_default(), entries);
        prop_assert_eq!(got.last(), Some(&Section::Data(&data)));
    }

    #[test]
    fn headers_of_others_never_break_a_message(
        headers in prop::collection::vec(("amqp-types|amqp-body|content-type|amqp-message-id|amqp-creation-time|x", prop::option::of("string|sections|\\{.{0,9}\\}|.{0,9}")), 0..6),
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..6)),
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
    ) {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, value.as_ref().map(String::as_bytes))).collect();
        let got = through_log(&NewRecord { key: key.as_deref(), value: value.as_deref(), headers: &headers });
        sections(&got);
    }

    #[test]
    fn no_message_of_a_client_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), format in any::<bool>()) {
        let format = if format { 0x8001_3700 } else { 0 };
        for message in unpack_batch(&bytes, format).unwrap_or_default() {
            let _ = IncomingEvent::parse(message);
        }
        let _ = partition_key(&bytes);
    }
}

// proves A1
#[test]
fn an_event_is_readable_by_clients_of_other_protocols() {
    let id = Value::Uuid([0x11; 16]);
    let properties = [
        id,
        Value::Null,
        Value::Null,
        Value::string("subject"),
        Value::Null,
        Value::string("correlation"),
        Value::symbol("application/json"),
        Value::Null,
        Value::Null,
        Value::Timestamp(1_700_000_000_123),
    ];
    let application = [
        (Value::string("text"), Value::string("plain")),
        (Value::string("count"), Value::I32(-7)),
    ];
    let sent = message(
        &properties,
        &application,
        &[Section::Data(b"{\"a\""), Section::Data(b":1}")],
    );
    let event = IncomingEvent::parse(&sent).unwrap();
    assert_eq!(event.key.as_deref(), Some("key"));
    assert_eq!(&*event.value, b"{\"a\":1}");
    assert_eq!(header(&event, "content-type"), Some("application/json"));
    assert_eq!(header(&event, "text"), Some("plain"));
    assert_eq!(header(&event, "count"), Some("-7"));
    assert_eq!(header(&event, "amqp-subject"), Some("subject"));
    let creation = header(&event, "amqp-creation-time");
    assert_eq!(creation, Some("2023-11-14T22:13:20.123Z"));
    let types = header(&event, "amqp-types");
    assert_eq!(types, Some(r#"{"amqp-message-id":"uuid","count":"int"}"#));

    let got = stored(&event);
    let got = sections(&got);
    let fields = got.iter().find_map(|section| match section {
        Section::Properties(fields) => Some(fields.clone()),
        _ => None,
    });
    assert_eq!(fields.unwrap()[..10], properties);
    assert!(matches!(&got[1], Section::MessageAnnotations(annotations)
        if annotations.iter().any(|entry| entry.1 == Value::string("key"))));
}

// proves A1
#[test]
fn an_event_of_http_or_kafka_is_readable_by_clients_of_amqp() {
    let headers = [
        ("content-type", Some(&b"text/plain"[..])),
        ("source", Some(b"sensor")),
        ("raw", Some(&[0xff, 0xfe])),
        ("nothing", None),
    ];
    let got = through_log(&NewRecord {
        key: Some(b"k"),
        value: Some(b"hello"),
        headers: &headers,
    });
    let got = sections(&got);
    assert_eq!(got[0], Section::Header { ttl_ms: None });
    let Section::MessageAnnotations(annotations) = &got[1] else {
        panic!("{got:?}")
    };
    assert_eq!(
        annotations[0],
        (Value::symbol("x-opt-sequence-number"), Value::I64(0))
    );
    assert_eq!(
        annotations[1],
        (Value::symbol("x-opt-offset"), Value::string("0"))
    );
    assert_eq!(
        annotations[3],
        (Value::symbol(PARTITION_KEY), Value::string("k"))
    );
    let Section::Properties(fields) = &got[2] else {
        panic!("{got:?}")
    };
    assert_eq!(fields[6], Value::symbol("text/plain"));
    let expected = vec![
        (Value::string("source"), Value::string("sensor")),
        (Value::string("raw"), Value::Binary(vec![0xff, 0xfe].into())),
        (Value::string("nothing"), Value::Null),
    ];
    assert_eq!(got[3], Section::ApplicationProperties(expected));
    assert_eq!(got[4], Section::Data(b"hello"));
}

#[test]
fn bodies_that_are_values_come_back_as_such() {
    let list = Value::List(vec![Value::I32(1), Value::string("two")]);
    for body in [
        vec![Section::Value(Value::string("text"))],
        vec![Section::Value(list.clone())],
        vec![Section::Value(Value::Null)],
        vec![Section::Sequence(list.clone()), Section::Sequence(list)],
    ] {
        let sent = message(&[], &[], &body);
        let got = round_trip(&sent);
        let got = sections(&got);
        assert_eq!(&got[2..], &body[..]);
    }
    let text = message(&[], &[], &[Section::Value(Value::string("text"))]);
    let event = IncomingEvent::parse(&text).unwrap();
    assert_eq!(&*event.value, b"text");
}

#[test]
fn a_batch_is_the_messages_of_its_data_sections() {
    let one = message(&[], &[], &[Section::Data(b"1")]);
    let two = message(&[], &[], &[Section::Data(b"2")]);
    let envelope = message(&[], &[], &[Section::Data(&one), Section::Data(&two)]);
    let unpacked = unpack_batch(&envelope, 0x8001_3700).unwrap();
    assert_eq!(unpacked, [&one[..], &two[..]]);
    assert_eq!(partition_key(&envelope).unwrap().as_deref(), Some("key"));
    assert_eq!(unpack_batch(&one, 0).unwrap(), [&one[..]]);
}
