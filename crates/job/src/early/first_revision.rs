//! The first revision that counts an event.
//!
//! Revisions depend on the events alone, so they follow from a trace of the events; nothing of the run is recorded for
//! them.

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

/// A window in the time of revisions.
pub(crate) struct CountedWindow {
    pub bounds: WindowBounds,
    /// Revisions after this time count its first event.
    pub counted_from: Instant,
    /// Revisions after this time have its final row before them.
    pub complete_from: Instant,
}

impl RevisionTimes {
    /// `events` has the input of every event that was kept, and the time after which revisions count it.
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
            // An event of any input that stops makes all revisions of its interval due.
            let stopped = events.clone().filter(|(input, counted_from)| {
                early.inputs[*input] && *counted_from < Instant::AFTER_ALL
            });
            let times =
                stopped.map(|(_, counted_from)| revision_after(counted_from, settings.every));
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
        counted_from: Instant,
        windows: &[CountedWindow],
    ) -> Vec<(&str, Instant)> {
        let statements = self.statements.iter();
        let statements = statements.filter(|statement| statement.inputs.contains(&input));
        let first = statements.filter_map(|statement| {
            let windows = windows.iter();
            let first = windows.filter_map(|window| statement.first(counted_from, window));
            Some((statement.output.as_str(), first.min()?))
        });
        first.collect()
    }
}

impl StatementRevisions {
    fn first(&self, counted_from: Instant, window: &CountedWindow) -> Option<Instant> {
        let (start, end) = window.bounds;
        let has_size = self.window_sizes.contains(&Some(end - start));
        let begin = match has_size {
            true => start,
            // The age of a session counts from the first revision that sees it.
            false if self.window_sizes.contains(&None) => self.next(window.counted_from)?,
            false => return None,
        };
        let mut first = self.next(counted_from)?;
        if self.after > Duration::ZERO {
            first = first.max(begin + self.after);
        }
        let given = self.times.range(first..).next();
        given
            .copied()
            .filter(|given| *given <= window.complete_from)
    }

    /// The first revision after `time`.
    fn next(&self, time: Instant) -> Option<Instant> {
        let later = time + Duration::from_ticks(1);
        self.times.range(later..).next().copied()
    }
}

/// The revision at the end of the interval that a time lies in.
fn revision_after(time: Instant, every: Duration) -> Instant {
    (time + Duration::from_ticks(1)).ceil_to(every, Duration::ZERO)
}

fn inputs_below(plan: &Plan, node: NodeId, inputs: &mut Vec<usize>) {
    if let Node::Source { input } = plan.nodes[node.0] {
        inputs.push(input);
    }
    for below in plan.nodes[node.0].below() {
        inputs_below(plan, below, inputs);
    }
}
