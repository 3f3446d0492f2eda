//! Random jobs: a query, a policy and files with every kind of disorder in them.

use std::fmt::Write;
use std::path::Path;

use highwater_job::config::JobFile;
use highwater_job::{CollectedOutputs, Job, Options, Outcome, Outputs, run};
use highwater_time::{Duration, Instant, TICKS_PER_SECOND, TimePolicy, ViolationAction};
use proptest::prelude::*;

/// A query and the columns that it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub sql: &'static str,
    /// Reads input `b` too.
    pub both: bool,
    /// Names of the substream's keys besides PartitionId.
    pub substreams: bool,
    /// Combines partitions that have substreams, so there may be only one.
    pub one_partition: bool,
    /// Uses arrival time.
    pub arrival: bool,
}

const fn query(sql: &'static str) -> Query {
    Query {
        sql,
        both: false,
        substreams: false,
        one_partition: false,
        arrival: false,
    }
}

pub(crate) const PROJECTION: Query =
    query("SELECT id, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t");

pub(crate) const TUMBLING: Query = query(
    "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(v) AS s INTO out FROM a TIMESTAMP BY t
     GROUP BY k, TumblingWindow(second, 5)",
);

pub(crate) const PARTITIONED_SUBSTREAMS: Query = Query {
    sql: "SELECT PartitionId AS part, k, System.Timestamp() AS ts, COUNT(*) AS n INTO out
          FROM a TIMESTAMP BY t OVER PartitionId, k PARTITION BY PartitionId
          GROUP BY PartitionId, k, TumblingWindow(second, 5)",
    substreams: true,
    ..query("")
};

pub(crate) const QUERIES: [Query; 12] = [
    PROJECTION,
    query("SELECT id, v + 1 AS w, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t WHERE v > 2"),
    TUMBLING,
    query(
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, AVG(v) AS m INTO out FROM a TIMESTAMP BY t
         GROUP BY k, SlidingWindow(second, 4)",
    ),
    query(
        "SELECT k, System.Timestamp() AS ts, MAX(v) AS m INTO out FROM a TIMESTAMP BY t
         GROUP BY k, SessionWindow(second, 3, 8) OVER (PARTITION BY k)",
    ),
    Query {
        sql: "SELECT id, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t
              UNION SELECT id, System.Timestamp() AS ts FROM b TIMESTAMP BY t",
        both: true,
        ..query("")
    },
    query(
        "SELECT id, System.Timestamp() AS ts INTO one FROM a TIMESTAMP BY t WHERE v > 2
         SELECT k, System.Timestamp() AS ts, COUNT(*) AS n INTO two FROM a TIMESTAMP BY t
         GROUP BY k, HoppingWindow(second, 6, 4)",
    ),
    query(
        "SELECT id, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t WHERE v > 2
         SELECT COUNT(*) AS id, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t
         GROUP BY TumblingWindow(second, 5)",
    ),
    query(
        "SELECT PartitionId AS part, System.Timestamp() AS ts, COUNT(*) AS n INTO out
         FROM a TIMESTAMP BY t PARTITION BY PartitionId
         GROUP BY PartitionId, TumblingWindow(second, 5)",
    ),
    Query {
        sql: "SELECT id, System.Timestamp() AS ts INTO out FROM a",
        arrival: true,
        ..query("")
    },
    Query {
        sql: "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t OVER k
              GROUP BY k, SlidingWindow(second, 5)",
        substreams: true,
        one_partition: true,
        ..query("")
    },
    PARTITIONED_SUBSTREAMS,
];

/// The error of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    NoTime,
    BadTime,
    NoArrival,
    NullKey,
    Broken,
    Blank,
}

#[derive(Clone, Debug)]
pub(crate) struct InputLine {
    pub flaw: Flaw,
    pub id: usize,
    pub time: i64,
    pub arrival: i64,
    pub k: usize,
    pub p: usize,
    pub v: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub query: Query,
    pub policy: TimePolicy,
    /// Whether the job names the arrival column.
    pub arrivals: bool,
    /// Whether the job names the partition column.
    pub by_column: bool,
    /// The files of input `a`, then the one file of input `b`.
    pub files: Vec<Vec<InputLine>>,
}

pub(crate) fn instant(second: i64) -> Instant {
    Instant::from_ticks((63_900_000_000 + second) * TICKS_PER_SECOND)
}

impl InputLine {
    /// The line in the file; `pad` makes it longer without changing the event.
    fn text(&self, pad: usize) -> String {
        let mut text = String::new();
        match self.flaw {
            Flaw::Blank => return text,
            Flaw::Broken => text.push_str("{\"id\":oh, "),
            _ => text.push('{'),
        }
        match self.flaw {
            Flaw::NoTime => {}
            Flaw::BadTime => text.push_str("\"t\":\"yesterday\","),
            _ => drop(write!(text, "\"t\":\"{}\",", instant(self.time))),
        }
        if self.flaw != Flaw::NoArrival {
            let _ = write!(text, "\"arr\":\"{}\",", instant(self.arrival));
        }
        if self.flaw != Flaw::NullKey {
            let _ = write!(text, "\"k\":\"k{}\",", self.k);
        }
        if pad > 0 {
            let _ = write!(text, "\"pad\":\"{}\",", "x".repeat(pad));
        }
        let _ = write!(
            text,
            "\"id\":{},\"p\":{},\"v\":{}.25}}",
            self.id, self.p, self.v
        );
        text
    }
}

impl World {
    /// Writes the files; every line is made longer by the next of `pads`.
    pub(crate) fn write(&self, folder: &Path, pads: &[usize]) {
        let mut pads = pads.iter().cycle();
        for (number, lines) in self.files.iter().enumerate() {
            let mut text = String::new();
            for line in lines {
                text += &line.text(pads.next().copied().unwrap_or(0));
                text.push('\n');
            }
            std::fs::write(folder.join(self.name(number)), text).expect("a folder of our own");
        }
    }

