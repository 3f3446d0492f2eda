//! Random handlers over random streams, with crashes: every event is handled, dead-lettered or still
//! ahead of the checkpoint, order per key holds, and nothing is delivered while a circuit is open.
//! proves C2, C3, P1, P2, P4

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Letters, Slow, TokioClock, append, number, partition, paused};
use highwater_flow::CheckpointInterval;
use highwater_flow::circuit::{CircuitState, Rule};
use highwater_flow::{
    Breaker, DeadLetter, DeadLetterSink, Delivery, Event, Failure, Options, Order, PartitionSource,
    PositionStore, RunError, RunSummary, Sink, Stage, run,
};
use highwater_log::{BoxFuture, Offset, Partition};
use highwater_retry::{Backoff, RetryPolicy};
use proptest::prelude::*;

/// The handler's result for one event, by attempt.
#[derive(Clone, Debug)]
enum Behaviour {
    Succeed,
    FailTimes(u32),
    FailAlways,
    Refuse,
    Panic,
    Slow(u64),
    Hang,
}

#[derive(Clone, Debug)]
struct World {
    events: Vec<(Option<u8>, Behaviour)>,
    order: Order,
    concurrency: usize,
    waiting_max: usize,
    window_max: usize,
    checkpoint_interval: CheckpointInterval,
    /// In batches of this size instead.
    batches: Option<usize>,
    /// Milliseconds after which each run is aborted; the last one runs to the end.
    crashes: Vec<u64>,
    store_ms: u64,
    /// `failures_max` and `poison_max` of a circuit.
    circuit: Option<(u32, u32)>,
}

#[derive(Default)]
struct Ledger {
    circuit: Option<Breaker>,
    /// Events in progress, by number, with their keys.
    running: BTreeMap<usize, Option<u8>>,
    most_running: usize,
    /// Finished, by handling or as a dead letter.
    settled: BTreeSet<usize>,
    /// Handled in this run, in order.
    handled: Vec<usize>,
    attempts: BTreeMap<usize, u32>,
    violations: Vec<String>,
}

type Shared = Arc<Mutex<Ledger>>;

/// Removes the event from `running`, however its handler ends.
struct Running(Shared, usize);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(mut ledger) = self.0.lock() {
            ledger.running.remove(&self.1);
        }
    }
}

fn begin_call(ledger: &Shared, world: &World, delivery: &Delivery<Event>) -> Running {
    let at = number(&delivery.value);
    let key = world.events[at].0;
    let mut entered = ledger.lock().unwrap();
    if let Some(CircuitState::Open { .. }) = entered.circuit.as_ref().map(Breaker::state) {
        let told = format!("{at} was delivered while the circuit was open");
        entered.violations.push(told);
    }
    let same_key = key.is_some() && entered.running.values().any(|other| *other == key);
    if same_key && world.order == Order::Key && world.batches.is_none() {
        let told = format!("{at} ran beside another of its key");
        entered.violations.push(told);
    }
    let attempt = entered.attempts.entry(at).or_default();
    *attempt += 1;
    if world.batches.is_none() && *attempt != delivery.attempt {
        let told = format!("{at} says attempt {} at its {attempt}.", delivery.attempt);
        entered.violations.push(told);
    }
    if delivery.event.id().to_string() != format!("tolls/0@{at}") {
        entered.violations.push(format!("{at} has a wrong id"));
    }
    entered.running.insert(at, key);
    entered.most_running = entered.most_running.max(entered.running.len());
    drop(entered);
    Running(Arc::clone(ledger), at)
}

async fn behave(behaviour: &Behaviour, attempt: u32) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    match behaviour {
        Behaviour::Succeed => Ok(()),
        Behaviour::FailTimes(times) if attempt > *times => Ok(()),
        Behaviour::FailTimes(_) | Behaviour::FailAlways => Err(Failure::transient("busy")),
        Behaviour::Refuse => Err(Failure::permanent("nonsense")),
        Behaviour::Panic => panic!("as it was told to"),
        Behaviour::Slow(ms) => {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            Ok(())
        }
        Behaviour::Hang => std::future::pending().await,
    }
}

