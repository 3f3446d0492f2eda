//! `highwater config`: the effective settings of a node and their origins.

use std::io::{Write, stdout};

use serde_json::{Value, json};

use crate::exit::ExitStatus;
use crate::settings::SettingsArgs;

#[derive(clap::Subcommand)]
pub(crate) enum Config {
    /// Print every setting, its value and its origin: file, variable, flag or default
    Show(Show),
}

#[derive(clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Config {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let Config::Show(show) = self;
        show.run()
    }
}

impl Show {
    fn run(self) -> anyhow::Result<ExitStatus> {
        let loaded = self.settings.load()?;
        let file = loaded
            .file
            .map_or_else(String::new, |path| path.display().to_string());
        let rows: Vec<(&str, String, String)> = loaded
            .settings
            .shown()
            .map(|(key, value, origin)| (key, value, origin.show(&file)))
            .collect();
        let mut out = stdout().lock();
        if self.json {
            let object = |(key, value, origin): &(&str, String, String)| json!({"key": key, "value": value, "origin": origin});
            let rows: Vec<Value> = rows.iter().map(object).collect();
            writeln!(out, "{}", Value::from(rows))?;
            return Ok(ExitStatus::Success);
        }
        let width =
            |of: fn(&(&str, String, String)) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let (keys, values) = (width(|row| row.0.len()), width(|row| row.1.len()).min(40));
        for (key, value, origin) in &rows {
            writeln!(out, "{key:keys$}  {value:values$}  {origin}")?;
        }
        Ok(ExitStatus::Success)
    }
}
