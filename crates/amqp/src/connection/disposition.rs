//! Messages to the client that it settles: unsettled deliveries, the client's outcomes, and our confirmation.
//!
//! Only messages with a tag are tracked. The oldest one is forgotten when there are too many, so that a client that
//! never settles holds a bounded amount of memory; settling a forgotten message is refused.

use std::ops::RangeInclusive;

use bytes::BytesMut;

use super::commands::{ACCEPTED, MODIFIED, REJECTED, RELEASED};
use super::{Connection, Event, LinkId, Outcome, transaction};
use crate::error::{AmqpError, ProtocolError};
use crate::performative::{Disposition, ERROR, Role};
use crate::value::Value;

/// A message that the client has not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackedDelivery {
    pub id: u32,
    pub tag: [u8; 16],
}

/// The outcome that a client chose for deliveries.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOutcome {
    pub kind: OutcomeKind,
    /// The map that came with it: the information of an error, or annotations to change.
    pub details: Vec<(Value<'static>, Value<'static>)>,
    /// The description of an error.
    pub description: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    Accepted,
    Rejected,
    Released,
    Modified {
        /// The client does not want the message again.
        undeliverable_here: bool,
    },
    /// A settlement without an outcome, or with one that is not known.
    None,
}

impl OutcomeKind {
    /// The confirmation of this decision: the same outcome, without an error.
    pub fn confirmation(self) -> Outcome {
        match self {
            OutcomeKind::Accepted | OutcomeKind::None => Outcome::Accepted,
            OutcomeKind::Rejected => Outcome::RejectedByClient,
            OutcomeKind::Released => Outcome::Released,
            OutcomeKind::Modified { .. } => Outcome::Modified,
        }
    }
}

impl ClientOutcome {
    fn of(state: &Value<'static>) -> ClientOutcome {
        let mut outcome = ClientOutcome {
            kind: OutcomeKind::None,
            details: Vec::new(),
            description: None,
        };
        let Value::Described(described) = state else {
            return outcome;
        };
        let (Value::U64(code), Value::List(fields)) = &**described else {
            return outcome;
        };
        let map = |value: Option<&Value<'static>>| {
            let entries = value.and_then(Value::as_map);
            entries.map(<[_]>::to_vec).unwrap_or_default()
        };
        outcome.kind = match *code {
            ACCEPTED => OutcomeKind::Accepted,
            REJECTED => {
                let error = fields.first().and_then(error_fields);
                outcome.details = map(error.and_then(|error| error.get(2)));
                let description = error.and_then(|error| error.get(1)?.as_text());
                outcome.description = description.map(str::to_owned);
                OutcomeKind::Rejected
            }
            RELEASED => OutcomeKind::Released,
            MODIFIED => {
                outcome.details = map(fields.get(2));
                OutcomeKind::Modified {
                    undeliverable_here: fields.get(1) == Some(&Value::Bool(true)),
                }
            }
            _ => OutcomeKind::None,
        };
        outcome
    }
}

fn error_fields<'a>(error: &'a Value<'static>) -> Option<&'a [Value<'static>]> {
    match error {
        Value::Described(described) if described.0 == Value::U64(ERROR) => described.1.as_list(),
        _ => None,
    }
}

impl Connection {
    /// The client settles messages, or asks for it.
    pub(super) fn disposition(
        &mut self,
        channel: u16,
        disposition: &Disposition,
    ) -> Result<(), ProtocolError> {
        let session = self.session(channel)?;
        // The client's own deliveries are settled by us.
        if disposition.role == Role::Sender || !session.tracks {
            return Ok(());
        }
        let first = disposition.first;
        let last = disposition.last.unwrap_or(first);
        let ids: Vec<u32> = match first <= last {
            true => session
                .tracked
                .range(first..=last)
                .map(|(id, _)| *id)
                .collect(),
            // The numbers have wrapped.
            false => {
                let before = session.tracked.range(first..).map(|(id, _)| *id);
                before
                    .chain(session.tracked.range(..=last).map(|(id, _)| *id))
                    .collect()
            }
        };
        let is_unknown = ids.is_empty();
        let transaction = transaction::id_of(&disposition.state);
        let outcome = ClientOutcome::of(transaction::outcome_of(&disposition.state));
        let mut events: Vec<(LinkId, Vec<TrackedDelivery>)> = Vec::new();
        for id in ids {
            let Some((link, tag)) = session.tracked.remove(&id) else {
                continue;
            };
            let delivery = TrackedDelivery { id, tag };
            match events.last_mut() {
                Some((same, deliveries)) if *same == link => deliveries.push(delivery),
                _ => events.push((link, vec![delivery])),
            }
        }
        for (link, deliveries) in events {
            self.tracked -= deliveries.len();
            self.events.push_back(Event::Disposition {
                link,
                deliveries,
                outcome: outcome.clone(),
                settled: disposition.settled,
                transaction: transaction.clone(),
            });
        }
        if is_unknown && !disposition.settled {
            let text = "The message is not known to the link any more.";
            let error = AmqpError::new(self.options.unknown_delivery.clone(), text);
            self.write_confirmation(channel, first..=last, &Outcome::Rejected(error));
        }
        Ok(())
    }

    /// Sends the outcome of messages that the client settled, with consecutive ids `first..=last`.
    pub fn confirm(&mut self, link: LinkId, first: u32, last: u32, outcome: &Outcome) {
        if let Some(link_handle) = self.handles.get(&link).copied() {
            self.write_confirmation(link_handle.channel, first..=last, outcome);
        }
    }

    fn write_confirmation(&mut self, channel: u16, ids: RangeInclusive<u32>, outcome: &Outcome) {
        let disposition = Disposition {
            role: Role::Sender,
            first: *ids.start(),
            last: Some(*ids.end()),
            settled: true,
            state: outcome.state(),
            batchable: false,
        };
        self.write(channel, |out: &mut BytesMut| disposition.write(out));
    }

    /// Remembers a message until the client settles it.
    pub(super) fn track(&mut self, channel: u16, link: LinkId, delivery: TrackedDelivery) {
        let tracked_max = self.options.tracked_max;
        let Some(session) = self.sessions.get_mut(&channel) else {
            return;
        };
        session.tracks = true;
        if self.tracked >= tracked_max && session.tracked.pop_first().is_some() {
            self.tracked -= 1;
        }
        let before = session.tracked.insert(delivery.id, (link, delivery.tag));
        self.tracked += usize::from(before.is_none());
    }

    /// Forgets the deliveries of a closed link.
    pub(super) fn forget_tracked(&mut self, channel: u16, link: LinkId) {
        if let Some(session) = self.sessions.get_mut(&channel) {
            let before = session.tracked.len();
            session.tracked.retain(|_, (of, _)| *of != link);
            self.tracked -= before - session.tracked.len();
        }
    }
}