struct Noted(Shared, Letters);

impl DeadLetterSink for Noted {
    fn put(&self, letter: &DeadLetter) -> BoxFuture<Result<(), String>> {
        let (ledger, at) = (Arc::clone(&self.0), number(&letter.event));
        let put = self.1.put(letter);
        Box::pin(async move {
            // Meanwhile its position must not be passed.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let put = put.await;
            if put.is_ok() {
                ledger.lock().unwrap().settled.insert(at);
            }
            put
        })
    }
}

/// One run of the pipeline; `None` if it was aborted.
async fn live(
    world: &Arc<World>,
    ledger: &Shared,
    partition: &Arc<dyn Partition>,
    positions: &Arc<Slow>,
    crash_ms: Option<u64>,
) -> Option<Result<RunSummary, RunError>> {
    let start = positions.last(partition.topic_partition()).await.unwrap();
    let end = Offset(world.events.len() as i64);
    let source = PartitionSource::new(Arc::clone(partition), start.unwrap_or_default())
        .until(end)
        .fetch_bytes_max(200);
    let letters = Letters {
        refusals: Mutex::new(2),
        ..Letters::default()
    };
    let dead_letters = Arc::new(Noted(Arc::clone(ledger), letters));
    let clock = TokioClock::start();
    let circuit = world.circuit.map(|(failures_max, poison_max)| {
        let rule = Rule {
            window: Duration::from_secs(1),
            failures_max,
            open_for: Some(Duration::from_millis(300)),
            ..Rule::default()
        };
        Breaker::with_poison_max(rule, poison_max, clock.clone())
    });
    ledger.lock().unwrap().circuit = circuit.clone();
    let sink = Sink {
        checkpoint_interval: world.checkpoint_interval,
        window_max: world.window_max,
        dead_letters_max: 2,
        ..Sink::new(Arc::clone(positions) as _, dead_letters, clock)
    };
    let options = Options {
        concurrency: world.concurrency,
        order: world.order,
        retry: RetryPolicy {
            backoff: Backoff::Fixed(Duration::from_millis(10)),
            tries_max: Some(4),
            ..RetryPolicy::default()
        },
        timeout: Some(Duration::from_millis(500)),
        waiting_max: world.waiting_max,
        circuit,
        seed: 1,
    };
    let (seen, script) = (Arc::clone(ledger), Arc::clone(world));
    let noted = Arc::clone(ledger);
    let life = async {
        match world.batches {
            None => {
                let handled = source.handle(options, move |delivery| {
                    let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                    async move {
                        let _running = begin_call(&seen, &script, &delivery);
                        let at = number(&delivery.value);
                        behave(&script.events[at].1, delivery.attempt).await?;
                        let mut ledger = seen.lock().unwrap();
                        ledger.settled.insert(at);
                        if script.order == Order::Key {
                            ledger.handled.push(at);
                        }
                        Ok(at)
                    }
                });
                let ordered = world.order == Order::Output;
                let told = handled.map(move |at| {
                    if ordered {
                        noted.lock().unwrap().handled.push(at);
                    }
                });
                run(told, sink, std::future::pending()).await
            }
            Some(count_max) => {
                let handled = source.handle_batches(count_max, options, move |deliveries| {
                    let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                    async move {
                        let running = deliveries.iter().map(|one| begin_call(&seen, &script, one));
                        let running: Vec<_> = running.collect();
                        for delivery in &deliveries {
                            let at = number(&delivery.value);
                            behave(&script.events[at].1, delivery.attempt).await?;
                        }
                        let numbers = running.iter().map(|running| running.1);
                        let numbers: Vec<_> = numbers.collect();
                        seen.lock().unwrap().settled.extend(numbers);
                        Ok(())
                    }
                });
                run(handled, sink, std::future::pending()).await
            }
        }
    };
    match crash_ms {
        Some(ms) => tokio::time::timeout(Duration::from_millis(ms), life)
            .await
            .ok(),
        None => Some(life.await),
    }
}

