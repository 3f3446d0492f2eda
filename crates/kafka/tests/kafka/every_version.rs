//! Every request in every announced version, from the codec's client side through the handlers and back. The codec
//! refuses to encode a response with a field that its version does not have, which would close the connection.
// proves L6

use crate::common::*;
use bytes::Bytes;
use highwater_log::batch::BatchOptions;
use highwater_log::{Producer, TransactionMarker};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use uuid::Uuid;

/// Sends the request in each of the versions, which must be those announced.
pub(crate) async fn in_every_version<R: Request>(
    client: &mut Client,
    request: impl Fn(i16) -> R,
    check: impl Fn(i16, R::Response),
) {
    let announced = client.call(3, &ApiVersionsRequest::default()).await;
    let range = announced.api_keys.iter().find(|api| api.api_key == R::KEY);
    let range = range.expect("it is announced");
    let first = if R::KEY == 0 { 3 } else { range.min_version };
    for version in first..=range.max_version {
        let response = client.call(version, &request(version)).await;
        check(version, response);
    }
}

fn id_of(hub: &highwater_log::HubInfo) -> Uuid {
    Uuid::from_bytes(hub.id.0)
}

#[tokio::test]
async fn api_versions() {
    let server = start().await;
    let mut client = server.connect().await;
    let request = |version| match version >= 3 {
        true => ApiVersionsRequest::default()
            .with_client_software_name(text("test"))
            .with_client_software_version(text("1")),
        false => ApiVersionsRequest::default(),
    };
    in_every_version(&mut client, request, |version, response| {
        assert_eq!(response.error_code, 0);
        let features: Vec<_> = (response.finalized_features.iter())
            .map(|feature| (feature.name.to_string(), feature.max_version_level))
            .collect();
        let expected = [
            ("group.version".to_owned(), 1),
            ("transaction.version".to_owned(), 2),
        ];
        assert_eq!(features, expected[..if version >= 3 { 2 } else { 0 }]);
        // Clients before version 4 refuse features that begin at 0.
        let supported = response.supported_features.len();
        assert_eq!(supported, if version >= 4 { 2 } else { 0 });
        let produce = response.api_keys.iter().find(|api| api.api_key == 0);
        let produce = produce.map(|api| (api.min_version, api.max_version));
        assert_eq!(produce, Some((0, 13)));
        assert_eq!(response.api_keys.len(), 55);
    })
    .await;
}

#[tokio::test]
async fn metadata_by_name_by_id_and_of_unknown_topics() {
    let server = start_with(|options, _| options.auto_create = false).await;
    let hub = server.make("t", 2).await;
    let mut client = server.connect().await;
    let wanted = metadata_request::MetadataRequestTopic::default;
    let request = |version| {
        let mut topics = ["t", "nowhere", "bad name"]
            .map(|name| wanted().with_name(Some(topic(name))))
            .to_vec();
        if version >= 10 {
            topics.push(wanted().with_name(None).with_topic_id(id_of(&hub)));
            topics.push(wanted().with_name(None).with_topic_id(Uuid::from_u128(99)));
        }
        MetadataRequest::default()
            .with_topics(Some(topics))
            .with_include_cluster_authorized_operations((8..=10).contains(&version))
            .with_include_topic_authorized_operations(version >= 8)
    };
    in_every_version(&mut client, request, |version, response| {
        assert_eq!(response.brokers.len(), 1);
        let codes: Vec<i16> = response
            .topics
            .iter()
            .map(|topic| topic.error_code)
            .collect();
        assert_eq!(codes[..3], [0, 3, 17]);
        assert_eq!(response.topics[0].partitions.len(), 2);
        if version >= 10 {
            assert_eq!(codes[3..], [0, 100]);
            assert_eq!(response.topics[0].topic_id, id_of(&hub));
        }
    })
    .await;
}

#[tokio::test]
async fn produce_to_a_known_and_an_unknown_hub() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    let request = |version| {
        produce(
            &hub,
            version,
            -1,
            &[(0, batch(&["a", "b"])), (5, batch(&["c"]))],
        )
    };
    in_every_version(&mut client, request, |version, response| {
        let answers = &response.responses[0].partition_responses;
        let offset = 2 * i64::from(version - 3);
        assert_eq!((answers[0].error_code, answers[0].base_offset), (0, offset));
        assert_eq!(answers[0].log_append_time_ms, 1_000);
        assert_eq!((answers[1].error_code, answers[1].base_offset), (3, -1));
        assert_eq!(answers[1].error_message.is_some(), version >= 8);
    })
    .await;
}

