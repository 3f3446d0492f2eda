//! The requests of a connection that wait for their answers, in the order in which they came.
//!
//! Only the first is worked on, so that a client sees its requests done one after another. The
//! exception is what makes pipelining fast: a Produce is begun as soon as it is read, which gives it
//! its place in the log, if nothing but Produce and Fetch is before it. Behind anything else it
//! waits, because that may be the creation of its hub or the login of its client.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::Bytes;
use highwater_log::BoxFuture;
use kafka_protocol::messages::ApiKey;

use crate::answer::Outcome;
use crate::call::{ProtocolError, RequestHead};
use crate::memory_budget::Share;

pub(crate) type Work = BoxFuture<Result<Outcome, ProtocolError>>;

/// One request.
struct Entry {
    state: State,
    /// Produce or Fetch.
    is_data: bool,
    bytes: usize,
    /// Its share of what the server holds in memory, given back when the answer is there.
    _share: Share,
}

enum State {
    Waiting(RequestHead, Bytes),
    PendingProduce(Work),
}

#[derive(Default)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a request in, beginning it if its turn has come.
    pub fn push(
        &mut self,
        head: RequestHead,
        frame: Bytes,
        share: Share,
        begin: impl FnOnce(RequestHead, Bytes) -> Work,
    ) {
        let is_produce = head.key == ApiKey::Produce as i16;
        let is_data = is_produce || head.key == ApiKey::Fetch as i16;
        let bytes = frame.len();
        let now = is_produce && self.entries.iter().all(|entry| entry.is_data);
        let state = match now {
            true => State::PendingProduce(begin(head, frame)),
            false => State::Waiting(head, frame),
        };
        self.bytes += bytes;
        self.entries.push_back(Entry {
            state,
            is_data,
            bytes,
            _share: share,
        });
    }

    /// Puts the end of the connection behind everything that has come.
    pub fn push_refusal(&mut self, refusal: ProtocolError) {
        self.entries.push_back(Entry {
            state: State::PendingProduce(Box::pin(std::future::ready(Err(refusal)))),
            is_data: false,
            bytes: 0,
            _share: Share::default(),
        });
    }

    /// Begins the first request if it has not been.
    pub fn begin_first(&mut self, begin: impl FnOnce(RequestHead, Bytes) -> Work) {
        if let Some(entry) = self.entries.front_mut()
            && let State::Waiting(head, frame) = &mut entry.state
        {
            entry.state = State::PendingProduce(begin(*head, std::mem::take(frame)));
        }
    }

    /// What the first request comes to. Waits for ever if there is none that was begun.
    pub async fn first(&mut self) -> Result<Outcome, ProtocolError> {
        let outcome = poll_fn(|context| match self.entries.front_mut() {
            Some(Entry {
                state: State::PendingProduce(work),
                ..
            }) => work.as_mut().poll(context),
            _ => std::task::Poll::Pending,
        })
        .await;
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes;
        }
        outcome
    }
}
