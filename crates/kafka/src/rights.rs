//! The rights that each request needs, in one table.
//!
//! [`RequestContext::allow`](crate::request::RequestContext::allow) looks the right up here by the API key of its
//! request and the kind of the resource, so the table is enforced. `docs/security.md` has it, generated, and a test
//! sends the requests of every row.

use highwater_access::{Resource, Right};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::ApiKey;

use crate::api::APIS;

/// The kind of resource that a right applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    Node,
    /// Any hub.
    AnyHub,
    Hub,
    /// A hub that the request creates.
    NewHub,
    Group,
    TransactionalId,
}

/// The answer to a client without the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The error code of the resource.
    Error,
    /// The response has no entry for the resource.
    Omitted,
    /// The hub is unknown, as if it could not be created.
    Unknown,
}

/// A row of the table: a client needs one of the rights over each resource of this kind that its request names.
#[derive(Clone, Copy, Debug)]
struct ResourceRights {
    api: ApiKey,
    resource: ResourceKind,
    any_of: &'static [Right],
    denial: Denial,
}

const SEND: &[Right] = &[Right::Send];
const LISTEN: &[Right] = &[Right::Listen];
const MANAGE: &[Right] = &[Right::Manage];

/// For what a client that may see the hub may do: one with any right over it, unless a rule says otherwise.
const VISIBLE: &[Right] = Right::VISIBLE;

const fn row(api: ApiKey, resource: ResourceKind, any_of: &'static [Right]) -> ResourceRights {
    ResourceRights {
        api,
        resource,
        any_of,
        denial: Denial::Error,
    }
}

impl ResourceRights {
    const fn otherwise(mut self, denial: Denial) -> ResourceRights {
        self.denial = denial;
        self
    }
}

use ResourceKind::{AnyHub, Group, Hub, NewHub, Node, TransactionalId};

/// The most frequent requests come first, because a search begins there.
const ROWS: &[ResourceRights] = &[
    row(ApiKey::Produce, Hub, SEND),
    row(ApiKey::Produce, TransactionalId, SEND),
    row(ApiKey::Fetch, Hub, LISTEN),
    row(ApiKey::ListOffsets, Hub, LISTEN),
    row(ApiKey::Metadata, Hub, VISIBLE),
    row(ApiKey::Metadata, NewHub, MANAGE).otherwise(Denial::Unknown),
    row(ApiKey::OffsetCommit, Group, LISTEN),
    row(ApiKey::OffsetCommit, Hub, LISTEN),
    row(ApiKey::OffsetFetch, Group, LISTEN),
    row(ApiKey::OffsetFetch, Hub, LISTEN),
    row(ApiKey::FindCoordinator, Group, LISTEN),
    row(ApiKey::FindCoordinator, TransactionalId, SEND),
    row(ApiKey::JoinGroup, Group, LISTEN),
    row(ApiKey::Heartbeat, Group, LISTEN),
    row(ApiKey::LeaveGroup, Group, LISTEN),
    row(ApiKey::SyncGroup, Group, LISTEN),
    row(ApiKey::DescribeGroups, Group, LISTEN),
    row(ApiKey::ConsumerGroupHeartbeat, Group, LISTEN),
    row(ApiKey::ConsumerGroupHeartbeat, Hub, LISTEN),
    row(ApiKey::ConsumerGroupDescribe, Group, LISTEN),
    row(ApiKey::ConsumerGroupDescribe, Hub, VISIBLE),
    row(ApiKey::ListGroups, Group, LISTEN).otherwise(Denial::Omitted),
    row(ApiKey::CreateTopics, NewHub, MANAGE),
    row(ApiKey::DeleteTopics, Hub, MANAGE),
    row(ApiKey::DeleteRecords, Hub, MANAGE),
    row(ApiKey::InitProducerId, TransactionalId, SEND),
    row(ApiKey::InitProducerId, AnyHub, SEND),
    row(ApiKey::AddPartitionsToTxn, TransactionalId, SEND),
    row(ApiKey::AddPartitionsToTxn, Hub, SEND),
    row(ApiKey::AddOffsetsToTxn, TransactionalId, SEND),
    row(ApiKey::AddOffsetsToTxn, Group, LISTEN),
    row(ApiKey::EndTxn, TransactionalId, SEND),
    row(ApiKey::TxnOffsetCommit, TransactionalId, SEND),
    row(ApiKey::TxnOffsetCommit, Group, LISTEN),
    row(ApiKey::TxnOffsetCommit, Hub, LISTEN),
    row(ApiKey::DescribeConfigs, Hub, VISIBLE),
    row(ApiKey::DescribeConfigs, Node, MANAGE),
    row(ApiKey::DescribeConfigs, Group, LISTEN),
    row(ApiKey::AlterConfigs, Hub, MANAGE),
    row(ApiKey::AlterConfigs, Node, MANAGE),
    row(ApiKey::AlterConfigs, Group, MANAGE),
    row(ApiKey::CreatePartitions, Hub, MANAGE),
    row(ApiKey::DeleteGroups, Group, MANAGE),
    row(ApiKey::IncrementalAlterConfigs, Hub, MANAGE),
    row(ApiKey::IncrementalAlterConfigs, Node, MANAGE),
    row(ApiKey::IncrementalAlterConfigs, Group, MANAGE),
    row(ApiKey::OffsetDelete, Group, MANAGE),
    row(ApiKey::DescribeLogDirs, Node, MANAGE),
    row(ApiKey::AlterReplicaLogDirs, Node, MANAGE),
    row(ApiKey::DescribeProducers, Hub, LISTEN),
    row(ApiKey::ElectLeaders, Node, MANAGE),
    row(ApiKey::AlterPartitionReassignments, Node, MANAGE),
    row(ApiKey::ListPartitionReassignments, Node, MANAGE),
    row(ApiKey::DescribeClientQuotas, Node, MANAGE),
    row(ApiKey::AlterClientQuotas, Node, MANAGE),
    row(ApiKey::DescribeUserScramCredentials, Node, MANAGE),
    row(ApiKey::AlterUserScramCredentials, Node, MANAGE),
    row(ApiKey::DescribeAcls, Node, MANAGE),
    row(ApiKey::CreateAcls, Node, MANAGE),
    row(ApiKey::DeleteAcls, Node, MANAGE),
    row(ApiKey::WriteTxnMarkers, Node, MANAGE),
    row(ApiKey::DescribeQuorum, Node, MANAGE),
    row(ApiKey::UpdateFeatures, Node, MANAGE),
    row(ApiKey::ListConfigResources, Node, MANAGE),
    row(ApiKey::DescribeTopicPartitions, Hub, VISIBLE),
    row(ApiKey::DescribeTransactions, TransactionalId, SEND),
    row(ApiKey::DescribeTransactions, Hub, VISIBLE).otherwise(Denial::Omitted),
    row(ApiKey::ListTransactions, TransactionalId, SEND).otherwise(Denial::Omitted),
];