/// A hub with a committed record, an aborted one and an open transaction.
async fn with_transactions(server: &TestServer) -> std::sync::Arc<highwater_log::HubInfo> {
    let hub = server.make("t", 1).await;
    let partition = server.log.partition("t", 0).unwrap();
    for (id, marker) in [
        (1, Some(TransactionMarker::Commit)),
        (2, Some(TransactionMarker::Abort)),
        (3, None),
    ] {
        let producer = Producer { id, epoch: 0 };
        let seal = BatchOptions {
            producer: Some((producer, 0)),
            transactional: true,
            ..BatchOptions::default()
        };
        let (batch, _) = highwater_log::batch::Batch::parse(batch_with(&["x"], &seal)).unwrap();
        partition.append(batch).await.unwrap();
        if let Some(marker) = marker {
            partition.append_marker(producer, marker).await.unwrap();
        }
    }
    hub
}

fn fetch(hub: &highwater_log::HubInfo, version: i16, from: i64, isolation: i8) -> FetchRequest {
    let partition = |index| {
        fetch_request::FetchPartition::default()
            .with_partition(index)
            .with_fetch_offset(from)
            .with_partition_max_bytes(1 << 20)
    };
    let of_topic =
        fetch_request::FetchTopic::default().with_partitions(vec![partition(0), partition(9)]);
    let of_topic = match version >= 13 {
        true => of_topic.with_topic_id(id_of(hub)),
        false => of_topic.with_topic(topic(hub.name.as_str())),
    };
    FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_isolation_level(isolation)
        .with_topics(vec![of_topic])
}

#[tokio::test]
async fn fetch_of_committed_records_returns_aborted_transactions() {
    let server = start().await;
    let hub = with_transactions(&server).await;
    let mut client = server.connect().await;
    in_every_version(
        &mut client,
        |version| fetch(&hub, version, 0, 1),
        |version, response| {
            let found = &response.responses[0].partitions;
            assert_eq!((found[0].error_code, found[1].error_code), (0, 3));
            assert_eq!(
                (found[0].high_watermark, found[0].last_stable_offset),
                (5, 4)
            );
            let aborted = found[0].aborted_transactions.as_ref().unwrap();
            assert_eq!((aborted[0].producer_id.0, aborted[0].first_offset), (2, 2));
            // Two records and their markers, not the open one.
            assert_eq!(batches(found[0].records.clone().unwrap()), 4);
            assert_eq!(found[1].records, Some(Bytes::new()));
            assert_eq!(response.responses[0].topic.is_empty(), version >= 13);
        },
    )
    .await;
}

#[tokio::test]
async fn fetch_at_the_end_is_empty_and_not_null() {
    let server = start().await;
    let hub = with_transactions(&server).await;
    let mut client = server.connect().await;
    in_every_version(
        &mut client,
        |version| fetch(&hub, version, 5, 0),
        |_, response| {
            let found = &response.responses[0].partitions[0];
            assert_eq!((found.error_code, &found.records), (0, &Some(Bytes::new())));
        },
    )
    .await;
}

fn batches(mut records: Bytes) -> usize {
    let mut count = 0;
    while !records.is_empty() {
        let header = highwater_log::batch::BatchHeader::read(&records).unwrap();
        records = records.split_off(header.size().unwrap());
        count += 1;
    }
    count
}

#[tokio::test]
async fn list_offsets_of_ends_and_times() {
    let server = start().await;
    with_transactions(&server).await;
    let mut client = server.connect().await;
    let request = |version| {
        let requested = [-1, -2, -3, -4, 0, 5_000]
            .map(|time| list_offsets_request::ListOffsetsPartition::default().with_timestamp(time));
        let of_topic = list_offsets_request::ListOffsetsTopic::default()
            .with_name(topic("t"))
            .with_partitions(requested.to_vec());
        ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(if version >= 2 { 1 } else { 0 })
            .with_topics(vec![of_topic])
    };
    in_every_version(&mut client, request, |version, response| {
        let found = response.topics[0].partitions.iter();
        let offsets: Vec<i64> = found.map(|found| found.offset).collect();
        let end = if version >= 2 { 4 } else { 5 };
        assert_eq!(offsets, [end, 0, 0, 0, 0, -1]);
    })
    .await;
}

