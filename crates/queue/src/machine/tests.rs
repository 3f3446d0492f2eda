//! One rule per test. Times are in seconds.

use std::time::Duration;

use super::*;
use crate::message::{Content, NewMessage};

struct Fixture(Machine);

impl std::ops::Deref for Fixture {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.0
    }
}

impl std::ops::DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.0
    }
}

fn queue() -> Fixture {
    queue_with(|_| {})
}

fn queue_with(set: impl FnOnce(&mut Settings)) -> Fixture {
    let mut settings = Settings::default();
    set(&mut settings);
    settings.check().unwrap();
    let mut machine = Machine::new();
    machine.configure(settings);
    Fixture(machine)
}

fn message(body: &str) -> NewMessage {
    NewMessage {
        content: Content {
            body: body.to_owned().into(),
            ..Content::default()
        },
        ..NewMessage::default()
    }
}

fn named(body: &str, id: &str) -> NewMessage {
    let mut message = message(body);
    message.content.id = Some(id.into());
    message
}

fn of(body: &str, session: &str) -> NewMessage {
    let mut message = message(body);
    message.content.session = Some(session.into());
    message
}

fn body(message: &Message) -> String {
    String::from_utf8(message.content.body.to_vec()).unwrap()
}

fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|it| body(&it.message)).collect()
}

impl Fixture {
    fn at(&mut self, seconds: i64) -> &mut Fixture {
        self.advance(seconds * 1000);
        self
    }

    fn put(&mut self, message: NewMessage) -> SendResult {
        self.send(vec![message]).unwrap()[0]
    }

    fn take(&mut self, max: usize) -> Vec<Delivery> {
        self.receive(SubQueue::Main, max, ReceiveMode::PeekLock)
            .unwrap()
    }

    fn take_one(&mut self) -> (String, LockToken, u32) {
        let delivery = self.take(1).pop().unwrap();
        let token = delivery.lock.unwrap().0;
        (body(&delivery.message), token, delivery.message.deliveries)
    }

    fn dead(&self) -> Vec<(String, String)> {
        let dead = self.peek(SubQueue::DeadLetters, None, 0, 100);
        let facts = dead.iter().map(|dead| {
            let reason = dead.message.dead_letter.as_ref().unwrap().reason.clone();
            (body(&dead.message), reason)
        });
        facts.collect()
    }
}

#[test]
fn messages_come_out_in_the_order_they_went_in_and_are_gone_when_completed() {
    // proves Q1
    let mut queue = queue();
    for text in ["a", "b", "c"] {
        queue.put(message(text));
    }
    let (text, token, count) = queue.take_one();
    assert_eq!((&*text, count), ("a", 1));
    assert_eq!(bodies(&queue.take(9)), ["b", "c"], "a is locked");
    queue.complete(token).unwrap();
    assert_eq!(queue.complete(token), Err(Refusal::LockLost));
    let counts = queue.counts();
    assert_eq!((counts.active, counts.locked), (0, 2));
}

#[test]
fn a_lock_that_runs_out_puts_the_message_back_in_front_and_its_token_is_worth_nothing() {
    // proves Q1
    let mut queue = queue();
    queue.put(message("a"));
    queue.put(message("b"));
    let (_, old, _) = queue.take_one();
    queue.at(59);
    assert_eq!(queue.renew(old), Ok((59 + 60) * 1000));
    queue.at(118);
    assert_eq!(bodies(&queue.take(1)), ["b"]);
    queue.at(119);
    let (text, new, count) = queue.take_one();
    assert_eq!((&*text, count), ("a", 2));
    assert_eq!(queue.complete(old), Err(Refusal::LockLost));
    queue.complete(new).unwrap();
}

#[test]
fn an_abandoned_message_goes_back_to_its_place_with_other_properties() {
    let mut queue = queue();
    queue.put(message("a"));
    queue.put(message("b"));
    let (_, token, _) = queue.take_one();
    let properties = vec![("tried".to_owned(), "yes".to_owned())];
    queue.abandon(token, Some(properties.clone())).unwrap();
    let again = queue.take(2);
    assert_eq!(bodies(&again), ["a", "b"]);
    assert_eq!(again[0].message.content.properties, properties);
}

