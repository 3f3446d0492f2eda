//! The records of transactions; `docs/formats/transactions.md` has the layouts.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::{Producer, TransactionMarker};

use super::state::{State, Transaction};
use crate::coordinator::record::{
    read_duration, read_topic_partition, read_versioned, write_duration, write_topic_partition,
};

const VERSION: u8 = 1;

const PRODUCER_IDS: u8 = 1;
const TRANSACTION: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    ProducerIds,
    Transaction(String),
}

pub(super) fn ids_key(out: &mut Vec<u8>) {
    out.u8(PRODUCER_IDS);
}

pub(super) fn transaction_key(out: &mut Vec<u8>, id: &str) {
    out.u8(TRANSACTION);
    out.text_be(id);
}

pub(super) fn read_key(bytes: &[u8]) -> Result<Key, DecodeError> {
    let mut reader = Reader::new(bytes);
    let key = match reader.u8()? {
        PRODUCER_IDS => Key::ProducerIds,
        TRANSACTION => Key::Transaction(reader.text_be()?.to_owned()),
        other => return Err(DecodeError::unknown("kind", other)),
    };
    reader.end()?;
    Ok(key)
}

/// `next` is the first producer id that is not reserved.
pub(super) fn put_ids(out: &mut Vec<u8>, next: i64) {
    out.u8(VERSION);
    out.i64_be(next);
}

pub(super) fn read_ids(bytes: &[u8]) -> Result<i64, DecodeError> {
    let mut reader = read_versioned(bytes, VERSION)?;
    let next = reader.i64_be()?;
    reader.end()?;
    Ok(next)
}

pub(super) fn put_transaction(out: &mut Vec<u8>, transaction: &Transaction) {
    out.u8(VERSION);
    put_producer(out, transaction.producer);
    out.u8(transaction.previous.is_some().into());
    put_producer(out, transaction.previous.unwrap_or(NO_PRODUCER));
    write_duration(out, transaction.timeout);
    out.u8(code(transaction.state));
    out.i64_be(transaction.started_ms);
    out.i64_be(transaction.changed_ms);
    out.count_be(transaction.topic_partitions.len());
    for topic_partition in &transaction.topic_partitions {
        write_topic_partition(out, topic_partition);
    }
    out.count_be(transaction.groups.len());
    for group in &transaction.groups {
        out.text_be(group);
    }
}

pub(super) fn read_transaction(bytes: &[u8]) -> Result<Transaction, DecodeError> {
    let mut reader = read_versioned(bytes, VERSION)?;
    let producer = read_producer(&mut reader)?;
    let has_previous = reader.u8()? == 1;
    let previous = read_producer(&mut reader)?;
    let timeout = read_duration(&mut reader)?;
    let transaction = Transaction {
        producer,
        previous: has_previous.then_some(previous),
        timeout,
        state: state(reader.u8()?)?,
        started_ms: reader.i64_be()?,
        changed_ms: reader.i64_be()?,
        topic_partitions: reader.list_be(read_topic_partition)?.into_iter().collect(),
        groups: reader
            .list_be(|reader| Ok(reader.text_be()?.to_owned()))?
            .into_iter()
            .collect(),
    };
    reader.end()?;
    Ok(transaction)
}

const NO_PRODUCER: Producer = Producer { id: -1, epoch: -1 };

fn put_producer(out: &mut Vec<u8>, producer: Producer) {
    out.i64_be(producer.id);
    out.i16_be(producer.epoch);
}

fn read_producer(reader: &mut Reader<'_>) -> Result<Producer, DecodeError> {
    let id = reader.i64_be()?;
    let epoch = reader.i16_be()?;
    Ok(Producer { id, epoch })
}

fn code(state: State) -> u8 {
    match state {
        State::Empty => 0,
        State::Ongoing => 1,
        State::Preparing(TransactionMarker::Commit) => 2,
        State::Preparing(TransactionMarker::Abort) => 3,
        State::Complete(TransactionMarker::Commit) => 4,
        State::Complete(TransactionMarker::Abort) => 5,
    }
}

fn state(code: u8) -> Result<State, DecodeError> {
    Ok(match code {
        0 => State::Empty,
        1 => State::Ongoing,
        2 => State::Preparing(TransactionMarker::Commit),
        3 => State::Preparing(TransactionMarker::Abort),
        4 => State::Complete(TransactionMarker::Commit),
        5 => State::Complete(TransactionMarker::Abort),
        _ => {
            return Err(DecodeError::Invalid(
                "the state of a transaction is unknown",
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use highwater_log::{HubName, TopicPartition};
    use proptest::prelude::*;

    use super::*;

    fn any_producer() -> impl Strategy<Value = Producer> {
        (any::<i64>(), any::<i16>()).prop_map(|(id, epoch)| Producer { id, epoch })
    }

    fn any_transaction() -> impl Strategy<Value = Transaction> {
        let topic_partition = ("[a-z]{1,5}", 0..9u32).prop_map(|(hub, partition)| TopicPartition {
            hub: HubName::new(&hub).unwrap(),
            partition,
        });
        let topic_partitions = proptest::collection::btree_set(topic_partition, 0..4);
        let groups = proptest::collection::btree_set(".{0,5}", 0..3);
        let previous = proptest::option::of(any_producer());
        let times = (0..1_000_000u64, any::<i64>(), any::<i64>());
        (
            any_producer(),
            previous,
            times,
            0..6u8,
            topic_partitions,
            groups,
        )
            .prop_map(
                |(
                    producer,
                    previous,
                    (timeout, started_ms, changed_ms),
                    code,
                    topic_partitions,
                    groups,
                )| {
                    Transaction {
                        producer,
                        previous,
                        timeout: Duration::from_millis(timeout),
                        state: state(code).unwrap(),
                        topic_partitions,
                        groups,
                        started_ms,
                        changed_ms,
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn a_transaction_is_read_as_it_was_written(transaction in any_transaction()) {
            let mut bytes = Vec::new();
            put_transaction(&mut bytes, &transaction);
            prop_assert_eq!(read_transaction(&bytes), Ok(transaction));
            prop_assert!(read_transaction(&bytes[..bytes.len() - 1]).is_err());
        }

        #[test]
        fn invalid_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read_key(&bytes);
            let _ = read_ids(&bytes);
            let _ = read_transaction(&bytes);
        }
    }

    #[test]
    fn keys_and_ids_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        transaction_key(&mut bytes, "t");
        assert_eq!(bytes, b"\x02\0\0\0\x01t");
        assert_eq!(read_key(&bytes), Ok(Key::Transaction("t".into())));
        bytes.clear();
        put_ids(&mut bytes, 2000);
        assert_eq!(read_ids(&bytes), Ok(2000));
        assert_eq!(read_key(&[1]), Ok(Key::ProducerIds));
    }
}
