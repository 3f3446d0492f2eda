//! Events as lines to a program that this node starts: one JSON object a line in, one answer a line
//! out.
//!
//! ```text
//! {"id":"orders/0@7","attempt":1,"hub":"orders","partition":0,"offset":7,"enqueued":"..","value":..}
//! {"id":"orders/0@7","ok":true}
//! {"id":"orders/0@8","error":"no stock","transient":true,"retry_after":5}
//! ```
//!
//! Answers may come in any order, and the program is told as many events as may be under way at once.
//! When it ends, what it had not answered has failed and may go better later, and it is started again
//! after a pause that grows. An event that is not answered in time has failed too; if the program has
//! said nothing at all since it was given that event, it hangs, and is ended.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_flow::retry::{Delay, Policy, Retry};
use highwater_flow::{Delivery, Event, Failure, Handler};
use highwater_log::BoxFuture;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};

use super::wire;

/// Lines that wait for the program to take them.
const QUEUE_MAX: usize = 1024;

/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// How long a program may take to end when its input has ended.
const GRACE: Duration = Duration::from_secs(5);

/// A program that lasts this long is started again without a pause.
const STEADY: Duration = Duration::from_secs(60);

/// The way to a program that runs.
pub struct Program {
    shared: Arc<Shared>,
    lines: mpsc::Sender<Vec<u8>>,
}

struct Shared {
    name: String,
    /// Who waits for which answer. An event is delivered once at a time.
    waiting: Mutex<HashMap<String, oneshot::Sender<Result<(), Failure>>>>,
    /// How many lines the program has said.
    said: AtomicU64,
    /// Changes when the program is to be ended because it hangs.
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

impl Program {
    /// The program itself runs in the future that comes with it, until `shutdown` is ready.
    pub fn new(
        name: &str,
        command: Vec<String>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> (Program, impl Future<Output = ()> + Send + 'static) {
        let (lines, queue) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            waiting: Mutex::default(),
            said: AtomicU64::new(0),
            hangs: watch::Sender::new(0),
        });
        let running = run(Arc::clone(&shared), command, queue, shutdown);
        (Program { shared, lines }, running)
    }
}

impl Handler for Program {
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
                let gone = |_| Failure::transient("the program has been stopped");
                lines.send(line).await.map_err(gone)?;
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
    /// An answer that is waited for. Given up before it came, it may mean that the program hangs.
    fn expect(self: &Arc<Self>, id: String) -> impl Future<Output = Result<(), Failure>> + use<> {
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(id.clone(), sender);
        let patience = Patience {
            since: self.said.load(Ordering::Relaxed),
            shared: Arc::clone(self),
            id: Some(id),
        };
        async move {
            let mut patience = patience;
            let answered = answer.await;
            patience.id = None;
            answered.unwrap_or_else(|_| Err(Failure::transient("the program ended")))
        }
    }

    fn answered(&self, line: &[u8]) {
        self.said.fetch_add(1, Ordering::Relaxed);
        let answer: Answer = match serde_json::from_slice(line) {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(processor = self.name, %error, "the program said what is no answer");
                return;
            }
        };
        if let Some(waiting) = self.waiting().remove(&answer.id) {
            // Whoever gave up waiting is not there any more.
            let _ = waiting.send(answer.outcome());
        }
    }

    fn waiting(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Result<(), Failure>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Patience {
    shared: Arc<Shared>,
    since: u64,
    /// `None` once the answer has come.
    id: Option<String>,
}

impl Drop for Patience {
    fn drop(&mut self) {
        let Some(id) = &self.id else {
            return;
        };
        self.shared.waiting().remove(id);
        if self.shared.said.load(Ordering::Relaxed) == self.since {
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
    let policy = Policy {
        delay: Delay::Exponential {
            first: Duration::from_millis(100),
            cap: Duration::from_secs(30),
        },
        tries_max: None,
        ..Policy::default()
    };
    let mut shutdown = std::pin::pin!(shutdown);
    let mut failures = 0;
    loop {
        let steady = tokio::time::sleep(STEADY);
        let mut steady = std::pin::pin!(steady);
        let mut lasted = false;
        let ended = {
            let mut life = std::pin::pin!(live(&shared, &command, &mut queue));
            loop {
                tokio::select! {
                    () = &mut shutdown => return,
                    () = &mut steady, if !lasted => lasted = true,
                    ended = &mut life => break ended,
                }
            }
        };
        shared.waiting().clear();
        tracing::warn!(processor = shared.name, "{ended}; it is started again");
        failures = if lasted { 1 } else { failures + 1 };
        let Retry::After(pause) = policy.next(failures, Duration::ZERO, None, 0) else {
            return;
        };
        tokio::select! {
            () = &mut shutdown => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One life of the program; says how it ended.
async fn live(shared: &Shared, command: &[String], queue: &mut mpsc::Receiver<Vec<u8>>) -> String {
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
    let complaints = async {
        listen(errors, |line| complain(&shared.name, line)).await;
        std::future::pending().await
    };
    let (ended, grace) = tokio::select! {
        error = feed(input, queue) => (error, GRACE),
        () = listen(output, |line| shared.answered(line)) => ("the program ended".into(), GRACE),
        () = complaints => (String::new(), GRACE),
        _ = hangs.changed() => ("the program hung and was ended".into(), Duration::ZERO),
    };
    finish(child, ended, grace).await
}

fn start(command: &[String]) -> std::io::Result<Child> {
    let [program, arguments @ ..] = command else {
        return Err(std::io::Error::other("no program is named"));
    };
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Writes lines as they come, several at once where they have gathered.
async fn feed(input: ChildStdin, queue: &mut mpsc::Receiver<Vec<u8>>) -> String {
    let mut input = BufWriter::new(input);
    while let Some(line) = queue.recv().await {
        let mut written = input.write_all(&line).await;
        while let Ok(line) = queue.try_recv() {
            written = written.and(input.write_all(&line).await);
        }
        if let Err(error) = written.and(input.flush().await) {
            return format!("the program takes no input: {error}");
        }
    }
    std::future::pending().await
}

/// Calls `each` for every line, until there are no more or one is too long.
async fn listen(from: impl AsyncRead + Unpin, each: impl Fn(&[u8])) {
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

fn complain(name: &str, line: &[u8]) {
    let line: String = String::from_utf8_lossy(line).chars().take(1000).collect();
    tracing::info!(processor = name, "{line}");
}

/// Waits a while for the program to end, its input being closed, and ends it then.
async fn finish(mut child: Child, why: String, grace: Duration) -> String {
    match tokio::time::timeout(grace, child.wait()).await {
        Ok(Ok(status)) => format!("{why} ({status})"),
        _ => {
            // One that cannot be ended is ended with its handle.
            let _ = child.kill().await;
            why
        }
    }
}
