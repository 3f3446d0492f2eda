//! A topic and one subscription as machines: after any sequence of sends, schedules, reads, settlements, repeats and
//! replays the subscription has received every message once, in order and with its body, and the topic keeps no
//! unreferenced body.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::codec;
use crate::message::{Content, NewMessage};

#[derive(Clone, Debug)]
enum Step {
    /// Sends a message that is due after so many milliseconds and expires so long after that.
    Send {
        delay_ms: i64,
        time_to_live_ms: Option<i64>,
    },
    Wait(i64),
    /// Forwards at most this many messages, changed or not; then the answer is lost or not.
    Forward {
        count: usize,
        is_changed: bool,
        is_told: bool,
    },
    /// Settles the first message.
    Settle(Settlement),
    /// Asks for the released messages of the subscription; then the answer is lost or not.
    Release {
        is_told: bool,
    },
    Trim,
    /// Both machines are made again from their events.
    Replay,
    /// The journals are replaced by snapshots.
    Compact,
}

#[derive(Clone, Copy, Debug)]
enum Settlement {
    Delete,
    Complete,
    Abandon,
    Defer,
    DeadLetter,
}

fn step() -> impl Strategy<Value = Step> {
    let settlement = prop_oneof![
        3 => Just(Settlement::Delete),
        2 => Just(Settlement::Complete),
        1 => Just(Settlement::Abandon),
        1 => Just(Settlement::Defer),
        1 => Just(Settlement::DeadLetter),
    ];
    let send = (prop_oneof![Just(0), 0..20_i64], prop::option::of(1..30_i64));
    prop_oneof![
        3 => send.prop_map(|(delay_ms, time_to_live_ms)| Step::Send { delay_ms, time_to_live_ms }),
        2 => (0..10_i64).prop_map(Step::Wait),
        3 => (1..4_usize, any::<bool>(), any::<bool>())
            .prop_map(|(count, is_changed, is_told)| Step::Forward { count, is_changed, is_told }),
        3 => settlement.prop_map(Step::Settle),
        1 => any::<bool>().prop_map(|is_told| Step::Release { is_told }),
        1 => Just(Step::Trim),
        1 => Just(Step::Replay),
        1 => Just(Step::Compact),
    ]
}

/// A machine and its journal.
struct Journaled {
    machine: Machine,
    events: Vec<(i64, Bytes)>,
}

impl Journaled {
    fn new(mut machine: Machine) -> Journaled {
        let settings = Settings {
            deliveries_max: 1000,
            ..Settings::default()
        };
        machine.begin(settings, 1);
        let mut journaled = Journaled {
            machine,
            events: Vec::new(),
        };
        journaled.record();
        journaled
    }

    fn record(&mut self) {
        let events = self.machine.take_events();
        self.push(&events);
    }

    fn push(&mut self, events: &[Event]) {
        let now_ms = self.machine.now_ms();
        for event in events {
            let mut bytes = Vec::new();
            codec::write(event, &mut bytes);
            self.events.push((now_ms, bytes.into()));
        }
    }

    fn replay(&mut self, mut machine: Machine, contents: &ContentMap) {
        for (at_ms, bytes) in &self.events {
            let mut event = codec::read(bytes).unwrap();
            event.resolve(contents);
            machine.apply(*at_ms, &event);
        }
        assert_eq!(machine.unresolved(contents), None);
        machine.reset_totals();
        machine.advance(self.machine.now_ms());
        assert!(machine.equals(&self.machine));
        self.machine = machine;
    }

    fn compact(&mut self) {
        self.events.clear();
        let mut cursor = Some(SnapshotCursor::Start);
        while let Some(at) = cursor {
            let (events, next) = self.machine.snapshot(at);
            self.push(&events);
            cursor = next;
        }
    }
}

