//! The rules of the consumer protocol, one by one.

use std::time::Duration;

use highwater_log::{ConsumerHeartbeatResponse, GroupError, GroupState, HubId, Membership};

use super::super::machine::Elapsed;
use super::super::member_memory::MemberMemory;
use super::super::{GroupTimeouts, Options};
use super::partitions::PartitionSet;
use super::{ConsumerGroup, Heartbeat, HubShape};

const TOLL: HubId = HubId([1; 16]);
const SECOND: Duration = Duration::from_secs(1);

fn group() -> ConsumerGroup {
    ConsumerGroup::new("g", 0, Options::default(), MemberMemory::new(1 << 20))
}

fn find(name: &str) -> Option<HubShape> {
    (name == "toll").then_some(HubShape {
        id: TOLL,
        partitions: 4,
    })
}

fn set(partitions: &[u32]) -> PartitionSet {
    PartitionSet::from_list(vec![(TOLL, partitions.to_vec())])
}

fn join(member: &str) -> Heartbeat {
    Heartbeat {
        member: member.into(),
        rebalance_timeout: Some(60 * SECOND),
        names: Some(["toll".to_owned()].into()),
        owned: Some(PartitionSet::default()),
        ..Heartbeat::default()
    }
}

fn join_static(member: &str) -> Heartbeat {
    Heartbeat {
        instance: Some("i".into()),
        ..join(member)
    }
}

fn beat(member: &str, epoch: i32) -> Heartbeat {
    Heartbeat {
        member: member.into(),
        epoch,
        ..Heartbeat::default()
    }
}

fn owning(member: &str, epoch: i32, partitions: &[u32]) -> Heartbeat {
    Heartbeat {
        owned: Some(set(partitions)),
        ..beat(member, epoch)
    }
}

fn send(
    group: &mut ConsumerGroup,
    request: &Heartbeat,
    now: Elapsed,
) -> Result<ConsumerHeartbeatResponse, GroupError> {
    group.heartbeat(request, &find, now)
}

/// Epoch and assignment of a response.
fn news(
    group: &mut ConsumerGroup,
    request: &Heartbeat,
) -> Result<(i32, Option<Vec<u32>>), GroupError> {
    let response = send(group, request, Duration::ZERO)?;
    let partitions = |assignment: highwater_log::HubPartitions| {
        assignment
            .into_iter()
            .flat_map(|(_, partitions)| partitions)
            .collect()
    };
    Ok((response.epoch, response.assignment.map(partitions)))
}

#[test]
fn the_first_member_gets_everything_at_once() {
    // proves K1
    let mut group = group();
    assert_eq!(
        news(&mut group, &join("a")),
        Ok((1, Some(vec![0, 1, 2, 3])))
    );
    assert_eq!(news(&mut group, &beat("a", 1)), Ok((1, None)));
    assert_eq!(group.group_state(), GroupState::Stable);
}

#[test]
fn a_partition_moves_when_its_owner_has_given_it_up() {
    // proves K1
    let mut group = group();
    news(&mut group, &join("a")).unwrap();
    assert_eq!(
        news(&mut group, &join("b")),
        Ok((2, Some(vec![]))),
        "nothing is free yet"
    );
    assert_eq!(group.group_state(), GroupState::Reconciling);
    assert_eq!(
        news(&mut group, &beat("a", 1)),
        Ok((1, Some(vec![0, 1]))),
        "it is to give up two"
    );
    assert_eq!(news(&mut group, &beat("b", 2)), Ok((2, None)));
    assert_eq!(
        news(&mut group, &owning("a", 1, &[0, 1, 2])),
        Ok((1, None)),
        "one is not enough"
    );
    assert_eq!(news(&mut group, &owning("a", 1, &[0, 1])), Ok((2, None)));
    assert_eq!(news(&mut group, &beat("b", 2)), Ok((2, Some(vec![2, 3]))));
    assert_eq!(group.group_state(), GroupState::Stable);
}

#[test]
fn a_member_that_leaves_frees_its_partitions() {
    let mut group = group();
    news(&mut group, &join("a")).unwrap();
    news(&mut group, &join("b")).unwrap();
    news(&mut group, &owning("a", 1, &[0, 1])).unwrap();
    assert_eq!(news(&mut group, &beat("a", -1)), Ok((-1, None)));
    assert_eq!(group.group_state(), GroupState::Assigning);
    assert_eq!(
        news(&mut group, &beat("b", 2)),
        Ok((3, Some(vec![0, 1, 2, 3])))
    );
    let unknown = Err(GroupError::UnknownMember("a".into()));
    assert_eq!(news(&mut group, &beat("a", 2)), unknown);
}