#[test]
fn a_message_that_is_given_back_counts_no_delivery_and_is_found_at_its_place() {
    // proves A2
    let mut queue = queue();
    queue.put(message("a"));
    queue.put(message("b"));
    for _ in 0..20 {
        let (text, token, count) = queue.take_one();
        assert_eq!((&*text, count), ("a", 1));
        queue.give_back(token).unwrap();
        assert_eq!(queue.give_back(token), Err(Refusal::LockLost));
    }
    assert!(queue.dead().is_empty());
}

#[test]
fn what_was_delivered_ten_times_is_a_dead_letter() {
    // proves Q2
    let mut queue = queue();
    queue.put(message("poison"));
    for count in 1..=10 {
        let (_, token, seen) = queue.take_one();
        assert_eq!(seen, count);
        queue.abandon(token, None).unwrap();
    }
    assert!(queue.take(1).is_empty());
    let reason = "MaxDeliveryCountExceeded".to_owned();
    assert_eq!(queue.dead(), [("poison".to_owned(), reason)]);
}

#[test]
fn a_dead_letter_can_be_received_completed_and_sent_back_but_not_killed_again() {
    let mut queue = queue();
    queue.put(message("a"));
    let (_, token, _) = queue.take_one();
    let words = |text: &str| text.to_owned();
    queue
        .dead_letter(token, words("BadOrder"), words("no such customer"), None)
        .unwrap();
    let dead = queue
        .receive(SubQueue::DeadLetters, 1, ReceiveMode::PeekLock)
        .unwrap();
    let token = dead[0].lock.unwrap().0;
    assert_eq!(
        queue.dead_letter(token, words("x"), words(""), None),
        Err(Refusal::AlreadyDeadLettered)
    );
    assert!(queue.resubmit(dead[0].seq).is_err(), "it is locked");
    queue.abandon(token, None).unwrap();
    queue.resubmit(dead[0].seq).unwrap();
    assert_eq!(queue.take_one().2, 1, "it starts anew");
    assert!(queue.dead().is_empty());
}

#[test]
fn a_scheduled_message_waits_for_its_time_and_can_be_cancelled_before() {
    // proves Q2
    let mut queue = queue();
    let later = |text: &str| NewMessage {
        scheduled_ms: Some(10_000),
        ..message(text)
    };
    queue.put(later("later"));
    let cancelled = queue.put(later("never")).seq;
    queue.put(message("now"));
    assert_eq!(bodies(&queue.take(9)), ["now"]);
    queue.cancel(cancelled).unwrap();
    assert_eq!(queue.next_due_ms(), Some(10_000));
    assert_eq!(bodies(&queue.at(10).take(9)), ["later"]);
    assert!(queue.cancel(cancelled).is_err());
}

#[test]
fn a_message_that_outlives_its_time_is_dropped_or_set_aside() {
    // proves Q2
    for set_aside in [false, true] {
        let mut queue = queue_with(|settings| {
            settings.dead_letter_expired = set_aside;
            settings.time_to_live = Some(Duration::from_secs(100));
        });
        let shorter = NewMessage {
            time_to_live_ms: Some(5_000),
            ..message("short")
        };
        queue.put(shorter.clone());
        queue.put(shorter);
        let (_, token, _) = queue.take_one();
        queue.at(5);
        assert_eq!(queue.counts().dead, u64::from(set_aside));
        queue.abandon(token, None).unwrap();
        assert_eq!(queue.counts().dead, 2 * u64::from(set_aside));
        assert!(queue.take(1).is_empty());
    }
}

#[test]
fn a_lock_outlives_the_time_to_live() {
    let mut queue = queue();
    queue.put(NewMessage {
        time_to_live_ms: Some(1),
        ..message("a")
    });
    let (_, token, _) = queue.take_one();
    queue.at(59).complete(token).unwrap();
}

