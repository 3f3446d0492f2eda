//! The page of one hub.

use highwater_access::{Resource, Right};
use highwater_console::View;
use highwater_console::format::{bytes, count, plural, rate, segment};
use highwater_console::hub::{GroupPosition, HubGroup, HubPage, HubPartition};
use highwater_console::parts::Figure;
use highwater_log::{Bounds, CommittedOffset, GroupSummary, HubInfo};

use super::Context;
use super::hub_events::browse;
use super::hubs::{positions, retention, visible_groups};
use super::paging::Page;
use crate::http::app::Backend;
use crate::http::error::Error;
use crate::http::read::ISOLATION;

/// Partitions of a page.
const PARTITIONS_MAX: usize = 50;

/// Groups of a page, and partitions of each.
const GROUPS_MAX: usize = 20;
const POSITIONS_MAX: usize = 64;

pub(in crate::http) async fn view(context: &Context<'_>) -> Result<View, Error> {
    let [name] = context.variables.all();
    let backend = context.app.backend()?;
    let hub = context.app.hub(name)?;
    let numbers = 0..hub.partitions;
    let bounds: Vec<Bounds> = numbers
        .filter_map(|number| backend.log.partition(name, number))
        .map(|partition| partition.bounds())
        .collect();
    let page = Page::of(context.query, "partitions", PARTITIONS_MAX, bounds.len());
    let (groups, groups_more) = groups(context, backend, &hub).await;
    let stopped = backend.hub.as_ref().map(|disk| disk.status_of(name));
    let stopped = stopped.unwrap_or_default();
    let mut partitions = partitions(context, &hub, &bounds, &page);
    for partition in &mut partitions {
        if let Some(status) = stopped.get(partition.number as usize) {
            partition.segments = Some(status.segments as u64);
            partition.trouble = status.stopped.clone();
        }
    }
    let browser = match context.live {
        true => None,
        false => Some(browse(context, &hub, &bounds).await?),
    };
    let resource = Resource::Hub(name);
    Ok(View::from(&HubPage {
        name: name.to_owned(),
        partitions_total: hub.partitions.into(),
        retention: retention(&hub),
        created_ms: hub.created_ms,
        figures: figures(context, &hub, &bounds, &groups),
        partitions,
        pager: page.pager(&format!("/console/hubs/{}", segment(name)), "partitions"),
        groups,
        groups_more,
        stopped: stopped.iter().filter(|of| of.stopped.is_some()).count() as u64,
        may_send: context.caller.may(Right::Send, resource) && !hub.name.is_internal(),
        browser,
    }))
}

fn figures(
    context: &Context<'_>,
    hub: &HubInfo,
    bounds: &[Bounds],
    groups: &[HubGroup],
) -> Vec<Figure> {
    let series = context.app.console.figures.hub(hub.name.as_str());
    let kept: i64 = bounds.iter().map(|of| of.end.0 - of.start.0).sum();
    let stored: u64 = bounds.iter().map(|of| of.bytes).sum();
    let furthest = groups.iter().max_by_key(|group| group.lag);
    let furthest = furthest.map(|group| plural(group.lag, "event"));
    vec![
        Figure::new("events in", rate(series.rate())).history(series.points()),
        Figure::new("events kept", count(kept.max(0) as u64)),
        Figure::new("stored", bytes(stored)),
        Figure::new("partitions", count(hub.partitions.into())),
        Figure::new("consumer groups", count(groups.len() as u64)),
        Figure::new("furthest behind", furthest.unwrap_or("no group".into())),
    ]
}

fn partitions(
    context: &Context<'_>,
    hub: &HubInfo,
    bounds: &[Bounds],
    page: &Page,
) -> Vec<HubPartition> {
    let name = hub.name.as_str();
    let ends = bounds[page.range.clone()].iter();
    let counters: Vec<u64> = ends.map(|of| of.end.0.max(0) as u64).collect();
    let meter = format!("{name} partitions from {}", page.range.start);
    let now = context.app.clock.elapsed();
    let rates = context.app.console.figures.rates(meter, now, counters);
    let shown = page.range.clone().enumerate().map(|(at, number)| {
        let of = &bounds[number];
        HubPartition {
            number: number as u32,
            per_second: rates.as_ref().and_then(|rates| rates.get(at).copied()),
            bytes: of.bytes,
            start: of.start.0,
            end: of.end.0,
            last_ms: of.last_time.map(|time| time.0),
            segments: None,
            trouble: None,
        }
    });
    shown.collect()
}

/// The groups with a position in the hub, those furthest behind first, and how many more there are.
async fn groups(context: &Context<'_>, backend: &Backend, hub: &HubInfo) -> (Vec<HubGroup>, u64) {
    let mut groups = Vec::new();
    for info in visible_groups(context, backend).await {
        let mut stored = positions(backend, info.group.clone()).await;
        stored.retain(|(of, _)| of.hub == hub.name);
        if !stored.is_empty() {
            groups.push(group(context, backend, &info, &stored));
        }
    }
    groups.sort_by(|a, b| b.lag.cmp(&a.lag).then(a.name.cmp(&b.name)));
    let more = groups.len().saturating_sub(GROUPS_MAX) as u64;
    groups.truncate(GROUPS_MAX);
    (groups, more)
}

fn group(
    context: &Context<'_>,
    backend: &Backend,
    info: &GroupSummary,
    stored: &[CommittedOffset],
) -> HubGroup {
    let position = |(of, stored): &CommittedOffset| {
        let offset = stored.as_ref()?.offset.0;
        let partition = backend.log.partition(of.hub.as_str(), of.partition)?;
        let end = partition.bounds().visible(ISOLATION).0;
        Some(GroupPosition {
            partition: of.partition,
            offset,
            end,
            lag: (end - offset).max(0) as u64,
        })
    };
    let mut positions: Vec<GroupPosition> = stored.iter().filter_map(position).collect();
    let lag = positions.iter().map(|position| position.lag).sum();
    positions.sort_by_key(|position| position.partition);
    let more = positions.len().saturating_sub(POSITIONS_MAX) as u64;
    positions.truncate(POSITIONS_MAX);
    let state = match info.members {
        0 => "no members".to_owned(),
        _ => format!("{:?}", info.state).to_lowercase(),
    };
    HubGroup {
        name: info.group.clone(),
        state,
        members: info.members as u64,
        lag,
        positions,
        positions_more: more,
        may_reset: context
            .caller
            .may(Right::Manage, Resource::Group(&info.group)),
    }
}
