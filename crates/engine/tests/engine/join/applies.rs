//! APPLY: a row for every part of an array or record.

use std::sync::Arc;

use highwater_engine::{Record, Value};
use highwater_query::plan::{ApplyColumn, Each, Node, NodeId};

use crate::by_hand::column as col;
use crate::join::plans::*;
use crate::streams::{Random, Row, Run, shown};

fn nested(random: &mut Random) -> Value {
    match random.below(7) {
        0 => Value::Null,
        1 => Value::Int(3),
        2 | 3 => {
            let items = (0..random.below(4)).map(|_| key(random));
            Value::Array(items.collect::<Vec<_>>().into())
        }
        _ => {
            let mut record = Record::default();
            for name in ["x", "y", "z"].into_iter().take(random.below(4)) {
                record.set(name.into(), key(random));
            }
            Value::Record(Arc::new(record))
        }
    }
}

fn apply_expected(rows: &[&Row], each: Each, outer: bool) -> (Vec<Row>, u64) {
    let (mut found, mut failed) = (Vec::new(), 0);
    for row in rows {
        let parts: Vec<(Value, Value)> = match (&row.values[KEY], each) {
            (Value::Null, _) => vec![],
            (Value::Array(items), Each::Element) => items
                .iter()
                .enumerate()
                .map(|(index, item)| (Value::Int(index as i64), item.clone()))
                .collect(),
            (Value::Record(record), Each::Property) => record
                .iter()
                .map(|(name, value)| (Value::Text(name.clone()), value.clone()))
                .collect(),
            _ => {
                failed += 1;
                continue;
            }
        };
        let parts = match parts.is_empty() && outer {
            true => vec![(Value::Null, Value::Null)],
            false => parts,
        };
        let names = match each {
            Each::Element => ["ArrayIndex", "ArrayValue"],
            Each::Property => ["PropertyName", "PropertyValue"],
        };
        for (first, second) in parts {
            let mut record = Record::default();
            record.set(names[0].into(), first);
            record.set(names[1].into(), second);
            found.push(Row {
                time: row.time,
                values: vec![Value::Record(Arc::new(record)), row.values[ID].clone()],
            });
        }
    }
    (found, failed)
}

// proves S1
#[test]
fn apply_gives_a_row_for_each_part() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let mut streams = [stream(&mut random, 0)];
        for row in streams[0].iter_mut().flatten() {
            row.values[KEY] = nested(&mut random);
        }
        let each = [Each::Element, Each::Property][random.below(2)];
        let outer = random.flip();
        let apply = Node::Apply {
            from: NodeId(0),
            of: col(KEY),
            each,
            outer,
            columns: vec![ApplyColumn::Element, ApplyColumn::Carried(ID)],
        };
        let plan = plan(1, vec![source(0), apply]);
        let physical = physical(plan);
        let (expected, failed) = apply_expected(&merged(&streams[0]), each, outer);
        let got = Run::new(&physical, &streams, &mut random).finish();
        assert_eq!(shown(&got.rows), shown(&expected), "seed {seed}");
        assert_eq!(got.errors, failed, "seed {seed}");
    }
}