#[tokio::test]
async fn find_coordinator() {
    let server = start().await;
    let mut client = server.connect().await;
    let request = |version| match version {
        0..4 => FindCoordinatorRequest::default().with_key(text("readers")),
        _ => FindCoordinatorRequest::default()
            .with_key_type(1)
            .with_coordinator_keys(vec![text("a"), text("b")]),
    };
    in_every_version(&mut client, request, |version, response| match version {
        0..4 => assert_eq!((response.error_code, response.node_id.0), (0, 1)),
        _ => assert!(
            response
                .coordinators
                .iter()
                .all(|one| one.node_id.0 == 1 && one.port > 0)
        ),
    })
    .await;
}

pub(crate) fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

#[tokio::test]
async fn join_group_with_and_without_a_member_id() {
    let server = start().await;
    let mut client = server.connect().await;
    for (name, member, code) in [
        ("readers", "m-1", 0),
        ("full", "m-1", 81),
        ("readers", "", 79),
    ] {
        let request = |version| {
            let protocol = join_group_request::JoinGroupRequestProtocol::default()
                .with_name(text("range"))
                .with_metadata(Bytes::from_static(b"metadata"));
            let request = JoinGroupRequest::default()
                .with_group_id(group(name))
                .with_session_timeout_ms(10_000)
                .with_member_id(text(member))
                .with_protocol_type(text("consumer"))
                .with_protocols(vec![protocol]);
            match version >= 1 {
                true => request.with_rebalance_timeout_ms(10_000),
                false => request,
            }
        };
        in_every_version(&mut client, request, |version, response| {
            if code == 79 && version < 4 {
                return assert_eq!(response.error_code, 0);
            }
            assert_eq!(response.error_code, code);
            match code {
                0 => assert_eq!(&response.members[0].metadata[..], b"metadata"),
                _ => assert_eq!(response.protocol_name.is_none(), version >= 7),
            }
            assert_eq!(&*response.member_id, "m-1");
        })
        .await;
    }
}

#[tokio::test]
async fn a_leader_that_rejoins_makes_no_assignment() {
    let server = start().await;
    let mut client = server.connect().await;
    let request = |version| {
        let instance = (version >= 5).then(|| text("i-1"));
        let protocol = join_group_request::JoinGroupRequestProtocol::default();
        JoinGroupRequest::default()
            .with_group_id(group("readers"))
            .with_session_timeout_ms(10_000)
            .with_rebalance_timeout_ms(if version >= 1 { 10_000 } else { -1 })
            .with_member_id(text("m-1"))
            .with_group_instance_id(instance)
            .with_protocols(vec![protocol])
    };
    in_every_version(&mut client, request, |version, response| {
        let (leader, members) = match version {
            // Without an instance id it is a new member.
            0..5 => ("m-1", 1),
            5..9 => ("m-0", 0),
            _ => ("m-1", 1),
        };
        assert_eq!(
            (&*response.leader, response.members.len()),
            (leader, members)
        );
        assert_eq!(response.skip_assignment, version >= 9);
    })
    .await;
}

#[tokio::test]
async fn sync_heartbeat_and_leave() {
    let server = start().await;
    let mut client = server.connect().await;
    let sync = |_| {
        let assignment = sync_group_request::SyncGroupRequestAssignment::default()
            .with_member_id(text("m-1"))
            .with_assignment(Bytes::from_static(b"mine"));
        SyncGroupRequest::default()
            .with_group_id(group("readers"))
            .with_assignments(vec![assignment])
    };
    in_every_version(&mut client, sync, |version, response| {
        assert_eq!(
            (response.error_code, &response.assignment[..]),
            (0, &b"mine"[..])
        );
        assert_eq!(response.protocol_name.is_some(), version >= 5);
    })
    .await;
    let beat = |_| HeartbeatRequest::default().with_group_id(group("full"));
    in_every_version(&mut client, beat, |_, response| {
        assert_eq!(response.error_code, 81)
    })
    .await;
    let leave = |version| match version {
        0..3 => LeaveGroupRequest::default()
            .with_group_id(group("readers"))
            .with_member_id(text("m-2")),
        _ => {
            let who = |member| {
                leave_group_request::MemberIdentity::default().with_member_id(text(member))
            };
            LeaveGroupRequest::default()
                .with_group_id(group("readers"))
                .with_members(vec![who("m-1"), who("m-2")])
        }
    };
    in_every_version(&mut client, leave, |version, response| match version {
        0..3 => assert_eq!(response.error_code, 25),
        _ => assert_eq!([0, 1].map(|at| response.members[at].error_code), [0, 25]),
    })
    .await;
}

