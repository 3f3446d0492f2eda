//! The rules of a group, one test each.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use highwater_log::{
    GroupError, GroupState, JoinRequest, JoinResponse, MemberIdentity, Membership, SyncRequest,
    SyncResponse,
};

use super::super::Options;
use super::{AfterStore, Effect, Elapsed, Group, RequestId};

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options {
        members_max: 4,
        group_bytes_max: 1 << 20,
        initial_delay: Duration::ZERO,
        ..Options::default()
    }
}

/// A group with a clock and ids; snapshots are stored at once unless `slow`.
struct Bench {
    group: Group,
    now: Elapsed,
    issued: u64,
    slow: bool,
    waiting_to_store: Vec<AfterStore>,
    joins: BTreeMap<RequestId, Result<JoinResponse, GroupError>>,
    syncs: BTreeMap<RequestId, Result<SyncResponse, GroupError>>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(options())
    }

    fn with(options: Options) -> Bench {
        Bench {
            group: Group::new("g", options),
            now: Duration::from_secs(100),
            issued: 0,
            slow: false,
            waiting_to_store: Vec::new(),
            joins: BTreeMap::new(),
            syncs: BTreeMap::new(),
        }
    }

    fn request_id(&mut self) -> RequestId {
        self.issued += 1;
        RequestId(self.issued)
    }

    fn collect(&mut self) {
        for effect in self.group.take_effects() {
            match effect {
                Effect::Joined(request_id, answer) => {
                    assert!(
                        self.joins.insert(request_id, answer).is_none(),
                        "answered twice"
                    );
                }
                Effect::Synced(request_id, answer) => {
                    assert!(
                        self.syncs.insert(request_id, answer).is_none(),
                        "answered twice"
                    );
                }
                Effect::Store(after) => self.waiting_to_store.push(after),
            }
        }
        if !self.slow && !self.waiting_to_store.is_empty() {
            self.store(Ok(()));
        }
    }

    fn store(&mut self, result: Result<(), String>) {
        for after in std::mem::take(&mut self.waiting_to_store) {
            self.group.stored(after, result.clone(), self.now);
        }
        self.collect();
    }

    fn join_with(&mut self, request: JoinRequest) -> RequestId {
        let request_id = self.request_id();
        self.group
            .join(request, format!("m{}", request_id.0), request_id, self.now);
        self.collect();
        request_id
    }

    fn join(&mut self, member: &str) -> RequestId {
        self.join_with(request(member))
    }

    fn joined(&self, request_id: RequestId) -> &JoinResponse {
        self.joins[&request_id].as_ref().unwrap()
    }

    fn refused(&self, request_id: RequestId) -> &GroupError {
        self.joins[&request_id].as_ref().unwrap_err()
    }

    fn sync(&mut self, member: &str, assignments: &[(&str, &str)]) -> RequestId {
        let request_id = self.request_id();
        let own = |(member, work): &(&str, &str)| (member.to_string(), bytes(work));
        let request = SyncRequest {
            member: self.as_member(member),
            protocol_type: None,
            protocol: None,
            assignments: assignments.iter().map(own).collect(),
        };
        self.group.sync(request, request_id, self.now);
        self.collect();
        request_id
    }

    fn as_member(&self, member: &str) -> Membership {
        membership(self.group.generation, member)
    }

    fn beat(&mut self, member: &str) -> Result<(), GroupError> {
        self.group.heartbeat(&self.as_member(member), self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.group.tick(self.now);
        self.collect();
    }

    fn leave(&mut self, member: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let leaving = MemberIdentity {
            member: member.to_owned(),
            instance: instance.map(str::to_owned),
        };
        let mut answers = self.group.leave(&[leaving], self.now);
        self.collect();
        answers.remove(0)
    }

    /// A stable group of `count` members; returns their ids, the leader first.
    fn stable(&mut self, count: usize) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for _ in 0..count {
            let newcomer = self.join("");
            let again: Vec<RequestId> = ids.clone().iter().map(|id| self.join(id)).collect();
            for request_id in again.into_iter().chain([newcomer]) {
                let member = self.joined(request_id).member.clone();
                if !ids.contains(&member) {
                    ids.push(member);
                }
            }
        }
        let work: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
        for id in &ids {
            self.sync(id, if *id == ids[0] { &work } else { &[] });
        }
        assert_eq!(self.group.state(), GroupState::Stable);
        ids
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn membership(generation: i32, member: &str) -> Membership {
    Membership {
        group: "g".into(),
        generation,
        member: member.into(),
        instance: None,
    }
}

fn request(member: &str) -> JoinRequest {
    JoinRequest {
        group: "g".into(),
        member: member.into(),
        instance: None,
        client_id: "c".into(),
        client_host: "h".into(),
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), bytes("topic"))],
        expects_member_id: false,
    }
}

