//! What the demo writes down: the settings of a node, its jobs, and afterwards what it recorded.
//!
//! Eight minutes at the booths are played in one, so every tolerance is an eighth of what one would choose for real.

use std::io::Write;
use std::path::Path;

use highwater_env::disk;

/// How many times as fast as in life everything happens.
pub const SPEED: u32 = 8;

/// The hub that the booths report to, and its partitions.
pub const TRAFFIC: &str = "traffic";
pub const PARTITIONS: u32 = 2;

/// A job and the query it runs. Its rows go to a hub of the same name.
pub struct DemoJob {
    pub name: &'static str,
    pub about: &'static str,
    pub query: &'static str,
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
GROUP BY TollId, TumblingWindow(second, 10)
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
        about: "booths where no car came for four seconds",
        query: "\
SELECT a.TollId, a.EntryTime AS LastCar, System.Timestamp() AS NoticedAt
INTO silence
FROM Entry a TIMESTAMP BY EntryTime
LEFT JOIN Entry b TIMESTAMP BY EntryTime
    ON a.TollId = b.TollId AND DATEDIFF(millisecond, a, b) BETWEEN 1 AND 4000
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
FROM Entry TIMESTAMP BY EntryTime OVER TollId
GROUP BY TollId, TumblingWindow(second, 20)
",
        more: "",
    },
];

const TIME: &str = "[time]
late_arrival = \"7500ms\"        # a booth may lose its line for a while
out_of_order = \"1250ms\"        # and the network may shuffle what it delivers
early_arrival = \"37500ms\"      # a clock that runs further ahead is broken
";

/// Everything that `highwater up -c` needs.
pub fn write_node(folder: &Path, stolen: &str) -> anyhow::Result<()> {
    let mut settings = "data = \"data\"\n\n[http]\nlisten = \"127.0.0.1:8080\"\n\n[kafka]\nlisten = \"127.0.0.1:9092\"\n".to_owned();
    settings += &format!("\n[hubs.{TRAFFIC}]\npartitions = {PARTITIONS}\n");
    for job in JOBS {
        let name = job.name;
        settings +=
            &format!("\n[hubs.{name}]\npartitions = 1\n\n[jobs.{name}]\npath = \"jobs/{name}\"\n");
        let file = format!(
            "name = \"{name}\"\nquery = \"query.saql\"\nstart = \"beginning\"\n\n{TIME}\n\
             [checkpoint]\nevery = \"2s\"\n\n\
             [inputs.Entry]\ntype = \"hub\"\nhub = \"{TRAFFIC}\"\n{}\n\
             [outputs.{name}]\ntype = \"hub\"\nhub = \"{name}\"\n",
            job.more
        );
        let at = folder.join("jobs").join(name);
        write(&at.join("job.toml"), file.as_bytes())?;
        write(&at.join("query.saql"), job.query.as_bytes())?;
    }
    write(&folder.join("jobs/stolen/stolen.jsonl"), stolen.as_bytes())?;
    write(&folder.join("highwater.toml"), settings.as_bytes())
}

/// The events with the times of their arrival, and the first query over them, to be looked at at leisure.
pub fn write_replay(folder: &Path, events: &[u8]) -> anyhow::Result<()> {
    let job = format!(
        "name = \"toll-booth\"\nquery = \"query.saql\"\n\n{TIME}\n\
         [inputs.Entry]\npath = \"input/Entry.jsonl\"\narrival = \"ArrivalTime\"\n"
    );
    write(&folder.join("job.toml"), job.as_bytes())?;
    write(&folder.join("query.saql"), JOBS[0].query.as_bytes())?;
    write(&folder.join("input/Entry.jsonl"), events)
}

pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        disk::create_folder(folder)?;
    }
    let mut file = disk::create_atomic(path)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}
