//! Rows as messages of a queue, exactly once: the queue stores the position of the output in the same batch as the
//! messages.
//!
//! To the queue an output is a feed like that of a hub: every message has a number, and the queue skips the numbers it
//! has. An output that starts from the beginning continues the numbers of the feed, so that no number and no message id
//! is used for two rows; the first number is part of its state.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use highwater_codec::Writer;
use highwater_engine::eval;
use highwater_query::plan::Name;
use highwater_queue::{Content, Error, ID_BYTES_MAX, NewMessage, Queue, Queues, Refusal};

use super::state::{self, EndpointKind};
use super::{
    Destination, Endpoint, EndpointError, EndpointFuture, OpenResult, OutputContext, OutputKind,
    OutputSettings, Rows,
};
use crate::json::JsonWriter;
use crate::rows::RowNames;

/// The settings of an output to a queue.
#[derive(Clone, Debug)]
struct QueueOutput {
    queue: String,
    /// The column whose value is the session of a message.
    session: Option<String>,
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "queue",
    keys: &["queue", "session"],
    read: |reader, section| {
        Some(Arc::new(QueueOutput {
            queue: reader.required_text(section, "queue", "orders")?,
            session: reader.text(section, "session", "plate"),
        }))
    },
    missing_feature: None,
};

impl OutputSettings for QueueOutput {
    fn destination(&self) -> Option<Destination<'_>> {
        Some(Destination::Queue(&self.queue))
    }

    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult {
        let queues = context.queues.clone().ok_or_else(|| {
            EndpointError::unfit("there are no queues here: run the job with `highwater up`")
        })?;
        let row_names = RowNames::new(names.clone());
        if let Some(column) = &self.session
            && !row_names.may_have(column)
        {
            let reason = format!("the output has no column `{column}` for its session");
            return Err(EndpointError::unfit(reason));
        }
        Ok(Box::new(QueueEndpoint {
            output: self.clone(),
            id: context.id(),
            queues,
            names: row_names,
            writer: JsonWriter::new(names),
            base: 0,
            next: 0,
        }))
    }
}

/// The limits of one request to the queue: rows, and bytes unless a single row is longer.
const ROWS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

struct QueueEndpoint {
    output: QueueOutput,
    /// `job/output`
    id: String,
    queues: Queues,
    names: RowNames,
    writer: JsonWriter,
    /// The queue's number of row 0.
    base: i64,
    /// The number of the row after the last one in the queue.
    next: u64,
}

impl QueueEndpoint {
    fn queue(&self) -> Result<Queue, EndpointError> {
        let name = &self.output.queue;
        let missing = || EndpointError::unfit(format!("there is no queue `{name}`"));
        self.queues.get(name).ok_or_else(missing)
    }

    async fn load_position(&mut self, state: Option<&[u8]>) -> Result<(), EndpointError> {
        let position = self.queue()?.feed_position(self.id.clone(), 0).await;
        let position = position.map_err(endpoint_error)?.unwrap_or(0);
        self.base = match state {
            Some(state) => {
                let base = state::open(EndpointKind::Queue, state)?.i64();
                base.map_err(state::damaged)?
            }
            None => position,
        };
        // A queue that was deleted and recreated has no position.
        self.next = position.saturating_sub(self.base).max(0) as u64;
        Ok(())
    }

    async fn send(&mut self, rows: &Rows) -> Result<(), EndpointError> {
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
                Err(error) => return Err(endpoint_error(error)),
            }
        }
    }

    fn number_of(&self, row: u64) -> i64 {
        self.base + row as i64
    }

    /// Messages for the rows from `start` on, as many as fit into one request.
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

/// `job/output/number`, without its start if it is too long.
fn message_id(output: &str, number: i64) -> String {
    let id = format!("{output}/{number}");
    let long = id.len().saturating_sub(ID_BYTES_MAX);
    let start = (long..id.len()).find(|at| id.is_char_boundary(*at));
    id[start.unwrap_or(0)..].to_owned()
}

fn endpoint_error(error: Error) -> EndpointError {
    match error {
        Error::Refused(Refusal::Full { .. }) | Error::Log(_) | Error::Stopped(_) => {
            EndpointError::unavailable(error)
        }
        other => EndpointError::unfit(other),
    }
}

impl Endpoint for QueueEndpoint {
    fn resume<'a>(&'a mut self, state: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        Box::pin(self.load_position(state))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()> {
        Box::pin(self.send(rows))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        let mut state = state::begin(EndpointKind::Queue);
        state.i64(self.base);
        Box::pin(std::future::ready(Ok(state)))
    }
}
