//! Rights, credentials and quotas of keys in the requests of Kafka's tools.
// proves G1

use std::collections::HashSet;
use std::sync::Arc;

use highwater_access::{
    AccessRule, EVERYBODY, Key, KeyScope, Keys, Quota, Resource, Right, Rights, Usage,
};
use highwater_kafka::{Authorizer, Identity, UserChange, UserChangeError, UserChangeRequest};
use highwater_log::BoxFuture;
use kafka_protocol::messages::*;

use crate::common::*;
use crate::every_version::in_every_version;

/// A node with two keys, whose clients need no login. Grants, rules and quotas can be changed, of the key `app` only,
/// and the rules for everybody.
struct TwoKeys(Keys);

impl TwoKeys {
    fn new() -> TwoKeys {
        let rights: Rights = [Right::Send].into_iter().collect();
        let quota = Quota {
            bytes_in_per_second: Some(5000),
            connections_max: Some(3),
            ..Quota::default()
        };
        let app = Key::new("app", "secret", rights, KeyScope::of_hubs("app", ["t"]));
        let root = Key::new("root", "secret", Rights::ALL, KeyScope::UNLIMITED);
        TwoKeys(Keys::new(vec![app.limited(quota), root]))
    }

    fn change(&self, request: UserChangeRequest) -> Result<(), UserChangeError> {
        if request.user == EVERYBODY {
            let mut rules = self.0.everybody().list();
            for change in request.changes {
                match change {
                    UserChange::AddRule(rule) => rules.push(rule),
                    UserChange::RemoveRule(rule) => rules.retain(|known| *known != rule),
                    _ => panic!("everybody has rules only"),
                }
            }
            self.0.set_everybody(rules);
            return Ok(());
        }
        if request.user != "app" {
            let reason = format!("key `{}` is in the settings", request.user);
            return Err(UserChangeError::Refused(reason));
        }
        let mut key = Key::clone(&self.0.get("app", 0).unwrap());
        let mut quota = key.limiter.quota();
        for change in request.changes {
            match change {
                UserChange::Grant(grant) => key.grants.push(grant),
                UserChange::Revoke(grant) => key.grants.retain(|known| *known != grant),
                UserChange::AddRule(rule) => key.rules.push(rule),
                UserChange::RemoveRule(rule) => key.rules.retain(|known| *known != rule),
                UserChange::SetRate { usage, per_second } => match usage {
                    Usage::BytesIn => quota.bytes_in_per_second = per_second,
                    _ => quota.bytes_out_per_second = per_second,
                },
                UserChange::SetCredential { .. } | UserChange::RemoveCredential(_) => {
                    return Err(UserChangeError::NotFound("no such credential".into()));
                }
            }
        }
        if !request.validate_only {
            self.0.replace(key.limited(quota));
        }
        Ok(())
    }
}

impl Authorizer for TwoKeys {
    fn login(&self, _user: &str, _password: &str) -> BoxFuture<Option<Identity>> {
        Box::pin(std::future::ready(None))
    }

    fn keys(&self) -> Vec<Arc<Key>> {
        self.0.list()
    }

    fn change_user(
        &self,
        _who: &Identity,
        request: UserChangeRequest,
    ) -> BoxFuture<Result<(), UserChangeError>> {
        Box::pin(std::future::ready(self.change(request)))
    }

    fn everybody(&self) -> Vec<AccessRule> {
        self.0.everybody().list()
    }

    fn may(&self, _who: &Identity, right: Right, on: Resource<'_>) -> bool {
        self.0.anonymous().may(right, on)
    }

    fn may_see(&self, _who: &Identity, hub: &str) -> bool {
        self.0.anonymous().may_see(hub)
    }
}

async fn with_keys() -> TestServer {
    start_with(|_, services| services.authorizer = Arc::new(TwoKeys::new())).await
}

fn all_acls() -> DescribeAclsRequest {
    DescribeAclsRequest::default()
        .with_resource_type_filter(1)
        .with_resource_name_filter(None)
        .with_pattern_type_filter(1)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1)
}

#[tokio::test]
async fn rights_are_described_as_acls() {
    let server = with_keys().await;
    let mut client = server.connect().await;
    let describe = |_| all_acls().with_principal_filter(Some(text("User:app")));
    in_every_version(&mut client, describe, |_, response| {
        assert_eq!((response.error_code, response.error_message), (0, None));
        let topics: Vec<_> = (response.resources.iter())
            .filter(|one| one.resource_type == 2)
            .collect();
        assert_eq!(topics.len(), 1);
        assert_eq!(&*topics[0].resource_name, "t");
        let acl = &topics[0].acls[0];
        assert_eq!((&*acl.principal, &*acl.host), ("User:app", "*"));
        assert_eq!((acl.operation, acl.permission_type), (4, 3));
    })
    .await;
}

