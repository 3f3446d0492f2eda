//! `highwater manual`: the reference of functions, from the table that the binder checks calls against.
//!
//! The output is Markdown. Pages of `docs/language` hold it between two comments, and a test compares them with it.

use std::fmt::Write;
use std::io::{Write as _, stdout};

use anyhow::Result;
use highwater_query::functions::{Category, FunctionInfo, find, table};
use highwater_spelling::nearest;
use serde_json::{Value, json};

use crate::exit::{ExitStatus, UsageError};

#[derive(clap::Args)]
pub(crate) struct Manual {
    /// Functions to look up [default: all]
    names: Vec<String>,
    /// One chapter, by its title or a part of it, such as "string"
    #[arg(long, conflicts_with = "names")]
    chapter: Option<String>,
    /// Print one line per function
    #[arg(long, conflicts_with = "json")]
    brief: bool,
    /// Print one JSON object per function
    #[arg(long)]
    json: bool,
}

impl Manual {
    pub(crate) fn run(self) -> Result<ExitStatus> {
        let chosen = self.chosen()?;
        stdout().write_all(self.show(&chosen).as_bytes())?;
        Ok(ExitStatus::Success)
    }

    fn chosen(&self) -> Result<Vec<&'static FunctionInfo>, UsageError> {
        if !self.names.is_empty() {
            let named = self.names.iter().map(|name| by_name(name));
            return Ok(named.collect::<Result<Vec<_>, _>>()?.concat());
        }
        let Some(part) = &self.chapter else {
            return Ok(table().iter().collect());
        };
        let chapter = chapter(part)?;
        Ok(table()
            .iter()
            .filter(|info| info.category == chapter)
            .collect())
    }

    fn show(&self, chosen: &[&FunctionInfo]) -> String {
        if self.json {
            return chosen.iter().map(|info| as_json(info) + "\n").collect();
        }
        let with_titles = self.names.is_empty() && self.chapter.is_none();
        let chapters = chosen.chunk_by(|a, b| a.category == b.category);
        let texts = chapters.map(|infos| {
            let title = format!("## {}\n\n", infos[0].category.title());
            let title = if with_titles { title } else { String::new() };
            title
                + &if self.brief {
                    brief(infos)
                } else {
                    full(infos)
                }
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// All functions of this name: some have another meaning inside MATCH_RECOGNIZE.
fn by_name(name: &str) -> Result<Vec<&'static FunctionInfo>, UsageError> {
    let is = |known: &str| known.eq_ignore_ascii_case(name.trim_end_matches("()"));
    let found: Vec<_> = table()
        .iter()
        .filter(|info| is(info.name) || info.aliases.iter().any(|alias| is(alias)))
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let known = table().iter().map(|info| info.name);
    let near = nearest(name, known).and_then(find);
    let hint = near.map_or_else(
        || "`highwater manual --brief` lists them".to_string(),
        |info| format!("did you mean {}?", info.name),
    );
    Err(UsageError(format!(
        "there is no function called {name}; {hint}"
    )))
}

fn chapter(part: &str) -> Result<Category, UsageError> {
    let part = part.to_lowercase();
    let mut titles: Vec<Category> = table().iter().map(|info| info.category).collect();
    titles.dedup();
    let named = |category: &&Category| category.title().to_lowercase().contains(&part);
    titles.iter().find(named).copied().ok_or_else(|| {
        let titles: Vec<_> = titles.iter().map(|category| category.title()).collect();
        UsageError(format!(
            "there is no chapter called {part}; there are: {}",
            titles.join("; ")
        ))
    })
}

fn full(infos: &[&FunctionInfo]) -> String {
    let texts = infos.iter().map(|info| entry(info));
    texts.collect::<Vec<_>>().join("\n")
}

/// Heading, signature, description, result, NULL handling, examples.
fn entry(info: &FunctionInfo) -> String {
    let mut text = format!("### {}\n\n", info.name);
    let _ = writeln!(text, "```text\n{}\n```\n", info.signature);
    let _ = writeln!(text, "{}", info.description);
    if !info.aliases.is_empty() {
        let _ = writeln!(text, "Also written {}.", info.aliases.join(", "));
    }
    let _ = writeln!(text, "\n- Result: {}", info.result);
    if !info.nulls.is_empty() {
        let (first, rest) = info.nulls.split_at(1);
        let _ = writeln!(text, "- {}{rest}", first.to_uppercase());
    }
    if !info.examples.is_empty() {
        text.push_str("\n```text\n");
        text.push_str(&examples(info.examples));
        text.push_str("```\n");
    }
    text
}

/// A longer expression does not widen the column.
const EXAMPLE_CHARS_MAX: usize = 70;

fn examples(examples: &[(&str, &str)]) -> String {
    let widths = examples
        .iter()
        .map(|(expression, _)| expression.chars().count());
    let width = widths.filter(|width| *width <= EXAMPLE_CHARS_MAX).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for (expression, value) in examples {
        let value = if value.is_empty() || value.ends_with(' ') {
            format!("'{value}'")
        } else {
            (*value).to_string()
        };
        let _ = writeln!(text, "{expression:width$}  =  {value}");
    }
    text
}

/// A table with one line for each function.
fn brief(infos: &[&FunctionInfo]) -> String {
    let mut text = String::from("| call | result | NULL | what it does |\n|---|---|---|---|\n");
    for info in infos {
        let cells = [info.signature, info.result, info.nulls, info.description];
        let [call, result, nulls, description] = cells.map(|cell| cell.replace('|', "\\|"));
        let call = call.replace(" or ", "`<br>`");
        let _ = writeln!(text, "| `{call}` | {result} | {nulls} | {description} |");
    }
    text
}

fn as_json(info: &FunctionInfo) -> String {
    let examples: Vec<Value> = info
        .examples
        .iter()
        .map(|(expression, value)| json!({ "expression": expression, "value": value }))
        .collect();
    json!({
        "name": info.name,
        "aliases": info.aliases,
        "chapter": info.category.title(),
        "signature": info.signature,
        "arguments_min": info.arguments.0,
        "arguments_max": info.arguments.1,
        "result": info.result,
        "nulls": info.nulls,
        "description": info.description,
        "examples": examples,
    })
    .to_string()
}
