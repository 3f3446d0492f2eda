//! The pause that a broker asks for in its responses.
//!
//! A broker answers a client beyond its quota at once, states how long it will not read further requests of the
//! connection, and expects the client to wait as long (KIP-219). A request sent earlier would only spend its timeout.

use std::sync::Mutex;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tokio::time::Instant;

use super::lock;

/// The end of the pause of a connection.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// Starts a pause, or extends it.
    pub(super) fn hold(&self, pause: Duration) {
        if pause.is_zero() {
            return;
        }
        let end = Instant::now() + pause;
        let mut until = lock(&self.0);
        *until = Some(until.map_or(end, |until| until.max(end)));
    }

    /// Ready when the pause is over.
    pub(super) async fn wait(&self) {
        let until = *lock(&self.0);
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }
}

/// The pause of a response, read from its first field. Produce and OffsetDelete have it elsewhere, and the rest of the
/// listed ones has none.
pub(super) fn pause(key: ApiKey, version: i16, body: &[u8]) -> Duration {
    match key {
        _ if version < field_since(key) => Duration::ZERO,
        ApiKey::Produce
        | ApiKey::OffsetDelete
        | ApiKey::ApiVersions
        | ApiKey::SaslHandshake
        | ApiKey::SaslAuthenticate => Duration::ZERO,
        _ => body
            .first_chunk()
            .map_or(Duration::ZERO, |first| millis(i32::from_be_bytes(*first))),
    }
}

/// The first version with the field, for the requests that the client also sends without it.
fn field_since(key: ApiKey) -> i16 {
    match key {
        ApiKey::OffsetCommit | ApiKey::OffsetFetch => 3,
        ApiKey::DescribeGroups | ApiKey::ListGroups => 1,
        _ => 0,
    }
}

/// A pause in a response.
pub(super) fn millis(throttle_time_ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(throttle_time_ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Encodable, Request};

    use super::*;
    use crate::client::versions::SUPPORTED;

    /// The response of a request with a pause of 1,234 ms, in all versions of the client.
    fn check<R: Request>(throttled: R::Response) {
        let range = SUPPORTED.iter().find(|(key, ..)| *key as i16 == R::KEY);
        let (key, first, last) = *range.unwrap();
        for version in first..=last {
            let mut body = BytesMut::new();
            throttled.encode(&mut body, version).unwrap();
            let (has_field, found) = (version >= field_since(key), pause(key, version, &body));
            let expected = Duration::from_millis(if has_field { 1_234 } else { 0 });
            assert_eq!(found, expected, "{key:?} {version}");
        }
    }

    #[test]
    fn the_pause_of_a_response_is_found_in_every_version() {
        macro_rules! check_all {
            ($($request:ident $response:ident,)*) => {
                $(check::<$request>($response::default().with_throttle_time_ms(1_234));)*
            };
        }
        check_all! {
            FetchRequest FetchResponse,
            ListOffsetsRequest ListOffsetsResponse,
            MetadataRequest MetadataResponse,
            OffsetCommitRequest OffsetCommitResponse,
            OffsetFetchRequest OffsetFetchResponse,
            FindCoordinatorRequest FindCoordinatorResponse,
            JoinGroupRequest JoinGroupResponse,
            HeartbeatRequest HeartbeatResponse,
            LeaveGroupRequest LeaveGroupResponse,
            SyncGroupRequest SyncGroupResponse,
            DescribeGroupsRequest DescribeGroupsResponse,
            ListGroupsRequest ListGroupsResponse,
            CreateTopicsRequest CreateTopicsResponse,
            DeleteTopicsRequest DeleteTopicsResponse,
            DeleteRecordsRequest DeleteRecordsResponse,
            InitProducerIdRequest InitProducerIdResponse,
            AddPartitionsToTxnRequest AddPartitionsToTxnResponse,
            AddOffsetsToTxnRequest AddOffsetsToTxnResponse,
            EndTxnRequest EndTxnResponse,
            TxnOffsetCommitRequest TxnOffsetCommitResponse,
            DescribeConfigsRequest DescribeConfigsResponse,
            CreatePartitionsRequest CreatePartitionsResponse,
            DeleteGroupsRequest DeleteGroupsResponse,
            IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_ends_and_a_shorter_one_does_not_end_it_earlier() {
        let (throttle, began) = (Throttle::default(), Instant::now());
        throttle.wait().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        throttle.hold(Duration::from_millis(300));
        throttle.hold(Duration::from_millis(100));
        throttle.wait().await;
        assert_eq!(began.elapsed(), Duration::from_millis(300));
        throttle.wait().await;
        assert_eq!(began.elapsed(), Duration::from_millis(300));
    }
}
