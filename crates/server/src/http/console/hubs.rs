//! The list of hubs.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_access::{Resource, Right};
use highwater_console::View;
use highwater_console::format::seconds;
use highwater_console::hub_list::{HubList, HubRow, ShardedRow};
use highwater_log::{CleanupPolicy, CommittedOffset, GroupSummary, HubInfo};

use super::Context;
use super::paging::Page;
use crate::http::app::Backend;
use crate::http::error::Error;

/// Hubs of a page.
const ROWS_MAX: usize = 100;

/// Groups whose positions are looked up for a page.
const GROUPS_MAX: usize = 100;

pub(in crate::http) async fn list(context: &Context<'_>) -> Result<View, Error> {
    let backend = context.app.backend()?;
    let mut hubs = visible(context, backend);
    hubs.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    let page = Page::of(context.query, "page", ROWS_MAX, hubs.len());
    let groups = groups_by_hub(context, backend).await;
    let problems = problems(backend);
    let rows = hubs[page.range.clone()].iter().map(|hub| {
        let name = hub.name.as_str();
        let mut row = row(context, backend, hub);
        row.groups = groups.get(name).copied().unwrap_or_default();
        row.trouble = problems.get(name).cloned();
        row
    });
    let sharded = backend.sharded.iter();
    let sharded = sharded.filter(|of| context.may_see(Resource::Hub(of.name.as_str())));
    let text = |name: &highwater_log::HubName| name.as_str().to_owned();
    Ok(View::from(&HubList {
        hubs: rows.collect(),
        total: hubs.len() as u64,
        pager: page.pager("/console/hubs", "hubs"),
        sharded: sharded
            .map(|of| ShardedRow {
                name: text(&of.name),
                hubs: of.hubs.iter().map(text).collect(),
            })
            .collect(),
        may_create: context.caller.may(Right::Manage, Resource::AnyHub),
    }))
}

/// The hubs of users that the caller may see.
pub(super) fn visible(context: &Context<'_>, backend: &Backend) -> Vec<Arc<HubInfo>> {
    let mut hubs = backend.log.hubs();
    hubs.retain(|hub| !hub.name.is_internal() && context.may_see(Resource::Hub(hub.name.as_str())));
    hubs
}

pub(super) fn row(context: &Context<'_>, backend: &Backend, hub: &HubInfo) -> HubRow {
    let name = hub.name.as_str();
    let series = context.app.console.figures.hub(name);
    let partitions = (0..hub.partitions).filter_map(|number| backend.log.partition(name, number));
    HubRow {
        name: name.to_owned(),
        partitions: hub.partitions.into(),
        per_second: series.rate(),
        history: series.points(),
        bytes: partitions.map(|partition| partition.bounds().bytes).sum(),
        retention: retention(hub),
        groups: 0,
        trouble: None,
    }
}

/// How long a hub keeps its events.
pub(super) fn retention(hub: &HubInfo) -> String {
    let settings = &hub.settings;
    let time = match (settings.cleanup, settings.retention) {
        (CleanupPolicy::Compact, _) => "latest of each key".to_owned(),
        (CleanupPolicy::Delete, Some(time)) => seconds(time.as_secs_f64()),
        (CleanupPolicy::Delete, None) => "forever".to_owned(),
        (CleanupPolicy::CompactDelete, Some(time)) => {
            format!("latest of each key, {}", seconds(time.as_secs_f64()))
        }
        (CleanupPolicy::CompactDelete, None) => "latest of each key".to_owned(),
    };
    match settings.retention_bytes {
        Some(bytes) => format!(
            "{time}, at most {}",
            highwater_console::format::bytes(bytes)
        ),
        None => time,
    }
}

/// Why the partitions of hubs refuse writes, a reason a hub.
fn problems(backend: &Backend) -> BTreeMap<String, String> {
    let status = backend.hub.as_ref().map(|hub| hub.status());
    let partitions = status.into_iter().flat_map(|status| status.partitions);
    partitions
        .filter_map(|partition| {
            let of = partition.topic_partition;
            let why = partition.stopped?;
            Some((
                of.hub.as_str().to_owned(),
                format!("partition {}: {why}", of.partition),
            ))
        })
        .collect()
}

/// The number of groups with a position in each hub.
async fn groups_by_hub(context: &Context<'_>, backend: &Backend) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for group in visible_groups(context, backend).await {
        let mut hubs: Vec<String> = positions(backend, group.group)
            .await
            .into_iter()
            .map(|(of, _)| of.hub.as_str().to_owned())
            .collect();
        hubs.dedup();
        hubs.sort();
        hubs.dedup();
        for hub in hubs {
            *counts.entry(hub).or_default() += 1;
        }
    }
    counts
}

/// The first groups that the caller may see.
pub(super) async fn visible_groups(context: &Context<'_>, backend: &Backend) -> Vec<GroupSummary> {
    let Some(groups) = &backend.groups else {
        return Vec::new();
    };
    let mut groups = groups.list().await;
    groups.retain(|group| context.may_see(Resource::Group(&group.group)));
    groups.sort_by(|a, b| a.group.cmp(&b.group));
    groups.truncate(GROUPS_MAX);
    groups
}

/// The stored positions of a group; none while groups are loading.
pub(super) async fn positions(backend: &Backend, group: String) -> Vec<CommittedOffset> {
    let Some(groups) = &backend.groups else {
        return Vec::new();
    };
    let stored = Arc::clone(groups).fetch_offsets(group, None, false).await;
    let mut stored = stored.unwrap_or_default();
    stored.retain(|(_, position)| position.is_some());
    stored
}
