//! Topic settings over the protocol: kept, shown with their documentation and synonyms, changed one by one.
// proves K4

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::*;

use crate::common::*;

const SET: i8 = 0;
const UNSET: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Changes a setting; returns the code and the message.
async fn alter(
    client: &mut Client,
    operation: i8,
    name: &str,
    value: &str,
) -> (i16, Option<String>) {
    let config = AlterableConfig::default()
        .with_name(text(name))
        .with_config_operation(operation)
        .with_value(Some(text(value)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = client.call(1, &request).await.responses.remove(0);
    let message = response.error_message.map(|message| message.to_string());
    (response.error_code, message)
}

async fn described(client: &mut Client, name: &str) -> DescribeConfigsResourceResult {
    let resource = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configuration_keys(Some(vec![text(name)]));
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    let mut result = client.call(4, &request).await.results.remove(0);
    assert_eq!((result.error_code, result.error_message), (0, None));
    assert_eq!(result.configs.len(), 1, "{name}");
    result.configs.remove(0)
}

async fn value(client: &mut Client, name: &str) -> String {
    let setting = described(client, name).await;
    setting.value.unwrap().to_string()
}

#[tokio::test]
async fn what_was_acknowledged_is_shown() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    for (name, set) in [
        ("segment.ms", "3600000"),
        ("min.insync.replicas", "2"),
        ("compression.type", "lz4"),
        ("cleanup.policy", "compact,delete"),
    ] {
        assert_eq!(
            alter(&mut client, SET, name, set).await,
            (0, None),
            "{name}"
        );
        let setting = described(&mut client, name).await;
        assert_eq!(setting.value.as_deref(), Some(set), "{name}");
        assert_eq!((setting.config_source, setting.read_only), (1, false));
        assert!(!setting.documentation.unwrap().is_empty());
        let synonyms: Vec<_> = setting
            .synonyms
            .iter()
            .map(|one| (&*one.name, one.source))
            .collect();
        assert_eq!(synonyms.len(), 2, "{synonyms:?}");
        assert_eq!(synonyms[0], (name, 1));
        assert_eq!(synonyms[1].1, 5);
        assert_eq!(
            alter(&mut client, UNSET, name, "").await,
            (0, None),
            "{name}"
        );
        let setting = described(&mut client, name).await;
        assert_eq!(setting.config_source, 5, "{name}");
        assert_ne!(setting.value.as_deref(), Some(set), "{name}");
    }
}

#[tokio::test]
async fn lists_are_appended_to_and_subtracted_from() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    let policy = "cleanup.policy";
    assert_eq!(alter(&mut client, APPEND, policy, "compact").await.0, 0);
    assert_eq!(value(&mut client, policy).await, "compact,delete");
    assert_eq!(alter(&mut client, SUBTRACT, policy, "delete").await.0, 0);
    assert_eq!(value(&mut client, policy).await, "compact");
    let (code, message) = alter(&mut client, APPEND, "retention.ms", "1").await;
    assert_eq!(code, Code::InvalidConfig.code());
    assert!(message.unwrap().contains("retention.ms"));
}

#[tokio::test]
async fn unknown_settings_and_wrong_values_are_refused() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    for (name, set) in [
        ("retention.hours", "1"),
        ("retention.ms", "soon"),
        ("flush.ms", "soon"),
        ("message.timestamp.type", "Never"),
    ] {
        let (code, message) = alter(&mut client, SET, name, set).await;
        assert_eq!(code, Code::InvalidConfig.code(), "{name}");
        assert!(message.unwrap().contains(name));
    }
    let before = server.log.hub("t").unwrap().settings.clone();
    assert_eq!(before, highwater_log::HubSettings::default());
}

#[tokio::test]
async fn records_cannot_be_deleted_before_the_first_offset() {
    let server = start().await;
    server.make("t", 1).await;
    let mut client = server.connect().await;
    for (offset, code) in [(-2, 1), (i64::MIN, 1), (-1, 0)] {
        let up_to = delete_records_request::DeleteRecordsPartition::default().with_offset(offset);
        let of_topic = delete_records_request::DeleteRecordsTopic::default()
            .with_name(topic("t"))
            .with_partitions(vec![up_to]);
        let request = DeleteRecordsRequest::default().with_topics(vec![of_topic]);
        let response = client.call(2, &request).await;
        let found = &response.topics[0].partitions[0];
        assert_eq!(found.error_code, code, "{offset}");
    }
}

#[tokio::test]
async fn success_has_no_message() {
    let server = start().await;
    let mut client = server.connect().await;
    let wanted = create_topics_request::CreatableTopic::default()
        .with_name(topic("t"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_topics(vec![wanted]);
    let created = client.call(7, &request).await.topics.remove(0);
    assert_eq!((created.error_code, created.error_message), (0, None));
    let configs = created.configs.unwrap();
    let shown = configs
        .iter()
        .find(|one| &*one.name == "message.timestamp.type");
    assert_eq!(shown.unwrap().value.as_deref(), Some("CreateTime"));
    let more = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(topic("t"))
        .with_count(2)
        .with_assignments(None);
    let request = CreatePartitionsRequest::default().with_topics(vec![more]);
    let grown = client.call(3, &request).await.results.remove(0);
    assert_eq!((grown.error_code, grown.error_message), (0, None));
    let state = delete_topics_request::DeleteTopicState::default().with_name(Some(topic("t")));
    let request = DeleteTopicsRequest::default().with_topics(vec![state]);
    let deleted = client.call(6, &request).await.responses.remove(0);
    assert_eq!((deleted.error_code, deleted.error_message), (0, None));
}

#[tokio::test]
async fn groups_have_settings_that_are_described() {
    let server = start().await;
    let mut client = server.connect().await;
    let group = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text("readers"));
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![group])
        .with_include_documentation(true);
    let response = client.call(4, &request).await;
    let configs = response.results[0].configs.iter();
    let configs: Vec<_> = configs
        .map(|config| (config.name.as_str(), config.value.as_deref()))
        .collect();
    let expected = [
        ("consumer.heartbeat.interval.ms", Some("5000")),
        ("consumer.session.timeout.ms", Some("45000")),
    ];
    assert_eq!(configs, expected);
    assert!(response.results[0].configs[0].documentation.is_some());
}
