//! A node's part of a cluster: a prefix before its topics, groups and transactional ids.
// proves X1

use std::time::Duration;

use bytes::Bytes;
use highwater_kafka::client::{ClusterNames, Options, Remote};
use highwater_log::{
    AdminError, GroupCoordinator, GroupError, InitProducerRequest, Isolation, JoinRequest, Log,
    Membership, Offset, OffsetAndMetadata, OffsetCommit, SyncRequest, TransactionCoordinator,
    TransactionRef,
};

use crate::cluster::*;

async fn node(cluster: &TestCluster, prefix: &str) -> Remote {
    let names = ClusterNames::of_node(prefix);
    connect(Options {
        names,
        ..cluster.options()
    })
    .await
    .unwrap()
}

fn hubs(remote: &Remote) -> Vec<String> {
    let hubs = remote.hubs();
    hubs.iter().map(|hub| hub.name.to_string()).collect()
}

#[tokio::test]
async fn a_node_has_the_topics_with_its_prefix() {
    let cluster = cluster().await;
    cluster.log.create(spec("orders", 1)).await.unwrap();
    cluster.log.create(spec("b.orders", 1)).await.unwrap();
    let node = node(&cluster, "a.").await;
    assert_eq!(hubs(&node), [""; 0]);
    node.create(spec("orders", 1)).await.unwrap();
    node.create(spec("__queue.jobs", 1)).await.unwrap();
    assert_eq!(hubs(&node), ["__queue.jobs", "orders"]);
    for (hub, topic) in [
        ("orders", "a.orders"),
        ("__queue.jobs", "a._highwater.queue.jobs"),
    ] {
        let partition = node.partition(hub, 0).unwrap();
        assert_eq!(partition.topic_partition().hub.as_str(), hub);
        assert_eq!(append(&partition, &["x"]).await, 0);
        assert_eq!(stored(&cluster, topic, 0).await, ["x"]);
        let fetched = partition.read(Offset(0), 1 << 20, Isolation::Committed);
        assert_eq!(contents(&fetched.await.unwrap()).len(), 1);
        partition.wait_past(Offset(0), Isolation::Committed).await;
        assert_eq!(partition.trim(Offset(1)).await, Ok(Offset(1)));
    }
    node.grow(&name("orders"), 3).await.unwrap();
    assert_eq!(cluster.log.hub("a.orders").unwrap().partitions, 3);
    let mut settings = node.hub("orders").unwrap().settings.clone();
    settings.retention = Some(Duration::from_secs(60));
    node.change(&name("orders"), settings.clone())
        .await
        .unwrap();
    let changed = cluster.log.hub("a.orders").unwrap();
    assert!(changed.settings.has_values_of(&settings), "{changed:?}");
    Log::delete(&node, &name("orders")).await.unwrap();
    assert!(cluster.log.hub("a.orders").is_none());
    assert!(cluster.log.hub("orders").is_some());
    let taken = node.create(spec("_highwater.x", 1)).await;
    assert!(matches!(taken, Err(AdminError::Settings(_))), "{taken:?}");
}

/// A subscription of Kafka's consumer protocol, version 0.
fn subscription(topic: &str) -> Bytes {
    let length = (topic.len() as u16).to_be_bytes();
    let parts = [
        &[0, 0, 0, 0, 0, 1][..],
        &length,
        topic.as_bytes(),
        &[0xff; 4],
    ];
    parts.concat().into()
}

fn assignment(topic: &str) -> Bytes {
    let length = (topic.len() as u16).to_be_bytes();
    let parts = [
        &[0, 0, 0, 0, 0, 1][..],
        &length,
        topic.as_bytes(),
        &[0, 0, 0, 1, 0, 0, 0, 0],
        &[0xff; 4],
    ];
    parts.concat().into()
}

