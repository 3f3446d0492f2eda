//! One request: its header, its client, and the encoding of its response.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes};
use highwater_access::{AuditEvent, Limiter, RefusalLog, Right, Usage};
use highwater_env::MemoryShare;
use highwater_log::{
    GroupCoordinator, HubInfo, HubName, Log, Partition, TopicPartition, TransactionCoordinator,
};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use crate::access::{Identity, Resource};
use crate::api::Api;
use crate::broker::Broker;
use crate::client_quotas::ClientLimits;
use crate::codes::{ErrorCode, OK};
use crate::connection::PAUSE_MAX;
use crate::frame::FrameError;
use crate::response::{EncodedResponse, Frame};
use crate::rights::{self, ResourceKind};
use crate::sasl::SaslExchange;
use crate::shape::{self, ShapeError};
use crate::throttle::Throttle;

/// Requests and responses up to this size are not counted in the memory of the server.
const UNCOUNTED_BYTES: usize = 32 << 10;

/// The listener that a connection came in on.
#[derive(Debug)]
pub(crate) struct ListenerInfo {
    /// The advertised address.
    pub host: StrBytes,
    pub port: u16,
    pub sasl: bool,
    pub tls: bool,
}

impl ListenerInfo {
    /// Kafka's name of its protocol, which is the name of the listener, too.
    pub(crate) fn protocol(&self) -> &'static str {
        match (self.sasl, self.tls) {
            (false, false) => "PLAINTEXT",
            (false, true) => "SSL",
            (true, false) => "SASL_PLAINTEXT",
            (true, true) => "SASL_SSL",
        }
    }

    /// The address in Kafka's notation. Other listeners of the node may be for other networks.
    pub(crate) fn advertised(&self) -> String {
        let (protocol, host) = (self.protocol(), self.host.as_str());
        format!("{protocol}://{host}:{}", self.port)
    }
}

/// A request without its body.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub broker: Arc<Broker>,
    pub api: Api,
    pub version: i16,
    pub correlation: i32,
    pub client_id: StrBytes,
    pub identity: Identity,
    pub client: SocketAddr,
    pub client_host: Arc<str>,
    pub limiter: Option<Arc<Limiter>>,
    /// Of the user and client id.
    pub limits: ClientLimits,
    pub listener: Arc<ListenerInfo>,
    /// The login of the connection; `None` if the listener has no authentication.
    pub sasl: Option<Arc<Mutex<SaslExchange>>>,
    /// The refusals of the connection.
    pub refusals: Arc<RefusalLog>,
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a request is malformed: {0}")]
    Shape(#[from] ShapeError),
    #[error("a request with API key {key}, version {version}, is malformed: {reason}")]
    Malformed {
        key: i16,
        version: i16,
        reason: String,
    },
    #[error("API key {0} is not supported")]
    UnknownKey(i16),
    #[error("version {version} of API key {key} is not supported")]
    UnknownVersion { key: i16, version: i16 },
    #[error("a request with API key {0} came before the client authenticated")]
    Unauthenticated(i16),
    #[error("the login has expired, and the client did not renew it")]
    SessionExpired,
    #[error("a response with API key {key}, version {version}, cannot be encoded: {reason}")]
    Response {
        key: i16,
        version: i16,
        reason: String,
    },
}

/// The fixed part of a request header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub key: i16,
    pub version: i16,
    pub correlation: i32,
}

impl RequestHead {
    pub(crate) fn read(frame: &Bytes) -> Result<RequestHead, ShapeError> {
        let mut head = frame.get(..8).ok_or(ShapeError::Short)?;
        Ok(RequestHead {
            key: head.get_i16(),
            version: head.get_i16(),
            correlation: head.get_i32(),
        })
    }
}

/// The client id, which all versions of the header have behind the fixed part. Empty if it cannot be read.
pub(crate) fn peek_client_id(frame: &Bytes) -> &str {
    let length = frame.get(8..10).map(|mut length| length.get_i16());
    let length = length.and_then(|length| usize::try_from(length).ok());
    let id = length.and_then(|length| frame.get(10..10 + length));
    id.and_then(|id| std::str::from_utf8(id).ok())
        .unwrap_or_default()
}

/// Reads the rest of the header; the body follows.
pub(crate) fn client_id(
    api: &Api,
    version: i16,
    frame: &mut Bytes,
) -> Result<StrBytes, ProtocolError> {
    let header_version = api.key.request_header_version(version);
    let header = RequestHeader::decode(frame, header_version)
        .map_err(|error| malformed(api, version, error))?;
    Ok(header.client_id.unwrap_or_default())
}

fn malformed(api: &Api, version: i16, error: impl ToString) -> ProtocolError {
    ProtocolError::Malformed {
        key: api.key as i16,
        version,
        reason: error.to_string(),
    }
}

