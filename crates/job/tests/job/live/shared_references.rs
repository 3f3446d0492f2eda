//! Reference data of a job on several instances: after any failures, every row is joined with the table in effect at
//! its time, in all partitions. // proves S3, X1, X3

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use highwater_env::{Disk, RealDisk, disk};
use highwater_job::live::JobState;
use highwater_log::batch::TimestampType;
use highwater_time::Instant;

use crate::live::instances::{Play, SHARED, begin, job_text, undisturbed};
use crate::live::repeatable::runtime;
use crate::live::store_outages::UnreliableStore;
use crate::live::world::{World, at, job, live, soon};

/// Queries with `VERSION` for the version of the table, and partitions. The other statement shows the versions in use.
const QUERIES: &[(&str, &str, u32)] = &[
    (
        "SELECT a.id AS id, r.version AS version, System.Timestamp() AS ts INTO out
         FROM a TIMESTAMP BY t JOIN r ON r.k = a.k",
        "SELECT id, VERSION AS version, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t",
        3,
    ),
    (
        "WITH s AS (SELECT r.version AS version, a.v AS v FROM a TIMESTAMP BY t JOIN r ON r.k = a.k)
         SELECT version, COUNT(*) AS n, SUM(v) AS s, System.Timestamp() AS ts INTO two FROM s
         GROUP BY version, TumblingWindow(second, 4)
         SELECT a.id AS id, r.version AS version, System.Timestamp() AS ts INTO out
         FROM a TIMESTAMP BY t JOIN r ON r.k = a.k",
        "WITH s AS (SELECT VERSION AS version, v FROM a TIMESTAMP BY t)
         SELECT version, COUNT(*) AS n, SUM(v) AS s, System.Timestamp() AS ts INTO two FROM s
         GROUP BY version, TumblingWindow(second, 4)
         SELECT id, VERSION AS version, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t",
        2,
    ),
    (
        "WITH w AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 3))
         SELECT w.k AS k, w.n AS n, r.version AS version, System.Timestamp() AS ts INTO out
         FROM w JOIN r ON r.k = w.k",
        "WITH w AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 3))
         SELECT k, n, VERSION AS version, System.Timestamp() AS ts INTO out FROM w",
        3,
    ),
];

/// The files of the table.
struct TableFiles {
    folder: tempfile::TempDir,
    is_dated: bool,
    version: u32,
}

impl TableFiles {
    fn new(is_dated: bool) -> TableFiles {
        let mut files = TableFiles {
            folder: tempfile::tempdir().unwrap(),
            is_dated,
            version: 0,
        };
        files.write(0);
        files
    }

    fn input(&self) -> String {
        let name = match self.is_dated {
            true => "{date}/{time}/r.jsonl",
            false => "r.jsonl",
        };
        let path = self.folder.path().join(name);
        format!(
            "[inputs.r]\nreference = true\npath = \"{}\"\nrefresh = \"20ms\"\n",
            path.display()
        )
    }

    /// A new version; one with a time takes effect in that minute.
    fn write(&mut self, minute: i64) {
        self.version += 1;
        let name = match self.is_dated {
            true => format!("2026-01-31/{}-{:02}/r.jsonl", 10 + minute / 60, minute % 60),
            false => "r.jsonl".into(),
        };
        write_table(&self.folder.path().join(name), self.version);
    }
}

fn write_table(path: &Path, version: u32) {
    disk::create_folder(path.parent().unwrap()).unwrap();
    let mut file = disk::create_atomic(path).unwrap();
    for key in ["k0", "k1", "k2"] {
        writeln!(file, "{{\"k\":\"{key}\",\"version\":{version}}}").unwrap();
    }
    file.commit().unwrap();
}

/// The effective times of tables, from the logs of the instances.
fn effective_times(lines: &[String], times: &mut BTreeSet<Instant>) {
    for line in lines {
        let said = match (line.split_once(" of "), line.split_once("takes effect at ")) {
            (_, Some((_, time))) => Some(time),
            (Some((_, rest)), None) => rest.strip_suffix(" takes effect then"),
            _ => None,
        };
        times.extend(said.and_then(|time| Instant::parse_iso(time.as_bytes())));
    }
}

/// The version in effect from each time on, by the rows. Rows in one span have one version.
fn versions(times: &BTreeSet<Instant>, rows: &[String]) -> BTreeMap<Instant, i64> {
    let mut found = BTreeMap::new();
    for row in rows {
        let value: serde_json::Value = serde_json::from_str(row).unwrap();
        let ts = value["ts"].as_str().unwrap();
        let ts = Instant::parse_iso(ts.as_bytes()).unwrap();
        let from = times.range(..=ts).next_back().copied();
        let version = value["version"].as_i64().unwrap();
        let known = found.insert(from.unwrap_or(Instant::BEFORE_ALL), version);
        assert!(
            known.is_none_or(|known| known == version),
            "{row}, not {known:?}"
        );
    }
    found
}