#[test]
fn a_repeat_within_the_window_is_accepted_and_dropped() {
    // proves Q2
    let window = Duration::from_secs(600);
    let mut queue = queue_with(|settings| settings.duplicates_within = Some(window));
    let first = queue.put(named("a", "1"));
    assert!(!first.duplicate);
    let again = queue.at(599).put(named("a again", "1"));
    assert_eq!((again.seq, again.duplicate), (first.seq, true));
    assert!(!queue.put(named("b", "2")).duplicate);
    assert!(!queue.at(600).put(named("a anew", "1")).duplicate);
    assert_eq!(bodies(&queue.take(9)), ["a", "b", "a anew"]);
}

#[test]
fn a_deferred_message_is_found_by_its_number_only_and_does_not_grow_old() {
    // proves Q1
    let mut queue = queue();
    let seq = queue
        .put(NewMessage {
            time_to_live_ms: Some(1_000),
            ..message("a")
        })
        .seq;
    let (_, token, _) = queue.take_one();
    queue.defer(token, None).unwrap();
    assert!(queue.at(3600).take(1).is_empty());
    let twice = queue.receive_deferred(SubQueue::Main, vec![seq, seq], ReceiveMode::PeekLock, None);
    assert!(twice.is_err());
    let got = queue.receive_deferred(SubQueue::Main, vec![seq], ReceiveMode::PeekLock, None);
    assert_eq!(got.unwrap()[0].message.deliveries, 2);
    assert_eq!(queue.at(3660).counts().deferred, 1, "it goes back there");
}