fn speaking(member: &str, protocols: &[&str]) -> JoinRequest {
    let protocols = protocols.iter();
    JoinRequest {
        protocols: protocols
            .map(|name| (name.to_string(), bytes(name)))
            .collect(),
        ..request(member)
    }
}

fn instance(name: &str, member: &str) -> JoinRequest {
    JoinRequest {
        instance: Some(name.into()),
        ..request(member)
    }
}

fn unknown(member: &str) -> GroupError {
    GroupError::UnknownMember(member.into())
}

#[test]
fn the_first_member_leads_and_gets_the_members() {
    let mut bench = Bench::new();
    let request_id = bench.join("");
    let joined = bench.joined(request_id);
    assert_eq!((joined.generation, joined.protocol.as_str()), (1, "range"));
    assert_eq!(joined.leader, joined.member);
    assert_eq!(joined.members.len(), 1);
    assert_eq!(bench.group.state(), GroupState::CompletingRebalance);
}

#[test]
fn a_join_is_held_until_all_known_members_have_come_again() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    let newcomer = bench.join("");
    assert!(!bench.joins.contains_key(&newcomer));
    assert_eq!(bench.beat(&ids[0]), Err(GroupError::Rebalancing));
    let again = bench.join(&ids[0]);
    let (leader, follower) = (bench.joined(again), bench.joined(newcomer));
    assert_eq!((leader.generation, follower.generation), (2, 2));
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0));
    assert_eq!(follower.leader, ids[0]);
}

#[test]
fn a_member_that_misses_the_rebalance_timeout_is_removed() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let newcomer = bench.join("");
    for _ in 0..11 {
        bench.pass(SESSION / 2);
        assert_eq!(bench.beat(&ids[0]), Err(GroupError::Rebalancing));
        assert_eq!(bench.beat(&ids[1]), Err(GroupError::Rebalancing));
        assert!(!bench.joins.contains_key(&newcomer), "still waiting");
    }
    bench.pass(REBALANCE - SESSION / 2 * 11);
    let joined = bench.joined(newcomer);
    assert_eq!(joined.leader, joined.member);
    assert_eq!(joined.members.len(), 1);
    assert_eq!(bench.beat(&ids[0]), Err(unknown(&ids[0])));
}

#[test]
fn a_new_member_gets_its_id_first_if_it_can_and_is_waited_for() {
    let mut bench = Bench::new();
    let request_id = bench.join_with(JoinRequest {
        expects_member_id: true,
        ..request("")
    });
    let required = GroupError::MemberIdRequired {
        member: "m1".into(),
    };
    assert_eq!(bench.refused(request_id), &required);
    assert_eq!(bench.group.state(), GroupState::Empty);
    let other = bench.join("");
    assert!(!bench.joins.contains_key(&other), "m1 is expected");
    let request_id = bench.join("m1");
    assert_eq!(bench.joined(request_id).generation, 1);
    assert_eq!(bench.joined(other).members.len(), 2);
}

#[test]
fn a_promised_id_expires() {
    let mut bench = Bench::new();
    bench.join_with(JoinRequest {
        expects_member_id: true,
        ..request("")
    });
    let other = bench.join("");
    bench.pass(SESSION);
    assert_eq!(bench.joined(other).generation, 1);
    let late = bench.join("m1");
    assert_eq!(bench.refused(late), &unknown("m1"));
}

#[test]
fn the_first_members_are_given_a_moment_to_gather() {
    let delay = Duration::from_millis(250);
    let mut bench = Bench::with(Options {
        initial_delay: delay,
        ..options()
    });
    let first = bench.join("");
    bench.pass(Duration::from_millis(200));
    let second = bench.join("");
    bench.pass(Duration::from_millis(50));
    assert!(
        bench.joins.is_empty(),
        "a member joined, so the delay starts again"
    );
    bench.pass(delay);
    assert_eq!(bench.joined(first).members.len(), 2);
    assert_eq!(bench.joined(second).generation, 1);
}

