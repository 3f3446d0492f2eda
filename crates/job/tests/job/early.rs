//! Early results against an oracle: the rows at T are those of a run whose input ends with the events before T. //
//! proves E1
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use highwater_job::config::JobFile;
use highwater_job::why::{revision_times, trace_events, why};
use highwater_job::{Job, Options, Outputs, run};
use highwater_time::Instant;
use proptest::prelude::*;
use serde_json::{Map, Value as Json};

/// A query, and the columns that tell its early rows apart. `ts` is the time of each row.
const QUERIES: &[(&str, &[&str])] = &[
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(v) AS s, AVG(v) AS m INTO out FROM a TIMESTAMP BY t
         GROUP BY k, TumblingWindow(second, 5)",
        &["k", "ts"],
    ),
    (
        "SELECT System.Timestamp() AS ts, COUNT(*) AS n, PERCENTILE_CONT(0.5) OVER (ORDER BY v) AS p INTO out
         FROM a TIMESTAMP BY t GROUP BY HoppingWindow(second, 6, 4)",
        &["ts"],
    ),
    (
        "SELECT k, System.Timestamp() AS ts, MAX(v) AS m, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t
         GROUP BY k, SessionWindow(second, 3, 8) OVER (PARTITION BY k)",
        &["k"],
    ),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t
         GROUP BY k, TumblingWindow(second, 7) HAVING COUNT(*) = 2",
        &["k", "ts"],
    ),
    (
        "SELECT a.k AS k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(b.v) AS s INTO out FROM a TIMESTAMP BY t
         LEFT JOIN b TIMESTAMP BY t ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 3
         GROUP BY a.k, TumblingWindow(second, 5)",
        &["k", "ts"],
    ),
    (
        "WITH s AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 2))
         SELECT System.Timestamp() AS ts, SUM(n) AS n, COUNT(*) AS rows INTO out FROM s
         GROUP BY TumblingWindow(second, 6)",
        &["ts"],
    ),
    (
        "WITH s AS (SELECT System.Timestamp() AS ts, COUNT(*) AS n FROM a TIMESTAMP BY t
                    GROUP BY TumblingWindow(second, 4))
         SELECT ts, n, LAG(n) OVER (LIMIT DURATION(second, 20)) AS earlier INTO out FROM s",
        &["ts"],
    ),
    (
        "SELECT PartitionId AS p, System.Timestamp() AS ts, COUNT(*) AS n INTO out
         FROM a TIMESTAMP BY t PARTITION BY PartitionId GROUP BY PartitionId, TumblingWindow(second, 5)",
        &["p", "ts"],
    ),
    (
        "WITH u AS (SELECT k, v FROM a TIMESTAMP BY t UNION SELECT k, v FROM b TIMESTAMP BY t)
         SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, MIN(v) AS m INTO out FROM u
         GROUP BY k, TumblingWindow(second, 5)",
        &["k", "ts"],
    ),
    (
        "SELECT k, System.Timestamp() AS ts, System.Window().Id AS w, COUNT(*) AS n, SUM(v) AS s INTO out
         FROM a TIMESTAMP BY t GROUP BY k, Windows(Window('four', TumblingWindow(second, 4)),
             Window('six', HoppingWindow(second, 6, 3)), Window('complete', SlidingWindow(second, 2)))",
        &["k", "ts", "w"],
    ),
];

#[derive(Clone, Debug)]
struct World {
    query: usize,
    every_ms: i64,
    /// The last one is of input `b`. Events as (ms, key, value), in the order of the file.
    files: Vec<Vec<(i64, u8, i64)>>,
}

fn worlds() -> impl Strategy<Value = World> {
    let event = (0..40_000i64, 0..3u8, 0..9i64);
    let file = prop::collection::vec(event, 0..14);
    (
        0..QUERIES.len(),
        prop::sample::select(vec![1000i64, 1500, 7000]),
        prop::collection::vec(file, 2..4),
        0..4_000i64,
    )
        .prop_map(|(query, every_ms, mut files, disorder)| {
            for file in &mut files {
                // Out of order by less than the tolerance.
                file.sort_by_key(|(ms, k, v)| {
                    ms + (i64::from(*k) * 7919 + v * 104_729) % (disorder + 1)
                });
            }
            World {
                query,
                every_ms,
                files,
            }
        })
}

const BASE_MS: i64 = 1_769_853_600_000;

