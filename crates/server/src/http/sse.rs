//! Server-sent events: one partition, or all of a hub or of several, live, with resume.
//!
//! Every event is `id`, `data` and a blank line. The id holds the next offset of each partition that
//! the stream reads (`0:17,3:9`, or `a/0:17,b/3:9` where it reads several hubs); a client that comes back with it as `Last-Event-ID` misses nothing.
//! In a stream of several partitions the id stands on the last event of each read, so such a client
//! may see the events of one read again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::select_all;
use futures_util::stream::{self, Stream};
use highwater_log::{Offset, Partition};
use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use super::app::App;
use super::decode;
use super::error::Error;
use super::json::write_record;
use super::read::{ISOLATION, StartPosition};
use super::reply::{self, Payload, Reply};
use super::send::{Destination, MemberPartition};

/// What one read takes. A slow client holds one of these, and connections are limited, so streams need
/// no share of the budget that requests live on.
const CHUNK_BYTES: usize = 64 << 10;

/// A comment this often keeps proxies from closing a quiet stream.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub fn stream(
    app: &Arc<App>,
    from: &Destination,
    partitions: Vec<MemberPartition>,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Reply, Error> {
    let start = StartPosition::read(query, StartPosition::Latest)?;
    let resume = resume(headers)?;
    let mut cursors = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let handle = from.handle(app, partition)?;
        let hub = from.member_name(partition).map(str::to_owned);
        let number = partition.partition;
        let label = match &hub {
            Some(hub) => format!("{hub}/{number}"),
            None => number.to_string(),
        };
        let resumed = resume.iter().find(|(of, _)| *of == label);
        cursors.push(Cursor {
            start: resumed.map_or(start, |(_, offset)| StartPosition::Offset(*offset)),
            label,
            hub,
            partition: handle,
            next: None,
        });
    }
    let live = Live {
        app: app.clone(),
        cursors,
        turn: 0,
        ended: false,
    };
    let payload = Payload::live(live.into_stream());
    let kind = HeaderValue::from_static("text/event-stream");
    let mut reply = reply::typed(StatusCode::OK, kind, payload);
    reply
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// `Last-Event-ID: 0:17,3:9`
fn resume(headers: &HeaderMap) -> Result<Vec<(&str, Offset)>, Error> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(Vec::new());
    };
    let pairs = value
        .to_str()
        .ok()
        .and_then(|text| text.split(',').map(pair).collect());
    pairs.ok_or_else(|| {
        Error::bad(
            "Last-Event-ID is not one of ours",
            "send back the id of the last event unchanged",
        )
    })
}

/// The label of a partition and an offset.
fn pair(text: &str) -> Option<(&str, Offset)> {
    let (label, offset) = text.split_once(':')?;
    let (_, partition) = label.split_once('/').unwrap_or(("", label));
    partition.parse::<u32>().ok()?;
    Some((label, Offset(offset.parse().ok()?)))
}

struct Cursor {
    /// How the partition is called in ids.
    label: String,
    /// Where the stream reads several.
    hub: Option<String>,
    partition: Arc<dyn Partition>,
    start: StartPosition,
    /// `None` until the start has been looked up.
    next: Option<Offset>,
}

struct Live {
    app: Arc<App>,
    cursors: Vec<Cursor>,
    /// The cursor to look at first, so that a busy partition does not starve the others.
    turn: usize,
    ended: bool,
}

impl Live {
    fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        let opening = stream::once(async { Bytes::from_static(b": highwater\n\n") });
        opening.chain(stream::unfold(self, |mut live| async move {
            let chunk = live.next().await?;
            Some((chunk, live))
        }))
    }

    /// The next piece of the stream; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut silence = std::pin::pin!(tokio::time::sleep(KEEP_ALIVE));
        let mut woken = false;
        loop {
            let before = self.progress();
            match self.poll_partitions(woken).await {
                Ok(Some(chunk)) => return Some(chunk),
                // Woken for nothing: a partition has stopped and would wake us for ever.
                Ok(None) if woken && self.progress() == before => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Ok(None) => {}
                Err(error) => {
                    self.ended = true;
                    let data = error.to_json();
                    return Some(Bytes::from(format!("event: error\ndata: {data}\n\n")));
                }
            }
            let waits = self.cursors.iter().map(|cursor| {
                cursor
                    .partition
                    .wait_past(cursor.next.unwrap_or_default(), ISOLATION)
            });
            tokio::select! {
                biased;
                () = self.app.stopped() => return None,
                _ = select_all(waits) => woken = true,
                () = &mut silence => {
                    return Some(Bytes::from_static(b": still here\n\n"));
                }
            }
        }
    }

    /// Grows with whatever is read, also if it is nothing to show, such as a punctuation.
    fn progress(&self) -> i64 {
        let places = self.cursors.iter().filter_map(|cursor| cursor.next);
        places.map(|next| next.0).sum()
    }

    /// What the first partition that has something has. With `ask`, none is passed over because it
    /// seems to have nothing: one that was deleted says so only when it is read.
    async fn poll_partitions(&mut self, ask: bool) -> Result<Option<Bytes>, Error> {
        let count = self.cursors.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            let mut out = Vec::new();
            if self.cursors[at].read(&mut out, count == 1, ask).await? {
                self.turn = (at + 1) % count;
                if count > 1 {
                    self.write_id(&mut out);
                }
                return Ok(Some(out.into()));
            }
        }
        Ok(None)
    }

    /// A block with an id and no data moves the client's last id and shows it nothing.
    fn write_id(&self, out: &mut Vec<u8>) {
        let pairs: Vec<String> = self
            .cursors
            .iter()
            .filter_map(|cursor| Some(format!("{}:{}", cursor.label, cursor.next?)))
            .collect();
        out.extend_from_slice(format!("id: {}\n\n", pairs.join(",")).as_bytes());
    }
}

impl Cursor {
    /// Writes what there is; false if nothing.
    async fn read(&mut self, out: &mut Vec<u8>, with_ids: bool, ask: bool) -> Result<bool, Error> {
        let from = match self.next {
            Some(next) => next,
            None => self.start.offset(&*self.partition).await?,
        };
        self.next = Some(from);
        if !ask && self.partition.bounds().visible(ISOLATION) == from {
            return Ok(false);
        }
        let fetched = self.partition.read(from, CHUNK_BYTES, ISOLATION).await?;
        let (label, hub) = (&self.label, self.hub.as_deref());
        let number = self.partition.topic_partition().partition;
        let next = decode::records(&fetched, from, |record| {
            if with_ids {
                let id = format!("id: {label}:{}\n", record.offset.0 + 1);
                out.extend_from_slice(id.as_bytes());
            }
            out.extend_from_slice(b"data: ");
            let begin = out.len();
            write_record(out, hub, number, record);
            fold_lines(out, begin);
            out.extend_from_slice(b"\n\n");
            true
        })?;
        self.next = Some(next);
        Ok(!out.is_empty())
    }
}

/// A value that was sent over several lines becomes one: between the tokens of JSON a line end is a
/// blank, and inside a text it cannot stand.
fn fold_lines(out: &mut [u8], begin: usize) {
    for byte in &mut out[begin..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}