/// Encodes a response with its header.
pub(crate) fn encode<A: Encodable + HeaderVersion>(
    api: &Api,
    version: i16,
    correlation: i32,
    response: &A,
) -> Result<EncodedResponse, ProtocolError> {
    let failed = |reason: String| ProtocolError::Response {
        key: api.key as i16,
        version,
        reason,
    };
    let mut frame = Frame::with_capacity(256);
    ResponseHeader::default()
        .with_correlation_id(correlation)
        .encode(&mut frame.text, A::header_version(version))
        .and_then(|()| response.encode(&mut frame.text, version))
        .map_err(|error| failed(error.to_string()))?;
    frame.finish().map_err(|error| failed(error.to_string()))
}

impl RequestContext {
    pub(crate) fn decode<R: Request>(&self, mut body: Bytes) -> Result<R, ProtocolError> {
        let elements_max = self.broker.options.request_elements_max;
        shape::check(&self.api, self.version, &body, elements_max)?;
        R::decode(&mut body, self.version)
            .map_err(|error| malformed(&self.api, self.version, error))
    }

    /// Encodes a response, with the throttle time of the client.
    pub(crate) fn encode<A: Encodable + HeaderVersion + Throttle>(
        &self,
        mut response: A,
    ) -> Result<EncodedResponse, ProtocolError> {
        if let Some(time) = response.throttle_time_ms() {
            *time = self.quota_delay_ms().max(*time);
        }
        encode(&self.api, self.version, self.correlation, &response)
    }

    /// Counts the use of a producer id; false if the client has used too many.
    pub(crate) fn admit_producer(&self, id: i64) -> bool {
        let (broker, now) = (&self.broker, self.broker.services.clock.elapsed());
        let from = self.client.ip();
        broker.producer_ids.admit(&self.identity, from, id, now)
    }

    /// Takes memory for a request and its response. Small ones are not counted: the limit of connections bounds them.
    pub(crate) async fn reserve(&self, bytes: usize) -> MemoryShare {
        match bytes > UNCOUNTED_BYTES {
            true => self.broker.response_memory.take(bytes).await,
            false => MemoryShare::default(),
        }
    }

    /// Grows the share to the size of a response whose size was unknown, before it is encoded.
    pub(crate) async fn reserve_encoded(
        &self,
        mut share: MemoryShare,
        response: &impl Encodable,
    ) -> MemoryShare {
        let bytes = response.compute_size(self.version).unwrap_or(0);
        let Some(missing) = bytes.checked_sub(share.bytes()) else {
            return share;
        };
        match self.broker.response_memory.try_take(missing) {
            Ok(more) => {
                share.add(more);
                share
            }
            Err(_) => {
                // Released first: two requests that wait for each other's share would never end.
                drop(share);
                self.broker.response_memory.take(bytes).await
            }
        }
    }

    /// Encodes a response that holds this memory until it is written.
    pub(crate) fn encode_within<A: Encodable + HeaderVersion + Throttle>(
        &self,
        mut share: MemoryShare,
        response: A,
    ) -> Result<EncodedResponse, ProtocolError> {
        let response = self.encode(response)?;
        let bytes: usize = response.pieces.iter().map(Bytes::len).sum();
        let missing = bytes.saturating_sub(share.bytes());
        if missing > 0 && bytes > UNCOUNTED_BYTES {
            // The reserved bytes are an estimate: a larger response is not lost, but its memory is counted.
            share.add(self.broker.response_memory.take_unchecked(missing));
        }
        share.shrink_to(bytes);
        Ok(EncodedResponse { share, ..response })
    }

    /// How long the client must wait because of its quota.
    pub(crate) fn quota_delay_ms(&self) -> i32 {
        let now = self.elapsed();
        let of_key = self.limiter.as_ref().map(|limiter| limiter.delay(now));
        let delay = of_key.unwrap_or_default().max(self.limits.delay(now));
        delay.min(PAUSE_MAX).as_millis() as i32
    }

