//! Consumer groups: their members, the partitions assigned to them, and committed offsets.
//!
//! The calls follow Kafka's classic group protocol, in which subscriptions and assignments are opaque, and its consumer
//! protocol ([`GroupCoordinator::consumer_heartbeat`], types in `consumer`), in which the coordinator assigns.

use std::time::Duration;

use bytes::Bytes;

use crate::consumer::{
    ConsumerGroupInfo, ConsumerHeartbeat, ConsumerHeartbeatResponse, ConsumerMemberInfo,
};
use crate::{BoxFuture, Offset, TopicPartition};

pub trait GroupCoordinator: Send + Sync {
    /// Completes when the rebalance has gathered its members.
    fn join(&self, request: JoinRequest) -> BoxFuture<Result<JoinResponse, GroupError>>;

    /// Completes when the leader has sent the assignment.
    fn sync(&self, request: SyncRequest) -> BoxFuture<Result<SyncResponse, GroupError>>;

    fn heartbeat(&self, member: Membership) -> BoxFuture<Result<(), GroupError>>;

    /// One result for each of `leaving`, in order.
    fn leave(
        &self,
        group: String,
        leaving: Vec<MemberIdentity>,
    ) -> BoxFuture<Result<Vec<Result<(), GroupError>>, GroupError>>;

    /// Stores offsets, all or none. Completes when they are durable.
    fn commit_offsets(&self, request: OffsetCommit) -> BoxFuture<Result<(), GroupError>>;

