//! The schema of every response that the client reads, in the versions that it supports
//! ([`crate::client::versions`]).

use kafka_protocol::messages::ApiKey;

use super::Kind::{Array, Bytes, Struct, Text};
use super::{
    BOOL, Field, I8, I16, I32, I64, NUMBERS, TEXTS, UUID, always, between, since, tagged, until,
};

pub(super) fn shape_of(key: ApiKey) -> &'static [Field] {
    match key {
        ApiKey::Produce => PRODUCE,
        ApiKey::Fetch => FETCH,
        ApiKey::ListOffsets => LIST_OFFSETS,
        ApiKey::Metadata => METADATA,
        ApiKey::OffsetCommit => const { &[since(3, I32), always(Array(CODE_OF_PARTITIONS))] },
        ApiKey::OffsetFetch => OFFSET_FETCH,
        ApiKey::FindCoordinator => FIND_COORDINATOR,
        ApiKey::JoinGroup => JOIN_GROUP,
        ApiKey::SyncGroup => SYNC_GROUP,
        ApiKey::Heartbeat | ApiKey::AddOffsetsToTxn | ApiKey::EndTxn => {
            const { &[always(I32), always(I16)] }
        }
        ApiKey::LeaveGroup => LEAVE_GROUP,
        ApiKey::DescribeGroups => DESCRIBE_GROUPS,
        ApiKey::ListGroups => LIST_GROUPS,
        ApiKey::SaslHandshake => const { &[always(I16), always(TEXTS)] },
        ApiKey::SaslAuthenticate => {
            const { &[always(I16), always(Text), always(Bytes), since(1, I64)] }
        }
        ApiKey::ApiVersions => const { &[always(I16), always(Array(RANGE)), since(1, I32)] },
        ApiKey::CreateTopics | ApiKey::CreatePartitions => {
            const { &[always(I32), always(Array(CODE_AND_REASON))] }
        }
        ApiKey::DeleteTopics | ApiKey::DeleteGroups => {
            const { &[always(I32), always(Array(CODE_OF_ONE))] }
        }
        ApiKey::DeleteRecords => const { &[always(I32), always(Array(STARTS_OF_TOPIC))] },
        ApiKey::InitProducerId => const { &[always(I32), always(I16), always(I64), always(I16)] },
        ApiKey::AddPartitionsToTxn | ApiKey::TxnOffsetCommit => {
            const { &[always(I32), always(Array(CODE_OF_PARTITIONS))] }
        }
        ApiKey::DescribeConfigs => const { &[always(I32), always(Array(CONFIGS))] },
        ApiKey::IncrementalAlterConfigs => const { &[always(I32), always(Array(ALTERED))] },
        ApiKey::OffsetDelete => {
            const { &[always(I16), always(I32), always(Array(CODE_OF_PARTITIONS))] }
        }
        _ => const { &[] },
    }
}

const CODE_OF_PARTITIONS: &[Field] = &[always(Text), always(Array(&[always(I32), always(I16)]))];

const CODE_OF_ONE: &[Field] = &[always(Text), always(I16)];

const CODE_AND_REASON: &[Field] = &[always(Text), always(I16), always(Text)];

const RANGE: &[Field] = &[always(I16), always(I16), always(I16)];

const LEADER_AND_EPOCH: &[Field] = &[always(I32), always(I32)];

#[rustfmt::skip]
const PRODUCE: &[Field] = &[
    always(Array(&[
        until(12, Text), since(13, UUID),
        always(Array(&[
            always(I32), always(I16), always(I64), always(I64), since(5, I64),
            since(8, Array(&[always(I32), always(Text)])), since(8, Text),
            tagged(10, &[Struct(LEADER_AND_EPOCH)]),
        ])),
    ])),
    always(I32), tagged(10, &[Array(ENDPOINT)]),
];

const ENDPOINT: &[Field] = &[always(I32), always(Text), always(I32), always(Text)];

#[rustfmt::skip]
const FETCH: &[Field] = &[
    always(I32), since(7, I16), since(7, I32),
    always(Array(&[
        until(12, Text), since(13, UUID),
        always(Array(&[
            always(I32), always(I16), always(I64), always(I64), since(5, I64),
            always(Array(&[always(I64), always(I64)])), since(11, I32), always(Bytes),
            tagged(12, &[
                Struct(&[always(I32), always(I64)]), Struct(LEADER_AND_EPOCH),
                Struct(&[always(I64), always(I32)]),
            ]),
        ])),
    ])),
];

#[rustfmt::skip]
const LIST_OFFSETS: &[Field] = &[
    since(2, I32),
    always(Array(&[
        always(Text),
        always(Array(&[always(I32), always(I16), always(I64), always(I64), since(4, I32)])),
    ])),
];

