//! The list of processors, and the page of one.

use std::sync::atomic::{AtomicU64, Ordering};

use highwater_access::{Resource, Right};
use highwater_console::View;
use highwater_console::format::{count, plural, rate, seconds};
use highwater_console::parts::Figure;
use highwater_console::processor::{ProcessorPage, ProcessorPartition};
use highwater_console::processor_list::{ProcessorList, ProcessorRow};

use super::{Context, circuits, dead_letters};
use crate::http::app::Backend;
use crate::http::error::Error;
use crate::http::processors::{self, Position, circuits::state_name, target};
use crate::processors::{Entry, ProcessorSpec};
use crate::text::percent_decode;

/// Processors of the list, and partitions of a page.
const ROWS_MAX: usize = 100;

/// Dead letters on the page of a processor.
const LETTERS_MAX: usize = 5;

/// The processors that the caller may see.
pub(super) fn visible<'a>(context: &Context<'_>, backend: &'a Backend) -> Vec<&'a Entry> {
    let entries = backend.processors.iter().flat_map(|all| all.entries());
    let may_see = |entry: &&Entry| context.may_see(Resource::Deployment(&entry.spec.name));
    entries.filter(may_see).collect()
}

pub(in crate::http) async fn list(context: &Context<'_>) -> Result<View, Error> {
    let entries = visible(context, context.app.backend()?);
    let mut rows = Vec::new();
    for entry in entries.iter().take(ROWS_MAX) {
        // Unknown while groups are loading.
        let positions = processors::positions(context.app, entry).await.ok();
        rows.push(row(context, entry, positions.as_deref()));
    }
    Ok(View::from(&ProcessorList {
        more: entries.len().saturating_sub(rows.len()) as u64,
        processors: rows,
    }))
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn row(context: &Context<'_>, entry: &Entry, positions: Option<&[Position]>) -> ProcessorRow {
    let figures = &context.app.console.figures;
    let series = figures.processor(&entry.spec.name);
    let spec = &entry.spec;
    let (handler, target) = target(&spec.handler);
    ProcessorRow {
        name: spec.name.clone(),
        hub: spec.hub.to_string(),
        handler,
        target,
        circuit: state_name(&entry.circuit.state()),
        trouble: entry.activity.partitions().into_values().flatten().next(),
        handled_per_second: series.handled.rate(),
        history: series.handled.points(),
        handled: read(&entry.activity.handled),
        failures: read(&entry.activity.failures),
        behind: positions.map(|all| all.iter().map(Position::behind).sum::<i64>() as u64),
        dead_letters: figures.dead_letters(&spec.name),
    }
}

pub(in crate::http) async fn view(context: &Context<'_>) -> Result<View, Error> {
    let [name] = context.variables.all();
    let entry = processors::find(context.app, &percent_decode(name))?;
    let spec = &entry.spec;
    let positions = processors::positions(context.app, entry).await.ok();
    let row = row(context, entry, positions.as_deref());
    let mut page = ProcessorPage {
        group: spec.group.clone(),
        figures: figures(context, entry, &row),
        circuit: circuits::circuit(context, entry, row.behind),
        settings: settings(spec),
        row,
        ..ProcessorPage::default()
    };
    fill_partitions(&mut page, context, entry, &positions.unwrap_or_default());
    let hub = Resource::Hub(spec.dead.as_str());
    page.may_read_letters = context.may_see(hub);
    if page.may_read_letters && !context.live {
        page.letters = dead_letters::oldest(entry, LETTERS_MAX).await?;
    }
    Ok(View::from(&page))
}

fn figures(context: &Context<'_>, entry: &Entry, row: &ProcessorRow) -> Vec<Figure> {
    let series = context.app.console.figures.processor(&row.name);
    let activity = &entry.activity;
    let behind = row.behind.map(|behind| plural(behind, "event"));
    vec![
        Figure::new("handled", rate(row.handled_per_second)).history(row.history.clone()),
        Figure::new("failed calls", rate(series.failures.rate())).history(series.failures.points()),
        Figure::new("behind", behind.unwrap_or("–".to_owned())),
        Figure::new("dead letters", count(row.dead_letters)).bad_if(row.dead_letters > 0),
        Figure::new("calls since start", count(read(&activity.deliveries))),
        Figure::new("restarts", count(read(&activity.restarts))),
    ]
}

fn fill_partitions(
    page: &mut ProcessorPage,
    context: &Context<'_>,
    entry: &Entry,
    positions: &[Position],
) {
    let here = entry.activity.partitions();
    let from = context.field("from").and_then(|text| text.parse().ok());
    let from: usize = from.unwrap_or(0);
    let partition = |position: &Position| ProcessorPartition {
        number: position.of.partition,
        here: here.contains_key(&position.of),
        position: position.offset,
        end: position.end,
        behind: position.behind() as u64,
        trouble: here.get(&position.of).cloned().flatten(),
    };
    let shown = positions.iter().skip(from).take(ROWS_MAX);
    page.partitions = shown.map(partition).collect();
    page.partitions_total = positions.len() as u64;
    let next = from.saturating_add(ROWS_MAX);
    page.next = (next < positions.len()).then(|| format!("?from={next}"));
}

fn settings(spec: &ProcessorSpec) -> Vec<(&'static str, String)> {
    let options = &spec.options;
    let timeout = options.timeout.map(|time| seconds(time.as_secs_f64()));
    vec![
        ("dead-letter hub", spec.dead.to_string()),
        ("events per call, at most", count(spec.batch.into())),
        (
            "timeout of a call",
            timeout.unwrap_or_else(|| "none".to_owned()),
        ),
        (
            "attempts",
            match options.retry.tries_max {
                Some(tries) => format!("{tries}, then a dead letter"),
                None => "without end".to_owned(),
            },
        ),
        (
            "replays of a dead letter",
            format!("{} at most", spec.replays_max),
        ),
        (
            "dead letters in a row",
            format!("{}, then the circuit opens", spec.poison_max),
        ),
    ]
}

/// Whether the caller may open and close the circuit.
pub(super) fn may_deploy(context: &Context<'_>, entry: &Entry) -> bool {
    let deployment = Resource::Deployment(&entry.spec.name);
    context.caller.may(Right::Deploy, deployment)
}

/// The answer for an item that was deleted.
pub(super) fn not_found(message: String) -> Error {
    Error::not_found(message, "")
}
