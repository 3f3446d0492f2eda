//! The pages of the repository hold together: `docs/README.md` lists each page of `docs` once, and links between pages
//! lead to a file and to a heading in it.
#![allow(
    clippy::disallowed_methods,
    reason = "the test reads the files of the repository"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The Markdown files of a folder, and of the folders below it if `deep`.
fn pages(folder: &Path, deep: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder exists").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if deep && entry.file_name() != "node_modules" {
                found.extend(pages(&path, true));
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// The targets of all links of a page, without those of code blocks and of other sites.
fn links(text: &str) -> Vec<String> {
    let fence = Regex::new(r"(?ms)^```.*?^```$").expect("a pattern of this test");
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern of this test");
    let prose = fence.replace_all(text, "");
    link.captures_iter(&prose)
        .map(|found| found[1].to_string())
        .filter(|target| !target.contains("://"))
        .collect()
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let lower = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = lower.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    kept.collect()
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let text = read(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(anchor).collect()
}

/// Why a link of a page leads nowhere; `None` if it leads somewhere.
fn problem(page: &Path, target: &str) -> Option<String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.to_path_buf(),
        file => page.parent().expect("a page has a folder").join(file),
    };
    let text = format!("{}: {target}", page.display());
    if !path.exists() {
        return Some(text);
    }
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let lost = !heading.is_empty() && is_page && !anchors(&path).contains(heading);
    lost.then_some(text)
}

// proves U1
#[test]
fn the_way_in_lists_every_page_once() {
    let docs = root().join("docs");
    let start = docs.join("README.md");
    let listed: Vec<PathBuf> = links(&read(&start))
        .iter()
        .filter_map(|target| docs.join(target).canonicalize().ok())
        .collect();
    let wrong: Vec<String> = pages(&docs, true)
        .into_iter()
        .filter(|page| *page != start)
        .map(|page| (listed.iter().filter(|other| **other == page).count(), page))
        .filter(|(count, _)| *count != 1)
        .map(|(count, page)| format!("{} is listed {count} times", page.display()))
        .collect();
    assert_eq!(wrong, [] as [String; 0]);
}

#[test]
fn links_between_pages_lead_somewhere() {
    let root = root();
    let mut all = pages(&root, false);
    for folder in ["docs", "cases", "examples", "benches", "tests", "fuzz"] {
        all.extend(pages(&root.join(folder), true));
    }
    assert!(all.len() > 60, "the pages are found");
    let lost: Vec<String> = all
        .iter()
        .flat_map(|page| {
            let targets = links(&read(page));
            targets
                .into_iter()
                .filter_map(|target| problem(page, &target))
        })
        .collect();
    assert_eq!(lost, [] as [String; 0]);
}
