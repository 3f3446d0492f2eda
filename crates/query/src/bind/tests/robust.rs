//! Whatever the text, compiling ends, in a plan or in errors with a place.

use proptest::prelude::*;

use super::{accepts, catalog, rejects};
use crate::{Catalog, compile, explain, lookback};

const WORDS: &str = "SELECT FROM WHERE GROUP BY HAVING UNION ALL JOIN LEFT ON AND OR NOT CASE WHEN THEN ELSE END \
    AS INTO WITH OVER NULL IN LIKE BETWEEN IS CAST TRY_CAST TIMESTAMP PARTITION System Timestamp Window Windows \
    Tumbling Hopping Session Duration Hop Offset second COUNT SUM MIN MAX LAG LIMIT DURATION CROSS APPLY \
    MATCH_RECOGNIZE CREATE TABLE DISTINCT TOP input orders devices s a b c PartitionId bigint nvarchar max DATEDIFF \
    ( ( ( ) ) ) , , . . * + - / % = <> < > <= !< ~ & | ^ ; ' \" [ ] -- /* */ 1 0 2.5 1e3 'text' [x] \"y\" @ ä \u{0}";

const QUERIES: [&str; 5] = [
    "WITH s AS (SELECT a, x.*, COUNT(*) AS n FROM input TIMESTAMP BY t OVER k WHERE a > 1 GROUP BY a, x, k, Tumbling(s, 5)) \
     SELECT * INTO o FROM s WHERE n BETWEEN 1 AND 2 UNION SELECT * FROM s",
    "SELECT CASE a WHEN 1 THEN 'x' ELSE CAST(b.c AS float) END AS y, * FROM input i PARTITION BY PartitionId INTO 4 HAVING y LIKE 'a%'",
    "WITH u AS (SELECT * FROM input UNION SELECT * FROM orders), v AS (SELECT p + 1 AS p, * FROM u WHERE q IN (1, 2)) \
     SELECT p, MAX(r.z), System.Timestamp() AS t FROM v GROUP BY p, SessionWindow(minute, 1, 2) OVER (PARTITION BY k) HAVING COUNT(*) > 1",
    "SELECT a.x FROM input a LEFT JOIN orders b ON DATEDIFF(s, a, b) BETWEEN 0 AND 1 CROSS APPLY GetArrayElements(a.l) AS e",
    "SELECT LAG(a) OVER (PARTITION BY b LIMIT DURATION(s, 1) WHEN c > 1) AS l FROM (SELECT * FROM input) d TIMESTAMP BY d.t",
];

fn survives(query: &str) {
    for catalog in [catalog(), Catalog::open()] {
        match compile(query, &catalog) {
            Ok(compiled) => {
                explain(&compiled.plan);
                lookback(&compiled.plan);
                compiled
                    .warnings
                    .iter()
                    .for_each(|w| drop(w.render(query, "q")));
            }
            Err(errors) => {
                assert!(!errors.is_empty());
                errors.iter().for_each(|e| drop(e.render(query, "q")));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    // proves S2
    #[test]
    fn token_soup_never_panics(picks in prop::collection::vec(0usize..1000, 0..40), start in any::<bool>()) {
        let words: Vec<&str> = WORDS.split_ascii_whitespace().collect();
        let soup: Vec<&str> = picks.iter().map(|pick| words[pick % words.len()]).collect();
        survives(&format!("{}{}", if start { "SELECT a FROM input " } else { "" }, soup.join(" ")));
    }

    // proves S2
    #[test]
    fn mutated_queries_never_panic(which in 0..QUERIES.len(), cuts in prop::collection::vec((any::<u16>(), any::<u16>(), 0..4u8), 1..6)) {
        let words: Vec<&str> = WORDS.split_ascii_whitespace().collect();
        let mut tokens: Vec<String> = QUERIES[which].split(' ').map(str::to_string).collect();
        for (at, with, how) in cuts {
            let at = at as usize % tokens.len();
            let word = words[with as usize % words.len()].to_string();
            match how {
                0 if tokens.len() > 1 => drop(tokens.remove(at)),
                1 => tokens.insert(at, word),
                2 => tokens[at] = word,
                _ => {
                    let other = with as usize % tokens.len();
                    tokens.swap(at, other);
                }
            }
        }
        survives(&tokens.join(" "));
    }

    // proves S2
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,80}") {
        survives(&text);
        survives(&format!("SELECT {text} FROM input"));
    }
}

// proves S2
#[test]
fn the_queries_that_are_mutated_are_understood() {
    accepts(&QUERIES[..3]);
    rejects(&[
        (QUERIES[3], "JOIN is not supported yet"),
        (QUERIES[4], "LAG is not supported yet"),
    ]);
}

// proves S2
#[test]
fn nesting_has_a_limit_instead_of_an_overflow() {
    for depth in [90, 99, 101, 5_000, 100_000] {
        let (open, close) = ("(".repeat(depth), ")".repeat(depth));
        survives(&format!("SELECT {open}a{close} AS x FROM input"));
        survives(&format!("SELECT a FROM input WHERE {open}a = 1{close}"));
        survives(&format!("SELECT a FROM {open}input{close}"));
        survives(&format!("{open}SELECT a FROM input{close}"));
        survives(&format!(
            "SELECT {} AS x FROM input",
            "CASE WHEN a = 1 THEN ".repeat(depth)
        ));
        survives(&format!("SELECT {}a FROM input", "- ".repeat(depth)));
        survives(&format!(
            "SELECT a FROM input WHERE {} a = 1",
            "NOT ".repeat(depth)
        ));
        survives(&format!(
            "SELECT {}a{close} AS x FROM input",
            "ABS(".repeat(depth)
        ));
        survives(&format!(
            "SELECT {}input{}",
            "a FROM (SELECT ".repeat(depth),
            ") d".repeat(depth)
        ));
        survives(&format!("SELECT a{} AS x FROM input", " + a".repeat(depth)));
        survives(&format!("SELECT a{} AS x FROM input", ".b".repeat(depth)));
    }
}

// proves S2
#[test]
fn a_thousand_alternatives_are_no_deep_tree() {
    let many = vec!["a = 1"; 1000].join(" OR ");
    accepts(&[&format!("SELECT a FROM input WHERE {many}")]);
}

// proves S2
#[test]
fn steps_on_steps_on_steps_neither_overflow_nor_explode() {
    let mut chain = "WITH s0 AS (SELECT * FROM input TIMESTAMP BY t WHERE a > 0)".to_string();
    for step in 1..190 {
        let from = step - 1;
        chain += &format!(
            ", s{step} AS (SELECT * FROM s{from} WHERE b{step} > 1 UNION SELECT * FROM s{from})"
        );
    }
    survives(&format!(
        "{chain} SELECT z, COUNT(*) AS n FROM s189 GROUP BY z, Tumbling(s, 1)"
    ));
}

// proves S2
#[test]
fn nested_simple_cases_do_not_explode() {
    let mut case = "a".to_string();
    for _ in 0..60 {
        case = format!("CASE {case} WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END");
    }
    rejects(&[(
        &format!("SELECT {case} AS x FROM input"),
        "this CASE is too large",
    )]);
}

// proves S2
#[test]
fn a_text_of_many_megabytes_is_refused() {
    let query = format!("SELECT a FROM input -- {}", "x".repeat(5 << 20));
    rejects(&[(&query, "the query is longer than 4194304 bytes")]);
}
