//! Sessions: the transfer windows of both directions, and incoming frames.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::link::{Incomplete, Link, LinkEnd, ReceiverLink};
use super::{Connection, Delivery, Event, LinkHandle, LinkId, Outcome, transaction};
use crate::error::{AmqpError, ProtocolError, condition};
use crate::frame::{self, FrameKind};
use crate::performative::{Begin, Flow, Transfer};

/// A message may be this many times as large as its link takes, and is rejected; a larger one ends the link.
const EXCESS_MAX: u64 = 16;

pub(super) struct Session {
    pub(super) links: BTreeMap<u32, Link>,
    next_incoming_id: u32,
    /// Transfers that the client may still send.
    pub(super) incoming_window: u32,
    incoming_window_max: u32,
    pub(super) next_outgoing_id: u32,
    /// Transfers that we may still send.
    pub(super) remote_window: u32,
    pub(super) next_delivery_id: u32,
    /// The rest of a message that did not fit into the window. Nothing else is sent on the session before it.
    pub(super) unsent: Option<UnsentMessage>,
    /// Messages with a tag that the client has not settled, by delivery id.
    pub(super) tracked: BTreeMap<u32, (LinkId, [u8; 16])>,
    /// Whether any message was tracked.
    pub(super) tracks: bool,
}

/// The rest of a message.
pub(super) struct UnsentMessage {
    pub(super) link: LinkId,
    pub(super) transfer: Transfer,
    pub(super) payload: Bytes,
}

impl Session {
    pub(super) fn new(begin: &Begin, incoming_window: u32) -> Session {
        Session {
            links: BTreeMap::new(),
            next_incoming_id: begin.next_outgoing_id,
            incoming_window,
            incoming_window_max: incoming_window,
            next_outgoing_id: 0,
            remote_window: begin.incoming_window,
            next_delivery_id: 0,
            unsent: None,
            tracked: BTreeMap::new(),
            tracks: false,
        }
    }

    /// The state of the session, to which that of a link can be added.
    pub(super) fn flow_state(&self) -> Flow {
        Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: self.incoming_window,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: self.incoming_window_max,
            ..Flow::default()
        }
    }

    /// Counts a transfer of the client. True if the window should be renewed.
    fn count_transfer(&mut self) -> Result<bool, ProtocolError> {
        let left = self.incoming_window.checked_sub(1).ok_or_else(|| {
            let description = "a session exceeds its window";
            ProtocolError::violation(condition::WINDOW_VIOLATION, description)
        })?;
        self.incoming_window = left;
        self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
        let renew = left <= self.incoming_window_max / 2;
        if renew {
            self.incoming_window = self.incoming_window_max;
        }
        Ok(renew)
    }

    /// Applies the windows of a flow frame.
    fn update_window(&mut self, flow: &Flow) {
        // A client that has not seen our Begin counts from where we begin.
        let seen = flow.next_incoming_id.unwrap_or(0);
        let on_the_way = self.next_outgoing_id.wrapping_sub(seen);
        self.remote_window = flow.incoming_window.saturating_sub(on_the_way);
    }
}

/// The result of a transfer for its link.
enum TransferResult {
    More,
    Aborted,
    Whole(Delivery),
    /// The message is not taken; the link stays.
    Rejected {
        id: u32,
        error: AmqpError,
    },
    /// The link ends.
    Refused(AmqpError),
}

impl Connection {
    pub(super) fn flow(&mut self, channel: u16, flow: &Flow) -> Result<(), ProtocolError> {
        let session = self.session(channel)?;
        let was_blocked = session.remote_window == 0 || session.unsent.is_some();
        session.update_window(flow);
        let mut reply = None;
        if let Some(handle) = flow.handle {
            let state = session.flow_state();
            let link = session.links.get_mut(&handle).ok_or_else(|| {
                let description = format!("handle {handle} is not attached");
                ProtocolError::violation(condition::UNATTACHED_HANDLE, description)
            })?;
            match &mut link.end {
                LinkEnd::Sender(outgoing) => outgoing.update(flow),
                LinkEnd::Attaching => link.early_flow = Some(Box::new(flow.clone())),
                LinkEnd::Receiver(_) | LinkEnd::Detached => {}
            }
            if flow.echo && link.is_live() {
                reply = Some(link.flow(handle, state));
            }
        } else if flow.echo {
            reply = Some(session.flow_state());
        }
        if let Some(reply) = reply {
            frame::put(&mut self.output, FrameKind::Amqp, channel, |out| {
                reply.write(out)
            });
        }
        self.flush_unsent(channel);
        if let Some(handle) = flow.handle {
            self.answer_empty_drain(LinkHandle { channel, handle });
        }
        match (was_blocked, flow.handle) {
            (true, _) => self.report_credit(channel, None),
            (false, Some(handle)) => self.report_credit(channel, Some(handle)),
            (false, None) => {}
        }
        Ok(())
    }

    /// Tells the owner for which links of a session the credit or the window has changed: this one or all of them.
    fn report_credit(&mut self, channel: u16, handle: Option<u32>) {
        let Some(session) = self.sessions.get(&channel) else {
            return;
        };
        let concerned = |at: &u32| handle.is_none_or(|handle| handle == *at);
        let links = session.links.iter().filter(|(at, _)| concerned(at));
        for (_, link) in links {
            if matches!(&link.end, LinkEnd::Sender(_)) {
                self.events.push_back(Event::Credit { link: link.id });
            }
        }
    }

