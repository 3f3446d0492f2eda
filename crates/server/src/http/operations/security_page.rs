//! `docs/security.md` has the rights of every operation of all protocols, generated from their tables.
//!
//! `UPDATE_EXPECT=1 cargo test --workspace --lib security_page` writes them anew.

use std::fmt::Write;

use expect_test::expect_file;
use highwater_access::Right;
use highwater_kafka::{Denial, NeededRight, ResourceKind, request_rights};

use super::{Access, Scope, operations};
use crate::amqp::{AmqpResource, operation_rights};

const PAGE: &str = include_str!("../../../../../docs/security.md");
const START: &str = "<!-- rights by operation -->\n";
const END: &str = "<!-- end -->";

fn http_table() -> String {
    let mut table = "| area | operation | right | for |\n|---|---|---|---|\n".to_owned();
    for (area, operation) in operations() {
        let (right, on) = match operation.access {
            Access::Public => ("none".to_owned(), ""),
            Access::Key(right, scope) => (format!("`{right}`"), scope_text(scope)),
        };
        let (area, method, path) = (area.name, &operation.method, operation.path);
        writeln!(table, "| {area} | `{method} {path}` | {right} | {on} |").unwrap();
    }
    table
}

/// The scope without the exception for internal hubs, which the page has above the table.
fn scope_text(scope: Scope) -> &'static str {
    let text = scope.describe();
    let text = text.split(" (").next().unwrap_or(text);
    text.strip_prefix("for ").unwrap_or(text)
}

fn kafka_table() -> String {
    let mut table = "| request | right | for | without it |\n|---|---|---|---|\n".to_owned();
    for row in request_rights() {
        let cells = match &row.needed {
            None => "none | | ".to_owned(),
            Some(needed) => format!(
                "{} | {} | {} ",
                rights_text(needed.any_of),
                resource_text(needed.resource),
                denial_text(needed),
            ),
        };
        writeln!(table, "| {} | {cells}|", row.request).unwrap();
    }
    table
}

fn amqp_table() -> String {
    let mut table = "| operation | address | right | for |\n|---|---|---|---|\n".to_owned();
    for row in operation_rights() {
        let cells = format!("{} | `{}`", row.summary, row.address);
        if row.needed.is_empty() {
            writeln!(table, "| {cells} | none | |").unwrap();
        }
        for needed in row.needed {
            let on = match needed.resource {
                AmqpResource::Hub => "the hub",
                AmqpResource::NewHub => "the hub that it creates",
                AmqpResource::Queue => "the queue",
                AmqpResource::Group => "the group, unless it is `$Default`",
            };
            let right = rights_text(needed.any_of);
            writeln!(table, "| {cells} | {right} | {on} |").unwrap();
        }
    }
    table
}

fn rights_text(any_of: &[Right]) -> String {
    let names: Vec<String> = any_of.iter().map(|right| format!("`{right}`")).collect();
    names.join(" or ")
}

fn resource_text(resource: ResourceKind) -> &'static str {
    match resource {
        ResourceKind::Node => "the whole node",
        ResourceKind::AnyHub => "any hub",
        ResourceKind::Hub => "the hub",
        ResourceKind::NewHub => "the hub that it creates",
        ResourceKind::Group => "the group",
        ResourceKind::TransactionalId => "the transactional id",
    }
}

fn denial_text(needed: &NeededRight) -> String {
    match needed.denial {
        Denial::Error => format!("error {}", needed.code),
        Denial::Omitted => "left out".to_owned(),
        Denial::Unknown => "not created".to_owned(),
    }
}

// proves G1
#[test]
fn the_security_page_has_the_rights_of_every_operation() {
    let (before, rest) = PAGE.split_once(START).expect("the page has the part");
    let (_, after) = rest.split_once(END).expect("the part ends");
    let (http, kafka, amqp) = (http_table(), kafka_table(), amqp_table());
    let page = format!(
        "{before}{START}\n### HTTP\n\n{http}\n### Kafka\n\n{kafka}\n### AMQP\n\n{amqp}\n{END}{after}"
    );
    expect_file!["../../../../../docs/security.md"].assert_eq(&page);
}
