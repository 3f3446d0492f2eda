//! Connected operators, driven by the caller.
//!
//! Operators are in topological order. Each pushed item runs through to the exits before the next one, so a pipeline
//! has no queues and no threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_codec::{DecodeError, Reader, Writer};

use crate::ops::{Context, DataErrors, Item, Operator, OutputBudget, OutputOverflow, WindowEntry};
use crate::script::Scripts;
use crate::work_limit::{PIECE_ROWS, WorkLimit, limit_text};

pub struct Pipeline {
    stages: Vec<Stage>,
    /// The pending input of each stage; empty between pushes.
    inboxes: Vec<Vec<(usize, Item)>>,
    /// The output of one operator; reused.
    emitted: Vec<Item>,
    pub errors: DataErrors,
    budget: OutputBudget,
    trace: Option<Vec<WindowEntry>>,
    scripts: Option<Arc<Scripts>>,
    /// Per node of the plan; empty without counting.
    counters: Arc<[StepCounter]>,
}

/// The counts of one step of the plan over all pipelines of a run.
#[derive(Debug, Default)]
pub struct StepCounter {
    /// Rows that the step passed on.
    pub rows: AtomicU64,
    /// The size of its state when it was last written or read.
    pub state_bytes: AtomicU64,
}

pub(crate) struct Stage {
    pub operator: Box<dyn Operator>,
    pub targets: Vec<Target>,
    /// The node of the plan that it runs.
    pub node: usize,
    /// Its rows are those of the node. Otherwise another stage passes them on later.
    pub is_last_of_node: bool,
    /// Its share in [`StepCounter::state_bytes`].
    pub state_bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Stage { stage: usize, port: usize },
    Exit(usize),
}

impl Pipeline {
    pub(crate) fn new(stages: Vec<Stage>) -> Pipeline {
        debug_assert!(stages.iter().enumerate().all(|(at, stage)| {
            stage
                .targets
                .iter()
                .all(|t| !matches!(t, Target::Stage { stage, .. } if *stage <= at))
        }));
        Pipeline {
            inboxes: stages.iter().map(|_| Vec::new()).collect(),
            stages,
            emitted: Vec::new(),
            errors: DataErrors::default(),
            budget: OutputBudget::default(),
            trace: None,
            scripts: None,
            counters: Arc::new([]),
        }
    }

    /// Counts rows and state of its steps, with one counter for each node of the plan.
    pub fn count_into(&mut self, counters: Arc<[StepCounter]>) {
        self.counters = counters;
    }

    /// Charges the rows of all steps to `limit`.
    pub fn limit_work(&mut self, limit: Arc<WorkLimit>) {
        self.budget = OutputBudget::of_run(limit);
    }

    /// Sets the JavaScript functions that expressions and aggregates may call.
    pub(crate) fn with_scripts(mut self, scripts: Option<Arc<Scripts>>) -> Pipeline {
        self.scripts = scripts;
        self
    }

    /// Limits the rows between two calls of [`Pipeline::renew_budget`].
    pub fn limit_output(&mut self, bytes_max: u64) {
        self.budget = OutputBudget::new(usize::try_from(bytes_max).unwrap_or(usize::MAX));
    }

    pub fn renew_budget(&mut self) {
        self.budget.renew();
    }

    /// The step that exceeded the budget. The output since then is incomplete, and the state is invalid.
    pub fn overflow(&self) -> Option<OutputOverflow> {
        self.budget.overflow()
    }

    /// From now on, records which events enter which windows.
    pub fn trace_windows(&mut self) {
        self.trace = Some(Vec::new());
    }

    pub fn take_trace(&mut self) -> Vec<WindowEntry> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Runs one item from `entry` through the pipeline and appends its output as (exit, item).
    pub fn push(&mut self, entry: Target, item: Item, exits: &mut Vec<(usize, Item)>) {
        let Target::Stage { stage: first, port } = entry else {
            if let Target::Exit(exit) = entry {
                exits.push((exit, item));
            }
            return;
        };
        let _entered = self.scripts.as_ref().map(|scripts| scripts.enter());
        if self.budget.work_limit().is_some() {
            return self.push_in_pieces(first, port, item, exits);
        }
        self.run_from(first, port, item, exits);
    }

    fn run_from(&mut self, first: usize, port: usize, item: Item, exits: &mut Vec<(usize, Item)>) {
        self.inboxes[first].push((port, item));
        for at in first..self.stages.len() {
            let mut inbox = std::mem::take(&mut self.inboxes[at]);
            for (port, item) in inbox.drain(..) {
                self.step(at, port, item, exits);
            }
            self.inboxes[at] = inbox;
        }
    }

    /// The rows of a limited run come in small pieces; those with lanes do not, because watermarks lie between them.
    fn push_in_pieces(
        &mut self,
        first: usize,
        port: usize,
        item: Item,
        exits: &mut Vec<(usize, Item)>,
    ) {
        let _limited = limit_text();
        match item {
            Item::Rows(chunk) if chunk.lanes.is_none() && chunk.rows() > PIECE_ROWS => {
                for start in (0..chunk.rows()).step_by(PIECE_ROWS) {
                    let piece = chunk.slice(start, PIECE_ROWS.min(chunk.rows() - start));
                    self.run_from(first, port, Item::Rows(piece), exits);
                }
            }
            item => self.run_from(first, port, item, exits),
        }
    }

