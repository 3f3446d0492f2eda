//! `highwater hub groups`: consumer groups, how far they are behind, and forgetting one.

use std::io::{Write, stdout};

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::confirmed;
use crate::ask::Ask;
use crate::client::{Client, escape};
use crate::exit::Ending;

#[derive(clap::Args)]
pub struct Groups {
    /// One group with its positions, instead of a list of all
    group: Option<String>,
    /// Delete that group and its positions; it must have no members
    #[arg(long, requires = "group")]
    delete: bool,
    /// Do not ask for the name again
    #[arg(long, requires = "delete")]
    yes: bool,
    #[command(flatten)]
    ask: Ask,
}

impl Groups {
    pub async fn run(self) -> anyhow::Result<Ending> {
        match &self.group {
            None => self.list().await,
            Some(group) if self.delete => self.delete(group).await,
            Some(group) => self.describe(group).await,
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = Client::new(&self.ask.server)?.get(path).await?;
        answer.success()?.json()
    }

    async fn list(&self) -> anyhow::Result<Ending> {
        let groups = self.get("/api/groups").await?["groups"].take();
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{groups}")?;
            return Ok(Ending::Well);
        }
        for group in groups.as_array().into_iter().flatten() {
            writeln!(out, "{}", line(group))?;
        }
        Ok(Ending::Well)
    }

    async fn describe(&self, name: &str) -> anyhow::Result<Ending> {
        let group = self.get(&path(name)).await?;
        let mut out = stdout().lock();
        if self.ask.json {
            writeln!(out, "{group}")?;
            return Ok(Ending::Well);
        }
        writeln!(out, "{}", line(&group))?;
        writeln!(
            out,
            "{:24} {:>9} {:>14} {:>14} {:>14}",
            "hub", "partition", "offset", "end", "behind"
        )?;
        for at in group["positions"].as_array().into_iter().flatten() {
            let number = |name: &str| at[name].to_string();
            writeln!(
                out,
                "{:24} {:>9} {:>14} {:>14} {:>14}",
                at["hub"].as_str().unwrap_or_default(),
                number("partition"),
                number("offset"),
                number("end"),
                number("lag")
            )?;
        }
        Ok(Ending::Well)
    }

    async fn delete(&self, name: &str) -> anyhow::Result<Ending> {
        if !self.yes && !confirmed(&format!("group {name} and its positions"), name)? {
            eprintln!("nothing was deleted");
            return Ok(Ending::Failed);
        }
        Client::new(&self.ask.server)?
            .request(Method::DELETE, &path(name), &[], Bytes::new())
            .await?
            .success()?;
        match self.ask.json {
            true => writeln!(stdout(), "{}", json!({"deleted": name}))?,
            false => writeln!(stdout(), "deleted group {name}")?,
        }
        Ok(Ending::Well)
    }
}

fn line(group: &Value) -> String {
    let members = group["members"].as_array().map_or(0, Vec::len);
    format!(
        "{:24} {:>5} members, {}",
        group["group"].as_str().unwrap_or_default(),
        members,
        group["state"].as_str().unwrap_or_default()
    )
}

/// Groups may have any name.
fn path(group: &str) -> String {
    format!("/api/groups/{}", escape(group))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_group_of_any_name_has_a_path() {
        assert_eq!(super::path("a b/ä"), "/api/groups/a%20b%2F%C3%A4");
    }
}
