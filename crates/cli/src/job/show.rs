//! Formats the status of jobs as text.

use std::io::{self, Write};

use serde_json::Value;

use crate::node_args::{Columns, items, text};

/// One line for each job.
pub(crate) fn list(jobs: &[Value], out: &mut impl Write) -> io::Result<()> {
    let columns = Columns([24, 10, -12, -12, -10]);
    let mut names = ["job", "state", "events", "rows", "backlog"];
    writeln!(out, "{}  watermark", columns.line(names))?;
    names[0] = "name";
    for job in jobs {
        let watermark = job["watermark"].as_str().unwrap_or("-");
        writeln!(out, "{}  {watermark}", columns.fields(job, names))?;
        alarms(job, out)?;
    }
    Ok(())
}

/// The inputs, outputs and checkpoint of a job.
pub(crate) fn status(job: &Value, out: &mut impl Write) -> io::Result<()> {
    write!(out, "job {} is {}", text(job, "name"), text(job, "state"))?;
    if let (Some(events), Some(of)) = (
        job["replay"]["events"].as_u64(),
        job["replay"]["of"].as_u64(),
    ) {
        write!(out, ", {events} of {of} events")?;
    }
    writeln!(out)?;
    alarms(job, out)?;
    if let Some(delay) = job["watermark_delay_seconds"].as_f64() {
        let watermark = job["watermark"].as_str().unwrap_or("-");
        writeln!(out, "watermark {watermark}, {delay:.1} s behind the clock")?;
    }
    for input in items(&job["inputs"]) {
        writeln!(out, "\ninput {}", text(input, "name"))?;
        writeln!(
            out,
            "  {:24} {:>12} {:>10} {:>10} {:>10} {:>8}  watermark",
            "partition", "events", "backlog", "adjusted", "dropped", "errors"
        )?;
        for partition in items(&input["partitions"]) {
            partition_line(partition, out)?;
        }
    }
    for output in items(&job["outputs"]) {
        write!(
            out,
            "\noutput {}: {} rows, {} waiting",
            text(output, "name"),
            output["rows"],
            output["waiting"]
        )?;
        if let Some(dropped) = output["dropped"].as_u64().filter(|dropped| *dropped > 0) {
            write!(out, ", {dropped} dropped")?;
        }
    }
    let checkpoint = &job["checkpoint"];
    match checkpoint["at"].as_str() {
        Some(at) => writeln!(out, "\ncheckpoint at {at}, {} bytes", checkpoint["bytes"]),
        None => writeln!(out),
    }
}

fn partition_line(partition: &Value, out: &mut impl Write) -> io::Result<()> {
    let sum = |counts: &Value, names: &[&str]| -> u64 {
        names.iter().filter_map(|name| counts[*name].as_u64()).sum()
    };
    let time = &partition["time"];
    let adjusted = ["early_adjusted", "late_adjusted", "out_of_order_adjusted"];
    let dropped = ["early_dropped", "late_dropped", "out_of_order_dropped"];
    let errors = [
        "deserialization_errors",
        "conversion_errors",
        "runtime_errors",
    ];
    writeln!(
        out,
        "  {:24} {:>12} {:>10} {:>10} {:>10} {:>8}  {}",
        format!("{}/{}", text(partition, "hub"), partition["partition"]),
        partition["events"].to_string(),
        partition["backlog"].to_string(),
        sum(time, &adjusted),
        sum(time, &dropped),
        sum(partition, &errors),
        partition["watermark"].as_str().unwrap_or("-"),
    )?;
    match partition["last_error"].as_str() {
        Some(error) => writeln!(out, "    {error}"),
        None => Ok(()),
    }
}

/// The reason of a failure, and the alarms.
fn alarms(job: &Value, out: &mut impl Write) -> io::Result<()> {
    let alarms = items(&job["alarms"]).filter_map(Value::as_str);
    for alarm in job["reason"].as_str().into_iter().chain(alarms) {
        let lines = alarm.lines().collect::<Vec<_>>().join("\n    ");
        writeln!(out, "  ! {lines}")?;
    }
    Ok(())
}
