//! The playground: a query over events in the request, run at once, nothing stored.
//!
//! A key with the right `listen` on the node may run any query, so everything is bounded: the request, the rows that
//! the steps of the query pass on, the time, and the number of concurrent runs. A run is stopped at its timeout. If its
//! thread does not stop, the request is answered without it; the thread continues with the lowest priority, and holds
//! its permit until it ends.

mod answer;
mod request;

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use highwater_engine::WorkLimit;
use highwater_env::ThreadNumber;
use highwater_job::playground::{Playground, PlaygroundResult, run_playground};
use highwater_time::Instant;
use hyper::StatusCode;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::dispatch::{ApiRequest, parse_json};
use super::error::{Code, Error};
use super::reply::{self, Payload, Reply};
use request::{PlaygroundRequest, TEXT_BYTES_MAX};

/// Concurrent runs on a node.
pub(super) const RUNS_MAX: usize = 2;

/// How long a run may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a stopped run may take to end before its request is answered without it.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How many bytes of rows the steps of a query may pass on.
const WORK_BYTES_MAX: u64 = 64 << 20;

static EXAMPLES: &[u8] = include_bytes!("examples.json");

pub(super) async fn examples(_: ApiRequest<'_>) -> Result<Reply, Error> {
    let payload = Payload::constant(EXAMPLES);
    Ok(reply::typed(StatusCode::OK, reply::JSON, payload))
}

pub(super) async fn run(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let clock = request.app.clock.clone();
    let (body, _share) = request.read_body().await?;
    if body.len() > TEXT_BYTES_MAX {
        return Err(too_large(format!("the request has {} bytes", body.len())));
    }
    let example = r#"{"query":"SELECT * FROM input","inputs":{"input":{"text":"{\"a\":1}"}}}"#;
    let asked: PlaygroundRequest = parse_json(&body, example)?;
    let now = Instant::from_unix_nanos(clock.unix_nanos());
    let prepared = asked.prepare(now)?;
    let runs = request.app.playground_runs.clone();
    let permit = runs.try_acquire_owned().map_err(|_| {
        let message = format!("{RUNS_MAX} queries run in the playground already");
        Error::new(Code::Full, message, "try again in a moment")
    })?;
    let started = clock.elapsed();
    let limit = Arc::new(WorkLimit::new(WORK_BYTES_MAX));
    let thread = RunThread::spawn(prepared.playground, limit, permit)?;
    let result = thread.result().await?;
    let took = clock.elapsed() - started;
    let answer: Box<RawValue> = answer::answer(&result, &prepared.asked, took)?;
    Ok(reply::ok(&answer))
}

fn too_large(message: String) -> Error {
    Error::new(Code::TooLarge, message, "docs/http.md has the limits")
}

/// A thread that runs a query.
struct RunThread {
    result: oneshot::Receiver<PlaygroundResult>,
    limit: Arc<WorkLimit>,
    number: Arc<OnceLock<ThreadNumber>>,
}

impl RunThread {
    /// Holds `permit` until the run ends, however long that takes.
    fn spawn(
        playground: Playground,
        limit: Arc<WorkLimit>,
        permit: impl Send + 'static,
    ) -> Result<RunThread, Error> {
        let (send, result) = oneshot::channel();
        let number = Arc::new(OnceLock::new());
        let (own, limited) = (number.clone(), limit.clone());
        let run = move || {
            if let Some(current) = ThreadNumber::current() {
                own.get_or_init(|| current);
            }
            let result = run_playground(&playground, &limited);
            drop(permit);
            // The caller may be gone.
            let _ = send.send(result);
        };
        let spawned = thread::Builder::new()
            .name("highwater-playground".into())
            .spawn(run);
        spawned.map_err(|error| {
            let message = format!("cannot start a thread: {error}");
            Error::new(Code::Full, message, "try again later")
        })?;
        Ok(RunThread {
            result,
            limit,
            number,
        })
    }

    async fn result(mut self) -> Result<PlaygroundResult, Error> {
        let ended = match timeout(TIMEOUT, &mut self.result).await {
            Ok(ended) => ended,
            Err(_) => {
                self.limit.stop();
                match timeout(STOP_TIMEOUT, &mut self.result).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        if let Some(number) = self.number.get() {
                            number.lower_priority();
                        }
                        return Ok(PlaygroundResult {
                            problem: Some("the query takes too long for the playground".into()),
                            ..PlaygroundResult::default()
                        });
                    }
                }
            }
        };
        ended.map_err(|_| {
            let hint = "this is a bug: please report it";
            Error::new(Code::Internal, "the run ended unexpectedly", hint)
        })
    }
}

impl Drop for RunThread {
    /// Stops a run whose request was closed.
    fn drop(&mut self) {
        self.limit.stop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_example_gives_rows_without_complaint() {
        let all: Value = serde_json::from_slice(EXAMPLES).unwrap();
        let examples = all["examples"].as_array().unwrap();
        assert!(examples.len() >= 5);
        for example in examples {
            let name = &example["name"];
            let request = serde_json::from_value::<PlaygroundRequest>(example["request"].clone());
            let prepared = request
                .unwrap()
                .prepare(Instant::from_unix_millis(0))
                .unwrap();
            let limit = Arc::new(WorkLimit::new(WORK_BYTES_MAX));
            let result = run_playground(&prepared.playground, &limit);
            assert!(result.diagnostics.is_empty(), "{name}: {result:?}");
            assert_eq!(result.problem, None, "{name}");
            assert!(result.outputs.iter().all(|of| of.count > 0), "{name}");
            assert!(result.failed_rows.is_empty(), "{name}");
        }
    }
}
