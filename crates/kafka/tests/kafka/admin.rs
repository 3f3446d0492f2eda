//! Requests of admin tools and of the consumer protocol, in every announced version, as in `every_version`.
// proves L6

use highwater_log::Producer;
use highwater_log::batch::BatchOptions;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::*;

use crate::common::*;
use crate::every_version::{group, in_every_version};

#[tokio::test]
async fn groups_of_the_consumer_protocol() {
    // proves K1
    let server = start().await;
    let mut client = server.connect().await;
    let beat = |version, name: &str, member: &str| {
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group(name))
            .with_member_id(text(member))
            .with_rebalance_timeout_ms(10_000)
            .with_subscribed_topic_names(Some(vec![topic("t")]))
            .with_topic_partitions(Some(Vec::new()));
        match version {
            0 => request,
            _ => request.with_subscribed_topic_regex(Some(text("t.*"))),
        }
    };
    in_every_version(
        &mut client,
        |version| beat(version, "g", "m-1"),
        |_, response| {
            assert_eq!(response.error_code, 0);
            assert_eq!(response.member_epoch, 1);
            assert_eq!(response.heartbeat_interval_ms, 5000);
            let assignment = response.assignment.unwrap();
            assert_eq!(assignment.topic_partitions[0].partitions, [0, 1]);
        },
    )
    .await;
    in_every_version(
        &mut client,
        |version| beat(version, "full", "m-1"),
        |_, response| {
            assert_eq!(response.error_code, 81);
            assert!(response.error_message.is_some());
        },
    )
    .await;
    in_every_version(
        &mut client,
        |version| beat(version, "g", ""),
        |version, response| {
            assert_eq!(response.error_code, if version >= 1 { 42 } else { 0 });
        },
    )
    .await;
}

#[tokio::test]
async fn groups_of_the_consumer_protocol_are_described_and_have_epochs() {
    // proves K1
    let server = start().await;
    let mut client = server.connect().await;
    let describe = |_| {
        ConsumerGroupDescribeRequest::default()
            .with_group_ids(["modern", "readers", "nobody"].map(group).to_vec())
            .with_include_authorized_operations(true)
    };
    in_every_version(&mut client, describe, |version, response| {
        let codes: Vec<i16> = response
            .groups
            .iter()
            .map(|group| group.error_code)
            .collect();
        assert_eq!(codes, [0, 69, 69]);
        let group = &response.groups[0];
        assert_eq!((group.group_epoch, group.assignment_epoch), (5, 4));
        assert_eq!(group.members[0].member_epoch, 3);
        assert_eq!(
            group.members[0].member_type,
            if version >= 1 { 1 } else { -1 }
        );
    })
    .await;
    let fetch = |epoch| {
        let of_group = offset_fetch_request::OffsetFetchRequestGroup::default()
            .with_group_id(group("modern"))
            .with_member_id(Some(text("m-1")))
            .with_member_epoch(epoch)
            .with_topics(None);
        OffsetFetchRequest::default().with_groups(vec![of_group])
    };
    assert_eq!(client.call(9, &fetch(1)).await.groups[0].error_code, 0);
    let stale = Code::StaleMemberEpoch.code();
    assert_eq!(client.call(9, &fetch(0)).await.groups[0].error_code, stale);
}

