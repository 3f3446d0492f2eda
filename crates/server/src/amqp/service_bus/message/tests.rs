//! Messages of AMQP clients through a queue and back.

use std::sync::Arc;

use bytes::BytesMut;
use highwater_amqp::{Encoder, MessageReader, Section, Value};
use highwater_queue::{
    Content, DeadLetterCause, Lock, LockExpiry, LockToken, Message, MessageState, NewMessage,
};

use super::*;

/// A message of these sections.
fn sections(parts: &[(u64, Value<'_>)]) -> BytesMut {
    let mut out = BytesMut::new();
    for (descriptor, value) in parts {
        let mut encoder = Encoder::new(&mut out);
        encoder.descriptor(*descriptor);
        encoder.value(value);
    }
    out
}

fn message(new: NewMessage) -> Message {
    Message {
        content: Arc::new(new.content),
        enqueued_ms: 1_000_000,
        expires_ms: new.time_to_live_ms.map(|ms| 1_000_000 + ms),
        deliveries: 3,
        state: MessageState::Ready,
        dead_letter: None,
    }
}

fn outgoing(message: &Message, lock: Option<(LockToken, i64)>) -> BytesMut {
    let mut out = BytesMut::new();
    let state = OutgoingState {
        seq: 42,
        message,
        lock,
        is_delivery: lock.is_some(),
        queue: "orders",
    };
    encode(&state, &mut out);
    out
}

fn entry<'a>(section: &'a Section<'_>, name: &str) -> Option<&'a Value<'a>> {
    let (Section::MessageAnnotations(entries)
    | Section::DeliveryAnnotations(entries)
    | Section::ApplicationProperties(entries)) = section
    else {
        panic!("{section:?}");
    };
    let mut entries = entries.iter();
    let found = entries.find(|(key, _)| key.as_text() == Some(name))?;
    Some(&found.1)
}

fn read(bytes: &[u8]) -> Vec<Section<'_>> {
    MessageReader::new(bytes).map(Result::unwrap).collect()
}

fn properties_section() -> Vec<Value<'static>> {
    let mut fields = vec![Value::Null; 13];
    fields[0] = Value::Uuid([7; 16]);
    fields[1] = Value::Binary(vec![0xff, 0].into());
    fields[3] = Value::string("a label");
    fields[5] = Value::string("correlated");
    fields[6] = Value::symbol("text/plain");
    fields[10] = Value::string("session-1");
    fields
}

// proves A2
#[test]
fn what_an_amqp_client_sent_is_what_another_receives() {
    let fields = properties_section();
    let application: Vec<(Value<'_>, Value<'_>)> = vec![
        (Value::string("text"), Value::string("äöü")),
        (Value::string("count"), Value::U32(7)),
        (Value::string("big"), Value::I64(-5)),
        (Value::string("ratio"), Value::F64(1.5)),
        (Value::string("flag"), Value::Bool(true)),
        (Value::string("at"), Value::Timestamp(1_700_000_000_123)),
        (Value::string("bytes"), Value::Binary(vec![0xfe, 1].into())),
        (Value::string("nothing"), Value::Null),
    ];
    let annotations = vec![(
        Value::symbol("x-opt-partition-key"),
        Value::string("the key"),
    )];
    let sent = sections(&[
        (
            Section::HEADER,
            Value::List(vec![Value::Bool(true), Value::Null, Value::U32(5000)]),
        ),
        (Section::MESSAGE_ANNOTATIONS, Value::Map(annotations)),
        (Section::PROPERTIES, Value::List(fields.clone())),
        (
            Section::APPLICATION_PROPERTIES,
            Value::Map(application.clone()),
        ),
        (
            Section::VALUE,
            Value::List(vec![Value::I32(1), Value::string("two")]),
        ),
    ]);
    let new = parse(&sent).unwrap();
    assert_eq!(new.content.session.as_deref(), Some("session-1"));
    assert_eq!(new.content.content_type.as_deref(), Some("text/plain"));
    assert_eq!(new.time_to_live_ms, Some(5000));
    let bytes = outgoing(&message(new), None);
    let got = read(&bytes);
    assert_eq!(got[0], Section::Header { ttl_ms: Some(5000) });
    assert_eq!(
        entry(&got[1], "x-opt-partition-key"),
        Some(&Value::string("the key"))
    );
    let Section::Properties(back) = &got[2] else {
        panic!("{got:?}");
    };
    for at in [0, 1, 3, 5, 6, 10] {
        assert_eq!(back[at], fields[at], "field {at}");
    }
    assert_eq!(back[8], Value::Timestamp(1_005_000));
    assert_eq!(got[3], Section::ApplicationProperties(application));
    assert_eq!(
        got[4],
        Section::Value(Value::List(vec![Value::I32(1), Value::string("two")]))
    );
}

