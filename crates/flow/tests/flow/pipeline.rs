//! The rules of a pipeline, one test each.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Letters, Slow, TokioClock, append, number, partition, paused};
use highwater_flow::CheckpointInterval;
use highwater_flow::{
    DeadLetterPartition, Delivery, Event, Failure, MemoryPositions, Options, Order,
    PartitionSource, PositionStore, RunError, Sink, SourceError, Stage, run,
};
use highwater_log::batch::{Batch, BatchBuilder, BatchOptions, Batches, Decompressor, NewRecord};
use highwater_log::{Isolation, Offset, Partition, Producer, TransactionMarker};
use highwater_retry::{Backoff, RetryPolicy};
use tokio::time::{Instant, sleep};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn sink(letters: Arc<Letters>) -> Sink {
    Sink::new(
        Arc::new(MemoryPositions::default()),
        letters,
        TokioClock::start(),
    )
}

async fn filled(count: usize) -> Arc<dyn Partition> {
    let partition = partition().await;
    append(&partition, &vec![Some(1); count]).await;
    partition
}

fn source(partition: &Arc<dyn Partition>) -> PartitionSource {
    let end = partition.bounds().end;
    PartitionSource::new(Arc::clone(partition), Offset(0)).until(end)
}

/// How long 1,000 events of 1 s take, ten at a time, if one of them takes 90 s.
async fn with_one_slow_event(order: Order, batches: bool) -> Duration {
    let partition = filled(1000).await;
    let started = Instant::now();
    let work = async |event: Event| {
        let slow = number(&event) == 100;
        sleep(seconds(if slow { 90 } else { 1 })).await;
    };
    let options = Options {
        concurrency: 10,
        order,
        timeout: None,
        ..Options::default()
    };
    let sink = sink(Arc::default());
    let source = source(&partition);
    let summary = if batches {
        let handler = move |batch: Vec<Delivery<Event>>| async move {
            let mut tasks = tokio::task::JoinSet::new();
            for delivery in batch {
                tasks.spawn(async move { work(delivery.event).await });
            }
            tasks.join_all().await;
            Ok(())
        };
        run(source.handle_batches(10, options, handler), sink, pending()).await
    } else {
        let handler = move |delivery: Delivery<Event>| async move {
            work(delivery.event).await;
            Ok(())
        };
        run(source.handle(options, handler), sink, pending()).await
    };
    assert_eq!(summary.unwrap().handled, 1000);
    started.elapsed()
}

// proves C3
#[test]
fn a_slow_event_costs_its_share_of_the_concurrency_and_no_more() {
    // 1,089 s of work by ten; the slow one is done long before the others.
    let took = paused(with_one_slow_event(Order::None, false));
    assert!((seconds(109)..=seconds(110)).contains(&took), "{took:?}");
}

#[test]
fn in_order_or_in_batches_the_others_wait_for_a_slow_event() {
    let took = paused(with_one_slow_event(Order::Output, false));
    assert!((seconds(180)..=seconds(190)).contains(&took), "{took:?}");
    let took = paused(with_one_slow_event(Order::None, true));
    assert_eq!(took, seconds(99 + 90));
}

#[test]
fn keys_wait_for_their_own_and_not_for_others() {
    paused(async {
        let partition = partition().await;
        let keys: Vec<_> = (0..30).map(|n| Some(n % 3)).collect();
        append(&partition, &keys).await;
        let options = Options {
            concurrency: 3,
            order: Order::Key,
            ..Options::default()
        };
        let done = Arc::new(Mutex::new(Vec::new()));
        let (seen, started) = (Arc::clone(&done), Instant::now());
        let handled = source(&partition).handle(options, move |delivery: Delivery<Event>| {
            let seen = Arc::clone(&seen);
            async move {
                let at = number(&delivery.value);
                sleep(seconds(if at.is_multiple_of(3) { 10 } else { 1 })).await;
                seen.lock().unwrap().push((at, started.elapsed().as_secs()));
                Ok(())
            }
        });
        run(handled, sink(Arc::default()), pending()).await.unwrap();
        for (at, second) in done.lock().unwrap().iter() {
            let takes = if at.is_multiple_of(3) { 10 } else { 1 };
            assert_eq!(*second, (*at as u64 / 3 + 1) * takes, "event {at}");
        }
    });
}

