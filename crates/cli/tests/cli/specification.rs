//! The specification, the tests and `docs/coverage.md` agree: an id that a test claims to prove exists, every id has a
//! row, every file that a row names is there, and the reference of every golden case leads to a section or a decision.
#![allow(
    clippy::disallowed_methods,
    reason = "the test reads the files of the repository"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of this test")
}

/// All first groups that a pattern finds.
fn captures<'a>(text: &'a str, regex: &Regex) -> impl Iterator<Item = &'a str> {
    regex
        .captures_iter(text)
        .filter_map(|found| found.get(1).map(|group| group.as_str()))
}

/// The ids of the rows of all tables of a page, `| T4 | ..`.
fn row_ids(page: &str) -> BTreeSet<String> {
    captures(&read(page), &pattern(r"(?m)^\| ([A-Z]\d+) \|"))
        .map(String::from)
        .collect()
}

/// Text files below a folder of the repository.
fn files(folder: &str) -> Vec<PathBuf> {
    let mut folders = vec![root().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder exists").flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && name != "node_modules" {
                    folders.push(path);
                }
            } else {
                files.push(path);
            }
        }
    }
    files
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn expand_braces(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![path.to_string()];
    };
    let (choices, after) = rest.split_once('}').expect("braces are closed");
    choices
        .split(',')
        .flat_map(|choice| expand_braces(&format!("{before}{choice}{after}")))
        .collect()
}

/// Coverage names files from the root, or as `crate/file.rs` for `crates/crate/src/file.rs`; a trailing `*` is any
/// ending.
fn exists(name: &str) -> bool {
    let name = name.trim_start_matches("./");
    let in_source = name
        .split_once('/')
        .map(|(package, file)| format!("crates/{package}/src/{file}"));
    let candidates = [
        Some(name.to_string()),
        Some(format!("crates/{name}")),
        Some(format!("examples/drone-delivery/{name}")),
        in_source,
    ];
    candidates.into_iter().flatten().any(|candidate| {
        let path = root().join(&candidate);
        let Some(prefix) = candidate.strip_suffix('*') else {
            return path.exists();
        };
        let (folder, start) = prefix.rsplit_once('/').unwrap_or(("", prefix));
        fs::read_dir(root().join(folder)).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().starts_with(start))
        })
    })
}

#[test]
fn an_id_that_a_test_proves_is_in_the_specification() {
    let known = row_ids("docs/spec/requirements.md");
    assert!(known.len() > 80, "the tables of requirements are read");
    let proves = pattern(r"\b[Pp]roves ((?:[A-Z]\d+\b(?:,| and| to)? ?)+)");
    let id = pattern(r"([A-Z]\d+)");
    let mut unknown = Vec::new();
    let mut proved = 0;
    for folder in ["crates", "examples", "tests", "cases", "benches", "fuzz"] {
        for path in files(folder) {
            // Data files need not be text.
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            for list in captures(&text, &proves) {
                for id in captures(list, &id) {
                    proved += 1;
                    if !known.contains(id) {
                        unknown.push(format!("{}: {id}", relative(&path)));
                    }
                }
            }
        }
    }
    assert!(proved > 100, "tests name what they prove");
    assert_eq!(unknown, [] as [String; 0]);
}

#[test]
fn every_requirement_has_a_row_in_coverage_and_every_row_a_requirement() {
    let (required, covered) = (
        row_ids("docs/spec/requirements.md"),
        row_ids("docs/coverage.md"),
    );
    let missing: Vec<_> = required.difference(&covered).collect();
    let unknown: Vec<_> = covered.difference(&required).collect();
    assert!(
        missing.is_empty(),
        "no row in docs/coverage.md: {missing:?}"
    );
    assert!(unknown.is_empty(), "not in requirements.md: {unknown:?}");
}

#[test]
fn files_that_coverage_names_exist() {
    let text = read("docs/coverage.md");
    let quoted = pattern(r"`([^`]+)`");
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let names = rows.flat_map(|row| captures(row, &quoted).collect::<Vec<_>>());
    let missing: Vec<String> = names
        .filter_map(|name| name.split_whitespace().next())
        .filter(|name| name.contains('/') && !name.starts_with('/'))
        .flat_map(expand_braces)
        .filter(|name| !exists(name))
        .collect();
    assert_eq!(missing, [] as [String; 0]);
}

#[test]
fn tests_that_the_table_of_faults_names_exist() {
    let text = read("tests/security/README.md");
    let quoted = pattern(r"`([^`]+)`");
    let mut tests = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cell = row.rsplit("| ").next().unwrap_or_default();
        let mut source = String::new();
        for name in captures(cell, &quoted) {
            if name.contains('/') {
                source = read(name);
            } else if name.contains('_') {
                assert!(source.contains(&format!("fn {name}(")), "{name}");
                tests += 1;
            }
        }
    }
    assert!(tests > 30, "the table is read");
}

#[test]
fn the_table_of_faults_has_every_check() {
    let (table, script) = (
        read("tests/security/README.md"),
        read("tests/security/faults"),
    );
    let checks: BTreeSet<&str> = captures(&script, &pattern(r"(?m)^    (\w+),$")).collect();
    let listed: BTreeSet<&str> = captures(&table, &pattern(r"\| `(\w+)` \|")).collect();
    assert!(checks.len() > 25, "the checks are read");
    assert_eq!(listed, checks);
}

#[test]
fn references_to_the_language_lead_to_a_section_or_a_decision() {
    let text = read("docs/spec/language.md");
    let sections: BTreeSet<&str> =
        captures(&text, &pattern(r"(?m)^#{2,3} (\d+(?:\.\d+)?)")).collect();
    let decisions: BTreeSet<&str> = captures(&text, &pattern(r"(?m)^\| (A-\d+)\b")).collect();
    assert!(sections.len() > 50 && decisions.len() > 80);
    let reference = pattern(r"language\.md`? \(?((?:(?:\d+(?:\.\d+)?|A-\d+)(?:, )?)+)");
    let section = pattern(r"(?:^|[ ,])(\d+(?:\.\d+)?)");
    let decision = pattern(r"\b(A-\d+)\b");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in files("cases").iter().chain(&files("docs/language")) {
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let note = fs::read_to_string(path).expect("a page is text");
        let numbers = captures(&note, &reference).flat_map(|list| captures(list, &section));
        let unknown = numbers
            .inspect(|_| seen += 1)
            .filter(|number| !sections.contains(number));
        let undecided = captures(&note, &decision).filter(|item| !decisions.contains(item));
        wrong.extend(
            unknown
                .chain(undecided)
                .map(|item| format!("{}: {item}", relative(path))),
        );
    }
    assert!(seen > 500, "golden cases name the section they prove");
    assert_eq!(wrong, [] as [String; 0]);
}

/// The cells of the first table below a heading, without its head.
fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, rest) = text.split_once(heading).expect("the heading exists");
    let lines = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| {
        row.split(" | ")
            .map(|cell| cell.trim_matches(['|', ' ']))
            .map(String::from)
            .collect()
    };
    rows.map(cells).collect()
}

// proves S1
#[test]
fn the_checklist_has_the_rows_of_the_specification() {
    let specified = table(&read("docs/spec/language.md"), "\n## 14.");
    let listed = table(&read("cases/CHECKLIST.md"), "\n## Rows");
    let feature = |row: &Vec<String>| (row[1].clone(), row[2].clone());
    let listed: Vec<_> = listed.iter().map(feature).collect();
    let specified: Vec<_> = specified
        .iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    assert_eq!(listed, specified);
}