struct World {
    now_ms: i64,
    topic: Journaled,
    subscription: Journaled,
    /// The state of the forwarding task.
    position: TopicPosition,
    referenced: BTreeSet<u64>,
    /// The numbers of the messages without a time to live, and when they are due.
    sent: Vec<(i64, u64)>,
    count: u64,
    /// The bodies that left the subscription, in order.
    got: Vec<Bytes>,
    /// Deferred messages and dead letters.
    aside: Vec<Bytes>,
}

impl World {
    fn new() -> World {
        let topic = Journaled::new(Machine::new_topic());
        let mut subscription = Journaled::new(Machine::new());
        let rules = vec![Rule::everything(0)];
        let begin = TopicPosition::START;
        subscription.machine.begin_subscription(rules, begin);
        subscription.record();
        World {
            now_ms: 0,
            topic,
            subscription,
            position: begin,
            referenced: BTreeSet::new(),
            sent: Vec::new(),
            count: 0,
            got: Vec::new(),
            aside: Vec::new(),
        }
    }

    fn run(&mut self, step: &Step) {
        for journaled in [&mut self.topic, &mut self.subscription] {
            journaled.machine.advance(self.now_ms);
        }
        match step {
            Step::Send {
                delay_ms,
                time_to_live_ms,
            } => self.send(*delay_ms, *time_to_live_ms),
            Step::Wait(ms) => self.now_ms += ms,
            Step::Forward {
                count,
                is_changed,
                is_told,
            } => self.forward(*count, *is_changed, *is_told),
            Step::Settle(how) => self.settle(*how),
            Step::Release { is_told } => self.release(*is_told),
            Step::Trim => self.trim(),
            Step::Replay => self.replay(),
            Step::Compact => {
                self.topic.compact();
                self.subscription.compact();
            }
        }
        self.topic.record();
        self.subscription.record();
    }

    fn send(&mut self, delay_ms: i64, time_to_live_ms: Option<i64>) {
        let due_ms = self.now_ms + delay_ms;
        self.count += 1;
        let message = NewMessage {
            content: Content {
                body: self.count.to_be_bytes().to_vec().into(),
                id: Some(self.count.to_string()),
                ..Content::default()
            },
            scheduled_ms: Some(due_ms),
            time_to_live_ms,
        };
        let sent = self.topic.machine.send(vec![message]).unwrap();
        if time_to_live_ms.is_none() {
            self.sent.push((due_ms, sent[0].seq));
        }
    }

    fn forward(&mut self, count: usize, is_changed: bool, is_told: bool) {
        let messages = self.topic.machine.published(self.position, count.into());
        let Some(last) = messages.last() else {
            return;
        };
        let copies = messages.iter().map(|published| {
            let mut content = published.message.content.clone();
            if is_changed {
                let property = ("a".to_owned(), "b".to_owned());
                Arc::make_mut(&mut content).properties = vec![property];
            }
            PublishedCopy {
                topic_seq: published.position.seq,
                content,
                is_changed,
                expires_ms: published.message.expires_ms,
            }
        });
        let machine = &mut self.subscription.machine;
        let taken = machine.take_published(copies.collect(), self.position, last.position);
        match (is_told, taken.unwrap()) {
            (false, _) => {}
            (true, TakeResult::Taken { referenced }) => {
                self.referenced.extend(referenced);
                self.position = last.position;
            }
            (true, TakeResult::Elsewhere) => self.reload(),
        }
    }

    fn reload(&mut self) {
        self.referenced = self.subscription.machine.referenced();
        self.position = self.subscription.machine.topic_position();
    }

