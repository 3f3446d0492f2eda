//! Sends the rows of one output to its endpoint, with retries by its failure policy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use highwater_connect::{Endpoint, EndpointError, RowNames, Rows};
use highwater_engine::{Chunk, Column, Record, Value, eval};
use highwater_env::random::Random;
use highwater_retry::{RetryDecision, RetryPolicy};
use tokio::sync::mpsc;

use super::status::StatusHandle;
use crate::config::OnFailure;
use crate::output_merge::OutputMessage;

pub(super) struct Output {
    /// Its index among the outputs of the job.
    pub index: usize,
    pub name: String,
    pub endpoint: Box<dyn Endpoint>,
    /// The endpoint for dead letters, which keep the numbers of their rows.
    pub dead: Option<Box<dyn Endpoint>>,
    pub names: RowNames,
    pub on_failure: OnFailure,
    pub retry: RetryPolicy,
    pub random: Random,
    pub status: StatusHandle,
    pub settled: mpsc::UnboundedSender<SettledOutput>,
}

/// An output has made all rows up to a checkpoint durable.
pub(super) struct SettledOutput {
    /// Its index among the outputs of the job.
    pub output: usize,
    pub checkpoint: u64,
    pub states: EndpointStates,
}

/// The states of an output's endpoints, for their resumption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointStates {
    pub own: Vec<u8>,
    pub dead: Option<Vec<u8>>,
}

impl Output {
    /// Finds out which rows are already there.
    pub(super) async fn resume(&mut self, states: Option<&EndpointStates>) {
        let own = states.map(|states| &states.own[..]);
        let mut attempts = Attempts::default();
        while let Err(error) = self.endpoint.resume(own).await {
            self.pause(&mut attempts, &error).await;
        }
        self.note_recovery(&attempts);
        let dead_state = states.and_then(|states| states.dead.as_deref());
        let mut attempts = Attempts::default();
        while let Some(dead) = &mut self.dead {
            match dead.resume(dead_state).await {
                Ok(()) => break,
                Err(error) => self.pause(&mut attempts, &error).await,
            }
        }
        self.note_recovery(&attempts);
    }