impl World {
    /// Writes the events before `end_ms`.
    fn write(&self, folder: &Path, end_ms: i64) {
        for (number, events) in self.files.iter().enumerate() {
            let mut text = String::new();
            for (ms, k, v) in events.iter().filter(|(ms, ..)| *ms < end_ms) {
                let time = Instant::from_unix_millis(BASE_MS + ms);
                writeln!(text, "{{\"t\":\"{time}\",\"k\":\"k{k}\",\"v\":{v}.1}}").unwrap();
            }
            std::fs::write(folder.join(format!("{number}.jsonl")), text).unwrap();
        }
    }

    fn job(&self, folder: &Path, early: bool) -> Job {
        let last = self.files.len() - 1;
        let paths: Vec<String> = (0..last).map(|n| format!("\"{n}.jsonl\"")).collect();
        let early = match early {
            true => format!("early = \"{}ms\"\n", self.every_ms),
            false => String::new(),
        };
        let text = format!(
            "name = \"early\"\nsql = '''{}'''\n[time]\nout_of_order = \"5s\"\n\
             [inputs.a]\npath = [{}]\n[inputs.b]\npath = \"{last}.jsonl\"\n\
             [outputs.out]\ntype = \"stdout\"\n{early}",
            QUERIES[self.query].0,
            paths.join(", "),
        );
        let file = JobFile::parse(&text, "job.toml").unwrap_or_else(|error| panic!("{error}"));
        Job::new(file.resolve(folder)).unwrap_or_else(|error| panic!("{error}"))
    }

    fn uses_b(&self) -> bool {
        QUERIES[self.query].0.contains(" b ")
    }

    /// The times of revisions, in milliseconds.
    fn revision_times(&self) -> BTreeSet<i64> {
        let used = self.files.len() - usize::from(!self.uses_b());
        let events = self.files[..used].iter().flatten();
        let ticks = |ms: i64| Instant::from_unix_millis(BASE_MS + ms).ticks() / 10_000;
        let end = |ms: i64| ms - ticks(ms).rem_euclid(self.every_ms) + self.every_ms;
        events.map(|(ms, ..)| end(*ms)).collect()
    }
}

fn rows(job: &Job, threads: usize) -> Vec<String> {
    let (outputs, collected) = Outputs::collected_as_declared(&job.file, &job.plan);
    let options = Options {
        threads,
        ..Options::default()
    };
    run(job, outputs, options).unwrap_or_else(|error| panic!("{error}"));
    let mut collected = collected.lock().unwrap();
    let text = collected.remove("out").unwrap_or_default();
    let text = String::from_utf8(text).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn parsed(row: &str) -> Map<String, Json> {
    serde_json::from_str(row).unwrap()
}

fn time_of(row: &str) -> i64 {
    let time = parsed(row)["ts"].as_str().unwrap().to_owned();
    Instant::parse_iso(time.as_bytes())
        .unwrap()
        .to_unix_millis()
        - BASE_MS
}

fn with_revision(row: &str, revision: i64, is_final: &str) -> String {
    let row = row.strip_suffix('}').unwrap();
    format!("{row},\"_revision\":{revision},\"_final\":{is_final}}}")
}

/// The output with early results, by the definition.
struct Oracle<'a> {
    identity: &'a [&'a str],
    /// Open rows by their identity: the next revision and the last row.
    open: BTreeMap<String, (i64, String)>,
    out: Vec<String>,
}

impl Oracle<'_> {
    fn identity_of(&self, row: &str) -> String {
        let row = parsed(row);
        let values = self.identity.iter().map(|column| row[*column].to_string());
        values.collect::<Vec<_>>().join("|")
    }

    fn add_final(&mut self, row: &str) {
        let open = self.open.remove(&self.identity_of(row));
        let revision = open.map_or(0, |(next, _)| next);
        self.out.push(with_revision(row, revision, "true"));
    }

    fn revise(&mut self, rows: &[String]) {
        let here: BTreeSet<String> = rows.iter().map(|row| self.identity_of(row)).collect();
        let gone: Vec<String> = self
            .open
            .keys()
            .filter(|id| !here.contains(*id))
            .cloned()
            .collect();
        let mut withdrawn: Vec<String> = Vec::new();
        for id in gone {
            let (next, row) = self.open.remove(&id).unwrap();
            let mut blank = parsed(&row);
            for (name, value) in &mut blank {
                if !self.identity.contains(&&name[..]) {
                    *value = Json::Null;
                }
            }
            // The library sorts names, so columns are put together in the order of the row.
            let columns = columns_of(&row);
            let columns = columns
                .iter()
                .map(|name| format!("{}:{}", Json::from(&name[..]), blank[name]));
            let row = format!("{{{}}}", columns.collect::<Vec<_>>().join(","));
            withdrawn.push(with_revision(&row, next, "null"));
        }
        // In the order of their encoded identities, which is not that of their texts.
        withdrawn.sort();
        self.out.extend(withdrawn);
        for row in rows {
            let id = self.identity_of(row);
            let (next, last) = self.open.entry(id).or_insert((0, String::new()));
            if *last != *row {
                self.out.push(with_revision(row, *next, "false"));
                (*next, *last) = (*next + 1, row.clone());
            }
        }
    }
}

