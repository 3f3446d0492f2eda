//! Events out: one partition as JSON, with a long poll, or as a live stream.

use std::sync::Arc;
use std::time::Duration;

use highwater_env::MemoryShare;
use highwater_log::{EnqueueTime, HubInfo, Isolation, Offset, Partition};
use highwater_time::Instant;
use hyper::header::ACCEPT;
use hyper::{HeaderMap, StatusCode};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::json::write_record;
use super::reply::{self, Payload, Reply};
use super::send::{Destination, MemberPartition, no_partition};
use super::{decode, sse};
use crate::text::{parameter, time_text};

/// The isolation of HTTP readers.
pub(super) const ISOLATION: Isolation = Isolation::Committed;

const EVENTS_DEFAULT: usize = 100;
const EVENTS_MAX: usize = 10_000;

/// Where a read starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartPosition {
    Earliest,
    Latest,
    Offset(Offset),
    Time(EnqueueTime),
}

impl StartPosition {
    pub(super) fn read(
        query: Option<&str>,
        otherwise: StartPosition,
    ) -> Result<StartPosition, Error> {
        match parameter(query, "from") {
            Some(text) => StartPosition::parse(&text),
            None => Ok(otherwise),
        }
    }

    pub(super) fn parse(text: &str) -> Result<StartPosition, Error> {
        match text {
            "earliest" => return Ok(StartPosition::Earliest),
            "latest" => return Ok(StartPosition::Latest),
            _ => {}
        }
        let offset = text.parse::<u32>().map(i64::from).or_else(|_| text.parse());
        if let Ok(offset) = offset {
            return Ok(StartPosition::Offset(Offset(offset)));
        }
        match Instant::parse_iso(text.as_bytes()) {
            Some(instant) => Ok(StartPosition::Time(EnqueueTime(instant.to_unix_millis()))),
            None => Err(Error::bad(
                format!("`{text}` is no position in a partition"),
                "use earliest, latest, an offset or a time such as 2026-01-01T00:00:00Z",
            )),
        }
    }

    /// The offset to read from now.
    pub(super) async fn offset(self, partition: &dyn Partition) -> Result<Offset, Error> {
        match self {
            StartPosition::Earliest => Ok(partition.fetch_bounds().await?.start),
            StartPosition::Latest => Ok(partition.fetch_bounds().await?.visible(ISOLATION)),
            StartPosition::Offset(offset) => Ok(offset),
            StartPosition::Time(_) if !partition.has_enqueue_times() => Err(Error::bad(
                format!(
                    "`{}` has the times of producers (CreateTime), so it is not read by arrival time",
                    partition.topic_partition().hub
                ),
                "read from an offset, or set cluster.arrival to create-time",
            )),
            StartPosition::Time(time) => match partition.offset_for_time(time).await? {
                Some((offset, _)) => Ok(offset),
                None => Ok(partition.fetch_bounds().await?.visible(ISOLATION)),
            },
        }
    }
}

/// All partitions of a hub, or of all members of a sharded hub, live.
pub(super) async fn all_partitions(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (app, headers) = (request.app, &request.head.headers);
    let [hub] = request.variables();
    let from = app.destination(hub)?;
    if !wants_stream(headers) {
        return Err(Error::new(
            Code::NotAcceptable,
            "all partitions together are read as a live stream only",
            "send Accept: text/event-stream, or read /hubs/NAME/partitions/0/messages",
        ));
    }
    sse::stream(&from, from.partitions(), &request)
}

pub(super) async fn partition(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let (app, query, headers) = (request.app, request.query(), &request.head.headers);
    let [hub, id] = request.variables();
    let hub = app.hub(hub)?;
    let partition = find_partition(app, &hub, id)?;
    let number = partition.topic_partition().partition;
    if wants_stream(headers) {
        let (member, partition) = (0, number);
        let partitions = vec![MemberPartition { member, partition }];
        return sse::stream(&Destination::Hub(hub), partitions, &request);
    }
    let most = count(query, "max", EVENTS_DEFAULT as u64)?.min(EVENTS_MAX as u64) as usize;
    let wait = request.wait()?;
    let mut from = StartPosition::read(query, StartPosition::Earliest)?
        .offset(&*partition)
        .await?;
    let mut page = Page::new(number, most);
    let mut share = app.budget.try_take(app.options.read_bytes_max)?;
    from = page.fill(app, &*partition, from, &mut share).await?;
    let mut waited = std::pin::pin!(tokio::time::sleep(wait));
    while page.count == 0 && !wait.is_zero() {
        // A waiting request holds no part of the budget.
        drop(share);
        let woken = tokio::select! {
            () = partition.wait_past(from, ISOLATION) => true,
            () = &mut waited => false,
            () = app.stopped() => false,
        };
        share = app.budget.try_take(app.options.read_bytes_max)?;
        let before = from;
        if woken {
            from = page.fill(app, &*partition, from, &mut share).await?;
        }
        // The new records may not be visible, such as a punctuation.
        if from == before {
            break;
        }
    }
    let body = page.finish(&*partition, from);
    share.resize(body.len())?;
    let payload = Payload::whole(body).holding(share);
    Ok(reply::typed(StatusCode::OK, reply::JSON, payload))
}

/// The partition in a path.
pub(super) fn find_partition(
    app: &App,
    hub: &HubInfo,
    id: &str,
) -> Result<Arc<dyn Partition>, Error> {
    let hint = "partitions are find_partition from 0";
    let number = id
        .parse()
        .map_err(|_| Error::bad(format!("`{id}` is no partition"), hint))?;
    partition_of(app, hub, number)
}

