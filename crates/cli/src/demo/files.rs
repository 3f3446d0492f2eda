//! What the demo writes down: the settings of a node, its jobs, and afterwards what it recorded.
//!
//! Everything happens faster than in life, so every tolerance and window is that much shorter than one would choose for real.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use highwater_env::disk;

/// The hub that the booths report to, and its partitions.
pub const TRAFFIC: &str = "traffic";
pub const PARTITIONS: u32 = 2;

/// A job and the query it runs, in which times are in braces. Its rows go to a hub of the same name.
pub struct DemoJob {
    pub name: &'static str,
    pub about: &'static str,
    query: &'static str,
    /// Beyond what all of them have.
    more: &'static str,
}

pub const JOBS: &[DemoJob] = &[
    DemoJob {
        name: "counts",
        about: "cars and takings at each booth",
        query: "\
SELECT TollId, System.Timestamp() AS WindowEnd, COUNT(*) AS Cars, SUM(Toll) AS Takings
INTO counts
FROM Entry TIMESTAMP BY EntryTime
GROUP BY TollId, TumblingWindow(millisecond, {80s})
",
        more: "",
    },
    DemoJob {
        name: "stolen",
        about: "plates that are on the list of stolen cars (reference data)",
        query: "\
SELECT Entry.TollId, Entry.LicensePlate, Stolen.Reported, System.Timestamp() AS SeenAt
INTO stolen
FROM Entry TIMESTAMP BY EntryTime
JOIN Stolen ON Entry.LicensePlate = Stolen.LicensePlate
",
        more: "\n[inputs.Stolen]\npath = \"stolen.jsonl\"\nreference = true\n",
    },
    DemoJob {
        name: "silence",
        about: "booths where no car came for a while",
        query: "\
SELECT a.TollId, a.EntryTime AS LastCar, System.Timestamp() AS NoticedAt
INTO silence
FROM Entry a TIMESTAMP BY EntryTime
LEFT JOIN Entry b TIMESTAMP BY EntryTime
    ON a.TollId = b.TollId AND DATEDIFF(millisecond, a, b) BETWEEN 1 AND {32s}
WHERE b.TollId IS NULL
",
        more: "",
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
        more: "",
    },
];

const TIME: &str = "[time]
late_arrival = \"{60s}ms\"        # a booth may lose its line for a while
out_of_order = \"{10s}ms\"        # and the network may shuffle what it delivers
early_arrival = \"{300s}ms\"      # a clock that runs further ahead is broken
";

/// Puts milliseconds in place of `{80s}`, which are seconds in life.
fn timed(text: &str, speed: u32) -> String {
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

/// How far time must go on after the last event until every window and alarm is over.
pub fn aftermath(speed: u32) -> Duration {
    Duration::from_secs(180) / speed
}

/// Everything that `highwater up -c` needs.
pub fn write_node(folder: &Path, stolen: &str, speed: u32) -> anyhow::Result<()> {
    let mut settings = "data = \"data\"\n\n[http]\nlisten = \"127.0.0.1:8080\"\n\n[kafka]\nlisten = \"127.0.0.1:9092\"\n".to_owned();
    settings += &format!("\n[hubs.{TRAFFIC}]\npartitions = {PARTITIONS}\n");
    let time = timed(TIME, speed);
    for job in JOBS {
        let name = job.name;
        settings +=
            &format!("\n[hubs.{name}]\npartitions = 1\n\n[jobs.{name}]\npath = \"jobs/{name}\"\n");
        let file = format!(
            "name = \"{name}\"\nquery = \"query.saql\"\nstart = \"beginning\"\n\n{time}\n\
             [checkpoint]\nevery = \"2s\"\n\n\
             [inputs.Entry]\ntype = \"hub\"\nhub = \"{TRAFFIC}\"\n{}\n\
             [outputs.{name}]\ntype = \"hub\"\nhub = \"{name}\"\n",
            job.more
        );
        let at = folder.join("jobs").join(name);
        write(&at.join("job.toml"), file.as_bytes())?;
        write(&at.join("query.saql"), timed(job.query, speed).as_bytes())?;
    }
    write(&folder.join("jobs/stolen/stolen.jsonl"), stolen.as_bytes())?;
    write(&folder.join("highwater.toml"), settings.as_bytes())
}

/// The events with the times of their arrival, and the first query over them, to be looked at at leisure.
///
/// A file for each partition of the hub, because what is late or out of order is so within its partition.
pub fn write_replay(folder: &Path, recorded: &[Vec<u8>], speed: u32) -> anyhow::Result<()> {
    let time = timed(TIME, speed);
    let job = format!(
        "name = \"toll-booth\"\nquery = \"query.saql\"\n\n{time}\n\
         [inputs.Entry]\npath = \"input\"\narrival = \"ArrivalTime\"\n"
    );
    write(&folder.join("job.toml"), job.as_bytes())?;
    let query = timed(JOBS[0].query, speed);
    write(&folder.join("query.saql"), query.as_bytes())?;
    for (partition, events) in recorded.iter().enumerate() {
        write(&folder.join(format!("input/{partition}.jsonl")), events)?;
    }
    Ok(())
}

pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        disk::create_folder(folder)?;
    }
    let mut file = disk::create_atomic(path)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}