// proves A2
#[test]
fn a_locked_message_has_the_annotations_that_the_sdks_read() {
    let new = parse(&sections(&[(Section::VALUE, Value::string("hello"))])).unwrap();
    assert_eq!(new.content.body, "hello", "a text is readable over HTTP");
    let mut message = message(new);
    let token = LockToken { seq: 42, number: 9 };
    message.state = MessageState::Locked(Lock {
        number: 9,
        until: LockExpiry::Time(5),
        deferred: true,
    });
    let bytes = outgoing(&message, Some((token, 777)));
    let got = read(&bytes);
    let uuid = entry(&got[1], "x-opt-lock-token");
    assert_eq!(
        uuid,
        Some(&Value::Uuid(crate::amqp::service_bus::lock_token::to_uuid(
            token
        )))
    );
    for (name, value) in [
        ("x-opt-sequence-number", Value::I64(42)),
        ("x-opt-enqueued-time", Value::Timestamp(1_000_000)),
        ("x-opt-locked-until", Value::Timestamp(777)),
        ("x-opt-message-state", Value::I32(1)),
    ] {
        assert_eq!(entry(&got[2], name), Some(&value), "{name}");
    }
    let Section::Properties(fields) = &got[3] else {
        panic!("{got:?}");
    };
    assert_eq!(
        fields[0],
        Value::string(format!("{:032x}", 42)),
        "every message has an id"
    );
    assert_eq!(got[5], Section::Value(Value::string("hello")));
    // The header counts the deliveries before this one.
    let Ok(Value::Described(header)) = Value::decode(&bytes[..bytes.len() - rest_len(&bytes)])
    else {
        panic!("no header");
    };
    assert_eq!(header.1.as_list().unwrap()[4], Value::U32(2));
}

/// The bytes after the first section.
fn rest_len(bytes: &[u8]) -> usize {
    let mut reader = MessageReader::new(bytes);
    reader.next();
    reader.rest().len()
}

// proves A2
#[test]
fn a_dead_letter_says_why_and_where_it_comes_from() {
    let content = Content {
        body: "{}".into(),
        properties: vec![("DeadLetterReason".into(), "an older one".into())],
        ..Content::default()
    };
    let mut message = message(NewMessage {
        content,
        ..NewMessage::default()
    });
    message.dead_letter = Some(Arc::new(DeadLetterCause {
        reason: "bad".into(),
        description: String::new(),
        at_ms: 0,
    }));
    let bytes = outgoing(&message, None);
    let got = read(&bytes);
    assert_eq!(
        entry(&got[1], "x-opt-deadletter-source"),
        Some(&Value::string("orders"))
    );
    let reason = (Value::string("DeadLetterReason"), Value::string("bad"));
    assert_eq!(got[3], Section::ApplicationProperties(vec![reason]));
    assert_eq!(got[4], Section::Data(b"{}"));
}

// proves A2
#[test]
fn a_scheduled_message_keeps_its_time() {
    let at = Value::Timestamp(2_000_000);
    let annotations = vec![(Value::symbol(SCHEDULED), at.clone())];
    let sent = sections(&[
        (Section::MESSAGE_ANNOTATIONS, Value::Map(annotations)),
        (Section::VALUE, Value::string("later")),
    ]);
    let new = parse(&sent).unwrap();
    assert_eq!(new.scheduled_ms, Some(2_000_000));
    let bytes = outgoing(&message(new), None);
    assert_eq!(entry(&read(&bytes)[1], SCHEDULED), Some(&at));
    // One that was scheduled over HTTP has it too.
    let mut plain = message(NewMessage::default());
    plain.state = MessageState::Scheduled;
    let bytes = outgoing(&plain, None);
    let expected = Value::Timestamp(1_000_000);
    assert_eq!(entry(&read(&bytes)[1], SCHEDULED), Some(&expected));
}

#[test]
fn damaged_messages_are_refused_and_do_not_panic() {
    let sent = sections(&[
        (Section::PROPERTIES, Value::List(properties_section())),
        (Section::VALUE, Value::string("x")),
    ]);
    for end in 0..sent.len() {
        let _ = parse(&sent[..end]);
    }
    assert!(parse(&[0, 0x53, 0x99, 0x40]).is_err());
}