#[tokio::test]
async fn offsets_are_committed_and_fetched() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    let commit = |_| {
        let of_partition = |index| {
            offset_commit_request::OffsetCommitRequestPartition::default()
                .with_partition_index(index)
                .with_committed_offset(42)
        };
        let of_topic = offset_commit_request::OffsetCommitRequestTopic::default()
            .with_name(topic("t"))
            .with_partitions(vec![of_partition(0), of_partition(1)]);
        OffsetCommitRequest::default()
            .with_group_id(group("readers"))
            .with_topics(vec![of_topic])
    };
    in_every_version(&mut client, commit, |_, response| {
        let codes = response.topics[0]
            .partitions
            .iter()
            .map(|one| one.error_code);
        assert_eq!(codes.collect::<Vec<_>>(), [0, 3]);
    })
    .await;
    let fetch = |version| match version {
        1..8 => OffsetFetchRequest::default()
            .with_group_id(group("readers"))
            .with_topics(Some(vec![
                offset_fetch_request::OffsetFetchRequestTopic::default()
                    .with_name(topic("t"))
                    .with_partition_indexes(vec![0, 1]),
            ])),
        _ => OffsetFetchRequest::default().with_groups(vec![
            offset_fetch_request::OffsetFetchRequestGroup::default()
                .with_group_id(group("readers"))
                .with_topics(None),
            offset_fetch_request::OffsetFetchRequestGroup::default()
                .with_group_id(group("full"))
                .with_topics(None),
        ]),
    };
    in_every_version(&mut client, fetch, |version, response| match version {
        1..8 => {
            let found = &response.topics[0].partitions;
            assert_eq!([0, 1].map(|at| found[at].committed_offset), [42, -1]);
            assert_eq!([0, 1].map(|at| found[at].error_code), [0, 0]);
        }
        _ => {
            assert_eq!(
                response.groups[0].topics[0].partitions[0].committed_offset,
                42
            );
            assert_eq!(response.groups[1].error_code, 81);
        }
    })
    .await;
    let delete = |_| {
        let of_partition = offset_delete_request::OffsetDeleteRequestPartition::default();
        let of_topic = offset_delete_request::OffsetDeleteRequestTopic::default()
            .with_name(topic("t"))
            .with_partitions(vec![of_partition]);
        OffsetDeleteRequest::default()
            .with_group_id(group("readers"))
            .with_topics(vec![of_topic])
    };
    in_every_version(&mut client, delete, |_, response| {
        assert_eq!(response.topics[0].partitions[0].error_code, 0);
    })
    .await;
}

