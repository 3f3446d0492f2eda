//! Brings a member towards its target, one heartbeat at a time.

use super::ConsumerGroup;
use super::member::Progress;
use super::partitions::PartitionSet;
use crate::groups::machine::Elapsed;

impl ConsumerGroup {
    /// `owned` are the partitions that the member reports; `None` if it reports none.
    pub(super) fn reconcile(&mut self, id: &str, owned: Option<&PartitionSet>, now: Elapsed) {
        let assignment_epoch = self.state.assignment_epoch;
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let record = &mut member.record;
        let epoch = match record.progress {
            Progress::Stable if record.epoch == assignment_epoch => return,
            Progress::Stable | Progress::Unreleased => record.epoch,
            Progress::Unrevoked if may_own(owned, &record.pending) => return,
            Progress::Unrevoked => {
                self.held.subtract(&std::mem::take(&mut record.pending));
                // It knows a later epoch than before, and may have to revoke more.
                record.epoch + 1
            }
        };
        let before = record.clone();
        let (kept, revoked) = record.assigned.split_by(&record.target);
        if !revoked.is_empty() && may_own(owned, &revoked) {
            record.assigned = kept;
            record.pending = revoked;
            record.progress = Progress::Unrevoked;
            record.set_epoch(epoch);
            member.revoke_by = Some(now + record.rebalance_timeout);
            self.deadline_changed = true;
        } else {
            self.held.subtract(&revoked);
            let (_, missing) = record.target.split_by(&kept);
            let (waiting, free) = missing.split_by(&self.held);
            record.assigned = kept;
            record.assigned.add(&free);
            self.held.add(&free);
            record.progress = match waiting.is_empty() {
                true => Progress::Stable,
                false => Progress::Unreleased,
            };
            record.set_epoch(assignment_epoch);
            member.revoke_by = None;
        }
        if *record != before {
            self.changes.members.insert(id.to_owned());
        }
    }
}

/// A member without a report may own everything.
fn may_own(owned: Option<&PartitionSet>, partitions: &PartitionSet) -> bool {
    owned.is_none_or(|owned| owned.intersects(partitions))
}