    /// Runs until the queue is closed.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<OutputMessage>) {
        while let Some(message) = inbox.recv().await {
            match message {
                OutputMessage::Rows(rows) => {
                    let count = rows.chunk.rows() as u64;
                    self.write(rows).await;
                    self.status.update_output(self.index, |status| {
                        // Another combiner of this instance may have started since, which begins the count again.
                        status.waiting = status.waiting.saturating_sub(count);
                    });
                }
                OutputMessage::Advance(watermark) => {
                    let mut attempts = Attempts::default();
                    while let Err(error) = self.endpoint.advance(watermark).await {
                        self.pause(&mut attempts, &error).await;
                    }
                    self.note_recovery(&attempts);
                }
                OutputMessage::Settle(checkpoint) => {
                    let settled = SettledOutput {
                        output: self.index,
                        checkpoint,
                        states: self.settle().await,
                    };
                    if self.settled.send(settled).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Makes all rows so far durable.
    pub(super) async fn settle(&mut self) -> EndpointStates {
        let mut attempts = Attempts::default();
        let own = loop {
            match self.endpoint.checkpoint().await {
                Ok(state) => break state,
                Err(error) => self.pause(&mut attempts, &error).await,
            }
        };
        let dead = loop {
            let Some(dead) = &mut self.dead else {
                break None;
            };
            match dead.checkpoint().await {
                Ok(state) => break Some(state),
                Err(error) => self.pause(&mut attempts, &error).await,
            }
        };
        self.note_recovery(&attempts);
        EndpointStates { own, dead }
    }

    async fn write(&mut self, rows: Rows) {
        let mut left = VecDeque::from([rows]);
        let mut attempts = Attempts::default();
        while let Some(rows) = left.front() {
            let Err(error) = self.endpoint.write(rows).await else {
                left.pop_front();
                continue;
            };
            let patient = self.on_failure == OnFailure::Retry;
            match error {
                EndpointError::Refused {
                    rows: refused,
                    reason,
                } if !patient => {
                    let Some(rows) = left.pop_front() else { break };
                    let (good, bad) = split_refused(&rows, &refused);
                    good.into_iter()
                        .rev()
                        .for_each(|rows| left.push_front(rows));
                    for rows in bad {
                        self.give_up(&rows, &reason).await;
                    }
                }
                error if patient || !self.is_exhausted(&attempts) => {
                    self.pause(&mut attempts, &error).await
                }
                error => {
                    let Some(rows) = left.pop_front() else { break };
                    self.give_up(&rows, &error.to_string()).await;
                }
            }
        }
        self.note_recovery(&attempts);
    }

    fn is_exhausted(&self, attempts: &Attempts) -> bool {
        let asked = self
            .retry
            .next(attempts.failed + 1, attempts.waited, None, 0);
        matches!(asked, RetryDecision::GiveUp(_))
    }

    /// Reports the error and waits before the next attempt.
    async fn pause(&mut self, attempts: &mut Attempts, error: &EndpointError) {
        attempts.failed += 1;
        let hint = match error {
            EndpointError::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        };
        let forever = RetryPolicy {
            tries_max: None,
            deadline: None,
            ..self.retry.clone()
        };
        let random = self.random.next_u64();
        let delay = match forever.next(attempts.failed, attempts.waited, hint, random) {
            RetryDecision::After(delay) => delay,
            RetryDecision::GiveUp(_) => Duration::ZERO,
        };
        if attempts.failed == 1 {
            self.status
                .log(format!("output \"{}\": {error}", self.name));
        }
        self.status.update_output(self.index, |status| {
            status.retries += 1;
            status.problem = Some(error.to_string());
        });
        attempts.waited += delay;
        tokio::time::sleep(delay).await;
    }

    fn note_recovery(&self, attempts: &Attempts) {
        if attempts.failed > 0 {
            self.status
                .update_output(self.index, |status| status.problem = None);
            self.status
                .log(format!("output \"{}\" is well again", self.name));
        }
    }

    /// Drops the rows, with dead letters if there is an endpoint for them.
    async fn give_up(&mut self, rows: &Rows, reason: &str) {
        let count = rows.chunk.rows();
        self.status
            .update_output(self.index, |status| status.dropped += count as u64);
        self.status.log(format!(
            "output \"{}\": {count} rows from number {} on were dropped: {reason}",
            self.name, rows.first
        ));
        let dead_letters = self.dead_letters(rows, reason);
        let mut attempts = Attempts::default();
        while let Some(dead) = &mut self.dead {
            match dead.write(&dead_letters).await {
                Ok(()) => break,
                Err(error) => self.pause(&mut attempts, &error).await,
            }
        }
        self.note_recovery(&attempts);
    }

    fn dead_letters(&self, rows: &Rows, reason: &str) -> Rows {
        let letter = |row: usize| {
            let mut json = String::new();
            let record = self.names.record(&rows.chunk, row);
            eval::write_json(Value::Record(Arc::new(record)).view(), &mut json);
            let fields = [
                ("Type", Value::Text("OutputError".into())),
                ("Output", Value::Text(self.name.as_str().into())),
                ("Number", Value::Int((rows.first + row as u64) as i64)),
                ("Message", Value::Text(reason.into())),
                ("Row", Value::Text(json.into())),
            ];
            let fields = fields.map(|(name, value)| (name.into(), value));
            Value::Record(Arc::new(Record::from_fields(fields.into())))
        };
        let dead_letters: Vec<Value> = (0..rows.chunk.rows()).map(letter).collect();
        let column = Column::Dynamic(Arc::new(dead_letters));
        Rows {
            first: rows.first,
            chunk: Chunk::new(rows.chunk.times.clone(), vec![column]),
        }
    }
}

#[derive(Default)]
struct Attempts {
    failed: u32,
    waited: Duration,
}

/// The accepted and the refused rows, each as runs of consecutive numbers.
fn split_refused(rows: &Rows, refused: &[u64]) -> (Vec<Rows>, Vec<Rows>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let is_bad = |row: usize| refused.contains(&(rows.first + row as u64));
    let mut start = 0;
    for end in 1..=rows.chunk.rows() {
        if end < rows.chunk.rows() && is_bad(end) == is_bad(start) {
            continue;
        }
        let piece = Rows {
            first: rows.first + start as u64,
            chunk: rows.chunk.slice(start, end - start),
        };
        match is_bad(start) {
            true => bad.push(piece),
            false => good.push(piece),
        }
        start = end;
    }
    (good, bad)
}
