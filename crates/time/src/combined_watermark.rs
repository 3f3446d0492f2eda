//! One watermark for several timelines that are read as one stream.
//!
//! Output for a time is complete once all members have passed it, so the combined watermark is the
//! minimum of their watermarks. Partitions that a query keeps apart (`PARTITION BY`) are not combined.

use crate::Instant;

/// The minimum of its members' watermarks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CombinedWatermark {
    members: Vec<Instant>,
    watermark: Instant,
}

impl CombinedWatermark {
    /// Starts all members at [`Instant::BEFORE_ALL`].
    pub fn new(members: usize) -> CombinedWatermark {
        CombinedWatermark {
            members: vec![Instant::BEFORE_ALL; members],
            watermark: Instant::BEFORE_ALL,
        }
    }

    /// Adds a member and returns its number. A watermark below the combined one is raised to it.
    pub fn add(&mut self, watermark: Instant) -> usize {
        self.members.push(watermark.max(self.watermark));
        self.update();
        self.members.len() - 1
    }

    /// Sets a member's watermark and returns the combined one if it rose. A watermark below the
    /// member's last one is ignored.
    pub fn advance(&mut self, member: usize, watermark: Instant) -> Option<Instant> {
        let previous = self.members[member];
        self.members[member] = previous.max(watermark);
        // Only a member at the minimum can raise it.
        if previous == self.watermark {
            self.update()
        } else {
            None
        }
    }

    pub fn watermark(&self) -> Instant {
        self.watermark
    }

    /// The watermark of each member.
    pub fn members(&self) -> &[Instant] {
        &self.members
    }

    fn update(&mut self) -> Option<Instant> {
        let least = self.members.iter().copied().min()?;
        debug_assert!(least >= self.watermark, "the watermark never goes back");
        let rose = least > self.watermark;
        self.watermark = least;
        rose.then_some(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ticks: i64) -> Instant {
        Instant::from_ticks(ticks)
    }

    // proves T9
    #[test]
    fn combined_time_passes_a_point_when_all_members_have() {
        let mut combined = CombinedWatermark::new(2);
        assert_eq!(combined.advance(0, at(10)), None);
        assert_eq!(combined.advance(1, at(4)), Some(at(4)));
        assert_eq!(combined.advance(0, at(12)), None);
        assert_eq!(combined.advance(1, at(20)), Some(at(12)));
        assert_eq!(combined.advance(1, at(5)), None);
        assert_eq!(combined.watermark(), at(12));
    }

    // proves T9
    #[test]
    fn a_member_that_has_ended_holds_nobody_back() {
        let mut combined = CombinedWatermark::new(1);
        assert_eq!(combined.add(Instant::AFTER_ALL), 1);
        assert_eq!(combined.advance(0, at(7)), Some(at(7)));
        assert_eq!(
            combined.advance(0, Instant::AFTER_ALL),
            Some(Instant::AFTER_ALL)
        );
    }

    // proves T9
    #[test]
    fn a_member_that_is_added_late_does_not_turn_time_back() {
        let mut combined = CombinedWatermark::new(1);
        combined.advance(0, at(7));
        assert_eq!(combined.add(at(3)), 1);
        assert_eq!(combined.watermark(), at(7));
        assert_eq!(combined.advance(0, at(9)), None);
        assert_eq!(combined.advance(1, at(8)), Some(at(8)));
    }

    // proves T10
    #[test]
    fn members_that_are_not_combined_advance_alone() {
        let mut partitions = [CombinedWatermark::new(1), CombinedWatermark::new(1)];
        assert_eq!(partitions[0].advance(0, at(10)), Some(at(10)));
        assert_eq!(partitions[1].watermark(), Instant::BEFORE_ALL);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        // proves T9
        #[test]
        fn the_combined_watermark_is_the_least_and_never_goes_back(
            steps in prop::collection::vec((0..5usize, 0..50i64), 0..100)
        ) {
            let mut combined = CombinedWatermark::new(5);
            let mut naive = [Instant::BEFORE_ALL; 5];
            for (member, ticks) in steps {
                let before = combined.watermark();
                let rose = combined.advance(member, at(ticks));
                naive[member] = naive[member].max(at(ticks));
                prop_assert_eq!(Some(combined.watermark()), naive.into_iter().min());
                let expected = (combined.watermark() > before).then_some(combined.watermark());
                prop_assert_eq!(rose, expected);
            }
        }
    }
}