#[test]
fn gathering_never_outlasts_the_rebalance_timeout() {
    let mut bench = Bench::with(Options {
        initial_delay: Duration::from_secs(40),
        members_max: 100,
        ..options()
    });
    let first = bench.join("");
    let mut waited = Duration::ZERO;
    while !bench.joins.contains_key(&first) {
        bench.join("");
        bench.pass(Duration::from_secs(10));
        waited += Duration::from_secs(10);
    }
    assert_eq!(waited, REBALANCE);
}

#[test]
fn the_protocol_is_the_favourite_of_most_among_those_all_can_speak() {
    let mut bench = Bench::new();
    let first = bench.join_with(speaking("", &["only-mine", "range", "sticky"]));
    let id = bench.joined(first).member.clone();
    bench.join_with(speaking("", &["sticky", "range"]));
    bench.join_with(speaking("", &["sticky", "range"]));
    let again = bench.join_with(speaking(&id, &["only-mine", "range", "sticky"]));
    assert_eq!(bench.joined(again).protocol, "sticky");
    let metadata = |joined: &JoinResponse| joined.members[0].metadata.clone();
    assert_eq!(metadata(bench.joined(again)), bytes("sticky"));
}

#[test]
fn equal_votes_go_to_the_preference_of_the_first_member() {
    let mut bench = Bench::new();
    let first = bench.join_with(speaking("", &["range", "sticky"]));
    let id = bench.joined(first).member.clone();
    bench.join_with(speaking("", &["sticky", "range"]));
    let again = bench.join_with(speaking(&id, &["range", "sticky"]));
    assert_eq!(bench.joined(again).protocol, "range");
}

#[test]
fn a_member_without_a_common_protocol_is_refused() {
    let mut bench = Bench::new();
    bench.stable(1);
    let other_type = JoinRequest {
        protocol_type: "connect".into(),
        ..request("")
    };
    for stranger in [speaking("", &["sticky"]), speaking("", &[]), other_type] {
        let request_id = bench.join_with(stranger);
        assert_eq!(bench.refused(request_id), &GroupError::InconsistentProtocol);
    }
    assert_eq!(bench.group.state(), GroupState::Stable);
}

#[test]
fn a_session_timeout_out_of_bounds_is_refused() {
    let mut bench = Bench::new();
    let hasty = JoinRequest {
        session_timeout: Duration::from_secs(1),
        ..request("")
    };
    let request_id = bench.join_with(hasty);
    assert!(matches!(
        bench.refused(request_id),
        GroupError::SessionTimeout { .. }
    ));
}

#[test]
fn a_full_group_refuses_new_members_but_keeps_its_own() {
    let mut bench = Bench::new();
    let ids = bench.stable(4);
    let request_id = bench.join("");
    assert_eq!(bench.refused(request_id), &GroupError::Full(4));
    let own = bench.join(&ids[1]);
    assert_eq!(bench.joined(own).generation, 4);
}

#[test]
fn a_static_member_comes_back_to_a_full_group() {
    let (mut bench, _, _) = stable_with_instance();
    bench.group.options.members_max = 2;
    let request_id = bench.join_with(instance("i", ""));
    assert!(bench.joins[&request_id].is_ok());
}

#[test]
fn no_more_ids_are_promised_than_a_group_has_places() {
    let mut bench = Bench::new();
    let newcomer = || JoinRequest {
        expects_member_id: true,
        ..request("")
    };
    for _ in 0..4 {
        let request_id = bench.join_with(newcomer());
        let refused = bench.refused(request_id);
        assert!(matches!(refused, GroupError::MemberIdRequired { .. }));
    }
    let request_id = bench.join_with(newcomer());
    assert_eq!(bench.refused(request_id), &GroupError::Full(4));
}

#[test]
fn followers_wait_for_the_leaders_assignment() {
    let mut bench = Bench::new();
    let (first, second) = {
        let ids = bench.stable(2);
        (ids[0].clone(), ids[1].clone())
    };
    bench.join(&first);
    bench.join(&second);
    let follower = bench.sync(&second, &[]);
    assert!(!bench.syncs.contains_key(&follower));
    let leader = bench.sync(&first, &[(&first, "a"), (&second, "b")]);
    assert_eq!(
        bench.syncs[&follower].as_ref().unwrap().assignment,
        bytes("b")
    );
    assert_eq!(
        bench.syncs[&leader].as_ref().unwrap().assignment,
        bytes("a")
    );
}

