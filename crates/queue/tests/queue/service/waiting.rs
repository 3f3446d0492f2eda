//! Replies and waiting. Time does not advance until all tasks wait.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_env::{BudgetExhausted, MemoryBudget};
use highwater_log::{Log, MemoryLog};
use highwater_queue::{
    DeferredRequest, Delivery, Error, Options, Queues, ReceiveLimit, ReceiveMode, ReceiveRequest,
    Refusal, Settings, SettleBatch, SubQueue,
};

use crate::service::common::{Gated, Turned, bodies, message};

fn receive(wait_s: u64) -> ReceiveRequest {
    ReceiveRequest {
        wait: Duration::from_secs(wait_s),
        ..ReceiveRequest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_the_log() {
    // proves Q1
    let log = Gated::new();
    let (_queues, queue, _) = log.queue(Settings::default()).await;
    log.close();
    let send = tokio::spawn({
        let queue = queue.clone();
        async move { queue.send(vec![message("a")]).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let got = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive(receive(60)).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!send.is_finished() && !got.is_finished());
    assert!(log.complete_first());
    send.await.unwrap().unwrap();
    assert!(!got.is_finished(), "that it was delivered is not durable");
    assert!(log.complete_first());
    assert_eq!(bodies(&got.await.unwrap().unwrap()), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_in_the_order_they_came() {
    let log = Gated::new();
    let (_queues, queue, _) = log.queue(Settings::default()).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let queue = queue.clone();
        waiting.push(tokio::spawn(
            async move { queue.receive(receive(60)).await },
        ));
        tokio::task::yield_now().await;
    }
    // A receiver that disconnects is skipped.
    waiting.remove(1).abort();
    tokio::task::yield_now().await;
    queue.send(vec![message("a"), message("b")]).await.unwrap();
    for (wait, text) in waiting.into_iter().zip(["a", "b"]) {
        assert_eq!(bodies(&wait.await.unwrap().unwrap()), [text]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_nothing_or_when_a_lock_runs_out() {
    let log = Gated::new();
    let (_queues, queue, _) = log.queue(Settings::default()).await;
    let start = tokio::time::Instant::now();
    assert_eq!(queue.receive(receive(20)).await, Ok(Vec::new()));
    assert_eq!(start.elapsed().as_secs(), 20);

    queue.send(vec![message("a")]).await.unwrap();
    let first = queue.receive(receive(0)).await.unwrap();
    let again = queue.receive(receive(100)).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 80, "the lock lasts a minute");
    assert_eq!(again[0].message.deliveries, 2);
    let old = first[0].lock.unwrap().0;
    assert_eq!(
        queue.complete(vec![old]).await,
        Ok(vec![Err(Refusal::LockLost)])
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_receiver_was_lost_with_the_answer_comes_back_after_its_lock() {
    // proves Q1
    let log = Gated::new();
    let (_queues, queue, _) = log.queue(Settings::default()).await;
    queue.send(vec![message("a")]).await.unwrap();
    log.close();
    let lost = tokio::spawn({
        let queue = queue.clone();
        async move { queue.receive(receive(0)).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It is delivered, but the receiver has disconnected.
    lost.abort();
    assert!(lost.await.unwrap_err().is_cancelled());
    log.open();
    let start = tokio::time::Instant::now();
    assert_eq!(queue.receive(receive(0)).await, Ok(Vec::new()));
    let again = queue.receive(receive(600)).await.unwrap();
    assert_eq!(
        (bodies(&again), again[0].message.deliveries),
        (vec!["a".to_owned()], 2)
    );
    assert_eq!(
        start.elapsed().as_secs(),
        59,
        "a minute after it was locked"
    );
}

#[tokio::test(start_paused = true)]
async fn while_the_clock_is_behind_time_stands_still() {
    // proves Q1
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new(|| 0));
    let clock = Arc::new(Turned::default());
    let options = Options::default();
    let (queues, _) = Queues::open(log, clock.clone(), Random::from_os(), options).await;
    let queue = queues.create("q", Settings::default()).await.unwrap();
    clock.set(1_000);
    queue.send(vec![message("a")]).await.unwrap();
    let first = queue.receive(receive(0)).await.unwrap();
    clock.set(0);
    queue.send(vec![message("b")]).await.unwrap();
    let second = queue.receive(receive(0)).await.unwrap();
    let end = |got: &[Delivery]| got[0].lock.unwrap().1;
    assert_eq!(second[0].message.enqueued_ms, first[0].message.enqueued_ms);
    assert_eq!(end(&second), end(&first), "nobody's lock is shorter for it");
    clock.set(1_059);
    assert!(queue.receive(receive(0)).await.unwrap().is_empty());
    clock.set(1_060);
    let both = ReceiveRequest {
        limit: ReceiveLimit::from(9),
        ..receive(0)
    };
    assert_eq!(bodies(&queue.receive(both).await.unwrap()), ["a", "b"]);
    queues.stop().await;
}

// proves G2
#[tokio::test(start_paused = true)]
async fn messages_are_received_only_within_memory_that_is_lent_before() {
    let log = Gated::new();
    let (_queues, queue, _) = log.queue(Settings::default()).await;
    let budget = MemoryBudget::new(1000);
    let within = |wait_s| ReceiveRequest {
        limit: ReceiveLimit {
            count: 9,
            bytes: 800,
        },
        memory: Some(budget.clone()),
        ..receive(wait_s)
    };
    // A wait holds no memory, and without memory it ends as any other.
    let waiting = tokio::spawn({
        let (queue, request) = (queue.clone(), within(60));
        async move { queue.exchange(SettleBatch::default(), request).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(budget.taken(), 0);
    let other = budget.try_take(500).unwrap();
    assert_eq!(queue.receive(within(1)).await, Ok(Vec::new()));

    queue.send(vec![message("a"), message("b")]).await.unwrap();
    let refused = waiting.await.unwrap().unwrap();
    let exhausted = BudgetExhausted {
        taken: 500,
        max: 1000,
    };
    assert_eq!(refused.received, Err(Refusal::NoMemory(exhausted)));
    drop(other);
    let got = queue.exchange(SettleBatch::default(), within(0)).await;
    let got = got.unwrap();
    let received = got.received.unwrap();
    assert_eq!(bodies(&received), ["a", "b"]);
    assert_eq!(received[0].message.deliveries, 1, "nothing was delivered");
    let size: usize = received.iter().map(|it| it.message.content.size()).sum();
    assert_eq!((got.memory.bytes(), budget.taken()), (size, size));

    let tokens = received.iter().map(|it| it.lock.unwrap().0).collect();
    queue.defer(tokens, None).await.unwrap();
    let deferred = || DeferredRequest {
        sub_queue: SubQueue::Main,
        seqs: received.iter().map(|it| it.seq).collect(),
        mode: ReceiveMode::PeekLock,
        session: None,
        memory: budget.clone(),
    };
    let other = budget.try_take(1000 - size).unwrap();
    let refused = queue.receive_deferred(deferred()).await.map(|_| ());
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::NoMemory(_))));
    drop(other);
    let (again, memory) = queue.receive_deferred(deferred()).await.unwrap();
    assert_eq!((again.len(), memory.bytes()), (2, size));
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_in_counts_at_once_and_is_told_with_what_comes_next() {
    // proves Q1
    let log = Gated::new();
    let (_queues, queue, _) = log.queue(Settings::default()).await;
    queue.send(vec![message("a"), message("b")]).await.unwrap();
    let held = ReceiveRequest {
        limit: ReceiveLimit::from(2),
        ..receive(0)
    };
    let held = queue.receive(held).await.unwrap();
    let [a, b] = [0, 1].map(|at| held[at].lock.unwrap().0);
    let done = SettleBatch {
        complete: vec![a, a],
        abandon: vec![b],
    };
    // An abandoned message can be received again, even by the same receiver.
    let got = queue.exchange(done, receive(60)).await.unwrap();
    let lost = Err(Refusal::LockLost);
    assert_eq!(got.settled, [Ok(()), lost.clone(), Ok(())]);
    let again = got.received.unwrap();
    assert_eq!(bodies(&again), ["b"]);
    assert_eq!(again[0].message.deliveries, 2);

    let done = |token| SettleBatch {
        complete: vec![token],
        ..SettleBatch::default()
    };
    let last = again[0].lock.unwrap().0;
    let waiting = tokio::spawn({
        let (queue, done) = (queue.clone(), done(last));
        async move { queue.exchange(done, receive(60)).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "there is nothing to receive");
    assert_eq!(queue.stats().await.unwrap().counts.locked, 0);
    queue.end_waits().await;
    let got = waiting.await.unwrap().unwrap();
    assert_eq!((got.settled, got.received), (vec![Ok(())], Ok(Vec::new())));
    let got = queue.exchange(done(last), receive(0)).await.unwrap();
    assert_eq!((got.settled, got.received), (vec![lost], Ok(Vec::new())));
}

#[tokio::test(start_paused = true)]
async fn who_hands_in_and_waits_is_told_when_the_log_did_not_take_it() {
    // proves Q1
    let log = Gated::new();
    let (_queues, queue, _) = log.queue(Settings::default()).await;
    queue.send(vec![message("a")]).await.unwrap();
    let held = queue.receive(receive(0)).await.unwrap();
    let done = SettleBatch {
        complete: vec![held[0].lock.unwrap().0],
        ..SettleBatch::default()
    };
    log.set_full(true);
    let got = queue.exchange(done.clone(), receive(60)).await;
    assert!(matches!(got, Err(Error::Log(_))), "{got:?}");
    let got = queue.exchange(done.clone(), receive(60)).await;
    assert!(matches!(got, Err(Error::Log(_))), "nothing is tried yet");
    log.set_full(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let got = queue.exchange(done, receive(0)).await.unwrap();
    assert_eq!((got.settled, got.received), (vec![Ok(())], Ok(Vec::new())));
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_locks_counts_sessions_and_settings() {
    // proves Q1, Q2
    let log = Gated::new();
    let (queues, queue, clock) = log.queue(Settings::default()).await;
    queue.send(vec![message("a"), message("b")]).await.unwrap();
    let got = queue.receive(receive(0)).await.unwrap();
    queues.stop().await;
    assert!(matches!(queue.stats().await, Err(Error::Stopped(_))));

    let queues = log.open_queues(clock, Options::default()).await;
    let queue = queues.get("q").unwrap();
    let other = queue.receive(receive(0)).await.unwrap();
    assert_eq!(bodies(&other), ["b"], "a is still with its receiver");
    let token = got[0].lock.unwrap().0;
    assert_eq!(queue.complete(vec![token]).await, Ok(vec![Ok(())]));
    assert_eq!(queue.stats().await.unwrap().counts.locked, 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_deleted_queue_settles_nothing_in_one_of_the_same_name() {
    // proves Q1
    let log = Gated::new();
    let (queues, queue, clock) = log.queue(Settings::default()).await;
    queue.send(vec![message("old")]).await.unwrap();
    let old = queue.receive(receive(0)).await.unwrap()[0].lock.unwrap().0;
    queues.delete("q").await.unwrap();
    let queue = queues.create("q", Settings::default()).await.unwrap();
    queue.send(vec![message("new")]).await.unwrap();
    let new = queue.receive(receive(0)).await.unwrap()[0].lock.unwrap().0;
    assert_eq!(old.seq, new.seq, "numbers of messages begin anew");
    let settled = queue.complete(vec![old]).await;
    assert_eq!(settled, Ok(vec![Err(Refusal::LockLost)]));
    // Nor after a restart, with the whole journal replayed.
    queues.stop().await;
    let queues = log.open_queues(clock, Options::default()).await;
    let queue = queues.get("q").unwrap();
    let settled = queue.complete(vec![old, new]).await;
    assert_eq!(settled, Ok(vec![Err(Refusal::LockLost), Ok(())]));
}

#[tokio::test(start_paused = true)]
async fn a_log_without_room_turns_away_and_nothing_half_done_is_left() {
    let log = Gated::new();
    let (_queues, queue, _) = log.queue(Settings::default()).await;
    queue.send(vec![message("a")]).await.unwrap();
    let got = queue.receive(receive(0)).await.unwrap();
    let token = got[0].lock.unwrap().0;
    log.set_full(true);
    let (complete, send) =
        tokio::join!(queue.complete(vec![token]), queue.send(vec![message("b")]));
    assert!(matches!(complete, Err(Error::Log(_))), "{complete:?}");
    assert!(matches!(send, Err(Error::Log(_))), "{send:?}");
    log.set_full(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    // As if it had never been requested.
    let counts = queue.stats().await.unwrap().counts;
    assert_eq!((counts.locked, counts.active), (1, 0));
    assert_eq!(queue.complete(vec![token]).await, Ok(vec![Ok(())]));
    queue.send(vec![message("c")]).await.unwrap();
    assert_eq!(bodies(&queue.receive(receive(0)).await.unwrap()), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_drained_queue_takes_no_space_and_loses_nothing_while_it_is_swept() {
    let log = Gated::new();
    let clock = crate::service::common::TokioClock::new();
    let options = Options {
        compaction_bytes: 10_000,
        ..Options::default()
    };
    let queues = log.open_queues(clock.clone(), options.clone()).await;
    let queue = queues.create("q", Settings::default()).await.unwrap();
    queue.send(vec![message("stays")]).await.unwrap();
    let kept = queue.receive(receive(0)).await.unwrap();
    queue
        .defer(vec![kept[0].lock.unwrap().0], None)
        .await
        .unwrap();
    for _ in 0..200 {
        let body = "x".repeat(500);
        queue.send(vec![message(&body)]).await.unwrap();
        let for_good = ReceiveRequest {
            mode: ReceiveMode::ReceiveAndDelete,
            limit: ReceiveLimit::from(9),
            ..receive(0)
        };
        assert_eq!(queue.receive(for_good).await.unwrap().len(), 1);
    }
    tokio::task::yield_now().await;
    let bytes = Log::partition(&log, "__queue.q", 0).unwrap().bounds().bytes;
    assert!(bytes < 25_000, "{bytes} bytes are left of 120,000");
    queues.stop().await;

    let queues = log.open_queues(clock, options).await;
    let queue = queues.get("q").unwrap();
    let there = queue.peek(SubQueue::Main, 0, 10).await.unwrap();
    assert_eq!(there.len(), 1);
    let sent = queue.send(vec![message("next")]).await.unwrap();
    assert_eq!(sent[0].seq, 202, "numbers go on");
}

#[tokio::test(start_paused = true)]
async fn a_session_is_waited_for_and_passed_on() {
    // proves Q2
    let log = Gated::new();
    let sessions = Settings {
        sessions: true,
        ..Settings::default()
    };
    let (_queues, queue, _) = log.queue(sessions).await;
    let hour = Duration::from_secs(3600);
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.accept(None, hour).await }
    });
    tokio::task::yield_now().await;
    let mut first = message("a");
    first.content.session = Some("s".into());
    queue.send(vec![first]).await.unwrap();
    let accepted = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(accepted.lock.session, "s");
    let start = tokio::time::Instant::now();
    let next = queue.accept(Some("s".into()), hour).await.unwrap().unwrap();
    assert_eq!(start.elapsed().as_secs(), 60, "when the lock ran out");
    let state = queue.session_state(accepted.lock).await;
    assert_eq!(state, Err(Error::Refused(Refusal::SessionLost)));
    queue.release_session(next.lock).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_is_gone_and_its_name_is_free() {
    let log = Gated::new();
    let (queues, queue, _) = log.queue(Settings::default()).await;
    queue.send(vec![message("a")]).await.unwrap();
    assert!(queues.create("q", Settings::default()).await.is_err());
    queues.delete("q").await.unwrap();
    assert!(queues.get("q").is_none());
    assert!(matches!(queue.stats().await, Err(Error::Stopped(_))));
    let queue = queues.create("q", Settings::default()).await.unwrap();
    assert_eq!(queue.stats().await.unwrap().counts.active, 0);
    assert!(queues.create("a/b", Settings::default()).await.is_err());
}
