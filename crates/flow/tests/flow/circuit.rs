//! Poison or outage, and the effect of an open circuit on a pipeline. proves P1, P4

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Letters, TokioClock, append, number, partition, paused};
use bytes::Bytes;
use highwater_env::Clock;
use highwater_flow::circuit::{CircuitEvent, CircuitState, Rule};
use highwater_flow::{
    Breaker, Delivery, Event, Failure, MemoryPositions, Options, Order, PartitionSource,
    RunSummary, Sink, Stage, run,
};
use highwater_log::{EnqueueTime, Offset};
use tokio::time::{Instant, sleep, timeout};

const EVENTS: usize = 200;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The events a handler was called with, in order.
type Diary = Arc<Mutex<Vec<usize>>>;

struct Ran {
    summary: RunSummary,
    handled: Vec<usize>,
    dead: Vec<usize>,
    circuit: Breaker,
}

/// Runs 200 events through a handler that fails an event while `fails` returns true.
async fn ran(
    options: Options,
    fails: impl Fn(usize, Duration) -> bool + Send + Sync + 'static,
) -> Ran {
    let source = partition().await;
    append(&source, &[None; EVENTS]).await;
    let clock = TokioClock::start();
    let circuit = Breaker::alone(Rule::default(), clock.clone());
    let options = Options {
        circuit: Some(circuit.clone()),
        ..options
    };
    let (diary, letters) = (Diary::default(), Arc::new(Letters::default()));
    let (fails, noted) = (Arc::new(fails), Arc::clone(&diary));
    let (time, gate) = (clock.clone(), circuit.clone());
    let handled = PartitionSource::new(source, Offset(0))
        .until(Offset(EVENTS as i64))
        .handle(options, move |delivery: Delivery<Event>| {
            let at = number(&delivery.value);
            let (fails, noted) = (Arc::clone(&fails), Arc::clone(&noted));
            let (time, gate) = (time.clone(), gate.clone());
            async move {
                assert!(!matches!(gate.state(), CircuitState::Open { .. }), "{at}");
                sleep(Duration::from_millis(10)).await;
                if fails(at, time.elapsed()) {
                    return Err(Failure::transient("busy"));
                }
                noted.lock().unwrap().push(at);
                Ok(())
            }
        });
    let sink = Sink::new(Arc::new(MemoryPositions::default()), letters.clone(), clock);
    let summary = run(handled, sink, pending()).await.unwrap();
    let dead = letters
        .kept
        .lock()
        .unwrap()
        .iter()
        .map(|letter| number(&letter.event))
        .collect();
    let handled = diary.lock().unwrap().clone();
    Ran {
        summary,
        handled,
        dead,
        circuit,
    }
}

fn strict() -> Options {
    Options {
        concurrency: 1,
        ..Options::default()
    }
}

#[test]
fn one_bad_event_is_set_aside_and_the_stream_goes_on() {
    paused(async {
        for options in [strict(), Options::default()] {
            let ran = ran(options, |at, _| at == 7).await;
            assert_eq!((ran.summary.handled, ran.dead), (199, vec![7]));
            assert_eq!(ran.circuit.state(), CircuitState::Closed);
        }
    });
}

#[test]
fn an_outage_opens_the_circuit_and_sets_nothing_aside() {
    // Eighty rounds of three probes are fifteen for each of the sixteen held events, if they take turns.
    paused(async {
        let started = Instant::now();
        let outage = seconds(2400);
        let ran = ran(Options::default(), move |at, now| at >= 50 && now < outage).await;
        assert_eq!((ran.summary.handled, ran.dead.len()), (200, 0));
        let ended = started.elapsed();
        assert!(ended > outage && ended < outage + seconds(60), "{ended:?}");
    });
}

#[test]
fn a_bad_event_among_those_held_costs_the_others_one_round() {
    paused(async {
        let started = Instant::now();
        let ran = ran(Options::default(), |at, now| {
            at == 55 || at >= 50 && now < seconds(120)
        })
        .await;
        assert_eq!((ran.summary.handled, ran.dead), (199, vec![55]));
        // The round in progress when the outage ends, the one that the bad event spoils, and its own retries.
        let ended = started.elapsed();
        assert!(ended < seconds(120 + 2 * 31 + 60), "{ended:?}");
    });
}

#[test]
fn an_outage_of_a_stream_in_strict_order_costs_three_events_and_keeps_the_order() {
    paused(async {
        // Eight tries take 25 s, so counting alone would not detect the outage.
        let ran = ran(strict(), |at, now| at >= 50 && now < seconds(600)).await;
        assert_eq!(ran.dead, [50, 51, 52]);
        assert_eq!(ran.summary.handled, 197);
        assert!(ran.handled.is_sorted());
    });
}

#[test]
fn a_bad_event_at_the_head_does_not_keep_the_circuit_open_for_ever() {
    paused(async {
        // The outage ends, but the held event that probes is itself bad.
        let ran = ran(strict(), |at, now| {
            at == 53 || at >= 50 && now < seconds(120)
        })
        .await;
        assert_eq!(ran.dead, [50, 51, 52, 53]);
        assert_eq!(
            (ran.summary.handled, ran.circuit.state()),
            (196, CircuitState::Closed)
        );
    });
}