    /// Charges new partitions to the quota of the client, unless it is used up.
    pub(crate) fn charge_partitions(&self, count: u32) -> Result<(), Code> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        if !limiter.partition_delay(self.elapsed()).is_zero() {
            return Err(Code::ThrottlingQuotaExceeded);
        }
        limiter.charge(Usage::Partitions, u64::from(count), self.elapsed());
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        self.broker.services.clock.elapsed()
    }

    /// Records a change in the audit log, or why it failed. A refusal for want of a right is recorded where it is
    /// decided.
    pub(crate) fn audit(&self, resource: &str, code: Option<Code>) {
        if !code.is_some_and(rights::is_refusal) {
            let authorizer = &self.broker.services.authorizer;
            authorizer.audit(self.audit_event(resource, code));
        }
    }

    fn audit_event(&self, resource: &str, code: Option<Code>) -> AuditEvent {
        AuditEvent {
            who: self.identity.name().to_owned(),
            from: Some(self.client),
            operation: format!("{:?}", self.api.key),
            resource: resource.to_owned(),
            outcome: code.map_or_else(|| "ok".into(), |code| code.to_string()),
        }
    }

    pub(crate) fn log(&self) -> &dyn Log {
        &*self.broker.services.log
    }

    pub(crate) fn groups(&self) -> &dyn GroupCoordinator {
        &*self.broker.services.groups
    }

    pub(crate) fn transactions(&self) -> &dyn TransactionCoordinator {
        &*self.broker.services.transactions
    }

    /// Counts an error code that is sent.
    pub(crate) fn count_error(&self, code: i16) -> i16 {
        if code != OK {
            self.broker.metrics.errors.add(1);
        }
        code
    }

    pub(crate) fn error_code(&self, error: &impl ErrorCode) -> i16 {
        self.count_error(error.code())
    }

    fn has_right(&self, right: Right, on: Resource<'_>) -> bool {
        let authorizer = &self.broker.services.authorizer;
        authorizer.may(&self.identity, right, on)
    }

    fn has_any(&self, rights: &[Right], on: Resource<'_>) -> bool {
        match on {
            Resource::Hub(hub) if rights == Right::VISIBLE => self.may_see(hub),
            _ => rights.iter().any(|right| self.has_right(*right, on)),
        }
    }

    /// Checks the right that this request needs on a resource that it names, by the table of rights, and records a
    /// refusal.
    pub(crate) fn allow(&self, on: Resource<'_>) -> Result<(), Code> {
        match self.may(on) {
            true => Ok(()),
            false => Err(self.refuse(on)),
        }
    }

    /// Checks the right that this request needs to create a hub that it names.
    pub(crate) fn allow_creation(&self, hub: &str) -> Result<(), Code> {
        match self.may_create(hub) {
            true => Ok(()),
            false => Err(self.refuse(Resource::NewHub(hub))),
        }
    }

    /// Records that a resource is refused to the client, once for the connection.
    pub(crate) fn refuse(&self, on: Resource<'_>) -> Code {
        let code = ResourceKind::of(on).refusal();
        let event = self.audit_event(on.name(), Some(code));
        if let Some(event) = self.refusals.admit(event) {
            self.broker.services.authorizer.audit(event);
        }
        code
    }

    /// Whether the client has the right that this request needs on the resource. Unnamed resources are left out of the
    /// response rather than refused.
    pub(crate) fn may(&self, on: Resource<'_>) -> bool {
        self.has_any(rights::required(self.api.key, ResourceKind::of(on)), on)
    }

    pub(crate) fn may_create(&self, hub: &str) -> bool {
        self.may(Resource::NewHub(hub))
    }

    /// Whether the client may know that the hub exists.
    pub(crate) fn may_see(&self, hub: &str) -> bool {
        self.broker.services.authorizer.may_see(&self.identity, hub)
    }

    /// The client's rights as a bit field of Kafka's operations.
    pub(crate) fn authorized_operations(&self, on: Resource<'_>) -> i32 {
        let sees = matches!(on, Resource::Hub(hub) if self.may_see(hub));
        rights::authorized_operations(ResourceKind::of(on), sees, |right| {
            self.has_right(right, on)
        })
    }

    /// A hub that exists and on which the client has the right that this request needs.
    pub(crate) fn hub(&self, name: &str) -> Result<Arc<HubInfo>, Code> {
        self.allow(Resource::Hub(name))?;
        self.log().hub(name).ok_or(Code::UnknownTopicOrPartition)
    }

    pub(crate) fn partition(&self, hub: &str, index: i32) -> Result<Arc<dyn Partition>, Code> {
        u32::try_from(index)
            .ok()
            .and_then(|index| self.log().partition(hub, index))
            .ok_or(Code::UnknownTopicOrPartition)
    }

    /// A topic partition that exists.
    pub(crate) fn topic_partition(&self, hub: &str, index: i32) -> Result<TopicPartition, Code> {
        let info = self.log().hub(hub);
        topic_partition(hub, index)
            .filter(|at| info.is_some_and(|info| at.partition < info.partitions))
            .ok_or(Code::UnknownTopicOrPartition)
    }
}

/// A topic partition that need not exist.
pub(crate) fn topic_partition(hub: &str, index: i32) -> Option<TopicPartition> {
    Some(TopicPartition {
        hub: HubName::new(hub).ok()?,
        partition: u32::try_from(index).ok()?,
    })
}