    fn settle(&mut self, how: Settlement) {
        let machine = &mut self.subscription.machine;
        let mode = match how {
            Settlement::Delete => ReceiveMode::ReceiveAndDelete,
            _ => ReceiveMode::PeekLock,
        };
        let received = machine.receive(SubQueue::Main, 1, mode).unwrap();
        let Some(delivery) = received.first() else {
            return;
        };
        let body = delivery.message.content.body.clone();
        assert_eq!(body.len(), 8, "it has its body");
        let Some((token, _)) = delivery.lock else {
            return self.got.push(body);
        };
        let properties = Some(vec![("changed".to_owned(), "yes".to_owned())]);
        match how {
            Settlement::Abandon => machine.abandon(token, properties).unwrap(),
            Settlement::Defer => {
                machine.defer(token, properties).unwrap();
                self.aside.push(body);
            }
            Settlement::DeadLetter => {
                let (reason, text) = (String::new(), String::new());
                machine
                    .dead_letter(token, reason, text, properties)
                    .unwrap();
                self.aside.push(body);
            }
            Settlement::Complete | Settlement::Delete => {
                machine.complete(token).unwrap();
                self.got.push(body);
            }
        }
    }

    fn release(&mut self, is_told: bool) {
        let released = self.subscription.machine.take_released();
        match is_told {
            true => self.referenced.retain(|seq| !released.contains(seq)),
            false => self.reload(),
        }
    }

    fn trim(&mut self) {
        let topic = &mut self.topic.machine;
        let passed = topic.published_positions(TopicPosition::START, self.position, 1000);
        let seqs = passed.iter().map(|position| position.seq);
        let seqs = seqs.filter(|seq| !self.referenced.contains(seq));
        topic.remove_published(seqs.collect(), self.position);
    }

    fn replay(&mut self) {
        self.topic.replay(Machine::new_topic(), &ContentMap::new());
        let contents = self.topic.machine.contents();
        self.subscription.replay(Machine::new(), &contents);
        self.reload();
    }

    /// Everything is forwarded and received.
    fn drain(&mut self) {
        let forward = Step::Forward {
            count: 1000,
            is_changed: false,
            is_told: true,
        };
        [Step::Wait(100), Step::Replay, forward]
            .iter()
            .for_each(|step| self.run(step));
        while self.subscription.machine.has_ready(SubQueue::Main) {
            self.run(&Step::Settle(Settlement::Delete));
        }
    }
}

proptest! {
    // proves A3
    #[test]
    fn a_subscription_gets_every_message_once_and_in_order(steps in prop::collection::vec(step(), 0..80)) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        world.drain();
        // By when they were due, then by their numbers.
        world.sent.sort_unstable();
        let expected: Vec<u64> = world.sent.iter().map(|(_, seq)| *seq).collect();
        let numbers = |bodies: &[Bytes]| -> Vec<u64> {
            let numbers = bodies.iter().map(|body| u64::from_be_bytes((**body).try_into().unwrap()));
            numbers.filter(|number| expected.contains(number)).collect()
        };
        let (mut got, aside) = (numbers(&world.got), numbers(&world.aside));
        let in_order: Vec<u64> = expected.iter().copied().filter(|seq| !aside.contains(seq)).collect();
        prop_assert_eq!(&got, &in_order, "in the order of the topic");
        got.extend(aside);
        got.sort_unstable();
        let mut all = expected.clone();
        all.sort_unstable();
        prop_assert_eq!(got, all, "each once");

        [Step::Release { is_told: true }, Step::Trim, Step::Replay].iter().for_each(|step| world.run(step));
        let kept = world.topic.machine.contents().into_keys().collect::<BTreeSet<u64>>();
        prop_assert_eq!(kept, world.subscription.machine.referenced(), "the topic has what is needed");
        for sub_queue in [SubQueue::Main, SubQueue::DeadLetters] {
            for peeked in world.subscription.machine.peek(sub_queue, None, 0, 1000) {
                let content = peeked.message.content;
                let number = u64::from_be_bytes((*content.body).try_into().unwrap());
                prop_assert_eq!(content.id.clone(), Some(number.to_string()), "the content is whole");
                prop_assert_eq!(content.properties.len(), 1, "and has its changed properties");
            }
        }
    }
}
