//! Consumer groups: listed, described with their lag, their positions reset, deleted.

use std::sync::Arc;

use futures_util::future::join_all;
use highwater_access::{Resource, Right};
use highwater_env::MemoryShare;
use highwater_log::{
    GroupCoordinator, GroupError, GroupInfo, GroupSummary, HubInfo, Log, Membership, Offset,
    OffsetAndMetadata, OffsetCommit, ReadError, TopicPartition,
};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::App;
use super::auth;
use super::dispatch::ApiRequest;
use super::error::Error;
use super::json_answer::JsonAnswer;
use super::read::{ISOLATION, StartPosition, partition_of};
use super::reply::{self, Reply};
use crate::text::percent_decode;

/// The members as they are and as JSON values, before they are written: the texts twice, and a map for each member.
const SHOWN_RATIO: usize = 4;

pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let groups = match &request.app.backend()?.groups {
        Some(groups) => groups.list().await,
        None => Vec::new(),
    };
    let mut answer = JsonAnswer::new(&request.app.budget)?;
    answer.begin_rows("groups")?;
    for group in groups {
        let resource = Resource::Group(&group.group);
        if request.caller.may(Right::Listen, resource)
            && let Some(described) = described(request.app, group).await?
        {
            answer.row(&group_json(&described.info))?;
        }
    }
    answer.end_rows()?;
    answer.finish()
}

/// A group with its members, and the memory for it and for its answer.
struct DescribedGroup {
    info: GroupInfo,
    _share: MemoryShare,
}

/// Takes the memory before the members are copied: clients decide how many there are, and how long their names. `None`
/// if the group was deleted.
async fn described(app: &App, group: GroupSummary) -> Result<Option<DescribedGroup>, Error> {
    let share = app.budget.try_take(SHOWN_RATIO * group.info_bytes)?;
    let info = groups(app)?.describe(group.group).await;
    Ok(info.map(|info| DescribedGroup {
        info,
        _share: share,
    }))
}

/// A group with its stored positions and their lag.
pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let app = request.app;
    let [name] = request.variables();
    let name = percent_decode(name);
    let groups = groups(app)?;
    let summary = groups.summary(name.to_string()).await;
    let summary = summary.ok_or(GroupError::NotFound)?;
    let group = described(app, summary).await?;
    let group = group.ok_or(GroupError::NotFound)?;
    let stored = groups.fetch_offsets(name.into_owned(), None, false).await?;
    let log = app.log()?;
    let visible = stored.into_iter().filter_map(|(of, stored)| {
        let hub = Resource::Hub(of.hub.as_str());
        let may = request.caller.may(Right::Listen, hub);
        Some((of, stored.filter(|_| may)?.offset))
    });
    let found = visible.map(async |(of, offset)| {
        let end = end_of(log, &of).await?;
        Ok::<_, ReadError>((of, offset, end))
    });
    let found = join_all(found).await.into_iter();
    let found = found.collect::<Result<Vec<_>, ReadError>>()?;
    let positions = found.iter().map(|(of, offset, end)| {
        json!({
            "hub": of.hub.as_str(), "partition": of.partition, "offset": offset.0,
            "end": end.map(|end| end.0), "lag": end.map(|end| (end.0 - offset.0).max(0)),
        })
    });
    let mut answer = JsonAnswer::new(&app.budget)?;
    answer.fields(&group_json(&group.info))?;
    answer.rows("positions", positions)?;
    answer.finish()
}

/// The end of a partition; `None` if there is no such partition.
async fn end_of(log: &dyn Log, of: &TopicPartition) -> Result<Option<Offset>, ReadError> {
    match log.partition(of.hub.as_str(), of.partition) {
        Some(partition) => Ok(Some(partition.fetch_bounds().await?.visible(ISOLATION))),
        None => Ok(None),
    }
}

/// Deletes a group without members, and its positions.
pub(super) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let name = percent_decode(name).into_owned();
    groups(request.app)?.delete(name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// The new positions of a group in a hub.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResetRequest {
    hub: String,
    /// Without it, all partitions.
    partition: Option<u32>,
    to: ResetTarget,
    /// Reports the changes without making them.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ResetTarget {
    Offset(i64),
    /// As `from` of a read.
    Text(String),
}

/// The position of a group in a partition before and after a reset.
struct PositionChange {
    of: TopicPartition,
    before: Option<Offset>,
    after: Offset,
}

