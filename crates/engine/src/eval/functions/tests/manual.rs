//! The examples of the manual come true.

use highwater_query::functions::{Kind, table};
use highwater_query::plan::Node;
use highwater_query::{Catalog, compile};

use super::*;
use crate::chunk::Chunk;
use crate::eval::evaluate;
use crate::eval::text::{write_json, write_text};

/// The value of an expression without columns, written as in the manual.
fn value(expression: &str) -> Option<String> {
    let query = format!("SELECT {expression} AS x INTO out FROM input");
    let compiled = compile(&query, &Catalog::open()).ok()?;
    let item = compiled.plan.nodes.iter().find_map(|node| match node {
        Node::Project { items, .. } => items.first(),
        _ => None,
    })?;
    let mut faults = Faults::new(1);
    let chunk = Chunk::new(vec![0].into(), Vec::new());
    let value = evaluate(&item.expr, &chunk, &mut faults).get(0).to_value();
    assert!(faults.is_empty(), "{expression}: {faults:?}");
    let mut text = String::new();
    match value {
        Value::Null => text.push_str("NULL"),
        Value::Float(_) => write_json(value.view(), &mut text),
        _ => write_text(value.view(), &mut text),
    }
    Some(text)
}

// proves S1
#[test]
fn every_example_of_a_scalar_function_is_true() {
    let mut wrong = Vec::new();
    for info in table()
        .iter()
        .filter(|info| matches!(info.kind, Kind::Scalar(_)))
    {
        for (expression, expected) in info.examples {
            let found = value(expression);
            if found.as_deref() != Some(expected) {
                wrong.push(format!("{expression} is {found:?}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
