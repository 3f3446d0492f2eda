//! Connected operators, driven by the caller.
//!
//! Operators are in topological order. Each pushed item runs through to the exits before the next one, so a pipeline has
//! no queues and no threads.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};

use crate::ops::{Context, DataErrors, Item, Operator, WindowEntry};
use crate::script::Scripts;

pub struct Pipeline {
    stages: Vec<Stage>,
    /// The pending input of each stage; empty between pushes.
    inboxes: Vec<Vec<(usize, Item)>>,
    /// The output of one operator; reused.
    emitted: Vec<Item>,
    pub errors: DataErrors,
    trace: Option<Vec<WindowEntry>>,
    scripts: Option<Arc<Scripts>>,
}

pub(crate) struct Stage {
    pub operator: Box<dyn Operator>,
    pub targets: Vec<Target>,
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
            trace: None,
            scripts: None,
        }
    }

    /// Sets the JavaScript functions that expressions and aggregates may call.
    pub(crate) fn with_scripts(mut self, scripts: Option<Arc<Scripts>>) -> Pipeline {
        self.scripts = scripts;
        self
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
        self.inboxes[first].push((port, item));
        for at in first..self.stages.len() {
            let mut inbox = std::mem::take(&mut self.inboxes[at]);
            for (port, item) in inbox.drain(..) {
                self.step(at, port, item, exits);
            }
            self.inboxes[at] = inbox;
        }
    }

    fn step(&mut self, at: usize, port: usize, item: Item, exits: &mut Vec<(usize, Item)>) {
        let stage = &mut self.stages[at];
        let mut context = Context {
            out: &mut self.emitted,
            errors: &mut self.errors,
            trace: self.trace.as_mut(),
        };
        stage.operator.push(port, item, &mut context);
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

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        for stage in &self.stages {
            let mut state = Vec::new();
            stage.operator.snapshot(&mut state);
            out.blob(&state);
        }
    }

    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for stage in &mut self.stages {
            let mut state = Reader::new(from.blob()?);
            stage.operator.restore(&mut state)?;
            if !state.is_done() {
                return Err(DecodeError::Invalid("an operator left bytes unread"));
            }
        }
        Ok(())
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
