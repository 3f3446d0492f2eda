//! A group among simulated consumers: messages are lost, consumers crash, pause, leave and return, hubs grow, stores
//! fail, and the node crashes and recovers from its stored records.
//!
//! During the faults and after them:
//! - no two members of the group both believe that they have a partition;
//! - no epoch that a consumer has seen is ever forgotten;
//! - after the faults every partition of a subscribed hub is soon with one of the consumers, as the group says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater_env::random::Random;
use highwater_log::{ConsumerHeartbeatResponse, GroupError, GroupState, HubId};

use super::super::Options;
use super::super::machine::Elapsed;
use super::super::member_memory::MemberMemory;
use super::member::MemberRecord;
use super::partitions::PartitionSet;
use super::{Assignor, ConsumerGroup, Heartbeat, HubShape, StateRecord};
use crate::coordinator::testing::seeds;

const BEAT: Duration = Duration::from_secs(5);
const REVOKE_BY: Duration = Duration::from_secs(20);
const TROUBLE: Duration = Duration::from_secs(400);
/// Enough for sessions of crashed members to end, and for the reconciliation after that.
const CALM: Duration = Duration::from_secs(200);

#[derive(Debug)]
enum Event {
    Wakes(usize, u64),
    Answered(usize, Result<ConsumerHeartbeatResponse, GroupError>),
    /// The consumer has released its revoked partitions.
    Revoked(usize),
    Tick,
}

#[derive(Debug, Default)]
struct Consumer {
    alive: bool,
    id: String,
    instance: Option<String>,
    names: BTreeSet<String>,
    assignor: Option<Assignor>,
    epoch: i32,
    /// The partitions that it works on.
    believes: PartitionSet,
    /// The assignment that it brings itself to; `None` when it has.
    wanted: Option<PartitionSet>,
    revoking: bool,
    /// The group knows its subscription; false after a failure, so that it sends all fields.
    told: bool,
    /// It has reached an assignment, and will report it.
    acknowledges: bool,
    waits: bool,
    plan: u64,
}

struct World {
    random: Random,
    now: Elapsed,
    group: ConsumerGroup,
    /// The stored records.
    disk: (StateRecord, BTreeMap<String, MemberRecord>),
    hubs: BTreeMap<String, HubShape>,
    queue: BTreeMap<(Elapsed, u64), Event>,
    counter: u64,
    consumers: Vec<Consumer>,
    wakeup_at: Option<Elapsed>,
    epoch_seen: i32,
    moves: usize,
}

fn options() -> Options {
    Options::default()
}

