//! Metrics that clients push.
// proves G2

use bytes::Bytes;
use kafka_protocol::messages::*;

use crate::common::*;

/// A message with one gauge of this name and the value 1.5.
fn gauge(name: &str) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut field = vec![number << 3 | 2, bytes.len() as u8];
        field.extend_from_slice(bytes);
        field
    };
    let mut point = vec![4 << 3 | 1];
    point.extend_from_slice(&1.5_f64.to_bits().to_le_bytes());
    let mut metric = field(1, name.as_bytes());
    metric.extend(field(5, &field(1, &point)));
    field(1, &field(2, &field(2, &metric)))
}

/// Makes a subscription with these metrics, for clients of any kind.
async fn subscribe(client: &mut Client, metrics: &str) {
    let set = incremental_alter_configs_request::AlterableConfig::default()
        .with_name(text("metrics"))
        .with_value(Some(text(metrics)));
    let resource = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(16)
        .with_resource_name(text("m"))
        .with_configs(vec![set]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.call(1, &request).await.responses[0].error_code, 0);
}

#[tokio::test]
async fn without_a_subscription_a_client_pushes_nothing() {
    let server = start().await;
    let mut client = server.connect().await;
    let ask = GetTelemetrySubscriptionsRequest::default();
    let asked = client.call(0, &ask).await;
    assert!(asked.requested_metrics.is_empty() && asked.error_code == 0);
    assert_eq!(asked.push_interval_ms, 300_000);
    let id = asked.client_instance_id;
    subscribe(&mut client, "org.apache.kafka.producer.").await;
    let again = ask.with_client_instance_id(id);
    let asked_again = client.call(0, &again).await;
    assert_ne!(asked_again.subscription_id, asked.subscription_id);
    assert_eq!(
        &*asked_again.requested_metrics[0],
        "org.apache.kafka.producer."
    );
    let of_before = PushTelemetryRequest::default()
        .with_client_instance_id(id)
        .with_subscription_id(asked.subscription_id);
    assert_eq!(client.call(0, &of_before).await.error_code, 117);
}

#[tokio::test]
async fn a_client_subscribes_and_pushes_its_metrics() {
    let server = start().await;
    let mut client = server.connect().await;
    subscribe(&mut client, "org.apache.kafka.producer.,other.").await;
    let ask = GetTelemetrySubscriptionsRequest::default();
    let subscription = client.call(0, &ask).await;
    let id = subscription.client_instance_id;
    assert!(!id.is_nil() && subscription.error_code == 0);
    assert!(!subscription.requested_metrics.is_empty());
    assert_eq!(subscription.accepted_compression_types, [4, 3, 1, 2]);
    let again = client
        .call(0, &ask.clone().with_client_instance_id(id))
        .await;
    assert_eq!(again.client_instance_id, id);
    let name = format!("{}.avg", &*subscription.requested_metrics[0]);
    let push = PushTelemetryRequest::default()
        .with_client_instance_id(id)
        .with_subscription_id(subscription.subscription_id)
        .with_metrics(gauge(&name).into());
    assert_eq!(client.call(0, &push).await.error_code, 0);
    let shown = server.handle.client_metrics();
    assert_eq!((shown[0].metric.as_str(), shown[0].value), (&*name, 1.5));
    assert_eq!(client.call(0, &push).await.error_code, 89, "too early");
    let wrong = [
        (
            push.clone()
                .with_subscription_id(subscription.subscription_id ^ 1),
            117,
        ),
        (push.clone().with_client_instance_id(uuid::Uuid::nil()), 42),
        (
            push.clone()
                .with_client_instance_id(uuid::Uuid::from_u128(5)),
            117,
        ),
        (push.clone().with_compression_type(9), 76),
        (push.clone().with_compression_type(1), 87),
        (
            push.clone()
                .with_metrics(Bytes::from(vec![0; (1 << 20) + 1])),
            118,
        ),
    ];
    for (request, code) in wrong {
        assert_eq!(client.call(0, &request).await.error_code, code);
    }
    let last = push.with_terminating(true);
    assert_eq!(client.call(0, &last).await.error_code, 0);
    assert!(server.handle.client_metrics().is_empty());
}
