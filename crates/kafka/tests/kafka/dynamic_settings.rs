//! Settings of the broker, subscriptions and quotas that clients change while the node runs.
// proves K4

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::alter_client_quotas_request as alter_quotas;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::*;

use crate::common::*;

const BROKER: i8 = 4;
const TOPIC: i8 = 2;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

const SET: i8 = 0;
const UNSET: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

const BACKOFF: &str = "log.cleaner.backoff.ms";

/// A resource that has settings: its type and name.
#[derive(Clone, Copy)]
struct Of(i8, &'static str);

async fn alter(client: &mut Client, of: Of, operation: i8, name: &str, value: &str) -> i16 {
    let config = AlterableConfig::default()
        .with_name(text(name))
        .with_config_operation(operation)
        .with_value(Some(text(value)).filter(|_| operation != UNSET));
    let resource = AlterConfigsResource::default()
        .with_resource_type(of.0)
        .with_resource_name(text(of.1))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.call(1, &request).await.responses[0].error_code
}

async fn described(client: &mut Client, of: Of) -> Vec<DescribeConfigsResourceResult> {
    let resource = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(of.0)
        .with_resource_name(text(of.1));
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    let result = client.call(4, &request).await.results.remove(0);
    assert_eq!(result.error_code, 0);
    result.configs
}

/// Values with their sources, the one that holds first.
async fn levels(client: &mut Client, of: Of, name: &str) -> Vec<(String, i8)> {
    let all = described(client, of).await;
    let setting = all.into_iter().find(|setting| &*setting.name == name);
    let setting = setting.unwrap();
    assert!(!setting.read_only && !setting.documentation.unwrap().is_empty());
    let synonyms = setting.synonyms.into_iter();
    let levels: Vec<_> = synonyms
        .map(|level| (level.value.unwrap().to_string(), level.source))
        .collect();
    let first = (setting.value.unwrap().to_string(), setting.config_source);
    assert_eq!(levels[0], first);
    levels
}

fn pairs(levels: &[(&str, i8)]) -> Vec<(String, i8)> {
    let levels = levels.iter();
    levels
        .map(|(value, source)| ((*value).to_owned(), *source))
        .collect()
}

#[tokio::test]
async fn a_setting_of_the_node_precedes_that_of_every_broker_and_both_the_default() {
    let server = start().await;
    let mut client = server.connect().await;
    let (own, every) = (Of(BROKER, "1"), Of(BROKER, ""));
    let default = pairs(&[("10000", 5)]);
    assert_eq!(levels(&mut client, own, BACKOFF).await, default);
    assert!(described(&mut client, every).await.is_empty());
    assert_eq!(alter(&mut client, every, SET, BACKOFF, "20000").await, 0);
    assert_eq!(alter(&mut client, own, SET, BACKOFF, "30000").await, 0);
    let all = pairs(&[("30000", 2), ("20000", 3), ("10000", 5)]);
    assert_eq!(levels(&mut client, own, BACKOFF).await, all);
    assert_eq!(levels(&mut client, every, BACKOFF).await, all[1..]);
    assert_eq!(alter(&mut client, own, UNSET, BACKOFF, "").await, 0);
    assert_eq!(levels(&mut client, own, BACKOFF).await, all[1..]);
    // All that are not named are reset.
    let resource = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(BROKER)
        .with_resource_name(text(""))
        .with_configs(vec![
            alter_configs_request::AlterableConfig::default()
                .with_name(text("log.cleaner.threads"))
                .with_value(Some(text("2"))),
        ]);
    let replace = AlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.call(2, &replace).await.responses[0].error_code, 0);
    assert_eq!(levels(&mut client, own, BACKOFF).await, default);
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused() {
    let server = start().await;
    let mut client = server.connect().await;
    let own = Of(BROKER, "1");
    let invalid = Code::InvalidRequest.code();
    for (name, value) in [
        (BACKOFF, "soon"),
        (BACKOFF, "0"),
        ("max.connections", "10001"),
        ("node.id", "5"),
        ("no.such.setting", "1"),
    ] {
        assert_eq!(
            alter(&mut client, own, SET, name, value).await,
            invalid,
            "{name}"
        );
    }
    let appended = alter(&mut client, own, APPEND, BACKOFF, "1").await;
    assert_eq!(appended, Code::InvalidConfig.code());
    let elsewhere = alter(&mut client, Of(BROKER, "2"), SET, BACKOFF, "20000").await;
    assert_eq!(elsewhere, invalid);
    let reset = alter(&mut client, own, UNSET, "no.such.setting", "").await;
    assert_eq!(reset, 0, "tools reset throttles of any name");
}

#[tokio::test]
async fn a_default_of_topics_is_one_of_the_node_and_of_every_broker() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    let (own, every, t) = (Of(BROKER, "1"), Of(BROKER, ""), Of(TOPIC, "t"));
    let policy = "log.cleanup.policy";
    assert_eq!(
        levels(&mut client, own, policy).await,
        pairs(&[("delete", 5)])
    );
    assert_eq!(
        alter(&mut client, every, APPEND, policy, "compact").await,
        0
    );
    assert_eq!(alter(&mut client, own, SET, policy, "compact").await, 0);
    let all = pairs(&[("compact", 2), ("delete,compact", 3), ("delete", 5)]);
    assert_eq!(levels(&mut client, own, policy).await, all);
    assert_eq!(levels(&mut client, t, "cleanup.policy").await, all);
    assert_eq!(
        alter(&mut client, every, SUBTRACT, policy, "compact").await,
        0
    );
    assert_eq!(alter(&mut client, own, UNSET, policy, "").await, 0);
    let kept = pairs(&[("delete", 3), ("delete", 5)]);
    assert_eq!(levels(&mut client, t, "cleanup.policy").await, kept);
    let invalid = Code::InvalidRequest.code();
    for (name, value) in [
        (policy, "shred"),
        ("log.segment.bytes", "5"),
        ("log.retention.ms", "soon"),
        ("log.preallocate", "perhaps"),
    ] {
        let code = alter(&mut client, every, SET, name, value).await;
        assert_eq!(code, invalid, "{name}");
    }
}

