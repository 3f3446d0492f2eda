//! Live streams of server-sent events, from one partition or from all of a hub or a sharded one, with resume.
//!
//! Every event is `id`, `data` and a blank line. The id has the next offset of each partition of the stream
//! (`0:17,3:9`, or `a/0:17,b/3:9` for a sharded hub); a client that reconnects with it as `Last-Event-ID` misses
//! nothing. In a stream of several partitions the id follows the last event of each read, so such a client may see the
//! events of one read again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::select_all;
use futures_util::stream::{self, Stream};
use highwater_access::{Limiter, Usage};
use highwater_env::MemoryShare;
use highwater_log::{Offset, Partition};
use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use super::app::App;
use super::budget::metered;
use super::decode::{self, DecodeError};
use super::dispatch::ApiRequest;
use super::error::Error;
use super::json::write_record;
use super::read::{ISOLATION, StartPosition};
use super::reply::{self, Payload, Reply};
use super::send::{Destination, MemberPartition};

/// The size of one read, and of the events written at once. A slow client holds one such chunk, and connections are
/// limited, so only an event that is larger takes from the budget.
const CHUNK_BYTES: usize = 64 << 10;

/// The interval of comments that keep proxies from closing an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn stream(
    from: &Destination,
    partitions: Vec<MemberPartition>,
    request: &ApiRequest<'_>,
) -> Result<Reply, Error> {
    let (query, headers) = (request.query(), &request.head.headers);
    let start = StartPosition::read(query, StartPosition::Latest)?;
    let resume = last_event_id(headers)?;
    let mut cursors = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let handle = from.handle(request.app, partition)?;
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
    let live = LiveStream {
        app: request.app.clone(),
        limiter: request.caller.limiter().cloned(),
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
fn last_event_id(headers: &HeaderMap) -> Result<Vec<(&str, Offset)>, Error> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(Vec::new());
    };
    let pairs = value
        .to_str()
        .ok()
        .and_then(|text| text.split(',').map(parse_position).collect());
    pairs.ok_or_else(|| {
        Error::bad(
            "Last-Event-ID is malformed",
            "send back the id of the last event unchanged",
        )
    })
}

/// The label of a partition and an offset.
fn parse_position(text: &str) -> Option<(&str, Offset)> {
    let (label, offset) = text.split_once(':')?;
    let (_, partition) = label.split_once('/').unwrap_or(("", label));
    partition.parse::<u32>().ok()?;
    Some((label, Offset(offset.parse().ok()?)))
}

struct Cursor {
    /// The partition in ids.
    label: String,
    /// The member hub, in a stream of a sharded hub.
    hub: Option<String>,
    partition: Arc<dyn Partition>,
    start: StartPosition,
    /// `None` until the start position is resolved.
    next: Option<Offset>,
}

struct LiveStream {
    app: Arc<App>,
    /// The quota of the reader.
    limiter: Option<Arc<Limiter>>,
    cursors: Vec<Cursor>,
    /// The cursor to poll first, so that a busy partition does not starve the others.
    turn: usize,
    ended: bool,
}

impl LiveStream {
    fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        let opening = stream::once(async { Bytes::from_static(b": highwater\n\n") });
        opening.chain(stream::unfold(self, |mut live| async move {
            let chunk = live.next().await?;
            if let Some(limiter) = &live.limiter {
                let (bytes, now) = (chunk.len() as u64, live.app.clock.elapsed());
                tokio::time::sleep(limiter.charge(Usage::BytesOut, bytes, now)).await;
            }
            Some((chunk, live))
        }))
    }

    /// The next chunk of the stream; `None` ends it.
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
                // Woken without data: a stopped partition would wake the stream for ever.
                Ok(None) if woken && self.progress() == before => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Ok(None) => {}
                Err(error) => {
                    self.ended = true;
                    return Some(Bytes::from(error_event(&error)));
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

    /// Grows with every record read, visible or not.
    fn progress(&self) -> i64 {
        let positions = self.cursors.iter().filter_map(|cursor| cursor.next);
        positions.map(|next| next.0).sum()
    }

    /// The events of the first partition that has any. With `force`, partitions that seem empty are read too: a deleted
    /// one fails only then.
    async fn poll_partitions(&mut self, force: bool) -> Result<Option<Bytes>, Error> {
        let count = self.cursors.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            let mut chunk = Chunk::default();
            let cursor = &mut self.cursors[at];
            let read = cursor.read(&mut chunk, count == 1, force, &self.app);
            if read.await? {
                self.turn = (at + 1) % count;
                if count > 1 {
                    self.write_id(&mut chunk.out);
                }
                return Ok(Some(chunk.into_bytes()));
            }
        }
        Ok(None)
    }

    /// A block with an id and no data: it moves the client's last id and dispatches no event.
    fn write_id(&self, out: &mut Vec<u8>) {
        let pairs: Vec<String> = self
            .cursors
            .iter()
            .filter_map(|cursor| Some(format!("{}:{}", cursor.label, cursor.next?)))
            .collect();
        out.extend_from_slice(format!("id: {}\n\n", pairs.join(",")).as_bytes());
    }
}

/// Events to write at once.
#[derive(Default)]
struct Chunk {
    out: Vec<u8>,
    /// For an event larger than [`CHUNK_BYTES`].
    share: Option<MemoryShare>,
}

impl Chunk {
    fn into_bytes(self) -> Bytes {
        match self.share {
            Some(share) => metered(self.out, share),
            None => self.out.into(),
        }
    }
}

impl Cursor {
    /// Writes the available events; false if there are none. A batch that cannot be read is reported and skipped.
    async fn read(
        &mut self,
        chunk: &mut Chunk,
        with_ids: bool,
        force: bool,
        app: &App,
    ) -> Result<bool, Error> {
        let from = match self.next {
            Some(next) => next,
            None => self.start.offset(&*self.partition).await?,
        };
        self.next = Some(from);
        if !force && self.partition.bounds().visible(ISOLATION) == from {
            return Ok(false);
        }
        let fetched = self.partition.read(from, CHUNK_BYTES, ISOLATION).await?;
        let (label, hub) = (&self.label, self.hub.as_deref());
        let number = self.partition.topic_partition().partition;
        let (out, share) = (&mut chunk.out, &mut chunk.share);
        let mut refused: Option<Error> = None;
        let decoded = decode::records(&fetched, from, &app.unpack_budget, |record| {
            let length = record.value.map_or(0, <[u8]>::len);
            if !out.is_empty() && out.len() + length > CHUNK_BYTES {
                return false;
            }
            if length > CHUNK_BYTES {
                match app.budget.try_take(length.div_ceil(3) * 4) {
                    Ok(taken) => *share = Some(taken),
                    Err(full) => {
                        refused = Some(full.into());
                        return false;
                    }
                }
            }
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
        });
        let next = match (decoded, refused) {
            (_, Some(full)) => return Err(full),
            (Ok(next), None) => next,
            (Err(DecodeError::Exhausted(exhausted)), None) => return Err(exhausted.into()),
            (Err(DecodeError::Damaged { error, next }), None) => {
                let next = next.ok_or_else(|| error.clone())?;
                out.extend_from_slice(&error_event(&error));
                next
            }
        };
        self.next = Some(next);
        Ok(!out.is_empty())
    }
}

fn error_event(error: &Error) -> Vec<u8> {
    format!("event: error\ndata: {}\n\n", error.to_json()).into_bytes()
}

/// Replaces line ends by spaces. Between the tokens of JSON they mean the same, and inside a JSON string there are
/// none.
fn fold_lines(out: &mut [u8], begin: usize) {
    for byte in &mut out[begin..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}
