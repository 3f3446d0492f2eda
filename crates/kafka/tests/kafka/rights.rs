//! The table of rights against the broker: every row is enforced, with the error code that it names, for keys of every
//! combination of rights and for keys that are limited to names.
// proves U3, G1

use std::sync::Arc;

use bytes::Bytes;
use highwater_access::{Key, KeyScope, NameLists, Resource, Right, Rights};
use highwater_kafka::{
    Authorizer, Denial, Identity, NeededRight, ResourceKind, request_rights, same_secret,
};
use highwater_log::BoxFuture;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use uuid::Uuid;

use crate::common::*;
use ResourceKind::{AnyHub, Group, Hub, NewHub, Node, TransactionalId as Id};

const HUB: &str = "t";
const NEW: &str = "new";
const GROUP: &str = "readers";
/// A group of the consumer protocol.
const MODERN: &str = "modern";
const ID: &str = "mine";

/// Not a code of Kafka: the response leaves the resource out.
const OMITTED: i16 = -100;
const UNKNOWN_TOPIC: i16 = 3;
/// For topics, groups, the cluster and transactional ids.
const AUTHORIZATION_FAILED: [i16; 4] = [29, 30, 31, 53];

/// The name of a user is the position of its key.
struct KeysByNumber(Arc<Vec<Key>>);

impl KeysByNumber {
    fn key(&self, user: &str) -> Option<&Key> {
        self.0.get(user.parse::<usize>().ok()?)
    }
}

impl Authorizer for KeysByNumber {
    fn login(&self, user: &str, password: &str) -> BoxFuture<Option<Identity>> {
        let identity = same_secret(password, "secret").then(|| Identity::new(user));
        Box::pin(std::future::ready(identity))
    }

    fn may(&self, who: &Identity, right: Right, on: Resource<'_>) -> bool {
        self.key(who.name()).is_some_and(|key| key.may(right, on))
    }
}

fn key(rights: Rights, scope: KeyScope) -> Key {
    Key::new("key", "secret", rights, scope)
}

/// Every combination of rights; and each right alone, and all of them, limited to names.
fn keys() -> Vec<Key> {
    let subset = |bits: usize| {
        let rights = Right::ALL.into_iter().enumerate();
        rights
            .filter(|(at, _)| bits & (1 << at) != 0)
            .map(|(_, right)| right)
            .collect::<Rights>()
    };
    let mut keys: Vec<Key> = (0..16)
        .map(|bits| key(subset(bits), KeyScope::UNLIMITED))
        .collect();
    let (other, own) = (
        ["other".to_owned()],
        [HUB, NEW, GROUP, MODERN, ID].map(String::from),
    );
    let everything = ["*".to_owned()];
    let limited_to = |hubs, groups, transactional_ids| {
        let lists = NameLists {
            hubs: Some(hubs),
            groups: Some(groups),
            transactional_ids: Some(transactional_ids),
            deployments: Some(&everything),
        };
        KeyScope::listed("key", &lists)
    };
    let scopes = [
        limited_to(&own, &own, &own),
        limited_to(&other, &everything, &everything),
        limited_to(&everything, &other, &everything),
        limited_to(&everything, &everything, &other),
    ];
    for scope in scopes {
        for bits in [1, 2, 4, 8, 15] {
            keys.push(key(subset(bits), scope.clone()));
        }
    }
    keys
}

/// A request, the kinds of resources that it names, and where its response has the error code.
struct Case {
    api: i16,
    kinds: Vec<ResourceKind>,
    frame: Bytes,
    code: Box<dyn Fn(Bytes) -> i16>,
}

fn case<R: Request>(
    kinds: &[ResourceKind],
    version: i16,
    request: R,
    code: impl Fn(R::Response) -> i16 + 'static,
) -> Case {
    Case {
        api: R::KEY,
        kinds: kinds.to_vec(),
        frame: frame(1, version, &request),
        code: Box::new(move |bytes| code(decode::<R>(bytes, version).1)),
    }
}