/// A binding of `User:app` on a literal name.
fn binding(resource: i8, name: &str, operation: i8) -> create_acls_request::AclCreation {
    create_acls_request::AclCreation::default()
        .with_resource_type(resource)
        .with_resource_name(text(name))
        .with_resource_pattern_type(3)
        .with_principal(text("User:app"))
        .with_host(text("*"))
        .with_operation(operation)
        .with_permission_type(3)
}

fn creation(bindings: Vec<create_acls_request::AclCreation>) -> CreateAclsRequest {
    CreateAclsRequest::default().with_creations(bindings)
}

/// Type, name and operation of the bindings of `User:app` on this topic, group or id.
async fn described(client: &mut Client, name: &str) -> Vec<i8> {
    let filter = all_acls()
        .with_principal_filter(Some(text("User:app")))
        .with_resource_name_filter(Some(text(name)));
    let response = client.call(3, &filter).await;
    let acls = response.resources.into_iter().flat_map(|one| one.acls);
    acls.map(|acl| acl.operation).collect()
}

const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const READ: i8 = 3;
const WRITE: i8 = 4;
const CREATE: i8 = 5;
const DESCRIBE: i8 = 8;
const DENY: i8 = 2;

#[tokio::test]
async fn bindings_become_grants_and_are_taken_back() {
    let server = with_keys().await;
    let mut client = server.connect().await;
    for version in 1..=3 {
        let reader = vec![
            binding(TOPIC, "in", READ),
            binding(TOPIC, "in", DESCRIBE),
            binding(GROUP, "g", READ),
        ];
        let response = client.call(version, &creation(reader)).await;
        let results = response.results.iter();
        let codes: Vec<_> = results
            .map(|one| (one.error_code, &one.error_message))
            .collect();
        assert_eq!(codes, [(0, &None); 3]);
        let producer = vec![binding(TOPIC, "out", WRITE), binding(TOPIC, "out", CREATE)];
        let response = client.call(version, &creation(producer)).await;
        assert!(response.results.iter().all(|one| one.error_code == 0));
        assert_eq!(described(&mut client, "in").await, [READ, DESCRIBE]);
        assert_eq!(described(&mut client, "g").await, [READ]);
        assert_eq!(described(&mut client, "out").await, [WRITE, CREATE]);

        let of = |name: &str, operation| {
            delete_acls_request::DeleteAclsFilter::default()
                .with_resource_type_filter(1)
                .with_resource_name_filter(Some(text(name)))
                .with_pattern_type_filter(3)
                .with_principal_filter(None)
                .with_host_filter(None)
                .with_operation(operation)
                .with_permission_type(1)
        };
        let filters = vec![of("in", 1), of("out", WRITE), of("g", 1), of("none", 1)];
        let delete = DeleteAclsRequest::default().with_filters(filters);
        let response = client.call(version, &delete).await;
        let matching: Vec<usize> = (response.filter_results.iter())
            .map(|one| one.matching_acls.len())
            .collect();
        assert_eq!(matching, [2, 1, 1, 0]);
        let acl = &response.filter_results[1].matching_acls[0];
        assert_eq!((acl.error_code, &*acl.principal), (0, "User:app"));
        assert_eq!((acl.operation, &*acl.resource_name), (WRITE, "out"));
        assert!(described(&mut client, "in").await.is_empty());
        assert_eq!(described(&mut client, "out").await, [CREATE]);
        let rest = DeleteAclsRequest::default().with_filters(vec![of("out", 1)]);
        client.call(version, &rest).await;
        assert!(described(&mut client, "out").await.is_empty());
    }
}

