//! The manual of the language is true: what it shows compiles, runs and gives the rows that it says, its generated
//! parts are what `highwater manual` prints, and its list of error codes is complete.
//!
//! The annotations of a page for its checks:
//!
//! - A fence of `sql` must compile without a complaint. With a code behind it, ` ```sql HW1503 `, it must be answered
//!   with that code. Lines `-- reference: Name` and `-- outputs: Name, ..` stand for what the job file would
//!   say. Code that cannot compile is `text`.
//! - Fences of `json in Name` and `json out` (or `json out Name`) behind it hold the events of an input and the rows of
//!   an output: then the query also runs, as a golden case. `json reference Name` holds reference data, `js name` a
//!   function, and `toml job` more of the job file.
//! - The text between `<!-- highwater manual .. -->` and `<!-- end -->` is the output of that command.
//!
//! `UPDATE_EXPECT=1 cargo test -p highwater-cli --test cli manual` writes the generated parts anew.
#![allow(
    clippy::disallowed_methods,
    reason = "tests read the manual and make their own files"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::expect_file;
use highwater_query::{Catalog, CatalogInput, Diagnostic, compile};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

struct Page {
    path: PathBuf,
    text: String,
}

fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = ["language", "errors"]
        .iter()
        .flat_map(|folder| fs::read_dir(docs().join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.sort();
    let read = |path: PathBuf| Page {
        text: fs::read_to_string(&path).unwrap(),
        path,
    };
    paths.into_iter().map(read).collect()
}

struct Fence<'p> {
    /// The words behind the fence: `sql`, `json in Entry`, ..
    info: Vec<&'p str>,
    text: String,
    /// `windows.md:17`
    location: String,
}

impl Page {
    fn name(&self) -> String {
        let folder = self.path.parent().and_then(Path::file_name).unwrap();
        let file = self.path.file_name().unwrap();
        format!("{}/{}", folder.display(), file.display())
    }

    fn fences(&self) -> Vec<Fence<'_>> {
        let mut fences: Vec<Fence> = Vec::new();
        let mut open = false;
        for (at, line) in self.text.lines().enumerate() {
            match line.strip_prefix("```") {
                Some(_) if open => open = false,
                Some(info) => {
                    open = true;
                    fences.push(Fence {
                        info: info.split_whitespace().collect(),
                        text: String::new(),
                        location: format!("{}:{}", self.name(), at + 1),
                    });
                }
                None if open => {
                    let fence = fences.last_mut().unwrap();
                    fence.text.push_str(line);
                    fence.text.push('\n');
                }
                None => {}
            }
        }
        assert!(!open, "{}: a fence is left open", self.name());
        fences
    }
}

fn highwater(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args(arguments)
        .output()
        .expect("it starts")
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(both).unwrap()
}

// Generated parts.

const START: &str = "<!-- highwater manual";
const END: &str = "<!-- end -->";

/// The words of a command line; a title may be in quotes.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(String::from).collect(),
        _ => vec![part.to_string()],
    });
    words.collect()
}

/// The page with its generated parts as they should be.
fn regenerated(page: &Page) -> String {
    let mut text = String::new();
    let mut rest = page.text.as_str();
    while let Some(at) = rest.find(START) {
        let (before, from) = rest.split_at(at + START.len());
        let (command, from) = from.split_once("-->\n").expect("the comment ends");
        let (_, after) = from
            .split_once(END)
            .unwrap_or_else(|| panic!("{}: {END} is missing", page.name()));
        let arguments = words(&format!("manual {command}"));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = highwater(&arguments);
        assert!(output.status.success(), "{}", said(&output));
        text.push_str(before);
        text.push_str(&format!("{command}-->\n\n{}\n{END}", said(&output)));
        rest = after;
    }
    text + rest
}

// proves S1
#[test]
fn generated_parts_are_what_the_command_prints() {
    let mut generated = 0;
    for page in pages() {
        let text = regenerated(&page);
        generated += text.matches(START).count();
        expect_file![&page.path].assert_eq(&text);
    }
    assert!(generated >= 2, "functions.md and aggregates.md have some");
}

