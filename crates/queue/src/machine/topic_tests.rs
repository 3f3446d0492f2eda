//! A topic and one subscription as machines: whatever is sent, scheduled, read, repeated and replayed, the subscription gets
//! every message once and in order.

use proptest::prelude::*;

use super::*;
use crate::message::{Content, NewMessage};

#[derive(Clone, Debug)]
enum Step {
    /// Sends a message that is due after so many milliseconds.
    Send(i64),
    Wait(i64),
    /// Forwards at most this many messages; then the answer is lost or not.
    Forward {
        count: usize,
        is_told: bool,
    },
    Trim,
    /// Both machines are made again from their events.
    Replay,
    /// The journals are replaced by snapshots.
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop_oneof![Just(0), 0..20_i64].prop_map(Step::Send),
        2 => (0..10_i64).prop_map(Step::Wait),
        3 => (1..4_usize, any::<bool>()).prop_map(|(count, is_told)| Step::Forward { count, is_told }),
        1 => Just(Step::Trim),
        1 => Just(Step::Replay),
        1 => Just(Step::Compact),
    ]
}

/// A machine and its journal.
struct Journaled {
    machine: Machine,
    events: Vec<(i64, Event)>,
}

impl Journaled {
    fn new() -> Journaled {
        let mut machine = Machine::new();
        machine.begin(Settings::default(), 1);
        let mut journaled = Journaled {
            machine,
            events: Vec::new(),
        };
        journaled.record();
        journaled
    }

    fn record(&mut self) {
        let now_ms = self.machine.now_ms();
        let events = self.machine.take_events().into_iter();
        self.events.extend(events.map(|event| (now_ms, event)));
    }

    fn replay(&mut self) {
        let mut machine = Machine::new();
        for (at_ms, event) in &self.events {
            machine.apply(*at_ms, event);
        }
        machine.advance(self.machine.now_ms());
        assert!(machine.equals(&self.machine));
        self.machine = machine;
    }

    fn compact(&mut self) {
        self.events.clear();
        let mut cursor = Some(SnapshotCursor::Start);
        while let Some(at) = cursor {
            let (events, next) = self.machine.snapshot(at);
            let now_ms = self.machine.now_ms();
            self.events
                .extend(events.into_iter().map(|event| (now_ms, event)));
            cursor = next;
        }
    }
}

struct World {
    now_ms: i64,
    topic: Journaled,
    subscription: Journaled,
    /// What the task that forwards believes.
    position: TopicPosition,
    /// The numbers of the messages that are sent, and when they are due.
    sent: Vec<(i64, u64)>,
}

impl World {
    fn new() -> World {
        let (topic, mut subscription) = (Journaled::new(), Journaled::new());
        let rules = vec![Rule::everything(0)];
        let begin = TopicPosition::START;
        subscription.machine.begin_subscription(rules, begin);
        subscription.record();
        World {
            now_ms: 0,
            topic,
            subscription,
            position: begin,
            sent: Vec::new(),
        }
    }

    fn run(&mut self, step: &Step) {
        for journaled in [&mut self.topic, &mut self.subscription] {
            journaled.machine.advance(self.now_ms);
        }
        match step {
            Step::Send(delay_ms) => self.send(*delay_ms),
            Step::Wait(ms) => self.now_ms += ms,
            Step::Forward { count, is_told } => self.forward(*count, *is_told),
            Step::Trim => {
                let until = self.subscription.machine.topic_position();
                self.topic.machine.remove_published(until, 2);
                self.topic.record();
            }
            Step::Replay => {
                self.topic.replay();
                self.subscription.replay();
                self.position = self.subscription.machine.topic_position();
            }
            Step::Compact => {
                self.topic.compact();
                self.subscription.compact();
            }
        }
    }

    fn send(&mut self, delay_ms: i64) {
        let due_ms = self.now_ms + delay_ms;
        let message = NewMessage {
            content: Content {
                body: (self.sent.len() as u64 + 1).to_be_bytes().to_vec().into(),
                ..Content::default()
            },
            scheduled_ms: Some(due_ms),
            time_to_live_ms: None,
        };
        let sent = self.topic.machine.send(vec![message]).unwrap();
        self.sent.push((due_ms, sent[0].seq));
        self.topic.record();
    }

    fn forward(&mut self, count: usize, is_told: bool) {
        let messages = self.topic.machine.published(self.position, count.into());
        let Some(last) = messages.last() else {
            return;
        };
        let copies = messages.iter().map(|published| NewMessage {
            content: (*published.message.content).clone(),
            ..NewMessage::default()
        });
        let machine = &mut self.subscription.machine;
        let taken = machine.take_published(copies.collect(), self.position, last.position);
        self.subscription.record();
        if is_told {
            self.position = taken.unwrap();
        }
    }
}

proptest! {
    // proves A3
    #[test]
    fn a_subscription_gets_every_message_once_and_in_order(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        let end = [Step::Wait(100), Step::Replay, Step::Forward { count: 1000, is_told: true }, Step::Trim];
        end.iter().for_each(|step| world.run(step));
        // By when they were due, then by their numbers.
        world.sent.sort_unstable();
        let expected: Vec<u64> = world.sent.iter().map(|(_, seq)| *seq).collect();
        let got = world.subscription.machine.receive(SubQueue::Main, 1000, ReceiveMode::PeekLock).unwrap();
        let got: Vec<u64> = got
            .iter()
            .map(|delivery| u64::from_be_bytes((*delivery.message.content.body).try_into().unwrap()))
            .collect();
        prop_assert_eq!(got, expected);
        while world.topic.machine.remove_published(world.position, 2) > 0 {}
        prop_assert_eq!(world.topic.machine.counts().bytes, 0);
    }
}