#[tokio::test]
async fn manage_is_given_and_taken_as_a_whole() {
    let server = with_keys().await;
    let mut client = server.connect().await;
    let all = [CREATE, 6, 7, 10, 11];
    let some = vec![binding(TOPIC, "m", 6), binding(TOPIC, "m", 7)];
    let response = client.call(3, &creation(some)).await;
    for result in &response.results {
        assert_eq!(result.error_code, 42);
        let message = result.error_message.as_deref().unwrap();
        assert!(message.contains("at once"), "{message}");
    }
    let whole = all.map(|operation| binding(TOPIC, "m", operation)).to_vec();
    let response = client.call(3, &creation(whole)).await;
    assert!(response.results.iter().all(|one| one.error_code == 0));
    assert_eq!(described(&mut client, "m").await, all);
    let response = client
        .call(3, &creation(vec![binding(TOPIC, "all", 2)]))
        .await;
    assert_eq!(response.results[0].error_code, 0);
    assert_eq!(
        described(&mut client, "all").await,
        [READ, WRITE, 5, 6, 7, 10, 11]
    );
    let filter = |name: &str, operation| {
        let filter = delete_acls_request::DeleteAclsFilter::default()
            .with_resource_type_filter(TOPIC)
            .with_resource_name_filter(Some(text(name)))
            .with_pattern_type_filter(1)
            .with_principal_filter(None)
            .with_host_filter(None)
            .with_operation(operation)
            .with_permission_type(1);
        DeleteAclsRequest::default().with_filters(vec![filter])
    };
    let response = client.call(3, &filter("m", 6)).await;
    let refused = &response.filter_results[0].matching_acls[0];
    assert_eq!(refused.error_code, 42);
    assert_eq!(described(&mut client, "m").await, all);
    let response = client.call(3, &filter("m", 1)).await;
    assert_eq!(response.filter_results[0].matching_acls.len(), 5);
    assert!(described(&mut client, "m").await.is_empty());
    // The rights that the key was made with.
    let response = client.call(3, &filter("t", 1)).await;
    let refused = &response.filter_results[0].matching_acls[0];
    assert_eq!(refused.error_code, 42);
    assert_eq!(described(&mut client, "t").await, [WRITE]);
}

#[tokio::test]
async fn a_binding_that_no_right_says_is_refused_with_the_reason() {
    let server = with_keys().await;
    let mut client = server.connect().await;
    let good = || binding(TOPIC, "x", READ);
    let cases = [
        (good().with_permission_type(1), "allows or denies"),
        (good().with_host(text("10.0.0.1")), "hosts"),
        (good().with_principal(text("Group:app")), "User:NAME"),
        (good().with_principal(text("User:root")), "settings"),
        (good().with_resource_type(4), "without limits"),
        (good().with_resource_type(6), "topics, groups"),
        (good().with_resource_pattern_type(2), "literal or a prefix"),
        (good().with_resource_name(text("")), "bytes"),
        (good().with_resource_name(text("a*")), "ends with *"),
        (binding(GROUP, "g", DESCRIBE), "comes with"),
        (
            good().with_permission_type(DENY).with_operation(6),
            "at once",
        ),
        (binding(GROUP, "g", WRITE), "READ (listen) and DELETE"),
        (binding(5, "id", READ), "WRITE (send)"),
    ];
    let (bindings, reasons): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    // One by one: bindings of a request over the same names are judged together.
    for (binding, reason) in bindings.into_iter().zip(reasons) {
        let response = client.call(3, &creation(vec![binding])).await;
        let result = &response.results[0];
        let message = result.error_message.as_deref().unwrap_or_default();
        assert_eq!(result.error_code, 42, "{reason}");
        assert!(message.contains(reason), "{reason}: {message}");
    }
    assert!(described(&mut client, "x").await.is_empty());
}

/// Principal, operation and permission of the bindings on this topic or group.
async fn all_described(client: &mut Client, name: &str) -> Vec<(String, i8, i8)> {
    let filter = all_acls().with_resource_name_filter(Some(text(name)));
    let response = client.call(3, &filter).await;
    let acls = response.resources.into_iter().flat_map(|one| one.acls);
    acls.map(|acl| {
        (
            acl.principal.to_string(),
            acl.operation,
            acl.permission_type,
        )
    })
    .collect()
}

