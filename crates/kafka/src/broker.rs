//! The state that all connections share, and the dispatch of a request to its handler.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use highwater_env::Clock;
use highwater_env::random::Random;
use highwater_log::{BoxFuture, GroupCoordinator, Log, TransactionCoordinator};
use kafka_protocol::messages::ApiKey;

use crate::access::Authorizer;
use crate::handlers::{
    cluster, configs, fetch, groups, list_offsets, metadata, offsets, partitions, produce, sasl,
    topics, transactions, versions,
};
use crate::memory_budget::{MemoryBudget, Share};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::request::{ProtocolError, RequestContext};
use crate::response::EncodedResponse;
use crate::sasl::ScramChallenge;

/// The log and coordinators that the server makes available.
#[derive(Clone)]
pub struct Services {
    pub log: Arc<dyn Log>,
    pub groups: Arc<dyn GroupCoordinator>,
    pub transactions: Arc<dyn TransactionCoordinator>,
    pub authorizer: Arc<dyn Authorizer>,
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
    pub challenges: ChallengeSource,
}

/// The random numbers of logins.
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

async fn dispatch(context: &RequestContext, body: Bytes) -> Result<EncodedResponse, ProtocolError> {
    macro_rules! respond {
        ($handler:path) => {
            respond!($handler, |_| 0)
        };
        // With an estimate of the response's bytes, for responses that are much larger than their requests.
        ($handler:path, $estimate:expr) => {{
            let mut share = context.reserve(body.len() * DECODED_RATIO).await;
            let request = context.decode(body)?;
            let estimate = estimated(&request, $estimate);
            if estimate > share.bytes() {
                // Released first: two requests that wait for each other's share would never end.
                drop(share);
                share = context.reserve(estimate).await;
            }
            if may_wait(context.api.key) {
                share = Share::default();
            }
            let response = $handler(context, request).await;
            context.encode_within(share, &response)
        }};
    }
    if !context.api.reads(context.version) {
        return versions::unsupported(context);
    }
    match context.api.key {
        ApiKey::Fetch => fetch::fetch(context, context.decode(body)?).await,
        ApiKey::ListOffsets => respond!(list_offsets::list_offsets),
        ApiKey::Metadata => respond!(metadata::metadata, |request| {
            metadata::response_bytes(context, request)
        }),
        ApiKey::OffsetCommit => respond!(offsets::commit),
        ApiKey::OffsetFetch => respond!(offsets::fetch, offsets::response_bytes),
        ApiKey::OffsetDelete => respond!(offsets::delete),
        ApiKey::FindCoordinator => respond!(cluster::find_coordinator),
        ApiKey::JoinGroup => respond!(groups::join),
        ApiKey::SyncGroup => respond!(groups::sync),
        ApiKey::Heartbeat => respond!(groups::heartbeat),
        ApiKey::LeaveGroup => respond!(groups::leave),
        ApiKey::DescribeGroups => respond!(groups::describe, |_| UNKNOWN_BYTES),
        ApiKey::ListGroups => respond!(groups::list, |_| UNKNOWN_BYTES),
        ApiKey::DeleteGroups => respond!(groups::delete),
        ApiKey::SaslHandshake => sasl::handshake(context, context.decode(body)?),
        ApiKey::SaslAuthenticate => sasl::authenticate(context, context.decode(body)?).await,
        ApiKey::ApiVersions => versions::versions(context, context.decode(body)?),
        ApiKey::CreateTopics => respond!(topics::create, topics::response_bytes),
        ApiKey::DeleteTopics => respond!(topics::delete),
        ApiKey::CreatePartitions => respond!(partitions::create),
        ApiKey::DeleteRecords => respond!(partitions::delete_records),
        ApiKey::DescribeConfigs => respond!(configs::describe, configs::response_bytes),
        ApiKey::AlterConfigs => respond!(configs::alter),
        ApiKey::IncrementalAlterConfigs => respond!(configs::alter_incrementally),
        ApiKey::DescribeCluster => respond!(cluster::describe),
        ApiKey::InitProducerId => respond!(transactions::init_producer),
        ApiKey::AddPartitionsToTxn => respond!(transactions::add_partitions),
        ApiKey::AddOffsetsToTxn => respond!(transactions::add_offsets),
        ApiKey::TxnOffsetCommit => respond!(transactions::commit_offsets),
        ApiKey::EndTxn => respond!(transactions::end),
        _ => Err(ProtocolError::UnknownKey(context.api.key as i16)),
    }
}
