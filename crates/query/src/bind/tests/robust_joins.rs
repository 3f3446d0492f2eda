//! Plans of any joins are well formed.

use proptest::prelude::*;

use super::accepts;
use super::robust::{columns_within, pred_within, survives};
use crate::plan::{ApplyColumn, JoinNode, LookupNode, Plan, ReferenceStep, Side};

pub(super) fn join_within(join: &JoinNode, left: usize, right: usize) {
    assert_ne!(join.left, join.right);
    assert!(join.low <= join.high, "{join:?}");
    for (side, column) in &join.columns {
        assert!(
            *column < if *side == Side::Left { left } else { right },
            "{join:?}"
        );
    }
    for (a, b) in &join.keys {
        columns_within(&[a], left);
        columns_within(&[b], right);
    }
    assert!(!join.bounds.is_empty());
    for bound in &join.bounds {
        assert!(
            bound.left_column.is_none_or(|column| column < left),
            "{join:?}"
        );
        assert!(bound.low.is_some() || bound.high.is_some(), "{join:?}");
    }
    join.residual
        .iter()
        .for_each(|pred| pred_within(pred, join.columns.len()));
}

pub(super) fn lookup_within(plan: &Plan, lookup: &LookupNode, left: usize) {
    let reference = &plan.references[lookup.reference];
    let mut right = reference.reads.len();
    for step in &reference.steps {
        match step {
            ReferenceStep::Filter(keep) => pred_within(keep, right),
            ReferenceStep::Project(items) => {
                items
                    .iter()
                    .for_each(|item| columns_within(&[&item.expr], right));
                right = items.len();
            }
        }
    }
    for (side, column) in &lookup.columns {
        assert!(
            *column < if *side == Side::Left { left } else { right },
            "{lookup:?}"
        );
    }
    for (a, b) in &lookup.keys {
        columns_within(&[a], left);
        columns_within(&[b], right);
    }
    lookup
        .residual
        .iter()
        .for_each(|pred| pred_within(pred, lookup.columns.len()));
}

pub(super) fn apply_within(columns: &[ApplyColumn], below: usize) {
    for column in columns {
        assert!(!matches!(column, ApplyColumn::Carried(column) if *column >= below));
    }
}

/// A step over the sources before it; some are wrong, most are not.
fn step(index: usize, pick: (usize, usize, usize, usize)) -> String {
    let (form, from, x, y) = pick;
    let names = [
        "a",
        "b",
        "p.a",
        "q.b",
        "p.PartitionId",
        "q.r.d",
        "p",
        "q",
        "q.k + 1",
        "System.Timestamp()",
    ];
    let (x, y) = (names[x % names.len()], names[y % names.len()]);
    let source = |of: usize| match of % (index + 3) {
        0 => "input".to_string(),
        1 => "orders".to_string(),
        2 => "devices".to_string(),
        step => format!("s{}", step - 3),
    };
    let (s, t) = (source(from), source(from / 7));
    let bound = [
        "DATEDIFF(s, p, q) BETWEEN 0 AND 5",
        "DATEDIFF(ms, q, p) = 1",
        "p.k = q.k",
    ][from / 49 % 3];
    let kind = ["JOIN", "LEFT JOIN"][from / 147 % 2];
    match form % 9 {
        0 => format!(
            "SELECT p.*, {x} AS x FROM {s} p {kind} {t} q ON {bound} AND p.k = q.k AND {x} = {y}"
        ),
        1 => format!(
            "SELECT {x} AS a, {y} AS b, q AS k FROM {s} p {kind} {t} q ON {bound} WHERE {x} = {y} OR q.a IS NULL"
        ),
        2 => format!("SELECT *, {x} AS x FROM {s} p CROSS APPLY GetArrayElements({y}) AS q"),
        3 => format!(
            "SELECT q.*, p.*, {x} AS y FROM {s} p OUTER APPLY GetRecordProperties(p.k) AS q WHERE {y} > 1"
        ),
        4 => format!(
            "SELECT p.a, MAX({x}) AS b, COUNT(q) AS k FROM {s} p {kind} {t} q ON {bound} GROUP BY p.a, Tumbling(s, 5)"
        ),
        5 => format!(
            "SELECT {x} AS a, {y} AS k, z.b FROM {s} p {kind} {t} q ON {bound} {kind} {s} z ON DATEDIFF(s, q, z) = 0 AND z.k = {x}"
        ),
        6 => format!(
            "SELECT {x} AS a, z.* FROM {s} z JOIN ({t} p JOIN orders q ON {bound}) ON DATEDIFF(s, z, q) BETWEEN 0 AND 3 AND {y} = z.a"
        ),
        7 => format!("SELECT * FROM {s} p WHERE {x} = 1"),
        _ => format!("SELECT p.a, p.k, p AS b FROM {s} p WHERE {x} = {y}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // proves S2
    #[test]
    fn plans_of_random_joins_are_well_formed(picks in prop::collection::vec(any::<(usize, usize, usize, usize)>(), 1..6)) {
        let steps: Vec<String> =
            picks.iter().enumerate().map(|(i, pick)| format!("s{i} AS ({})", step(i, *pick))).collect();
        let last = picks.len() - 1;
        for table in ["", "CREATE TABLE input (a bigint, k bigint, r record) ", "CREATE TABLE devices (b bigint, k array) "] {
            // One step at a time, because one that fails hides what comes of the others.
            let (form, ..) = picks[last];
            survives(&format!("{table}{}", step(0, (form, picks[0].1, picks[0].2, picks[0].3))));
            let with = format!("{table}WITH {}", steps.join(", "));
            survives(&format!("{with} SELECT * INTO x FROM s{last} SELECT a INTO y FROM s{}", last / 2));
            survives(&format!("{with} SELECT i.a, s{last}.k FROM input i JOIN s{last} ON DATEDIFF(s, i, s{last}) = 0"));
            survives(&format!("{with} SELECT i.a, s{last}.k FROM input i JOIN s{last} ON i.k = s{last}.k"));
        }
    }
}

// proves S2
#[test]
fn most_forms_of_the_steps_above_are_understood() {
    for (form, from) in [
        (0, 0),
        (1, 148),
        (2, 0),
        (3, 1),
        (4, 7),
        (5, 0),
        (6, 0),
        (7, 0),
        (8, 0),
    ] {
        accepts(&[&step(0, (form, from, 2, 3))]);
    }
}

// proves S2
#[test]
fn joins_upon_joins_do_not_explode() {
    let mut chain = "WITH s0 AS (SELECT * FROM input)".to_string();
    for step in 1..100 {
        let from = step - 1;
        chain += &format!(
            ", s{step} AS (SELECT a.*, b.x{step} FROM s{from} a JOIN s{from} b ON DATEDIFF(s, a, b) = 0 AND a.k{step} = b.k)"
        );
    }
    survives(&format!("{chain} SELECT z FROM s99"));
}
