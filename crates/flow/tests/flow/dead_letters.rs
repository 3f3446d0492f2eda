//! Dead letters on a log: found, replayed and purged. proves P5

use std::sync::Arc;

use crate::common::{TokioClock, append, number, partition, paused};
use highwater_flow::{
    DeadLetterFilter, DeadLetterPartition, Delivery, Event, Failure, MemoryPositions, Options,
    PartitionSource, ReplayOutcome, Sink, Stage, run,
};
use highwater_log::Offset;
use highwater_log::batch::NewRecord;

/// A handler refused every event from 3 on, with its number in the reason.
async fn refused(count: usize) -> DeadLetterPartition {
    let (source, dead) = (partition().await, partition().await);
    append(&source, &vec![Some(7); count]).await;
    let letters = DeadLetterPartition(dead);
    let handled = PartitionSource::new(source, Offset(0))
        .until(Offset(count as i64))
        .handle(
            Options::default(),
            async |delivery: Delivery<Event>| match number(&delivery.value) {
                0..3 => Ok(()),
                n => Err(Failure::permanent(format!("Nonsense {n}"))),
            },
        );
    let positions = Arc::new(MemoryPositions::default());
    let sink = Sink::new(positions, Arc::new(letters.clone()), TokioClock::start());
    run(handled, sink, std::future::pending()).await.unwrap();
    letters
}

async fn numbers(letters: &DeadLetterPartition, filter: &DeadLetterFilter) -> Vec<usize> {
    let found = letters.find(filter, Offset(0), 100).await.unwrap();
    let mut numbers: Vec<_> = found
        .letters
        .iter()
        .map(|stored| number(&stored.letter.event))
        .collect();
    numbers.sort();
    numbers
}

#[test]
fn letters_are_found_by_what_is_known_of_them() {
    paused(async {
        let letters = refused(8).await;
        let all = DeadLetterFilter::default();
        assert_eq!(numbers(&letters, &all).await, [3, 4, 5, 6, 7]);
        let by = |reason: &str| DeadLetterFilter {
            reason: Some(reason.into()),
            ..DeadLetterFilter::default()
        };
        assert_eq!(numbers(&letters, &by("nonsense 5")).await, [5]);
        assert_eq!(numbers(&letters, &by("sense")).await, [3, 4, 5, 6, 7]);
        let ids = ["tolls/0@6".parse().unwrap()].into();
        assert_eq!(
            numbers(
                &letters,
                &DeadLetterFilter {
                    ids,
                    ..DeadLetterFilter::default()
                }
            )
            .await,
            [6]
        );
        let key = Some(vec![8]);
        assert_eq!(
            numbers(
                &letters,
                &DeadLetterFilter {
                    key,
                    ..DeadLetterFilter::default()
                }
            )
            .await,
            [0; 0]
        );
        let until_ms = Some(0);
        assert_eq!(
            numbers(
                &letters,
                &DeadLetterFilter {
                    until_ms,
                    ..DeadLetterFilter::default()
                }
            )
            .await,
            [0; 0]
        );

        let first = letters.find(&all, Offset(0), 2).await.unwrap();
        assert!(first.more && first.letters.len() == 2);
        let after = Offset(first.letters[1].offset.0 + 1);
        assert_eq!(
            letters.find(&all, after, 100).await.unwrap().letters.len(),
            3
        );
    });
}

#[test]
fn a_letter_holds_the_event_as_it_was_and_what_became_of_it() {
    paused(async {
        let letters = refused(4).await;
        let found = letters
            .find(&DeadLetterFilter::default(), Offset(0), 9)
            .await
            .unwrap();
        let letter = &found.letters[0].letter;
        let event = &letter.event;
        assert_eq!(event.id().to_string(), "tolls/0@3");
        assert_eq!(
            (event.key(), event.value()),
            (Some(&[7][..]), Some(&b"3"[..]))
        );
        let headers: Vec<_> = event.headers().collect();
        assert_eq!(headers, [("kind", Some(&b"toll"[..]))]);
        assert_eq!((letter.attempts.len(), letter.replays), (1, 0));
        assert_eq!(letter.attempts[0].reason, "Nonsense 3");
    });
}

#[test]
fn an_event_without_a_value_and_with_headers_like_ours_comes_back_as_it_was() {
    paused(async {
        let (source, dead) = (partition().await, partition().await);
        let headers: &[(&str, Option<&[u8]>)] =
            &[("highwater-letter", None), ("highwater-key", Some(b"x"))];
        let (key, value) = (None, None);
        source
            .append_records(&[NewRecord {
                key,
                value,
                headers,
            }])
            .await
            .unwrap();
        let refused = PartitionSource::new(source, Offset(0))
            .until(Offset(1))
            .try_map(|_| Err::<(), _>("no"));
        let letters = DeadLetterPartition(dead);
        let sink = Sink::new(
            Arc::new(MemoryPositions::default()),
            Arc::new(letters.clone()),
            TokioClock::start(),
        );
        run(refused, sink, std::future::pending()).await.unwrap();
        let found = letters
            .find(&DeadLetterFilter::default(), Offset(0), 9)
            .await
            .unwrap();
        let event = &found.letters[0].letter.event;
        assert_eq!((event.key(), event.value()), (None, None));
        assert_eq!(event.headers().collect::<Vec<_>>(), headers);
    });
}

#[test]
fn a_replay_ends_a_letter_or_counts() {
    paused(async {
        let (letters, clock) = (refused(5).await, TokioClock::start());
        let found = letters
            .find(&DeadLetterFilter::default(), Offset(0), 9)
            .await
            .unwrap();
        for stored in found.letters {
            let replayed = letters.replay(stored, &*clock, async |delivery| {
                assert_eq!(delivery.attempt, 2);
                match number(&delivery.event) {
                    3 => Ok(()),
                    _ => Err(Failure::transient("still not")),
                }
            });
            replayed.await.unwrap();
        }
        let found = letters
            .find(&DeadLetterFilter::default(), Offset(0), 9)
            .await
            .unwrap();
        assert_eq!(found.letters.len(), 1);
        let letter = &found.letters[0].letter;
        let reasons: Vec<_> = letter
            .attempts
            .iter()
            .map(|attempt| attempt.reason.as_str())
            .collect();
        assert_eq!(
            (letter.replays, reasons),
            (1, vec!["Nonsense 4", "still not"])
        );
        let replays_max = Some(0);
        let fresh = DeadLetterFilter {
            replays_max,
            ..DeadLetterFilter::default()
        };
        assert_eq!(numbers(&letters, &fresh).await, [0; 0], "a loop ends");
        let again = letters
            .replay(found.letters[0].clone(), &*clock, async |_| Ok(()))
            .await;
        assert_eq!(
            (again, letters.count().await),
            (Ok(ReplayOutcome::Handled), Ok(0))
        );
    });
}

#[test]
fn a_purged_letter_is_gone() {
    paused(async {
        let letters = refused(5).await;
        letters.remove(&"tolls/0@3".parse().unwrap()).await.unwrap();
        assert_eq!(numbers(&letters, &DeadLetterFilter::default()).await, [4]);
    });
}