fn group() -> GroupId {
    GroupId(text(GROUP))
}

fn data_requests(hub: &highwater_log::HubInfo) -> Vec<Case> {
    let to_hub = |version| produce(hub, version, -1, &[(0, batch(&["a"]))]);
    let in_transaction = to_hub(9).with_transactional_id(Some(transactional(ID)));
    let produced = |r: ProduceResponse| r.responses[0].partition_responses[0].error_code;
    let fetch_topic = || {
        fetch_request::FetchTopic::default()
            .with_partitions(vec![fetch_request::FetchPartition::default()])
    };
    let fetch = |topic| FetchRequest::default().with_topics(vec![topic]);
    let by_name = fetch(fetch_topic().with_topic(topic(HUB)));
    let by_id = fetch(fetch_topic().with_topic_id(Uuid::from_bytes(hub.id.0)));
    let fetched = |r: FetchResponse| r.responses[0].partitions[0].error_code;
    let offsets = list_offsets_request::ListOffsetsTopic::default()
        .with_name(topic(HUB))
        .with_partitions(vec![list_offsets_request::ListOffsetsPartition::default()]);
    vec![
        case(&[Hub], 9, to_hub(9), produced),
        case(&[Hub], 13, to_hub(13), produced),
        case(&[Id, Hub], 9, in_transaction, produced),
        case(&[Hub], 11, by_name, fetched),
        case(&[Hub], 16, by_id, fetched),
        case(
            &[Hub],
            7,
            ListOffsetsRequest::default().with_topics(vec![offsets]),
            |r| r.topics[0].partitions[0].error_code,
        ),
        case(&[], 3, ApiVersionsRequest::default(), |r| r.error_code),
        case(&[], 1, DescribeClusterRequest::default(), |r| r.error_code),
        case(&[], 0, GetTelemetrySubscriptionsRequest::default(), |r| {
            r.error_code
        }),
        case(&[], 0, PushTelemetryRequest::default(), |r| r.error_code),
    ]
}

fn metadata_of(name: &str) -> MetadataRequest {
    let topic = metadata_request::MetadataRequestTopic::default().with_name(Some(topic(name)));
    MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(true)
}

fn administration_requests() -> Vec<Case> {
    let named = describe_topic_partitions_request::TopicRequest::default().with_name(topic(HUB));
    let partitions = DescribeTopicPartitionsRequest::default().with_topics(vec![named]);
    let of_hub = describe_producers_request::TopicRequest::default()
        .with_name(topic(HUB))
        .with_partition_indexes(vec![0]);
    let producers = DescribeProducersRequest::default().with_topics(vec![of_hub]);
    let listed = |r: ListTransactionsResponse| match r.transaction_states.is_empty() {
        true => OMITTED,
        false => r.error_code,
    };
    let describe = DescribeTransactionsRequest::default()
        .with_transactional_ids(vec![TransactionalId(text(ID))]);
    let described = |r: DescribeTransactionsResponse| match &r.transaction_states[0] {
        state if state.error_code == 0 && state.topics.is_empty() => OMITTED,
        state => state.error_code,
    };
    vec![
        case(&[Node], 4, DescribeLogDirsRequest::default(), |r| {
            r.error_code
        }),
        case(&[Hub], 0, producers, |r| {
            r.topics[0].partitions[0].error_code
        }),
        case(&[Node], 2, ElectLeadersRequest::default(), |r| r.error_code),
        case(
            &[Node],
            1,
            AlterPartitionReassignmentsRequest::default(),
            |r| r.error_code,
        ),
        case(
            &[Node],
            0,
            ListPartitionReassignmentsRequest::default(),
            |r| r.error_code,
        ),
        case(&[Node], 1, DescribeClientQuotasRequest::default(), |r| {
            r.error_code
        }),
        case(
            &[Node],
            0,
            DescribeUserScramCredentialsRequest::default(),
            |r| r.error_code,
        ),
        case(&[Node], 3, DescribeAclsRequest::default(), |r| r.error_code),
        case(&[Node], 2, DescribeQuorumRequest::default(), |r| {
            r.error_code
        }),
        case(&[Node], 2, UpdateFeaturesRequest::default(), |r| {
            r.error_code
        }),
        case(&[Node], 1, ListConfigResourcesRequest::default(), |r| {
            r.error_code
        }),
        case(&[Hub], 0, partitions, |r| r.topics[0].error_code),
        case(
            &[Id],
            1,
            ListTransactionsRequest::default().with_duration_filter(-1),
            listed,
        ),
        case(&[Id, Hub], 0, describe, described),
    ]
}

