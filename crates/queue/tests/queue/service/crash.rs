//! Workers on a queue whose node crashes at any point: answered requests hold, unanswered ones may or may not, and no
//! message is settled twice or has two holders.
//!
//! `HIGHWATER_SEEDS=5000 cargo test -p highwater-queue crash` runs more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_queue::{
    Delivery, LockToken, Options, Queue, ReceiveLimit, ReceiveRequest, Settings, SettleBatch,
};
use tokio::task::JoinSet;

use crate::service::common::{Gated, TokioClock, message};

#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<u64>,
    /// Requested; `true` if also answered.
    completed: BTreeMap<u64, bool>,
    counts: BTreeMap<u64, u32>,
    holders: BTreeMap<u64, (LockToken, i64)>,
}

type Shared = Arc<Mutex<Ledger>>;

fn with<T>(ledger: &Shared, act: impl FnOnce(&mut Ledger) -> T) -> T {
    act(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Ledger {
    fn asked(&mut self, seq: u64) {
        self.completed.entry(seq).or_default();
    }

    fn completed(&mut self, seq: u64) {
        let before = self.completed.insert(seq, true);
        assert_ne!(before, Some(true), "completed twice");
    }

    fn delivered(&mut self, delivery: &Delivery, now_ms: i64) {
        let seq = delivery.seq;
        assert_ne!(self.completed.get(&seq), Some(&true), "it was completed");
        let (token, until) = delivery.lock.unwrap();
        if let Some((other, end)) = self.holders.insert(seq, (token, until)) {
            assert!(end <= now_ms, "{other} still holds it");
        }
        let before = self.counts.insert(seq, delivery.message.deliveries);
        assert!(
            before.unwrap_or(0) < delivery.message.deliveries,
            "the count went back"
        );
    }
}

fn now_ms(clock: &TokioClock) -> i64 {
    clock.unix_millis()
}

async fn worker(queue: Queue, ledger: Shared, clock: Arc<TokioClock>, mut random: Random) {
    loop {
        tokio::time::sleep(Duration::from_millis(random.below(50))).await;
        if random.below(2) == 0 {
            let messages = (0..1 + random.below(3)).map(|_| message("x")).collect();
            if let Ok(sent) = queue.send(messages).await {
                let seqs = sent.into_iter().map(|sent| sent.seq);
                with(&ledger, |ledger| ledger.acknowledged.extend(seqs));
            }
            continue;
        }
        let receive = ReceiveRequest {
            limit: ReceiveLimit::from(1 + random.below(3) as usize),
            wait: Duration::from_millis(random.below(2000)),
            ..ReceiveRequest::default()
        };
        let Ok(got) = queue.receive(receive).await else {
            continue;
        };
        for delivery in &got {
            with(&ledger, |ledger| ledger.delivered(delivery, now_ms(&clock)));
        }
        tokio::time::sleep(Duration::from_millis(random.below(1500))).await;
        match random.below(2) {
            0 => {
                for delivery in got {
                    settle(&queue, &ledger, &delivery, &mut random).await;
                }
            }
            _ => hand_in(&queue, &ledger, &clock, &got, &mut random).await,
        }
    }
}

/// Settles all of them in the request for the next message, which is then ignored.
async fn hand_in(
    queue: &Queue,
    ledger: &Shared,
    clock: &TokioClock,
    got: &[Delivery],
    random: &mut Random,
) {
    let (mut done, mut completed) = (SettleBatch::default(), Vec::new());
    for delivery in got {
        let (seq, token) = (delivery.seq, delivery.lock.unwrap().0);
        if random.below(3) == 0 {
            with(ledger, |ledger| ledger.holders.remove(&seq));
            done.abandon.push(token);
        } else {
            with(ledger, |ledger| ledger.asked(seq));
            done.complete.push(token);
            completed.push(seq);
        }
    }
    let receive = ReceiveRequest {
        wait: Duration::from_millis(random.below(500)),
        ..ReceiveRequest::default()
    };
    let Ok(exchange) = queue.exchange(done, receive).await else {
        return;
    };
    with(ledger, |ledger| {
        for (seq, result) in completed.into_iter().zip(exchange.settled) {
            if result.is_ok() {
                ledger.completed(seq);
            }
        }
        for delivery in &exchange.received.unwrap() {
            ledger.delivered(delivery, now_ms(clock));
        }
    });
}

async fn settle(queue: &Queue, ledger: &Shared, delivery: &Delivery, random: &mut Random) {
    let (seq, token) = (delivery.seq, delivery.lock.unwrap().0);
    match random.below(4) {
        // Ignored: the lock expires.
        0 => {}
        1 => {
            // After requesting an abandon, a receiver no longer holds the message.
            with(ledger, |ledger| ledger.holders.remove(&seq));
            let _ = queue.abandon(vec![token], None).await;
        }
        _ => {
            with(ledger, |ledger| ledger.asked(seq));
            if let Ok(done) = queue.complete(vec![token]).await
                && done[0].is_ok()
            {
                with(ledger, |ledger| ledger.completed(seq));
            }
        }
    }
}

async fn life(seed: u64) {
    let mut random = Random::seeded(seed);
    let (log, clock) = (Gated::new(), TokioClock::new());
    let options = Options {
        compaction_bytes: 500,
        pause: Duration::from_millis(20),
        ..Options::default()
    };
    let settings = Settings {
        lock: Duration::from_secs(1),
        deliveries_max: 1000,
        ..Settings::default()
    };
    let ledger = Shared::default();
    let queues = log.open_queues(clock.clone(), options.clone()).await;
    queues.create("q", settings).await.unwrap();
    queues.stop().await;
    for _ in 0..4 {
        let queues = log.open_queues(clock.clone(), options.clone()).await;
        let queue = queues.get("q").unwrap();
        log.close();
        let mut workers = JoinSet::new();
        for _ in 0..4 {
            let random = Random::seeded(random.next_u64());
            let (ledger, clock) = (ledger.clone(), clock.clone());
            workers.spawn(worker(queue.clone(), ledger, clock, random));
        }
        for _ in 0..random.below(300) {
            tokio::time::sleep(Duration::from_millis(random.below(30))).await;
            match random.below(12) {
                0 => log.set_full(true),
                1 => log.set_full(false),
                _ => {
                    for _ in 0..random.below(4) {
                        log.complete_first();
                    }
                }
            }
        }
        // The node crashes and loses everything that is not durable.
        log.set_full(false);
        workers.abort_all();
        while let Some(ended) = workers.join_next().await {
            assert!(
                ended.is_err_and(|error| error.is_cancelled()),
                "a worker has failed"
            );
        }
        drop((queue, queues));
        tokio::task::yield_now().await;
        log.crash();
    }
    drained(&log, clock, options, &ledger).await;
}

/// Every acknowledged message is there or was completed.
async fn drained(log: &Gated, clock: Arc<TokioClock>, options: Options, ledger: &Shared) {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let queues = log.open_queues(clock.clone(), options).await;
    let queue = queues.get("q").unwrap();
    let receive = ReceiveRequest {
        limit: ReceiveLimit::from(1_000_000),
        ..ReceiveRequest::default()
    };
    let left = queue.receive(receive).await.unwrap();
    with(ledger, |ledger| {
        for delivery in &left {
            ledger.delivered(delivery, now_ms(&clock));
        }
        let left: BTreeSet<u64> = left.iter().map(|delivery| delivery.seq).collect();
        for seq in &ledger.acknowledged {
            let known = left.contains(seq) || ledger.completed.contains_key(seq);
            assert!(known, "message {seq} is lost");
        }
    });
}

#[test]
fn nothing_that_was_answered_is_undone_by_a_crash() {
    // proves Q1
    let seeds = std::env::var("HIGHWATER_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(100);
    for seed in 0..seeds {
        let run = std::panic::catch_unwind(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(life(seed));
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
