//! The telemetry of a live job beyond its status: figures of each step, samples of events, and the latest data errors.
//!
//! All of it outlives a run, because a job that restarts for new partitions is still the same job to its users.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwater_engine::StepCounter;

use crate::error_log::ErrorLog;
use crate::load::Job;
use crate::samples::{SampleBuffer, StreamSampler};

/// Figures of a step of the plan since the start of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepFigures {
    /// Rows that it passed on.
    pub rows: u64,
    /// The size of its state at the last checkpoint.
    pub state_bytes: u64,
}

#[derive(Clone)]
pub(super) struct Telemetry {
    /// Per node of the plan.
    pub steps: Arc<[StepCounter]>,
    pub samples: Arc<SampleBuffer>,
    pub errors: Arc<ErrorLog>,
}

impl Telemetry {
    pub(super) fn new(job: &Job) -> Telemetry {
        let steps = job.plan.nodes.iter().map(|_| StepCounter::default());
        Telemetry {
            steps: steps.collect(),
            samples: Arc::default(),
            errors: Arc::default(),
        }
    }

    /// The sampler of a partition.
    pub(super) fn sampler(&self, input: usize, partition: usize) -> StreamSampler {
        StreamSampler {
            buffer: self.samples.clone(),
            input,
            partition,
        }
    }

    /// Per node of the plan.
    pub(super) fn figures(&self) -> Vec<StepFigures> {
        let figures = self.steps.iter().map(|step| StepFigures {
            rows: step.rows.load(Ordering::Relaxed),
            state_bytes: step.state_bytes.load(Ordering::Relaxed),
        });
        figures.collect()
    }
}