fn memory() -> MemberMemory {
    MemberMemory::new(1 << 30)
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::seeded(seed);
        let hub = |number: u8, partitions| HubShape {
            id: HubId([number; 16]),
            partitions,
        };
        let hubs = [
            ("a".to_owned(), hub(1, 1 + random.below(7) as u32)),
            ("b".to_owned(), hub(2, 1 + random.below(4) as u32)),
        ];
        let mut world = World {
            random,
            now: Duration::ZERO,
            group: ConsumerGroup::new("g", 0, options(), memory()),
            disk: Default::default(),
            hubs: hubs.into(),
            queue: BTreeMap::new(),
            counter: 0,
            consumers: Vec::new(),
            wakeup_at: None,
            epoch_seen: 0,
            moves: 0,
        };
        for _ in 0..1 + world.random.below(5) {
            world.start(None);
        }
        world
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.now < TROUBLE && self.random.below(100) < percent
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.counter += 1;
        self.queue.insert((self.now + wait, self.counter), event);
    }

    fn soon(&mut self) -> Duration {
        Duration::from_millis(1 + self.random.below(300))
    }

    fn start(&mut self, instance: Option<String>) {
        let number = self.consumers.len();
        let named = (instance.is_none() && self.random.below(3) == 0).then(|| format!("i{number}"));
        let names: &[&str] = match self.random.below(3) {
            0 => &["a"],
            1 => &["b"],
            _ => &["a", "b", "nowhere"],
        };
        self.consumers.push(Consumer {
            alive: true,
            id: format!("m{number}"),
            instance: instance.or(named),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            assignor: (self.random.below(4) == 0).then_some(Assignor::Range),
            ..Consumer::default()
        });
        let wait = Duration::from_millis(self.random.below(3000));
        self.plan(number, wait);
    }

    fn plan(&mut self, number: usize, wait: Duration) {
        self.consumers[number].plan += 1;
        let plan = self.consumers[number].plan;
        self.after(wait, Event::Wakes(number, plan));
    }

    /// Consumers crash, leave, and change their mind; hubs grow; the node crashes.
    fn trouble(&mut self, number: usize) {
        if self.chance(3) {
            self.consumers[number].alive = false;
            let instance = self.consumers[number].instance.clone();
            self.start(instance);
        } else if self.chance(3) {
            self.leave(number);
        }
        if self.chance(1) {
            self.start(None);
        }
        if self.chance(1)
            && let Some(hub) = self.hubs.get_mut("a")
        {
            hub.partitions += 1;
        }
        if self.chance(2) {
            let names = if self.random.below(2) == 0 { "a" } else { "b" };
            self.consumers[number].names = [names.to_owned()].into();
            self.consumers[number].told = false;
        }
        if self.chance(2) {
            self.crash();
        }
    }

    fn crash(&mut self) {
        let (state, members) = self.disk.clone();
        self.group = ConsumerGroup::restore("g", state, members, options(), memory(), self.now);
        assert!(
            self.group.epoch() >= self.epoch_seen,
            "an epoch was forgotten"
        );
        self.set_timer();
    }

    fn leave(&mut self, number: usize) {
        let me = &mut self.consumers[number];
        me.alive = false;
        me.believes = PartitionSet::default();
        let short = me.instance.is_some() && me.epoch > 0;
        let request = Heartbeat {
            member: me.id.clone(),
            epoch: if short { -2 } else { -1 },
            instance: me.instance.clone(),
            ..Heartbeat::default()
        };
        let instance = me.instance.clone();
        if !self.chance(20) {
            let _ = self.process(&request);
        }
        self.start(instance);
    }

    fn wakes(&mut self, number: usize) {
        self.trouble(number);
        if !self.consumers[number].alive {
            return;
        }
        let pause = self.chance(4);
        let long = Duration::from_millis(self.random.below(90_000));
        self.plan(number, if pause { long } else { BEAT });
        if !self.consumers[number].waits {
            self.beat(number);
        }
    }

    fn beat(&mut self, number: usize) {
        let me = &mut self.consumers[number];
        let everything = !me.told || me.epoch == 0;
        let news = everything || me.acknowledges;
        let request = Heartbeat {
            member: me.id.clone(),
            epoch: me.epoch,
            instance: me.instance.clone(),
            rebalance_timeout: everything.then_some(REVOKE_BY),
            names: everything.then(|| me.names.clone()),
            assignor: me.assignor,
            owned: news.then(|| me.believes.clone()),
            ..Heartbeat::default()
        };
        (me.told, me.acknowledges, me.waits) = (true, false, true);
        let answer = match self.chance(6) {
            true => None,
            false => self.process(&request),
        };
        let wait = self.soon();
        match answer.filter(|_| !self.chance(6)) {
            Some(answer) => self.after(wait, Event::Answered(number, answer)),
            None => {
                let lost = Err(GroupError::Loading);
                self.after(wait, Event::Answered(number, lost));
            }
        }
    }

    /// The response of the group, unless its store fails or the node crashes.
    fn process(
        &mut self,
        request: &Heartbeat,
    ) -> Option<Result<ConsumerHeartbeatResponse, GroupError>> {
        let hubs = self.hubs.clone();
        let find = |name: &str| hubs.get(name).copied();
        let answer = self.group.heartbeat(request, &find, self.now);
        let stored = self.store();
        self.set_timer();
        stored.then_some(answer)
    }

    fn store(&mut self) -> bool {
        if self.chance(2) {
            self.crash();
            return false;
        }
        let changes = self.group.take_changes();
        if !changes.is_empty() && self.chance(5) {
            self.group.store_failed(changes);
            return false;
        }
        for id in changes.members {
            match self.group.member_record(&id) {
                Some(record) => self.disk.1.insert(id, record.clone()),
                None => self.disk.1.remove(&id),
            };
        }
        if changes.group {
            self.disk.0 = self.group.state_record().clone();
        }
        true
    }

    fn set_timer(&mut self) {
        let Some(at) = self.group.take_deadline() else {
            return;
        };
        if self.wakeup_at.is_none_or(|wakeup_at| at < wakeup_at) {
            self.wakeup_at = Some(at);
            let wait = at.saturating_sub(self.now);
            self.after(wait, Event::Tick);
        }
    }

    fn answered(&mut self, number: usize, answer: Result<ConsumerHeartbeatResponse, GroupError>) {
        self.consumers[number].waits = false;
        if !self.consumers[number].alive {
            return;
        }
        let response = match answer {
            Ok(response) => response,
            Err(error) => return self.failed(number, error),
        };
        self.epoch_seen = self.epoch_seen.max(response.epoch);
        let eager = self.random.below(2) == 0;
        let me = &mut self.consumers[number];
        me.epoch = response.epoch;
        if let Some(assignment) = response.assignment {
            let wanted = PartitionSet::from_list(assignment);
            if eager {
                me.believes.add(&wanted);
            }
            me.wanted = Some(wanted);
            self.revoke(number);
        }
    }

    fn failed(&mut self, number: usize, error: GroupError) {
        let me = &mut self.consumers[number];
        me.told = false;
        match error {
            GroupError::UnknownMember(_) | GroupError::FencedEpoch { .. } => {
                me.believes = PartitionSet::default();
                (me.epoch, me.wanted) = (0, None);
            }
            GroupError::FencedInstance(_) => me.alive = false,
            GroupError::UnreleasedInstance(_) | GroupError::Loading => {}
            error => panic!("{error}"),
        }
    }

    /// Revoking partitions takes a while.
    fn revoke(&mut self, number: usize) {
        if !std::mem::replace(&mut self.consumers[number].revoking, true) {
            let most = if self.chance(5) { 40_000 } else { 3_000 };
            let wait = Duration::from_millis(self.random.below(most));
            self.after(wait, Event::Revoked(number));
        }
    }

    fn revoked(&mut self, number: usize) {
        self.consumers[number].revoking = false;
        let me = &mut self.consumers[number];
        if !me.alive {
            return;
        }
        if let Some(wanted) = me.wanted.take() {
            self.moves += usize::from(me.believes != wanted);
            me.believes = wanted;
            me.acknowledges = true;
            self.plan(number, Duration::from_millis(1));
        }
    }

    fn check_owners(&self) {
        let mut owned = BTreeMap::new();
        for consumer in self.consumers.iter().filter(|consumer| consumer.alive) {
            if self.group.member_record(&consumer.id).is_none() {
                // It was removed, and will learn that.
                continue;
            }
            for partition in consumer.believes.iter() {
                let other = owned.insert(partition, &consumer.id);
                assert_eq!(other, None, "{partition:?} is also with {}", consumer.id);
            }
        }
    }

    fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.queue.pop_first() else {
            return false;
        };
        self.now = at;
        match event {
            Event::Wakes(number, plan) if self.consumers[number].plan == plan => self.wakes(number),
            Event::Wakes(..) => {}
            Event::Answered(number, answer) => self.answered(number, answer),
            Event::Revoked(number) => self.revoked(number),
            Event::Tick => {
                self.wakeup_at = None;
                self.group.tick(at);
                self.store();
                self.set_timer();
            }
        }
        self.check_owners();
        self.now < TROUBLE + CALM
    }

    fn check_calm(&self) {
        let alive = || self.consumers.iter().filter(|consumer| consumer.alive);
        if alive().next().is_none() {
            return assert!(self.group.is_empty());
        }
        let info = self.group.info();
        assert_eq!(
            info.state,
            GroupState::Stable,
            "{:?} {:?}",
            self.group,
            alive().collect::<Vec<_>>()
        );
        let mut owned = PartitionSet::default();
        for consumer in alive() {
            let record = self
                .group
                .member_record(&consumer.id)
                .expect("it is a member");
            assert_eq!(record.assigned, consumer.believes, "{}", consumer.id);
            owned.add(&consumer.believes);
        }
        for (name, hub) in &self.hubs {
            let subscribed = alive().any(|consumer| consumer.names.contains(name));
            for partition in 0..hub.partitions {
                assert_eq!(
                    owned.contains(hub.id, partition),
                    subscribed,
                    "{name}/{partition}"
                );
            }
        }
    }
}

#[test]
fn consumers_in_trouble_never_share_a_partition_and_end_with_all_of_them() {
    // proves K1, L6
    let mut moves = 0;
    for seed in 0..seeds(150) {
        let mut world = World::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while world.step() {}
            world.check_calm();
            world.moves
        }));
        moves += ran.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(moves > 1_000, "partitions moved at all: {moves}");
}
