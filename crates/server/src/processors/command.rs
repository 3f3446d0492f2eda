//! The command handler: events are lines of JSON to a child process, and its answers are lines too.
//!
//! ```text
//! {"id":"orders/0@7","attempt":1,"hub":"orders","partition":0,"offset":7,"enqueued":"..","value":..}
//! {"id":"orders/0@7","ok":true}
//! {"id":"orders/0@8","error":"no stock","transient":true,"retry_after":5}
//! ```
//!
//! Answers may come in any order, and the process receives as many events as may be in flight at once. When it exits,
//! its unanswered events have failed transiently, and it is restarted with exponential back-off. An event without an
//! answer in time has failed too; if the process has written nothing at all since it got that event, it hangs, and is
//! killed.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_flow::{Delivery, Event, Failure, Handler};
use highwater_log::BoxFuture;
use highwater_retry::Backoff;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};

use super::wire;

/// Lines that wait for the process to read them.
const QUEUE_MAX: usize = 1024;

/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// How long the process may take to exit after the end of its input.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A process that runs this long resets the back-off.
const STEADY_AFTER: Duration = Duration::from_secs(60);

/// Delivers events to the process.
pub(super) struct CommandHandler {
    shared: Arc<Shared>,
    lines: mpsc::Sender<Vec<u8>>,
}

struct Shared {
    name: String,
    /// The senders of expected answers by event id. An event is delivered once at a time.
    waiting: Mutex<HashMap<String, oneshot::Sender<Result<(), Failure>>>>,
    /// Lines read from the process.
    lines_read: AtomicU64,
    /// Changes when the process hangs and must be killed.
    hangs: watch::Sender<u64>,
}

#[derive(Deserialize)]
struct Answer {
    id: String,
    #[serde(default)]
    ok: bool,
    error: Option<String>,
    #[serde(default)]
    transient: bool,
    retry_after: Option<f64>,
}

impl Answer {
    fn outcome(&self) -> Result<(), Failure> {
        let Some(error) = &self.error else {
            return match self.ok {
                true => Ok(()),
                false => Err(Failure::permanent("the answer has neither ok nor error")),
            };
        };
        if !self.transient {
            return Err(Failure::permanent(error));
        }
        let failure = Failure::transient(error);
        let delay = self
            .retry_after
            .and_then(|s| Duration::try_from_secs_f64(s).ok());
        Err(match delay {
            Some(delay) => failure.retry_after(delay),
            None => failure,
        })
    }
}

impl CommandHandler {
    /// The returned future runs the process until `shutdown` completes.
    pub(super) fn new(
        name: &str,
        command: Vec<String>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> (CommandHandler, impl Future<Output = ()> + Send + 'static) {
        let (lines, queue) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            waiting: Mutex::default(),
            lines_read: AtomicU64::new(0),
            hangs: watch::Sender::new(0),
        });
        let running = run(Arc::clone(&shared), command, queue, shutdown);
        (CommandHandler { shared, lines }, running)
    }
}

impl Handler for CommandHandler {
    fn handle(&self, deliveries: Vec<Delivery<Event>>) -> BoxFuture<Result<(), Failure>> {
        let (shared, lines) = (Arc::clone(&self.shared), self.lines.clone());
        Box::pin(async move {
            let mut answers = Vec::with_capacity(deliveries.len());
            for delivery in &deliveries {
                let mut line = Vec::with_capacity(256);
                wire::write_delivery(&mut line, delivery);
                // In JSON a line end is a space between tokens, or it is written as \n.
                let ends = line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r'));
                ends.for_each(|byte| *byte = b' ');
                line.push(b'\n');
                answers.push(shared.expect(delivery.event.id().to_string()));
                let stopped = |_| Failure::transient("the program has been stopped");
                lines.send(line).await.map_err(stopped)?;
            }
            let mut outcome = Ok(());
            for answer in answers {
                let answered = answer.await;
                outcome = outcome.and(answered);
            }
            outcome
        })
    }
}

impl Shared {
    /// Waits for an answer. A wait that is dropped before the answer may mean that the process hangs.
    fn expect(self: &Arc<Self>, id: String) -> impl Future<Output = Result<(), Failure>> + use<> {
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(id.clone(), sender);
        let guard = AnswerGuard {
            since: self.lines_read.load(Ordering::Relaxed),
            shared: Arc::clone(self),
            id: Some(id),
        };
        async move {
            let mut guard = guard;
            let answered = answer.await;
            guard.id = None;
            answered.unwrap_or_else(|_| Err(Failure::transient("the program ended")))
        }
    }