/// Changes of what belongs to keys or stays where it is, and of a transaction of nobody.
fn key_requests() -> Vec<Case> {
    let quota = alter_client_quotas_request::EntryData::default();
    let quotas = AlterClientQuotasRequest::default().with_entries(vec![quota]);
    let deletion = alter_user_scram_credentials_request::ScramCredentialDeletion::default();
    let credentials = AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion]);
    let binding = create_acls_request::AclCreation::default();
    let create = CreateAclsRequest::default().with_creations(vec![binding]);
    let filter = delete_acls_request::DeleteAclsFilter::default();
    let delete = DeleteAclsRequest::default().with_filters(vec![filter]);
    let of_hub = write_txn_markers_request::WritableTxnMarkerTopic::default()
        .with_name(topic(NEW))
        .with_partition_indexes(vec![0]);
    let replica = alter_replica_log_dirs_request::AlterReplicaLogDirTopic::default()
        .with_name(topic(NEW))
        .with_partitions(vec![0]);
    let folder =
        alter_replica_log_dirs_request::AlterReplicaLogDir::default().with_topics(vec![replica]);
    let moves = AlterReplicaLogDirsRequest::default().with_dirs(vec![folder]);
    let marker = write_txn_markers_request::WritableTxnMarker::default().with_topics(vec![of_hub]);
    let markers = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
    vec![
        case(&[Node], 2, moves, |r| r.results[0].partitions[0].error_code),
        case(&[Node], 1, quotas, |r| r.entries[0].error_code),
        case(&[Node], 0, credentials, |r| r.results[0].error_code),
        case(&[Node], 3, create, |r| r.results[0].error_code),
        case(&[Node], 3, delete, |r| r.filter_results[0].error_code),
        case(&[Node], 1, markers, |r| {
            r.markers[0].topics[0].partitions[0].error_code
        }),
    ]
}