/// The names of a row's columns in order. No value here contains a comma or a colon outside of a time.
fn columns_of(row: &str) -> Vec<String> {
    let fields = row.trim_matches(['{', '}']).split(",\"");
    let names = fields.map(|field| {
        field
            .trim_start_matches('"')
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    });
    names.collect()
}

/// Sorts the runs of withdrawn rows, whose order is fixed and means nothing.
fn with_sorted_withdrawals(mut rows: Vec<String>) -> Vec<String> {
    let is_withdrawn = |row: &String| row.ends_with("\"_final\":null}");
    for run in rows.chunk_by_mut(|one, other| is_withdrawn(one) && is_withdrawn(other)) {
        run.sort();
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn early_rows_are_those_of_an_input_that_ends_there(world in worlds()) {
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path(), i64::MAX);
        let finals = rows(&world.job(folder.path(), false), 1);
        let job = world.job(folder.path(), true);
        let found = rows(&job, 1);
        prop_assert_eq!(&rows(&job, 4), &found, "threads");

        let mut oracle = Oracle {
            identity: QUERIES[world.query].1,
            open: BTreeMap::new(),
            out: Vec::new(),
        };
        let mut left = finals.iter().peekable();
        for end in world.revision_times() {
            while let Some(row) = left.next_if(|row| time_of(row) < end) {
                oracle.add_final(row);
            }
            world.write(folder.path(), end);
            let mut early = rows(&world.job(folder.path(), false), 1);
            early.retain(|row| time_of(row) >= end && !row.contains("\"w\":\"complete\""));
            oracle.revise(&early);
        }
        left.for_each(|row| oracle.add_final(row));
        oracle.revise(&[]);
        prop_assert_eq!(with_sorted_withdrawals(found), with_sorted_withdrawals(oracle.out));
    }
    #[test]
    fn why_names_the_first_revision_that_counts_an_event(mut world in worlds()) {
        world.query = 0;
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path(), i64::MAX);
        let job = world.job(folder.path(), true);
        let times: Vec<Instant> = world
            .revision_times()
            .into_iter()
            .map(|ms| Instant::from_unix_millis(BASE_MS + ms))
            .collect();
        let outcome = trace_events(&job).unwrap_or_else(|error| panic!("{error}"));
        prop_assert_eq!(&revision_times(&job, &outcome), &times);

        for fate in why(&job, None).unwrap_or_else(|error| panic!("{error}")) {
            let timestamp = instant(&fate.timestamp.unwrap());
            let end = instant(&fate.windows[0].end);
            let first = times.iter().find(|time| **time > timestamp && **time <= end);
            let found: Vec<Instant> = fate.revisions.iter().map(|first| instant(&first.time)).collect();
            prop_assert_eq!(found, Vec::from_iter(first.copied()), "{}", timestamp);
        }
    }
}

/// Queries over substreams; the columns that tell their early rows apart.
const SUBSTREAM_QUERIES: &[(&str, &[&str])] = &[
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(v) AS s INTO out FROM a TIMESTAMP BY t OVER k
         GROUP BY k, TumblingWindow(second, 5)",
        &["k", "ts"],
    ),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t OVER k
         GROUP BY k, HoppingWindow(second, 6, 2) HAVING COUNT(*) < 3",
        &["k", "ts"],
    ),
    (
        "SELECT k, System.Timestamp() AS ts, MAX(v) AS m INTO out FROM a TIMESTAMP BY t OVER k
         GROUP BY k, SessionWindow(second, 3, 8) OVER (PARTITION BY k)",
        &["k"],
    ),
    (
        "SELECT PartitionId AS p, k, System.Timestamp() AS ts, COUNT(*) AS n INTO out
         FROM a TIMESTAMP BY t OVER PartitionId, k PARTITION BY PartitionId
         GROUP BY PartitionId, k, TumblingWindow(second, 5)",
        &["p", "k", "ts"],
    ),
];

const LATE_MS: i64 = 4_000;

/// Events in order of arrival: (arrival in ms, age in ms, key, value).
type Arrived = (i64, i64, u8, i64);

