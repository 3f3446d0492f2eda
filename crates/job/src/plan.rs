//! An input for its readers: plan, time policy and format.

use std::path::{Path, PathBuf};

use highwater_connect::json::Field;
use highwater_connect::{Compression, Format, Level, ReadError, Source, SourceOptions};
use highwater_query::lookback;
use highwater_query::plan::{Input, Type};
use highwater_time::{Duration, TimePolicy};

use crate::config::{self, OnError};
use crate::load::Job;

#[derive(Clone)]
pub(crate) struct InputPlan {
    pub index: usize,
    pub plan: Input,
    pub policy: TimePolicy,
    pub linger: Duration,
    /// Payload column with the arrival time.
    pub arrival: Option<String>,
    /// Payload column with the partition.
    pub partition: Option<String>,
    pub format: InputFormat,
    /// Read from hubs, which add metadata to events.
    pub hub: bool,
    /// Lost events become dead letters.
    pub dead_letters: bool,
    /// Whole events are decoded besides the columns that the query reads.
    pub keeps_whole: bool,
    /// Left out of shown paths.
    pub folder: PathBuf,
}

impl InputPlan {
    /// The input of that index in the plan, and its declaration in the job file.
    pub(crate) fn of(job: &Job, index: usize) -> (InputPlan, &config::Input) {
        let planned = &job.plan.inputs[index];
        let Some(declared) = job.file.input(&planned.name) else {
            unreachable!("the query was bound against the inputs of the job file")
        };
        let plan = InputPlan {
            index,
            plan: planned.clone(),
            policy: job.file.time,
            linger: lookback(&job.plan),
            arrival: declared.arrival.clone(),
            partition: declared.partition.clone(),
            format: InputFormat {
                format: declared.format,
                compression: declared.compression,
                level: job.file.compatibility,
                declared: planned.schema.clone(),
            },
            hub: !declared.hubs.is_empty() && !declared.is_followed(),
            dead_letters: job.file.on_error == OnError::DeadLetter,
            keeps_whole: job.file.on_error == OnError::DeadLetter,
            folder: job.file.folder.clone(),
        };
        (plan, declared)
    }
}

/// The encoding of an input.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputFormat {
    pub format: Option<Format>,
    pub compression: Compression,
    pub level: Level,
    pub declared: Option<Vec<(String, Type)>>,
}

impl InputFormat {
    pub(crate) fn open(
        &self,
        path: &Path,
        fields: Vec<Field>,
        keep_text: bool,
    ) -> Result<Box<dyn Source>, ReadError> {
        highwater_connect::open(path, self.options(fields, keep_text))
    }

    pub(crate) fn options(&self, fields: Vec<Field>, keep_text: bool) -> SourceOptions {
        SourceOptions {
            format: self.format,
            compression: self.compression,
            level: self.level,
            declared: self.declared.clone(),
            fields,
            keep_text,
        }
    }
}

/// One partition of an input.
#[derive(Clone)]
pub(crate) struct PartitionId {
    /// Its index among the partitions of the input.
    pub number: usize,
    /// Its PartitionId.
    pub shown: highwater_engine::Value,
}
