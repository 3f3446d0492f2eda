//! The state that all connections share, and the dispatch of a request to its handler.

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use highwater_env::random::Random;
use highwater_env::{Clock, MemoryBudget, MemoryShare};
use highwater_log::{BoxFuture, GroupCoordinator, Log, TransactionCoordinator};
use kafka_protocol::messages::ApiKey;
use tokio::sync::watch;
use uuid::Uuid;

use crate::access::Authorizer;
use crate::client_quotas::ClientQuotas;
use crate::dynamic::{DynamicSettingStore, DynamicSettings};
use crate::handlers::{
    acls, cluster, configs, consumer_groups, credentials, features, fetch, groups, list_offsets,
    markers, metadata, offsets, partitions, placement, produce, quorum, quotas, resources, sasl,
    storage, telemetry, topic_partitions, topics, transaction_list, transactions, versions,
};
use crate::metrics::Metrics;
use crate::options::{ClusterId, Options};
use crate::producer_ids::ProducerIds;
use crate::request::{ProtocolError, RequestContext};
use crate::response::EncodedResponse;
use crate::sasl::ScramChallenge;
use crate::telemetry::ClientTelemetry;

/// The log and coordinators that the server makes available.
#[derive(Clone)]
pub struct Services {
    pub log: Arc<dyn Log>,
    pub groups: Arc<dyn GroupCoordinator>,
    pub transactions: Arc<dyn TransactionCoordinator>,
    pub authorizer: Arc<dyn Authorizer>,
    pub settings: Arc<dyn DynamicSettingStore>,
    pub clock: Arc<dyn Clock>,
}

pub(crate) struct Broker {
    pub services: Services,
    pub options: Options,
    pub metrics: Arc<Metrics>,
    /// For Fetch responses that are not written yet.
    pub fetch_memory: MemoryBudget,
    /// For other requests and responses, until they are written.
    pub response_memory: MemoryBudget,
    /// For compressed batches while they are checked.
    pub unpack_memory: MemoryBudget,
    pub producer_ids: ProducerIds,
    pub challenges: ChallengeSource,
    pub telemetry: Arc<ClientTelemetry>,
    /// Settings made by clients.
    pub settings: watch::Receiver<Arc<DynamicSettings>>,
    pub client_quotas: ClientQuotas,
}

impl Broker {
    pub(crate) fn settings(&self) -> Arc<DynamicSettings> {
        self.settings.borrow().clone()
    }

    /// `None` at the first start of a node, until its hub exists.
    pub(crate) fn cluster_id(&self) -> Option<String> {
        match &self.options.cluster_id {
            ClusterId::Named(name) => Some(name.clone()),
            ClusterId::OfHub(hub) => {
                let hub = self.services.log.hub(hub)?;
                Some(BASE64_URL_SAFE_NO_PAD.encode(hub.id.0))
            }
        }
    }
}

/// The random numbers of logins and instances of clients.
pub(crate) struct ChallengeSource {
    random: Mutex<Random>,
    secret: [u8; 16],
}

impl ChallengeSource {
    pub(crate) fn new(mut random: Random) -> ChallengeSource {
        let secret = random_bytes(&mut random);
        let random = Mutex::new(random);
        ChallengeSource { random, secret }
    }

    /// An id for an instance of a client.
    pub(crate) fn instance_id(&self) -> Uuid {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        uuid::Builder::from_random_bytes(random_bytes(&mut random)).into_uuid()
    }

    pub(crate) fn next(&self) -> ScramChallenge {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let nonce = u128::from_be_bytes(random_bytes(&mut random));
        ScramChallenge {
            nonce: format!("{nonce:032x}"),
            secret: self.secret,
        }
    }
}

fn random_bytes(random: &mut Random) -> [u8; 16] {
    let high = u128::from(random.next_u64()) << 64;
    (high | u128::from(random.next_u64())).to_be_bytes()
}

/// The most memory of a decoded request and its response for each byte of the request, unless the handler estimates it.
const DECODED_RATIO: usize = 32;

