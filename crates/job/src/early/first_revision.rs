//! The first revision that counts an event.
//!
//! Revisions depend on the timestamps of the events alone, so they follow from a trace of the events; nothing of the run
//! is recorded for them.

use std::collections::BTreeSet;

use highwater_query::plan::{Node, NodeId, Plan};
use highwater_time::{Duration, Instant};

use super::{EarlyPlan, EarlyStatement};

/// The times of the revisions of a run, per statement with early rows.
pub(crate) struct RevisionTimes {
    statements: Vec<StatementRevisions>,
}

struct StatementRevisions {
    output: String,
    /// The inputs below it.
    inputs: Vec<usize>,
    after: Duration,
    /// The sizes of its windows; `None` for sessions.
    window_sizes: Vec<Option<Duration>>,
    times: BTreeSet<Instant>,
}

/// The window (start, end].
pub(crate) type WindowBounds = (Instant, Instant);

impl RevisionTimes {
    /// `events` has the input and the timestamp of every event that was kept.
    pub(crate) fn new(
        early: &EarlyPlan,
        plan: &Plan,
        events: impl Iterator<Item = (usize, Instant)> + Clone,
    ) -> RevisionTimes {
        let statements = plan.outputs.iter().zip(&early.statements);
        let statements = statements.filter_map(|(to, statement)| {
            let EarlyStatement {
                settings, identity, ..
            } = statement.as_ref()?;
            let identity = identity.as_ref().ok()?;
            let mut inputs = Vec::new();
            inputs_below(plan, to.from, &mut inputs);
            // Revisions of substreams follow arrivals, which say nothing about the timestamps that they count.
            let mut sources = inputs.iter().map(|input| &plan.inputs[*input]);
            if sources.any(|input| !input.substream.is_empty()) {
                return None;
            }
            // An event of any input that stops makes all revisions of its interval due.
            let stopped = events.clone().filter(|(input, _)| early.inputs[*input]);
            let times = stopped.map(|(_, timestamp)| revision_after(timestamp, settings.every));
            Some(StatementRevisions {
                output: to.name.clone(),
                inputs,
                after: settings.after,
                window_sizes: identity
                    .windows
                    .kinds()
                    .iter()
                    .map(|kind| kind.size())
                    .collect(),
                times: times.collect(),
            })
        });
        RevisionTimes {
            statements: statements.collect(),
        }
    }

    /// The times of all revisions.
    pub(crate) fn times(&self) -> BTreeSet<Instant> {
        let times = self
            .statements
            .iter()
            .flat_map(|statement| &statement.times);
        times.copied().collect()
    }

    /// Per output, the first revision that counts an event; an output whose final row alone does is left out.
    pub(crate) fn first(
        &self,
        input: usize,
        timestamp: Instant,
        windows: &BTreeSet<WindowBounds>,
    ) -> Vec<(&str, Instant)> {
        let statements = self.statements.iter();
        let statements = statements.filter(|statement| statement.inputs.contains(&input));
        let first = statements.filter_map(|statement| {
            let windows = windows.iter();
            let first = windows.filter_map(|window| statement.first(timestamp, *window));
            Some((statement.output.as_str(), first.min()?))
        });
        first.collect()
    }
}

impl StatementRevisions {
    fn first(&self, timestamp: Instant, (start, end): WindowBounds) -> Option<Instant> {
        let has_size = self.window_sizes.contains(&Some(end - start));
        let begin = match has_size {
            true => start,
            // The age of a session counts from the first revision that sees it.
            false if self.window_sizes.contains(&None) => self.next(start)?,
            false => return None,
        };
        let first = self.next(timestamp)?.max(begin + self.after);
        let given = self.times.range(first..).next();
        given.copied().filter(|given| *given <= end)
    }

    /// The first revision that sees events of `time`.
    fn next(&self, time: Instant) -> Option<Instant> {
        let later = time + Duration::from_ticks(1);
        self.times.range(later..).next().copied()
    }
}

/// The revision at the end of the interval that a timestamp lies in.
fn revision_after(timestamp: Instant, every: Duration) -> Instant {
    (timestamp + Duration::from_ticks(1)).ceil_to(every, Duration::ZERO)
}

fn inputs_below(plan: &Plan, node: NodeId, inputs: &mut Vec<usize>) {
    if let Node::Source { input } = plan.nodes[node.0] {
        inputs.push(input);
    }
    for below in plan.nodes[node.0].below() {
        inputs_below(plan, below, inputs);
    }
}