    fn answered(&self, line: &[u8]) {
        self.lines_read.fetch_add(1, Ordering::Relaxed);
        let answer: Answer = match serde_json::from_slice(line) {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(processor = self.name, %error, "the program wrote a line that is no answer");
                return;
            }
        };
        if let Some(waiting) = self.waiting().remove(&answer.id) {
            // The receiver was dropped if the wait timed out.
            let _ = waiting.send(answer.outcome());
        }
    }

    fn waiting(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Result<(), Failure>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Detects a wait that is dropped before its answer.
struct AnswerGuard {
    shared: Arc<Shared>,
    since: u64,
    /// `None` after the answer.
    id: Option<String>,
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        let Some(id) = &self.id else {
            return;
        };
        self.shared.waiting().remove(id);
        if self.shared.lines_read.load(Ordering::Relaxed) == self.since {
            self.shared.hangs.send_modify(|hangs| *hangs += 1);
        }
    }
}

async fn run(
    shared: Arc<Shared>,
    command: Vec<String>,
    mut queue: mpsc::Receiver<Vec<u8>>,
    shutdown: impl Future<Output = ()>,
) {
    let backoff = Backoff::Exponential {
        first: Duration::from_millis(100),
        cap: Duration::from_secs(30),
    };
    let mut shutdown = std::pin::pin!(shutdown);
    let mut failures = 0;
    loop {
        let steady = tokio::time::sleep(STEADY_AFTER);
        let mut steady = std::pin::pin!(steady);
        let mut lasted = false;
        let ended = {
            let mut running = std::pin::pin!(run_once(&shared, &command, &mut queue));
            loop {
                tokio::select! {
                    () = &mut shutdown => return,
                    () = &mut steady, if !lasted => lasted = true,
                    ended = &mut running => break ended,
                }
            }
        };
        shared.waiting().clear();
        tracing::warn!(processor = shared.name, "{ended}; it is restarted");
        failures = if lasted { 1 } else { failures + 1 };
        tokio::select! {
            () = &mut shutdown => return,
            () = tokio::time::sleep(backoff.after(failures)) => {}
        }
    }
}

/// Runs the process once. Returns why it ended.
async fn run_once(
    shared: &Shared,
    command: &[String],
    queue: &mut mpsc::Receiver<Vec<u8>>,
) -> String {
    let mut child = match start(command) {
        Ok(child) => child,
        Err(error) => return format!("the program cannot be started: {error}"),
    };
    let (Some(input), Some(output), Some(errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return "the program has no input or output".into();
    };
    let mut hangs = shared.hangs.subscribe();
    let stderr = async {
        read_lines(errors, |line| log_stderr(&shared.name, line)).await;
        std::future::pending().await
    };
    let (ended, timeout) = tokio::select! {
        error = write_lines(input, queue) => (error, EXIT_TIMEOUT),
        () = read_lines(output, |line| shared.answered(line)) => ("the program ended".into(), EXIT_TIMEOUT),
        () = stderr => (String::new(), EXIT_TIMEOUT),
        _ = hangs.changed() => ("the program hung and was killed".into(), Duration::ZERO),
    };
    finish(child, ended, timeout).await
}

fn start(command: &[String]) -> std::io::Result<Child> {
    let [program, arguments @ ..] = command else {
        return Err(std::io::Error::other("the command is empty"));
    };
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Writes queued lines, with one flush for all that wait.
async fn write_lines(input: ChildStdin, queue: &mut mpsc::Receiver<Vec<u8>>) -> String {
    let mut input = BufWriter::new(input);
    while let Some(line) = queue.recv().await {
        let mut written = input.write_all(&line).await;
        while let Ok(line) = queue.try_recv() {
            written = written.and(input.write_all(&line).await);
        }
        if let Err(error) = written.and(input.flush().await) {
            return format!("the program does not read its input: {error}");
        }
    }
    std::future::pending().await
}

/// Calls `each` for every line until the end or a line that is too long.
async fn read_lines(from: impl AsyncRead + Unpin, each: impl Fn(&[u8])) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut from)
            .take(ANSWER_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .await;
        if !matches!(read, Ok(1..)) || line.last() != Some(&b'\n') {
            return;
        }
        each(line.trim_ascii());
    }
}

fn log_stderr(name: &str, line: &[u8]) {
    let line: String = String::from_utf8_lossy(line).chars().take(1000).collect();
    tracing::info!(processor = name, "{line}");
}

/// Waits for the process to exit, its input being closed, and kills it after `timeout`.
async fn finish(mut child: Child, why: String, timeout: Duration) -> String {
    match tokio::time::timeout(timeout, child.wait()).await {
        Ok(Ok(status)) => format!("{why} ({status})"),
        _ => {
            // Dropping the handle kills it too.
            let _ = child.kill().await;
            why
        }
    }
}
