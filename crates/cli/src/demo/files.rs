//! The files of the demo: the settings of the node, its jobs and workflow, and a job over the recorded events.
//!
//! The demo runs faster than real time, so all tolerances and windows are shortened by the same factor.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::write_file::write_file;

/// The hub that receives the events, and its partitions.
pub(super) const EVENT_HUB: &str = "traffic";
pub(super) const PARTITIONS: u32 = 2;

pub(super) const QUEUE: &str = "audits";
pub(super) const PROCESSOR: &str = "police";
pub(super) const WORKFLOW: &str = "fines";

/// A job whose rows go to a hub of the same name. `{80s}` in the query is a scaled duration; see [`scale_times`].
pub(super) struct DemoJob {
    pub name: &'static str,
    pub about: &'static str,
    query: &'static str,
    /// Inputs of this job alone.
    extra_inputs: &'static str,
}

pub(super) const JOBS: &[DemoJob] = &[
    DemoJob {
        name: "counts",
        about: "cars and takings at each booth",
        query: "\
SELECT TollId, System.Timestamp() AS WindowEnd, COUNT(*) AS Cars, SUM(Toll) AS Takings
INTO counts
FROM Entry TIMESTAMP BY EntryTime
GROUP BY TollId, TumblingWindow(millisecond, {80s})
",
        extra_inputs: "",
    },
    DemoJob {
        name: "stolen",
        about: "plates on the list of stolen cars (reference data)",
        query: "\
SELECT Entry.TollId, Entry.LicensePlate, Stolen.Reported, System.Timestamp() AS SeenAt
INTO stolen
FROM Entry TIMESTAMP BY EntryTime
JOIN Stolen ON Entry.LicensePlate = Stolen.LicensePlate
",
        extra_inputs: "\n[inputs.Stolen]\npath = \"stolen.jsonl\"\nreference = true\n",
    },
    DemoJob {
        name: "silence",
        about: "booths without a car for a while",
        query: "\
SELECT a.TollId, a.EntryTime AS LastCar, System.Timestamp() AS NoticedAt
INTO silence
FROM Entry a TIMESTAMP BY EntryTime
LEFT JOIN Entry b TIMESTAMP BY EntryTime
    ON a.TollId = b.TollId AND DATEDIFF(millisecond, a, b) BETWEEN 1 AND {32s}
WHERE b.TollId IS NULL
",
        extra_inputs: "",
    },
    DemoJob {
        name: "booths",
        about: "the dearest car of each booth, by the booth's own clock (substreams)",
        query: "\
SELECT TollId, System.Timestamp() AS WindowEnd, COUNT(*) AS Cars, MAX(Toll) AS Dearest
INTO booths
FROM Entry TIMESTAMP BY EntryTime OVER TollId, PartitionId PARTITION BY PartitionId
GROUP BY TollId, PartitionId, TumblingWindow(millisecond, {160s})
",
        extra_inputs: "",
    },
];

const TIME: &str = "[time]
late_arrival = \"{60s}ms\"        # a booth may lose its line for a while
out_of_order = \"{8s}ms\"         # and the network may shuffle what it delivers
early_arrival = \"{300s}ms\"      # a clock that runs further ahead is broken
";

/// Replaces `{80s}`, 80 seconds of real time, by the milliseconds they take at this speed.
fn scale_times(text: &str, speed: u32) -> String {
    let mut parts = text.split('{');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (seconds, rest) = part.split_once("s}").unwrap_or(("0", part));
        let millis = seconds.parse().unwrap_or(0_u32) * 1000 / speed;
        out += &millis.to_string();
        out += rest;
    }
    out
}

/// The distance between the last event and the watermark at which every window and alarm is complete.
pub(super) fn completion_time(speed: u32) -> Duration {
    Duration::from_secs(180) / speed
}

/// The processor, the queue and the workflow. `{services}` is the address of the services.
const SETTINGS: &str = r#"
# Stolen cars go to a webhook that fails now and then.
[processors.police]
hub = "stolen"
handler = { url = "http://{services}/police" }
retry = { first = "500ms", longest = "5s", tries = 4 }
circuit = { failures = 10, window = "30s", open_for = "forever" }

