//! Early results: the rows of a window before it is complete (requirement E1).
//!
//! The early result at a time T is exactly what the job would give if its input ended with the events before T. No
//! operator knows of it: all streams stop at T (`clock.rs`), a copy of every pipeline receives an infinite watermark,
//! and the output of the copies is the early rows. `statement.rs` decides which statements have them and which columns
//! tell rows apart, `revisions.rs` numbers them, `first_revision.rs` finds the first one that counts an event (with
//! `substream_releases.rs` for substreams).
//!
//! A revision takes place at T, a multiple of the interval, if there was an event in the interval before T. That
//! depends on the events alone: a replay gives the same revisions, and a year of silence gives none.
//!
//! With substreams no time has all events before it. Their streams stop where the floor, which is common to all keys
//! (the latest arrival minus the late tolerance), reaches T. The early result then counts the events that have left
//! their substream in order by then, those of keys that are ahead of T included.

mod clock;
mod first_revision;
mod revisions;
mod statement;
mod substream_releases;

use std::sync::Arc;

use highwater_connect::FINAL_COLUMN;
use highwater_engine::{Item, OutputOverflow, PhysicalPlan, Pipeline};
use highwater_query::plan::{Name, Node, NodeId, Plan};
use highwater_time::Instant;

use crate::config::{EarlyResults, JobFile};
use crate::partition_pipeline::ExitItem;

pub(crate) use clock::{RevisionClock, RevisionStep};
pub(crate) use first_revision::{CountedWindow, RevisionTimes, WindowBounds};
pub(crate) use revisions::Revisions;
use statement::{IdentityError, RowIdentity};
pub(crate) use substream_releases::SubstreamReleases;

/// The column with the number of the revision.
const REVISION: &str = "_revision";

/// The progress of a stream that stops at barriers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamProgress {
    /// No unreleased event has an earlier timestamp.
    pub next: Instant,
    /// Events were released since the last report.
    pub has_events: bool,
}

/// The rows of a stream if the input ended at the barrier.
pub(crate) struct EndPreview {
    pub stream: usize,
    pub input: usize,
    pub exit_items: Vec<ExitItem>,
}

/// The statements whose outputs have early results, and the inputs below them.
#[derive(Clone, Debug)]
pub(crate) struct EarlyPlan {
    /// Per statement of the plan; `None` if its output has no early results.
    pub statements: Vec<Option<EarlyStatement>>,
    /// Per input, whether its streams stop at barriers.
    pub inputs: Vec<bool>,
    /// Per node of the plan, whether early rows are made of its rows.
    nodes: Vec<bool>,
}

/// Makes the copies of pipelines that give early rows.
pub(crate) struct PipelineCopies {
    pub plan: Arc<EarlyPlan>,
    physical: PhysicalPlan,
}

impl PipelineCopies {
    pub(crate) fn new(plan: &Arc<EarlyPlan>, physical: &PhysicalPlan) -> Arc<PipelineCopies> {
        Arc::new(PipelineCopies {
            plan: plan.clone(),
            physical: physical.clone(),
        })
    }

    /// The outputs of the pipeline of a partition if the input ended now, as (exit, item).
    pub(crate) fn end_of_local(
        &self,
        input: usize,
        pipeline: &Pipeline,
    ) -> Result<Vec<(usize, Item)>, OutputOverflow> {
        let mut copy = self.physical.local(input);
        self.copy(pipeline, &mut copy);
        let mut exits = Vec::new();
        let end = Item::Watermark(Instant::AFTER_ALL);
        copy.push(PhysicalPlan::LOCAL_ENTRY, end, &mut exits);
        copy.overflow().map_or(Ok(exits), Err)
    }

    /// The outputs of the shared pipeline if streams ended in this way, as (statement, item).
    pub(crate) fn end_of_shared(
        &self,
        partitions: &[usize],
        pipeline: &Pipeline,
        previews: Vec<EndPreview>,
    ) -> Result<Vec<(usize, Item)>, OutputOverflow> {
        let mut copy = self.physical.shared(partitions);
        self.copy(pipeline, &mut copy.pipeline);
        let mut exits = Vec::new();
        for preview in previews {
            for exit_item in preview.exit_items {
                let entry = copy.entry(preview.input, exit_item.exit, exit_item.partition);
                copy.pipeline.renew_budget();
                copy.pipeline.push(entry, exit_item.item, &mut exits);
            }
        }
        copy.pipeline.overflow().map_or(Ok(exits), Err)
    }

    fn copy(&self, pipeline: &Pipeline, fresh: &mut Pipeline) {
        let copied = pipeline.copy_into(fresh, &self.plan.nodes);
        copied.expect("an operator reads its own snapshot");
    }
}

/// A statement of an output with early results.
#[derive(Clone, Debug)]
pub(crate) struct EarlyStatement {
    pub settings: EarlyResults,
    /// The names of its columns, without those of revisions.
    names: Vec<Name>,
    /// The identity of its rows, or why it has final rows only.
    identity: Result<RowIdentity, &'static str>,
}

/// The setting `early` of an output cannot be used with the query.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("[outputs.{output}] early: {reason}")]
pub struct EarlyError {
    output: String,
    reason: String,
}

impl EarlyPlan {
    /// `None` if no output has early results.
    pub(crate) fn of(file: &JobFile, plan: &Plan) -> Result<Option<EarlyPlan>, EarlyError> {
        let mut early = EarlyPlan {
            statements: vec![None; plan.outputs.len()],
            inputs: vec![false; plan.inputs.len()],
            nodes: vec![false; plan.nodes.len()],
        };
        for output in &file.outputs {
            let Some(settings) = output.early else {
                continue;
            };
            let added = early.add_output(&output.name, settings, plan);
            let added = added.and_then(|()| early.check_arrivals(file, plan));
            added.map_err(|reason| EarlyError {
                output: output.name.clone(),
                reason,
            })?;
        }
        let is_empty = early.statements.iter().all(Option::is_none);
        Ok((!is_empty).then_some(early))
    }

