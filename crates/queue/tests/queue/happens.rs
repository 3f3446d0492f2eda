//! Every row of the tables "What happens when" in the manual names a test that exists.

use std::path::{Path, PathBuf};

use highwater_env::disk;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All sources below a folder, concatenated.
fn sources(folder: &Path, text: &mut String) {
    for path in disk::list(folder).unwrap() {
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|it| it == "rs") {
            text.push_str(&disk::read_to_string(&path).unwrap());
        }
    }
}

fn is_test(sources: &str, name: &str) -> bool {
    match name.contains('/') {
        true => root().join(name).is_file(),
        false => sources.contains(&format!("fn {name}()")),
    }
}

#[test]
fn every_row_of_what_happens_when_names_tests_that_are_there() {
    let mut text = String::new();
    for name in ["flow", "queue", "server"] {
        sources(&root().join("crates").join(name), &mut text);
    }
    for page in ["queues", "processing"] {
        let page = disk::read_to_string(root().join(format!("docs/{page}.md"))).unwrap();
        let (_, table) = page.split_once("## What happens when").unwrap();
        let table = table.split("\n## ").next().unwrap();
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 7, "it is a table");
        for row in &rows[2..] {
            let cell = row.trim_end_matches('|').rsplit('|').next().unwrap();
            let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            assert!(!tests.is_empty(), "no test shows this: {row}");
            for test in tests {
                assert!(is_test(&text, test), "there is no test `{test}`");
            }
        }
    }
}