#[derive(Clone, Debug)]
struct SubstreamWorld {
    query: usize,
    every_ms: i64,
    out_of_order_ms: i64,
    files: Vec<Vec<Arrived>>,
}

fn substream_worlds() -> impl Strategy<Value = SubstreamWorld> {
    let event = (0..30_000i64, 0..LATE_MS, 0..3u8, 0..9i64);
    let file = prop::collection::vec(event, 1..16);
    (
        0..SUBSTREAM_QUERIES.len(),
        prop::sample::select(vec![1000i64, 1500, 7000]),
        prop::collection::vec(file, 2),
    )
        .prop_map(|(query, every_ms, mut files)| {
            files.iter_mut().for_each(|file| file.sort_unstable());
            let partitioned = SUBSTREAM_QUERIES[query].0.contains("PartitionId");
            files.truncate(if partitioned { 2 } else { 1 });
            SubstreamWorld {
                query,
                every_ms,
                out_of_order_ms: 0,
                files,
            }
        })
}

impl SubstreamWorld {
    /// Writes the events that arrived before `end_ms`.
    fn write(&self, folder: &Path, end_ms: i64) {
        for (number, events) in self.files.iter().enumerate() {
            let mut text = String::new();
            for (ms, age, k, v) in events.iter().filter(|(ms, ..)| *ms < end_ms) {
                let at = Instant::from_unix_millis(BASE_MS + ms);
                let t = Instant::from_unix_millis(BASE_MS + ms - age);
                writeln!(
                    text,
                    "{{\"at\":\"{at}\",\"t\":\"{t}\",\"k\":\"k{k}\",\"v\":{v}}}"
                )
                .unwrap();
            }
            std::fs::write(folder.join(format!("{number}.jsonl")), text).unwrap();
        }
    }

