use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::filter::{SqlAction, SqlFilter, SystemProperty};
use crate::machine::{LockToken, ReferencedMessage, TransactionStep};
use crate::message::{
    Content, DeadLetterCause, Lock, LockExpiry, Message, MessageState, NewMessage,
};

fn message() -> impl Strategy<Value = Message> {
    let text = || prop::option::of(".{0,9}");
    let state = prop_oneof![
        Just(MessageState::Ready),
        Just(MessageState::Scheduled),
        Just(MessageState::Deferred),
        (any::<u64>(), prop::option::of(any::<i64>()), any::<bool>()).prop_map(
            |(number, at, deferred)| MessageState::Locked(Lock {
                number,
                until: at.map_or(LockExpiry::Session, LockExpiry::Time),
                deferred,
            })
        ),
    ];
    let content = (
        any::<Vec<u8>>(),
        text(),
        text(),
        text(),
        prop::collection::vec((".{0,5}", ".{0,5}"), 0..3),
    );
    let content = content.prop_map(|(body, id, session, content_type, properties)| Content {
        body: body.into(),
        id,
        session,
        content_type,
        properties,
    });
    let dead_letter = prop::option::of((".{0,5}", ".{0,5}", any::<i64>()));
    (
        content,
        any::<i64>(),
        prop::option::of(any::<i64>()),
        any::<u32>(),
        state,
        dead_letter,
    )
        .prop_map(
            |(content, enqueued_ms, expires_ms, deliveries, state, dead_letter)| Message {
                content: Arc::new(content),
                enqueued_ms,
                expires_ms,
                deliveries,
                state,
                dead_letter: dead_letter.map(|(reason, description, at_ms)| {
                    Arc::new(DeadLetterCause {
                        reason,
                        description,
                        at_ms,
                    })
                }),
            },
        )
}

proptest! {
    #[test]
    fn a_message_is_read_as_it_was_written(seq: u64, message in message()) {
        let event = Event::MessageSnapshot { seq, message };
        let mut out = Vec::new();
        write(&event, &mut out);
        let bytes = Bytes::from(out);
        prop_assert_eq!(read(&bytes), Ok(event));
        for end in 0..bytes.len() {
            prop_assert!(read(&bytes.slice(..end)).is_err());
        }
    }

    #[test]
    fn whatever_a_record_holds_nothing_panics(bytes: Vec<u8>) {
        let _ = read(&bytes.into());
    }
}