#[tokio::test]
async fn groups_are_described_listed_and_deleted() {
    let server = start().await;
    let mut client = server.connect().await;
    let describe = |version| {
        DescribeGroupsRequest::default()
            .with_groups(vec![group("readers"), group("nobody")])
            .with_include_authorized_operations(version >= 3)
    };
    in_every_version(&mut client, describe, |version, response| {
        assert_eq!(&*response.groups[0].group_state, "Stable");
        assert_eq!(
            &response.groups[0].members[0].member_assignment[..],
            b"assignment"
        );
        assert_eq!(&*response.groups[1].group_state, "Dead");
        assert_eq!(
            response.groups[1].error_code,
            if version >= 6 { 69 } else { 0 }
        );
    })
    .await;
    let modern = |_| DescribeGroupsRequest::default().with_groups(vec![group("modern")]);
    in_every_version(&mut client, modern, |version, response| {
        assert_eq!(&*response.groups[0].group_state, "Dead");
        assert_eq!(
            response.groups[0].error_code,
            if version >= 6 { 69 } else { 0 }
        );
    })
    .await;
    let list = |version| match version {
        4.. => ListGroupsRequest::default().with_states_filter(vec![text("Stable")]),
        _ => ListGroupsRequest::default(),
    };
    in_every_version(&mut client, list, |_, response| {
        assert_eq!(&**response.groups[0].group_id, "readers");
    })
    .await;
    let consumers = ListGroupsRequest::default().with_types_filter(vec![text("consumer")]);
    let response = client.call(5, &consumers).await;
    assert_eq!(response.groups.len(), 1);
    assert_eq!(&**response.groups[0].group_id, "modern");
    assert_eq!(&*response.groups[0].group_type, "Consumer");
    assert_eq!(&*response.groups[0].group_state, "Reconciling");
    let delete =
        |_| DeleteGroupsRequest::default().with_groups_names(vec![group("a"), group("full")]);
    in_every_version(&mut client, delete, |_, response| {
        assert_eq!([0, 1].map(|at| response.results[at].error_code), [0, 81]);
    })
    .await;
}

#[tokio::test]
async fn topics_are_created_changed_and_deleted() {
    let server = start().await;
    let mut client = server.connect().await;
    let config = |name: &str, value: &str| {
        create_topics_request::CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    };
    let wanted = |name: &str, configs| {
        create_topics_request::CreatableTopic::default()
            .with_name(topic(name))
            .with_num_partitions(3)
            .with_replication_factor(1)
            .with_configs(configs)
    };
    let create = |version| {
        let name = format!("t{version}");
        CreateTopicsRequest::default().with_topics(vec![
            wanted(&name, vec![config("retention.ms", "5000")]),
            wanted("odd", vec![config("retention.hours", "1")]),
            wanted("__mine", vec![]),
            wanted("wide", vec![]).with_num_partitions(5000),
            wanted("copied", vec![]).with_replication_factor(3),
        ])
    };
    in_every_version(&mut client, create, |version, response| {
        let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [0, 40, 17, 37, 38]);
        let message = response.topics[1].error_message.as_deref().unwrap();
        assert!(message.contains("retention.hours"), "{message}");
        if version >= 5 {
            assert_eq!(response.topics[0].num_partitions, 3);
            let configs = response.topics[0].configs.as_ref().unwrap();
            assert!(configs.iter().any(|one| &*one.name == "retention.ms" && one.value.as_deref() == Some("5000")));
        }
    })
    .await;
    let grow = |version| {
        let wanted = |name: &str, count| {
            create_partitions_request::CreatePartitionsTopic::default()
                .with_name(topic(name))
                .with_count(count)
                .with_assignments(None)
        };
        CreatePartitionsRequest::default()
            .with_topics(vec![wanted("t2", 4 + i32::from(version)), wanted("t3", 3)])
    };
    in_every_version(&mut client, grow, |_, response| {
        assert_eq!([0, 1].map(|at| response.results[at].error_code), [0, 37]);
    })
    .await;
    let delete = |version| match version {
        1..6 => DeleteTopicsRequest::default()
            .with_topic_names(vec![topic(&format!("t{}", version + 1)), topic("nowhere")]),
        _ => DeleteTopicsRequest::default().with_topics(vec![
            delete_topics_request::DeleteTopicState::default().with_name(Some(topic("t7"))),
            delete_topics_request::DeleteTopicState::default()
                .with_name(None)
                .with_topic_id(Uuid::from_u128(99)),
        ]),
    };
    in_every_version(&mut client, delete, |version, response| {
        let unknown = if version < 6 { 3 } else { 100 };
        assert_eq!(
            [0, 1].map(|at| response.responses[at].error_code),
            [0, unknown]
        );
    })
    .await;
    assert!(server.log.hubs().is_empty());
}

