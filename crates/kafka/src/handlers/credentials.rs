//! SCRAM credentials over the keys of the node: every key has them, made from its secret. They are described, and changed
//! with the secret only, which is not in these requests.

use std::sync::Arc;

use highwater_access::{Key, ScramHash};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{Refusal, distinct, some_text, text, with_refusal};
use crate::access::Resource;
use crate::request::RequestContext;

/// Kafka's numbers of the mechanisms.
const MECHANISMS: [(ScramHash, i8); 2] = [(ScramHash::Sha256, 1), (ScramHash::Sha512, 2)];

const SETTINGS: &str = "credentials belong to the secret of a key: rotate it (POST /api/keys/{name}/rotate), add or revoke \
     a key (/api/keys), or change [[keys]] in the settings of the node";

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    let response = DescribeUserScramCredentialsResponse::default().with_error_message(None);
    if let Err(code) = context.allow(Resource::Node) {
        return response
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(code));
    }
    let keys: Vec<Arc<Key>> = context.broker.services.authorizer.keys();
    let has_credentials = |key: &&Arc<Key>| !key.verifiers(ScramHash::Sha256).is_empty();
    let names: Vec<StrBytes> = match request.users {
        Some(users) if !users.is_empty() => {
            distinct(users.into_iter().map(|user| user.name).collect())
        }
        _ => {
            let with_credentials = keys.iter().filter(has_credentials);
            with_credentials.map(|key| text(&*key.name)).collect()
        }
    };
    let results = names.into_iter().map(|name| {
        let key = keys.iter().find(|key| key.name == *name);
        let result = DescribeUserScramCredentialsResult::default().with_user(name.clone());
        let found = match key.filter(has_credentials) {
            Some(key) => Ok(credentials(key)),
            None => {
                let reason = format!("no key {} has credentials", name.as_str());
                Err(Refusal::new(Code::ResourceNotFound, reason))
            }
        };
        let result = match &found {
            Ok(credentials) => result.with_credential_infos(credentials.clone()),
            Err(_) => result,
        };
        with_refusal!(context, result, found)
    });
    response.with_results(results.collect())
}

fn credentials(key: &Key) -> Vec<CredentialInfo> {
    let infos = MECHANISMS.into_iter().filter_map(|(hash, number)| {
        let verifiers = key.verifiers(hash);
        let iterations = i32::try_from(verifiers.first()?.iterations).ok()?;
        let info = CredentialInfo::default().with_mechanism(number);
        Some(info.with_iterations(iterations))
    });
    infos.collect()
}

pub(crate) async fn alter(
    context: &RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse {
    let (code, reason) = match context.allow(Resource::Node) {
        Ok(()) => (Code::UnacceptableCredential, SETTINGS.to_owned()),
        Err(code) => (code, code.to_string()),
    };
    let deleted = request.deletions.into_iter().map(|deletion| deletion.name);
    let changed = request.upsertions.into_iter().map(|change| change.name);
    let users = distinct(deleted.chain(changed).collect());
    let results = users.into_iter().map(|user| {
        context.audit(&user, Some(code));
        AlterUserScramCredentialsResult::default()
            .with_user(user)
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(&reason))
    });
    AlterUserScramCredentialsResponse::default().with_results(results.collect())
}