// proves C2
#[test]
fn nothing_waits_for_a_checkpoint_that_is_being_written() {
    paused(async {
        let partition = filled(100).await;
        let handled = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&handled);
        let positions = Arc::new(Slow::new(seconds(1000), |_| {}));
        let checkpoint_interval = CheckpointInterval {
            events: 1,
            period: seconds(1),
        };
        let sink = Sink {
            positions: Arc::clone(&positions) as _,
            checkpoint_interval,
            ..sink(Arc::default())
        };
        let pipeline = source(&partition).map(move |_| count.fetch_add(1, Ordering::Relaxed));
        let running = tokio::spawn(run(pipeline, sink, pending()));
        sleep(seconds(10)).await;
        assert_eq!(handled.load(Ordering::Relaxed), 100);
        assert_eq!(*positions.stored.lock().unwrap(), []);
        assert_eq!(running.await.unwrap().unwrap().next, Offset(100));
        assert_eq!(positions.stored.lock().unwrap().last(), Some(&Offset(100)));
    });
}

#[test]
fn an_event_that_hangs_stops_the_reading_when_the_window_is_full() {
    paused(async {
        let partition = filled(100).await;
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let options = Options {
            concurrency: 4,
            timeout: None,
            ..Options::default()
        };
        let handled = source(&partition).handle(options, move |delivery: Delivery<Event>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                match number(&delivery.value) {
                    0 => pending().await,
                    _ => Ok(()),
                }
            }
        });
        let sink = Sink {
            window_max: 10,
            ..sink(Arc::default())
        };
        let running = run(handled, sink, pending());
        assert!(tokio::time::timeout(seconds(60), running).await.is_err());
        assert_eq!(begun.load(Ordering::Relaxed), 10);
    });
}

// proves C4
#[test]
fn what_cannot_be_decoded_is_a_dead_letter_as_it_came_and_with_the_reason() {
    paused(async {
        let (tolls, dead) = (filled(3).await, partition().await);
        let pipeline = source(&tolls).try_map(|event| match number(&event) {
            1 => Err("a toll must not be 1"),
            toll => Ok(toll),
        });
        let dead_letters = Arc::new(DeadLetterPartition(Arc::clone(&dead)));
        let sink = Sink {
            dead_letters,
            ..sink(Arc::default())
        };
        let summary = run(pipeline, sink, pending()).await.unwrap();
        assert_eq!((summary.handled, summary.dead), (2, 1));
        let fetched = dead
            .read(Offset(0), 1000, Isolation::Committed)
            .await
            .unwrap();
        let batch = Batches::new(&fetched.pieces[0]).next().unwrap().unwrap();
        let mut unpacker = Decompressor::new(1000);
        let mut records = batch.records(&mut unpacker).unwrap();
        let letter = records.next().unwrap().unwrap();
        assert_eq!(
            (letter.key, letter.value),
            (Some(&b"tolls/0@1"[..]), Some(&b"1"[..]))
        );
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let headers =
            (letter.headers).map(|(name, value)| format!("{name}: {}", text(value.unwrap())));
        let expected = [
            "kind: toll",
            "highwater-letter: 1",
            "highwater-enqueued: 0",
            "highwater-key: \u{1}",
            "highwater-attempt: 1 - a toll must not be 1",
        ];
        assert_eq!(headers.collect::<Vec<_>>(), expected);
    });
}

/// A batch with a correct checksum whose second record is cut short.
fn half_a_batch() -> Batch {
    let mut builder = BatchBuilder::new();
    for value in ["0", "1", "2"] {
        let (key, value, headers) = (None, Some(value.as_bytes()), &[][..]);
        builder.push(&NewRecord {
            key,
            value,
            headers,
        });
    }
    let mut bytes = builder
        .build(&BatchOptions::default())
        .unwrap()
        .to_bytes()
        .to_vec();
    // The length of the second record, which is as long as the first.
    let second = 61 + (bytes.len() - 61) / 3;
    bytes[second] = 0x7e;
    // The checksum covers what follows it.
    let crc = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    Batch::parse(bytes.into()).unwrap().0
}