#[tokio::test]
async fn nothing_is_elected_or_moved_on_one_node() {
    let server = start().await;
    server.make("t", 2).await;
    let mut client = server.connect().await;
    let of_topic = |name: &str| {
        elect_leaders_request::TopicPartitions::default()
            .with_topic(topic(name))
            .with_partitions(vec![0, 7])
    };
    let elect = |version| {
        let request = ElectLeadersRequest::default()
            .with_topic_partitions(Some(vec![of_topic("t"), of_topic("nowhere")]));
        match version {
            0 => request.with_election_type(0),
            _ => request.with_election_type(1),
        }
    };
    in_every_version(&mut client, elect, |_, response| {
        let codes = |at: usize| {
            let partitions = response.replica_election_results[at]
                .partition_result
                .iter();
            partitions.map(|one| one.error_code).collect::<Vec<_>>()
        };
        assert_eq!(
            (response.error_code, codes(0), codes(1)),
            (0, vec![84, 3], vec![3, 3])
        );
    })
    .await;
    let replicas = |index: i32, replicas: Option<Vec<i32>>| {
        alter_partition_reassignments_request::ReassignablePartition::default()
            .with_partition_index(index)
            .with_replicas(replicas.map(|ids| ids.into_iter().map(BrokerId).collect()))
    };
    let alter = |_| {
        let of_topic = alter_partition_reassignments_request::ReassignableTopic::default()
            .with_name(topic("t"))
            .with_partitions(vec![
                replicas(0, Some(vec![1])),
                replicas(1, Some(vec![1, 2])),
                replicas(1, None),
                replicas(9, Some(vec![1])),
            ]);
        AlterPartitionReassignmentsRequest::default().with_topics(vec![of_topic])
    };
    in_every_version(&mut client, alter, |_, response| {
        let partitions = response.responses[0].partitions.iter();
        let codes: Vec<i16> = partitions.map(|one| one.error_code).collect();
        assert_eq!(codes, [0, 39, 85, 3]);
    })
    .await;
    let list = |_| ListPartitionReassignmentsRequest::default();
    in_every_version(&mut client, list, |_, response| {
        assert!(response.error_code == 0 && response.topics.is_empty());
    })
    .await;
}

#[tokio::test]
async fn topic_partitions_come_in_pages() {
    let server = start().await;
    for (name, partitions) in [("a", 3), ("b", 1), ("c", 2)] {
        server.make(name, partitions).await;
    }
    let mut client = server.connect().await;
    let mut request = DescribeTopicPartitionsRequest::default().with_response_partition_limit(2);
    let mut pages = Vec::new();
    loop {
        let response = client.call(0, &request).await;
        pages.push(
            (response.topics.iter())
                .flat_map(|topic| {
                    let name = topic.name.as_ref().unwrap().to_string();
                    let partitions = topic.partitions.iter();
                    partitions.map(move |one| format!("{name}{}", one.partition_index))
                })
                .collect::<Vec<_>>()
                .join(" "),
        );
        let Some(next) = response.next_cursor else {
            break;
        };
        let cursor = describe_topic_partitions_request::Cursor::default()
            .with_topic_name(next.topic_name)
            .with_partition_index(next.partition_index);
        request = request.with_cursor(Some(cursor));
    }
    assert_eq!(pages, ["a0 a1", "a2 b0", "c0 c1"]);
    let named = |name: &str| {
        describe_topic_partitions_request::TopicRequest::default().with_name(topic(name))
    };
    let some = |_| {
        DescribeTopicPartitionsRequest::default()
            .with_topics(["c", "nowhere", "bad name"].map(named).to_vec())
            .with_response_partition_limit(100)
    };
    in_every_version(&mut client, some, |_, response| {
        let codes: Vec<i16> = response
            .topics
            .iter()
            .map(|topic| topic.error_code)
            .collect();
        assert_eq!(codes, [17, 0, 3]);
        assert_eq!(response.topics[1].partitions.len(), 2);
        let partition = &response.topics[1].partitions[0];
        assert_eq!(partition.eligible_leader_replicas, Some(vec![]));
        assert_eq!(partition.last_known_elr, Some(vec![]));
        assert_eq!(response.topics[1].topic_authorized_operations, 3576);
    })
    .await;
}