    fn step(&mut self, at: usize, port: usize, item: Item, exits: &mut Vec<(usize, Item)>) {
        let stage = &mut self.stages[at];
        let mut context = Context {
            out: &mut self.emitted,
            errors: &mut self.errors,
            budget: &self.budget,
            trace: self.trace.as_mut(),
        };
        if self.budget.is_exhausted() {
            return;
        }
        let charged = self.budget.work_limit().map(WorkLimit::bytes_used);
        stage.operator.push(port, item, &mut context);
        if let (Some(limit), Some(before)) = (self.budget.work_limit(), charged) {
            // Operators that make many rows of few have charged them.
            let charged = limit.bytes_used().saturating_sub(before);
            let emitted: u64 = self.emitted.iter().map(item_bytes).sum();
            limit.charge(emitted.saturating_sub(charged));
        }
        if self.budget.is_exhausted() {
            return self.emitted.clear();
        }
        if let Some(counter) = self
            .counters
            .get(stage.node)
            .filter(|_| stage.is_last_of_node)
        {
            let rows = self.emitted.iter().map(item_rows).sum();
            counter.rows.fetch_add(rows, Ordering::Relaxed);
        }
        for item in self.emitted.drain(..) {
            if let Item::Rows(chunk) = &item
                && chunk.rows() == 0
                && chunk.lanes.is_none()
            {
                continue;
            }
            let (last, others) = match stage.targets.split_last() {
                Some(split) => split,
                None => continue,
            };
            for target in others {
                deliver(&mut self.inboxes, exits, *target, item.clone());
            }
            deliver(&mut self.inboxes, exits, *last, item);
        }
    }

    /// Adds a port to the operator of a stage; `false` if it cannot have another.
    pub(crate) fn add_port(&mut self, stage: usize) -> bool {
        self.stages[stage].operator.add_port()
    }

    /// See [`Operator::state_bytes`].
    pub fn state_bytes(&self) -> usize {
        let operators = self.stages.iter().map(|stage| &stage.operator);
        operators.map(|operator| operator.state_bytes()).sum()
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        for stage in &self.stages {
            let mut state = Vec::new();
            stage.operator.snapshot(&mut state);
            self.count_state(stage, state.len());
            out.blob(&state);
        }
    }

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for at in 0..self.stages.len() {
            let blob = from.blob()?;
            let mut state = Reader::new(blob);
            self.stages[at].operator.restore(&mut state)?;
            if !state.is_done() {
                return Err(DecodeError::Invalid("an operator left bytes unread"));
            }
            self.count_state(&self.stages[at], blob.len());
        }
        Ok(())
    }

    /// Gives `fresh`, a new pipeline of the same plan, the limit of this one and the state of the steps that run these
    /// nodes of the plan. Rows, states and errors of the copy count nowhere.
    pub fn copy_into(&self, fresh: &mut Pipeline, nodes: &[bool]) -> Result<(), DecodeError> {
        let mut state = Vec::new();
        for (stage, copy) in self.stages.iter().zip(&mut fresh.stages) {
            if nodes.get(stage.node) == Some(&false) {
                continue;
            }
            if let Some(duplicate) = stage.operator.duplicate() {
                copy.operator = duplicate;
                continue;
            }
            state.clear();
            stage.operator.snapshot(&mut state);
            copy.operator.restore(&mut Reader::new(&state))?;
        }
        fresh.budget = self.budget.with_same_limit();
        Ok(())
    }

    fn count_state(&self, stage: &Stage, bytes: usize) {
        if let Some(counter) = self.counters.get(stage.node) {
            let before = stage.state_bytes.swap(bytes as u64, Ordering::Relaxed);
            let change = (bytes as u64).wrapping_sub(before);
            counter.state_bytes.fetch_add(change, Ordering::Relaxed);
        }
    }
}

impl Drop for Pipeline {
    /// The state is no longer part of the run.
    fn drop(&mut self) {
        for stage in &self.stages {
            self.count_state(stage, 0);
        }
    }
}

fn item_rows(item: &Item) -> u64 {
    match item {
        Item::Rows(chunk) => chunk.rows() as u64,
        Item::PartialPanes(_) | Item::Watermark(_) => 0,
    }
}

fn item_bytes(item: &Item) -> u64 {
    match item {
        Item::Rows(chunk) => chunk.approximate_bytes() as u64,
        Item::PartialPanes(_) | Item::Watermark(_) => 0,
    }
}

fn deliver(
    inboxes: &mut [Vec<(usize, Item)>],
    exits: &mut Vec<(usize, Item)>,
    target: Target,
    item: Item,
) {
    match target {
        Target::Stage { stage, port } => inboxes[stage].push((port, item)),
        Target::Exit(exit) => exits.push((exit, item)),
    }
}
