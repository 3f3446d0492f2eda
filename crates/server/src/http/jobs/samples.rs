//! Live samples of a job's events as server-sent events: how its time moves.
//!
//! The job samples only while it has watchers, and bounds its samples itself, so a stream costs the same at any rate of
//! events.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use highwater_job::live::Handle;
use highwater_job::{SampleWatcher, SampledEvent, Samples, WatermarkSample};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use serde_json::{Value, json};

use super::handle_of;
use crate::http::app::App;
use crate::http::dispatch::ApiRequest;
use crate::http::error::{Code, Error};
use crate::http::reply::{self, Payload, Reply};
use crate::http::verdict::{millis, verdict_fields};

/// The interval between two messages.
const INTERVAL: Duration = Duration::from_millis(250);

/// How many silent intervals there are between two comments that keep proxies from closing the stream.
const SILENT_MAX: u32 = 60;

pub(in crate::http) async fn samples(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let handle = handle_of(&request)?;
    let watcher = handle.watch_samples().ok_or_else(|| {
        let message = "too many watch this job already";
        Error::new(Code::Full, message, "close another page that shows it")
    })?;
    let live = SampleStream {
        app: request.app.clone(),
        handle,
        watcher,
    };
    let payload = Payload::live(live.into_stream());
    let kind = HeaderValue::from_static("text/event-stream");
    let mut reply = reply::typed(StatusCode::OK, kind, payload);
    let no_store = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(CACHE_CONTROL, no_store);
    Ok(reply)
}

struct SampleStream {
    app: Arc<App>,
    handle: Arc<Handle>,
    watcher: SampleWatcher,
}

impl SampleStream {
    fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold((self, true), |(mut live, is_first)| async move {
            if is_first {
                return Some((Bytes::from_static(b": highwater\n\n"), (live, false)));
            }
            let message = live.next().await?;
            Some((message, (live, false)))
        })
    }

    /// The next message; `None` when the job or the node stops.
    async fn next(&mut self) -> Option<Bytes> {
        for _ in 0..SILENT_MAX {
            tokio::select! {
                biased;
                () = self.app.stopped() => return None,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            if self.handle.is_over() {
                return None;
            }
            let samples = self.watcher.poll();
            if !samples.events.is_empty() || !samples.watermarks.is_empty() {
                return Some(message(&samples));
            }
        }
        Some(Bytes::from_static(b": still here\n\n"))
    }
}

fn message(samples: &Samples) -> Bytes {
    let data = json!({
        "events": samples.events.iter().map(event).collect::<Vec<_>>(),
        "watermarks": samples.watermarks.iter().map(watermark).collect::<Vec<_>>(),
        "skipped": samples.skipped,
    });
    format!("event: samples\ndata: {data}\n\n").into()
}

fn event(sample: &SampledEvent) -> Value {
    let mut shown = json!({
        "input": sample.input,
        "partition": sample.partition,
        "offset": sample.offset,
    });
    if let Some(shown) = shown.as_object_mut() {
        verdict_fields(Some(&sample.judged), shown);
    }
    shown
}

fn watermark(sample: &WatermarkSample) -> Value {
    json!({
        "input": sample.input,
        "partition": sample.partition,
        "arrived": millis(sample.arrived),
        "watermark": millis(sample.watermark),
    })
}
