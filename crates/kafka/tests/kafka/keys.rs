//! Rights, credentials and quotas of keys in the requests of Kafka's tools.
// proves G1

use std::sync::Arc;

use highwater_access::{Key, KeyScope, Quota, Resource, Right, Rights};
use highwater_kafka::{Authorizer, Identity};
use highwater_log::BoxFuture;
use kafka_protocol::messages::*;

use crate::common::*;
use crate::every_version::in_every_version;

/// A node with two keys, whose clients need no login.
struct TwoKeys;

impl Authorizer for TwoKeys {
    fn login(&self, _user: &str, _password: &str) -> BoxFuture<Option<Identity>> {
        Box::pin(std::future::ready(None))
    }

    fn keys(&self) -> Vec<Arc<Key>> {
        let rights: Rights = [Right::Send].into_iter().collect();
        let quota = Quota {
            bytes_in_per_second: Some(5000),
            connections_max: Some(3),
            ..Quota::default()
        };
        let app = Key::new("app", "secret", rights, KeyScope::of_hubs("app", ["t"]));
        let root = Key::new("root", "secret", Rights::ALL, KeyScope::UNLIMITED);
        vec![Arc::new(app.limited(quota)), Arc::new(root)]
    }

    fn may(&self, _who: &Identity, _right: Right, _on: Resource<'_>) -> bool {
        true
    }
}

async fn with_keys() -> TestServer {
    start_with(|_, services| services.authorizer = Arc::new(TwoKeys)).await
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
async fn rights_are_described_as_acls_and_not_changed_by_them() {
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
    let create = |_| {
        let binding = create_acls_request::AclCreation::default();
        CreateAclsRequest::default().with_creations(vec![binding])
    };
    in_every_version(&mut client, create, |_, response| {
        assert_eq!(response.results[0].error_code, 42);
        let message = response.results[0].error_message.as_deref();
        assert!(message.unwrap().contains("/api/keys"));
    })
    .await;
    let delete = |_| {
        let filter = delete_acls_request::DeleteAclsFilter::default();
        DeleteAclsRequest::default().with_filters(vec![filter])
    };
    in_every_version(&mut client, delete, |_, response| {
        assert_eq!(response.filter_results[0].error_code, 42);
    })
    .await;
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
    let alter = AlterUserScramCredentialsRequest::default().with_upsertions(vec![upsertion]);
    let response = client.call(0, &alter).await;
    assert_eq!(response.results[0].error_code, 93);
    let message = response.results[0].error_message.as_deref();
    assert!(message.unwrap().contains("rotate"));
}

#[tokio::test]
async fn quotas_of_keys_are_described_and_not_changed() {
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
    let alter = |_| {
        let user = alter_client_quotas_request::EntityData::default()
            .with_entity_type(text("user"))
            .with_entity_name(Some(text("app")));
        let entry = alter_client_quotas_request::EntryData::default().with_entity(vec![user]);
        AlterClientQuotasRequest::default().with_entries(vec![entry])
    };
    in_every_version(&mut client, alter, |_, response| {
        assert_eq!(response.entries[0].error_code, 42);
        assert_eq!(
            response.entries[0].entity[0].entity_name.as_deref(),
            Some("app")
        );
        let message = response.entries[0].error_message.as_deref();
        assert!(message.unwrap().contains("[[keys]]"));
    })
    .await;
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