impl PositionChange {
    fn to_json(&self) -> Value {
        let before = self.before.map(|before| before.0);
        let moved = before.map_or(0, |before| self.after.0 - before);
        json!({
            "partition": self.of.partition, "before": before, "after": self.after.0,
            "again": (-moved).max(0), "skipped": moved.max(0),
        })
    }
}

/// Sets the positions of a group without members. An offset outside of a partition is moved to its next end.
pub(super) async fn reset(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let example = "{\"hub\":\"telemetry\",\"to\":\"earliest\",\"dry_run\":true}";
    let wanted: ResetRequest = request.read_json(example).await?;
    auth::require(&request.caller, Right::Listen, Resource::Hub(&wanted.hub))?;
    let app = request.app;
    let [name] = request.variables();
    let name = percent_decode(name).into_owned();
    let groups = groups(app)?;
    let summary = groups.summary(name.clone()).await;
    let members = summary.ok_or(GroupError::NotFound)?.members;
    if members > 0 && !wanted.dry_run {
        return Err(GroupError::NotEmpty.into());
    }
    let hub = app.hub(&wanted.hub)?;
    let changes = position_changes(app, &**groups, &name, &hub, &wanted).await?;
    if !wanted.dry_run {
        // The coordinator refuses it if a member has joined meanwhile.
        groups.commit_offsets(commit(name, &changes)).await?;
    }
    let sum = |field: &str| -> i64 {
        let group_json = changes.iter().map(PositionChange::to_json);
        group_json
            .filter_map(|group_json| group_json[field].as_i64())
            .sum()
    };
    let body = json!({
        "dry_run": wanted.dry_run, "hub": wanted.hub, "members": members,
        "again": sum("again"), "skipped": sum("skipped"),
        "positions": changes.iter().map(PositionChange::to_json).collect::<Vec<_>>(),
    });
    Ok(reply::ok(&body))
}

async fn position_changes(
    app: &App,
    groups: &dyn GroupCoordinator,
    group: &str,
    hub: &HubInfo,
    wanted: &ResetRequest,
) -> Result<Vec<PositionChange>, Error> {
    let to = match &wanted.to {
        ResetTarget::Offset(offset) => StartPosition::Offset(Offset(*offset)),
        ResetTarget::Text(text) => StartPosition::parse(text)?,
    };
    let numbers = match wanted.partition {
        Some(number) => number..number.saturating_add(1),
        None => 0..hub.partitions,
    };
    let mut changes = Vec::new();
    for number in numbers {
        let partition = partition_of(app, hub, number)?;
        let after = to.offset(&*partition).await?;
        let bounds = partition.fetch_bounds().await?;
        let end = bounds.visible(ISOLATION).max(bounds.start);
        changes.push(PositionChange {
            of: partition.topic_partition().clone(),
            before: None,
            after: after.clamp(bounds.start, end),
        });
    }
    let partitions = changes.iter().map(|change| change.of.clone()).collect();
    let stored = groups.fetch_offsets(group.to_owned(), Some(partitions), false);
    for (change, (_, stored)) in changes.iter_mut().zip(stored.await?) {
        change.before = stored.map(|stored| stored.offset);
    }
    Ok(changes)
}

/// A commit of a consumer that assigns its own partitions.
fn commit(group: String, changes: &[PositionChange]) -> OffsetCommit {
    let offsets = changes.iter().map(|change| {
        let position = OffsetAndMetadata {
            offset: change.after,
            leader_epoch: -1,
            metadata: String::new(),
        };
        (change.of.clone(), position)
    });
    OffsetCommit {
        member: Membership {
            group,
            generation: -1,
            member: String::new(),
            instance: None,
        },
        offsets: offsets.collect(),
    }
}

/// The groups of the log; a log without groups has none.
pub(super) fn groups(app: &App) -> Result<&Arc<dyn GroupCoordinator>, GroupError> {
    let backend = app.backend().map_err(|_| GroupError::Loading)?;
    backend.groups.as_ref().ok_or(GroupError::NotFound)
}

fn group_json(group: &GroupInfo) -> Value {
    let members: Vec<Value> = group
        .members
        .iter()
        .map(|member| {
            json!({
                "member": member.member, "instance": member.instance,
                "client": member.client_id, "host": member.client_host,
            })
        })
        .collect();
    json!({
        "group": group.group, "state": format!("{:?}", group.state),
        "protocol": group.protocol, "members": members,
    })
}