#[test]
fn a_session_without_heartbeats_ends() {
    let mut group = group();
    send(&mut group, &join("a"), Duration::ZERO).unwrap();
    assert_eq!(group.deadline(), Some(45 * SECOND));
    send(&mut group, &beat("a", 1), 40 * SECOND).unwrap();
    group.tick(84 * SECOND);
    assert!(!group.is_empty());
    group.tick(85 * SECOND);
    assert!(group.is_empty());
    assert_eq!(group.epoch(), 2);
}

// proves K1
#[test]
fn a_group_has_timeouts_of_its_own_from_the_next_heartbeat_on() {
    let options = Options::default();
    let own = options.own_timeouts.clone();
    let mut group = ConsumerGroup::new("g", 0, options, MemberMemory::new(1 << 20));
    send(&mut group, &join("a"), Duration::ZERO).unwrap();
    group.take_deadline();
    let set = |name: &str, session| {
        let timeouts = GroupTimeouts {
            session: Some(session),
            heartbeat: Some(9 * SECOND),
        };
        own.set([(name.to_owned(), timeouts)].into());
    };
    set("other", SECOND);
    let response = send(&mut group, &beat("a", 1), SECOND).unwrap();
    assert_eq!(response.interval, 5 * SECOND);
    assert_eq!(group.deadline(), Some(46 * SECOND));
    set("g", 60 * SECOND);
    assert_eq!(group.deadline(), Some(46 * SECOND), "no heartbeat yet");
    let response = send(&mut group, &beat("a", 1), 2 * SECOND).unwrap();
    assert_eq!(response.interval, 9 * SECOND);
    assert_eq!(group.take_deadline(), None, "it only moved back");
    group.tick(61 * SECOND);
    assert!(!group.is_empty());
    group.take_deadline();
    set("g", 50 * SECOND);
    send(&mut group, &beat("a", 1), 3 * SECOND).unwrap();
    assert_eq!(
        group.take_deadline(),
        Some(53 * SECOND),
        "it is to wake up earlier"
    );
    group.tick(53 * SECOND);
    assert!(group.is_empty());
}

#[test]
fn a_member_that_gives_nothing_up_in_time_is_removed() {
    let mut group = group();
    let patient = Heartbeat {
        rebalance_timeout: Some(20 * SECOND),
        ..join("a")
    };
    send(&mut group, &patient, Duration::ZERO).unwrap();
    send(&mut group, &join("b"), Duration::ZERO).unwrap();
    send(&mut group, &beat("a", 1), SECOND).unwrap();
    send(&mut group, &owning("a", 1, &[0, 1, 2, 3]), 20 * SECOND).unwrap();
    group.tick(21 * SECOND);
    let unknown = Err(GroupError::UnknownMember("a".into()));
    assert_eq!(news(&mut group, &owning("a", 1, &[0, 1])), unknown);
    assert_eq!(
        news(&mut group, &beat("b", 2)),
        Ok((3, Some(vec![0, 1, 2, 3])))
    );
}

#[test]
fn an_epoch_that_the_group_never_gave_is_fenced() {
    // proves K1
    let mut group = group();
    news(&mut group, &join("a")).unwrap();
    let fenced = |received, current| Err(GroupError::FencedEpoch { received, current });
    assert_eq!(news(&mut group, &beat("a", 7)), fenced(7, 1));
    news(&mut group, &join("b")).unwrap();
    news(&mut group, &owning("a", 1, &[0, 1])).unwrap();
    assert_eq!(
        news(&mut group, &beat("a", 1)),
        fenced(1, 2),
        "without what it owns"
    );
    let missed = owning("a", 1, &[0, 1]);
    assert_eq!(
        news(&mut group, &missed),
        Ok((2, Some(vec![0, 1]))),
        "the response was lost"
    );
    assert_eq!(
        news(&mut group, &owning("a", 1, &[3])),
        fenced(1, 2),
        "it has what is not its own"
    );
    assert_eq!(
        news(&mut group, &join("a")),
        Ok((2, Some(vec![0, 1]))),
        "it joins again"
    );
}