#[tokio::test]
async fn a_group_has_settings_of_its_own() {
    let server = start().await;
    let mut client = server.connect().await;
    let (group, other) = (Of(GROUP, "g"), Of(GROUP, "other"));
    let session = "consumer.session.timeout.ms";
    let default = pairs(&[("45000", 5)]);
    assert_eq!(levels(&mut client, group, session).await, default);
    assert_eq!(alter(&mut client, group, SET, session, "50000").await, 0);
    let own = pairs(&[("50000", 8), ("45000", 5)]);
    assert_eq!(levels(&mut client, group, session).await, own);
    assert_eq!(levels(&mut client, other, session).await, default);
    let list = ListConfigResourcesRequest::default().with_resource_types(vec![GROUP]);
    let listed = client.call(1, &list).await.config_resources;
    assert_eq!((listed.len(), &*listed[0].resource_name), (1, "g"));
    let invalid = Code::InvalidConfig.code();
    for (name, value) in [
        (session, "44999"),
        (session, "60001"),
        ("consumer.heartbeat.interval.ms", "1"),
        ("share.session.timeout.ms", "50000"),
    ] {
        assert_eq!(alter(&mut client, group, SET, name, value).await, invalid);
    }
    let unnamed = alter(&mut client, Of(GROUP, ""), SET, session, "50000").await;
    assert_eq!(unnamed, Code::InvalidRequest.code());
    assert_eq!(alter(&mut client, group, UNSET, session, "").await, 0);
    assert_eq!(levels(&mut client, group, session).await, default);
    assert!(client.call(1, &list).await.config_resources.is_empty());
}