#[test]
fn a_stop_does_not_wait_for_an_open_circuit_or_a_delay_and_nothing_is_lost() {
    paused(async {
        let source = partition().await;
        append(&source, &[Some(1), Some(2), Some(2), Some(1), Some(3)]).await;
        let clock = TokioClock::start();
        for order in [Order::None, Order::Output, Order::Key] {
            let circuit = Breaker::alone(Rule::default(), clock.clone());
            let options = Options {
                order,
                circuit: Some(circuit.clone()),
                ..Options::default()
            };
            let opened = circuit.clone();
            let now = EnqueueTime(clock.elapsed().as_millis() as i64);
            let handled = PartitionSource::new(source.clone(), Offset(0)).handle(
                options,
                move |delivery: Delivery<Event>| {
                    let at = number(&delivery.value);
                    if at == 1 {
                        let why = "maintenance".into();
                        opened.apply(now, &CircuitEvent::Opened { why });
                    }
                    async move {
                        match at {
                            0 => Ok(()),
                            _ => Err(Failure::transient("busy")),
                        }
                    }
                },
            );
            let sink = Sink::new(
                Arc::new(MemoryPositions::default()),
                Arc::new(Letters::default()),
                clock.clone(),
            );
            let ended = timeout(seconds(61), run(handled, sink, sleep(seconds(60)))).await;
            let summary = ended.expect("it stops at once").unwrap();
            assert_eq!((summary.dead, summary.next), (0, Offset(1)), "{order:?}");
        }
    });
}

#[test]
fn handlers_that_share_a_circuit_stop_together() {
    paused(async {
        let clock = TokioClock::start();
        let circuit = Breaker::alone(Rule::default(), clock.clone());
        let calls = Arc::new(AtomicU32::new(0));
        let reader = |failing: bool| {
            let (circuit, clock, calls) = (circuit.clone(), clock.clone(), Arc::clone(&calls));
            async move {
                let source = partition().await;
                append(&source, &[None; EVENTS]).await;
                let options = Options {
                    circuit: Some(circuit),
                    ..Options::default()
                };
                let handled = PartitionSource::new(source, Offset(0)).handle(options, move |_| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    async move {
                        sleep(seconds(1)).await;
                        match failing {
                            true => Err(Failure::transient("busy")),
                            false => Ok(()),
                        }
                    }
                });
                let sink = Sink::new(
                    Arc::new(MemoryPositions::default()),
                    Arc::new(Letters::default()),
                    clock,
                );
                run(handled, sink, pending()).await
            }
        };
        let running = [tokio::spawn(reader(true)), tokio::spawn(reader(false))];
        while !matches!(circuit.state(), CircuitState::Open { .. }) {
            sleep(Duration::from_millis(100)).await;
        }
        sleep(seconds(2)).await;
        let before = calls.load(Ordering::Relaxed);
        sleep(seconds(20)).await;
        assert_eq!(calls.load(Ordering::Relaxed), before, "nobody delivers");
        running.iter().for_each(|reader| reader.abort());
    });
}

// proves P2
#[test]
fn order_goes_by_what_key_by_says() {
    paused(async {
        let source = partition().await;
        append(&source, &[None; 60]).await;
        let diary = Diary::default();
        let noted = Arc::clone(&diary);
        let options = Options {
            order: Order::Key,
            ..Options::default()
        };
        let handled = PartitionSource::new(source, Offset(0))
            .until(Offset(60))
            .key_by(|event| Some(Bytes::from(vec![number(event) as u8 % 3])))
            .handle(options, move |delivery: Delivery<Event>| {
                let (at, noted) = (number(&delivery.value), Arc::clone(&noted));
                async move {
                    sleep(Duration::from_millis(60 - at as u64)).await;
                    noted.lock().unwrap().push(at);
                    Ok::<_, Failure>(())
                }
            });
        let sink = Sink::new(
            Arc::new(MemoryPositions::default()),
            Arc::new(Letters::default()),
            TokioClock::start(),
        );
        run(handled, sink, pending()).await.unwrap();
        let diary = diary.lock().unwrap();
        assert!(!diary.is_sorted(), "keys do not wait for each other");
        for key in 0..3 {
            assert!(
                diary.iter().filter(|at| **at % 3 == key).is_sorted(),
                "{diary:?}"
            );
        }
    });
}

// proves C1
#[test]
fn the_shares_of_a_partition_are_disjoint_and_whole_and_keep_keys_together() {
    paused(async {
        let source = partition().await;
        let keys: Vec<_> = (0..90)
            .map(|n: u8| (!n.is_multiple_of(10)).then_some(n % 7))
            .collect();
        append(&source, &keys).await;
        let mut owners = vec![Vec::new(); keys.len()];
        for share in 0..3u32 {
            let seen = Diary::default();
            let noted = Arc::clone(&seen);
            let read = PartitionSource::new(source.clone(), Offset(0))
                .until(Offset(90))
                .share(share, 3)
                .map(move |event| noted.lock().unwrap().push(number(&event)));
            let sink = Sink::new(
                Arc::new(MemoryPositions::default()),
                Arc::new(Letters::default()),
                TokioClock::start(),
            );
            let summary = run(read, sink, pending()).await.unwrap();
            assert_eq!(summary.next, Offset(90), "what is another's is passed");
            seen.lock()
                .unwrap()
                .iter()
                .for_each(|at| owners[*at].push(share));
        }
        assert!(owners.iter().all(|owners| owners.len() == 1), "{owners:?}");
        for key in 0..7 {
            let of_key = (0..90).filter(|at| keys[*at] == Some(key));
            let mut of_key: Vec<_> = of_key.map(|at| owners[at][0]).collect();
            of_key.dedup();
            assert_eq!(of_key.len(), 1, "key {key}");
        }
    });
}
