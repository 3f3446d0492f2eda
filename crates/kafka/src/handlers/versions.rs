//! ApiVersions, with which every client starts, and requests of versions that we do not speak.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use crate::answer::Outcome;
use crate::api::APIS;
use crate::call::{Call, ProtocolError};

pub(crate) fn versions(
    call: &Call,
    _request: ApiVersionsRequest,
) -> Result<Outcome, ProtocolError> {
    call.encode(&announced())
}

fn announced() -> ApiVersionsResponse {
    let announced = APIS.iter().map(|api| {
        ApiVersion::default()
            .with_api_key(api.key as i16)
            .with_min_version(api.min)
            .with_max_version(api.max)
    });
    ApiVersionsResponse::default().with_api_keys(announced.collect())
}

/// A version of ApiVersions that is newer than ours is answered in the oldest form, which every
/// client reads and tries again with less. Nothing else has an answer that the client could read.
pub(crate) fn unsupported(call: &Call) -> Result<Outcome, ProtocolError> {
    let unknown = ProtocolError::UnknownVersion {
        key: call.api.key as i16,
        version: call.version,
    };
    match call.api.key {
        ApiKey::ApiVersions => {
            let code = Code::UnsupportedVersion.code();
            call.encode_as(&announced().with_error_code(code), 0)
        }
        _ => Err(unknown),
    }
}