#[test]
fn no_assignment_is_sent_before_it_is_stored() {
    let mut bench = Bench::new();
    let request_id = bench.join("");
    let id = bench.joined(request_id).member.clone();
    bench.slow = true;
    let sync = bench.sync(&id, &[(&id, "a")]);
    assert!(!bench.syncs.contains_key(&sync));
    assert_eq!(bench.group.state(), GroupState::CompletingRebalance);
    bench.store(Ok(()));
    assert!(bench.syncs[&sync].is_ok());
    assert_eq!(bench.group.state(), GroupState::Stable);
}

#[test]
fn an_assignment_that_cannot_be_stored_makes_the_members_come_again() {
    let mut bench = Bench::new();
    let request_id = bench.join("");
    let id = bench.joined(request_id).member.clone();
    bench.slow = true;
    let sync = bench.sync(&id, &[(&id, "a")]);
    bench.store(Err("disk".into()));
    assert_eq!(bench.syncs[&sync], Err(GroupError::Storage("disk".into())));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn an_assignment_stored_too_late_is_not_handed_out() {
    let mut bench = Bench::new();
    let request_id = bench.join("");
    let id = bench.joined(request_id).member.clone();
    bench.slow = true;
    let sync = bench.sync(&id, &[(&id, "a")]);
    bench.join("");
    assert_eq!(bench.syncs[&sync], Err(GroupError::Rebalancing));
    bench.store(Ok(()));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn a_member_that_falls_silent_is_out_and_the_others_come_again() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    bench.pass(SESSION / 2);
    assert_eq!(bench.beat(&ids[0]), Ok(()));
    bench.pass(SESSION / 2);
    assert_eq!(bench.beat(&ids[1]), Err(unknown(&ids[1])));
    assert_eq!(bench.beat(&ids[0]), Err(GroupError::Rebalancing));
}

#[test]
fn a_group_that_all_left_is_empty_in_a_new_generation() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let generation = bench.group.generation;
    for id in &ids {
        assert_eq!(bench.leave(id, None), Ok(()));
    }
    assert_eq!(bench.group.state(), GroupState::Empty);
    assert_eq!(bench.group.generation, generation + 1);
    assert_eq!(bench.leave(&ids[0], None), Err(unknown(&ids[0])));
}

#[test]
fn a_member_that_leaves_while_waiting_is_answered() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let waiting = bench.join(&ids[0]);
    assert_eq!(bench.leave(&ids[0], None), Ok(()));
    assert_eq!(bench.refused(waiting), &unknown(&ids[0]));
}

#[test]
fn a_member_that_never_asks_for_its_assignment_is_out() {
    let mut bench = Bench::new();
    let first = bench.join("");
    let id = bench.joined(first).member.clone();
    let beats = REBALANCE.as_secs() / 5;
    for _ in 0..beats {
        assert_eq!(bench.beat(&id), Ok(()));
        bench.pass(Duration::from_secs(5));
    }
    assert_eq!(bench.group.state(), GroupState::Empty);
}

#[test]
fn a_stale_generation_is_refused() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let stale = membership(1, &ids[0]);
    let refused = Err(GroupError::IllegalGeneration {
        requested: 1,
        current: 2,
    });
    assert_eq!(bench.group.heartbeat(&stale, bench.now), refused);
    assert_eq!(bench.group.check_commit(&stale, false, bench.now), refused);
    assert_eq!(bench.group.check_commit(&stale, true, bench.now), refused);
}

#[test]
fn an_unchanged_follower_that_joins_again_gets_the_current_generation() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let request_id = bench.join(&ids[1]);
    assert_eq!(bench.joined(request_id).generation, bench.group.generation);
    assert_eq!(bench.group.state(), GroupState::Stable);
}

#[test]
fn changed_metadata_and_a_leader_that_joins_again_start_a_rebalance() {
    for leader in [true, false] {
        let mut bench = Bench::new();
        let ids = bench.stable(2);
        match leader {
            true => bench.join(&ids[0]),
            false => bench.join_with(JoinRequest {
                protocols: vec![("range".into(), bytes("other-topic"))],
                ..request(&ids[1])
            }),
        };
        assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    }
}

#[test]
fn a_lost_join_answer_is_given_again() {
    let mut bench = Bench::new();
    let first = bench.join("");
    let id = bench.joined(first).member.clone();
    let again = bench.join(&id);
    assert_eq!(bench.joined(again), bench.joined(first));
}

