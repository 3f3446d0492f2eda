//! GetTelemetrySubscriptions and PushTelemetry (KIP-714): clients push the metrics that a subscription asks for, and
//! `/metrics` shows them.

use highwater_log::batch::{Codec, unpack};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, PushTelemetryRequest,
    PushTelemetryResponse,
};

use uuid::Uuid;

use super::text;
use crate::request::RequestContext;
use crate::telemetry::{ClientFacts, PushError, Subscription};

/// The largest message, packed or not.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// For a message and its decoder.
const UNPACK_BYTES_MAX: usize = 8 << 20;

/// The best first.
const CODECS: [Codec; 4] = [Codec::Zstd, Codec::Lz4, Codec::Gzip, Codec::Snappy];

fn subscription(context: &RequestContext, instance: Uuid) -> Subscription {
    let client = ClientFacts {
        instance,
        client_id: &context.client_id,
        address: context.client,
    };
    Subscription::of(&client, &context.broker.settings())
}

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
    let mut subscription = subscription(context, id);
    let (is_empty, interval) = (subscription.metrics.is_empty(), subscription.interval);
    if is_empty || !telemetry.subscribe(id, &context.client_id, interval, now) {
        subscription.metrics.clear();
    }
    let requested = subscription.metrics.into_iter();
    GetTelemetrySubscriptionsResponse::default()
        .with_client_instance_id(id)
        .with_subscription_id(subscription.id)
        .with_accepted_compression_types(CODECS.map(|codec| codec as i8).to_vec())
        .with_push_interval_ms(i32::try_from(interval.as_millis()).unwrap_or(i32::MAX))
        .with_telemetry_max_bytes(MESSAGE_BYTES_MAX as i32)
        .with_delta_temporality(false)
        .with_requested_metrics(requested.map(text).collect())
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
    let subscription = subscription(context, request.client_instance_id);
    if request.subscription_id != subscription.id {
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
    let pushed = (context.broker.telemetry).push(id, &subscription, terminating, now, &unpacked);
    pushed.map_err(|error| match error {
        PushError::Unknown => Code::UnknownSubscriptionId,
        PushError::TooEarly => Code::ThrottlingQuotaExceeded,
        PushError::Invalid(_) => Code::InvalidRecord,
    })
}
