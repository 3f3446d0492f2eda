//! ApiVersions, the first request of every client, and requests in unsupported versions.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use crate::api::APIS;
use crate::request::{ProtocolError, RequestContext, encode};
use crate::response::EncodedResponse;

pub(crate) fn versions(
    context: &RequestContext,
    _request: ApiVersionsRequest,
) -> Result<EncodedResponse, ProtocolError> {
    context.encode(&supported_versions())
}

fn supported_versions() -> ApiVersionsResponse {
    let versions = APIS.iter().map(|api| {
        ApiVersion::default()
            .with_api_key(api.key as i16)
            .with_min_version(api.min)
            .with_max_version(api.max)
    });
    ApiVersionsResponse::default().with_api_keys(versions.collect())
}

/// A newer ApiVersions is answered in version 0, which every client can read; it then retries with an older one.
/// Other requests have no response that the client could read.
pub(crate) fn unsupported(context: &RequestContext) -> Result<EncodedResponse, ProtocolError> {
    let unknown = ProtocolError::UnknownVersion {
        key: context.api.key as i16,
        version: context.version,
    };
    match context.api.key {
        ApiKey::ApiVersions => {
            let code = Code::UnsupportedVersion.code();
            let response = supported_versions().with_error_code(code);
            encode(&context.api, 0, context.correlation, &response)
        }
        _ => Err(unknown),
    }
}
