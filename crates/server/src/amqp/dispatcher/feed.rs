//! Deliveries to the client: replies and events, as far as credit, output and quota reach.

use futures_util::future::{AbortHandle, Abortable};
use highwater_access::{Resource, Usage};
use highwater_amqp::{AmqpError, LinkId, OutgoingMessage};

use super::{Completion, Dispatcher, OUTPUT_BYTES_MAX};
use crate::amqp::consumer::ReadBatch;
use crate::amqp::links::{self, Link};
use crate::amqp::operations;

impl Dispatcher {
    pub(super) fn finish_read(&mut self, link: LinkId, result: Result<ReadBatch, AmqpError>) {
        let Some(Link::Consumer(consumer)) = self.links.get_mut(&link) else {
            return;
        };
        consumer.reading = None;
        match result {
            Ok(batch) => {
                consumer.cursor.next = batch.next;
                consumer.ready = batch.messages;
                consumer.share = batch.share;
                self.feed(link);
            }
            Err(error) => self.end_link(link, error),
        }
    }

    /// Sends the pending messages of a link within credit, output and quota; reads more if nothing waits.
    pub(super) fn feed(&mut self, link: LinkId) {
        match self.links.get_mut(&link) {
            Some(Link::Replies(replies)) => {
                while self.machine.sendable(link) > 0
                    && let Some((payload, _share)) = replies.ready.pop_front()
                {
                    let reply = OutgoingMessage {
                        payload,
                        settled: false,
                        tag: None,
                    };
                    self.machine.send(link, reply);
                }
            }
            Some(Link::Consumer(_)) => self.feed_consumer(link),
            Some(Link::QueueReceiver(_)) => self.feed_receiver(link),
            _ => {}
        }
    }

    fn feed_consumer(&mut self, link: LinkId) {
        let Some(Link::Consumer(consumer)) = self.links.get_mut(&link) else {
            return;
        };
        if self.machine.sendable(link) == 0 {
            return;
        }
        let hub = Resource::Hub(consumer.hub());
        let (path, operation) = (&consumer.path, consumer.operation);
        let allowed = operations::authorize(&self.credentials, path, operation, hub);
        let allowed = allowed.and_then(|caller| {
            links::authorize_group(&self.credentials, path, operation, &consumer.group)?;
            Ok(caller)
        });
        let caller = match allowed {
            Ok(caller) => caller,
            Err(error) => return self.end_link(link, error),
        };
        let (mut events, mut bytes) = (0, 0);
        let settled = consumer.settled;
        while self.machine.output_len() < OUTPUT_BYTES_MAX
            && self.throttle.is_zero()
            && self.machine.sendable(link) > 0
            && let Some(payload) = consumer.ready.pop_front()
        {
            (events, bytes) = (events + 1, bytes + payload.len() as u64);
            let message = OutgoingMessage {
                payload,
                settled,
                tag: None,
            };
            self.machine.send(link, message);
        }
        if consumer.ready.is_empty() {
            consumer.share = Default::default();
            if consumer.is_at_end() {
                self.machine.finish_drain(link);
            }
        } else if self.machine.sendable(link) > 0 {
            self.blocked.push(link);
        }
        self.broker.metrics.events_out.add(events);
        self.charge(&caller, Usage::BytesOut, bytes);
        self.start_read(link);
    }

    /// Reads on for a link that has credit and nothing to send.
    fn start_read(&mut self, link: LinkId) {
        let Some(Link::Consumer(consumer)) = self.links.get_mut(&link) else {
            return;
        };
        let is_hungry = consumer.ready.is_empty() && consumer.reading.is_none();
        if !is_hungry || self.machine.sendable(link) == 0 {
            return;
        }
        let (abort, registration) = AbortHandle::new_pair();
        consumer.reading = Some(abort);
        let read = consumer.cursor.clone().read(self.broker.clone());
        self.push(async move {
            match Abortable::new(read, registration).await {
                Ok(result) => Completion::Read { link, result },
                Err(_) => Completion::Abandoned,
            }
        });
    }

    /// Feeds the links that waited for room in the output or for the quota.
    pub(in crate::amqp) fn feed_blocked(&mut self) {
        if self.machine.output_len() < OUTPUT_BYTES_MAX / 2 && self.throttle.is_zero() {
            for link in std::mem::take(&mut self.blocked) {
                self.feed(link);
            }
        }
    }
}