#[test]
fn a_message_received_for_good_is_gone() {
    let mut queue = queue();
    queue.put(message("a"));
    let got = queue
        .receive(SubQueue::Main, 1, ReceiveMode::ReceiveAndDelete)
        .unwrap();
    assert_eq!((bodies(&got), got[0].lock), (vec!["a".to_owned()], None));
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn a_session_is_received_in_order_by_one_at_a_time() {
    // proves Q2
    let mut queue = queue_with(|settings| settings.sessions = true);
    assert_eq!(
        queue.send(vec![message("x")]),
        Err(Refusal::SessionIdRequired)
    );
    for (text, session) in [("a1", "a"), ("b1", "b"), ("a2", "a")] {
        queue.put(of(text, session));
    }
    assert_eq!(
        queue.receive(SubQueue::Main, 1, ReceiveMode::PeekLock),
        Err(Refusal::SessionRequired)
    );
    let a = queue.accept(None).unwrap().unwrap();
    let b = queue.accept(None).unwrap().unwrap();
    assert_eq!((&*a.session, &*b.session), ("a", "b"));
    assert_eq!(queue.accept(None), Ok(None));
    assert!(queue.accept(Some("a".into())).is_err());

    let first = queue
        .receive_in_session(&a, 1, ReceiveMode::PeekLock)
        .unwrap();
    queue.put(of("a3", "a"));
    let rest = queue
        .receive_in_session(&a, 9, ReceiveMode::PeekLock)
        .unwrap();
    assert_eq!(
        (bodies(&first), bodies(&rest)),
        (vec!["a1".into()], vec!["a2".into(), "a3".into()])
    );
    queue.set_session_state(&a, Some("at 1".into())).unwrap();
    queue.complete(first[0].lock.unwrap().0).unwrap();

    // The lock expires: unsettled messages are released, the state stays.
    queue.at(60);
    assert_eq!(
        queue.complete(rest[0].lock.unwrap().0),
        Err(Refusal::LockLost)
    );
    let a = queue.accept(Some("a".into())).unwrap().unwrap();
    assert_eq!(queue.get_session_state(&a), Ok(Some("at 1".into())));
    let again = queue
        .receive_in_session(&a, 9, ReceiveMode::PeekLock)
        .unwrap();
    assert_eq!(bodies(&again), ["a2", "a3"]);
}

#[test]
fn a_full_queue_takes_nothing_and_a_batch_is_taken_whole_or_not_at_all() {
    let mut queue = queue_with(|settings| settings.bytes_max = 200);
    let two = vec![message(&"x".repeat(90)), message("y")];
    assert!(matches!(
        queue.send(two),
        Err(Refusal::Full { held: 0, .. })
    ));
    assert_eq!(queue.counts(), Counts::default());
    queue.put(message("y"));
}

#[test]
fn a_hub_is_taken_over_once_whatever_is_repeated() {
    // proves Q3
    let mut queue = queue();
    let events = |range: std::ops::Range<i64>| -> Vec<_> {
        range.map(|at| (at, message(&at.to_string()))).collect()
    };
    assert_eq!(queue.feed("h", 0, events(0..3), 3), Ok(3));
    assert_eq!(queue.feed("h", 0, events(1..5), 7), Ok(2));
    assert_eq!(queue.feed("h", 1, events(0..1), 1), Ok(1));
    assert_eq!(queue.feed_position("h", 0), Some(7));
    assert_eq!(bodies(&queue.take(99)), ["0", "1", "2", "3", "4", "0"]);
}

#[test]
fn an_event_that_a_queue_does_not_take_becomes_a_dead_letter() {
    let mut queue = queue_with(|settings| settings.message_bytes_max = 100);
    let large = message(&"x".repeat(100));
    queue
        .feed("h", 0, vec![(0, large), (1, message("b"))], 2)
        .unwrap();
    assert_eq!(bodies(&queue.take(9)), ["b"]);
    assert_eq!(queue.dead()[0].1, "Refused");
}

#[test]
fn sessions_scheduled_messages_and_dead_letters_can_be_looked_at() {
    let mut queue = queue_with(|settings| settings.sessions = true);
    queue.at(5);
    assert_eq!(queue.oldest_ready_ms(), None);
    for (body, session) in [("1", "b"), ("2", "a"), ("3", "b")] {
        queue.put(of(body, session));
        queue.at(6);
    }
    for (body, due) in [("late", 90_000), ("soon", 20_000)] {
        let mut message = of(body, "c");
        message.scheduled_ms = Some(due);
        queue.put(message);
    }
    assert_eq!(queue.oldest_ready_ms(), Some(5000));
    let lock = queue.accept(Some("b".into())).unwrap().unwrap();
    let got = queue
        .receive_in_session(&lock, 1, ReceiveMode::PeekLock)
        .unwrap();
    assert_eq!(bodies(&got), ["1"]);
    assert_eq!(queue.oldest_ready_ms(), Some(6000), "b is locked");
    let sessions = queue.list_sessions(None, 9);
    let names: Vec<&str> = sessions.iter().map(|info| &*info.session).collect();
    assert_eq!(
        names,
        ["a", "b"],
        "a session is there with its first ready message"
    );
    assert_eq!((sessions[1].ready, sessions[1].locked), (1, 1));
    assert!(sessions[1].locked_until_ms.is_some() && sessions[0].locked_until_ms.is_none());
    assert_eq!(queue.list_sessions(Some("a"), 1)[0].session, "b");
    let limit = ReceiveLimit::from(9);
    let scheduled = queue.peek_scheduled(limit);
    let due: Vec<String> = scheduled.iter().map(|it| body(&it.message)).collect();
    assert_eq!(due, ["soon", "late"]);
}

#[test]
fn dead_letters_are_counted_by_reason_and_found_in_pieces() {
    let mut queue = queue();
    for number in 0..30 {
        queue.put(message("x"));
        let (_, token, _) = queue.take_one();
        let reason = if number < 10 {
            "same".to_owned()
        } else {
            number.to_string()
        };
        queue
            .dead_letter(token, reason, String::new(), None)
            .unwrap();
    }
    let locked = queue.receive(SubQueue::DeadLetters, 1, ReceiveMode::PeekLock);
    let locked = locked.unwrap()[0].seq;
    let summary = queue.dead_letter_summary();
    assert_eq!((summary.unlocked, summary.locked), (29, 1));
    assert_eq!((summary.reasons["same"], summary.reasons.len()), (9, 16));
    assert_eq!(summary.other, 5, "reasons are bounded");
    let until = queue.next_seq();
    let first = queue.dead_letter_seqs(0, until, 20);
    let rest = queue.dead_letter_seqs(first[19] + 1, until, 20);
    assert_eq!((first.len(), rest.len()), (20, 9));
    assert!(!first.contains(&locked));
    assert!(queue.dead_letter_seqs(0, first[0], 20).is_empty());
}
