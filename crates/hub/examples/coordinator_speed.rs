//! Measures the coordinators over a log in memory: commits, heartbeats, transactions.
//!
//! ```sh
//! cargo run --release -p highwater-hub --example coordinator_speed
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_env::{Clock, RealClock, random::Random, usage};
use highwater_hub::{groups, transactions};
use highwater_log::{
    GroupCoordinator, HubName, HubSettings, HubSpec, InitProducerRequest, JoinRequest, Log,
    Membership, MemoryLog, Offset, OffsetAndMetadata, OffsetCommit, SyncRequest, TopicPartition,
    TransactionCoordinator, TransactionRef,
};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let clock = Arc::new(RealClock::new());
    let log = Arc::new(MemoryLog::new(|| 0));
    let spec = HubSpec {
        name: topic_partition(0).hub,
        partitions: 100,
        settings: HubSettings::default(),
    };
    log.create(spec).await.expect("memory takes it");
    let (random, options) = (Random::seeded(1), groups::Options::default());
    let groups = groups::Service::new(log.clone(), clock.clone(), random, options);
    let handle = groups.handle();
    let options = transactions::Options::default();
    let service = transactions::Service::new(log, clock.clone(), handle.clone(), options);
    let transactions = service.handle();
    tokio::spawn(groups.run(std::future::pending()));
    tokio::spawn(service.run(std::future::pending()));
    tokio::task::yield_now().await;

    let member = lone_member(&handle).await;
    for (topic_partitions, rounds) in [(1, 100_000), (100, 5_000)] {
        let started = cpu(&*clock);
        for round in 0..rounds {
            let commit = commit(member.clone(), topic_partitions, round.into());
            handle
                .commit_offsets(commit)
                .await
                .expect("the member is alive");
        }
        let each = (cpu(&*clock) - started) / rounds;
        println!("commit of {topic_partitions:3} partitions  {each:?}");
    }
    let (rounds, started) = (500_000, cpu(&*clock));
    for _ in 0..rounds {
        let beat = handle.heartbeat(member.clone());
        beat.await.expect("the member is alive");
    }
    let each = (cpu(&*clock) - started) / rounds;
    println!("heartbeat             {each:?}");
    let (rounds, started) = (20_000, cpu(&*clock));
    transact(&transactions, rounds).await;
    let each = (cpu(&*clock) - started) / rounds;
    println!("transaction, 4 partitions {each:?}");
}

/// CPU time if the system reports it, otherwise elapsed time.
fn cpu(clock: &dyn Clock) -> Duration {
    usage().cpu.unwrap_or_else(|| clock.elapsed())
}

fn topic_partition(partition: u32) -> TopicPartition {
    let hub = HubName::new("toll").expect("a plain name");
    TopicPartition { hub, partition }
}

fn commit(member: Membership, topic_partitions: u32, offset: i64) -> OffsetCommit {
    let stored = OffsetAndMetadata {
        offset: Offset(offset),
        leader_epoch: -1,
        metadata: String::new(),
    };
    let offsets = (0..topic_partitions).map(|it| (topic_partition(it), stored.clone()));
    OffsetCommit {
        member,
        offsets: offsets.collect(),
    }
}

async fn lone_member(groups: &groups::Handle) -> Membership {
    let join = JoinRequest {
        group: "g".into(),
        member: String::new(),
        instance: None,
        client_id: "c".into(),
        client_host: "h".into(),
        session_timeout: Duration::from_secs(1800),
        rebalance_timeout: Duration::from_secs(60),
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::new())],
        expects_member_id: false,
    };
    let joined = groups.join(join).await.expect("the group is empty");
    let member = Membership {
        group: "g".into(),
        generation: joined.generation,
        member: joined.member,
        instance: None,
    };
    let sync = SyncRequest {
        member: member.clone(),
        protocol_type: None,
        protocol: None,
        assignments: Vec::new(),
    };
    groups.sync(sync).await.expect("it leads");
    member
}

async fn transact(transactions: &transactions::Handle, rounds: u32) {
    let id = "t".to_owned();
    let init = InitProducerRequest {
        transactional_id: Some(id.clone()),
        timeout: Duration::from_secs(60),
        current: None,
    };
    let producer = transactions.init_producer(init).await.expect("a new id");
    let transaction = TransactionRef { id, producer };
    for _ in 0..rounds {
        let topic_partitions = (0..4).map(topic_partition).collect();
        let added = transactions.add_partitions(transaction.clone(), topic_partitions);
        added.await.expect("the partitions exist");
        let ended = transactions.end(transaction.clone(), true);
        ended.await.expect("it is open");
    }
}