/// The estimate for a response whose size depends on unknown state: few of these are built at once.
pub(crate) const UNKNOWN_BYTES: usize = 16 << 20;

/// Calls an estimate, so that its request type is known.
fn estimated<R>(request: &R, estimate: impl FnOnce(&R) -> usize) -> usize {
    estimate(request)
}

/// Whether a request waits for other clients. It must not hold memory meanwhile, which they may need.
fn may_wait(key: ApiKey) -> bool {
    matches!(key, ApiKey::JoinGroup | ApiKey::SyncGroup)
}

/// Starts a request. A Produce is enqueued in its partitions now; all other work happens when the future is
/// polled.
pub(crate) fn begin(
    context: RequestContext,
    body: Bytes,
) -> BoxFuture<Result<EncodedResponse, ProtocolError>> {
    context.broker.metrics.request(context.api.key);
    if context.api.key == ApiKey::Produce && context.api.reads(context.version) {
        return produce::begin(context, body);
    }
    Box::pin(async move { dispatch(&context, body).await })
}

/// Decodes a request, calls its handler and encodes the response, within the memory for both.
macro_rules! respond {
    ($context:ident, $body:ident, $handler:path) => {
        respond!($context, $body, $handler, |_| 0)
    };
    // With an estimate of the response's bytes, for responses that are much larger than their requests.
    ($context:ident, $body:ident, $handler:path, $estimate:expr) => {{
        let mut share = $context.reserve($body.len() * DECODED_RATIO).await;
        let request = $context.decode($body)?;
        let estimate = estimated(&request, $estimate);
        if estimate > share.bytes() {
            // Released first: two requests that wait for each other's share would never end.
            drop(share);
            share = $context.reserve(estimate).await;
        }
        if may_wait($context.api.key) {
            share = MemoryShare::default();
        }
        let response = $handler($context, request).await;
        if estimate >= UNKNOWN_BYTES {
            share = $context.reserve_encoded(share, &response).await;
        }
        $context.encode_within(share, response)
    }};
}

async fn dispatch(context: &RequestContext, body: Bytes) -> Result<EncodedResponse, ProtocolError> {
    if !context.api.reads(context.version) {
        return versions::unsupported(context);
    }
    match context.api.key {
        ApiKey::Fetch => fetch::fetch(context, context.decode(body)?).await,
        ApiKey::ListOffsets => respond!(context, body, list_offsets::list_offsets),
        ApiKey::Metadata => respond!(context, body, metadata::metadata, |request| {
            metadata::response_bytes(context, request)
        }),
        ApiKey::OffsetCommit => respond!(context, body, offsets::commit),
        ApiKey::OffsetFetch => respond!(context, body, offsets::fetch, offsets::response_bytes),
        ApiKey::OffsetDelete => respond!(context, body, offsets::delete),
        ApiKey::FindCoordinator => respond!(context, body, cluster::find_coordinator),
        ApiKey::JoinGroup => respond!(context, body, groups::join),
        ApiKey::SyncGroup => respond!(context, body, groups::sync),
        ApiKey::Heartbeat => respond!(context, body, groups::heartbeat),
        ApiKey::LeaveGroup => respond!(context, body, groups::leave),
        ApiKey::DescribeGroups => respond!(context, body, groups::describe, |_| UNKNOWN_BYTES),
        ApiKey::ListGroups => respond!(context, body, groups::list, |_| UNKNOWN_BYTES),
        ApiKey::DeleteGroups => respond!(context, body, groups::delete),
        ApiKey::ConsumerGroupHeartbeat => {
            respond!(context, body, consumer_groups::heartbeat, |request| {
                consumer_groups::response_bytes(context, request)
            })
        }
        ApiKey::ConsumerGroupDescribe => {
            respond!(context, body, consumer_groups::describe, |_| UNKNOWN_BYTES)
        }
        ApiKey::SaslHandshake => sasl::handshake(context, context.decode(body)?),
        ApiKey::SaslAuthenticate => sasl::authenticate(context, context.decode(body)?).await,
        ApiKey::ApiVersions => versions::versions(context, context.decode(body)?),
        ApiKey::InitProducerId => respond!(context, body, transactions::init_producer),
        ApiKey::AddPartitionsToTxn => respond!(context, body, transactions::add_partitions),
        ApiKey::AddOffsetsToTxn => respond!(context, body, transactions::add_offsets),
        ApiKey::TxnOffsetCommit => respond!(context, body, transactions::commit_offsets),
        ApiKey::EndTxn => respond!(context, body, transactions::end),
        _ => administer(context, body).await,
    }
}

