//! Links: credit in both directions.

use bytes::{Bytes, BytesMut};

use super::LinkId;
use crate::performative::{Attach, Flow};

pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) end: LinkEnd,
    /// The client's request, until it is answered.
    pub(super) request: Option<Box<Attach>>,
    /// The last flow before the answer: some clients give credit without waiting for it.
    pub(super) early_flow: Option<Box<Flow>>,
}

/// Our end of a link.
pub(super) enum LinkEnd {
    /// The owner has not answered yet.
    Attaching,
    Receiver(Incoming),
    Sender(Outgoing),
    /// We have detached, and the client has not confirmed it.
    Detached,
}

/// A link that the client sends on.
pub(super) struct Incoming {
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    /// Credit and unsettled deliveries together never exceed it.
    pub(super) credit_max: u32,
    /// Deliveries that the owner has not settled.
    pub(super) unsettled: u32,
    pub(super) message_bytes_max: u64,
    pub(super) incomplete: Option<Incomplete>,
}

/// A message whose last frame has not come.
pub(super) struct Incomplete {
    pub(super) id: u32,
    pub(super) message_format: u32,
    pub(super) settled: bool,
    pub(super) transaction: Option<Bytes>,
    pub(super) payload: BytesMut,
    /// All bytes of it so far. The payload of a message that is too large is dropped.
    pub(super) bytes: u64,
}

/// A link that we send on.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    /// The client wants its credit used up or taken back.
    pub(super) drain: bool,
}

impl Link {
    pub(super) fn new(id: LinkId, request: Box<Attach>) -> Link {
        Link {
            id,
            end: LinkEnd::Attaching,
            request: Some(request),
            early_flow: None,
        }
    }

    pub(super) fn incomplete_bytes(&self) -> usize {
        match &self.end {
            LinkEnd::Receiver(incoming) => {
                let incomplete = incoming.incomplete.as_ref();
                incomplete.map_or(0, |incomplete| incomplete.payload.len())
            }
            _ => 0,
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.end, LinkEnd::Receiver(_) | LinkEnd::Sender(_))
    }

    /// The state of the link, added to that of its session.
    pub(super) fn flow(&self, handle: u32, state: Flow) -> Flow {
        let (delivery_count, link_credit, drain) = match &self.end {
            LinkEnd::Receiver(incoming) => (incoming.delivery_count, incoming.credit, false),
            LinkEnd::Sender(outgoing) => (outgoing.delivery_count, outgoing.credit, outgoing.drain),
            LinkEnd::Attaching | LinkEnd::Detached => (0, 0, false),
        };
        Flow {
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(link_credit),
            available: Some(0),
            drain,
            ..state
        }
    }
}

impl Outgoing {
    /// Applies the credit of a flow frame.
    pub(super) fn update(&mut self, flow: &Flow) {
        // A client that has not seen our Attach counts from where we begin.
        let seen = flow.delivery_count.unwrap_or(0);
        let on_the_way = self.delivery_count.wrapping_sub(seen);
        let given = flow.link_credit.unwrap_or(0);
        self.credit = given.saturating_sub(on_the_way);
        self.drain = flow.drain;
    }
}

impl Incoming {
    /// Renews the credit when enough is used to justify a flow frame. True if one must be sent.
    pub(super) fn renew_credit(&mut self) -> bool {
        if self.credit > self.credit_max / 2 {
            return false;
        }
        let credit = self.credit_max - self.unsettled;
        let renew = credit > self.credit;
        self.credit = credit;
        renew
    }
}