/// Requests that need no right: the login, connection metadata, and metrics of the client itself.
const FREE: &[ApiKey] = &[
    ApiKey::SaslHandshake,
    ApiKey::ApiVersions,
    ApiKey::SaslAuthenticate,
    ApiKey::DescribeCluster,
    ApiKey::GetTelemetrySubscriptions,
    ApiKey::PushTelemetry,
];

/// Alternative rights: a client needs one of them. Without a row no right is enough.
pub(crate) fn required(api: ApiKey, resource: ResourceKind) -> &'static [Right] {
    let found = ROWS
        .iter()
        .find(|row| row.api == api && row.resource == resource);
    debug_assert!(found.is_some(), "no right for {api:?} on {resource:?}");
    found.map_or(&[], |row| row.any_of)
}

impl ResourceKind {
    pub(crate) fn of(resource: Resource<'_>) -> ResourceKind {
        match resource {
            Resource::Hub(_) => Hub,
            Resource::NewHub(_) => NewHub,
            Resource::Group(_) => Group,
            Resource::TransactionalId(_) => TransactionalId,
            Resource::AnyHub => AnyHub,
            // Kafka has none of the others, and no row is about them.
            Resource::Node
            | Resource::Queue(_)
            | Resource::Workflow(_)
            | Resource::Deployment(_) => Node,
        }
    }

    pub(crate) fn refusal(self) -> Code {
        match self {
            Hub | NewHub => Code::TopicAuthorizationFailed,
            Group => Code::GroupAuthorizationFailed,
            TransactionalId => Code::TransactionalIdAuthorizationFailed,
            Node | AnyHub => Code::ClusterAuthorizationFailed,
        }
    }
}

/// Whether the code is that of a client without the right.
pub(crate) fn is_refusal(code: Code) -> bool {
    [Node, Hub, Group, TransactionalId]
        .map(ResourceKind::refusal)
        .contains(&code)
}