    fn job(&self, folder: &Path, early: bool) -> Job {
        let paths = (0..self.files.len()).map(|n| format!("\"{n}.jsonl\""));
        let early = match early {
            true => format!("early = \"{}ms\"\n", self.every_ms),
            false => String::new(),
        };
        let text = format!(
            "name = \"early\"\nsql = '''{}'''\n[time]\nlate_arrival = \"{LATE_MS}ms\"\n\
             out_of_order = \"{}ms\"\n[inputs.a]\npath = [{}]\narrival = \"at\"\n[outputs.out]\ntype = \"stdout\"\n{early}",
            SUBSTREAM_QUERIES[self.query].0,
            self.out_of_order_ms,
            paths.collect::<Vec<_>>().join(", "),
        );
        let file = JobFile::parse(&text, "job.toml").unwrap_or_else(|error| panic!("{error}"));
        Job::new(file.resolve(folder)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The times of revisions in milliseconds: the ends of the intervals that the floor was in when an event came.
    fn revision_times(&self) -> BTreeSet<i64> {
        let ticks = |ms: i64| Instant::from_unix_millis(BASE_MS + ms).ticks() / 10_000;
        let end = |ms: i64| ms - ticks(ms).rem_euclid(self.every_ms) + self.every_ms;
        let events = self.files.iter().flatten();
        events.map(|(ms, ..)| end(ms - LATE_MS)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// The early rows at T are those of a run over the events that arrived before the floor reached T, without the
    /// final ones.
    #[test]
    fn early_rows_of_substreams_follow_arrivals(world in substream_worlds()) {
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path(), i64::MAX);
        let finals = rows(&world.job(folder.path(), false), 1);
        let found = rows(&world.job(folder.path(), true), 1);
        let is_final = |row: &&String| row.ends_with("\"_final\":true}");
        let shown: Vec<&str> = found
            .iter()
            .filter(is_final)
            .map(|row| row.split(",\"_revision\"").next().unwrap())
            .collect();
        let plain: Vec<&str> = finals.iter().map(|row| &row[..row.len() - 1]).collect();
        prop_assert_eq!(shown, plain, "final rows are the same");

        let mut oracle = Oracle {
            identity: SUBSTREAM_QUERIES[world.query].1,
            open: BTreeMap::new(),
            out: Vec::new(),
        };
        let mut given = 0;
        for end in world.revision_times() {
            // Final rows come until the revision; one that changes nothing may be passed.
            while found.get(oracle.out.len()).as_ref().is_some_and(is_final) {
                oracle.add_final(&finals[given]);
                given += 1;
            }
            world.write(folder.path(), end + LATE_MS);
            let mut early = rows(&world.job(folder.path(), false), 1);
            early.retain(|row| !finals[..given].contains(row));
            oracle.revise(&early);
        }
        finals[given..].iter().for_each(|row| oracle.add_final(row));
        oracle.revise(&[]);
        prop_assert_eq!(with_sorted_withdrawals(found), with_sorted_withdrawals(oracle.out));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// The counts that a window goes through, by the first revisions of its events and by its rows.
    #[test]
    fn why_names_the_first_revision_that_counts_an_event_of_a_substream(
        mut world in substream_worlds(),
        out_of_order_ms in prop::sample::select(vec![0i64, 500, 3000]),
    ) {
        world.query = if world.files.len() == 2 { 3 } else { 0 };
        world.out_of_order_ms = out_of_order_ms;
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path(), i64::MAX);
        let job = world.job(folder.path(), true);

        let mut revisions: BTreeMap<(String, Instant, usize), Vec<Option<Instant>>> = BTreeMap::new();
        for fate in why(&job, None).unwrap_or_else(|error| panic!("{error}")) {
            let first = fate.revisions.first().map(|first| instant(&first.time));
            let partition = fate.partition.unwrap_or_default();
            let window = (fate.substream.unwrap(), instant(&fate.windows[0].end), partition);
            revisions.entry(window).or_default().push(first);
        }
        let mut found: BTreeMap<(String, Instant, usize), Vec<i64>> = BTreeMap::new();
        for row in rows(&job, 1) {
            let row: serde_json::Value = serde_json::from_str(&row).unwrap();
            let partition = row["p"].as_u64().unwrap_or_default() as usize;
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            let counts = found.entry((text("k"), instant(&text("ts")), partition)).or_default();
            counts.push(row["n"].as_i64().unwrap());
            counts.dedup();
        }
        prop_assert_eq!(revisions.len(), found.len());
        for ((key, end, partition), firsts) in &mut revisions {
            firsts.sort_by_key(|first| first.unwrap_or(Instant::AFTER_ALL));
            let mut counts = Vec::new();
            for (count, first) in firsts.iter().enumerate() {
                let is_last_of_its_revision = firsts.get(count + 1).is_none_or(|next| next != first);
                if is_last_of_its_revision {
                    counts.push(count as i64 + 1);
                }
            }
            let name = key.rsplit(|c: char| !c.is_alphanumeric()).find(|part| !part.is_empty()).unwrap();
            let rows = &found[&(name.to_owned(), *end, *partition)];
            prop_assert_eq!(&counts, rows, "{} {} {:?}", name, end, firsts);
        }
    }
}

#[test]
fn early_results_of_substreams_ask_for_arrival_times() {
    let text = "name = \"early\"\nsql = 'SELECT k, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t OVER k \
        GROUP BY k, TumblingWindow(second, 5)'\n[inputs.a]\npath = \"a.jsonl\"\n\
        [outputs.out]\ntype = \"stdout\"\nearly = \"1s\"\n";
    let file = JobFile::parse(text, "job.toml").unwrap_or_else(|error| panic!("{error}"));
    let error = Job::new(file).err().map(|error| error.to_string());
    let error = error.unwrap_or_default();
    assert!(error.contains("[inputs.a] arrival"), "{error}");
}

fn instant(text: &str) -> Instant {
    Instant::parse_iso(text.as_bytes()).unwrap()
}

/// The seconds of the first revision of each event of a golden case; none if the final row alone counts it.
fn first_revisions(case: &str) -> Vec<Option<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../cases/windows")
        .join(case);
    let file = JobFile::load(&folder).unwrap_or_else(|error| panic!("{error}"));
    let job = Job::new(file).unwrap_or_else(|error| panic!("{error}"));
    let fates = why(&job, None).unwrap_or_else(|error| panic!("{error}"));
    let seconds = |time: &str| time[17..19].to_owned();
    let first =
        |fate: highwater_job::why::Fate| fate.revisions.first().map(|first| seconds(&first.time));
    fates.into_iter().map(first).collect()
}

#[test]
fn why_knows_the_age_of_windows_and_sessions() {
    let texts = |seconds: &[&str]| -> Vec<Option<String>> {
        let texts = seconds.iter().map(|text| Some((*text).to_owned()));
        texts
            .map(|text| text.filter(|text| !text.is_empty()))
            .collect()
    };
    assert_eq!(
        first_revisions("early-results"),
        texts(&["02", "02", "04", "", "08"])
    );
    assert_eq!(
        first_revisions("early-results-after"),
        texts(&["05", "05", "05", "10"])
    );
    assert_eq!(
        first_revisions("early-results-session"),
        texts(&["02", "04"])
    );
    assert_eq!(
        first_revisions("early-results-substreams"),
        texts(&["02", "02", "04", "04", "06"])
    );
}