pub(super) fn partition_of(
    app: &App,
    hub: &HubInfo,
    number: u32,
) -> Result<Arc<dyn Partition>, Error> {
    if number >= hub.partitions {
        return Err(no_partition(hub, number));
    }
    let found = app.log()?.partition(hub.name.as_str(), number);
    found.ok_or_else(|| Error::no_hub(hub.name.as_str()))
}

/// `{"messages":[..],"next":8,"start":0,"end":100,"last":".."}`, written as it is read.
struct Page {
    out: Vec<u8>,
    partition: u32,
    count: usize,
    count_max: usize,
}

/// The JSON of a record without key, headers and value.
const RECORD_BYTES: usize = 128;

impl Page {
    fn new(partition: u32, count_max: usize) -> Page {
        Page {
            out: b"{\"messages\":[".to_vec(),
            partition,
            count: 0,
            count_max,
        }
    }

    /// Adds records until the page has its number of records or of bytes; compressed records may unpack to more than
    /// was read. A page has at least one record if there is any, and the share grows with it.
    async fn fill(
        &mut self,
        app: &App,
        partition: &dyn Partition,
        from: Offset,
        share: &mut MemoryShare,
    ) -> Result<Offset, Error> {
        let bytes_max = app.options.read_bytes_max;
        let fetched = partition.read(from, bytes_max, ISOLATION).await?;
        let mut refused: Option<Error> = None;
        let next = decode::records(&fetched, from, &app.unpack_budget, |record| {
            // A value that is not JSON is written as base64.
            let value = record.value.map_or(0, |value| value.len().div_ceil(3) * 4);
            let length = self.out.len() + RECORD_BYTES + value;
            if self.count == self.count_max || (self.count > 0 && length > bytes_max) {
                return false;
            }
            if length > bytes_max
                && let Err(full) = share.resize(length)
            {
                refused = Some(full.into());
                return false;
            }
            if self.count > 0 {
                self.out.push(b',');
            }
            write_record(&mut self.out, None, self.partition, record);
            self.count += 1;
            true
        })?;
        match refused {
            Some(full) => Err(full),
            None => Ok(next),
        }
    }

    fn finish(mut self, partition: &dyn Partition, next: Offset) -> Vec<u8> {
        let bounds = partition.bounds();
        let rest = serde_json::json!({
            "next": next.0, "start": bounds.start.0, "end": bounds.visible(ISOLATION).0,
            "last": bounds.last_time.map(time_text),
        });
        self.out.extend_from_slice(b"],");
        self.out
            .extend_from_slice(&rest.to_string().as_bytes()[1..]);
        self.out
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|value| value.contains("text/event-stream"))
}

pub(super) fn count(query: Option<&str>, name: &str, default: u64) -> Result<u64, Error> {
    match parameter(query, name) {
        None => Ok(default),
        Some(text) => text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
            Error::bad(
                format!("{name}=`{text}` is no count"),
                format!("such as {name}=10"),
            )
        }),
    }
}

/// `wait=30s`, or a number of seconds.
pub(super) fn wait(query: Option<&str>, max: Duration) -> Result<Duration, Error> {
    let Some(text) = parameter(query, "wait") else {
        return Ok(Duration::ZERO);
    };
    let seconds = text
        .parse::<u32>()
        .ok()
        .map(|seconds| Duration::from_secs(seconds.into()));
    let read = seconds.or_else(|| {
        let ticks = highwater_time::Duration::parse(&text).ok()?.ticks();
        Some(Duration::from_nanos(
            u64::try_from(ticks).ok()?.checked_mul(100)?,
        ))
    });
    let wrong = || Error::bad(format!("wait=`{text}` is no time"), "such as wait=30s");
    read.map(|wait| wait.min(max)).ok_or_else(wrong)
}

/// The time of a request, in milliseconds since 1970.
pub(super) fn unix_ms(text: Option<&str>) -> Result<Option<i64>, Error> {
    let Some(text) = text else {
        return Ok(None);
    };
    let time = Instant::parse_iso(text.as_bytes()).map(Instant::to_unix_millis);
    time.map(Some).ok_or_else(|| {
        let text: String = text.chars().take(100).collect();
        Error::bad(
            format!("`{text}` is no time"),
            "such as 2026-01-01T00:00:00Z",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_a_word_an_offset_or_a_time() {
        let read = |text: &str| {
            StartPosition::read(Some(&format!("from={text}")), StartPosition::Latest).ok()
        };
        assert_eq!(read("earliest"), Some(StartPosition::Earliest));
        assert_eq!(read("42"), Some(StartPosition::Offset(Offset(42))));
        let time = EnqueueTime(1_767_225_600_000);
        assert_eq!(
            read("2026-01-01T00:00:00Z"),
            Some(StartPosition::Time(time))
        );
        assert_eq!(
            read("2026-01-01T00%3A00%3A00Z"),
            Some(StartPosition::Time(time))
        );
        assert_eq!(read("yesterday"), None);
        assert_eq!(
            StartPosition::read(None, StartPosition::Latest),
            Ok(StartPosition::Latest)
        );
    }

    #[test]
    fn a_wait_is_capped() {
        let max = Duration::from_secs(60);
        assert_eq!(wait(Some("wait=2s"), max), Ok(Duration::from_secs(2)));
        assert_eq!(wait(Some("wait=2"), max), Ok(Duration::from_secs(2)));
        assert_eq!(wait(Some("wait=5h"), max), Ok(max));
        assert!(wait(Some("wait=soon"), max).is_err());
    }
}
