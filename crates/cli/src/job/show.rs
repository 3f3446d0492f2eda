//! Jobs in words.

use std::io::{self, Write};

use serde_json::Value;

/// A line for each job.
pub fn list(jobs: &[Value], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:24} {:10} {:>12} {:>12} {:>10}  watermark",
        "job", "state", "events", "rows", "backlog"
    )?;
    for job in jobs {
        writeln!(
            out,
            "{:24} {:10} {:>12} {:>12} {:>10}  {}",
            text(job, "name"),
            text(job, "state"),
            job["events"].to_string(),
            job["rows"].to_string(),
            job["backlog"].to_string(),
            job["watermark"].as_str().unwrap_or("-"),
        )?;
        troubles(job, out)?;
    }
    Ok(())
}

/// Everything about a job.
pub fn status(job: &Value, out: &mut impl Write) -> io::Result<()> {
    write!(out, "job {} is {}", text(job, "name"), text(job, "state"))?;
    if let (Some(events), Some(of)) = (
        job["replay"]["events"].as_u64(),
        job["replay"]["of"].as_u64(),
    ) {
        write!(out, ", {events} of {of} events")?;
    }
    writeln!(out)?;
    troubles(job, out)?;
    if let Some(delay) = job["watermark_delay_seconds"].as_f64() {
        let watermark = job["watermark"].as_str().unwrap_or("-");
        writeln!(out, "watermark {watermark}, {delay:.1} s behind the clock")?;
    }
    for input in each(job, "inputs") {
        writeln!(out, "\ninput {}", text(input, "name"))?;
        writeln!(
            out,
            "  {:24} {:>12} {:>10} {:>10} {:>10} {:>8}  watermark",
            "partition", "events", "backlog", "moved", "dropped", "errors"
        )?;
        for place in each(input, "partitions") {
            partition(place, out)?;
        }
    }
    for output in each(job, "outputs") {
        write!(
            out,
            "\noutput {}: {} rows, {} waiting",
            text(output, "name"),
            output["rows"],
            output["waiting"]
        )?;
        if let Some(dropped) = output["dropped"].as_u64().filter(|dropped| *dropped > 0) {
            write!(out, ", {dropped} given up")?;
        }
    }
    let saved = &job["checkpoint"];
    match saved["at"].as_str() {
        Some(at) => writeln!(out, "\nsaved {at}, {} bytes", saved["bytes"]),
        None => writeln!(out),
    }
}

fn partition(place: &Value, out: &mut impl Write) -> io::Result<()> {
    let sum = |of: &Value, names: &[&str]| -> u64 {
        names.iter().filter_map(|name| of[*name].as_u64()).sum()
    };
    let time = &place["time"];
    let moved = ["early_adjusted", "late_adjusted", "out_of_order_adjusted"];
    let dropped = ["early_dropped", "late_dropped", "out_of_order_dropped"];
    let errors = [
        "deserialization_errors",
        "conversion_errors",
        "runtime_errors",
    ];
    writeln!(
        out,
        "  {:24} {:>12} {:>10} {:>10} {:>10} {:>8}  {}",
        format!("{}/{}", text(place, "hub"), place["partition"]),
        place["events"].to_string(),
        place["backlog"].to_string(),
        sum(time, &moved),
        sum(time, &dropped),
        sum(place, &errors),
        place["watermark"].as_str().unwrap_or("-"),
    )?;
    match place["last_error"].as_str() {
        Some(error) => writeln!(out, "    {error}"),
        None => Ok(()),
    }
}

fn troubles(job: &Value, out: &mut impl Write) -> io::Result<()> {
    let alarms = each(job, "alarms").iter().filter_map(Value::as_str);
    for trouble in job["reason"].as_str().into_iter().chain(alarms) {
        let lines = trouble.lines().collect::<Vec<_>>().join("\n    ");
        writeln!(out, "  ! {lines}")?;
    }
    Ok(())
}

fn each<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}