fn join(group: &str, member: &str, topic: &str) -> JoinRequest {
    JoinRequest {
        group: group.into(),
        member: member.into(),
        instance: None,
        client_id: "test".into(),
        client_host: String::new(),
        session_timeout: Duration::from_secs(30),
        rebalance_timeout: Duration::from_secs(30),
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), subscription(topic))],
        expects_member_id: true,
    }
}

#[tokio::test]
async fn a_group_of_a_node_has_the_prefix_too_and_its_members_name_topics() {
    let cluster = cluster().await;
    let (node, program) = (node(&cluster, "a.").await, cluster.remote().await);
    node.create(spec("orders", 1)).await.unwrap();
    let Err(GroupError::MemberIdRequired { member }) =
        node.join(join("billing", "", "orders")).await
    else {
        panic!("a new member gets an id first");
    };
    let joined = node.join(join("billing", &member, "orders")).await.unwrap();
    assert_eq!(joined.members[0].metadata, subscription("orders"));
    let membership = Membership {
        group: "billing".into(),
        generation: joined.generation,
        member,
        instance: None,
    };
    let synced = node.sync(SyncRequest {
        member: membership.clone(),
        protocol_type: Some("consumer".into()),
        protocol: Some("range".into()),
        assignments: vec![(membership.member.clone(), assignment("orders"))],
    });
    assert_eq!(synced.await.unwrap().assignment, assignment("orders"));
    let offset = OffsetAndMetadata {
        offset: Offset(7),
        leader_epoch: -1,
        metadata: String::new(),
    };
    let commit = OffsetCommit {
        member: membership.clone(),
        offsets: vec![(topic_partition("orders", 0), offset)],
    };
    node.commit_offsets(commit).await.unwrap();
    node.heartbeat(membership).await.unwrap();

    let on_the_cluster = program.describe("a.billing".into()).await.unwrap();
    assert_eq!(on_the_cluster.members[0].metadata, subscription("a.orders"));
    assert_eq!(on_the_cluster.members[0].assignment, assignment("a.orders"));
    let stored = program.fetch_offsets("a.billing".into(), None, false).await;
    assert_eq!(stored.unwrap()[0].0, topic_partition("a.orders", 0));
    let own = node.list().await;
    assert_eq!(own.len(), 1);
    assert_eq!((own[0].group.as_str(), own[0].members), ("billing", 1));
    let billing = node.describe("billing".into()).await.unwrap();
    assert_eq!(billing.members[0].assignment, assignment("orders"));
    let stored = node
        .fetch_offsets("billing".into(), None, false)
        .await
        .unwrap();
    assert_eq!(stored[0].0, topic_partition("orders", 0));
    let wanted = Some(vec![topic_partition("orders", 0)]);
    let stored = node
        .fetch_offsets("billing".into(), wanted, false)
        .await
        .unwrap();
    assert_eq!(stored[0].1.as_ref().unwrap().offset, Offset(7));
}

#[tokio::test]
async fn a_transaction_of_a_node_writes_to_its_topics() {
    let cluster = cluster().await;
    let node = node(&cluster, "a.").await;
    node.create(spec("orders", 1)).await.unwrap();
    let request = InitProducerRequest {
        transactional_id: Some("t".into()),
        timeout: Duration::from_secs(60),
        current: None,
    };
    let producer = node.init_producer(request).await.unwrap();
    let transaction = TransactionRef {
        id: "t".into(),
        producer,
    };
    let partitions = vec![topic_partition("orders", 0)];
    let added = node.add_partitions(transaction.clone(), partitions);
    added.await.unwrap();
    let partition = node.partition("orders", 0).unwrap();
    let appended = TransactionCoordinator::append(
        &node,
        &transaction,
        &partition,
        batch(&["x"], Some((producer, 0)), true),
    );
    appended.await.unwrap();
    node.end(transaction, true).await.unwrap();
    assert_eq!(stored(&cluster, "a.orders", 0).await, ["x"]);
}