#[test]
fn a_static_member_returns_to_its_partitions() {
    // proves K1
    let mut group = group();
    news(&mut group, &join_static("a")).unwrap();
    let unreleased = Err(GroupError::UnreleasedInstance("i".into()));
    assert_eq!(news(&mut group, &join_static("b")), unreleased);
    let away = Heartbeat {
        instance: Some("i".into()),
        ..beat("a", -2)
    };
    assert_eq!(news(&mut group, &away), Ok((-2, None)));
    assert_eq!(
        news(&mut group, &join_static("b")),
        Ok((1, Some(vec![0, 1, 2, 3])))
    );
    assert_eq!(group.epoch(), 1, "nobody else notices");
    let old = Heartbeat {
        instance: Some("i".into()),
        ..beat("a", 1)
    };
    assert_eq!(
        news(&mut group, &old),
        Err(GroupError::FencedInstance("i".into()))
    );
    assert!(group.member_record("a").is_none());
}

#[test]
fn only_a_whole_join_is_one() {
    let mut group = group();
    let cases = [
        Heartbeat {
            rebalance_timeout: None,
            ..join("a")
        },
        Heartbeat {
            names: None,
            ..join("a")
        },
        Heartbeat {
            owned: Some(set(&[1])),
            ..join("a")
        },
        Heartbeat {
            owned: None,
            ..join("a")
        },
        Heartbeat {
            instance: Some(String::new()),
            ..join("a")
        },
        join(""),
        beat("a", -2),
        beat("a", -3),
    ];
    for case in cases {
        let refused = news(&mut group, &case);
        assert!(
            matches!(refused, Err(GroupError::InvalidRequest(_))),
            "{case:?}"
        );
    }
    assert!(group.is_idle());
}

#[test]
fn a_commit_needs_the_epoch_of_its_member() {
    // proves K1, L6
    let mut group = group();
    let who = |member: &str, generation| Membership {
        group: "g".into(),
        generation,
        member: member.into(),
        instance: None,
    };
    assert_eq!(
        group.check_commit(&who("", -1), false),
        Ok(()),
        "without members anybody may"
    );
    news(&mut group, &join("a")).unwrap();
    assert_eq!(group.check_commit(&who("a", 1), false), Ok(()));
    let stale = GroupError::StaleEpoch {
        received: 0,
        current: 1,
    };
    assert_eq!(group.check_commit(&who("a", 0), false), Err(stale));
    let illegal = GroupError::IllegalGeneration {
        requested: 0,
        current: 1,
    };
    assert_eq!(group.check_commit(&who("a", 0), true), Err(illegal));
    assert_eq!(group.check_commit(&who("", -1), true), Ok(()));
    let unknown = GroupError::UnknownMember(String::new());
    assert_eq!(group.check_commit(&who("", -1), false), Err(unknown));
}

#[test]
fn members_and_their_bytes_are_limited() {
    // proves L6
    let options = Options {
        members_max: 1,
        group_bytes_max: 2000,
        ..Options::default()
    };
    let memory = MemberMemory::new(1500);
    let mut group = ConsumerGroup::new("g", 0, options, memory.clone());
    let long = Heartbeat {
        rack: Some("r".repeat(2000)),
        ..join("a")
    };
    assert!(matches!(
        news(&mut group, &long),
        Err(GroupError::TooLarge { .. })
    ));
    let long = Heartbeat {
        rack: Some("r".repeat(1000)),
        ..join("a")
    };
    assert_eq!(
        news(&mut group, &long),
        Err(GroupError::OutOfMemory { max: 1500 })
    );
    assert!(group.is_idle(), "nothing has changed");
    news(&mut group, &join("a")).unwrap();
    assert_eq!(news(&mut group, &join("b")), Err(GroupError::Full(1)));
    news(&mut group, &beat("a", -1)).unwrap();
    drop(group);
    assert!(memory.charge(1500).is_ok(), "everything is given back");
}

#[test]
fn the_assignor_of_most_members_is_used() {
    let mut group = group();
    let range = |member| Heartbeat {
        assignor: Some(super::Assignor::Range),
        ..join(member)
    };
    news(&mut group, &join("a")).unwrap();
    assert_eq!(group.info().protocol, "uniform");
    news(&mut group, &range("b")).unwrap();
    assert_eq!(
        group.info().protocol,
        "range",
        "those without a preference do not vote"
    );
}

#[test]
fn a_failed_store_is_repeated() {
    let mut group = group();
    news(&mut group, &join("a")).unwrap();
    let changes = group.take_changes();
    assert!(changes.group && changes.members.contains("a"));
    assert!(!group.has_changes());
    group.store_failed(changes.clone());
    news(&mut group, &beat("a", 1)).unwrap();
    assert_eq!(group.take_changes(), changes);
}
