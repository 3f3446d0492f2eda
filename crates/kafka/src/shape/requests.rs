//! The schema of every supported request.

use kafka_protocol::messages::ApiKey;

use super::Kind::{self, Array, Bytes, Nullable, Plain, Text};
use super::{
    BOOL, Field, I8, I16, I32, I64, LONG_NUMBERS, NUMBERS, TEXTS, UUID, always, between, since,
    until,
};

/// The number of tagged fields of a request that the codec knows. Only Fetch has any, for followers.
pub(super) fn tags_known(key: ApiKey) -> u32 {
    match key {
        ApiKey::Fetch => 2,
        _ => 0,
    }
}

/// The schema of a request, as far as lengths depend on it. Tagged fields are skipped by their size.
pub(super) fn shape_of(key: ApiKey) -> &'static [Field] {
    match key {
        ApiKey::Produce => PRODUCE,
        ApiKey::Fetch => FETCH,
        ApiKey::ListOffsets => LIST_OFFSETS,
        ApiKey::Metadata => METADATA,
        ApiKey::OffsetCommit => OFFSET_COMMIT,
        ApiKey::OffsetFetch => OFFSET_FETCH,
        ApiKey::FindCoordinator => const { &[until(3, Text), since(1, I8), since(4, TEXTS)] },
        ApiKey::JoinGroup => JOIN_GROUP,
        ApiKey::SyncGroup => SYNC_GROUP,
        ApiKey::Heartbeat => const { &[always(Text), always(I32), always(Text), since(3, Text)] },
        ApiKey::LeaveGroup => LEAVE_GROUP,
        ApiKey::DescribeGroups => const { &[always(TEXTS), since(3, BOOL)] },
        ApiKey::ListGroups => const { &[since(4, TEXTS), since(5, TEXTS)] },
        ApiKey::SaslHandshake => const { &[always(Text)] },
        ApiKey::SaslAuthenticate => const { &[always(Bytes)] },
        ApiKey::ApiVersions => const { &[since(3, Text), since(3, Text)] },
        ApiKey::CreateTopics => CREATE_TOPICS,
        ApiKey::DeleteTopics => DELETE_TOPICS,
        ApiKey::DeleteRecords => const { &[always(Array(RECORDS_OF_TOPIC)), always(I32)] },
        ApiKey::InitProducerId => {
            const { &[always(Text), always(I32), since(3, I64), since(3, I16)] }
        }
        ApiKey::AddPartitionsToTxn => ADD_PARTITIONS,
        ApiKey::AddOffsetsToTxn => {
            const { &[always(Text), always(I64), always(I16), always(Text)] }
        }
        ApiKey::EndTxn => const { &[always(Text), always(I64), always(I16), always(BOOL)] },
        ApiKey::TxnOffsetCommit => TXN_OFFSET_COMMIT,
        ApiKey::DescribeConfigs => DESCRIBE_CONFIGS,
        ApiKey::AlterConfigs => const { &[always(Array(ALTERED)), always(BOOL)] },
        ApiKey::IncrementalAlterConfigs => {
            const { &[always(Array(ALTERED_BY_STEPS)), always(BOOL)] }
        }
        ApiKey::CreatePartitions => CREATE_PARTITIONS,
        ApiKey::DeleteGroups => const { &[always(TEXTS)] },
        ApiKey::OffsetDelete => const { &[always(Text), always(Array(OFFSETS_OF_TOPIC))] },
        ApiKey::ConsumerGroupHeartbeat => CONSUMER_GROUP_HEARTBEAT,
        ApiKey::ConsumerGroupDescribe => const { &[always(TEXTS), always(BOOL)] },
        ApiKey::DescribeLogDirs | ApiKey::DescribeProducers => {
            const { &[always(Array(TOPIC_AND_NUMBERS))] }
        }
        // A partition is a struct of its number.
        ApiKey::DescribeQuorum => const { &[always(Array(OFFSETS_OF_TOPIC))] },
        ApiKey::AlterReplicaLogDirs => const { &[always(Array(LOG_DIR))] },
        ApiKey::ElectLeaders => {
            const { &[since(1, I8), always(Array(TOPIC_AND_NUMBERS)), always(I32)] }
        }
        ApiKey::AlterPartitionReassignments => ALTER_REASSIGNMENTS,
        ApiKey::ListPartitionReassignments => {
            const { &[always(I32), always(Array(TOPIC_AND_NUMBERS))] }
        }
        ApiKey::DescribeClientQuotas => const { &[always(Array(QUOTA_FILTER)), always(BOOL)] },
        ApiKey::AlterClientQuotas => const { &[always(Array(QUOTA_CHANGE)), always(BOOL)] },
        ApiKey::DescribeUserScramCredentials => const { &[always(Array(USER))] },
        ApiKey::AlterUserScramCredentials => {
            const {
                &[
                    always(Array(SCRAM_DELETION)),
                    always(Array(SCRAM_UPSERTION)),
                ]
            }
        }
        ApiKey::DescribeAcls => ACL_FILTER,
        ApiKey::CreateAcls => const { &[always(Array(ACL_CREATION))] },
        ApiKey::DeleteAcls => const { &[always(Array(ACL_FILTER))] },
        ApiKey::WriteTxnMarkers => const { &[always(Array(TXN_MARKER))] },
        ApiKey::UpdateFeatures => {
            const { &[always(I32), always(Array(FEATURE_UPDATE)), since(1, BOOL)] }
        }
        ApiKey::DescribeTransactions => const { &[always(TEXTS)] },
        ApiKey::ListTransactions => {
            const {
                &[
                    always(TEXTS),
                    always(LONG_NUMBERS),
                    since(1, I64),
                    since(2, Text),
                ]
            }
        }
        ApiKey::GetTelemetrySubscriptions => const { &[always(UUID)] },
        ApiKey::PushTelemetry => PUSH_TELEMETRY,
        ApiKey::ListConfigResources => const { &[since(1, Plain(&I8))] },
        ApiKey::DescribeTopicPartitions => DESCRIBE_TOPIC_PARTITIONS,
        ApiKey::DescribeCluster => const { &[always(BOOL), since(1, I8), since(2, BOOL)] },
        _ => const { &[] },
    }
}

