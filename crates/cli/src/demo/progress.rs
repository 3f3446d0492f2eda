//! The terminal of a demo without end: the first rows, then a line of figures now and then.

use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;

use super::files::{EVENT_HUB, WORKFLOW};
use crate::client::{Client, Server};

/// How long rows are printed.
const ROWS_FOR: Duration = Duration::from_secs(20);

/// Pause between two lines of figures.
const FIGURES_EVERY: Duration = Duration::from_secs(15);

/// Prints until it is dropped. With `json` rows are printed all the time.
pub(super) async fn run(
    server: &Server,
    mut printers: JoinSet<anyhow::Result<()>>,
    json: bool,
) -> anyhow::Result<()> {
    let ended = async {
        while let Some(printed) = printers.join_next().await {
            printed??;
        }
        anyhow::Ok(())
    };
    if json {
        return ended.await;
    }
    if let Ok(result) = tokio::time::timeout(ROWS_FOR, ended).await {
        return result;
    }
    printers.abort_all();
    eprintln!(
        "\nRows continue in the console and on the hubs; from now on only figures are printed here.\n"
    );
    let mut client = Client::new(server)?;
    loop {
        let figures = Figures::read(&mut client).await?;
        eprintln!("{}", figures.line(server));
        tokio::time::sleep(FIGURES_EVERY).await;
    }
}

struct Figures {
    events: u64,
    rows: u64,
    dead_letters: u64,
    parked: u64,
}

impl Figures {
    async fn read(client: &mut Client) -> anyhow::Result<Figures> {
        let jobs = client.get("/api/jobs").await?.success()?.json()?;
        let dead_letters = client.get("/api/dead-letters").await?.success()?.json()?;
        let path = format!("/api/workflows/{WORKFLOW}?state=parked");
        let parked = client.get(&path).await?.success()?.json()?;
        let sum = |list: &Value, of: &str| {
            let items = list.as_array().map_or(&[][..], Vec::as_slice);
            items.iter().filter_map(|item| item[of].as_u64()).sum()
        };
        Ok(Figures {
            events: jobs["jobs"][0]["events"].as_u64().unwrap_or(0),
            rows: sum(&jobs["jobs"], "rows"),
            dead_letters: sum(&dead_letters["dead_letters"], "letters"),
            parked: parked["instances"].as_array().map_or(0, Vec::len) as u64,
        })
    }

    fn line(&self, server: &Server) -> String {
        let Figures {
            events,
            rows,
            dead_letters,
            parked,
        } = self;
        format!(
            "{EVENT_HUB}: {events} events; rows: {rows}; dead letters: {dead_letters}; parked workflows: {parked}; console: {}/",
            server.url()
        )
    }
}
