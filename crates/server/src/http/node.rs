//! The node itself: health, metrics, the description of the API.

use hyper::StatusCode;
use serde_json::json;

use super::dispatch::ApiRequest;
use super::error::Error;
use super::reply::{self, Payload, Reply};
use super::{metrics as metric_page, openapi};

pub(super) async fn health(_: ApiRequest<'_>) -> Result<Reply, Error> {
    Ok(reply::empty(StatusCode::OK))
}

pub(super) async fn ready(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let status = request.app.backend()?.hub.as_ref().map(|hub| hub.status());
    let partitions = status.iter().flat_map(|status| &status.partitions);
    // This needs no key, so it gives no reason for stopped partitions.
    let stopped: Vec<String> = partitions
        .filter(|partition| partition.stopped.is_some())
        .map(|partition| partition.topic_partition.to_string())
        .collect();
    let body = json!({"ready": true, "stopped": stopped});
    Ok(reply::ok(&body))
}

pub(super) async fn metrics(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let reserved = request
        .app
        .budget
        .try_take(metric_page::bytes_max(request.app))?;
    let mut reply = metric_page::page(request.app).await;
    reply.body_mut().settle(reserved)?;
    Ok(reply)
}

pub(super) async fn openapi_document(_: ApiRequest<'_>) -> Result<Reply, Error> {
    let document = Payload::constant(openapi::document());
    Ok(reply::typed(StatusCode::OK, reply::JSON, document))
}

pub(super) async fn openapi_page(_: ApiRequest<'_>) -> Result<Reply, Error> {
    Ok(reply::html(Payload::constant(openapi::page().as_bytes())))
}
