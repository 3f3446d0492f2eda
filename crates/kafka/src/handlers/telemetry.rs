//! GetTelemetrySubscriptions and PushTelemetry (KIP-714): clients push some of their metrics, which `/metrics` shows.

use highwater_log::batch::{Codec, unpack};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, PushTelemetryRequest,
    PushTelemetryResponse,
};

use super::text;
use crate::request::RequestContext;
use crate::telemetry::{PUSH_INTERVAL, PushError, REQUESTED};

/// The largest message, packed or not.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// For a message and its decoder.
const UNPACK_BYTES_MAX: usize = 8 << 20;

/// There is one subscription, for all clients.
const SUBSCRIPTION: i32 = 1;

/// The best first.
const CODECS: [Codec; 4] = [Codec::Zstd, Codec::Lz4, Codec::Gzip, Codec::Snappy];

/// A client without an id gets one. If there are too many, it is asked for no metrics, and comes again later.
pub(crate) async fn subscriptions(
    context: &RequestContext,
    request: GetTelemetrySubscriptionsRequest,
) -> GetTelemetrySubscriptionsResponse {
    let id = match request.client_instance_id {
        id if id.is_nil() => context.broker.challenges.instance_id(),
        id => id,
    };
    let now = context.broker.services.clock.elapsed();
    let telemetry = &context.broker.telemetry;
    let is_added = telemetry.subscribe(id, &context.client_id, now);
    let requested = REQUESTED.iter().filter(|_| is_added);
    GetTelemetrySubscriptionsResponse::default()
        .with_client_instance_id(id)
        .with_subscription_id(SUBSCRIPTION)
        .with_accepted_compression_types(CODECS.map(|codec| codec as i8).to_vec())
        .with_push_interval_ms(PUSH_INTERVAL.as_millis() as i32)
        .with_telemetry_max_bytes(MESSAGE_BYTES_MAX as i32)
        .with_delta_temporality(false)
        .with_requested_metrics(requested.map(|prefix| text(*prefix)).collect())
}

pub(crate) async fn push(
    context: &RequestContext,
    request: PushTelemetryRequest,
) -> PushTelemetryResponse {
    let response = PushTelemetryResponse::default();
    match accept(context, &request) {
        Ok(()) => response,
        Err(code) => response.with_error_code(context.error_code(&code)),
    }
}

fn accept(context: &RequestContext, request: &PushTelemetryRequest) -> Result<(), Code> {
    if request.client_instance_id.is_nil() {
        return Err(Code::InvalidRequest);
    }
    if request.subscription_id != SUBSCRIPTION {
        return Err(Code::UnknownSubscriptionId);
    }
    if request.metrics.len() > MESSAGE_BYTES_MAX {
        return Err(Code::TelemetryTooLarge);
    }
    let codec = u8::try_from(request.compression_type).ok();
    let codec = codec.and_then(|codec| Codec::try_from(codec).ok());
    let codec = codec.ok_or(Code::UnsupportedCompressionType)?;
    let share = context.broker.unpack_memory.try_take(UNPACK_BYTES_MAX);
    let _share = share.map_err(|_| Code::ThrottlingQuotaExceeded)?;
    let unpacked = match codec {
        Codec::None => request.metrics.to_vec(),
        codec => unpack(codec, &request.metrics, MESSAGE_BYTES_MAX, UNPACK_BYTES_MAX)
            .map_err(|_| Code::InvalidRecord)?,
    };
    let now = context.broker.services.clock.elapsed();
    let (id, terminating) = (request.client_instance_id, request.terminating);
    let pushed = (context.broker.telemetry).push(id, terminating, now, &unpacked);
    pushed.map_err(|error| match error {
        PushError::Unknown => Code::UnknownSubscriptionId,
        PushError::TooEarly => Code::ThrottlingQuotaExceeded,
        PushError::Invalid(_) => Code::InvalidRecord,
    })
}
