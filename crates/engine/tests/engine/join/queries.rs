//! Whole queries with joins, over events that a reader can follow.

use std::sync::Arc;

use highwater_engine::{PhysicalPlan, ReferenceTable, Value, eval};
use highwater_query::plan::Read;
use highwater_time::{Duration, Instant};

use crate::streams::{self, Random, Row, Run, Stream, shown};

type Event = Vec<(&'static str, Value)>;

/// Runs a query over events given as (field, value) lists; times are what TIMESTAMP BY says. Events of the reference
/// input `Ref`, if the query has one, become its table.
fn query(text: &str, inputs: &[(&str, Vec<Event>)]) -> Vec<String> {
    use highwater_query::{Catalog, CatalogInput, compile};
    let catalog = Catalog {
        inputs: inputs
            .iter()
            .map(|(name, _)| CatalogInput {
                name: name.to_string(),
                reference: *name == "Ref",
            })
            .collect(),
        ..Catalog::default()
    };
    let compiled = match compile(text, &catalog) {
        Ok(compiled) => compiled,
        Err(errors) => panic!("{}", errors[0].render(text, "query")),
    };
    let plan = Arc::new(compiled.plan);
    let read = |name: &str, reads: &[Read]| -> Vec<Row> {
        let (_, events) = inputs.iter().find(|(known, _)| *known == name).unwrap();
        let value = |event: &Event, read: &Read| match read {
            Read::Path(path) | Read::TimePath(path) => {
                let [field] = &path[..] else {
                    panic!("events here are flat");
                };
                let found = event.iter().find(|(name, _)| name == field);
                found.map_or(Value::Null, |(_, value)| value.clone())
            }
            other => panic!("{other:?} is not read here"),
        };
        let row = |event| Row {
            time: 0,
            values: reads.iter().map(|read| value(event, read)).collect(),
        };
        events.iter().map(row).collect()
    };
    let tables: Vec<Arc<ReferenceTable>> = plan
        .references
        .iter()
        .map(|reference| {
            let rows = read(&reference.name, &reference.reads);
            let table = streams::chunk(&rows.iter().collect::<Vec<_>>());
            Arc::new(ReferenceTable::fixed(table.columns, rows.len()))
        })
        .collect();
    let streams: Vec<Stream> = plan
        .inputs
        .iter()
        .map(|input| {
            let mut rows = read(&input.name, &input.reads);
            let chunk = streams::chunk(&rows.iter().collect::<Vec<_>>());
            let by = input.timestamp.as_ref().unwrap();
            let times = eval::evaluate(by, &chunk, &mut eval::Faults::new(rows.len()));
            for (index, row) in rows.iter_mut().enumerate() {
                match times.get(index) {
                    highwater_engine::ValueRef::Time(time) => row.time = time.ticks(),
                    other => panic!("{other:?} is no time"),
                }
            }
            vec![rows]
        })
        .collect();
    let physical = Arc::new(PhysicalPlan::with_references(plan.clone(), &tables).unwrap());
    let got = Run::new(&physical, &streams, &mut Random::new(17)).finish();
    assert_eq!(got.errors, 0);
    shown(&got.rows)
}

/// A time some seconds into 2026.
fn second(second: i64) -> Value {
    let start = Instant::from_civil(2026, 1, 1).unwrap();
    Value::Time(Instant::from_ticks(
        start.ticks() + Duration::from_secs(second).ticks(),
    ))
}

/// Leaves the times of rows out.
fn values(rows: Vec<String>) -> Vec<String> {
    let value = |row: String| row.split_once(": ").unwrap().1.to_string();
    rows.into_iter().map(value).collect()
}

// proves S1
#[test]
fn orders_without_payment_are_found_when_the_last_payment_could_have_come() {
    let order = |id, at| vec![("id", Value::Int(id)), ("t", second(at))];
    let rows = query(
        "SELECT o.id, System.Timestamp() AS at FROM Orders o TIMESTAMP BY t
         LEFT JOIN Payments p TIMESTAMP BY t
         ON o.id = p.id AND DATEDIFF(second, o, p) BETWEEN 0 AND 30 WHERE p.id IS NULL",
        &[
            ("Orders", vec![order(1, 0), order(2, 5), order(3, 6)]),
            ("Payments", vec![order(9, 4), order(2, 35), order(3, 37)]),
        ],
    );
    let expected = [
        "1|2026-01-01T00:00:30.0000000Z",
        "3|2026-01-01T00:00:36.0000000Z",
    ];
    assert_eq!(values(rows), expected);
}

// proves S1
#[test]
fn three_streams_keep_the_times_of_their_own() {
    let event = |id, at| vec![("id", Value::Int(id)), ("t", second(at))];
    let rows = query(
        "SELECT a.id AS a, b.id AS b, c.id AS c FROM A a TIMESTAMP BY t
         JOIN B b TIMESTAMP BY t ON DATEDIFF(second, a, b) BETWEEN 0 AND 10
         JOIN C c TIMESTAMP BY t ON DATEDIFF(second, a, c) BETWEEN 0 AND 5
         AND DATEDIFF(second, b, c) BETWEEN -10 AND 0",
        &[
            ("A", vec![event(1, 0), event(2, 20)]),
            ("B", vec![event(3, 4), event(4, 9), event(5, 22)]),
            (
                "C",
                vec![event(6, 2), event(7, 5), event(8, 6), event(9, 21)],
            ),
        ],
    );
    let mut rows = values(rows);
    rows.sort();
    assert_eq!(rows, ["1|3|6", "1|4|6", "1|4|7", "2|5|9"]);
}

// proves S3
#[test]
fn reference_data_adds_to_events_and_never_moves_time() {
    let event = |id, at| vec![("id", Value::Int(id)), ("t", second(at))];
    let known = |id: Value, name| vec![("id", id), ("name", Value::text(name))];
    let rows = query(
        "SELECT e.id, r.name FROM Events e TIMESTAMP BY t LEFT JOIN Ref r ON e.id = r.id",
        &[
            ("Events", vec![event(1, 0), event(2, 1), event(3, 1)]),
            (
                "Ref",
                vec![
                    known(Value::Float(1.0), "one"),
                    known(Value::text("2"), "text"),
                    known(Value::Int(3), "three"),
                    known(Value::Int(3), "drei"),
                ],
            ),
        ],
    );
    assert_eq!(values(rows), ["1|one", "2|text", "3|three", "3|drei"]);
}

// proves S1
#[test]
fn elements_of_arrays_become_rows() {
    let array = |items: &[i64]| {
        let items: Vec<Value> = items.iter().map(|&item| Value::Int(item)).collect();
        Value::Array(items.into())
    };
    let event = |id, items, at| vec![("id", Value::Int(id)), ("a", items), ("t", second(at))];
    let rows = query(
        "SELECT e.id, x.ArrayIndex AS i, x.ArrayValue AS v FROM Events e TIMESTAMP BY t
         OUTER APPLY GetArrayElements(e.a) AS x",
        &[(
            "Events",
            vec![event(1, array(&[7, 8]), 0), event(2, array(&[]), 1)],
        )],
    );
    assert_eq!(values(rows), ["1|0|7", "1|1|8", "2|NULL|NULL"]);
}
