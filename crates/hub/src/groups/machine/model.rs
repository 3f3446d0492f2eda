//! A group among simulated members: messages are late or lost, members crash, pause and return.
//!
//! During the faults and after them:
//! - a generation has one leader, one protocol and one assignment for each member, and is never joined after a later
//!   one was announced;
//! - in a stable group the leader is a member;
//! - offsets are accepted only from members of the current generation that hold their instance;
//! - after the faults all live members are soon in one stable group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use highwater_env::random::Random;
use highwater_log::{
    GroupError, GroupState, JoinRequest, JoinResponse, Membership, SyncRequest, SyncResponse,
};

use super::super::Options;
use super::{AfterStore, Effect, Elapsed, Group, RequestId};
use crate::coordinator::testing::seeds;

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(20);
const BEAT: Duration = Duration::from_secs(3);
/// How long a client waits for an answer before it hangs up.
const PATIENCE: Duration = Duration::from_secs(25);
const TROUBLE: Duration = Duration::from_secs(120);
/// Enough time for pending requests to end, and for two rebalances.
const CALM: Duration = Duration::from_secs(120);

#[derive(Debug)]
enum Event {
    Arrives(usize, Request),
    Answered(usize, RequestId, Answer),
    GivesUp(usize, RequestId),
    Wakes(usize, u64),
    Stored(AfterStore, bool),
    Tick,
}

#[derive(Clone, Debug)]
enum Request {
    Join(RequestId, JoinRequest),
    Sync(RequestId, SyncRequest),
    Beat(RequestId, Membership),
}

#[derive(Debug)]
enum Answer {
    Join(Result<JoinResponse, GroupError>),
    Sync(Result<SyncResponse, GroupError>),
    Beat(Result<(), GroupError>),
}

#[derive(Debug, Default)]
struct Client {
    alive: bool,
    instance: Option<String>,
    asks_first: bool,
    member: String,
    generation: i32,
    requested: Option<RequestId>,
    working: bool,
    /// Counts its plans: only the last one is carried out.
    plan: u64,
    /// Its membership in the previous generation.
    former: Option<Membership>,
}