/// Most of them are about a hub that does not exist, so that they can be repeated.
fn hub_requests() -> Vec<Case> {
    let new = create_topics_request::CreatableTopic::default()
        .with_name(topic(NEW))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let create = CreateTopicsRequest::default()
        .with_topics(vec![new])
        .with_validate_only(true);
    let grow = create_partitions_request::CreatePartitionsTopic::default().with_name(topic(NEW));
    let trim = delete_records_request::DeleteRecordsTopic::default()
        .with_name(topic(NEW))
        .with_partitions(vec![
            delete_records_request::DeleteRecordsPartition::default(),
        ]);
    let describe = |kind, name: &str| {
        let resource = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name));
        DescribeConfigsRequest::default().with_resources(vec![resource])
    };
    let alter = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(NEW));
    let alter_some = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(NEW));
    let alter_node = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(4)
        .with_resource_name(text("1"));
    // Without a setting: nothing is left to reset.
    let reset_node = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(4)
        .with_resource_name(text("1"));
    let alter_group = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text(GROUP));
    let reset_group = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text(GROUP));
    vec![
        case(&[Hub], 9, metadata_of(HUB), |r| r.topics[0].error_code),
        case(&[Hub, NewHub], 9, metadata_of(NEW), |r| {
            r.topics[0].error_code
        }),
        case(&[NewHub], 7, create, |r| r.topics[0].error_code),
        case(
            &[Hub],
            5,
            DeleteTopicsRequest::default().with_topic_names(vec![topic(NEW)]),
            |r| r.responses[0].error_code,
        ),
        case(
            &[Hub],
            3,
            CreatePartitionsRequest::default().with_topics(vec![grow]),
            |r| r.results[0].error_code,
        ),
        case(
            &[Hub],
            2,
            DeleteRecordsRequest::default().with_topics(vec![trim]),
            |r| r.topics[0].partitions[0].error_code,
        ),
        case(&[Hub], 4, describe(2, HUB), |r| r.results[0].error_code),
        case(&[Node], 4, describe(4, "1"), |r| r.results[0].error_code),
        case(
            &[Hub],
            2,
            AlterConfigsRequest::default().with_resources(vec![alter]),
            |r| r.responses[0].error_code,
        ),
        case(
            &[Hub],
            1,
            IncrementalAlterConfigsRequest::default().with_resources(vec![alter_some]),
            |r| r.responses[0].error_code,
        ),
        case(
            &[Node],
            2,
            AlterConfigsRequest::default().with_resources(vec![alter_node]),
            |r| r.responses[0].error_code,
        ),
        case(
            &[Node],
            1,
            IncrementalAlterConfigsRequest::default().with_resources(vec![reset_node]),
            |r| r.responses[0].error_code,
        ),
        case(
            &[Group],
            2,
            AlterConfigsRequest::default().with_resources(vec![alter_group]),
            |r| r.responses[0].error_code,
        ),
        case(
            &[Group],
            1,
            IncrementalAlterConfigsRequest::default().with_resources(vec![reset_group]),
            |r| r.responses[0].error_code,
        ),
        case(&[Group], 4, describe(32, GROUP), |r| {
            r.results[0].error_code
        }),
    ]
}

fn membership_requests() -> Vec<Case> {
    let protocol = join_group_request::JoinGroupRequestProtocol::default().with_name(text("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(group())
        .with_member_id(text("m-1"))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    let assignment = sync_group_request::SyncGroupRequestAssignment::default();
    let sync = SyncGroupRequest::default()
        .with_group_id(group())
        .with_assignments(vec![assignment]);
    let beat = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(text("m-1"))
        .with_rebalance_timeout_ms(10_000)
        .with_subscribed_topic_names(Some(vec![topic(HUB)]));
    let coordinator = |kind, key: &str| {
        FindCoordinatorRequest::default()
            .with_key_type(kind)
            .with_coordinator_keys(vec![text(key)])
    };
    let found = |r: FindCoordinatorResponse| r.coordinators[0].error_code;
    let listed = |r: ListGroupsResponse| match r.groups.is_empty() {
        true => OMITTED,
        false => r.error_code,
    };
    vec![
        case(&[Group], 7, join, |r| r.error_code),
        case(&[Group], 5, sync, |r| r.error_code),
        case(
            &[Group],
            4,
            HeartbeatRequest::default().with_group_id(group()),
            |r| r.error_code,
        ),
        case(
            &[Group],
            4,
            LeaveGroupRequest::default().with_group_id(group()),
            |r| r.error_code,
        ),
        case(&[Group], 4, coordinator(0, GROUP), found),
        case(&[Id], 4, coordinator(1, ID), found),
        case(&[Group], 4, ListGroupsRequest::default(), listed),
        case(
            &[Group],
            5,
            DescribeGroupsRequest::default().with_groups(vec![group()]),
            |r| r.groups[0].error_code,
        ),
        case(&[Group, Hub], 1, beat, |r| r.error_code),
        case(
            &[Group, Hub],
            1,
            ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text(MODERN))]),
            |r| r.groups[0].error_code,
        ),
        case(
            &[Group],
            2,
            DeleteGroupsRequest::default().with_groups_names(vec![group()]),
            |r| r.results[0].error_code,
        ),
    ]
}

