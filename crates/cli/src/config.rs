//! `highwater config`: what a node would run with, and why.

use std::io::{Write, stdout};

use serde_json::{Value, json};

use crate::exit::Ending;
use crate::settings::SettingArguments;

#[derive(clap::Args)]
pub struct Config {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Print every setting, its value and where that came from
    Show(Show),
}

#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    settings: SettingArguments,
    #[arg(long)]
    json: bool,
}

impl Config {
    pub fn run(self) -> anyhow::Result<Ending> {
        let What::Show(show) = self.what;
        show.run()
    }
}

impl Show {
    fn run(self) -> anyhow::Result<Ending> {
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
            return Ok(Ending::Well);
        }
        let width =
            |of: fn(&(&str, String, String)) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let (keys, values) = (width(|row| row.0.len()), width(|row| row.1.len()).min(40));
        for (key, value, origin) in &rows {
            writeln!(out, "{key:keys$}  {value:values$}  {origin}")?;
        }
        Ok(Ending::Well)
    }
}