#[tokio::test]
async fn settings_are_described_and_changed() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    let describe = |version| {
        let resource = |kind, name: &str| {
            describe_configs_request::DescribeConfigsResource::default()
                .with_resource_type(kind)
                .with_resource_name(text(name))
                .with_configuration_keys(None)
        };
        DescribeConfigsRequest::default()
            .with_resources(vec![
                resource(2, "t"),
                resource(4, "1"),
                resource(2, "nowhere"),
            ])
            .with_include_synonyms(true)
            .with_include_documentation(version >= 3)
    };
    in_every_version(&mut client, describe, |_, response| {
        assert_eq!(
            [0, 1, 2].map(|at| response.results[at].error_code),
            [0, 0, 3]
        );
        let time = response.results[0]
            .configs
            .iter()
            .find(|one| &*one.name == "message.timestamp.type");
        assert_eq!(time.unwrap().value.as_deref(), Some("LogAppendTime"));
    })
    .await;
    let steps = |version| {
        let config = incremental_alter_configs_request::AlterableConfig::default()
            .with_name(text("retention.ms"))
            .with_value(Some(text(&format!("{}", 7 + version))));
        let resource = incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configs(vec![config]);
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
    };
    in_every_version(&mut client, steps, |version, response| {
        assert_eq!(response.responses[0].error_code, 0);
        let retention = server.log.hub("t").unwrap().settings.retention.unwrap();
        assert_eq!(retention.as_millis(), 7 + version as u128);
    })
    .await;
    let whole = |_| {
        let config = alter_configs_request::AlterableConfig::default()
            .with_name(text("cleanup.policy"))
            .with_value(Some(text("compact")));
        let resource = alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_configs(vec![config]);
        AlterConfigsRequest::default().with_resources(vec![resource])
    };
    in_every_version(&mut client, whole, |_, response| {
        assert_eq!(response.responses[0].error_code, 0);
        let settings = server.log.hub("t").unwrap().settings.clone();
        assert_eq!(
            settings.retention,
            highwater_log::HubSettings::default().retention
        );
        assert_eq!(settings.cleanup, highwater_log::CleanupPolicy::Compact);
    })
    .await;
}

#[tokio::test]
async fn records_are_deleted_up_to_an_offset() {
    let server = start().await;
    with_transactions(&server).await;
    let mut client = server.connect().await;
    let request = |version| {
        let up_to =
            |offset| delete_records_request::DeleteRecordsPartition::default().with_offset(offset);
        let of_topic = delete_records_request::DeleteRecordsTopic::default()
            .with_name(topic("t"))
            .with_partitions(vec![up_to(i64::from(version) + 1), up_to(100)]);
        DeleteRecordsRequest::default().with_topics(vec![of_topic])
    };
    in_every_version(&mut client, request, |version, response| {
        let found = &response.topics[0].partitions;
        assert_eq!(
            (found[0].error_code, found[0].low_watermark),
            (0, i64::from(version) + 1)
        );
        assert_eq!((found[1].error_code, found[1].low_watermark), (1, -1));
    })
    .await;
}

#[tokio::test]
async fn the_cluster_is_one_node() {
    let server = start().await;
    let mut client = server.connect().await;
    let request =
        |_| DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
    in_every_version(&mut client, request, |_, response| {
        assert_eq!((response.error_code, response.brokers.len()), (0, 1));
        assert_eq!(&*response.cluster_id, "highwater");
    })
    .await;
}

#[tokio::test]
async fn the_quorum_is_this_node() {
    let server = start().await;
    let mut client = server.connect().await;
    let (host, port) = ("127.0.0.1", server.handle.addresses()[0].port());
    let request = |_| {
        let of = |name: &str, partition| {
            let partition =
                describe_quorum_request::PartitionData::default().with_partition_index(partition);
            describe_quorum_request::TopicData::default()
                .with_topic_name(topic(name))
                .with_partitions(vec![partition])
        };
        let topics = vec![
            of("__cluster_metadata", 0),
            of("__cluster_metadata", 1),
            of("t", 0),
        ];
        DescribeQuorumRequest::default().with_topics(topics)
    };
    in_every_version(&mut client, request, |version, response| {
        assert_eq!(response.error_code, 0);
        let codes: Vec<i16> = (response.topics.iter())
            .map(|topic| topic.partitions[0].error_code)
            .collect();
        assert_eq!(codes, [0, 3, 3]);
        let quorum = &response.topics[0].partitions[0];
        assert_eq!((*quorum.leader_id, quorum.leader_epoch), (1, 0));
        let voters: Vec<i32> = (quorum.current_voters.iter())
            .map(|voter| *voter.replica_id)
            .collect();
        assert_eq!((voters, quorum.observers.len()), (vec![1], 0));
        if version >= 2 {
            let listener = &response.nodes[0].listeners[0];
            let address = (&*listener.host, listener.port);
            assert_eq!((&*listener.name, address), ("PLAINTEXT", (host, port)));
        }
    })
    .await;
}