#[test]
fn a_function_can_be_looked_up_by_any_of_its_names() {
    let tumbling = said(&highwater(&["manual", "tumbling"]));
    assert!(tumbling.starts_with("### TumblingWindow\n"), "{tumbling}");
    let both = said(&highwater(&["manual", "last"]));
    assert_eq!(both.matches("### ").count(), 2, "{both}");
    let json = said(&highwater(&["manual", "ABS", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["examples"][0]["value"], "2");

    let lost = highwater(&["manual", "DATEAD"]);
    assert_eq!(lost.status.code(), Some(2));
    assert!(said(&lost).contains("did you mean DATEADD?"));
    let lost = highwater(&["manual", "--chapter", "poetry"]);
    assert_eq!(lost.status.code(), Some(2));
    assert!(said(&lost).contains("Geospatial"));
}

// Queries.

fn catalog(query: &str) -> Catalog {
    let names = |label: &str| -> Vec<String> {
        let lines = query.lines().filter_map(|line| line.strip_prefix(label));
        lines
            .flat_map(|names| names.split(','))
            .map(|name| name.trim().to_string())
            .collect()
    };
    let reference = |name| CatalogInput {
        name,
        reference: true,
    };
    Catalog {
        inputs: names("-- reference: ").into_iter().map(reference).collect(),
        outputs: Some(names("-- outputs: ")).filter(|names| !names.is_empty()),
        ..Catalog::open()
    }
}

/// The errors and warnings of a query.
fn findings(query: &str) -> Vec<Diagnostic> {
    match compile(query, &catalog(query)) {
        Ok(compiled) => compiled.warnings,
        Err(errors) => errors,
    }
}

// proves S1, S2
#[test]
fn every_query_compiles_or_is_rejected_as_the_page_says() {
    let mut wrong = String::new();
    let mut queries = 0;
    for page in pages() {
        for fence in page
            .fences()
            .iter()
            .filter(|f| f.info.first() == Some(&"sql"))
        {
            queries += 1;
            let findings = findings(&fence.text);
            let right = match fence.info.get(1) {
                Some(code) => findings.iter().any(|finding| finding.code == *code),
                None => findings.is_empty(),
            };
            if !right {
                let rendered = findings
                    .iter()
                    .map(|f| f.render(&fence.text, &fence.location));
                let rendered: String = rendered.collect();
                wrong += &format!("{}, {:?}:\n{rendered}\n", fence.location, fence.info);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(queries > 30, "only {queries} queries were found");
}

// proves S1
#[test]
#[cfg_attr(not(feature = "javascript"), ignore = "needs the feature `javascript`")]
fn every_query_with_events_gives_the_rows_that_the_page_shows() {
    let folder = tempfile::tempdir().unwrap();
    let mut cases = 0;
    for page in pages() {
        let fences = page.fences();
        let is_query = |fence: &Fence| fence.info.first() == Some(&"sql");
        for group in fences.chunk_by(|_, next| !is_query(next)) {
            let has_rows = |fence: &Fence| fence.info.starts_with(&["json", "out"]);
            if is_query(&group[0]) && group.iter().any(has_rows) {
                cases += 1;
                make_case(&folder.path().join(format!("case-{cases}")), group);
            }
        }
    }
    let output = highwater(&["test", folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(cases >= 8, "only {cases} queries were run");
}

/// A golden case: a query, then its events and rows.
fn make_case(folder: &Path, fences: &[Fence]) {
    let write = |path: &str, text: &str| fs::write(folder.join(path), text).unwrap();
    fs::create_dir_all(folder.join("expected")).unwrap();
    write("query.saql", &fences[0].text);
    write("NOTE.md", &fences[0].location);
    let mut job = String::from("query = \"query.saql\"\n");
    for fence in &fences[1..] {
        match fence.info.as_slice() {
            ["json", kind @ ("in" | "reference"), name] => {
                write(&format!("{name}.jsonl"), &fence.text);
                job += &format!("[inputs.{name}]\npath = \"{name}.jsonl\"\n");
                job += if *kind == "in" {
                    ""
                } else {
                    "reference = true\n"
                };
            }
            ["json", "out", name @ ..] => {
                let name = name.first().unwrap_or(&"output");
                write(&format!("expected/{name}.jsonl"), &fence.text);
            }
            ["js", name] => {
                write(&format!("{name}.js"), &fence.text);
                job += &format!("[functions.{name}]\npath = \"{name}.js\"\n");
            }
            ["toml", "job"] => job += &fence.text,
            _ => {}
        }
    }
    write("job.toml", &job);
}

// Codes.

/// The constants of the module `code`, from its text: there is no list of them to go out of date.
fn codes() -> BTreeSet<String> {
    let source = include_str!("../../../query/src/diagnostic.rs");
    let constant = |line: &str| {
        let (_, value) = line
            .trim()
            .strip_prefix("pub const ")?
            .split_once("= \"HW")?;
        Some(format!("HW{}", value.trim_end_matches("\";")))
    };
    source.lines().filter_map(constant).collect()
}

/// Every `HW` and four digits.
fn codes_in(text: &str) -> BTreeSet<String> {
    let at = text.match_indices("HW").map(|(at, _)| &text[at..]);
    let code = |from: &str| {
        let code = from.get(..6)?;
        let digits = code[2..].bytes().all(|b| b.is_ascii_digit());
        digits.then(|| code.to_string())
    };
    at.filter_map(code).collect()
}

// proves S2
#[test]
fn the_page_of_errors_lists_every_code_and_no_other() {
    let page = fs::read_to_string(docs().join("errors/README.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ["));
    let listed: BTreeSet<String> = rows.filter_map(|row| codes_in(row).pop_first()).collect();
    assert!(codes().len() > 30, "{:?}", codes());
    assert_eq!(listed, codes(), "the table");
    let headings = page.lines().filter(|line| line.starts_with("## HW"));
    let explained: BTreeSet<String> = headings.flat_map(codes_in).collect();
    assert_eq!(explained, codes(), "the sections");
    for other in pages() {
        let unknown: Vec<String> = codes_in(&other.text)
            .difference(&codes())
            .cloned()
            .collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", other.name());
    }
}

// proves S2
#[test]
fn every_code_is_shown_with_a_query_that_earns_it() {
    let page = pages()
        .into_iter()
        .find(|page| page.name() == "errors/README.md");
    let page = page.unwrap();
    let shown: BTreeSet<String> = page
        .fences()
        .iter()
        .filter_map(|fence| fence.info.get(1).map(|code| code.to_string()))
        .collect();
    // A query that is too long would fill the page.
    let mut expected = codes();
    expected.remove("HW1003");
    assert_eq!(shown, expected);
}