fn in_order(world: &World, handled: &[usize]) -> bool {
    match world.order {
        Order::None => true,
        Order::Output => handled.is_sorted(),
        Order::Key => (0..=u8::MAX).all(|key| {
            let of_key = |at: &&usize| world.events[**at].0 == Some(key);
            handled.iter().filter(of_key).is_sorted()
        }),
    }
}

async fn check(world: World) {
    let world = Arc::new(world);
    let partition = partition().await;
    let keys: Vec<_> = world.events.iter().map(|event| event.0).collect();
    append(&partition, &keys).await;
    let ledger = Shared::default();
    let checked = Arc::clone(&ledger);
    let takes = Duration::from_millis(world.store_ms);
    let positions = Slow::new(takes, move |next| {
        let mut ledger = checked.lock().unwrap();
        if let Some(lost) = (0..next.0 as usize).find(|at| !ledger.settled.contains(at)) {
            let told = format!("checkpoint {next} passes {lost}");
            ledger.violations.push(told);
        }
    });
    let fails = true;
    let positions = Arc::new(Slow { fails, ..positions });
    let lives = world.crashes.iter().copied().map(Some).chain([None]);
    for crash_ms in lives {
        let ended = live(&world, &ledger, &partition, &positions, crash_ms).await;
        // Tasks of an aborted run end with it.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut ledger = ledger.lock().unwrap();
        assert_eq!(ledger.violations, [""; 0]);
        assert!(ledger.running.is_empty(), "{:?}", ledger.running);
        assert!(in_order(&world, &ledger.handled), "{:?}", ledger.handled);
        assert!(ledger.most_running <= world.batches.unwrap_or(world.concurrency));
        ledger.handled.clear();
        ledger.attempts.clear();
        if let Some(ended) = ended {
            let next = ended.unwrap().next;
            assert_eq!(next, Offset(world.events.len() as i64));
            let stored = positions.stored.lock().unwrap().last().copied();
            assert_eq!(stored.unwrap_or_default(), next);
            assert_eq!(ledger.settled.len(), world.events.len());
        }
    }
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        10 => Just(Behaviour::Succeed),
        3 => (1..4u32).prop_map(Behaviour::FailTimes),
        1 => Just(Behaviour::FailAlways),
        1 => Just(Behaviour::Refuse),
        1 => Just(Behaviour::Panic),
        2 => (1..400u64).prop_map(Behaviour::Slow),
        1 => Just(Behaviour::Hang),
    ]
}

fn worlds() -> impl Strategy<Value = World> {
    let event = (prop::option::weighted(0.9, 0..5u8), behaviours());
    let order = prop_oneof![Just(Order::None), Just(Order::Output), Just(Order::Key)];
    let numbers = (1..8usize, 1..6usize, 1..40usize, 1..20u64, 1..300u64);
    let batches = prop::option::weighted(0.25, 1..6usize);
    (
        prop::collection::vec(event, 0..60),
        order,
        numbers,
        batches,
        prop::collection::vec(1..600u64, 0..3),
        0..200u64,
        prop::option::of((0..20u32, 0..4u32)),
    )
        .prop_map(
            |(events, order, numbers, batches, crashes, store_ms, circuit)| {
                let (concurrency, waiting_max, window_max, every, period_ms) = numbers;
                World {
                    events,
                    order,
                    concurrency,
                    waiting_max,
                    window_max,
                    checkpoint_interval: CheckpointInterval {
                        events: every,
                        period: Duration::from_millis(period_ms),
                    },
                    batches,
                    crashes,
                    store_ms,
                    circuit,
                }
            },
        )
}

proptest! {
    #[test]
    fn every_event_is_handled_dead_lettered_or_ahead_of_the_checkpoint(world in worlds()) {
        keep_quiet();
        paused(check(world));
    }
}

/// Keeps intended panics of handlers out of the test's output.
fn keep_quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let panic_text = panic.payload().downcast_ref::<&str>();
            if panic_text != Some(&"as it was told to") {
                told(panic);
            }
        }));
    });
}