/// Bit by bit, from the definition.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), bit);
    !bytes.iter().fold(!0, byte)
}

#[test]
fn records_that_cannot_be_read_are_one_dead_letter_and_the_source_goes_on() {
    paused(async {
        let partition = partition().await;
        partition.append(half_a_batch()).await.unwrap();
        append(&partition, &[None]).await;
        let letters = Arc::new(Letters::default());
        let summary = run(source(&partition), sink(Arc::clone(&letters)), pending());
        let summary = summary.await.unwrap();
        assert_eq!((summary.handled, summary.dead), (2, 1));
        assert_eq!(summary.next, Offset(4));
        let kept = letters.kept.lock().unwrap();
        assert_eq!(kept[0].event.offset(), Offset(1));
        let reason = &kept[0].attempts[0].reason;
        assert!(
            reason.starts_with("the rest of its batch cannot be read: record 1"),
            "{reason}"
        );
    });
}

#[test]
fn aborted_transactions_are_passed_over() {
    paused(async {
        let partition = partition().await;
        let producer = Producer { id: 7, epoch: 0 };
        for (sequence, marker) in [
            (0, TransactionMarker::Abort),
            (1, TransactionMarker::Commit),
        ] {
            let mut builder = BatchBuilder::new();
            let value = sequence.to_string();
            builder.push(&NewRecord {
                key: None,
                value: Some(value.as_bytes()),
                headers: &[],
            });
            let seal = BatchOptions {
                producer: Some((producer, sequence)),
                transactional: true,
                ..BatchOptions::default()
            };
            partition
                .append(builder.build(&seal).unwrap())
                .await
                .unwrap();
            partition.append_marker(producer, marker).await.unwrap();
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let pipeline =
            source(&partition).map(move |event| noted.lock().unwrap().push(number(&event)));
        let summary = run(pipeline, sink(Arc::default()), pending())
            .await
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [1]);
        assert_eq!(
            summary.next,
            Offset(4),
            "the marker at the end is passed too"
        );
    });
}

#[test]
fn a_source_waits_for_more_until_it_is_told_to_stop() {
    paused(async {
        let partition = filled(3).await;
        let source = PartitionSource::new(Arc::clone(&partition), Offset(1));
        let running = tokio::spawn(run(source, sink(Arc::default()), sleep(seconds(10))));
        sleep(seconds(5)).await;
        append(&partition, &[None; 4]).await;
        let summary = running.await.unwrap().unwrap();
        assert_eq!((summary.handled, summary.next), (6, Offset(7)));
    });
}

#[test]
fn what_is_under_way_at_a_stop_is_finished() {
    paused(async {
        let partition = filled(100).await;
        let options = Options {
            concurrency: 10,
            ..Options::default()
        };
        let handled = source(&partition).handle(options, async |_: Delivery<Event>| {
            sleep(seconds(10)).await;
            Ok::<_, Failure>(())
        });
        let summary = run(handled, sink(Arc::default()), sleep(seconds(15))).await;
        let summary = summary.unwrap();
        assert_eq!((summary.handled, summary.next), (20, Offset(20)));
    });
}

#[test]
fn without_a_place_for_dead_letters_the_run_ends_before_the_event() {
    paused(async {
        let partition = filled(3).await;
        let letters = Letters {
            refusals: Mutex::new(u32::MAX),
            ..Letters::default()
        };
        let positions = MemoryPositions::default();
        let sink = Sink {
            positions: Arc::new(positions.clone()),
            checkpoint_interval: CheckpointInterval {
                events: 1,
                period: seconds(1),
            },
            ..sink(Arc::new(letters))
        };
        let pipeline = source(&partition).try_map(|event| match number(&event) {
            1 => Err("no"),
            _ => Ok(()),
        });
        let error = run(pipeline, sink, pending()).await.unwrap_err();
        let (event, reason) = ("tolls/0@1".into(), "the disk is full".into());
        assert_eq!(error, RunError::DeadLetter { event, reason });
        let stored = positions.last(partition.topic_partition()).await.unwrap();
        assert!(stored.unwrap_or_default() <= Offset(1), "{stored:?}");
    });
}