fn offset_requests() -> Vec<Case> {
    let committed = offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(topic(HUB))
        .with_partitions(vec![
            offset_commit_request::OffsetCommitRequestPartition::default(),
        ]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_topics(vec![committed]);
    let fetched = offset_fetch_request::OffsetFetchRequestTopics::default()
        .with_name(topic(HUB))
        .with_partition_indexes(vec![0]);
    let of_group = offset_fetch_request::OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_topics(Some(vec![fetched]));
    let fetch = OffsetFetchRequest::default().with_groups(vec![of_group]);
    let fetch_code = |r: OffsetFetchResponse| match r.groups[0].error_code {
        0 => r.groups[0].topics[0].partitions[0].error_code,
        code => code,
    };
    vec![
        case(&[Group, Hub], 8, commit, |r| {
            r.topics[0].partitions[0].error_code
        }),
        case(&[Group, Hub], 8, fetch, fetch_code),
        case(
            &[Group],
            0,
            OffsetDeleteRequest::default().with_group_id(group()),
            |r| r.error_code,
        ),
    ]
}

fn transaction_requests() -> Vec<Case> {
    let init = |id: Option<&str>| {
        InitProducerIdRequest::default().with_transactional_id(id.map(transactional))
    };
    let added = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(topic(HUB))
        .with_partitions(vec![0]);
    let add = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transactional(ID))
        .with_v3_and_below_topics(vec![added]);
    let add_group = AddOffsetsToTxnRequest::default()
        .with_transactional_id(transactional(ID))
        .with_group_id(group());
    let committed = txn_offset_commit_request::TxnOffsetCommitRequestTopic::default()
        .with_name(topic(HUB))
        .with_partitions(vec![
            txn_offset_commit_request::TxnOffsetCommitRequestPartition::default(),
        ]);
    let commit = TxnOffsetCommitRequest::default()
        .with_transactional_id(transactional(ID))
        .with_group_id(group())
        .with_topics(vec![committed]);
    vec![
        case(&[Id], 4, init(Some(ID)), |r| r.error_code),
        case(&[AnyHub], 4, init(None), |r| r.error_code),
        case(&[Id, Hub], 3, add, |r| {
            r.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        }),
        case(&[Id, Group], 3, add_group, |r| r.error_code),
        case(&[Id, Group, Hub], 3, commit, |r| {
            r.topics[0].partitions[0].error_code
        }),
        case(
            &[Id],
            3,
            EndTxnRequest::default().with_transactional_id(transactional(ID)),
            |r| r.error_code,
        ),
    ]
}

/// The row of the table for a resource of a request.
fn needed(api: i16, kind: ResourceKind) -> NeededRight {
    let rows = request_rights().into_iter().filter(|row| row.key == api);
    let mut needed = rows.filter_map(|row| row.needed);
    let found = needed.find(|needed| needed.resource == kind);
    found.unwrap_or_else(|| panic!("no row for request {api} and {kind:?}"))
}

fn denial_code(needed: &NeededRight) -> i16 {
    match needed.denial {
        Denial::Error => needed.code,
        Denial::Omitted => OMITTED,
        Denial::Unknown => UNKNOWN_TOPIC,
    }
}

fn has_right(key: &Key, needed: &NeededRight) -> bool {
    let on = match needed.resource {
        Node => Resource::Node,
        AnyHub => Resource::AnyHub,
        Hub => Resource::Hub(HUB),
        NewHub => Resource::Hub(NEW),
        Group => Resource::Group(GROUP),
        Id => Resource::TransactionalId(ID),
    };
    needed.any_of.iter().any(|right| key.may(*right, on))
}