#[tokio::test]
async fn resources_and_transactions_are_listed() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    let list = |_| ListConfigResourcesRequest::default();
    in_every_version(&mut client, list, |version, response| {
        let resources = response.config_resources.iter();
        let found: Vec<_> = resources
            .map(|one| (one.resource_type, one.resource_name.to_string()))
            .collect();
        match version {
            0 => assert_eq!(found, []),
            _ => assert_eq!(found, [(2, "t".to_owned()), (4, "1".to_owned())]),
        }
    })
    .await;
    let unknown = ListConfigResourcesRequest::default().with_resource_types(vec![2, 99]);
    assert_eq!(client.call(1, &unknown).await.error_code, 35);
    let transactions = |_| ListTransactionsRequest::default().with_duration_filter(-1);
    in_every_version(&mut client, transactions, |_, response| {
        assert_eq!(&**response.transaction_states[0].transactional_id, "mine");
        assert_eq!(
            &*response.transaction_states[0].transaction_state,
            "Ongoing"
        );
    })
    .await;
    let filtered = ListTransactionsRequest::default()
        .with_state_filters(vec![text("Empty"), text("Lost")])
        .with_duration_filter(-1);
    let response = client.call(1, &filtered).await;
    assert!(response.transaction_states.is_empty());
    assert_eq!(response.unknown_state_filters, [text("Lost")]);
    for (pattern, count) in [("m.*e", 1), ("min", 0), ("other|mine", 1)] {
        let matching = ListTransactionsRequest::default()
            .with_duration_filter(-1)
            .with_transactional_id_pattern(Some(text(pattern)));
        let response = client.call(2, &matching).await;
        assert_eq!(response.transaction_states.len(), count, "{pattern}");
    }
    let invalid =
        ListTransactionsRequest::default().with_transactional_id_pattern(Some(text("a)(b")));
    assert_eq!(client.call(2, &invalid).await.error_code, 128);
    let describe = |_| {
        DescribeTransactionsRequest::default()
            .with_transactional_ids(vec![transactional("mine"), transactional("nobody")])
    };
    in_every_version(&mut client, describe, |_, response| {
        let [mine, nobody] = &response.transaction_states[..] else {
            panic!("{response:?}");
        };
        assert_eq!(mine.topics[0].partitions, [0, 3]);
        assert_eq!(
            (mine.transaction_start_time_ms, mine.producer_epoch),
            (1000, 2)
        );
        assert_eq!(nobody.error_code, 105);
    })
    .await;
}

#[tokio::test]
async fn a_partition_can_be_moved_to_where_it_is() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    for (path, codes) in [("data", [0, 3]), ("/elsewhere", [57, 3])] {
        let request = |_| {
            let of_topic = alter_replica_log_dirs_request::AlterReplicaLogDirTopic::default()
                .with_name(topic("t"))
                .with_partitions(vec![0, 9]);
            let folder = alter_replica_log_dirs_request::AlterReplicaLogDir::default()
                .with_path(text(path))
                .with_topics(vec![of_topic]);
            AlterReplicaLogDirsRequest::default().with_dirs(vec![folder])
        };
        in_every_version(&mut client, request, |_, response| {
            let partitions = &response.results[0].partitions;
            assert_eq!([0, 1].map(|at| partitions[at].error_code), codes);
        })
        .await;
    }
}

