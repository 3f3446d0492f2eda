//! The features of the node, which clients learn with ApiVersions and tools try to change with UpdateFeatures.
//!
//! Clients choose their transaction protocol by `transaction.version`, and tools recognize the consumer protocol of
//! groups by `group.version`. The levels are fixed: they belong to the version of the node.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::update_features_response::UpdatableFeatureResult;
use kafka_protocol::messages::{
    ApiVersionsResponse, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{Refusal, some_text, text, with_refusal};
use crate::access::Resource;
use crate::request::RequestContext;

/// The features and their levels, from 0, as in Kafka 4.
const FEATURES: [(&str, i16); 2] = [("group.version", 1), ("transaction.version", 2)];

/// The first version whose clients accept features that begin at level 0; earlier ones get the current levels only.
const LEVEL_ZERO: i16 = 4;

pub(super) fn with_features(version: i16, response: ApiVersionsResponse) -> ApiVersionsResponse {
    let supported = FEATURES.iter().filter(|_| version >= LEVEL_ZERO);
    let supported = supported.map(|(name, level)| {
        SupportedFeatureKey::default()
            .with_name(text(*name))
            .with_min_version(0)
            .with_max_version(*level)
    });
    let finalized = FEATURES.iter().map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(text(*name))
            .with_min_version_level(*level)
            .with_max_version_level(*level)
    });
    response
        .with_supported_features(supported.collect())
        .with_finalized_features_epoch(0)
        .with_finalized_features(finalized.collect())
}

/// Accepts the levels that there are, so that tools that set a release find nothing to do.
fn check_level(name: &str, level: i16) -> Result<(), Refusal> {
    match FEATURES.iter().find(|(known, _)| *known == name) {
        Some((_, current)) if *current == level => Ok(()),
        Some((_, current)) => {
            let reason = format!("{name} is {current} in this version of the node, and stays so");
            Err(Refusal::new(Code::InvalidUpdateVersion, reason))
        }
        None => {
            let reason = format!("there is no feature {name}");
            Err(Refusal::new(Code::InvalidUpdateVersion, reason))
        }
    }
}

/// All updates or none, as in Kafka: an error is that of the whole request, and before version 2 of each feature, too.
pub(crate) async fn update(
    context: &RequestContext,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    let checks: Vec<(StrBytes, Result<(), Refusal>)> = (request.feature_updates.into_iter())
        .map(|update| {
            let checked = check_level(&update.feature, update.max_version_level);
            (update.feature, checked)
        })
        .collect();
    let response = UpdateFeaturesResponse::default().with_error_message(None);
    if let Err(code) = context.allow(Resource::Node) {
        return response
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(code));
    }
    let refused = checks
        .iter()
        .find_map(|(_, checked)| checked.as_ref().err());
    context.audit("features", refused.map(|refusal| refusal.code));
    let whole = refused.map(|refusal| (refusal.code, refusal.reason.clone()));
    let response = match whole {
        Some((code, reason)) => response
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(reason)),
        None => response,
    };
    match context.version {
        2.. => response,
        _ => {
            let results = checks.into_iter().map(|(feature, checked)| {
                let result = UpdatableFeatureResult::default().with_feature(feature);
                with_refusal!(context, result, checked)
            });
            response.with_results(results.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_stay_and_the_current_ones_are_accepted() {
        assert!(check_level("transaction.version", 2).is_ok());
        let lower = check_level("transaction.version", 1).unwrap_err();
        assert_eq!(lower.code, Code::InvalidUpdateVersion);
        let unknown = check_level("share.version", 1).unwrap_err();
        assert_eq!(unknown.code, Code::InvalidUpdateVersion);
    }
}