/// The client's rights as a bit field of Kafka's operations, of those that Kafka has for this kind of resource. `sees`
/// is whether it may see a hub.
pub(crate) fn authorized_operations(
    kind: ResourceKind,
    sees: bool,
    has: impl Fn(Right) -> bool,
) -> i32 {
    const READ: i32 = 1 << 3;
    const WRITE: i32 = 1 << 4;
    const CREATE: i32 = 1 << 5;
    const DELETE: i32 = 1 << 6;
    const ALTER: i32 = 1 << 7;
    const DESCRIBE: i32 = 1 << 8;
    // Of what it covers in Kafka, clients can send WriteTxnMarkers here.
    const CLUSTER_ACTION: i32 = 1 << 9;
    const DESCRIBE_CONFIGS: i32 = 1 << 10;
    const ALTER_CONFIGS: i32 = 1 << 11;
    const IDEMPOTENT_WRITE: i32 = 1 << 12;
    const CONFIGS: i32 = DESCRIBE_CONFIGS | ALTER_CONFIGS;
    let of_kind = match kind {
        Hub | NewHub => READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | CONFIGS,
        Group => READ | DELETE | DESCRIBE | CONFIGS,
        TransactionalId => WRITE | DESCRIBE,
        Node | AnyHub => CREATE | ALTER | DESCRIBE | CLUSTER_ACTION | CONFIGS | IDEMPOTENT_WRITE,
    };
    let rights = [
        (Right::Listen, READ | DESCRIBE),
        (Right::Send, WRITE | DESCRIBE | IDEMPOTENT_WRITE),
        (
            Right::Manage,
            CREATE | DELETE | ALTER | DESCRIBE | CLUSTER_ACTION | CONFIGS,
        ),
    ];
    let granted = rights.into_iter().filter(|(right, _)| has(*right));
    let granted = granted.fold(0, |all, (_, bits)| all | bits);
    let seen = match (kind, sees) {
        (Hub, true) => granted | DESCRIBE,
        (Hub, false) => granted & !DESCRIBE,
        _ => granted,
    };
    seen & of_kind
}

/// A row of the table, for its documentation and its test.
#[derive(Clone, Debug)]
pub struct RequestRights {
    /// The name of the request.
    pub request: String,
    /// Its number.
    pub key: i16,
    /// `None` for a request that needs no right.
    pub needed: Option<NeededRight>,
}

/// The required rights of a request for each resource of a kind.
#[derive(Clone, Copy, Debug)]
pub struct NeededRight {
    pub resource: ResourceKind,
    /// One of them is enough.
    pub any_of: &'static [Right],
    pub denial: Denial,
    /// The error code of [`Denial::Error`].
    pub code: i16,
}

/// The table, with a row for each resource of each supported request, by the number of the request.
pub fn request_rights() -> Vec<RequestRights> {
    let mut all = Vec::with_capacity(ROWS.len() + FREE.len());
    for api in APIS {
        let mut add = |needed| {
            all.push(RequestRights {
                request: format!("{:?}", api.key),
                key: api.key as i16,
                needed,
            });
        };
        if FREE.contains(&api.key) {
            add(None);
        }
        for row in ROWS.iter().filter(|row| row.api == api.key) {
            add(Some(NeededRight {
                resource: row.resource,
                any_of: row.any_of,
                denial: row.denial,
                code: row.resource.refusal().code(),
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves G1
    #[test]
    fn every_request_has_rights_or_is_free_of_them() {
        for api in APIS {
            let has_rows = ROWS.iter().any(|row| row.api == api.key);
            assert_ne!(has_rows, FREE.contains(&api.key), "{:?}", api.key);
        }
        let supported = |key| APIS.iter().any(|api| api.key == key);
        assert!(ROWS.iter().all(|row| supported(row.api)));
        assert!(FREE.iter().all(|key| supported(*key)));
    }

    #[test]
    fn operations_are_those_of_the_kind_of_resource() {
        // The numbers are those of Apache Kafka for a client that may do everything.
        let all = |kind| authorized_operations(kind, true, |_| true);
        assert_eq!(all(Hub), 3576);
        assert_eq!(all(Group), 3400);
        assert_eq!(all(TransactionalId), 272);
        assert_eq!(all(Node), 8096);
        let listens = |kind| authorized_operations(kind, true, |right| right == Right::Listen);
        let hidden = authorized_operations(Hub, false, |right| right == Right::Listen);
        assert_eq!(hidden, 8, "a rule denies to see it");
        assert_eq!(
            [listens(Hub), listens(Group), listens(Node)],
            [264, 264, 256]
        );
    }

    #[test]
    fn a_request_has_one_row_for_each_kind_of_resource() {
        for (at, row) in ROWS.iter().enumerate() {
            let is_same =
                |other: &ResourceRights| other.api == row.api && other.resource == row.resource;
            assert!(!ROWS[..at].iter().any(is_same), "{row:?}");
            assert!(!row.any_of.is_empty(), "{row:?}");
        }
    }
}
