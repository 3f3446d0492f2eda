//! Rows as messages of a queue, exactly once: the queue keeps how far it has come in the same batch as the messages.
//!
//! To the queue an output is a feed like that of a hub: every message comes with its number, and those that were taken over
//! are passed over. An output that starts anew goes on counting where the feed is, so that no number and no message id is
//! ever used for two rows; where it began is part of its mark.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use highwater_codec::Writer;
use highwater_engine::eval;
use highwater_query::plan::Name;
use highwater_queue::{Content, Error, ID_BYTES_MAX, NewMessage, Queue, Queues, Refusal};

use super::mark::{self, Kind};
use super::{Endpoint, EndpointError, OutputContext, OutputKind, OutputSettings, Rows, Underway};
use crate::json::JsonWriter;
use crate::rows::RowNames;

/// An output that is a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOutput {
    pub queue: String,
    /// The column whose value is the session of a message.
    pub session: Option<String>,
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "queue",
    keys: &["queue", "session"],
    read: |from| {
        Some(Arc::new(QueueOutput {
            queue: from.required_text("queue", "orders")?,
            session: from.text("session", "plate"),
        }))
    },
    missing_feature: None,
};

impl OutputSettings for QueueOutput {
    fn open(
        &self,
        names: Vec<Name>,
        context: &OutputContext,
    ) -> Result<Box<dyn Endpoint>, EndpointError> {
        let queues = context.queues.clone().ok_or_else(|| {
            EndpointError::unfit("there are no queues here: run the job with `highwater up`")
        })?;
        let endpoint = QueueEndpoint::open(self, context.id(), names, queues)?;
        Ok(Box::new(endpoint))
    }
}

/// What goes to the queue at once: rows, and bytes unless a single row is longer.
const ROWS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

pub(super) struct QueueEndpoint {
    output: QueueOutput,
    /// `job/output`
    id: String,
    queues: Queues,
    names: RowNames,
    writer: JsonWriter,
    /// The number that the queue has for row 0.
    base: i64,
    /// The row after the last that the queue has taken.
    next: u64,
}

impl QueueEndpoint {
    pub fn open(
        output: &QueueOutput,
        id: String,
        names: Vec<Name>,
        queues: Queues,
    ) -> Result<QueueEndpoint, EndpointError> {
        let row_names = RowNames::new(names.clone());
        if let Some(column) = &output.session
            && !row_names.may_have(column)
        {
            let reason = format!("the rows have no column `{column}` to be the session");
            return Err(EndpointError::unfit(reason));
        }
        Ok(QueueEndpoint {
            output: output.clone(),
            id,
            queues,
            names: row_names,
            writer: JsonWriter::new(names),
            base: 0,
            next: 0,
        })
    }

    fn queue(&self) -> Result<Queue, EndpointError> {
        let name = &self.output.queue;
        let missing = || EndpointError::unfit(format!("there is no queue `{name}`"));
        self.queues.get(name).ok_or_else(missing)
    }

    async fn find_out(&mut self, mark: Option<&[u8]>) -> Result<(), EndpointError> {
        let fed = self.queue()?.fed(self.id.clone(), 0).await;
        let fed = fed.map_err(judged)?.unwrap_or(0);
        self.base = match mark {
            Some(mark) => {
                let base = mark::open(Kind::Queue, mark)?.i64();
                base.map_err(mark::damaged)?
            }
            None => fed,
        };
        // A queue that was deleted and made again has nothing.
        self.next = fed.saturating_sub(self.base).max(0) as u64;
        Ok(())
    }

    async fn hand_over(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        loop {
            let left = rows.from(self.next);
            if left.is_empty() {
                return Ok(());
            }
            let first = rows.first + left.start as u64;
            let messages = self.messages(rows, left.start);
            let end = first + messages.len() as u64;
            let next = self.number_of(end);
            let fed = self.queue()?.feed(self.id.clone(), 0, messages, next).await;
            match fed {
                Ok(_) => self.next = end,
                Err(error @ Error::RequestTooLarge { .. }) => {
                    let (rows, reason) = (vec![first], error.to_string());
                    return Err(EndpointError::Refused { rows, reason });
                }
                Err(error) => return Err(judged(error)),
            }
        }
    }

    fn number_of(&self, row: u64) -> i64 {
        self.base + row as i64
    }

    /// Rows from `start` on, as many as go to the queue at once.
    fn messages(&mut self, rows: &Rows, start: usize) -> Vec<(i64, NewMessage)> {
        let end = rows.chunk.rows().min(start + ROWS_MAX);
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for row in start..end {
            let mut line = Vec::new();
            self.writer.write_rows(&rows.chunk, row..row + 1, &mut line);
            line.pop();
            bytes += line.len();
            if bytes > BYTES_MAX && !messages.is_empty() {
                break;
            }
            let number = self.number_of(rows.first + row as u64);
            let content = Content {
                body: Bytes::from(line),
                id: Some(message_id(&self.id, number)),
                session: self.session(rows, row),
                content_type: Some("application/json".to_owned()),
                properties: Vec::new(),
            };
            let message = NewMessage {
                content,
                ..NewMessage::default()
            };
            messages.push((number, message));
        }
        messages
    }

    fn session(&self, rows: &Rows, row: usize) -> Option<String> {
        let column = self.output.session.as_ref()?;
        let value = self.names.value(&rows.chunk, row, column);
        let mut text = String::new();
        eval::write_text(value, &mut text);
        (!value.is_null()).then_some(text)
    }
}

/// `job/output/number`, of which the end counts where names are long.
fn message_id(output: &str, number: i64) -> String {
    let id = format!("{output}/{number}");
    let long = id.len().saturating_sub(ID_BYTES_MAX);
    let start = (long..id.len()).find(|at| id.is_char_boundary(*at));
    id[start.unwrap_or(0)..].to_owned()
}

fn judged(error: Error) -> EndpointError {
    match error {
        Error::Refused(Refusal::Full { .. }) | Error::Log(_) | Error::Stopped(_) => {
            EndpointError::unavailable(error)
        }
        other => EndpointError::unfit(other),
    }
}

impl Endpoint for QueueEndpoint {
    fn resume<'a>(&'a mut self, mark: Option<&'a [u8]>) -> Underway<'a, Result<(), EndpointError>> {
        Box::pin(self.find_out(mark))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> Underway<'a, Result<(), EndpointError>> {
        Box::pin(self.hand_over(rows))
    }

    fn settle(&mut self) -> Underway<'_, Result<Vec<u8>, EndpointError>> {
        let mut mark = mark::begin(Kind::Queue);
        mark.i64(self.base);
        Box::pin(std::future::ready(Ok(mark)))
    }
}