#[tokio::test]
async fn connections_above_the_changed_limit_are_closed() {
    let server = start().await;
    let mut client = server.connect().await;
    let own = Of(BROKER, "1");
    assert_eq!(
        alter(&mut client, own, SET, "max.connections", "1").await,
        0
    );
    let mut refused = server.connect().await;
    assert!(refused.receive_frame().await.is_none());
    assert_eq!(
        alter(&mut client, own, UNSET, "max.connections", "").await,
        0
    );
    described(&mut server.connect().await, own).await;
}

#[tokio::test]
async fn a_subscription_is_a_resource_while_it_has_settings() {
    let server = start().await;
    let mut client = server.connect().await;
    let of = Of(CLIENT_METRICS, "m");
    let list = ListConfigResourcesRequest::default();
    assert!(client.call(0, &list).await.config_resources.is_empty());
    assert_eq!(alter(&mut client, of, SET, "metrics", "a.,b.").await, 0);
    assert_eq!(alter(&mut client, of, APPEND, "metrics", "c.").await, 0);
    assert_eq!(alter(&mut client, of, SUBTRACT, "metrics", "a.").await, 0);
    let expected = pairs(&[("b.,c.", 7), ("", 5)]);
    assert_eq!(levels(&mut client, of, "metrics").await, expected);
    let interval = pairs(&[("300000", 5)]);
    assert_eq!(levels(&mut client, of, "interval.ms").await, interval);
    let listed = client.call(0, &list).await.config_resources;
    assert_eq!(&*listed[0].resource_name, "m");
    let invalid = Code::InvalidRequest.code();
    for (name, value) in [("match", "a=("), ("interval.ms", "1"), ("color", "red")] {
        assert_eq!(
            alter(&mut client, of, SET, name, value).await,
            invalid,
            "{name}"
        );
    }
    assert_eq!(alter(&mut client, of, UNSET, "metrics", "").await, 0);
    assert!(client.call(0, &list).await.config_resources.is_empty());
}

// proves G5
#[tokio::test]
async fn a_quota_of_clients_holds_at_once_and_is_described() {
    let server = start().await;
    let mut client = server.connect().await;
    let entity = |kind: &str, name: Option<&str>| {
        alter_quotas::EntityData::default()
            .with_entity_type(text(kind))
            .with_entity_name(name.map(text))
    };
    let set = |entities, rate: Option<f64>| {
        let op = alter_quotas::OpData::default()
            .with_key(text("producer_byte_rate"))
            .with_value(rate.unwrap_or_default())
            .with_remove(rate.is_none());
        let entry = alter_quotas::EntryData::default()
            .with_entity(entities)
            .with_ops(vec![op]);
        AlterClientQuotasRequest::default().with_entries(vec![entry])
    };
    let any_user = || vec![entity("user", None)];
    let both = vec![entity("user", Some("u")), entity("client-id", Some("c"))];
    let rates = [(any_user(), 1_000_000.0), (both, 20.0)];
    for request in rates.map(|(entities, rate)| set(entities, Some(rate))) {
        assert_eq!(client.call(1, &request).await.entries[0].error_code, 0);
    }
    let filter = ComponentData::default()
        .with_entity_type(text("user"))
        .with_match_type(1);
    let describe = DescribeClientQuotasRequest::default().with_components(vec![filter]);
    let found = client.call(1, &describe).await.entries.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].entity[0].entity_name, None);
    assert_eq!(found[0].values[0].value, 1_000_000.0);
    // A second's bytes are free.
    let filter = ComponentData::default()
        .with_entity_type(text("user"))
        .with_match(Some(text(&"u".repeat(1_020_000))));
    let large = DescribeClientQuotasRequest::default().with_components(vec![filter]);
    let throttled = client.call(1, &large).await;
    assert!((20..25).contains(&throttled.throttle_time_ms));
    let removed = set(any_user(), None);
    assert_eq!(client.call(1, &removed).await.entries[0].error_code, 0);
    let free = client.call(1, &describe).await;
    assert_eq!((free.throttle_time_ms, free.entries.unwrap()), (0, vec![]));
}
