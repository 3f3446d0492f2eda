//! ApiVersions, the first request of every client, and requests that are not supported.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{
    AddRaftVoterResponse, AlterShareGroupOffsetsResponse, ApiKey, ApiVersionsRequest,
    ApiVersionsResponse, CreateDelegationTokenResponse, DeleteShareGroupOffsetsResponse,
    DescribeDelegationTokenResponse, ExpireDelegationTokenResponse, RemoveRaftVoterResponse,
    RenewDelegationTokenResponse, ShareAcknowledgeResponse, ShareFetchResponse,
    ShareGroupHeartbeatResponse, UnregisterBrokerResponse,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Message};

use super::features::with_features;
use crate::api::{APIS, Api};
use crate::request::{ProtocolError, RequestContext, RequestHead, encode};
use crate::response::EncodedResponse;

pub(crate) fn versions(
    context: &RequestContext,
    _request: ApiVersionsRequest,
) -> Result<EncodedResponse, ProtocolError> {
    let versions = supported_versions();
    context.encode(match context.version {
        ..3 => versions,
        version => with_features(version, versions),
    })
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

/// The answer to a request that is not announced, if its response has an error code for the whole request and the codec
/// knows the version: `UNSUPPORTED_VERSION`. `None` for the others, which no client could read.
pub(crate) fn unsupported_key(head: &RequestHead) -> Option<EncodedResponse> {
    let code = Code::UnsupportedVersion.code();
    macro_rules! refuse {
        ($($key:ident $response:ident,)*) => {
            match ApiKey::try_from(head.key).ok()? {
                $(key @ ApiKey::$key => {
                    refusal(key, head, $response::default().with_error_code(code))
                })*
                _ => None,
            }
        };
    }
    refuse! {
        CreateDelegationToken CreateDelegationTokenResponse,
        RenewDelegationToken RenewDelegationTokenResponse,
        ExpireDelegationToken ExpireDelegationTokenResponse,
        DescribeDelegationToken DescribeDelegationTokenResponse,
        UnregisterBroker UnregisterBrokerResponse,
        ShareGroupHeartbeat ShareGroupHeartbeatResponse,
        ShareFetch ShareFetchResponse,
        ShareAcknowledge ShareAcknowledgeResponse,
        AddRaftVoter AddRaftVoterResponse,
        RemoveRaftVoter RemoveRaftVoterResponse,
        AlterShareGroupOffsets AlterShareGroupOffsetsResponse,
        DeleteShareGroupOffsets DeleteShareGroupOffsetsResponse,
    }
}

fn refusal<A: Encodable + HeaderVersion + Message>(
    key: ApiKey,
    head: &RequestHead,
    response: A,
) -> Option<EncodedResponse> {
    let versions = A::VERSIONS;
    let is_known = (versions.min..=versions.max).contains(&head.version);
    let api = Api::unannounced(key, head.version);
    let encoded = is_known.then(|| encode(&api, head.version, head.correlation, &response));
    encoded?.ok()
}