fn stable_with_instance() -> (Bench, String, String) {
    let mut bench = Bench::new();
    let request_id = bench.join_with(instance("i", ""));
    let fixed = bench.joined(request_id).member.clone();
    let newcomer = bench.join("");
    bench.join_with(instance("i", &fixed));
    let other = bench.joined(newcomer).member.clone();
    bench.sync(&fixed, &[(&fixed, "a"), (&other, "b")]);
    bench.sync(&other, &[]);
    assert_eq!(bench.group.state(), GroupState::Stable);
    (bench, fixed, other)
}

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_gets_its_work_again() {
    let (mut bench, old, _) = stable_with_instance();
    let generation = bench.group.generation;
    let request_id = bench.join_with(instance("i", ""));
    let joined = bench.joined(request_id).clone();
    assert_ne!(joined.member, old);
    assert_eq!(joined.generation, generation);
    assert_eq!(joined.leader, joined.member);
    assert_eq!(joined.led_as, Some(old));
    assert_eq!(bench.group.state(), GroupState::Stable);
    let sync = bench.sync(&joined.member, &[]);
    assert_eq!(bench.syncs[&sync].as_ref().unwrap().assignment, bytes("a"));
}

#[test]
fn a_static_member_is_let_in_when_its_new_id_is_stored() {
    let (mut bench, _, _) = stable_with_instance();
    bench.slow = true;
    let request_id = bench.join_with(instance("i", ""));
    assert!(!bench.joins.contains_key(&request_id));
    bench.store(Ok(()));
    assert!(bench.joins[&request_id].is_ok());
}

#[test]
fn the_second_holder_of_an_instance_fences_the_first() {
    let (mut bench, old, _) = stable_with_instance();
    bench.join_with(instance("i", ""));
    let fenced = GroupError::FencedInstance("i".into());
    let who = Membership {
        instance: Some("i".into()),
        ..bench.as_member(&old)
    };
    assert_eq!(bench.group.heartbeat(&who, bench.now), Err(fenced.clone()));
    assert_eq!(
        bench.group.check_commit(&who, false, bench.now),
        Err(fenced.clone())
    );
    let request_id = bench.join_with(instance("i", &old));
    assert_eq!(bench.refused(request_id), &fenced);
    assert_eq!(bench.leave(&old, Some("i")), Err(fenced));
}

#[test]
fn a_fenced_member_that_waits_is_answered_at_once() {
    let (mut bench, old, _) = stable_with_instance();
    let waiting = bench.join_with(instance("i", &old));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    bench.join_with(instance("i", ""));
    assert_eq!(
        bench.refused(waiting),
        &GroupError::FencedInstance("i".into())
    );
}

#[test]
fn a_silent_static_member_keeps_its_place_until_its_session_ends() {
    let (mut bench, fixed, other) = stable_with_instance();
    let newcomer = bench.join("");
    bench.join(&other);
    bench.pass(SESSION / 2);
    let who = Membership {
        instance: Some("i".into()),
        ..bench.as_member(&fixed)
    };
    assert_eq!(
        bench.group.heartbeat(&who, bench.now),
        Err(GroupError::Rebalancing)
    );
    for _ in 0..11 {
        bench.pass(SESSION / 2);
        bench.group.heartbeat(&who, bench.now).ok();
    }
    let leader = bench.joined(newcomer).leader.clone();
    assert_eq!(leader, other, "the old leader did not join");
    assert!(bench.group.members.contains_key(&fixed));
}

#[test]
fn a_static_member_leaves_by_its_instance() {
    let (mut bench, _, _) = stable_with_instance();
    assert_eq!(bench.leave("", Some("i")), Ok(()));
    assert_eq!(bench.leave("", Some("i")), Err(unknown("")));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn a_consumer_without_a_group_stores_positions_while_the_group_is_empty() {
    let mut bench = Bench::new();
    let anonymous = membership(-1, "");
    assert_eq!(
        bench.group.check_commit(&anonymous, false, bench.now),
        Ok(())
    );
    bench.stable(1);
    let refused = bench.group.check_commit(&anonymous, false, bench.now);
    assert_eq!(refused, Err(unknown("")));
    assert_eq!(
        bench.group.check_commit(&anonymous, true, bench.now),
        Ok(())
    );
}

#[test]
fn a_commit_is_accepted_while_members_join_but_not_while_they_sync() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    let who = bench.as_member(&ids[0]);
    let newcomer = bench.join("");
    assert_eq!(bench.group.check_commit(&who, false, bench.now), Ok(()));
    bench.join(&ids[0]);
    assert!(bench.joins.contains_key(&newcomer));
    let who = bench.as_member(&ids[0]);
    let refused = bench.group.check_commit(&who, false, bench.now);
    assert_eq!(refused, Err(GroupError::Rebalancing));
}