/// The requests of administrators and their tools.
async fn administer(
    context: &RequestContext,
    body: Bytes,
) -> Result<EncodedResponse, ProtocolError> {
    match context.api.key {
        ApiKey::CreateTopics => respond!(context, body, topics::create, topics::response_bytes),
        ApiKey::DeleteTopics => respond!(context, body, topics::delete),
        ApiKey::CreatePartitions => respond!(context, body, partitions::create),
        ApiKey::DeleteRecords => respond!(context, body, partitions::delete_records),
        ApiKey::DescribeConfigs => {
            respond!(context, body, configs::describe, configs::response_bytes)
        }
        ApiKey::AlterConfigs => respond!(context, body, configs::alter),
        ApiKey::IncrementalAlterConfigs => respond!(context, body, configs::alter_incrementally),
        ApiKey::DescribeCluster => respond!(context, body, cluster::describe),
        ApiKey::DescribeLogDirs => respond!(context, body, storage::describe_log_dirs, |request| {
            storage::log_dirs_bytes(context, request)
        }),
        ApiKey::GetTelemetrySubscriptions => respond!(context, body, telemetry::subscriptions),
        ApiKey::PushTelemetry => respond!(context, body, telemetry::push),
        ApiKey::AlterReplicaLogDirs => respond!(context, body, storage::alter_log_dirs),
        ApiKey::DescribeProducers => respond!(context, body, storage::describe_producers, |_| {
            UNKNOWN_BYTES
        }),
        ApiKey::ElectLeaders => respond!(context, body, placement::elect_leaders),
        ApiKey::AlterPartitionReassignments => {
            respond!(context, body, placement::alter_reassignments)
        }
        ApiKey::ListPartitionReassignments => {
            respond!(context, body, placement::list_reassignments)
        }
        ApiKey::DescribeClientQuotas => respond!(context, body, quotas::describe),
        ApiKey::AlterClientQuotas => respond!(context, body, quotas::alter),
        ApiKey::DescribeUserScramCredentials => respond!(context, body, credentials::describe),
        ApiKey::AlterUserScramCredentials => respond!(context, body, credentials::alter),
        ApiKey::DescribeAcls => respond!(context, body, acls::describe, |_| UNKNOWN_BYTES),
        ApiKey::CreateAcls => respond!(context, body, acls::create),
        ApiKey::DeleteAcls => respond!(context, body, acls::delete),
        ApiKey::WriteTxnMarkers => respond!(context, body, markers::write),
        ApiKey::DescribeQuorum => respond!(context, body, quorum::describe),
        ApiKey::UpdateFeatures => respond!(context, body, features::update),
        ApiKey::ListConfigResources => respond!(context, body, resources::list, |_| UNKNOWN_BYTES),
        ApiKey::DescribeTopicPartitions => {
            respond!(context, body, topic_partitions::describe, |request| {
                topic_partitions::response_bytes(context, request)
            })
        }
        ApiKey::ListTransactions => {
            respond!(context, body, transaction_list::list, |_| UNKNOWN_BYTES)
        }
        ApiKey::DescribeTransactions => {
            respond!(context, body, transaction_list::describe, |_| UNKNOWN_BYTES)
        }
        _ => Err(ProtocolError::UnknownKey(context.api.key as i16)),
    }
}
