//! Metrics of jobs, summed over partitions; `/api/jobs/NAME` has each partition.

use highwater_job::live::{InputStatus, JobStatus, OutputStatus, PartitionStatus};

use super::families::*;
use super::page::Page;
use crate::jobs::{JobView, Jobs};

type JobGauge = fn(&JobStatus) -> Option<f64>;
type PartitionCounter = fn(&PartitionStatus) -> u64;
type OutputCounter = fn(&OutputStatus) -> u64;

const JOBS: &[(&Family, JobGauge)] = &[
    (&JOB_ALARMS, |job| Some(job.alarms.len() as f64)),
    (&JOB_WATERMARK, |job| {
        let known = job.watermark.is_in_calendar();
        known.then(|| job.watermark.to_unix_millis() as f64 / 1e3)
    }),
    (&JOB_WATERMARK_DELAY, |job| {
        job.watermark_delay.map(|delay| delay.as_secs_f64())
    }),
    (&JOB_STATE_BYTES, |job| Some(job.checkpoint.bytes as f64)),
    (&JOB_RUNTIME_ERRORS, |job| {
        let inputs = job.inputs.iter().flat_map(|input| &input.partitions);
        let of_inputs: u64 = inputs.map(|partition| partition.runtime_errors).sum();
        Some((job.runtime_errors + of_inputs) as f64)
    }),
];

const INPUTS: &[(&Family, PartitionCounter)] = &[
    (&JOB_EVENTS, |partition| partition.events),
    (&JOB_BYTES, |partition| partition.bytes),
    (&JOB_BACKLOG, |partition| partition.backlog),
    (&JOB_EARLY_ADJUSTED, |partition| {
        partition.time.early_adjusted
    }),
    (&JOB_EARLY_DROPPED, |partition| partition.time.early_dropped),
    (&JOB_LATE_ADJUSTED, |partition| partition.time.late_adjusted),
    (&JOB_LATE_DROPPED, |partition| partition.time.late_dropped),
    (&JOB_DISORDER_ADJUSTED, |partition| {
        partition.time.out_of_order_adjusted
    }),
    (&JOB_DISORDER_DROPPED, |partition| {
        partition.time.out_of_order_dropped
    }),
    (&JOB_DESERIALIZATION_ERRORS, |partition| {
        partition.deserialization_errors
    }),
    (&JOB_CONVERSION_ERRORS, |partition| {
        partition.conversion_errors
    }),
];

const OUTPUTS: &[(&Family, OutputCounter)] = &[
    (&JOB_ROWS, |output| output.rows),
    (&JOB_ROWS_WAITING, |output| output.waiting),
    (&JOB_ROWS_DROPPED, |output| output.dropped),
    (&JOB_RETRIES, |output| output.retries),
];

pub(super) fn jobs(page: &mut Page, jobs: &Jobs) {
    let all = jobs.list();
    let runs = |job: &JobView| {
        let status = job.status.as_ref();
        u8::from(status.is_some_and(|status| !status.state.is_over()))
    };
    page.start(&JOB_RUNNING);
    for job in &all {
        page.value(&JOB_RUNNING, &[&job.name], runs(job));
    }
    let started: Vec<&JobStatus> = all.iter().filter_map(|job| job.status.as_ref()).collect();
    for (family, of) in JOBS {
        page.start(family);
        for job in &started {
            if let Some(value) = of(job) {
                page.value(family, &[&job.name], value);
            }
        }
    }
    for (family, of) in INPUTS {
        page.start(family);
        for (job, input) in each(&started, |job| &job.inputs) {
            let sum: u64 = sum(input, *of);
            page.value(family, &[job, &input.name], sum);
        }
    }
    for (family, of) in OUTPUTS {
        page.start(family);
        for (job, output) in each(&started, |job| &job.outputs) {
            page.value(family, &[job, &output.name], of(output));
        }
    }
}

fn sum(input: &InputStatus, of: PartitionCounter) -> u64 {
    input.partitions.iter().map(of).sum()
}

fn each<'a, T: 'a>(
    jobs: &'a [&JobStatus],
    of: fn(&JobStatus) -> &Vec<T>,
) -> impl Iterator<Item = (&'a str, &'a T)> {
    let parts = move |job: &'a &JobStatus| of(job).iter().map(|part| (job.name.as_str(), part));
    jobs.iter().flat_map(parts)
}