#[tokio::test]
async fn denials_and_rules_for_everybody_are_listed_and_taken_exactly_as_they_were_given() {
    let server = with_keys().await;
    let mut client = server.connect().await;
    let everybody = |one: create_acls_request::AclCreation| one.with_principal(text("User:*"));
    let denied = |one: create_acls_request::AclCreation| one.with_permission_type(DENY);
    for version in 1..=3 {
        let given = vec![
            everybody(denied(binding(TOPIC, "x", 2))),
            everybody(binding(TOPIC, "x", READ)),
            everybody(binding(TOPIC, "x", DESCRIBE)),
            everybody(denied(binding(GROUP, "x", 2))),
            denied(binding(TOPIC, "x", WRITE)),
            denied(binding(TOPIC, "x", CREATE)),
            binding(TOPIC, "x", DESCRIBE),
        ];
        let expected: HashSet<(String, i8, i8)> = given
            .iter()
            .map(|one| {
                (
                    one.principal.to_string(),
                    one.operation,
                    one.permission_type,
                )
            })
            .collect();
        let response = client.call(version, &creation(given.clone())).await;
        let codes = response.results.iter().map(|one| one.error_code);
        assert_eq!(codes.collect::<Vec<_>>(), [0; 7]);
        client.call(version, &creation(given)).await;
        let found = all_described(&mut client, "x").await;
        assert_eq!(found.len(), 7, "each once: {found:?}");
        assert_eq!(found.into_iter().collect::<HashSet<_>>(), expected);

        let of = |principal: &str, operation, permission| {
            delete_acls_request::DeleteAclsFilter::default()
                .with_resource_type_filter(TOPIC)
                .with_resource_name_filter(Some(text("x")))
                .with_pattern_type_filter(3)
                .with_principal_filter(Some(text(principal)))
                .with_host_filter(Some(text("*")))
                .with_operation(operation)
                .with_permission_type(permission)
        };
        let filters = vec![
            of("User:*", 2, DENY),
            of("User:*", 2, 3),
            of("User:app", WRITE, DENY),
        ];
        let delete = DeleteAclsRequest::default().with_filters(filters);
        let response = client.call(version, &delete).await;
        let counts = response.filter_results.iter();
        let counts: Vec<usize> = counts.map(|one| one.matching_acls.len()).collect();
        assert_eq!(counts, [1, 0, 1]);
        let taken = &response.filter_results[0].matching_acls[0];
        assert_eq!((taken.error_code, taken.permission_type), (0, DENY));
        assert_eq!((&*taken.principal, taken.operation), ("User:*", 2));
        assert_eq!(all_described(&mut client, "x").await.len(), 5);
        let rest = of("", 1, 1)
            .with_resource_type_filter(1)
            .with_principal_filter(None);
        let rest = DeleteAclsRequest::default().with_filters(vec![rest]);
        client.call(version, &rest).await;
        assert!(all_described(&mut client, "x").await.is_empty());
    }
}

/// The code of a topic in Metadata of this topic, and the number of topics with this name in Metadata of all.
async fn metadata_of(client: &mut Client, topic: &str) -> (i16, usize) {
    let one =
        metadata_request::MetadataRequestTopic::default().with_name(Some(TopicName(text(topic))));
    let named = MetadataRequest::default().with_topics(Some(vec![one]));
    let code = client.call(12, &named).await.topics[0].error_code;
    let all = client
        .call(12, &MetadataRequest::default().with_topics(None))
        .await;
    let is_it = |found: &&metadata_response::MetadataResponseTopic| {
        found.name.as_ref().is_some_and(|name| &**name == topic)
    };
    (code, all.topics.iter().filter(is_it).count())
}

#[tokio::test]
async fn a_topic_that_is_denied_to_everybody_is_refused_and_left_out() {
    let server = with_keys().await;
    let mut client = server.connect().await;
    server.make("x", 1).await;
    assert_eq!(metadata_of(&mut client, "x").await, (0, 1));
    let rule = |operation| {
        let binding = binding(TOPIC, "x", operation).with_principal(text("User:*"));
        creation(vec![binding.with_permission_type(DENY)])
    };
    client.call(3, &rule(READ)).await;
    assert_eq!(metadata_of(&mut client, "x").await, (0, 1), "READ only");
    client.call(3, &rule(2)).await;
    assert_eq!(metadata_of(&mut client, "x").await, (29, 0));
}

#[tokio::test]
async fn a_node_without_keys_has_no_acls() {
    let server = start().await;
    let mut client = server.connect().await;
    let response = client.call(3, &all_acls()).await;
    assert_eq!(response.error_code, 54);
}