#[rustfmt::skip]
const PRODUCE: &[Field] = &[
    always(Text), always(I16), always(I32),
    always(Array(&[
        until(12, Text), since(13, UUID), always(Array(&[always(I32), always(Bytes)])),
    ])),
];

#[rustfmt::skip]
const FETCH: &[Field] = &[
    until(14, I32), always(I32), always(I32), always(I32), always(I8), since(7, I32), since(7, I32),
    always(Array(&[
        until(12, Text), since(13, UUID),
        always(Array(&[
            always(I32), since(9, I32), always(I64), since(12, I32), since(5, I64), always(I32),
        ])),
    ])),
    since(7, Array(&[until(12, Text), since(13, UUID), always(NUMBERS)])), since(11, Text),
];

#[rustfmt::skip]
const LIST_OFFSETS: &[Field] = &[
    always(I32), since(2, I8),
    always(Array(&[always(Text), always(Array(&[always(I32), since(4, I32), always(I64)]))])),
    since(10, I32),
];

#[rustfmt::skip]
const METADATA: &[Field] = &[
    always(Array(&[since(10, UUID), always(Text)])), since(4, BOOL), between(8, 10, BOOL),
    since(8, BOOL),
];

#[rustfmt::skip]
const OFFSET_COMMIT: &[Field] = &[
    always(Text), always(I32), always(Text), since(7, Text), until(4, I64),
    always(Array(&[
        always(Text), always(Array(&[always(I32), always(I64), since(6, I32), always(Text)])),
    ])),
];

