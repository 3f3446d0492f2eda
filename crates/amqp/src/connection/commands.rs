//! The owner's commands.

use bytes::{Bytes, BytesMut};

use super::disposition::TrackedDelivery;
use super::link::{LinkEnd, ReceiverLink, SenderLink};
use super::session::UnsentMessage;
use super::transaction::{DECLARED, TRANSACTIONAL_STATE};
use super::{Connection, Event, LinkHandle, LinkId};
use crate::error::AmqpError;
use crate::frame::{self, FrameKind, HEAD_LEN};
use crate::performative::{Attach, Detach, Disposition, Flow, Properties, Role, Transfer};
use crate::value::Value;

/// The terms on which a link is accepted.
#[derive(Clone, Debug, Default)]
pub struct LinkTerms {
    /// The largest message in either direction. Clients read it even where they only receive.
    pub message_bytes_max: u64,
    /// Deliveries that the client may have unsettled, if it sends.
    pub credit: u32,
    pub properties: Properties,
    /// The source to answer with, if it is not the one that the client asked for.
    pub source: Option<Value<'static>>,
    /// The client may wait for a confirmation of its dispositions, see [`Connection::confirm`].
    pub confirms: bool,
}

/// The outcome of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accepted,
    Rejected(AmqpError),
    /// A message to the client was rejected as the client wanted.
    RejectedByClient,
    Released,
    Modified,
    /// A transaction has begun.
    Declared(Bytes),
    /// The outcome counts when the transaction is committed.
    InTransaction {
        id: Bytes,
        outcome: Box<Outcome>,
    },
}

/// A message to the client.
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    pub payload: Bytes,
    /// The client need not settle it.
    pub settled: bool,
    /// Tells dispositions of this message from others. A message without a tag may be settled by anything.
    pub tag: Option<[u8; 16]>,
}

/// Space for the performative of a transfer in a frame.
const TRANSFER_BYTES_MAX: usize = 96;

pub(super) const ACCEPTED: u64 = 0x24;
pub(super) const REJECTED: u64 = 0x25;
pub(super) const RELEASED: u64 = 0x26;
pub(super) const MODIFIED: u64 = 0x27;

impl Connection {
    /// Accepts a link. Source and target are sent back as they came, because clients compare them.
    pub fn accept_link(&mut self, link: LinkId, terms: LinkTerms) {
        let Some(link_handle) = self.handles.get(&link).copied() else {
            return;
        };
        let Some(request) = self.take_request(link_handle) else {
            return;
        };
        let mut reply = Attach {
            max_message_size: Some(terms.message_bytes_max),
            properties: terms.properties,
            ..reply_to(&request)
        };
        if let Some(source) = terms.source {
            reply.source = source;
        }
        if terms.confirms {
            reply.rcv_settle_mode = request.rcv_settle_mode;
        }
        self.write(link_handle.channel, |out| reply.write(out));
        let early_flow = self.take_early_flow(link_handle);
        let end = match request.role {
            Role::Receiver => {
                let mut outgoing = SenderLink::default();
                if let Some(flow) = &early_flow {
                    outgoing.update(flow);
                    self.events.push_back(Event::Credit { link });
                }
                LinkEnd::Sender(outgoing)
            }
            Role::Sender => LinkEnd::Receiver(ReceiverLink {
                delivery_count: request.initial_delivery_count.unwrap_or(0),
                credit: 0,
                credit_max: terms.credit,
                unsettled: 0,
                message_bytes_max: terms.message_bytes_max,
                incomplete: None,
            }),
        };
        if let Some(attaching) = self.link_end(link_handle) {
            *attaching = end;
        }
        self.renew_credit(link_handle);
        if early_flow.is_some() {
            self.answer_empty_drain(link_handle);
        }
    }

    /// Refuses a link: an Attach without the terminus that was asked for, then a Detach with the error.
    pub fn refuse_link(&mut self, link: LinkId, error: AmqpError) {
        let Some(link_handle) = self.handles.get(&link).copied() else {
            return;
        };
        if let Some(request) = self.take_request(link_handle) {
            let mut reply = reply_to(&request);
            match request.role {
                Role::Receiver => reply.source = Value::Null,
                Role::Sender => reply.target = Value::Null,
            }
            self.write(link_handle.channel, |out| reply.write(out));
        }
        self.detach_link(link, error);
    }

    /// Ends a link with an error for the client.
    pub fn detach_link(&mut self, link: LinkId, error: AmqpError) {
        let Some(link_handle) = self.handles.remove(&link) else {
            return;
        };
        self.forget_tracked(link_handle.channel, link);
        let Some(session) = self.sessions.get_mut(&link_handle.channel) else {
            return;
        };
        if let Some(link) = session.links.get_mut(&link_handle.handle) {
            self.incomplete_bytes -= link.incomplete_bytes();
            link.end = LinkEnd::Detached;
        }
        if session
            .unsent
            .as_ref()
            .is_some_and(|unsent| unsent.link == link)
        {
            session.unsent = None;
        }
        let detach = Detach {
            handle: link_handle.handle,
            closed: true,
            error: Some(error),
        };
        self.write(link_handle.channel, |out| detach.write(out));
    }