# The takings of each window are work for one of two auditors.
[queues.audits]
feed = "counts"
lock = "30s"
deliveries_max = 3

# Each stolen car starts a transaction across three services.
[workflows.fines]
file = "fines.toml"
hub = "stolen"
id = "{{input.LicensePlate}}, {{input.SeenAt}}"
"#;

const WORKFLOW_FILE: &str = r#"name = "fines"
deadline = "5m"

[services.city]
url = "http://{services}"
timeout = "2s"
retry = { tries = 4, delay = "300ms" }

[[steps]]
name = "officer"
service = "city"
call = "PUT /officers/{{id}}"
undo = { call = "DELETE /officers/{{id}}" }

[[steps]]
name = "tow"
service = "city"
call = "PUT /tows/{{id}}"
body = { plate = "{{input.LicensePlate}}", booth = "{{input.TollId}}" }
undo = { call = "DELETE /tows/{{id}}" }

[[steps]]
name = "fine"
service = "city"
call = "PUT /fines/{{id}}"
refuse = [409]
"#;

/// Writes the settings, jobs and workflow for `highwater up -c`.
pub(super) fn write_node(
    folder: &Path,
    stolen: &str,
    speed: u32,
    services: SocketAddr,
) -> anyhow::Result<()> {
    let mut settings = "data = \"data\"\n\n[http]\nlisten = \"127.0.0.1:8080\"\n\n[kafka]\nlisten = \"127.0.0.1:9092\"\n".to_owned();
    settings += &format!("\n[hubs.{EVENT_HUB}]\npartitions = {PARTITIONS}\n");
    let time = scale_times(TIME, speed);
    for job in JOBS {
        let name = job.name;
        settings +=
            &format!("\n[hubs.{name}]\npartitions = 1\n\n[jobs.{name}]\npath = \"jobs/{name}\"\n");
        let file = format!(
            "name = \"{name}\"\nquery = \"query.saql\"\nstart = \"beginning\"\n\n{time}\n\
             [checkpoint]\nevery = \"2s\"\n\n\
             [inputs.Entry]\ntype = \"hub\"\nhub = \"{EVENT_HUB}\"\n{}\n\
             [outputs.{name}]\ntype = \"hub\"\nhub = \"{name}\"\n",
            job.extra_inputs
        );
        let job_folder = folder.join("jobs").join(name);
        write_file(&job_folder.join("job.toml"), file.as_bytes())?;
        write_file(
            &job_folder.join("query.saql"),
            scale_times(job.query, speed).as_bytes(),
        )?;
    }
    write_file(&folder.join("jobs/stolen/stolen.jsonl"), stolen.as_bytes())?;
    let services = services.to_string();
    let workflow = WORKFLOW_FILE.replace("{services}", &services);
    write_file(&folder.join("fines.toml"), workflow.as_bytes())?;
    settings += &SETTINGS.replace("{services}", &services);
    write_file(&folder.join("highwater.toml"), settings.as_bytes())
}

/// Writes the recorded events with their arrival times, and a job with the first query over them.
///
/// Each partition of the hub has a file, because the time policy applies within a partition.
pub(super) fn write_replay(folder: &Path, recorded: &[Vec<u8>], speed: u32) -> anyhow::Result<()> {
    let time = scale_times(TIME, speed);
    let job = format!(
        "name = \"toll-booth\"\nquery = \"query.saql\"\n\n{time}\n\
         [inputs.Entry]\npath = \"input\"\narrival = \"ArrivalTime\"\n"
    );
    write_file(&folder.join("job.toml"), job.as_bytes())?;
    let query = scale_times(JOBS[0].query, speed);
    write_file(&folder.join("query.saql"), query.as_bytes())?;
    for (partition, events) in recorded.iter().enumerate() {
        write_file(&folder.join(format!("input/{partition}.jsonl")), events)?;
    }
    Ok(())
}