    pub(super) fn transfer(
        &mut self,
        channel: u16,
        transfer: &Transfer,
        payload: Bytes,
    ) -> Result<(), ProtocolError> {
        let incomplete_max = self.options.incomplete_bytes_max;
        let session = self.session(channel)?;
        let renew = session.count_transfer()?;
        let renewed = renew.then(|| session.flow_state());
        let link = session.links.get_mut(&transfer.handle).ok_or_else(|| {
            let description = format!("handle {} is not attached", transfer.handle);
            ProtocolError::violation(condition::UNATTACHED_HANDLE, description)
        })?;
        let (id, before) = (link.id, link.incomplete_bytes());
        let arrival = match &mut link.end {
            LinkEnd::Receiver(incoming) => incoming.transfer(id, transfer, payload)?,
            // In flight when the link was detached.
            LinkEnd::Detached => TransferResult::More,
            LinkEnd::Sender(_) | LinkEnd::Attaching => {
                let description = "a transfer on a link that the client does not send on";
                return Err(ProtocolError::violation(
                    condition::NOT_ALLOWED,
                    description,
                ));
            }
        };
        let after = link.incomplete_bytes();
        self.incomplete_bytes = self.incomplete_bytes + after - before;
        if self.incomplete_bytes > incomplete_max {
            let description = "the connection has too many bytes of incomplete messages";
            let condition = condition::RESOURCE_LIMIT_EXCEEDED;
            return Err(ProtocolError::violation(condition, description));
        }
        if let Some(flow) = renewed {
            frame::put(&mut self.output, FrameKind::Amqp, channel, |out| {
                flow.write(out)
            });
        }
        match arrival {
            TransferResult::More => {}
            TransferResult::Aborted => {
                let handle = transfer.handle;
                self.renew_credit(LinkHandle { channel, handle });
            }
            TransferResult::Whole(delivery) => self.events.push_back(Event::Delivery(delivery)),
            TransferResult::Rejected {
                id: delivery,
                error,
            } => self.settle(id, delivery, delivery, &Outcome::Rejected(error)),
            TransferResult::Refused(error) => {
                self.detach_link(id, error);
                self.events.push_back(Event::Detached { link: id });
            }
        }
        Ok(())
    }
}

impl ReceiverLink {
    /// A message that is too large is rejected when its last frame has come: clients report that better than the end of
    /// their link. The link ends if nobody waits for the answer, or if the message goes on for too long.
    fn too_large(&mut self, mut incomplete: Incomplete, more: bool) -> TransferResult {
        let description = format!(
            "a message is larger than the {} bytes that the link takes",
            self.message_bytes_max
        );
        let error = AmqpError::new(condition::MESSAGE_SIZE_EXCEEDED, description);
        let bytes_max = self.message_bytes_max.saturating_mul(EXCESS_MAX);
        if incomplete.settled || incomplete.bytes > bytes_max {
            return TransferResult::Refused(error);
        }
        let id = incomplete.id;
        if more {
            incomplete.payload = BytesMut::new();
            self.incomplete = Some(incomplete);
            return TransferResult::More;
        }
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit -= 1;
        self.unsettled += 1;
        TransferResult::Rejected { id, error }
    }

    fn transfer(
        &mut self,
        link: LinkId,
        transfer: &Transfer,
        payload: Bytes,
    ) -> Result<TransferResult, ProtocolError> {
        let first = match self.incomplete.take() {
            Some(incomplete) => incomplete,
            None => {
                let id = transfer.delivery_id.ok_or_else(|| {
                    let description = "the first transfer of a delivery has no delivery-id";
                    ProtocolError::violation(condition::INVALID_FIELD, description)
                })?;
                if self.credit == 0 {
                    let error = AmqpError::new(
                        condition::TRANSFER_LIMIT_EXCEEDED,
                        "the link has no credit for another message",
                    );
                    return Ok(TransferResult::Refused(error));
                }
                Incomplete {
                    id,
                    message_format: transfer.message_format.unwrap_or(0),
                    settled: false,
                    transaction: transaction::id_of(&transfer.state),
                    payload: BytesMut::new(),
                    bytes: 0,
                }
            }
        };
        let mut incomplete = first;
        incomplete.settled |= transfer.settled;
        if transfer.aborted {
            self.delivery_count = self.delivery_count.wrapping_add(1);
            self.credit -= 1;
            return Ok(TransferResult::Aborted);
        }
        incomplete.bytes += payload.len() as u64;
        if incomplete.bytes > self.message_bytes_max {
            return Ok(self.too_large(incomplete, transfer.more));
        }
        if transfer.more {
            incomplete.payload.extend_from_slice(&payload);
            self.incomplete = Some(incomplete);
            return Ok(TransferResult::More);
        }
        let payload = match incomplete.payload.is_empty() {
            true => payload,
            false => {
                incomplete.payload.extend_from_slice(&payload);
                incomplete.payload.freeze()
            }
        };
        self.delivery_count = self.delivery_count.wrapping_add(1);
        self.credit -= 1;
        self.unsettled += 1;
        Ok(TransferResult::Whole(Delivery {
            link,
            id: incomplete.id,
            message_format: incomplete.message_format,
            settled: incomplete.settled,
            transaction: incomplete.transaction,
            payload,
        }))
    }
}
