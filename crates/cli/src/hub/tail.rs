//! `highwater hub tail`: prints events, one a line.

use std::io::{Write, stdout};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use highwater_retry::Backoff;
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::Value;

use super::shard_members;
use crate::client::{Client, HttpResponse, Server};
use crate::exit::ExitStatus;

const BACKOFF: Backoff = Backoff::Exponential {
    first: Duration::from_millis(400),
    cap: Duration::from_millis(6400),
};

#[derive(clap::Args)]
pub(crate) struct Tail {
    hub: String,
    /// Print new events as they arrive, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// earliest, latest, an offset, or a time such as 2026-01-01T00:00:00Z [default: earliest, or latest with -f]
    #[arg(long)]
    from: Option<String>,
    /// Read one partition instead of all
    #[arg(long)]
    partition: Option<u32>,
    /// Print this many events and stop
    #[arg(short = 'n', long = "events", value_name = "COUNT")]
    count: Option<u64>,
    #[command(flatten)]
    server: Server,
    /// Print whole records (offset, time, key, headers) instead of values
    #[arg(long)]
    json: bool,
}

impl Tail {
    pub(crate) async fn run(self) -> anyhow::Result<ExitStatus> {
        let mut printer = Printer {
            json: self.json,
            remaining: self.count.unwrap_or(u64::MAX),
        };
        let mut client = Client::new(&self.server)?;
        match self.follow {
            true => self.follow(&mut client, &mut printer).await?,
            false => self.print_stored(&mut client, &mut printer).await?,
        }
        Ok(ExitStatus::Success)
    }

    /// Prints the stored events, one hub and partition after another.
    async fn print_stored(&self, client: &mut Client, printer: &mut Printer) -> anyhow::Result<()> {
        let hub = hub_info(client, &self.hub).await?;
        let Some(members) = shard_members(&hub).filter(|_| self.partition.is_none()) else {
            return self.print_stored_of(client, printer, &hub).await;
        };
        for member in members {
            let hub = hub_info(client, member).await?;
            self.print_stored_of(client, printer, &hub).await?;
        }
        Ok(())
    }

    async fn print_stored_of(
        &self,
        client: &mut Client,
        printer: &mut Printer,
        hub: &Value,
    ) -> anyhow::Result<()> {
        let name = hub["name"].as_str().unwrap_or_default();
        let all = 0..hub["partitions"].as_u64().unwrap_or(0) as u32;
        let partitions: Vec<u32> = self
            .partition
            .map_or_else(|| all.collect(), |one| vec![one]);
        for partition in partitions {
            let mut from = self.from.clone().unwrap_or_else(|| "earliest".into());
            let mut end = None;
            loop {
                let path = format!(
                    "/hubs/{name}/partitions/{partition}/messages?max=1000&from={}",
                    from.replace('+', "%2B")
                );
                let page = client.get(&path).await?.success()?.json()?;
                for record in page["messages"].as_array().into_iter().flatten() {
                    if !printer.print(record)? {
                        return Ok(());
                    }
                }
                let next = page["next"].as_i64().unwrap_or(0);
                // Stop at the end as of the first page: a busy hub would never let us finish.
                if next >= *end.get_or_insert(page["end"].as_i64().unwrap_or(0)) {
                    break;
                }
                from = next.to_string();
            }
        }
        Ok(())
    }

    /// Follows the hub; after a lost connection it resumes after the last event.
    async fn follow(&self, client: &mut Client, printer: &mut Printer) -> anyhow::Result<()> {
        let from = self.from.as_deref().unwrap_or("latest").replace('+', "%2B");
        let path = match self.partition {
            None => format!("/hubs/{}/messages?from={from}", self.hub),
            Some(partition) => format!(
                "/hubs/{}/partitions/{partition}/messages?from={from}",
                self.hub
            ),
        };
        let mut events = SseParser::default();
        let mut failures = 0;
        loop {
            let last = events.last_id.clone();
            let mut headers = vec![("accept", "text/event-stream")];
            if let Some(last) = &last {
                headers.push(("last-event-id", last));
            }
            match client
                .open(Method::GET, &path, &headers, Bytes::new())
                .await
            {
                Ok(response) if response.status().is_success() => {
                    failures = 0;
                    let mut body = response.into_body();
                    while let Some(Ok(frame)) = body.frame().await {
                        let Some(bytes) = frame.data_ref() else {
                            continue;
                        };
                        for event in events.feed(bytes) {
                            if let Some(error) = event.error {
                                anyhow::bail!(
                                    "{}",
                                    error["message"].as_str().unwrap_or("the stream failed")
                                );
                            }
                            if !printer.print(&event.data)? {
                                return Ok(());
                            }
                        }
                    }
                }
                Ok(response) => {
                    let status = response.status().as_u16();
                    let headers = response.headers().clone();
                    let body = response.into_body().collect().await?.to_bytes();
                    let answer = HttpResponse {
                        status,
                        headers,
                        body,
                    };
                    if status != 429 && status != 503 {
                        return Err(answer.into_error().into());
                    }
                }
                Err(error) if last.is_none() && failures == 0 => return Err(error),
                Err(_) => {}
            }
            failures += 1;
            eprintln!("the connection was lost; reconnecting");
            tokio::time::sleep(BACKOFF.after(failures)).await;
        }
    }
}

async fn hub_info(client: &mut Client, hub: &str) -> anyhow::Result<Value> {
    let answer = client.get(&format!("/api/hubs/{hub}")).await?;
    answer.success()?.json()
}

struct Printer {
    json: bool,
    remaining: u64,
}

impl Printer {
    /// Prints a record; false after the last one.
    fn print(&mut self, record: &Value) -> anyhow::Result<bool> {
        if self.remaining == 0 {
            return Ok(false);
        }
        let mut out = stdout().lock();
        if self.json {
            writeln!(out, "{record}")?;
        } else if let Some(text) = record["value_base64"].as_str() {
            out.write_all(&STANDARD.decode(text)?)?;
            out.write_all(b"\n")?;
        } else {
            writeln!(out, "{}", record["value"])?;
        }
        out.flush()?;
        self.remaining -= 1;
        Ok(self.remaining > 0)
    }
}

/// Assembles server-sent events from pieces of the body.
#[derive(Default)]
struct SseParser {
    buffer: Vec<u8>,
    last_id: Option<String>,
}

struct SseEvent {
    data: Value,
    error: Option<Value>,
}

impl SseParser {
    fn feed(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        self.buffer.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
            let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let block = String::from_utf8_lossy(&block);
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            if let Some(id) = field("id: ") {
                self.last_id = Some(id.to_owned());
            }
            if let Some(data) = field("data: ") {
                let data: Value = serde_json::from_str(data).unwrap_or_default();
                let failed = field("event: ") == Some("error");
                events.push(SseEvent {
                    error: failed.then(|| data.clone()),
                    data,
                });
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_pieces_are_cut() {
        let text = b": hello\n\nid: 0:1\ndata: {\"a\":1}\n\nid: 0:2\n\nevent: error\ndata: {\"message\":\"x\"}\n\n";
        for cut in 0..text.len() {
            let mut events = SseParser::default();
            let mut seen: Vec<SseEvent> = events.feed(&text[..cut]);
            seen.extend(events.feed(&text[cut..]));
            let shown: Vec<String> = seen
                .iter()
                .map(|event| format!("{} {}", event.data, event.error.is_some()))
                .collect();
            assert_eq!(shown, ["{\"a\":1} false", "{\"message\":\"x\"} true"]);
            assert_eq!(events.last_id.as_deref(), Some("0:2"));
        }
    }
}
