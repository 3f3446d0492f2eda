//! The column that equals the key of TIMESTAMP BY .. OVER.
//!
//! While an event waits, the clock of its key stores the key, so the event need not. A text column is stripped from
//! pending events and restored when they leave; events with no other needed columns store nothing. Keys that are not
//! text stay with their events: 1 and 1.0 have one clock, and look different.

use highwater_engine::{Chunk, Column, eval};
use highwater_query::plan::{self, ExprKind};
use highwater_time::KeyList;

pub(crate) struct SubstreamKeyColumn {
    column: Option<usize>,
}

impl SubstreamKeyColumn {
    pub(crate) fn new(input: &plan::Input) -> SubstreamKeyColumn {
        let column = match input.substream.first().map(|key| &key.kind) {
            Some(ExprKind::Column(column)) if input.carried[*column] => Some(*column),
            _ => None,
        };
        SubstreamKeyColumn { column }
    }

    /// Whether there is such a column.
    pub(crate) fn exists(&self) -> bool {
        self.column.is_some()
    }

    /// Strips the column if the key can restore it; `false` if it stays.
    pub(crate) fn strip(&self, chunk: &mut Chunk) -> bool {
        let rows = chunk.rows();
        let column = self.column.map(|column| &mut chunk.columns[column]);
        match column {
            Some(column) if column.is_plain_text() => {
                *column = Column::Null(rows);
                true
            }
            _ => false,
        }
    }

    /// Restores the column of the events from `from` on, which are the rows of the chunk.
    pub(crate) fn restore(&self, chunk: &mut Chunk, keys: &KeyList, from: usize) {
        if let Some(column) = self.column {
            let keys = keys.range(from, from + chunk.rows());
            let column = &mut chunk.columns[column];
            *column = eval::key_texts(keys, column);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use highwater_codec::Reader;
    use highwater_engine::{ColumnBuilder, Item, Record, Value};
    use highwater_time::{Arrivals, Duration, EventKeys, Instant, TimePolicy};
    use proptest::prelude::*;

    use super::*;
    use crate::order::{Orderer, UnorderedEvents};

    fn at(second: i64) -> Instant {
        Instant::from_ticks(0) + Duration::from_secs(second)
    }

    fn orderer() -> Orderer {
        let policy = TimePolicy {
            late_arrival: Duration::from_secs(1_000),
            out_of_order: Duration::from_secs(5),
            ..TimePolicy::default()
        };
        let key_column = SubstreamKeyColumn { column: Some(0) };
        Orderer::per_key(policy, Duration::ZERO, key_column, 2)
    }

    /// A chunk of keys; the second column is kept where `payload` requires it.
    fn push(orderer: &mut Orderer, keys: &[Value], payload: bool, times: &[Instant]) -> Vec<Item> {
        let (mut column, mut bytes, mut offsets) = (ColumnBuilder::default(), Vec::new(), vec![0]);
        for key in keys {
            eval::encode_key(key.view(), &mut bytes);
            offsets.push(bytes.len() as u32);
            column.push(key.view());
        }
        let other = match payload {
            true => Column::from_ints(vec![1; keys.len()]),
            false => Column::Null(keys.len()),
        };
        let chunk = Chunk::new(vec![0; keys.len()].into(), vec![column.finish(), other]);
        let incoming = UnorderedEvents {
            chunk,
            times,
            arrivals: Arrivals::Unknown,
            keys: Some(EventKeys {
                offsets: &offsets,
                bytes: &bytes,
            }),
        };
        let mut out = Vec::new();
        orderer.push(incoming, None, &mut out);
        out
    }

    /// The time and the key of every row, as they show.
    fn shown(items: &[Item]) -> Vec<String> {
        let mut rows = Vec::new();
        for item in items {
            if let Item::Rows(chunk) = item {
                let row = |row| format!("{:?} {:?}", chunk.time(row), chunk.columns[0].get(row));
                rows.extend((0..chunk.rows()).map(row));
            }
        }
        rows
    }

    fn key() -> impl Strategy<Value = Value> {
        let mut record = Record::with_capacity(1);
        record.set("a".into(), Value::Int(1));
        prop_oneof![
            4 => prop::sample::select(vec!["", "a", "é", "a key that does not fit into a lane"])
                .prop_map(Value::text),
            1 => prop::sample::select(vec![
                Value::Int(1), Value::Float(1.0), Value::Bit(true), Value::Float(1.5),
                Value::Record(Arc::new(record)),
            ]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        // proves T11
        #[test]
        fn keys_show_as_they_came_whatever_was_kept_of_them(
            chunks in prop::collection::vec(
                (prop::collection::vec((key(), 0..30i64), 0..8), any::<bool>(), any::<bool>()), 1..8)
        ) {
            let mut orderer = orderer();
            let (mut seen, mut came, mut second) = (Vec::new(), Vec::new(), 0);
            for (rows, payload, restart) in chunks {
                let keys: Vec<Value> = rows.iter().map(|(key, _)| key.clone()).collect();
                // Times go up, so that no event is adjusted.
                let times: Vec<Instant> = rows.iter().map(|(_, step)| { second += step + 1; at(second) }).collect();
                for (key, time) in keys.iter().zip(&times) {
                    came.push(format!("{:?} {:?}", time, key.view()));
                }
                seen.extend(shown(&push(&mut orderer, &keys, payload, &times)));
                if restart {
                    let mut bytes = Vec::new();
                    orderer.snapshot().write(&mut bytes);
                    orderer = self::orderer();
                    orderer.restore(&mut Reader::new(&bytes)).expect("a good copy");
                }
            }
            let mut rest = Vec::new();
            orderer.end(&mut rest);
            seen.extend(shown(&rest));
            seen.sort();
            came.sort();
            prop_assert_eq!(seen, came);
        }
    }
}
