//! The protocol of a group, elected by its members.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Group;
use super::member::Member;

impl Group {
    /// Whether a member with these protocols can join. The current protocols of `member` itself do not matter.
    pub(super) fn is_compatible(
        &self,
        member: &str,
        protocol_type: &str,
        protocols: &[(String, Bytes)],
    ) -> bool {
        if protocol_type.is_empty() || protocols.is_empty() {
            return false;
        }
        let others = || {
            self.members
                .values()
                .filter(|other| other.record.id != member)
        };
        let shared = |name: &str| others().all(|other| other.supports(name));
        others().next().is_none()
            || protocol_type == self.protocol_type && protocols.iter().any(|(name, _)| shared(name))
    }

    /// Every member votes for its preferred protocol among those that all support. Most votes win; ties go to the
    /// preference of the first member.
    pub(super) fn elect_protocol(&self) -> String {
        let mut votes = BTreeMap::<&str, usize>::new();
        let shared = |name: &str| self.members.values().all(|member| member.supports(name));
        for member in self.members.values() {
            let names = member
                .record
                .protocols
                .iter()
                .map(|(name, _)| name.as_str());
            if let Some(name) = names.into_iter().find(|name| shared(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let Some(first) = self.first_member(|_| true) else {
            return String::new();
        };
        let candidates = first.record.protocols.iter().map(|(name, _)| name.as_str());
        // `max_by_key` returns the last of equals.
        let winner = candidates.rev().max_by_key(|name| votes.get(name));
        winner.unwrap_or_default().to_owned()
    }

    pub(super) fn first_member(&self, which: impl Fn(&Member) -> bool) -> Option<&Member> {
        let members = self.members.values().filter(|member| which(member));
        members.min_by_key(|member| member.arrival)
    }
}