    /// Committed offsets of `topic_partitions`, in order; with `None`, all of the group. With `stable`, an offset
    /// pending in an open transaction is an error to retry.
    fn fetch_offsets(
        &self,
        group: String,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> BoxFuture<Result<Vec<CommittedOffset>, GroupError>>;

    /// A member of a group of the consumer protocol joins, leaves, or sends a heartbeat. A coordinator without that
    /// protocol refuses it.
    fn consumer_heartbeat(
        &self,
        _request: ConsumerHeartbeat,
    ) -> BoxFuture<Result<ConsumerHeartbeatResponse, GroupError>> {
        Box::pin(std::future::ready(Err(GroupError::Unsupported)))
    }

    /// Checks that a member of the consumer protocol is in this epoch. Members of classic groups pass.
    fn check_member_epoch(
        &self,
        _group: String,
        _member: String,
        _epoch: i32,
    ) -> BoxFuture<Result<(), GroupError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn list(&self) -> BoxFuture<Vec<GroupSummary>>;

    /// `None` if the group is unknown.
    fn summary(&self, group: String) -> BoxFuture<Option<GroupSummary>>;

    /// `None` if the group is unknown.
    fn describe(&self, group: String) -> BoxFuture<Option<GroupInfo>>;

    /// Deletes a group without members, and its offsets.
    fn delete(&self, group: String) -> BoxFuture<Result<(), GroupError>>;

    /// Deletes offsets of a group, unless it is subscribed to their hub.
    fn delete_offsets(
        &self,
        group: String,
        topic_partitions: Vec<TopicPartition>,
    ) -> BoxFuture<Result<(), GroupError>>;
}

/// A member of a generation of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub group: String,
    pub generation: i32,
    pub member: String,
    /// Set for a static member, which keeps its assignment over a restart.
    pub instance: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    pub group: String,
    /// Empty for a new member.
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    pub protocol_type: String,
    /// Protocol name and opaque metadata, in order of preference.
    pub protocols: Vec<(String, Bytes)>,
    /// The client understands [`GroupError::MemberIdRequired`] and joins again with the given id.
    pub expects_member_id: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinResponse {
    pub generation: i32,
    pub protocol_type: String,
    pub protocol: String,
    pub leader: String,
    pub member: String,
    /// The id under which this static leader led the same generation before its restart. The assignment is unchanged:
    /// the leader must not send another one.
    pub led_as: Option<String>,
    /// All members, for the leader; empty for the others.
    pub members: Vec<JoinResponseMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinResponseMember {
    pub member: String,
    pub instance: Option<String>,
    pub metadata: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    pub member: Membership,
    /// The protocol that the client joined with; `None` from old clients.
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    /// From the leader: assignment by member id. Empty from the others.
    pub assignments: Vec<(String, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncResponse {
    pub protocol_type: String,
    pub protocol: String,
    pub assignment: Bytes,
}

/// A leaving member: by member id, or by instance with an empty member id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberIdentity {
    pub member: String,
    pub instance: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// Generation -1 and an empty member for a consumer that assigns its own partitions.
    pub member: Membership,
    pub offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// The next offset to read.
    pub offset: Offset,
    /// -1 if the client did not send it.
    pub leader_epoch: i32,
    pub metadata: String,
}

/// A partition and its committed offset, if it has one.
pub type CommittedOffset = (TopicPartition, Option<OffsetAndMetadata>);

/// A group without its members, whose description may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    pub group: String,
    pub state: GroupState,
    pub protocol_type: String,
    pub protocol: String,
    pub is_consumer: bool,
    /// The number of members.
    pub members: usize,
    /// An upper bound of the memory that a [`GroupInfo`] takes now.
    pub info_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    pub group: String,
    pub state: GroupState,
    pub protocol_type: String,
    pub protocol: String,
    pub members: Vec<MemberInfo>,
    /// `None` for a group of the classic protocol.
    pub consumer: Option<ConsumerGroupInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub metadata: Bytes,
    pub assignment: Bytes,
}

impl GroupInfo {
    pub fn summary(&self) -> GroupSummary {
        let members = self.members.iter();
        let consumers = self.consumer.iter().flat_map(|group| &group.members);
        let bytes = members.map(MemberInfo::memory).sum::<usize>()
            + consumers.map(ConsumerMemberInfo::memory).sum::<usize>();
        GroupSummary {
            group: self.group.clone(),
            state: self.state,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            is_consumer: self.consumer.is_some(),
            members: self.members.len(),
            info_bytes: bytes,
        }
    }
}

impl MemberInfo {
    fn memory(&self) -> usize {
        let texts = [&self.member, &self.client_id, &self.client_host];
        let texts = texts.into_iter().chain(&self.instance).map(String::len);
        let bytes = self.metadata.len() + self.assignment.len();
        size_of::<MemberInfo>() + texts.sum::<usize>() + bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// No members; offsets may be stored.
    Empty,
    /// Waiting for members to join.
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    /// Consumer protocol: the target of the members is not computed yet.
    Assigning,
    /// Consumer protocol: members revoke or wait for partitions.
    Reconciling,
    Stable,
    Dead,
}

/// Why a request of a group failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    #[error("a group needs a name of at most 1024 bytes")]
    InvalidGroup,
    #[error("join again as member `{member}`")]
    MemberIdRequired { member: String },
    #[error("the group has no member `{0}`")]
    UnknownMember(String),
    #[error("the group is in generation {current}, not {requested}")]
    IllegalGeneration { requested: i32, current: i32 },
    #[error("the group is rebalancing: join again")]
    Rebalancing,
    #[error("instance `{0}` has been taken over by another member")]
    FencedInstance(String),
    #[error("the member and the group have no protocol in common")]
    InconsistentProtocol,
    /// Abandon all partitions and join again.
    #[error("the member is in epoch {current}, not {received}")]
    FencedEpoch { received: i32, current: i32 },
    /// Retry with the epoch of the next heartbeat.
    #[error("the member is in epoch {current}, not {received}: retry after the next heartbeat")]
    StaleEpoch { received: i32, current: i32 },
    #[error("instance `{0}` is still a member of the group under another id")]
    UnreleasedInstance(String),
    #[error("there is no assignor `{0}`, only `uniform` and `range`")]
    UnsupportedAssignor(String),
    #[error("the regular expression is invalid: {0}")]
    InvalidPattern(String),
    #[error("{0}")]
    InvalidRequest(&'static str),
    #[error("the group has members of the classic protocol")]
    NotConsumerGroup,
    #[error("this coordinator has no consumer protocol")]
    Unsupported,
    #[error("a session timeout of {requested:?} is not between {min:?} and {max:?}")]
    SessionTimeout {
        requested: Duration,
        min: Duration,
        max: Duration,
    },
    #[error("the group already has its maximum of {0} members")]
    Full(usize),
    /// Metadata or assignments of the members are too large for the record of the group.
    #[error("members of {bytes} bytes are larger than {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("the members of all groups have {max} bytes of metadata already")]
    OutOfMemory { max: usize },
    #[error("the group still has members")]
    NotEmpty,
    #[error("there is no such group")]
    NotFound,
    #[error("the group is subscribed to the hub now")]
    Subscribed,
    #[error("there is no partition `{0}`")]
    UnknownPartition(TopicPartition),
    #[error("metadata of {bytes} bytes is longer than {max}")]
    MetadataTooLarge { bytes: usize, max: usize },
    #[error("positions of an open transaction are pending")]
    Unstable,
    /// Retry later.
    #[error("groups are being loaded")]
    Loading,
    #[error("the transaction may not commit positions: {0}")]
    Transaction(#[from] crate::TransactionError),
    #[error("positions could not be stored: {0}")]
    Storage(String),
}