#[tokio::test]
async fn the_hubs_of_the_coordinators_have_the_names_that_kafka_has() {
    // proves K4
    let server = start().await;
    let groups = server.make("__groups", 2).await;
    server.make("__transactions", 1).await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    let all = MetadataRequest::default().with_topics(None);
    let response = client.call(12, &all).await;
    let names: Vec<_> = (response.topics.iter())
        .map(|topic| (topic.name.as_ref().unwrap().to_string(), topic.is_internal))
        .collect();
    let expected = [
        ("__consumer_offsets", true),
        ("__transaction_state", true),
        ("t", false),
    ];
    assert_eq!(names, expected.map(|(name, own)| (name.to_owned(), own)));
    let named = metadata_request::MetadataRequestTopic::default()
        .with_name(Some(topic("__consumer_offsets")));
    let one = MetadataRequest::default().with_topics(Some(vec![named]));
    let response = client.call(12, &one).await;
    assert_eq!(response.topics[0].error_code, 0);
    assert_eq!(response.topics[0].partitions.len(), 2);
    let id = uuid::Uuid::from_bytes(groups.id.0);
    assert_eq!(response.topics[0].topic_id, id);
    let partition = list_offsets_request::ListOffsetsPartition::default().with_timestamp(-1);
    let of_topic = list_offsets_request::ListOffsetsTopic::default()
        .with_name(topic("__consumer_offsets"))
        .with_partitions(vec![partition]);
    let offsets = ListOffsetsRequest::default().with_topics(vec![of_topic]);
    let response = client.call(7, &offsets).await;
    assert_eq!(response.topics[0].partitions[0].error_code, 0);
}

#[tokio::test]
async fn a_cluster_is_recognized_by_the_id_of_its_hub() {
    let of_hub = |options: &mut highwater_kafka::Options, _: &mut highwater_kafka::Services| {
        options.cluster_id = highwater_kafka::ClusterId::OfHub("first");
    };
    let server = start_with(of_hub).await;
    let mut client = server.connect().await;
    let cluster_id = client.call(9, &MetadataRequest::default()).await.cluster_id;
    assert_eq!(cluster_id, None, "the hub is not there yet");
    server.make("first", 1).await;
    let cluster_id = client.call(9, &MetadataRequest::default()).await.cluster_id;
    let described = client
        .call(1, &DescribeClusterRequest::default().with_endpoint_type(1))
        .await;
    assert_eq!(cluster_id.as_ref(), Some(&described.cluster_id));
    assert_eq!(
        described.cluster_id.len(),
        22,
        "base64 of 16 bytes, as Kafka writes it"
    );
}

#[tokio::test]
async fn the_disk_and_the_producers_of_a_partition_are_described() {
    let server = start().await;
    let hub = server.make("t", 2).await;
    let mut client = server.connect().await;
    client
        .call(9, &produce(&hub, 9, -1, &[(0, batch(&["a"]))]))
        .await;
    let of_topic = describe_log_dirs_request::DescribableLogDirTopic::default()
        .with_topic(topic("t"))
        .with_partitions(vec![0, 1, 9]);
    for topics in [None, Some(vec![of_topic])] {
        let dirs = |_| DescribeLogDirsRequest::default().with_topics(topics.clone());
        in_every_version(&mut client, dirs, |_, response| {
            let partitions = &response.results[0].topics[0].partitions;
            let sizes: Vec<i64> = partitions.iter().map(|one| one.partition_size).collect();
            assert!(
                sizes.len() == 2 && sizes[0] > 0 && sizes[1] == 0,
                "{sizes:?}"
            );
        })
        .await;
    }
    let options = BatchOptions {
        producer: Some((Producer { id: 4, epoch: 1 }, 0)),
        ..BatchOptions::default()
    };
    let numbered = batch_with(&["a", "b"], &options);
    client
        .call(9, &produce(&hub, 9, -1, &[(1, numbered)]))
        .await;
    let describe = |_| {
        let of_topic = describe_producers_request::TopicRequest::default()
            .with_name(topic("t"))
            .with_partition_indexes(vec![0, 1, 9]);
        DescribeProducersRequest::default().with_topics(vec![of_topic])
    };
    in_every_version(&mut client, describe, |_, response| {
        let [none, one, unknown] = &response.topics[0].partitions[..] else {
            panic!("{response:?}");
        };
        assert!(none.active_producers.is_empty());
        let producer = &one.active_producers[0];
        assert_eq!((producer.producer_epoch, producer.last_sequence), (1, 1));
        assert_eq!(producer.current_txn_start_offset, -1);
        assert_eq!(unknown.error_code, 3);
    })
    .await;
}