#[rustfmt::skip]
const OFFSET_FETCH: &[Field] = &[
    until(7, Text), until(7, Array(TOPIC_AND_NUMBERS)),
    since(8, Array(&[
        always(Text), since(9, Text), since(9, I32), always(Array(TOPIC_AND_NUMBERS)),
    ])),
    since(7, BOOL),
];

const TOPIC_AND_NUMBERS: &[Field] = &[always(Text), always(NUMBERS)];

#[rustfmt::skip]
const JOIN_GROUP: &[Field] = &[
    always(Text), always(I32), since(1, I32), always(Text), since(5, Text), always(Text),
    always(Array(&[always(Text), always(Bytes)])), since(8, Text),
];

#[rustfmt::skip]
const SYNC_GROUP: &[Field] = &[
    always(Text), always(I32), always(Text), since(3, Text), since(5, Text), since(5, Text),
    always(Array(&[always(Text), always(Bytes)])),
];

#[rustfmt::skip]
const LEAVE_GROUP: &[Field] = &[
    always(Text), until(2, Text), since(3, Array(&[always(Text), always(Text), since(5, Text)])),
];

#[rustfmt::skip]
const CONSUMER_GROUP_HEARTBEAT: &[Field] = &[
    always(Text), always(Text), always(I32), always(Text), always(Text), always(I32), always(TEXTS),
    since(1, Text), always(Text), always(Array(&[always(UUID), always(NUMBERS)])),
];

#[rustfmt::skip]
const CREATE_TOPICS: &[Field] = &[
    always(Array(&[
        always(Text), always(I32), always(I16), always(Array(&[always(I32), always(NUMBERS)])),
        always(Array(&[always(Text), always(Text)])),
    ])),
    always(I32), always(BOOL),
];

#[rustfmt::skip]
const DELETE_TOPICS: &[Field] = &[
    since(6, Array(&[always(Text), always(UUID)])), until(5, TEXTS), always(I32),
];

const RECORDS_OF_TOPIC: &[Field] = &[always(Text), always(Array(&[always(I32), always(I64)]))];

#[rustfmt::skip]
const ADD_PARTITIONS: &[Field] = &[
    always(Text), always(I64), always(I16), always(Array(TOPIC_AND_NUMBERS)),
];

#[rustfmt::skip]
const TXN_OFFSET_COMMIT: &[Field] = &[
    always(Text), always(Text), always(I64), always(I16), since(3, I32), since(3, Text),
    since(3, Text),
    always(Array(&[
        always(Text), always(Array(&[always(I32), always(I64), since(2, I32), always(Text)])),
    ])),
];

#[rustfmt::skip]
const DESCRIBE_CONFIGS: &[Field] = &[
    always(Array(&[always(I8), always(Text), always(TEXTS)])), always(BOOL), since(3, BOOL),
];

const ALTERED: &[Field] = &[
    always(I8),
    always(Text),
    always(Array(&[always(Text), always(Text)])),
];

#[rustfmt::skip]
const ALTERED_BY_STEPS: &[Field] = &[
    always(I8), always(Text), always(Array(&[always(Text), always(I8), always(Text)])),
];

#[rustfmt::skip]
const CREATE_PARTITIONS: &[Field] = &[
    always(Array(&[always(Text), always(I32), always(Array(&[always(NUMBERS)]))])), always(I32),
    always(BOOL),
];

#[rustfmt::skip]
const ALTER_REASSIGNMENTS: &[Field] = &[
    always(I32), since(1, BOOL),
    always(Array(&[always(Text), always(Array(&[always(I32), always(NUMBERS)]))])),
];

const QUOTA_FILTER: &[Field] = &[always(Text), always(I8), always(Text)];

const F64: Kind = I64;

#[rustfmt::skip]
const QUOTA_CHANGE: &[Field] = &[
    always(Array(&[always(Text), always(Text)])),
    always(Array(&[always(Text), always(F64), always(BOOL)])),
];

