//! The order of probes of a half-open circuit.
//!
//! Waiting events have tickets in order: those with the fewest probes first, and among them the longest waiting. So
//! every held event probes once before any probes twice, whatever its partition or key. A bad event uses up its probes
//! only as fast as the others do, and an outage costs each event an equal share.

use std::collections::BTreeSet;

/// A position in a [`ProbeQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProbeTicket {
    /// Probes made so far.
    probes: u32,
    number: u64,
}

/// Events waiting to probe, and the number of probes in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeQueue {
    waiting: BTreeSet<ProbeTicket>,
    next: u64,
    under_way: u32,
}

impl ProbeQueue {
    /// Enqueues an event that has made this many probes.
    pub(crate) fn join(&mut self, probes: u32) -> ProbeTicket {
        let ticket = ProbeTicket {
            probes,
            number: self.next,
        };
        self.next += 1;
        self.waiting.insert(ticket);
        ticket
    }

    /// Removes a ticket. Returns whether it was waiting.
    pub(crate) fn leave(&mut self, ticket: ProbeTicket) -> bool {
        self.waiting.remove(&ticket)
    }

    /// Begins a probe if fewer than `probes_max` are in progress and it is this ticket's turn.
    pub(crate) fn begin(&mut self, ticket: ProbeTicket, probes_max: u32) -> bool {
        let free = probes_max.saturating_sub(self.under_way) as usize;
        let turn = self.waiting.iter().take(free).any(|next| *next == ticket);
        if turn {
            self.leave(ticket);
            self.under_way += 1;
        }
        turn
    }

    pub(crate) fn end(&mut self) {
        debug_assert!(self.under_way > 0, "action ends was begun");
        self.under_way = self.under_way.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_has_probed_goes_behind_those_who_have_not() {
        let mut queue = ProbeQueue::default();
        let [bad, good] = [0, 0].map(|probes| queue.join(probes));
        assert!(!queue.begin(good, 1), "the other one was first");
        assert!(queue.begin(bad, 1));
        queue.end();
        let bad = queue.join(1);
        assert!(!queue.begin(bad, 1));
        assert!(queue.begin(good, 1));
        assert!(!queue.begin(bad, 1), "one is under way");
        assert!(queue.begin(bad, 2));
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Probe {
        Away,
        /// Since when.
        Waiting(ProbeTicket, usize),
        Probing,
    }

    proptest! {
        // proves P4
        #[test]
        fn it_is_the_turn_of_those_who_have_probed_least_and_waited_longest(
            probes_max in 1u32..4,
            steps in prop::collection::vec((0usize..8, 0u8..4), 1..300),
        ) {
            let mut queue = ProbeQueue::default();
            let mut events = [(Probe::Away, 0u32); 8];
            for (now, (index, action)) in steps.into_iter().enumerate() {
                let (probe, probes) = events[index];
                events[index].0 = match (probe, action) {
                    (Probe::Away, _) => Probe::Waiting(queue.join(probes), now),
                    (Probe::Waiting(ticket, _), 0) => {
                        // Its pipeline was stopped.
                        queue.leave(ticket);
                        Probe::Away
                    }
                    (Probe::Waiting(ticket, since), _) => {
                        let under_way = events.iter().filter(|it| it.0 == Probe::Probing).count();
                        let ahead = events.iter().filter(|(other, of_other)| {
                            matches!(other, Probe::Waiting(_, before)
                                if (*of_other, *before) < (probes, since))
                        });
                        let turn = under_way + ahead.count() < probes_max as usize;
                        prop_assert_eq!(queue.begin(ticket, probes_max), turn);
                        if turn { Probe::Probing } else { probe }
                    }
                    (Probe::Probing, _) => {
                        queue.end();
                        events[index].1 += 1;
                        Probe::Away
                    }
                };
            }
        }

        // proves P4
        #[test]
        fn an_outage_costs_every_held_event_the_same(
            held in 1usize..20,
            probes_max in 1u32..4,
            rounds in 1u32..60,
        ) {
            let mut queue = ProbeQueue::default();
            let mut events: Vec<(ProbeTicket, u32)> = (0..held).map(|_| (queue.join(0), 0)).collect();
            for _ in 0..rounds {
                // They ask in an order of their own, the last ones first.
                let mut began = Vec::new();
                for (index, (ticket, _)) in events.iter().enumerate().rev() {
                    if queue.begin(*ticket, probes_max) {
                        began.push(index);
                    }
                }
                prop_assert_eq!(began.len(), held.min(probes_max as usize), "no turn is wasted");
                for index in began {
                    queue.end();
                    let probes = events[index].1 + 1;
                    events[index] = (queue.join(probes), probes);
                }
                let probes = events.iter().map(|(_, probes)| *probes);
                let (least, greatest) = (probes.clone().min(), probes.max());
                prop_assert!(greatest.unwrap() - least.unwrap() <= 1);
            }
        }
    }
}