struct World {
    random: Random,
    now: Elapsed,
    group: Group,
    queue: BTreeMap<(Elapsed, u64), Event>,
    counter: u64,
    clients: Vec<Client>,
    /// The client of each pending request.
    waiting: BTreeMap<RequestId, usize>,
    announced: BTreeMap<i32, (String, String)>,
    shares: BTreeMap<(i32, String), Bytes>,
    holders: BTreeMap<String, String>,
    stable_seen: usize,
    steps: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::seeded(seed);
        let options = Options {
            members_max: 100,
            session_min: SESSION,
            session_max: SESSION,
            initial_delay: Duration::from_millis(250 * random.below(2)),
            ..Options::default()
        };
        let mut world = World {
            group: Group::new("g", options),
            random,
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            counter: 0,
            clients: Vec::new(),
            waiting: BTreeMap::new(),
            announced: BTreeMap::new(),
            shares: BTreeMap::new(),
            holders: BTreeMap::new(),
            stable_seen: 0,
            steps: 0,
        };
        for _ in 0..1 + world.random.below(5) {
            world.start_client(None);
        }
        world
    }

    fn troubled(&self) -> bool {
        self.now < TROUBLE
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.troubled() && self.random.below(100) < percent
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.counter += 1;
        self.queue.insert((self.now + wait, self.counter), event);
    }

    fn travel(&mut self) -> Duration {
        let most = if self.chance(10) { 8000 } else { 100 };
        Duration::from_millis(1 + self.random.below(most))
    }

    fn request_id(&mut self) -> RequestId {
        self.counter += 1;
        RequestId(self.counter)
    }

    fn start_client(&mut self, instance: Option<String>) {
        let client = self.clients.len();
        let named = (instance.is_none() && self.random.below(3) == 0).then(|| format!("i{client}"));
        self.clients.push(Client {
            alive: true,
            instance: instance.or(named),
            asks_first: self.random.below(2) == 0,
            ..Client::default()
        });
        let start = Duration::from_millis(self.random.below(3000));
        self.plan(client, start);
    }

    fn plan(&mut self, client: usize, wait: Duration) {
        self.clients[client].plan += 1;
        let plan = self.clients[client].plan;
        self.after(wait, Event::Wakes(client, plan));
    }

    fn send(&mut self, client: usize, make: impl FnOnce(&Client, RequestId) -> Request) {
        let request_id = self.request_id();
        self.clients[client].requested = Some(request_id);
        let request = make(&self.clients[client], request_id);
        self.after(PATIENCE, Event::GivesUp(client, request_id));
        let lost = self.chance(5);
        let travel = self.travel();
        if !lost {
            self.after(travel, Event::Arrives(client, request));
        }
    }

    fn join(&mut self, client: usize) {
        self.clients[client].working = false;
        self.send(client, |client, request_id| {
            let join = JoinRequest {
                group: "g".into(),
                member: client.member.clone(),
                instance: client.instance.clone(),
                client_id: String::new(),
                client_host: String::new(),
                session_timeout: SESSION,
                rebalance_timeout: REBALANCE,
                protocol_type: "consumer".into(),
                protocols: vec![("range".into(), Bytes::new())],
                expects_member_id: client.asks_first,
            };
            Request::Join(request_id, join)
        });
    }

    /// Sometimes members crash, and others start, some of them with the same instance.
    fn trouble(&mut self, client: usize) {
        if self.chance(6) {
            self.clients[client].alive = false;
            let instance = self.clients[client].instance.clone();
            self.start_client(instance);
        }
        if self.chance(1) {
            self.start_client(None);
        }
    }

    fn wakes(&mut self, client: usize) {
        self.trouble(client);
        if !self.clients[client].alive {
            return;
        }
        if self.clients[client].requested.is_some() {
            return self.plan(client, BEAT);
        }
        if !self.clients[client].working {
            return self.join(client);
        }
        let pause = self.chance(5);
        let long = Duration::from_millis(self.random.below(20_000));
        let wait = if pause { long } else { BEAT };
        self.plan(client, wait);
        self.try_commit(who(&self.clients[client]));
        // A long delayed request.
        if let Some(former) = self.clients[client].former.clone() {
            self.try_commit(former);
        }
        self.send(client, |client, request_id| {
            Request::Beat(request_id, who(client))
        });
    }

    fn try_commit(&mut self, who: Membership) {
        if self.group.check_commit(&who, false, self.now).is_err() {
            return;
        }
        assert_eq!(Some(&who.generation), self.announced.keys().last());
        assert!(
            self.shares
                .contains_key(&(who.generation, who.member.clone()))
        );
        if let Some(instance) = &who.instance {
            assert_eq!(self.holders[instance], who.member);
        }
    }

    fn arrives(&mut self, client: usize, request: Request) {
        match request {
            Request::Join(request_id, join) => {
                self.waiting.insert(request_id, client);
                let fresh = format!("m{}", request_id.0);
                if let (Some(instance), true) = (&join.instance, join.member.is_empty()) {
                    self.holders.insert(instance.clone(), fresh.clone());
                }
                self.group.join(join, fresh, request_id, self.now);
            }
            Request::Sync(request_id, sync) => {
                self.waiting.insert(request_id, client);
                self.group.sync(sync, request_id, self.now);
            }
            Request::Beat(request_id, who) => {
                let answer = self.group.heartbeat(&who, self.now);
                self.answer(client, request_id, Answer::Beat(answer));
            }
        }
        self.effects();
    }

    fn answer(&mut self, client: usize, request_id: RequestId, answer: Answer) {
        let lost = self.chance(5);
        let travel = self.travel();
        if !lost {
            self.after(travel, Event::Answered(client, request_id, answer));
        }
    }

    fn effects(&mut self) {
        for effect in self.group.take_effects() {
            match effect {
                Effect::Joined(request_id, answer) => {
                    answer.iter().for_each(|joined| self.announce(joined));
                    if let Some(client) = self.waiting.remove(&request_id) {
                        self.answer(client, request_id, Answer::Join(answer));
                    }
                }
                Effect::Synced(request_id, answer) => {
                    if let Some(client) = self.waiting.remove(&request_id) {
                        self.answer(client, request_id, Answer::Sync(answer));
                    }
                }
                Effect::Store(after) => {
                    let (fails, wait) = (self.chance(5), self.travel());
                    self.after(wait, Event::Stored(after, !fails));
                }
            }
        }
        if self.group.state() == GroupState::Stable {
            self.stable_seen += 1;
            assert!(self.group.members.contains_key(&self.group.leader));
        }
        if let Some(deadline) = self.group.deadline() {
            let wait = deadline.saturating_sub(self.now);
            self.after(wait, Event::Tick);
        }
    }

    fn announce(&mut self, joined: &JoinResponse) {
        let newest = self.announced.keys().last().copied().unwrap_or(0);
        assert!(
            joined.generation >= newest,
            "an old generation was announced"
        );
        let elected = (joined.leader.clone(), joined.protocol.clone());
        let first = self
            .announced
            .entry(joined.generation)
            .or_insert(elected.clone());
        if joined.led_as.is_none() {
            // A returning static leader changes its id within the generation.
            assert!(*first == elected || self.holders.values().any(|id| *id == elected.0));
        }
    }

    fn answered(&mut self, client: usize, request_id: RequestId, answer: Answer) {
        if self.clients[client].requested != Some(request_id) || !self.clients[client].alive {
            return;
        }
        self.clients[client].requested = None;
        let failed = match answer {
            Answer::Join(Ok(joined)) => return self.sync(client, joined),
            Answer::Sync(Ok(synced)) => return self.work(client, synced),
            Answer::Beat(Ok(())) => return,
            Answer::Join(Err(error)) | Answer::Sync(Err(error)) | Answer::Beat(Err(error)) => error,
        };
        let me = &mut self.clients[client];
        me.working = false;
        match failed {
            GroupError::MemberIdRequired { member } => me.member = member,
            GroupError::UnknownMember(_) => me.member.clear(),
            GroupError::FencedInstance(_) => me.alive = false,
            _ => {}
        }
        self.plan(client, Duration::from_millis(100));
    }

    fn sync(&mut self, client: usize, joined: JoinResponse) {
        let me = &mut self.clients[client];
        me.former = (me.generation > 0).then(|| who(me));
        me.member = joined.member;
        me.generation = joined.generation;
        let share = |member: &str| Bytes::from(format!("{}/{member}", joined.generation));
        let mut assignments = Vec::new();
        if joined.led_as.is_none() {
            let names = joined.members.into_iter().map(|other| other.member);
            assignments = names.map(|name| (name.clone(), share(&name))).collect();
        }
        self.send(client, |client, request_id| {
            let sync = SyncRequest {
                member: who(client),
                protocol_type: None,
                protocol: None,
                assignments,
            };
            Request::Sync(request_id, sync)
        });
    }

    fn work(&mut self, client: usize, synced: SyncResponse) {
        let me = &mut self.clients[client];
        me.working = true;
        let key = (me.generation, me.member.clone());
        let first = self.shares.entry(key).or_insert(synced.assignment.clone());
        assert_eq!(*first, synced.assignment, "one assignment for each member");
        self.plan(client, BEAT);
    }

    fn gives_up(&mut self, client: usize, request_id: RequestId) {
        if self.waiting.remove(&request_id).is_some() {
            self.group.abandon(request_id, self.now);
            self.effects();
        }
        let me = &mut self.clients[client];
        if me.requested == Some(request_id) && me.alive {
            me.requested = None;
            self.plan(client, Duration::from_millis(100));
        }
    }

    fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.queue.pop_first() else {
            return false;
        };
        self.now = at;
        self.steps += 1;
        assert!(self.steps < 100_000, "time stands still");
        match event {
            Event::Arrives(client, request) => self.arrives(client, request),
            Event::Answered(client, request_id, answer) => {
                self.answered(client, request_id, answer)
            }
            Event::GivesUp(client, request_id) => self.gives_up(client, request_id),
            Event::Wakes(client, plan) if self.clients[client].plan == plan => self.wakes(client),
            Event::Wakes(..) => {}
            Event::Stored(after, ok) => {
                let result = if ok { Ok(()) } else { Err("disk".into()) };
                self.group.stored(after, result, self.now);
                self.effects();
            }
            Event::Tick => {
                if self.group.deadline().is_some_and(|deadline| deadline <= at) {
                    self.group.tick(at);
                    self.effects();
                }
            }
        }
        self.now < TROUBLE + CALM
    }

    fn check_calm(&self) {
        let alive = self.clients.iter().filter(|client| client.alive);
        let alive: Vec<&Client> = alive.collect();
        let ids: BTreeSet<&String> = alive.iter().map(|client| &client.member).collect();
        if alive.is_empty() {
            return assert!(self.group.is_empty());
        }
        assert_eq!(self.group.state(), GroupState::Stable);
        assert!(self.group.members.keys().eq(ids), "exactly the living");
        for client in alive {
            assert!(client.working, "{client:?}");
            assert_eq!(client.generation, self.group.generation);
        }
    }
}

fn who(client: &Client) -> Membership {
    Membership {
        group: "g".into(),
        generation: client.generation,
        member: client.member.clone(),
        instance: client.instance.clone(),
    }
}

#[test]
fn members_in_trouble_obey_the_laws_and_end_in_one_stable_group() {
    // proves C1, L2
    let mut stable = 0;
    for seed in 0..seeds(500) {
        let mut world = World::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while world.step() {}
            world.check_calm();
            world.stable_seen
        }));
        stable += ran.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(stable > 5_000, "the groups worked at all: {stable}");
}