#[tokio::test]
async fn credentials_are_described_and_belong_to_secrets() {
    let server = with_keys().await;
    let mut client = server.connect().await;
    let all = DescribeUserScramCredentialsRequest::default().with_users(None);
    let response = client.call(0, &all).await;
    let users: Vec<&str> = response.results.iter().map(|one| &*one.user).collect();
    assert_eq!(users, ["app", "root"]);
    let infos = response.results[0].credential_infos.iter();
    let infos: Vec<_> = infos.map(|one| (one.mechanism, one.iterations)).collect();
    assert_eq!(infos, [(1, 4096), (2, 4096)]);
    let named = |name: &str| {
        describe_user_scram_credentials_request::UserName::default().with_name(text(name))
    };
    let some = DescribeUserScramCredentialsRequest::default().with_users(Some(vec![
        named("root"),
        named("nobody"),
        named("root"),
    ]));
    let response = client.call(0, &some).await;
    let codes: Vec<i16> = response.results.iter().map(|one| one.error_code).collect();
    assert_eq!(codes, [0, 91]);
    let upsertion = alter_user_scram_credentials_request::ScramCredentialUpsertion::default()
        .with_name(text("app"));
    let alter =
        AlterUserScramCredentialsRequest::default().with_upsertions(vec![upsertion.clone()]);
    let response = client.call(0, &alter).await;
    assert_eq!(response.results[0].error_code, 33, "no such mechanism");
    let good = upsertion
        .with_mechanism(1)
        .with_iterations(4096)
        .with_salt(vec![1; 16].into())
        .with_salted_password(vec![1; 32].into());
    for (wrong, code) in [
        (good.clone().with_iterations(4095), 93),
        (good.clone().with_iterations(16385), 93),
        (good.clone().with_salt(Default::default()), 93),
        (good.clone().with_mechanism(2), 93),
        // Accepted, and then refused by the store of the test.
        (good.clone(), 91),
    ] {
        let alter = AlterUserScramCredentialsRequest::default().with_upsertions(vec![wrong]);
        let response = client.call(0, &alter).await;
        assert_eq!(response.results[0].error_code, code);
        assert!(response.results[0].error_message.is_some());
    }
    let twice =
        AlterUserScramCredentialsRequest::default().with_upsertions(vec![good.clone(), good]);
    let response = client.call(0, &twice).await;
    assert_eq!(
        (response.results.len(), response.results[0].error_code),
        (1, 92)
    );
}

#[tokio::test]
async fn quotas_of_keys_are_described_and_changed() {
    let server = with_keys().await;
    let mut client = server.connect().await;
    let describe = |_| DescribeClientQuotasRequest::default();
    in_every_version(&mut client, describe, |_, response| {
        assert_eq!((response.error_code, response.error_message), (0, None));
        let entries = response.entries.unwrap();
        assert_eq!(entries.len(), 1, "only one has a quota that Kafka knows");
        let user = &entries[0].entity[0];
        assert_eq!(&*user.entity_type, "user");
        assert_eq!(user.entity_name.as_deref(), Some("app"));
        let values: Vec<_> = (entries[0].values.iter())
            .map(|one| (&*one.key, one.value))
            .collect();
        assert_eq!(values, [("producer_byte_rate", 5000.0)]);
    })
    .await;
    let alter = |key: &str, value, validate_only| {
        let user = alter_client_quotas_request::EntityData::default()
            .with_entity_type(text("user"))
            .with_entity_name(Some(text("app")));
        let op = alter_client_quotas_request::OpData::default()
            .with_key(text(key))
            .with_value(value);
        let entry = alter_client_quotas_request::EntryData::default()
            .with_entity(vec![user])
            .with_ops(vec![op]);
        AlterClientQuotasRequest::default()
            .with_entries(vec![entry])
            .with_validate_only(validate_only)
    };
    for (version, validate_only, expected) in
        [(0, true, 5000.0), (0, false, 700.0), (1, false, 900.0)]
    {
        let request = alter(
            "producer_byte_rate",
            f64::min(expected, 900.0),
            validate_only,
        );
        let response = client.call(version, &request).await;
        let entry = &response.entries[0];
        assert_eq!((entry.error_code, &entry.error_message), (0, &None));
        assert_eq!(entry.entity[0].entity_name.as_deref(), Some("app"));
        let response = client
            .call(1, &DescribeClientQuotasRequest::default())
            .await;
        assert_eq!(response.entries.unwrap()[0].values[0].value, expected);
    }
    let response = client
        .call(1, &alter("request_percentage", 10.0, false))
        .await;
    assert_eq!(response.entries[0].error_code, 42);
    let message = response.entries[0].error_message.as_deref();
    assert!(message.unwrap().contains("producer_byte_rate"));
}

#[tokio::test]
async fn features_stay_as_they_are() {
    let server = start().await;
    let mut client = server.connect().await;
    let update = |name: &str, level| {
        let key = update_features_request::FeatureUpdateKey::default()
            .with_feature(text(name))
            .with_max_version_level(level);
        UpdateFeaturesRequest::default().with_feature_updates(vec![key])
    };
    for (name, level, code) in [
        ("transaction.version", 2, 0),
        ("transaction.version", 1, 95),
        ("metadata.version", 25, 95),
    ] {
        let request = |_| update(name, level);
        in_every_version(&mut client, request, |version, response| {
            assert_eq!(response.error_code, code);
            assert_eq!(response.error_message.is_some(), code != 0);
            if version < 2 {
                assert_eq!(response.results[0].error_code, code);
            }
        })
        .await;
    }
}
