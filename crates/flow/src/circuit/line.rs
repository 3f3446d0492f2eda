//! Who may try next whether the trouble is over.
//!
//! Those who wait have a ticket, and the tickets are in order: whoever has probed the least comes first,
//! and of those who have probed as often the one who has waited the longest. So every event that is held
//! probes once before any probes twice, whatever partition or key it is of. A bad event uses up its
//! probes only as fast as all the others do, and an outage costs none of them more than its share.

use std::collections::BTreeSet;

/// A place in a [`Line`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// How often its holder has probed.
    probes: u32,
    number: u64,
}

/// Those who wait to probe, and how many do.
#[derive(Clone, Debug, Default)]
pub struct Line {
    waiting: BTreeSet<Ticket>,
    next: u64,
    under_way: u32,
}

impl Line {
    /// For somebody who has probed so often.
    pub fn join(&mut self, probes: u32) -> Ticket {
        let ticket = Ticket {
            probes,
            number: self.next,
        };
        self.next += 1;
        self.waiting.insert(ticket);
        ticket
    }

    /// Whether it was in the line.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        self.waiting.remove(&ticket)
    }

    /// Begins a probe if `most` may be under way and it is this one's turn.
    pub fn begin(&mut self, ticket: Ticket, most: u32) -> bool {
        let free = most.saturating_sub(self.under_way) as usize;
        let turn = self.waiting.iter().take(free).any(|next| *next == ticket);
        if turn {
            self.leave(ticket);
            self.under_way += 1;
        }
        turn
    }

    pub fn end(&mut self) {
        debug_assert!(self.under_way > 0, "what ends was begun");
        self.under_way = self.under_way.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_has_probed_goes_behind_those_who_have_not() {
        let mut line = Line::default();
        let [bad, good] = [0, 0].map(|probes| line.join(probes));
        assert!(!line.begin(good, 1), "the other one was first");
        assert!(line.begin(bad, 1));
        line.end();
        let bad = line.join(1);
        assert!(!line.begin(bad, 1));
        assert!(line.begin(good, 1));
        assert!(!line.begin(bad, 1), "one is under way");
        assert!(line.begin(bad, 2));
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Place {
        Away,
        /// Since when.
        Waiting(Ticket, usize),
        Probing,
    }

    proptest! {
        // proves P4
        #[test]
        fn it_is_the_turn_of_those_who_have_probed_least_and_waited_longest(
            most in 1u32..4,
            steps in prop::collection::vec((0usize..8, 0u8..4), 1..300),
        ) {
            let mut line = Line::default();
            let mut events = [(Place::Away, 0u32); 8];
            for (now, (at, what)) in steps.into_iter().enumerate() {
                let (place, probes) = events[at];
                events[at].0 = match (place, what) {
                    (Place::Away, _) => Place::Waiting(line.join(probes), now),
                    (Place::Waiting(ticket, _), 0) => {
                        // Its pipeline was stopped.
                        line.leave(ticket);
                        Place::Away
                    }
                    (Place::Waiting(ticket, since), _) => {
                        let under_way = events.iter().filter(|it| it.0 == Place::Probing).count();
                        let ahead = events.iter().filter(|(other, of_other)| {
                            matches!(other, Place::Waiting(_, before)
                                if (*of_other, *before) < (probes, since))
                        });
                        let turn = under_way + ahead.count() < most as usize;
                        prop_assert_eq!(line.begin(ticket, most), turn);
                        if turn { Place::Probing } else { place }
                    }
                    (Place::Probing, _) => {
                        line.end();
                        events[at].1 += 1;
                        Place::Away
                    }
                };
            }
        }

        // proves P4
        #[test]
        fn an_outage_costs_every_held_event_the_same(
            held in 1usize..20,
            most in 1u32..4,
            rounds in 1u32..60,
        ) {
            let mut line = Line::default();
            let mut events: Vec<(Ticket, u32)> = (0..held).map(|_| (line.join(0), 0)).collect();
            for _ in 0..rounds {
                // They ask in an order of their own, the last ones first.
                let mut began = Vec::new();
                for (at, (ticket, _)) in events.iter().enumerate().rev() {
                    if line.begin(*ticket, most) {
                        began.push(at);
                    }
                }
                prop_assert_eq!(began.len(), held.min(most as usize), "no turn is wasted");
                for at in began {
                    line.end();
                    let probes = events[at].1 + 1;
                    events[at] = (line.join(probes), probes);
                }
                let probes = events.iter().map(|(_, probes)| *probes);
                let (least, greatest) = (probes.clone().min(), probes.max());
                prop_assert!(greatest.unwrap() - least.unwrap() <= 1);
            }
        }
    }
}