#[rustfmt::skip]
const PUSH_TELEMETRY: &[Field] = &[
    always(UUID), always(I32), always(BOOL), always(I8), always(Bytes),
];

const LOG_DIR: &[Field] = &[always(Text), always(Array(TOPIC_AND_NUMBERS))];

const USER: &[Field] = &[always(Text)];

const SCRAM_DELETION: &[Field] = &[always(Text), always(I8)];

#[rustfmt::skip]
const SCRAM_UPSERTION: &[Field] = &[
    always(Text), always(I8), always(I32), always(Bytes), always(Bytes),
];

#[rustfmt::skip]
const ACL_FILTER: &[Field] = &[
    always(I8), always(Text), always(I8), always(Text), always(Text), always(I8), always(I8),
];

#[rustfmt::skip]
const ACL_CREATION: &[Field] = &[
    always(I8), always(Text), always(I8), always(Text), always(Text), always(I8), always(I8),
];

#[rustfmt::skip]
const TXN_MARKER: &[Field] = &[
    always(I64), always(I16), always(BOOL), always(Array(TOPIC_AND_NUMBERS)), always(I32),
];

#[rustfmt::skip]
const FEATURE_UPDATE: &[Field] = &[always(Text), always(I16), until(0, BOOL), since(1, I8)];

#[rustfmt::skip]
const DESCRIBE_TOPIC_PARTITIONS: &[Field] = &[
    always(Array(&[always(Text)])), always(I32), always(Nullable(&[always(Text), always(I32)])),
];

const OFFSETS_OF_TOPIC: &[Field] = &[always(Text), always(Array(&[always(I32)]))];

#[cfg(test)]
mod tests {
    use super::super::testing::{body, oversized_arrays};
    use super::super::{ShapeError, Walk, check};
    use super::*;
    use crate::api::tests::for_each_request;
    use crate::api::{APIS, Api};
    use bytes::Bytes as Buffer;
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Decodable, Encodable};
    use proptest::prelude::*;

    /// The trailing bytes after the walk.
    fn trailing_bytes(api: &Api, version: i16, body: &[u8]) -> Result<usize, ShapeError> {
        let mut walk = Walk::new(api, version, body);
        walk.fields(shape_of(api.key))?;
        Ok(walk.rest.len())
    }

    /// Decodes a body with the codec, if it can. Returns the number of trailing bytes.
    fn decode_by_codec(key: ApiKey, version: i16, body: &[u8]) -> Option<usize> {
        macro_rules! decode {
            ($($key:ident $request:ident,)*) => {
                match key {
                    $(ApiKey::$key => {
                        let mut rest = Buffer::copy_from_slice(body);
                        let request = $request::decode(&mut rest, version).ok()?;
                        request.encode(&mut Vec::new(), version).ok()?;
                        Some(rest.len())
                    })*
                    _ => unreachable!("{key:?} is not in the table"),
                }
            };
        }
        for_each_request!(decode)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// A body that passes the walk was understood: the codec stops at the same byte.
        #[test]
        fn the_walk_and_the_codec_agree(at in 0..APIS.len(), step in 0i16..14, body in body(160)) {
            let api = APIS[at];
            let version = (api.readable + step).min(api.max);
            let Ok(left) = trailing_bytes(&api, version, &body) else {
                return Ok(());
            };
            if let Some(rest) = decode_by_codec(api.key, version, &body) {
                prop_assert_eq!(left, rest, "{:?} {}", api.key, version);
            }
        }
    }

    #[test]
    fn an_array_longer_than_its_message_never_reaches_the_codec() {
        for api in APIS {
            for version in api.readable..=api.max {
                for body in oversized_arrays(40) {
                    if check(&api, version, &body, usize::MAX).is_ok() {
                        // The claim is a plain number there, so the codec must accept it.
                        decode_by_codec(api.key, version, &body);
                    }
                }
            }
        }
    }
}
