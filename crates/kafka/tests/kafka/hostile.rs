//! Hostile input closes its own connection and affects no other.
// proves U3

use crate::common::*;
use kafka_protocol::messages::*;

/// Sends bytes and expects the end of the connection, while another one continues.
async fn closes_only_its_own_connection(server: &TestServer, bytes: &[u8]) {
    let mut bystander = server.connect().await;
    bystander.call(0, &ApiVersionsRequest::default()).await;
    let before = server.metrics().malformed;
    let mut client = server.connect().await;
    client.send_raw(bytes).await;
    assert_eq!(client.receive_frame().await, None, "{bytes:?}");
    assert_eq!(server.metrics().malformed, before + 1, "{bytes:?}");
    bystander.call(0, &ApiVersionsRequest::default()).await;
}

/// A frame of these bytes.
fn framed(payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(payload);
    frame
}

#[tokio::test]
async fn invalid_lengths() {
    let server = start().await;
    for length in [-1, i32::MIN, 0, 7, i32::MAX, (100 << 20) + 1] {
        closes_only_its_own_connection(&server, &length.to_be_bytes()).await;
    }
}

#[tokio::test]
async fn unknown_requests() {
    let server = start().await;
    for (key, version) in [
        (999, 0),
        (-1, 0),
        (i16::MIN, 0),
        (3, 99),
        (3, -1),
        (0, 2),
        (1, 3),
        (4, 0),
    ] {
        let mut payload = Vec::new();
        payload.extend_from_slice(&i16::to_be_bytes(key));
        payload.extend_from_slice(&i16::to_be_bytes(version));
        payload.extend_from_slice(&[0, 0, 0, 1, 0xFF, 0xFF, 0, 0, 0, 0]);
        closes_only_its_own_connection(&server, &framed(&payload)).await;
    }
}

#[tokio::test]
async fn a_request_that_is_not_announced_is_refused_in_its_own_response() {
    let server = start().await;
    let mut client = server.connect().await;
    macro_rules! refused {
        ($($version:literal $request:expr,)*) => {$(
            let response = client.call($version, &$request).await;
            assert_eq!(response.error_code, 35, "{:?}", stringify!($request));
        )*};
    }
    refused! {
        1 ShareGroupHeartbeatRequest::default(),
        1 ShareFetchRequest::default(),
        1 ShareAcknowledgeRequest::default(),
        3 CreateDelegationTokenRequest::default(),
        0 UnregisterBrokerRequest::default(),
    }
    let before = server.metrics().malformed;
    client.call(0, &ApiVersionsRequest::default()).await;
    assert_eq!(before, 0, "the connection stays");
}

#[tokio::test]
async fn a_request_that_claims_more_topics_than_it_has() {
    let server = start().await;
    let metadata_v1 = [
        0, 3, 0, 1, 0, 0, 0, 1, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0,
    ];
    closes_only_its_own_connection(&server, &framed(&metadata_v1)).await;
    let metadata_v9 = [
        0, 3, 0, 9, 0, 0, 0, 1, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0,
    ];
    closes_only_its_own_connection(&server, &framed(&metadata_v9)).await;
}

#[tokio::test]
async fn other_protocols() {
    let server = start().await;
    closes_only_its_own_connection(&server, b"GET / HTTP/1.1\r\n\r\n").await;
    let client_hello = [
        0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xFC, 0x03, 0x03,
    ];
    closes_only_its_own_connection(&server, &client_hello).await;
}

#[tokio::test]
async fn requests_before_a_malformed_one_are_answered() {
    let server = start().await;
    let mut client = server.connect().await;
    let mut bytes = frame(5, 0, &ApiVersionsRequest::default()).to_vec();
    bytes.extend_from_slice(&[0xFF; 12]);
    client.send_raw(&bytes).await;
    let (number, response) = client.receive::<ApiVersionsRequest>(0).await;
    assert_eq!((number, response.error_code), (5, 0));
    assert_eq!(client.receive_frame().await, None);
}

#[tokio::test]
async fn a_newer_api_versions_is_answered_in_version_0() {
    let server = start().await;
    let mut client = server.connect().await;
    // A body of an unknown version.
    client
        .send_raw(&framed(&[0, 18, 0, 77, 0, 0, 0, 9, 1, 2, 3]))
        .await;
    let (number, response) = client.receive::<ApiVersionsRequest>(0).await;
    assert_eq!((number, response.error_code), (9, 35));
    let own = response
        .api_keys
        .iter()
        .find(|api| api.api_key == 18)
        .unwrap();
    assert_eq!((own.min_version, own.max_version), (0, 4));
    let again = client
        .call(
            4,
            &ApiVersionsRequest::default().with_client_software_name(text("x")),
        )
        .await;
    assert_eq!(again.error_code, 0);
}

#[tokio::test]
async fn trailing_bytes_of_a_request_are_ignored() {
    let server = start().await;
    let mut client = server.connect().await;
    let whole = frame(1, 13, &MetadataRequest::default().with_topics(Some(vec![])));
    let mut payload = whole[4..].to_vec();
    payload.extend_from_slice(&[0, 0, 0]);
    client.send_raw(&framed(&payload)).await;
    assert_eq!(client.receive::<MetadataRequest>(13).await.0, 1);
}

#[tokio::test]
async fn a_truncated_request_closes_its_connection() {
    let server = start().await;
    let hub = server.make("t", 1).await;
    let whole = frame(1, 9, &produce(&hub, 9, -1, &[(0, batch(&["a"]))]));
    // The tagged fields after the records are part of the request too.
    for length in 12..whole.len() {
        let mut client = server.connect().await;
        client.send_raw(&framed(&whole[4..length])).await;
        assert_eq!(client.receive_frame().await, None, "{length}");
    }
    assert_eq!(server.log.partition("t", 0).unwrap().bounds().end.0, 0);
}
