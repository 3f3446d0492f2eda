//! Outcomes of deliveries, sent to the client in as few frames as possible.

use highwater_amqp::{Connection, LinkId, Outcome};

use super::dispatcher::DeliveryRef;

/// Outcomes that are not sent to the client yet.
#[derive(Default)]
pub(super) struct Settlements {
    decided: Vec<(DeliveryRef, Outcome)>,
}

/// Consecutive deliveries of a link with one outcome.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    link: LinkId,
    first: u32,
    last: u32,
    outcome: Outcome,
}

impl Settlements {
    pub(super) fn push(&mut self, delivery: DeliveryRef, outcome: Outcome) {
        self.decided.push((delivery, outcome));
    }

    pub(super) fn flush(&mut self, machine: &mut Connection) {
        if self.decided.is_empty() {
            return;
        }
        let mut range: Option<Range> = None;
        self.decided
            .sort_by_key(|(delivery, _)| (delivery.link, delivery.id));
        for (delivery, outcome) in self.decided.drain(..) {
            if delivery.settled {
                machine.release(delivery.link, 1);
                continue;
            }
            let joined = range
                .as_mut()
                .is_some_and(|range| range.join(&delivery, &outcome));
            if !joined {
                let next = Range {
                    link: delivery.link,
                    first: delivery.id,
                    last: delivery.id,
                    outcome,
                };
                if let Some(done) = range.replace(next) {
                    done.settle(machine);
                }
            }
        }
        if let Some(done) = range {
            done.settle(machine);
        }
    }
}

impl Range {
    fn join(&mut self, delivery: &DeliveryRef, outcome: &Outcome) -> bool {
        let follows = self.link == delivery.link
            && self.last.wrapping_add(1) == delivery.id
            && self.outcome == *outcome;
        if follows {
            self.last = delivery.id;
        }
        follows
    }

    fn settle(&self, machine: &mut Connection) {
        machine.settle(self.link, self.first, self.last, &self.outcome);
    }
}
