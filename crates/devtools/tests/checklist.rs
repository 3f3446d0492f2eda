//! `cases/CHECKLIST.md` names a proof for every row of the language's checklist, and every proof is there.
//!
//! A proof is a folder of golden cases, or a file of tests where a file in and a file out cannot show the matter.

use std::path::{Path, PathBuf};

use highwater_devtools::golden::discover;
use highwater_env::disk;

const ROWS: usize = 238;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cells of the table under a heading, without its first two lines.
fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, rest) = text.split_once(heading).expect("the heading is there");
    let lines = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| {
        line.trim_matches('|')
            .split(" | ")
            .map(str::trim)
            .map(String::from)
            .collect()
    };
    rows.map(cells).collect()
}

/// The texts between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn is_proof(name: &str) -> bool {
    let tests = name.starts_with("crates/") && root().join(name).exists();
    tests || !discover(&[root().join("cases").join(name)]).is_empty()
}

fn wrong(rows: &[Vec<String>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows {
        let proofs = row.last().map_or(Vec::new(), |cell| quoted(cell));
        if proofs.is_empty() {
            wrong.push(format!("{row:?} has no proof"));
        }
        wrong.extend(
            proofs
                .iter()
                .filter(|name| !is_proof(name))
                .map(|name| format!("{row:?}: no {name}")),
        );
    }
    wrong
}

// proves S1
#[test]
fn every_row_of_the_checklist_has_a_proof_that_is_there() {
    let text = disk::read_to_string(root().join("cases/CHECKLIST.md")).unwrap();
    let rows = table(&text, "## Rows");
    let numbers: Vec<String> = rows.iter().map(|row| row[0].clone()).collect();
    let expected: Vec<String> = (1..=ROWS).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected);
    assert_eq!(wrong(&rows), [] as [String; 0]);
}

// proves S2
#[test]
fn every_rule_of_compiling_has_a_query_that_is_rejected_by_it() {
    let text = disk::read_to_string(root().join("cases/CHECKLIST.md")).unwrap();
    let rows = table(&text, "## Compile-time rules");
    assert!(rows.len() >= 16, "language.md 12.1 has 16 lines");
    assert_eq!(wrong(&rows), [] as [String; 0]);
    let rejected = |row: &Vec<String>| {
        quoted(row.last().unwrap())
            .iter()
            .all(|name| name.starts_with("rejected/"))
    };
    assert!(rows.iter().all(rejected));
}