#[rustfmt::skip]
const METADATA: &[Field] = &[
    since(3, I32), always(Array(&[always(I32), always(Text), always(I32), since(1, Text)])),
    since(2, Text), since(1, I32),
    always(Array(&[
        always(I16), always(Text), since(10, UUID), since(1, BOOL),
        always(Array(&[
            always(I16), always(I32), always(I32), since(7, I32), always(NUMBERS), always(NUMBERS),
            since(5, NUMBERS),
        ])),
        since(8, I32),
    ])),
    between(8, 10, I32),
];

#[rustfmt::skip]
const OFFSET_FETCH: &[Field] = &[
    since(3, I32),
    always(Array(&[
        always(Text),
        always(Array(&[always(I32), always(I64), since(5, I32), always(Text), always(I16)])),
    ])),
    since(2, I16),
];

#[rustfmt::skip]
const FIND_COORDINATOR: &[Field] = &[
    always(I32), always(I16), always(Text), always(I32), always(Text), always(I32),
];

#[rustfmt::skip]
const JOIN_GROUP: &[Field] = &[
    since(2, I32), always(I16), always(I32), since(7, Text), always(Text), always(Text),
    since(9, BOOL), always(Text), always(Array(&[always(Text), since(5, Text), always(Bytes)])),
];

#[rustfmt::skip]
const SYNC_GROUP: &[Field] = &[
    since(1, I32), always(I16), since(5, Text), since(5, Text), always(Bytes),
];

#[rustfmt::skip]
const LEAVE_GROUP: &[Field] = &[
    always(I32), always(I16), since(3, Array(&[always(Text), always(Text), always(I16)])),
];

#[rustfmt::skip]
const DESCRIBE_GROUPS: &[Field] = &[
    since(1, I32),
    always(Array(&[
        always(I16), always(Text), always(Text), always(Text), always(Text),
        always(Array(&[
            always(Text), since(4, Text), always(Text), always(Text), always(Bytes), always(Bytes),
        ])),
        since(3, I32),
    ])),
];

#[rustfmt::skip]
const LIST_GROUPS: &[Field] = &[
    since(1, I32), always(I16), always(Array(&[always(Text), always(Text), since(4, Text)])),
];

#[rustfmt::skip]
const STARTS_OF_TOPIC: &[Field] = &[
    always(Text), always(Array(&[always(I32), always(I64), always(I16)])),
];

#[rustfmt::skip]
const CONFIGS: &[Field] = &[
    always(I16), always(Text), always(I8), always(Text),
    always(Array(&[
        always(Text), always(Text), always(BOOL), always(I8), always(BOOL),
        always(Array(&[always(Text), always(Text), always(I8)])),
    ])),
];

const ALTERED: &[Field] = &[always(I16), always(Text), always(I8), always(Text)];

#[cfg(test)]
mod tests {
    use super::super::testing::{body, oversized_arrays};
    use super::super::{Walk, check_response};
    use super::*;
    use crate::api::tests::for_each_request;
    use crate::client::versions::SUPPORTED;
    use bytes::Bytes as Buffer;
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Decodable, Request};
    use proptest::prelude::*;

    /// Decodes a body with the codec, if it can. Returns the number of trailing bytes.
    fn decode_by_codec(key: ApiKey, version: i16, body: &[u8]) -> Option<usize> {
        fn decode<R: Request>(version: i16, body: &[u8]) -> Option<usize> {
            let mut rest = Buffer::copy_from_slice(body);
            R::Response::decode(&mut rest, version).ok()?;
            Some(rest.len())
        }
        macro_rules! decode {
            ($($key:ident $request:ident,)*) => {
                match key {
                    $(ApiKey::$key => decode::<$request>(version, body),)*
                    _ => unreachable!("{key:?} is not in the table"),
                }
            };
        }
        for_each_request!(decode)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6000))]

        /// A body that passes the walk was understood: the codec stops at the same byte.
        #[test]
        fn the_walk_and_the_codec_agree(at in 0..SUPPORTED.len(), step in 0i16..14, body in body(200)) {
            let (key, min, max) = SUPPORTED[at];
            let version = (min + step).min(max);
            let mut walk = Walk::of_response(key, version, &body);
            if walk.fields(shape_of(key)).is_err() {
                return Ok(());
            }
            if let Some(rest) = decode_by_codec(key, version, &body) {
                prop_assert_eq!(walk.rest.len(), rest, "{:?} {}", key, version);
            }
        }
    }

    #[test]
    fn an_array_longer_than_its_message_never_reaches_the_codec() {
        for (key, min, max) in SUPPORTED {
            for version in min..=max {
                for body in oversized_arrays(60) {
                    if check_response(key, version, &body).is_ok() {
                        // The claim is a plain number there, so the codec must accept it.
                        decode_by_codec(key, version, &body);
                    }
                }
            }
        }
    }
}
