//! Circuits stored on a log. proves P4

use std::sync::Arc;
use std::time::Duration;

use crate::common::{TokioClock, paused};
use highwater_env::Clock;
use highwater_flow::circuit::{CircuitEvent, CircuitState, Rule};
use highwater_flow::{Breaker, CircuitTrip, Circuits, OnExhausted};
use highwater_log::{HubName, HubSettings, HubSpec, Log, MemoryLog, Offset, Partition};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct Instance {
    circuits: Circuits,
    breaker: Breaker,
    openings: mpsc::Receiver<CircuitTrip>,
}

impl Instance {
    async fn start(partition: &Arc<dyn Partition>, clock: &Arc<TokioClock>) -> Instance {
        let (circuits, openings) = Circuits::new(Arc::clone(partition), clock.clone());
        let breaker = circuits.circuit("billing", Rule::default(), Breaker::POISON_MAX);
        circuits.load().await.unwrap();
        tokio::spawn(circuits.clone().run(std::future::pending()));
        Instance {
            circuits,
            breaker,
            openings,
        }
    }

    async fn deliver(&self, times: u32, ok: bool) {
        for _ in 0..times {
            let pass = self.breaker.acquire().await;
            match ok {
                true => pass.succeeded(),
                false => pass.failed(),
            }
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.breaker.state(), CircuitState::Open { .. })
    }
}

/// A partition with the shared clock.
async fn board(clock: &Arc<TokioClock>) -> Arc<dyn Partition> {
    let now = clock.clone();
    let log = MemoryLog::new(move || now.unix_millis());
    let (name, settings) = (HubName::new("circuits").unwrap(), HubSettings::default());
    log.create(HubSpec {
        name,
        partitions: 1,
        settings,
    })
    .await
    .unwrap();
    log.partition("circuits", 0).unwrap()
}

#[test]
fn failures_seen_by_several_instances_open_the_circuit_of_all() {
    paused(async {
        let clock = TokioClock::start();
        let board = board(&clock).await;
        let mut a = Instance::start(&board, &clock).await;
        let b = Instance::start(&board, &clock).await;
        a.deliver(60, false).await;
        sleep(seconds(1)).await;
        assert!(!a.is_open() && !b.is_open());
        b.deliver(41, false).await;
        sleep(seconds(1)).await;
        assert!(a.is_open() && b.is_open());
        let opening = a.openings.recv().await.unwrap();
        assert_eq!(opening.why, "101 deliveries failed within 30s");
        assert!(
            timeout(seconds(20), a.breaker.acquire()).await.is_err(),
            "nothing is delivered"
        );
        let end = board.bounds().end;
        sleep(seconds(20)).await;
        a.deliver(3, true).await;
        sleep(seconds(1)).await;
        assert_eq!(
            (a.breaker.state(), b.breaker.state()),
            (CircuitState::Closed, CircuitState::Closed)
        );
        a.deliver(1000, true).await;
        sleep(seconds(1)).await;
        assert!(
            board.bounds().end.0 <= end.0 + 3,
            "while all goes well nothing is written"
        );
    });
}

#[test]
fn a_circuit_is_as_it_was_after_a_restart_and_an_opening_is_told_once() {
    paused(async {
        let clock = TokioClock::start();
        let board = board(&clock).await;
        let mut first = Instance::start(&board, &clock).await;
        let why = "maintenance".to_owned();
        let opened = CircuitEvent::Opened { why: why.clone() };
        first
            .circuits
            .append_event("billing", &opened)
            .await
            .unwrap();
        assert!(first.is_open(), "it counts when it is answered");
        let opening = first.openings.recv().await.unwrap();

        let mut second = Instance::start(&board, &clock).await;
        assert_eq!(
            second.breaker.state(),
            CircuitState::Open { until: None, why }
        );
        assert_eq!(
            second.openings.try_recv().unwrap(),
            opening,
            "nobody says it was told"
        );
        second.circuits.notified(&opening).await.unwrap();
        let mut third = Instance::start(&board, &clock).await;
        assert!(third.is_open() && third.openings.try_recv().is_err());

        third
            .circuits
            .append_event("billing", &CircuitEvent::Closed)
            .await
            .unwrap();
        sleep(seconds(1)).await;
        assert!(!first.is_open() && !third.is_open());
        assert_eq!(first.circuits.get("billing").unwrap().opening, None);
    });
}

#[test]
fn probes_that_fail_do_not_open_it_anew() {
    paused(async {
        let clock = TokioClock::start();
        let board = board(&clock).await;
        let mut a = Instance::start(&board, &clock).await;
        a.deliver(101, false).await;
        sleep(seconds(1)).await;
        let first = a.openings.recv().await.unwrap();
        for _ in 0..3 {
            sleep(seconds(31)).await;
            a.deliver(1, false).await;
            assert!(
                timeout(seconds(10), a.breaker.acquire()).await.is_err(),
                "one probe, and no more"
            );
        }
        assert!(a.openings.try_recv().is_err(), "nobody hears of it twice");
        assert_eq!(a.circuits.get("billing").unwrap().opening, Some(first));
    });
}

#[test]
fn nothing_is_delivered_while_the_log_is_being_told_of_too_many_failures() {
    paused(async {
        let clock = TokioClock::start();
        let a = Instance::start(&board(&clock).await, &clock).await;
        a.deliver(101, false).await;
        assert!(!a.is_open(), "the log has not been told yet");
        assert_eq!(a.breaker.on_exhausted(), OnExhausted::Hold);
        assert!(
            timeout(seconds(20), a.breaker.acquire()).await.is_err(),
            "but nothing is delivered"
        );
        assert!(a.is_open());
    });
}

#[test]
fn an_outage_without_a_count_waits_for_the_log_to_say_so() {
    paused(async {
        let clock = TokioClock::start();
        let a = Instance::start(&board(&clock).await, &clock).await;
        let fates: Vec<_> = (0..5).map(|_| a.breaker.on_exhausted()).collect();
        assert_eq!(
            fates,
            [
                OnExhausted::DeadLetter,
                OnExhausted::DeadLetter,
                OnExhausted::DeadLetter,
                OnExhausted::Hold,
                OnExhausted::Hold
            ]
        );
        assert!(!a.is_open(), "the log has not been told yet");
        assert!(
            timeout(seconds(20), a.breaker.acquire()).await.is_err(),
            "but nothing is delivered"
        );
        assert!(a.is_open());
    });
}

#[test]
fn what_no_circuit_needs_is_trimmed_and_what_one_needs_is_not() {
    paused(async {
        let clock = TokioClock::start();
        let board = board(&clock).await;
        let a = Instance::start(&board, &clock).await;
        for _ in 0..10_100 {
            a.deliver(1, false).await;
            sleep(seconds(1)).await;
        }
        let start = board.bounds().start;
        assert!(start > Offset(9_000), "{start}");
        a.deliver(72, false).await;
        sleep(seconds(1)).await;
        assert!(a.is_open(), "29 of the last 30 s, and 72 more");
        let again = Instance::start(&board, &clock).await;
        assert_eq!(again.breaker.state(), a.breaker.state());
    });
}
