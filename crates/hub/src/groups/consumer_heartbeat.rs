//! Heartbeats of the consumer protocol: names and patterns are resolved against the catalogue, and the response waits
//! until its contents are stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use highwater_log::{ConsumerHeartbeat, ConsumerHeartbeatResponse, GroupError, HubView};

use super::commit::ChangeReceiver;
use super::consumer::{Assignor, Heartbeat, NamePattern, PATTERN_INTERVAL, PartitionSet};
use super::coordinator::{Coordinator, LockedGroup};

impl Coordinator {
    /// The response, which may be sent when the receiver, if any, has received the outcome.
    pub(super) fn consumer_heartbeat(
        self: &Arc<Self>,
        mut request: ConsumerHeartbeat,
    ) -> Result<(ConsumerHeartbeatResponse, Option<ChangeReceiver>), GroupError> {
        let joins = request.epoch == 0;
        if joins && request.member.is_empty() {
            request.member = self.member_id(&request.client_id);
        }
        let matched = self.evaluate_pattern(&request)?;
        let group = request.group.clone();
        let request = heartbeat(request, matched)?;
        let unknown = GroupError::UnknownMember(request.member.clone());
        let beat = |locked: &mut LockedGroup<'_>| locked.consumer_beat(&request);
        match joins {
            true => self.with_group_or_new(&group, beat)?,
            false => (self.with_group(&group, beat)?).unwrap_or(Err(unknown)),
        }
    }

    /// The hubs that the pattern of the member matches: when it is new, and now and then.
    fn evaluate_pattern(
        self: &Arc<Self>,
        request: &ConsumerHeartbeat,
    ) -> Result<Option<BTreeSet<String>>, GroupError> {
        let pattern = match &request.pattern {
            Some(pattern) if pattern.is_empty() => None,
            Some(pattern) => Some(pattern.clone()),
            None => self.due_pattern(request)?,
        };
        let Some(pattern) = pattern else {
            return Ok(None);
        };
        let pattern = NamePattern::new(&pattern)?;
        Ok(Some(self.matching_hubs(&pattern, &request.visible)))
    }

    fn due_pattern(
        self: &Arc<Self>,
        request: &ConsumerHeartbeat,
    ) -> Result<Option<String>, GroupError> {
        let due = |locked: &mut LockedGroup<'_>| {
            let now = locked.now;
            let group = locked.entry.group.consumer()?;
            group.take_due_pattern(&request.member, now, PATTERN_INTERVAL)
        };
        Ok(self.with_group(&request.group, due)?.flatten())
    }

    /// Internal hubs match only a pattern that names them, so that `.*` does not read the offsets of all groups.
    fn matching_hubs(&self, pattern: &NamePattern, visible: &HubView) -> BTreeSet<String> {
        let hubs = self.log.hubs().into_iter();
        let hubs = hubs.filter(|hub| !hub.name.is_internal() || pattern.names_internal());
        let is_matched = |hub: &str| visible.name(hub).is_some_and(|name| pattern.matches(name));
        let hubs = hubs.filter(|hub| is_matched(hub.name.as_str()));
        hubs.map(|hub| hub.name.as_str().to_owned()).collect()
    }
}

fn heartbeat(
    request: ConsumerHeartbeat,
    matched: Option<BTreeSet<String>>,
) -> Result<Heartbeat, GroupError> {
    let assignor =
        |name: String| Assignor::by_name(&name).ok_or(GroupError::UnsupportedAssignor(name));
    Ok(Heartbeat {
        member: request.member,
        epoch: request.epoch,
        instance: request.instance,
        rack: request.rack,
        rebalance_timeout: request.rebalance_timeout,
        names: request.names.map(|names| names.into_iter().collect()),
        pattern: request.pattern,
        matched,
        assignor: request.assignor.map(assignor).transpose()?,
        owned: request.owned.map(PartitionSet::from_list),
        client_id: request.client_id,
        client_host: request.client_host,
        classic: None,
    })
}

impl LockedGroup<'_> {
    fn consumer_beat(
        &mut self,
        request: &Heartbeat,
    ) -> Result<(ConsumerHeartbeatResponse, Option<ChangeReceiver>), GroupError> {
        let (coordinator, now) = (self.coordinator, self.now);
        let group = self.consumer_group()?;
        let find = |name: &str| coordinator.hub_shape(name);
        let response = group.heartbeat(request, &find, now)?;
        Ok((response, self.entry.await_stored()))
    }
}
