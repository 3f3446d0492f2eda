//! The list of queues.

use highwater_access::{Resource, Right};
use highwater_console::View;
use highwater_console::queue_list::{QueueCounts, QueueList, QueueRow};
use highwater_queue::{Counts, Queue};

use super::Context;
use super::paging::Page;
use crate::http::app::Backend;
use crate::http::error::Error;

/// Queues of a page.
const ROWS_MAX: usize = 100;

pub(in crate::http) async fn list(context: &Context<'_>) -> Result<View, Error> {
    let mut queues = visible(context, context.app.backend()?);
    queues.sort_by(|a, b| a.name().cmp(b.name()));
    let page = Page::of(context.query, "page", ROWS_MAX, queues.len());
    let mut rows = Vec::new();
    for queue in &queues[page.range.clone()] {
        rows.push(row(context, queue).await);
    }
    Ok(View::from(&QueueList {
        queues: rows,
        total: queues.len() as u64,
        pager: page.pager("/console/queues", "queues"),
        may_create: context.caller.may(Right::Manage, Resource::AnyHub),
    }))
}

/// The queues that the caller may see.
pub(super) fn visible(context: &Context<'_>, backend: &Backend) -> Vec<Queue> {
    let queues = backend.queues.iter().flat_map(|queues| queues.list());
    let visible = queues.filter(|queue| context.may_see(Resource::Queue(queue.name())));
    visible.collect()
}

async fn row(context: &Context<'_>, queue: &Queue) -> QueueRow {
    let series = context.app.console.figures.queue(queue.name());
    let mut row = QueueRow {
        name: queue.name().to_owned(),
        sent_per_second: series.sent.rate(),
        completed_per_second: series.completed.rate(),
        history: series.sent.points(),
        ..QueueRow::default()
    };
    match queue.stats().await {
        Ok(stats) => {
            row.counts = counts(&stats.counts);
            row.oldest_seconds = age_seconds(context, stats.oldest_ready_ms);
        }
        Err(error) => row.trouble = Some(error.to_string()),
    }
    row
}

pub(super) fn counts(counts: &Counts) -> QueueCounts {
    QueueCounts {
        active: counts.active,
        locked: counts.locked,
        scheduled: counts.scheduled,
        deferred: counts.deferred,
        dead: counts.dead,
        bytes: counts.bytes,
    }
}

/// How long ago it was, in whole seconds, so that a panel changes at most once a second.
pub(super) fn age_seconds(context: &Context<'_>, at_ms: Option<i64>) -> Option<f64> {
    let now_ms = context.app.clock.unix_millis();
    at_ms.map(|at_ms| ((now_ms - at_ms).max(0) / 1000) as f64)
}
