//! The requests of a connection that are in flight, in the order of their arrival.
//!
//! Only the first is handled, so that a client sees its requests executed in order. The exception makes pipelining
//! fast: a Produce with only Produce and Fetch requests before it is enqueued in the log as soon as it is read.
//! Behind any other request it waits, because that may create its hub or log its client in.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::Bytes;
use highwater_env::MemoryShare;
use highwater_log::BoxFuture;
use kafka_protocol::messages::ApiKey;

use crate::request::{ProtocolError, RequestHead};
use crate::response::EncodedResponse;

pub(crate) type Work = BoxFuture<Result<EncodedResponse, ProtocolError>>;

/// A request in flight.
struct Entry {
    state: State,
    /// Produce or Fetch.
    is_data: bool,
    bytes: usize,
    /// Its memory, released with the response.
    _share: MemoryShare,
}

enum State {
    Waiting(RequestHead, Bytes),
    Started(Work),
}

#[derive(Default)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a request, and starts it if it is its turn.
    pub(crate) fn push(
        &mut self,
        head: RequestHead,
        frame: Bytes,
        share: MemoryShare,
        begin: impl FnOnce(RequestHead, Bytes) -> Work,
    ) {
        let is_produce = head.key == ApiKey::Produce as i16;
        let is_data = is_produce || head.key == ApiKey::Fetch as i16;
        let bytes = frame.len();
        let now = is_produce && self.entries.iter().all(|entry| entry.is_data);
        let state = match now {
            true => State::Started(begin(head, frame)),
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

    /// Queues an error, which ends the connection after the requests before it.
    pub(crate) fn push_error(&mut self, error: ProtocolError) {
        self.entries.push_back(Entry {
            state: State::Started(Box::pin(std::future::ready(Err(error)))),
            is_data: false,
            bytes: 0,
            _share: MemoryShare::default(),
        });
    }

    /// Starts the first request, unless it has been started.
    pub(crate) fn begin_first(&mut self, begin: impl FnOnce(RequestHead, Bytes) -> Work) {
        if let Some(entry) = self.entries.front_mut()
            && let State::Waiting(head, frame) = &mut entry.state
        {
            entry.state = State::Started(begin(*head, std::mem::take(frame)));
        }
    }

    /// The response to the first request. Never ready if no request was started.
    pub(crate) async fn first(&mut self) -> Result<EncodedResponse, ProtocolError> {
        let response = poll_fn(|context| match self.entries.front_mut() {
            Some(Entry {
                state: State::Started(work),
                ..
            }) => work.as_mut().poll(context),
            _ => std::task::Poll::Pending,
        })
        .await;
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes;
        }
        response
    }
}