#[tokio::test]
async fn producers_and_transactions() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    for (id, fenced) in [("mine", false), ("fenced", true)] {
        let expected = |version, knows_since| match (fenced, version >= knows_since) {
            (false, _) => 0,
            (true, true) => Code::ProducerFenced.code(),
            (true, false) => Code::InvalidProducerEpoch.code(),
        };
        let init = |_| {
            InitProducerIdRequest::default()
                .with_transactional_id(Some(transactional(id)))
                .with_transaction_timeout_ms(1000)
        };
        in_every_version(&mut client, init, |version, response| {
            assert_eq!(response.error_code, expected(version, 4));
            assert_eq!(response.producer_id.0, if fenced { -1 } else { 7 });
        })
        .await;
        let add = |_| {
            let of_topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
                .with_name(topic("t"))
                .with_partitions(vec![0]);
            AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(transactional(id))
                .with_v3_and_below_topics(vec![of_topic])
        };
        in_every_version(&mut client, add, |version, response| {
            let result = &response.results_by_topic_v3_and_below[0].results_by_partition[0];
            assert_eq!(result.partition_error_code, expected(version, 2));
        })
        .await;
        let add_offsets = |_| {
            AddOffsetsToTxnRequest::default()
                .with_transactional_id(transactional(id))
                .with_group_id(group("readers"))
        };
        in_every_version(&mut client, add_offsets, |version, response| {
            assert_eq!(response.error_code, expected(version, 2));
        })
        .await;
        let commit = |_| {
            let of_partition =
                txn_offset_commit_request::TxnOffsetCommitRequestPartition::default();
            let of_topic = txn_offset_commit_request::TxnOffsetCommitRequestTopic::default()
                .with_name(topic("t"))
                .with_partitions(vec![of_partition]);
            TxnOffsetCommitRequest::default()
                .with_transactional_id(transactional(id))
                .with_group_id(group("readers"))
                .with_topics(vec![of_topic])
        };
        in_every_version(&mut client, commit, |_, response| {
            assert_eq!(response.topics[0].partitions[0].error_code, expected(3, 0));
        })
        .await;
        let end = |_| {
            EndTxnRequest::default()
                .with_transactional_id(transactional(id))
                .with_committed(true)
        };
        in_every_version(&mut client, end, |version, response| {
            assert_eq!(response.error_code, expected(version, 2));
            let next = (response.producer_id.0, response.producer_epoch);
            let has_next = version >= 5 && !fenced;
            assert_eq!(next, if has_next { (7, 3) } else { (-1, -1) });
        })
        .await;
    }
}

#[tokio::test]
async fn adding_an_unknown_partition_adds_none() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    let of_topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(topic("t"))
        .with_partitions(vec![0, 7]);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transactional("mine"))
        .with_v3_and_below_topics(vec![of_topic]);
    let response = client.call(3, &request).await;
    let results = &response.results_by_topic_v3_and_below[0].results_by_partition;
    assert_eq!([0, 1].map(|at| results[at].partition_error_code), [55, 3]);
}

#[tokio::test]
async fn authentication() {
    let sasl = |options: &mut highwater_kafka::Options,
                services: &mut highwater_kafka::Services| {
        options.listeners[0].sasl = true;
        services.authorizer = std::sync::Arc::new(RightsByName);
    };
    let server = start_with(sasl).await;
    let mut client = server.connect().await;
    let shake = |_| SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    in_every_version(&mut client, shake, |version, response| {
        assert_eq!(response.error_code, if version == 0 { 35 } else { 0 });
        assert_eq!(&*response.mechanisms[0], "PLAIN");
    })
    .await;
    let login = |_| {
        SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from_static(b"\0all\0secret"))
    };
    in_every_version(&mut client, login, |_, response| {
        assert_eq!(response.error_code, 0)
    })
    .await;
}
