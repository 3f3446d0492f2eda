//! The examples of the function table come true in a running query: compiled, laid out, fed one event and read back
//! from the output. The manual prints the same examples.

use std::sync::Arc;

use highwater_engine::{Chunk, Item, PhysicalPlan, Value, eval};
use highwater_query::functions::{Kind, table};
use highwater_query::{Catalog, compile};
use highwater_time::Instant;

/// The only value of the only row of the query, or why there is none.
fn run(query: &str) -> Result<Value, String> {
    let compiled = compile(query, &Catalog::open()).map_err(|errors| {
        let rendered = errors.iter().map(|error| error.render(query, "example"));
        rendered.collect::<String>()
    })?;
    let physical = PhysicalPlan::new(Arc::new(compiled.plan)).map_err(|error| error.to_string())?;
    assert!(
        physical.plan().inputs[0].reads.is_empty(),
        "an example needs no fields"
    );
    let mut local = physical.local(0);
    let mut shared = physical.shared(&[1]);
    let event = Item::Rows(Chunk::new(vec![0].into(), Vec::new()));
    let (mut handed, mut results) = (Vec::new(), Vec::new());
    for item in [event, Item::Watermark(Instant::AFTER_ALL)] {
        local.push(PhysicalPlan::LOCAL_ENTRY, item, &mut handed);
    }
    for (exit, item) in handed {
        let entry = shared.entry(0, exit, 0);
        shared.pipeline.push(entry, item, &mut results);
    }
    let rows = results.iter().filter_map(|(_, item)| match item {
        Item::Rows(chunk) if chunk.rows() > 0 => Some(chunk),
        _ => None,
    });
    match rows.collect::<Vec<_>>().as_slice() {
        [chunk] if chunk.rows() == 1 => Ok(chunk.columns[0].get(0).to_value()),
        _ => Err(format!("no row: {:?}", local.errors)),
    }
}

/// As the table writes values: as in JSON, except that text has no quotes and NULL is `NULL`.
fn shown(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Null => text.push_str("NULL"),
        Value::Text(value) => text.push_str(value),
        Value::Time(_) => eval::write_text(value.view(), &mut text),
        _ => eval::write_json(value.view(), &mut text),
    }
    text
}

// proves S1
#[test]
fn every_example_in_the_table_is_true() {
    let mut wrong = Vec::new();
    for info in table() {
        for (expression, expected) in info.examples {
            let query = format!("SELECT {expression} AS v INTO out FROM input");
            match run(&query).as_ref().map(shown) {
                Ok(found) if found == *expected => {}
                Ok(found) => wrong.push(format!("{expression} is {found}, not {expected}")),
                Err(error) => wrong.push(format!("{expression} fails: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// proves S1
#[test]
fn what_can_be_called_in_a_select_list_has_an_example() {
    let missing: Vec<&str> = table()
        .iter()
        .filter(|info| match info.kind {
            Kind::Scalar(_) | Kind::Coalesce | Kind::NullIf | Kind::Cast => true,
            // These depend on the event, its window or the events around it.
            Kind::Metadata
            | Kind::System
            | Kind::Aggregate(_)
            | Kind::Analytic(_)
            | Kind::Window(_)
            | Kind::WindowPart
            | Kind::Apply
            | Kind::Pattern => false,
        })
        .filter(|info| info.examples.is_empty())
        .map(|info| info.name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