/// The query with the versions by time.
fn with_versions(sql: &str, versions: &BTreeMap<Instant, i64>) -> String {
    let mut later = String::new();
    for (from, version) in versions
        .iter()
        .rev()
        .filter(|(from, _)| **from > Instant::BEFORE_ALL)
    {
        later += &format!("WHEN System.Timestamp() >= CAST('{from}' AS datetime) THEN {version} ");
    }
    let first = versions.values().next().copied().unwrap_or(0);
    let version = match later.is_empty() {
        true => first.to_string(),
        false => format!("CASE {later}ELSE {first} END"),
    };
    sql.replace("VERSION", &version)
}

#[test]
fn every_row_meets_the_table_of_its_time_whatever_happens() {
    let (mut kills, mut overlaps, mut adopted, mut rows) = (0, 0, 0, 0);
    for seed in 0..4 * QUERIES.len() as u64 {
        let (sql, plain, partitions) = QUERIES[seed as usize % QUERIES.len()];
        let is_dated = seed as usize / QUERIES.len() % 2 == 1;
        let runtime = runtime();
        runtime.block_on(async {
            let mut files = TableFiles::new(is_dated);
            let text = job_text(sql, &format!("{SHARED}{}", files.input()));
            let mut play = Play::of(seed, sql, partitions, &text).await;
            let store = UnreliableStore::of(&mut play.world, seed);
            // In the second half of the seeds one request of twenty gets no answer.
            store.fail(match seed as usize / QUERIES.len() {
                0 | 1 => 0,
                _ => 5,
            });
            play.begin();
            play.assign();
            let mut times = BTreeSet::new();
            for _ in 0..10 {
                let minute = play.world.now_ms() / 60_000 + play.below(3) as i64 - 1;
                files.write(minute.max(0));
                if is_dated {
                    // It may be among the snapshots of the start, of which nothing is said.
                    times.insert(at(minute.max(0) * 60_000));
                }
                let known = times.len();
                // Some versions are replaced before any instance has seen them.
                let patience = play.below(100);
                for step in 0..patience {
                    play.step().await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    effective_times(&play.logs(), &mut times);
                    if times.len() > known && step > 10 {
                        break;
                    }
                }
            }
            store.fail(0);
            let played = play.finish().await;
            effective_times(&played.log, &mut times);
            let found = |output| played.world.recorder.rows(output);
            let versions = versions(&times, &found("out"));
            let plain = job(&job_text(&with_versions(plain, &versions), ""));
            let expected = undisturbed(&played.world, &plain).await;
            for output in ["out", "two", "Dead", "Late"] {
                let expected = expected.recorder.rows(output);
                assert_eq!(
                    found(output),
                    expected,
                    "seed {seed}, output {output} of {sql}"
                );
                rows += expected.len();
            }
            kills += played.kills;
            overlaps += played.overlaps;
            adopted += versions.len() - 1;
        });
    }
    assert!(rows > 500, "{rows} rows are few");
    assert!(adopted > 30, "{adopted} new tables in effect are few");
    assert!(
        kills > 20 && overlaps > 40,
        "{kills} kills, {overlaps} overlaps"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_cannot_reach_the_files_has_the_tables_of_the_others() {
    let world = World::new(1);
    world.cluster.topic("a", 1, TimestampType::LogAppend).await;
    world.cluster.topic("b", 1, TimestampType::LogAppend).await;
    let files = TableFiles::new(false);
    let (sql, _, _) = QUERIES[0];
    let shared = job(&job_text(sql, &format!("{SHARED}{}", files.input())));
    let event = |id: i64| {
        let time = at(id * 1000);
        format!("{{\"id\":{id},\"t\":\"{time}\",\"k\":\"k0\",\"v\":1,\"w\":\"1\"}}")
    };
    for id in 1..4 {
        let instance = begin(&world, &shared, live());
        instance.assignments.give(0..2);
        world.cluster.send("a", 0, &[event(id)]).await;
        world.advance(10_000);
        let rows = soon(world.recorder.until("out", id as usize)).await;
        assert!(rows[id as usize - 1].contains("\"version\":1"), "{rows:?}");
        drop(soon(instance.handle.kill()).await);
        // The store has all data that later starts need.
        let _ = RealDisk.remove_file(&files.folder.path().join("r.jsonl"));
    }
    let elsewhere = world.afresh();
    let first = begin(&elsewhere, &shared, live());
    let JobState::Failed { reason } = soon(first.handle.ended()).await.state else {
        panic!("a first instance starts without the files");
    };
    assert!(reason.contains("r.jsonl"), "{reason}");
}