    fn add_output(
        &mut self,
        output: &str,
        settings: EarlyResults,
        plan: &Plan,
    ) -> Result<(), String> {
        let statements = plan.outputs.iter().enumerate();
        let statements = statements.filter(|(_, to)| to.name.eq_ignore_ascii_case(output));
        let mut never: Option<&'static str> = None;
        let mut known: Option<Vec<String>> = None;
        for (number, to) in statements {
            let names = plan.column_names(to.from);
            check_names(&names)?;
            self.stop_inputs(plan, to.from);
            let identity = match RowIdentity::of(plan, to.from, &names) {
                Ok(identity) => {
                    let columns = identity.names(&names);
                    let first = known.get_or_insert_with(|| columns.clone());
                    if *first != columns {
                        return Err(format!(
                            "its statements tell rows apart by different columns, {} and {}; \
                             give each statement an output of its own",
                            first.join(", "),
                            columns.join(", ")
                        ));
                    }
                    self.need_nodes(plan, to.from);
                    Ok(identity)
                }
                Err(IdentityError::Unselected(column)) => {
                    return Err(format!(
                        "rows are told apart by their group, so add {column} to the columns of the statement \
                         that writes to \"{output}\""
                    ));
                }
                Err(IdentityError::Never(reason)) => {
                    never = Some(reason);
                    Err(reason)
                }
            };
            self.statements[number] = Some(EarlyStatement {
                settings,
                names,
                identity,
            });
        }
        match (known, never) {
            (Some(_), _) => Ok(()),
            (None, Some(reason)) => Err(format!("there is nothing to give early: {reason}")),
            (None, None) => Err("no statement of the query writes to this output".to_owned()),
        }
    }

    /// The streams of all inputs below a statement stop at barriers, so that its rows come at a fixed place among the
    /// others.
    fn stop_inputs(&mut self, plan: &Plan, node: NodeId) {
        if let Node::Source { input } = plan.nodes[node.0] {
            self.inputs[input] = true;
        }
        let below = plan.nodes[node.0].below().into_iter();
        below.for_each(|below| self.stop_inputs(plan, below));
    }

    /// The clocks of substreams have only arrival times in common, so their revisions follow these.
    fn check_arrivals(&self, file: &JobFile, plan: &Plan) -> Result<(), String> {
        let inputs = plan.inputs.iter().zip(&self.inputs);
        let mut per_key = inputs.filter(|(input, stops)| **stops && !input.substream.is_empty());
        let without = per_key.find(|(input, _)| {
            let mut declared = file.inputs.iter();
            let declared = declared.find(|own| own.name.eq_ignore_ascii_case(&input.name));
            declared.is_some_and(|own| own.hubs.is_empty() && own.arrival.is_none())
        });
        match without {
            Some((input, _)) => Err(format!(
                "input \"{0}\" has TIMESTAMP BY .. OVER, whose early results follow arrival times; name the column that \
                 has them: [inputs.{0}] arrival = \"..\"",
                input.name
            )),
            None => Ok(()),
        }
    }

    fn need_nodes(&mut self, plan: &Plan, node: NodeId) {
        self.nodes[node.0] = true;
        let below = plan.nodes[node.0].below().into_iter();
        below.for_each(|below| self.need_nodes(plan, below));
    }

    /// The columns that tell the rows of an output apart; `None` if it has no early results.
    pub(crate) fn key_of(&self, plan: &Plan, output: &str) -> Option<Vec<String>> {
        let statements = plan.outputs.iter().zip(&self.statements);
        let mut own = statements.filter(|(to, _)| to.name.eq_ignore_ascii_case(output));
        own.find_map(|(_, statement)| {
            let statement = statement.as_ref()?;
            let identity = statement.identity.as_ref().ok()?;
            Some(identity.names(&statement.names))
        })
    }

    /// A line for each statement whose output has early results.
    pub(crate) fn describe(&self, plan: &Plan) -> Vec<String> {
        let statements = plan.outputs.iter().zip(&self.statements);
        let lines = statements.filter_map(|(to, statement)| {
            let statement = statement.as_ref()?;
            let every = statement.settings.every;
            Some(match &statement.identity {
                Ok(identity) => format!(
                    "{}: early rows every {every}, identified by {}",
                    to.name,
                    identity.names(&statement.names).join(", ")
                ),
                Err(reason) => format!("{}: final rows only, because {reason}", to.name),
            })
        });
        lines.collect()
    }
}

/// The columns of a statement in its output.
pub(crate) fn output_columns(
    plan: &Plan,
    statement: usize,
    early: Option<&EarlyPlan>,
) -> Vec<Name> {
    let mut names = plan.column_names(plan.outputs[statement].from);
    if early.is_some_and(|early| early.statements[statement].is_some()) {
        names.extend([REVISION, FINAL_COLUMN].map(|name| Name::Field(name.to_owned())));
    }
    names
}

fn check_names(names: &[Name]) -> Result<(), String> {
    let taken = names.iter().find_map(|name| match name {
        Name::Field(name) => [REVISION, FINAL_COLUMN]
            .into_iter()
            .find(|own| name.eq_ignore_ascii_case(own)),
        _ => None,
    });
    match taken {
        Some(name) => Err(format!(
            "the query has a column {name} of its own; give it another name"
        )),
        None => Ok(()),
    }
}