#[test]
fn a_source_that_cannot_read_says_why_after_what_it_had_is_done() {
    paused(async {
        let partition = filled(3).await;
        partition.trim(Offset(2)).await.unwrap();
        let source = PartitionSource::new(partition, Offset(0));
        let error = run(source, sink(Arc::default()), pending())
            .await
            .unwrap_err();
        assert!(
            matches!(error, RunError::Source(SourceError::Read(_))),
            "{error}"
        );
    });
}

// proves P2, P3
#[test]
fn attempts_are_numbered_and_told_in_the_dead_letter() {
    paused(async {
        let partition = filled(1).await;
        let options = Options {
            retry: RetryPolicy {
                backoff: Backoff::Fixed(seconds(2)),
                jitter_percent: 0,
                tries_max: Some(3),
                ..RetryPolicy::default()
            },
            ..Options::default()
        };
        let handled = source(&partition).handle(options, async |delivery: Delivery<Event>| {
            let told = format!("{} try {}", delivery.event.id(), delivery.attempt);
            Err::<(), _>(Failure::transient(told))
        });
        let letters = Arc::new(Letters::default());
        run(handled, sink(Arc::clone(&letters)), pending())
            .await
            .unwrap();
        let kept = letters.kept.lock().unwrap();
        let attempts: Vec<_> = kept[0].attempts.iter().map(ToString::to_string).collect();
        let expected = [
            "1 0 tolls/0@0 try 1",
            "2 2000 tolls/0@0 try 2",
            "3 4000 tolls/0@0 try 3",
        ];
        assert_eq!(attempts, expected);
    });
}

/// The outcomes of up to three attempts, a second apart, with a timeout of 5 s.
async fn attempts_of<W>(handler: impl Fn(u32) -> W + Send + Sync + 'static) -> Vec<String>
where
    W: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let partition = filled(1).await;
    let options = Options {
        retry: RetryPolicy {
            backoff: Backoff::Fixed(seconds(1)),
            jitter_percent: 0,
            tries_max: Some(3),
            ..RetryPolicy::default()
        },
        timeout: Some(seconds(5)),
        ..Options::default()
    };
    let handled = source(&partition).handle(options, move |delivery: Delivery<Event>| {
        handler(delivery.attempt)
    });
    let letters = Arc::new(Letters::default());
    let ended = run(handled, sink(Arc::clone(&letters)), pending()).await;
    assert_eq!(ended.unwrap().next, Offset(1));
    let kept = letters.kept.lock().unwrap();
    let attempts = kept.iter().flat_map(|letter| &letter.attempts);
    attempts.map(ToString::to_string).collect()
}

// proves P2
#[test]
fn only_what_may_go_better_is_tried_again() {
    paused(async {
        let refused = attempts_of(async |_| Err(Failure::permanent("nonsense"))).await;
        assert_eq!(refused, ["1 0 nonsense"]);
        let busy = attempts_of(async |attempt| match attempt {
            3 => Ok(()),
            _ => Err(Failure::transient("busy")),
        });
        assert_eq!(busy.await, [""; 0]);
    });
}

#[test]
fn a_handler_that_hangs_is_called_again_and_one_that_asks_for_time_gets_it() {
    paused(async {
        let attempts = attempts_of(async |attempt| match attempt {
            1 => pending().await,
            _ => Err(Failure::transient("busy").retry_after(seconds(60))),
        });
        let expected = ["1 0 no answer within 5s", "2 6000 busy", "3 66000 busy"];
        assert_eq!(attempts.await, expected);
    });
}
