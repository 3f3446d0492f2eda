//! One rule, one query, one snapshot.

mod aggregates;
mod amendments;
mod analytic;
mod applies;
mod calls;
mod columns;
mod errors;
mod grouping;
mod joins;
mod metadata;
mod patterns;
mod plans;
mod references;
mod robust;
mod robust_joins;
mod statements;
mod tables;
mod time;
mod windows;

use expect_test::Expect;

use super::{Catalog, CatalogInput, compile};
use crate::explain::explain;

fn catalog() -> Catalog {
    let input = |name: &str, reference| CatalogInput {
        name: name.to_string(),
        reference,
    };
    Catalog {
        inputs: vec![
            input("input", false),
            input("orders", false),
            input("devices", true),
        ],
        outputs: None,
        any_input: false,
        functions: None,
        ignore_case: false,
        strict_types: false,
        older_level: None,
        without_geo: false,
    }
}

/// The explained plan, without the notes on partitions; its errors if it is wrong.
fn plan(query: &str) -> String {
    let compiled = match compile(query, &catalog()) {
        Ok(compiled) => compiled,
        Err(errors) => {
            return errors
                .iter()
                .map(|error| error.render(query, "q"))
                .collect();
        }
    };
    let text = explain(&compiled.plan);
    let lines = text.lines().filter(|line| !line.starts_with("a start"));
    lines
        .map(|line| format!("{}\n", line.split("  --").next().unwrap_or_default()))
        .collect()
}

fn check(query: &str, expected: Expect) {
    expected.assert_eq(&plan(query));
}

/// The query is fine, but these things are odd.
fn warns(query: &str, expected: Expect) {
    match compile(query, &catalog()) {
        Ok(compiled) => {
            let shown: String = compiled
                .warnings
                .iter()
                .map(|w| w.render(query, "q"))
                .collect();
            expected.assert_eq(&shown);
        }
        Err(errors) => panic!("{query}: {errors:?}"),
    }
}

/// One case per line: `left => right`.
fn table(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let cases = text.lines().filter(|line| !line.trim().is_empty());
    cases.map(|line| {
        line.trim()
            .split_once(" => ")
            .unwrap_or_else(|| panic!("no case: {line}"))
    })
}

/// Lines of `query => the message of its only error`.
fn rejects(cases: &str) {
    for (query, expected) in table(cases) {
        rejects_one(query, expected);
    }
}

fn rejects_one(query: &str, expected: &str) {
    match compile(query, &catalog()) {
        Ok(_) => panic!("should be rejected: {query}"),
        Err(errors) => {
            let messages: Vec<&str> = errors.iter().map(|e| e.message.as_str()).collect();
            assert_eq!(messages, [expected], "{query}");
            let shown = errors[0].render(query, "q");
            assert!(shown.contains('^'), "{shown}");
        }
    }
}

fn accepts(queries: &[&str]) {
    for query in queries {
        if let Err(errors) = compile(query, &catalog()) {
            let shown: String = errors
                .iter()
                .map(|error| error.render(query, "q"))
                .collect();
            panic!("should be fine: {query}\n{shown}");
        }
    }
}
