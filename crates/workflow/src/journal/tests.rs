//! Reading undoes writing, and nothing that is read is believed.

use std::sync::Arc;

use ::bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::definition::{Builder, StepBuilder};
use crate::machine::{Answer, AttemptSpan, FailureKind, Instance};

const STEPS: u16 = 3;

fn versions() -> (Versions, Version) {
    let mut builder = Builder::new("w");
    for number in 0..STEPS {
        let name = format!("s{number}");
        builder = builder.step(StepBuilder::function(&name, "f").undo_function("g"));
    }
    let versions = Versions::default();
    let (version, _) = versions.add(builder.build().unwrap());
    (versions, version)
}

fn events() -> impl Strategy<Value = Event> {
    let attempt = (0..STEPS, any::<bool>(), 0..1_000_000i64, 0..1000i64);
    let attempt = attempt.prop_map(|(step, undo, begun_ms, lasted)| AttemptSpan {
        step,
        undo,
        begun_ms,
        at_ms: begun_ms + lasted,
    });
    let answer = (100..600u16, prop::collection::vec(any::<u8>(), 0..50));
    let kind = prop_oneof![
        any::<i64>().prop_map(|due_ms| FailureKind::Retry { due_ms }),
        Just(FailureKind::Final),
        Just(FailureKind::Refused),
    ];
    prop_oneof![
        (attempt.clone(), answer).prop_map(|(attempt, (status, body))| {
            Event::Succeeded {
                attempt,
                answer: Answer {
                    status,
                    body: Bytes::from(body),
                },
            }
        }),
        (attempt, kind, any::<bool>(), ".*").prop_map(|(attempt, kind, in_doubt, reason)| {
            Event::Failed {
                attempt,
                kind,
                in_doubt,
                reason,
            }
        }),
        any::<i64>().prop_map(|at_ms| Event::DeadlinePassed { at_ms }),
        (0..2_000_000i64, ".*").prop_map(|(at_ms, note)| Event::Cancelled { at_ms, note }),
        (0..2_000_000i64, any::<u64>())
            .prop_map(|(at_ms, doubtful)| Event::UndoStarted { at_ms, doubtful }),
        (0..2_000_000i64, ".*").prop_map(|(at_ms, note)| Event::Retried { at_ms, note }),
        (0..STEPS, 0..2_000_000i64, ".*").prop_map(|(step, at_ms, note)| Event::Skipped {
            step,
            at_ms,
            note
        }),
        (0..2_000_000i64, ".*").prop_map(|(at_ms, note)| Event::Resolved { at_ms, note }),
        any::<i64>().prop_map(|at_ms| Event::Notified { at_ms }),
    ]
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn reading_undoes_writing(
        events in prop::collection::vec(events(), 0..40), input: Vec<u8>, at_ms: i64,
    ) {
        let (versions, version) = versions();
        let definition = versions.get(version).unwrap();
        let bytes = written(|out| write_started(out, version, at_ms, &input));
        let started = Record::Started { version, at_ms, input: Bytes::from(input.clone()) };
        prop_assert_eq!(read("i", &bytes, &versions), Ok(started));

        let input = Bytes::from(input);
        let mut instance = Instance::started(Arc::from("i"), definition, version, input, 0);
        for event in events {
            let bytes = written(|out| write_event(out, &event));
            prop_assert_eq!(read("i", &bytes, &versions), Ok(Record::Event(event.clone())));
            instance.apply(event);
            let bytes = written(|out| write_snapshot(out, &instance));
            let snapshot = Record::Snapshot(Box::new(instance.clone()));
            prop_assert_eq!(read("i", &bytes, &versions), Ok(snapshot));
            // Cut anywhere, it is refused.
            for length in 0..bytes.len() {
                prop_assert!(read("i", &bytes[..length], &versions).is_err());
            }
        }
    }

    #[test]
    fn bytes_from_anywhere_are_refused_or_read(bytes: Vec<u8>, kind in 0..8u8) {
        let (versions, version) = versions();
        let _ = read("i", &bytes, &versions);
        let headed: Vec<u8> = [kind].into_iter().chain(bytes.clone()).collect();
        let _ = read("i", &headed, &versions);
        let known: Vec<u8> = [3].into_iter().chain(version.0.to_be_bytes()).chain(bytes).collect();
        let _ = read("i", &known, &versions);
    }
}