    /// Settles the deliveries `first..=last`, which must be consecutive deliveries of one link.
    pub fn settle(&mut self, link: LinkId, first: u32, last: u32, outcome: &Outcome) {
        let Some(link_handle) = self.handles.get(&link).copied() else {
            return;
        };
        let disposition = Disposition {
            role: Role::Receiver,
            first,
            last: Some(last),
            settled: true,
            state: outcome.state(),
            batchable: false,
        };
        self.write(link_handle.channel, |out| disposition.write(out));
        self.release(link, last.wrapping_sub(first).saturating_add(1));
    }

    /// Completes deliveries that their client has settled itself.
    pub fn release(&mut self, link: LinkId, count: u32) {
        let Some(link_handle) = self.handles.get(&link).copied() else {
            return;
        };
        if let Some(LinkEnd::Receiver(incoming)) = self.link_end(link_handle) {
            let unsettled = incoming.unsettled;
            debug_assert!(unsettled >= count, "every delivery is settled once");
            incoming.unsettled = unsettled.saturating_sub(count);
        }
        self.renew_credit(link_handle);
    }

    /// The number of messages that a link may send now.
    pub fn sendable(&self, link: LinkId) -> u32 {
        let link_handle = self.handles.get(&link);
        let session = link_handle.and_then(|link_handle| self.sessions.get(&link_handle.channel));
        let (Some(link_handle), Some(session)) = (link_handle, session) else {
            return 0;
        };
        match session.links.get(&link_handle.handle).map(|link| &link.end) {
            Some(LinkEnd::Sender(outgoing)) if session.unsent.is_none() => {
                outgoing.credit.min(session.remote_window)
            }
            _ => 0,
        }
    }

    /// The link credit, regardless of the session window.
    pub fn credit(&self, link: LinkId) -> u32 {
        self.outgoing(link).map_or(0, |outgoing| outgoing.credit)
    }

    /// Whether the client wants its credit used up or taken back, see [`Connection::finish_drain`].
    pub fn is_draining(&self, link: LinkId) -> bool {
        self.outgoing(link).is_some_and(|outgoing| outgoing.drain)
    }

    fn outgoing(&self, link: LinkId) -> Option<&SenderLink> {
        let link_handle = self.handles.get(&link)?;
        let session = self.sessions.get(&link_handle.channel)?;
        match &session.links.get(&link_handle.handle)?.end {
            LinkEnd::Sender(outgoing) => Some(outgoing),
            _ => None,
        }
    }

    /// Sends a message on a link that is [`Connection::sendable`]; false if it is not.
    pub fn send(&mut self, link: LinkId, message: OutgoingMessage) -> bool {
        if self.sendable(link) == 0 {
            return false;
        }
        let Some(link_handle) = self.handles.get(&link).copied() else {
            return false;
        };
        let Some(session) = self.sessions.get_mut(&link_handle.channel) else {
            return false;
        };
        let id = session.next_delivery_id;
        session.next_delivery_id = id.wrapping_add(1);
        session.unsent = Some(UnsentMessage {
            link,
            transfer: Transfer {
                handle: link_handle.handle,
                delivery_id: Some(id),
                delivery_tag: Some(match &message.tag {
                    Some(tag) => Bytes::copy_from_slice(tag),
                    None => Bytes::copy_from_slice(&id.to_be_bytes()),
                }),
                message_format: Some(0),
                settled: message.settled,
                ..Transfer::default()
            },
            payload: message.payload,
        });
        if let Some(LinkEnd::Sender(outgoing)) = self.link_end(link_handle) {
            outgoing.delivery_count = outgoing.delivery_count.wrapping_add(1);
            outgoing.credit -= 1;
        }
        if let Some(tag) = message.tag.filter(|_| !message.settled) {
            self.track(link_handle.channel, link, TrackedDelivery { id, tag });
        }
        self.flush_unsent(link_handle.channel);
        true
    }

    /// Takes back the credit of a link whose client wants that, because there is nothing to send.
    pub fn finish_drain(&mut self, link: LinkId) {
        let Some(link_handle) = self.handles.get(&link).copied() else {
            return;
        };
        let Some(LinkEnd::Sender(outgoing)) = self.link_end(link_handle) else {
            return;
        };
        if !outgoing.drain {
            return;
        }
        let unused = std::mem::take(&mut outgoing.credit);
        outgoing.delivery_count = outgoing.delivery_count.wrapping_add(unused);
        self.write_link_flow(link_handle);
        if let Some(LinkEnd::Sender(outgoing)) = self.link_end(link_handle) {
            outgoing.drain = false;
        }
    }