/// A key that has everything is never denied; one that lacks a right is answered with the denial of a row that it
/// lacks.
fn check(case: &Case, key: &Key, code: i16) {
    let rows: Vec<NeededRight> = case
        .kinds
        .iter()
        .map(|kind| needed(case.api, *kind))
        .collect();
    let lacking = rows.iter().filter(|row| !has_right(key, row));
    let expected: Vec<i16> = lacking.map(denial_code).collect();
    let is_denied =
        AUTHORIZATION_FAILED.contains(&code) || rows.iter().any(|row| denial_code(row) == code);
    let as_expected = match expected.is_empty() {
        true => !is_denied,
        false => expected.contains(&code),
    };
    let (api, kinds) = (case.api, &case.kinds);
    assert!(as_expected, "request {api} {kinds:?} with {key:?}: {code}");
}

async fn guarded(keys: &Arc<Vec<Key>>) -> TestServer {
    let authorizer = Arc::new(KeysByNumber(keys.clone()));
    start_with(|options, services| {
        options.listeners[0].sasl = true;
        services.authorizer = authorizer;
    })
    .await
}

async fn logged_in(server: &TestServer, number: usize) -> Client {
    let mut client = server.connect().await;
    let login = format!("\0{number}\0secret");
    let login = SaslAuthenticateRequest::default().with_auth_bytes(login.into());
    assert_eq!(client.call(2, &login).await.error_code, 0);
    client
}

#[tokio::test]
async fn every_row_is_enforced_for_keys_of_every_kind() {
    let keys = Arc::new(keys());
    let server = guarded(&keys).await;
    let hub = server.make(HUB, 1).await;
    let mut cases = data_requests(&hub);
    cases.extend(hub_requests());
    cases.extend(membership_requests());
    cases.extend(administration_requests());
    cases.extend(key_requests());
    cases.extend(offset_requests());
    cases.extend(transaction_requests());
    check_coverage(&cases);
    for (number, key) in keys.iter().enumerate() {
        let mut client = logged_in(&server, number).await;
        for case in &cases {
            client.send_raw(&case.frame).await;
            let response = client.receive_frame().await.expect("a response");
            check(case, key, (case.code)(response));
            if let Some(created) = server.log.hub(NEW) {
                server.log.delete(&created.name).await.unwrap();
            }
        }
    }
}

/// There is a request for every row, and for every request that is free of rights but the login, which all keys use.
fn check_coverage(cases: &[Case]) {
    const LOGIN: [i16; 2] = [17, 36];
    for row in request_rights() {
        let covered = cases.iter().filter(|case| case.api == row.key);
        let is_covered = match &row.needed {
            Some(needed) => covered
                .into_iter()
                .any(|case| case.kinds.contains(&needed.resource)),
            None => LOGIN.contains(&row.key) || covered.count() > 0,
        };
        assert!(is_covered, "{row:?}");
    }
}

#[tokio::test]
async fn an_internal_hub_needs_manage_and_takes_no_records() {
    const DENIED: i16 = 29;
    let keys = [
        &[Right::Send, Right::Listen][..],
        &[Right::Manage],
        &Right::ALL,
    ];
    let keys = keys.map(|rights| key(rights.iter().copied().collect(), KeyScope::UNLIMITED));
    let server = guarded(&Arc::new(keys.to_vec())).await;
    let hub = server.make("__offsets", 1).await;
    for (number, fetched) in [(0, DENIED), (1, 0), (2, 0)] {
        let mut client = logged_in(&server, number).await;
        let topic = fetch_request::FetchTopic::default()
            .with_topic(topic("__offsets"))
            .with_partitions(vec![fetch_request::FetchPartition::default()]);
        let fetch = FetchRequest::default().with_topics(vec![topic]);
        let response = client.call(11, &fetch).await;
        assert_eq!(response.responses[0].partitions[0].error_code, fetched);
        let send = produce(&hub, 9, -1, &[(0, batch(&["a"]))]);
        let response = client.call(9, &send).await;
        let code = response.responses[0].partition_responses[0].error_code;
        assert_eq!(code, DENIED);
    }
}