#[test]
fn a_commit_counts_as_a_sign_of_life() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    bench.pass(SESSION - Duration::from_secs(1));
    let who = bench.as_member(&ids[0]);
    bench.group.check_commit(&who, false, bench.now).unwrap();
    bench.pass(SESSION - Duration::from_secs(1));
    assert_eq!(bench.beat(&ids[0]), Ok(()));
}

#[test]
fn a_newcomer_that_hangs_up_before_it_knows_its_id_is_forgotten() {
    let mut bench = Bench::new();
    let ids = bench.stable(1);
    let newcomer = bench.join("");
    assert_eq!(bench.group.members.len(), 2);
    bench.group.abandon(newcomer, bench.now);
    assert!(bench.group.members.keys().eq([&ids[0]]));
}

#[test]
fn a_member_that_hangs_up_while_waiting_has_its_session_to_come_again() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let waiting = bench.join(&ids[0]);
    bench.group.abandon(waiting, bench.now);
    bench.pass(SESSION - Duration::from_secs(1));
    assert!(bench.group.members.contains_key(&ids[0]));
    bench.pass(Duration::from_secs(1));
    assert!(!bench.group.members.contains_key(&ids[0]));
}

#[test]
fn a_second_join_of_a_member_takes_over_from_the_first() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let first = bench.join(&ids[0]);
    let second = bench.join(&ids[0]);
    assert_eq!(bench.refused(first), &GroupError::Rebalancing);
    bench.join(&ids[1]);
    assert!(bench.joins[&second].is_ok());
}

#[test]
fn a_restored_group_goes_on_where_it_was() {
    let mut bench = Bench::new();
    let ids = bench.stable(2);
    let snapshot = bench.group.snapshot();
    bench.group = Group::restore("g", options(), snapshot.clone(), bench.now);
    assert_eq!(bench.group.snapshot(), snapshot);
    assert_eq!(bench.beat(&ids[0]), Ok(()));
    let request_id = bench.join(&ids[1]);
    assert_eq!(bench.joined(request_id).generation, snapshot.generation);
    bench.pass(SESSION);
    assert_eq!(bench.group.state(), GroupState::Empty);
}

#[test]
fn the_next_deadline_is_never_missed_and_never_stands_still() {
    let mut bench = Bench::new();
    bench.stable(2);
    let mut ticks = 0;
    while let Some(deadline) = bench.group.deadline() {
        assert!(deadline > bench.now, "{:?}", bench.group);
        bench.pass(deadline - bench.now);
        ticks += 1;
        assert!(ticks < 10);
    }
    assert!(bench.group.is_idle());
}

#[test]
fn metadata_of_a_member_that_hangs_up_before_its_first_generation_is_dropped() {
    let mut bench = Bench::new();
    bench.stable(1);
    let before = bench.group.bytes();
    let large = |member: &str, instance: Option<&str>| JoinRequest {
        instance: instance.map(str::to_owned),
        protocols: vec![("range".into(), bytes(&"x".repeat(100_000)))],
        ..request(member)
    };
    for instance in [None, Some("i")] {
        let request_id = bench.join_with(large("", instance));
        assert!(bench.group.bytes() > before + 100_000);
        bench.group.abandon(request_id, bench.now);
        assert_eq!(bench.group.bytes(), before);
    }
    // One that was given its id first may come back with it.
    let first = bench.join_with(JoinRequest {
        expects_member_id: true,
        ..request("")
    });
    let GroupError::MemberIdRequired { member } = bench.refused(first).clone() else {
        panic!("{:?}", bench.joins);
    };
    let request_id = bench.join_with(large(&member, None));
    bench.group.abandon(request_id, bench.now);
    assert!(bench.group.bytes() < before + 1000);
    let again = bench.join_with(request(&member));
    assert!(!bench.joins.contains_key(&again), "it waits for the others");
}

#[test]
fn a_group_has_a_maximum_size() {
    let mut bench = Bench::new();
    let request_id = bench.join_with(JoinRequest {
        protocols: vec![("range".into(), bytes(&"x".repeat(2 << 20)))],
        ..request("")
    });
    assert!(matches!(
        bench.refused(request_id),
        GroupError::TooLarge { .. }
    ));
    assert!(bench.group.is_idle());
}
