//! SCRAM credentials over the keys of the node: every secret has them. AlterUserScramCredentials sets one, with which a
//! client logs in by that mechanism, by PLAIN and over HTTP.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use highwater_access::{Key, ScramHash, ScramVerifier};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialUpsertion;
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
use crate::access::{Resource, UserChange, UserChangeRequest};
use crate::request::RequestContext;

/// Kafka's numbers of the mechanisms.
const MECHANISMS: [(ScramHash, i8); 2] = [(ScramHash::Sha256, 1), (ScramHash::Sha512, 2)];

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
    let has_credentials = |key: &&Arc<Key>| !credentials(key).is_empty();
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

/// Kafka's bounds. Each iteration costs time at every login.
const ITERATIONS: std::ops::RangeInclusive<i32> = 4096..=16384;

const SALT_BYTES_MAX: usize = 256;

/// The changes of one user, or why they are refused.
type Changes = Result<Vec<UserChange>, Refusal>;

pub(crate) async fn alter(
    context: &RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse {
    let allowed = context.allow(Resource::Node);
    let deletions = request.deletions.into_iter().map(|deletion| {
        let change = mechanism(deletion.mechanism).map(UserChange::RemoveCredential);
        (deletion.name, deletion.mechanism, change)
    });
    let upsertions = request.upsertions.into_iter().map(|upsertion| {
        let change = credential(&upsertion);
        (upsertion.name, upsertion.mechanism, change)
    });
    let mut seen = HashSet::new();
    let mut users: Vec<StrBytes> = Vec::new();
    let mut of_users: HashMap<StrBytes, Changes> = HashMap::new();
    for (user, mechanism, change) in deletions.chain(upsertions) {
        let is_new = seen.insert((user.clone(), mechanism));
        let changes = of_users.entry(user.clone()).or_insert_with(|| {
            users.push(user);
            Ok(Vec::new())
        });
        let twice = || Refusal::new(Code::DuplicateResource, "a credential is changed twice");
        let change = change.and_then(|change| is_new.then_some(change).ok_or_else(twice));
        match (changes.as_mut(), change) {
            (Ok(changes), Ok(change)) => changes.push(change),
            (Ok(_), Err(refusal)) => *changes = Err(refusal),
            (Err(_), _) => {}
        }
    }
    let mut results = Vec::with_capacity(users.len());
    for user in users {
        let changes = of_users.remove(&user).unwrap_or_else(|| Ok(Vec::new()));
        let outcome = match allowed {
            Ok(()) => change(context, &user, changes).await,
            Err(code) => Err(Refusal::from(code)),
        };
        context.audit(&user, outcome.as_ref().err().map(|refusal| refusal.code));
        let result = AlterUserScramCredentialsResult::default().with_user(user);
        results.push(with_refusal!(context, result, outcome));
    }
    AlterUserScramCredentialsResponse::default().with_results(results)
}

fn mechanism(number: i8) -> Result<ScramHash, Refusal> {
    let known = MECHANISMS.into_iter().find(|(_, known)| *known == number);
    let unknown = || Refusal::new(Code::UnsupportedSaslMechanism, "use SHA-256 or SHA-512");
    known.map(|(hash, _)| hash).ok_or_else(unknown)
}

/// The verifier is what the node stores of a secret: the request has the salted password, not the secret.
fn credential(upsertion: &ScramCredentialUpsertion) -> Result<UserChange, Refusal> {
    let hash = mechanism(upsertion.mechanism)?;
    let unacceptable = |reason: &str| Refusal::new(Code::UnacceptableCredential, reason);
    let iterations = match u32::try_from(upsertion.iterations) {
        Ok(iterations) if ITERATIONS.contains(&upsertion.iterations) => iterations,
        _ => return Err(unacceptable("4096 to 16384 iterations are accepted")),
    };
    if upsertion.salt.is_empty() || upsertion.salt.len() > SALT_BYTES_MAX {
        return Err(unacceptable("a salt has 1 to 256 bytes"));
    }
    if upsertion.salted_password.len() != hash.digest_len() {
        return Err(unacceptable(
            "the salted password is no digest of the mechanism",
        ));
    }
    let (password, salt) = (&upsertion.salted_password, &upsertion.salt);
    let verifier = ScramVerifier::from_salted_password(hash, password, salt, iterations);
    Ok(UserChange::SetCredential { hash, verifier })
}

async fn change(context: &RequestContext, user: &str, changes: Changes) -> Result<(), Refusal> {
    let request = UserChangeRequest {
        user: user.to_owned(),
        changes: changes?,
        validate_only: false,
    };
    let authorizer = &context.broker.services.authorizer;
    let changed = authorizer.change_user(&context.identity, request).await;
    changed.map_err(|error| Refusal::of_user(error, Code::UnacceptableCredential))
}
