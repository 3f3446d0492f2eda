//! Consumer groups: who reads which partition, and how far everybody has come.
//!
//! The calls are those of Kafka's classic group protocol in our own words. What members tell each
//! other (their subscriptions, the assignment the leader made) is opaque here.

use std::time::Duration;

use bytes::Bytes;

use crate::{BoxFuture, Offset, TopicPartition};

pub trait GroupCoordinator: Send + Sync {
    /// Ready when the group has gathered, or at once with an error.
    fn join(&self, request: JoinRequest) -> BoxFuture<Result<JoinResponse, GroupError>>;

    /// Ready when the leader has said who reads what.
    fn sync(&self, request: SyncRequest) -> BoxFuture<Result<SyncResponse, GroupError>>;

    fn heartbeat(&self, member: Membership) -> BoxFuture<Result<(), GroupError>>;

    /// One answer for each of `leaving`, in order.
    fn leave(
        &self,
        group: String,
        leaving: Vec<MemberIdentity>,
    ) -> BoxFuture<Result<Vec<Result<(), GroupError>>, GroupError>>;

    /// Stores positions, all or none. Ready when they would survive a crash.
    fn commit_offsets(&self, request: OffsetCommit) -> BoxFuture<Result<(), GroupError>>;

    /// The stored positions: of `topic_partitions`, in order, or with `None` of every place that has one. With
    /// `stable`, a place with a commit pending in an open transaction is an error to retry.
    fn fetch_offsets(
        &self,
        group: String,
        topic_partitions: Option<Vec<TopicPartition>>,
        stable: bool,
    ) -> BoxFuture<Result<Vec<CommittedOffset>, GroupError>>;

    fn list(&self) -> BoxFuture<Vec<GroupInfo>>;

    /// `None` if nobody has heard of the group.
    fn describe(&self, group: String) -> BoxFuture<Option<GroupInfo>>;

    /// Removes a group that has no members, and its positions.
    fn delete(&self, group: String) -> BoxFuture<Result<(), GroupError>>;

    /// Removes positions of an existing group, unless it is subscribed to their hub now.
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
    /// Set for a static member, which keeps its place in the group over a restart.
    pub instance: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    pub group: String,
    /// Empty for a newcomer.
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    pub protocol_type: String,
    /// Name and opaque metadata, best first.
    pub protocols: Vec<(String, Bytes)>,
    /// The client can take [`GroupError::MemberIdRequired`] and come again with the id given.
    pub expects_member_id: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinResponse {
    pub generation: i32,
    pub protocol_type: String,
    pub protocol: String,
    pub leader: String,
    pub member: String,
    /// A static leader that came back unchanged led this generation under this id already. Its
    /// assignment stands, so it is not to make another one, which would be ignored.
    pub led_as: Option<String>,
    /// Everybody, for the leader; empty for the others.
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
    /// What the client believes it joined; `None` from clients too old to say.
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    /// From the leader: member id and its assignment. Empty from the others.
    pub assignments: Vec<(String, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncResponse {
    pub protocol_type: String,
    pub protocol: String,
    pub assignment: Bytes,
}

/// Who leaves: by member id, or by instance with an empty member id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberIdentity {
    pub member: String,
    pub instance: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// Generation -1 and an empty member for a consumer that manages its partitions itself.
    pub member: Membership,
    pub offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
}

/// A stored position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// The next offset to read.
    pub offset: Offset,
    /// -1 if the client did not say.
    pub leader_epoch: i32,
    pub metadata: String,
}

/// A place and what is stored for it, if anything.
pub type CommittedOffset = (TopicPartition, Option<OffsetAndMetadata>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    pub group: String,
    pub state: GroupState,
    pub protocol_type: String,
    pub protocol: String,
    pub members: Vec<MemberInfo>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Nobody is in it, though it may have stored positions.
    Empty,
    /// Waiting for the members to come (again).
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    Stable,
    Dead,
}

/// Why a group did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    #[error("a group needs a name")]
    InvalidGroup,
    #[error("come again as member `{member}`")]
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
    #[error("a session timeout of {requested:?} is not between {min:?} and {max:?}")]
    SessionTimeout {
        requested: Duration,
        min: Duration,
        max: Duration,
    },
    #[error("the group has its {0} members already")]
    Full(usize),
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