    /// A client that takes back its credit and drains gets its answer at once.
    pub(super) fn answer_empty_drain(&mut self, link_handle: LinkHandle) {
        let session = self.sessions.get(&link_handle.channel);
        let link = session.and_then(|session| session.links.get(&link_handle.handle));
        if let Some(link) = link
            && matches!(&link.end, LinkEnd::Sender(outgoing) if outgoing.credit == 0)
        {
            self.finish_drain(link.id);
        }
    }

    /// Writes frames of the unsent message as far as the window reaches.
    pub(super) fn flush_unsent(&mut self, channel: u16) {
        let frame_max = self.peer_frame_bytes_max as usize;
        let payload_max = frame_max - HEAD_LEN - TRANSFER_BYTES_MAX;
        let Some(session) = self.sessions.get_mut(&channel) else {
            return;
        };
        while session.remote_window > 0
            && let Some(mut unsent) = session.unsent.take()
        {
            let part = unsent.payload.len().min(payload_max);
            let part = unsent.payload.split_to(part);
            unsent.transfer.more = !unsent.payload.is_empty();
            frame::put(&mut self.output, FrameKind::Amqp, channel, |out| {
                unsent.transfer.write(out);
                out.extend_from_slice(&part);
            });
            session.remote_window -= 1;
            session.next_outgoing_id = session.next_outgoing_id.wrapping_add(1);
            if unsent.transfer.more {
                session.unsent = Some(unsent);
            }
        }
    }

    pub(super) fn write(&mut self, channel: u16, write: impl FnOnce(&mut BytesMut)) {
        frame::put(&mut self.output, FrameKind::Amqp, channel, write);
    }

    fn take_request(&mut self, link_handle: LinkHandle) -> Option<Box<Attach>> {
        let session = self.sessions.get_mut(&link_handle.channel)?;
        session.links.get_mut(&link_handle.handle)?.request.take()
    }

    fn link_end(&mut self, link_handle: LinkHandle) -> Option<&mut LinkEnd> {
        let session = self.sessions.get_mut(&link_handle.channel)?;
        let link = session.links.get_mut(&link_handle.handle)?;
        Some(&mut link.end)
    }

    fn take_early_flow(&mut self, link_handle: LinkHandle) -> Option<Box<Flow>> {
        let session = self.sessions.get_mut(&link_handle.channel)?;
        session
            .links
            .get_mut(&link_handle.handle)?
            .early_flow
            .take()
    }

    pub(super) fn renew_credit(&mut self, link_handle: LinkHandle) {
        if let Some(LinkEnd::Receiver(incoming)) = self.link_end(link_handle)
            && incoming.renew_credit()
        {
            self.write_link_flow(link_handle);
        }
    }

    fn write_link_flow(&mut self, link_handle: LinkHandle) {
        let Some(session) = self.sessions.get(&link_handle.channel) else {
            return;
        };
        if let Some(link) = session.links.get(&link_handle.handle) {
            let flow = link.flow(link_handle.handle, session.flow_state());
            self.write(link_handle.channel, |out| flow.write(out));
        }
    }
}

/// The answer to a request for a link, from our end.
fn reply_to(request: &Attach) -> Attach {
    let (role, initial_delivery_count) = match request.role {
        Role::Sender => (Role::Receiver, None),
        Role::Receiver => (Role::Sender, Some(0)),
    };
    Attach {
        name: request.name.clone(),
        handle: request.handle,
        role,
        snd_settle_mode: request.snd_settle_mode.or(Some(2)),
        // A message is settled by one disposition, in either direction.
        rcv_settle_mode: Some(0),
        source: request.source.clone(),
        target: request.target.clone(),
        initial_delivery_count,
        ..Attach::default()
    }
}

impl Outcome {
    /// As a disposition carries it.
    pub(super) fn state(&self) -> Value<'static> {
        let described = |code: u64, fields: Vec<Value<'static>>| {
            Value::Described(Box::new((Value::U64(code), Value::List(fields))))
        };
        let binary = |id: &Bytes| Value::Binary(id.to_vec().into());
        match self {
            Outcome::Accepted => described(ACCEPTED, Vec::new()),
            Outcome::RejectedByClient => described(REJECTED, Vec::new()),
            Outcome::Released => described(RELEASED, Vec::new()),
            Outcome::Modified => described(MODIFIED, Vec::new()),
            Outcome::Declared(id) => described(DECLARED, vec![binary(id)]),
            Outcome::InTransaction { id, outcome } => {
                described(TRANSACTIONAL_STATE, vec![binary(id), outcome.state()])
            }
            Outcome::Rejected(error) => {
                let fields = vec![
                    Value::symbol(error.condition.clone().into_owned()),
                    Value::string(error.description.clone()),
                    Value::Map(Vec::new()),
                ];
                described(
                    REJECTED,
                    vec![described(crate::performative::ERROR, fields)],
                )
            }
        }
    }
}