    /// Of a file: `b` is the last one.
    pub(crate) fn name(&self, file: usize) -> String {
        if file + 1 == self.files.len() {
            "b.jsonl".into()
        } else {
            format!("a{file}.jsonl")
        }
    }

    pub(crate) fn job(&self, folder: &Path) -> Job {
        let action = |action: ViolationAction| match action {
            ViolationAction::Adjust => "adjust",
            ViolationAction::Drop => "drop",
        };
        let secs = |duration: Duration| duration.ticks() / TICKS_PER_SECOND;
        let policy = &self.policy;
        let early = policy
            .early_arrival
            .map_or("off".into(), |early| format!("{}s", secs(early)));
        let mut columns = String::new();
        if self.arrivals {
            columns += "arrival = \"arr\"\n";
        }
        let partition = if self.by_column {
            "partition = \"p\"\n"
        } else {
            ""
        };
        let paths: Vec<String> = (0..self.files.len() - 1)
            .map(|file| self.name(file))
            .collect();
        let text = format!(
            "sql = '''{}'''\n[time]\nlate_arrival = \"{}s\"\nout_of_order = \"{}s\"\n\
             early_arrival = \"{early}\"\nlate_events = \"{}\"\nout_of_order_events = \"{}\"\n\
             early_events = \"{}\"\n[inputs.a]\npath = {paths:?}\n{columns}{partition}\
             [inputs.b]\npath = \"b.jsonl\"\n{columns}",
            self.query.sql,
            secs(policy.late_arrival),
            secs(policy.out_of_order),
            action(policy.late_events),
            action(policy.out_of_order_events),
            action(policy.early_events),
        );
        let file = JobFile::parse(&text, "job.toml").unwrap_or_else(|e| panic!("{text}\n{e}"));
        Job::new(file.resolve(folder)).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// Runs the job and returns its outputs by name, and the outcome.
pub(crate) fn outputs(job: &Job, threads: usize) -> (Vec<(String, String)>, Outcome) {
    let (outputs, collected) = Outputs::collected(&job.plan);
    let options = Options {
        threads,
        ..Options::default()
    };
    let outcome = run(job, outputs, options).unwrap_or_else(|e| panic!("{e}"));
    (texts(&collected), outcome)
}

fn texts(collected: &CollectedOutputs) -> Vec<(String, String)> {
    let collected = collected.lock().expect("the run is over");
    let mut texts: Vec<(String, String)> = collected
        .iter()
        .map(|(name, bytes)| {
            (
                name.clone(),
                String::from_utf8(bytes.clone()).expect("JSON is text"),
            )
        })
        .collect();
    texts.sort();
    texts
}

fn policies() -> impl Strategy<Value = TimePolicy> {
    let action = || prop_oneof![Just(ViolationAction::Adjust), Just(ViolationAction::Drop)];
    let early = prop_oneof![
        Just(None),
        (0..6i64).prop_map(|s| Some(Duration::from_secs(s)))
    ];
    (0..15i64, 0..6i64, early, action(), action(), action()).prop_map(
        |(late, out_of_order, early_arrival, late_events, out_of_order_events, early_events)| {
            TimePolicy {
                late_arrival: Duration::from_secs(late),
                out_of_order: Duration::from_secs(out_of_order),
                early_arrival,
                late_events,
                out_of_order_events,
                early_events,
            }
        },
    )
}

fn flaws() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        14 => Just(Flaw::None),
        1 => Just(Flaw::NoTime),
        1 => Just(Flaw::BadTime),
        1 => Just(Flaw::NoArrival),
        1 => Just(Flaw::NullKey),
        1 => Just(Flaw::Broken),
        1 => Just(Flaw::Blank),
    ]
}

/// A line to be put into a file: which file, how long after the last one, how old, and whether it is sent twice.
type Drawn = (usize, i64, i64, (usize, usize, i64), Flaw, bool);

pub(crate) fn worlds(
    queries: impl Strategy<Value = Query>,
    lines: usize,
) -> impl Strategy<Value = World> {
    let values = (0..3usize, 0..3usize, 0..8i64);
    // Arrivals may seem to go back a little; they are not believed then.
    let line = (
        0..4usize,
        -1..4i64,
        -8..16i64,
        values,
        flaws(),
        prop::bool::weighted(0.1),
    );
    let drawn = prop::collection::vec(line, 0..lines);
    (
        queries,
        policies(),
        any::<bool>(),
        any::<bool>(),
        1..4usize,
        drawn,
    )
        .prop_map(|(query, policy, arrivals, by_column, files, drawn)| {
            let by_column = by_column && !query.one_partition;
            let files = if by_column || query.one_partition {
                1
            } else {
                files
            };
            World {
                arrivals: arrivals || query.arrival,
                by_column,
                files: fill(files, query.both, &drawn),
                query,
                policy,
            }
        })
}

fn fill(files: usize, both: bool, drawn: &[Drawn]) -> Vec<Vec<InputLine>> {
    let mut filled: Vec<Vec<InputLine>> = vec![Vec::new(); files + 1];
    let mut arrival = 0;
    for (id, &(file, wait, age, (k, p, v), flaw, twice)) in drawn.iter().enumerate() {
        arrival += wait;
        let line = InputLine {
            flaw,
            id,
            time: arrival - age,
            arrival,
            k,
            p,
            v,
        };
        let file = &mut filled[file % (files + usize::from(both))];
        file.push(line.clone());
        if twice {
            file.push(line);
        }
    }
    filled
}