#[test]
fn a_message_has_these_bytes() {
    let content = Content {
        body: "{}".into(),
        id: Some("7".into()),
        properties: vec![("a".into(), "b".into())],
        ..Content::default()
    };
    let message = Message {
        content: Arc::new(content),
        enqueued_ms: 0x0102,
        expires_ms: None,
        deliveries: 300,
        state: MessageState::Locked(Lock {
            number: 5,
            until: LockExpiry::Session,
            deferred: false,
        }),
        dead_letter: None,
    };
    let mut out = Vec::new();
    write(&Event::Enqueued { seq: 9, message }, &mut out);
    let expected = [
        &[2, 9][..],
        &[0, 0, 0, 0, 0, 0, 1, 2],
        &[0],
        &[0xac, 2],
        &[3, 5, 0, 0],
        &[0],
        &[1, 1, b'7', 0, 0],
        &[1, 1, b'a', 1, b'b'],
        &[2, b'{', b'}'],
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn messages_and_sessions_that_are_given_back_have_these_bytes() {
    let mut out = Vec::new();
    write(&Event::Returned { seqs: vec![7, 300] }, &mut out);
    let session = "s".into();
    write(&Event::SessionReturned { session }, &mut out);
    assert_eq!(out, [18, 2, 7, 0xac, 2, 19, 1, b's']);
}

#[test]
fn a_completed_message_costs_four_bytes_of_journal() {
    let mut out = Vec::new();
    let (seqs, why) = (vec![7], RemovalReason::Completed);
    write(&Event::Removed { seqs, why }, &mut out);
    assert_eq!(out, [4, 0, 1, 7]);
}

// proves A3
#[test]
fn a_position_in_a_topic_has_these_bytes() {
    let mut out = Vec::new();
    let (enqueued_ms, seq) = (0x0102, 300);
    write(
        &Event::TopicPosition(TopicPosition { enqueued_ms, seq }),
        &mut out,
    );
    let name = "r".into();
    write(&Event::RuleRemoved { name }, &mut out);
    let expected = [20, 0, 0, 0, 0, 0, 0, 1, 2, 0xac, 2, 22, 1, b'r'];
    assert_eq!(out, expected);
}

// proves A3
#[test]
fn rules_have_these_bytes_and_are_read_as_they_were_written() {
    let correlation = CorrelationFilter {
        system: vec![(SystemProperty::Label, "x".into())],
        user: vec![
            ("a".into(), Value::Bool(true)),
            ("b".into(), Value::Integer(-1)),
            ("c".into(), Value::Float(1.5)),
            ("d".into(), Value::Time(7)),
            ("e".into(), Value::Opaque),
        ],
    };
    for filter in [
        Filter::True,
        Filter::False,
        Filter::Sql(SqlFilter::parse("a = 1").unwrap()),
        Filter::Correlation(correlation),
    ] {
        let rule = Rule {
            name: "r".into(),
            created_ms: 5,
            action: Some(SqlAction::parse("SET b = 2").unwrap()),
            filter,
        };
        let event = Event::RuleAdded(Arc::new(rule));
        let mut out = Vec::new();
        write(&event, &mut out);
        let bytes = Bytes::from(out);
        assert_eq!(read(&bytes), Ok(event));
        for end in 0..bytes.len() {
            assert!(read(&bytes.slice(..end)).is_err());
        }
    }
    let mut out = Vec::new();
    write(
        &Event::RuleAdded(Arc::new(Rule {
            name: "r".into(),
            created_ms: 5,
            filter: Filter::Sql(SqlFilter::parse("a=1").unwrap()),
            action: None,
        })),
        &mut out,
    );
    let expected = [
        &[21, 1, b'r'][..],
        &[0, 0, 0, 0, 0, 0, 0, 5],
        &[2, 3],
        b"a=1",
        &[0],
    ];
    assert_eq!(out, expected.concat());
    out[12] = b'%';
    assert!(read(&out.into()).is_err(), "no expression");
}

// proves A3
#[test]
fn references_forwarding_and_transactions_have_these_bytes_and_are_read_as_they_were_written() {
    let content = Content {
        session: Some("s".into()),
        properties: vec![("a".into(), "b".into())],
        ..Content::default()
    };
    let message = Message {
        content: Arc::new(content),
        enqueued_ms: 0x0102,
        expires_ms: None,
        deliveries: 1,
        state: MessageState::Locked(Lock {
            number: 5,
            until: LockExpiry::Forwarded,
            deferred: false,
        }),
        dead_letter: None,
    };
    let changed = Event::Referenced {
        seq: 9,
        topic_seq: 300,
        message: ReferencedMessage {
            message,
            is_changed: true,
        },
    };
    let forwarding = Event::Forwarding {
        to: Some("q".into()),
        dead_letters_to: None,
    };
    let applied = Event::TransactionsApplied {
        floor: 7,
        offsets: vec![8, 300],
    };
    let auto_delete = Event::AutoDelete {
        after: Duration::from_secs(300),
    };
    let reference = [
        &[23, 9, 0xac, 2][..],
        &[0, 0, 0, 0, 0, 0, 1, 2, 0, 1],
        &[3, 5, 2, 0, 0],
        &[1, 1, b's', 1, 0, 0],
        &[1, 1, b'a', 1, b'b'],
    ];
    for (event, expected) in [
        (changed, reference.concat()),
        (forwarding, vec![24, 1, 1, b'q', 0]),
        (applied, vec![25, 7, 2, 8, 0xac, 2]),
        (auto_delete, vec![26, 0xe0, 0xa7, 0x12]),
    ] {
        let mut out = Vec::new();
        write(&event, &mut out);
        assert_eq!(out, expected);
        assert_eq!(read(&out.into()), Ok(event));
    }
}

// proves A3
#[test]
fn a_decision_has_these_bytes_and_is_read_as_it_was_written() {
    let token = LockToken { seq: 9, number: 5 };
    let content = Content {
        body: "{}".into(),
        ..Content::default()
    };
    let new = NewMessage {
        content,
        scheduled_ms: Some(3),
        time_to_live_ms: None,
    };
    let parts = vec![DecisionPart {
        hub: "h".into(),
        steps: vec![
            TransactionStep::Send(new),
            TransactionStep::Complete { token },
            TransactionStep::Abandon {
                token,
                properties: None,
            },
            TransactionStep::Defer {
                token,
                properties: Some(Vec::new()),
            },
            TransactionStep::DeadLetter {
                token,
                properties: None,
                reason: "r".into(),
                description: "d".into(),
            },
        ],
    }];
    let expected = [
        &[1, 1, b'h', 5][..],
        &[0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 2, b'{', b'}'],
        &[1, 9, 5],
        &[2, 9, 5, 0],
        &[3, 9, 5, 1, 0],
        &[4, 9, 5, 0, 1, b'r', 1, b'd'],
    ];
    let mut out = Vec::new();
    write_decision(&parts, &mut out);
    assert_eq!(out, expected.concat());
    assert_eq!(read_decision(&out.clone().into()), Ok(parts));
    for end in 0..out.len() {
        assert!(read_decision(&out[..end].to_vec().into()).is_err());
    }
}
