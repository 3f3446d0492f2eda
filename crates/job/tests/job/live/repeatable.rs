//! After any operations on a job, its rows are the same and every number has one row. // proves T8 T9 S4

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::random::Random;
use highwater_job::Job;
use highwater_job::live::{AtEnd, JobState, Options};
use highwater_time::Instant;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::live::recorder::Numbered;
use crate::live::world::{World, at, job};

pub(crate) const QUERIES: &[(&str, u32)] = &[
    ("SELECT id, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t", 3),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m INTO out
         FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 5)",
        3,
    ),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, AVG(v) AS m INTO out FROM a TIMESTAMP BY t
         GROUP BY k, SlidingWindow(second, 4)
         SELECT id, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 9)) AS before INTO two
         FROM a TIMESTAMP BY t",
        2,
    ),
    (
        "SELECT a.id AS x, b.id AS y, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t
         JOIN b TIMESTAMP BY t ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 3",
        2,
    ),
    (
        "SELECT id, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t WHERE v > 2
         SELECT COUNT(*) AS n, System.Timestamp() AS ts INTO out FROM b TIMESTAMP BY t
         GROUP BY HoppingWindow(second, 6, 4)",
        2,
    ),
    (
        "SELECT PartitionId AS p, System.Timestamp() AS ts, COUNT(*) AS n INTO out
         FROM a TIMESTAMP BY t PARTITION BY PartitionId GROUP BY PartitionId, TumblingWindow(second, 5)",
        3,
    ),
    ("SELECT id, EventEnqueuedUtcTime AS at, PartitionId AS p INTO out FROM a", 3),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t OVER k
         GROUP BY k, SlidingWindow(second, 5)",
        1,
    ),
    (
        "SELECT PartitionId AS p, k, System.Timestamp() AS ts, COUNT(*) AS n INTO out
         FROM a TIMESTAMP BY t OVER PartitionId, k PARTITION BY PartitionId
         GROUP BY PartitionId, k, TumblingWindow(second, 5)",
        3,
    ),
    (
        "SELECT k, System.Timestamp() AS ts, MAX(v) AS m INTO out FROM a TIMESTAMP BY t
         GROUP BY k, SessionWindow(second, 3, 8) OVER (PARTITION BY k)",
        2,
    ),
    (
        "SELECT id, CAST(w AS bigint) + CAST(v AS bigint) AS x INTO out FROM a TIMESTAMP BY t
         SELECT k, SUM(CAST(w AS bigint)) AS s INTO two FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 5)",
        3,
    ),
];

/// Queries with early results, in the same form.
const EARLY_QUERIES: &[(&str, u32)] = &[
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(v) AS s, MAX(v) AS m INTO out
         FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 5)",
        3,
    ),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t
         GROUP BY k, HoppingWindow(second, 6, 4) HAVING COUNT(*) < 4
         SELECT k, System.Timestamp() AS ts, v INTO out FROM b TIMESTAMP BY t",
        2,
    ),
    (
        "SELECT k, System.Timestamp() AS ts, MAX(v) AS m INTO out FROM a TIMESTAMP BY t
         GROUP BY k, SessionWindow(second, 3, 8) OVER (PARTITION BY k)",
        2,
    ),
    (
        "SELECT a.k AS k, COUNT(*) AS n, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t
         JOIN b TIMESTAMP BY t ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 3
         GROUP BY a.k, TumblingWindow(second, 5)",
        2,
    ),
    (
        "SELECT PartitionId AS p, System.Timestamp() AS ts, COUNT(*) AS n INTO out
         FROM a TIMESTAMP BY t PARTITION BY PartitionId GROUP BY PartitionId, TumblingWindow(second, 5)",
        3,
    ),
    (
        "SELECT k, System.Timestamp() AS ts, System.Window().Id AS w, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t
         GROUP BY k, Windows(Window('five', TumblingWindow(second, 5)), Window('six', HoppingWindow(second, 6, 2)),
                             Window('any', SlidingWindow(second, 2)))",
        2,
    ),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(v) AS s INTO out FROM a TIMESTAMP BY t OVER k
         GROUP BY k, HoppingWindow(second, 6, 4)",
        1,
    ),
    (
        "SELECT PartitionId AS p, k, System.Timestamp() AS ts, COUNT(*) AS n, MAX(v) AS m INTO out
         FROM a TIMESTAMP BY t OVER PartitionId, k PARTITION BY PartitionId
         GROUP BY PartitionId, k, TumblingWindow(second, 5)",
        3,
    ),
    (
        "SELECT PartitionId AS p, k, System.Timestamp() AS ts, COUNT(*) AS n INTO out
         FROM a TIMESTAMP BY t OVER PartitionId, k PARTITION BY PartitionId
         GROUP BY PartitionId, k, SessionWindow(second, 3, 8) OVER (PARTITION BY PartitionId, k)",
        2,
    ),
];

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// A query of [`QUERIES`], then of [`EARLY_QUERIES`].
    query: usize,
    late_s: i64,
    out_of_order_s: i64,
    drops: bool,
    pub seed: u64,
    steps: Vec<Step>,
}

/// The next change of the log.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    /// To partition, events as (how old in seconds, k, v).
    Send(usize, Vec<(i64, u8, i64)>),
    Silence(usize),
}

pub(crate) fn cases() -> impl Strategy<Value = Case> {
    cases_of(0..QUERIES.len())
}

fn cases_of(queries: Range<usize>) -> impl Strategy<Value = Case> {
    let event = (-3..12i64, 0..3u8, 0..8i64);
    let step = prop_oneof![
        3 => (1..1500u64).prop_map(Step::Wait),
        6 => (0..6usize, prop::collection::vec(event, 1..6)).prop_map(|(to, events)| Step::Send(to, events)),
        1 => (0..6usize).prop_map(Step::Silence),
    ];
    (
        queries,
        (0..8i64, 0..4i64, any::<bool>()),
        any::<u64>(),
        prop::collection::vec(step, 20..240),
    )
        .prop_map(
            |(query, (late_s, out_of_order_s, drops), seed, steps)| Case {
                query,
                late_s,
                out_of_order_s,
                drops,
                seed,
                steps,
            },
        )
}

impl Case {
    fn sql(&self) -> &'static str {
        self.of_table().0
    }

    fn of_table(&self) -> (&'static str, u32) {
        let mut queries = QUERIES.iter().chain(EARLY_QUERIES);
        *queries.nth(self.query).unwrap()
    }

    fn partitions(&self) -> u32 {
        self.of_table().1
    }

    /// Whether keys have clocks of their own.
    pub(crate) fn has_substreams(&self) -> bool {
        self.sql().contains("TIMESTAMP BY t OVER")
    }

    pub(crate) fn job(&self) -> Arc<Job> {
        self.job_with("")
    }

    /// With more lines in the job file.
    fn job_with(&self, lines: &str) -> Arc<Job> {
        let action = if self.drops { "drop" } else { "adjust" };
        // A query that may read only one partition of `a` reads only one hub.
        let hubs = if self.partitions() == 1 {
            ""
        } else {
            ", \"a2\""
        };
        job(&format!(
            "name = \"case\"\nsql = '''{}'''\nstart = \"beginning\"\n\
             [time]\nlate_arrival = \"{}s\"\nout_of_order = \"{}s\"\nlate_events = \"{action}\"\n\
             early_arrival = \"2s\"\n\
             [inputs.a]\ntype = \"hub\"\nhub = [\"a1\"{hubs}]\n[inputs.b]\nhub = \"b\"\n\
             [outputs.Dead]\ntype = \"stdout\"\n[outputs.Late]\ntype = \"stdout\"\n\
             [errors]\non_error = \"dead_letter\"\ndead_letter = \"Dead\"\n[late]\noutput = \"Late\"\n{lines}",
            self.sql(),
            self.late_s,
            self.out_of_order_s,
        ))
    }

    /// The same log in every world.
    pub(crate) async fn fill(&self, world: &World) {
        let partitions = self.partitions();
        world.hub("a1", 1).await;
        world.hub("a2", partitions.saturating_sub(1).max(1)).await;
        world.hub("b", 1).await;
        let place = |number: usize| match number as u32 % (partitions + 1) {
            0 => ("a1", 0),
            last if last == partitions => ("b", 0),
            other => ("a2", other - 1),
        };
        let mut id = 0;
        for step in &self.steps {
            match step {
                Step::Wait(ms) => world.advance(*ms),
                Step::Silence(to) => {
                    let (hub, partition) = place(*to);
                    world.silence(hub, partition).await;
                }
                Step::Send(to, events) => {
                    let now_ms = world.now_ms();
                    let texts: Vec<String> = events
                        .iter()
                        .map(|(age, k, v)| {
                            id += 1;
                            let time = at(now_ms - age * 1000);
                            match id % 17 {
                                0 => format!("{{\"id\":{id}, oops"),
                                5 => format!("{{\"id\":{id},\"k\":\"k{k}\"}}"),
                                6 => format!("[{{\"id\":{id},\"t\":\"{time}\",\"k\":\"k{k}\",\"v\":{v}}},\n{{\"id\":-{id},\"t\":\"{time}\",\"k\":\"k{k}\",\"v\":{v}.5}}]"),
                                7 => format!("{{\"id\":{id},\"t\":\"{time}\",\"k\":\"k{k}\",\"v\":{v},\"w\":\"x\"}}"),
                                _ => format!("{{\"id\":{id},\"t\":\"{time}\",\"k\":\"k{k}\",\"v\":{v}.25,\"w\":\"{v}\"}}"),
                            }
                        })
                        .collect();
                    let (hub, partition) = place(*to);
                    world.send(hub, partition, &texts).await;
                }
            }
        }
    }
}

type Everything = Vec<Numbered>;

pub(crate) fn options(random: &mut Random) -> Options {
    Options {
        threads: 1 + random.below(4) as usize,
        fetch_bytes: 100 + random.below(3000) as usize,
        until_end: Some(AtEnd::TimeEnds),
        checkpoint_every: Some(Duration::from_secs(3600)),
        ..Options::default()
    }
}

/// From beginning to end in one go.
async fn undisturbed(case: &Case, job: &Arc<Job>, random: &mut Random) -> Everything {
    let world = World::new(case.seed);
    case.fill(&world).await;
    let status = world.start(job, options(random)).ended().await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    world.recorder.everything()
}

/// Killed at random moments, with checkpoints at random moments.
async fn disturbed(case: &Case, job: &Arc<Job>, random: &mut Random) -> (Everything, usize) {
    let world = World::new(case.seed);
    case.fill(&world).await;
    for kills in 0.. {
        let handle = world.start(job, options(random));
        let calls = 1 + random.below(12);
        let saves = random.below(3);
        let crash = async {
            for _ in 0..saves {
                if handle.checkpoint().await.is_err() {
                    break;
                }
            }
            world.recorder.after_calls(calls).await;
        };
        let ended = tokio::select! {
            status = handle.ended() => Some(status.state),
            () = crash => None,
        };
        match ended {
            Some(JobState::Finished) => return (world.recorder.everything(), kills),
            Some(state) => panic!("{state:?}: {:?}", handle.status().log),
            None => {}
        }
        // Now and then it is stopped properly.
        match random.below(5) {
            0 => drop(handle.stop().await),
            _ => {
                handle.kill().await;
                world.recorder.crash(random);
                world.disk.crash();
                world.disk.restart();
            }
        }
        assert!(kills < 2_000, "it gets nowhere");
    }
    unreachable!("it is repeated until it ends")
}

/// Fails with the first rows that differ.
fn assert_same(found: &Everything, expected: &Everything, what: &str) {
    let mut pairs = found.iter().zip(expected);
    let differing = pairs.position(|(found, expected)| found != expected);
    let at = differing.unwrap_or(found.len().min(expected.len()));
    let rows = |rows: &Everything| format!("{:?}", rows.get(at.saturating_sub(2)..at + 1));
    assert!(
        found == expected,
        "{what}: row {at} of {}, {}: {} was expected to be {}",
        found.len(),
        expected.len(),
        rows(found),
        rows(expected)
    );
}

fn check(runtime: &Runtime, case: &Case, job: &Arc<Job>) -> usize {
    let mut random = Random::seeded(case.seed);
    runtime.block_on(async {
        let expected = undisturbed(case, job, &mut random).await;
        let again = undisturbed(case, job, &mut random).await;
        assert_same(&again, &expected, "cuts and threads");
        let mut all = 0;
        for _ in 0..3 {
            let (found, kills) = disturbed(case, job, &mut random).await;
            assert_same(&found, &expected, &format!("after {kills} kills"));
            all += kills;
        }
        all
    })
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn no_crash_shows_in_the_rows() {
    let runtime = runtime();
    let kills = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 48,
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    });
    let ran = runner.run(&cases(), |case| {
        kills.set(kills.get() + check(&runtime, &case, &case.job()));
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
    assert!(kills.get() >= 100, "{} kills are few", kills.get());
}

/// The rows of the output without those that are not final, and without the columns of revisions; and how many were not
/// final.
fn final_rows(everything: &Everything) -> (Vec<(Instant, String)>, usize) {
    let rows = everything.iter().filter(|(key, ..)| key.0 == "out");
    let (mut finals, mut others) = (Vec::new(), 0);
    for (_, _, (time, row)) in rows {
        match row.strip_suffix(",\"_final\":true}") {
            Some(row) => {
                let (row, _) = row.split_once(",\"_revision\":").unwrap();
                finals.push((*time, format!("{row}}}")));
            }
            None => others += 1,
        }
    }
    (finals, others)
}

/// Early results change no final row, and no crash shows in them. // proves E1
#[test]
fn no_crash_shows_in_early_rows() {
    const OUTPUT: &str = "[outputs.out]\ntype = \"stdout\"\n";
    let runtime = runtime();
    let early = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 24,
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    });
    let queries = QUERIES.len()..QUERIES.len() + EARLY_QUERIES.len();
    let settings = prop::sample::select(vec![
        "\"1s\"",
        "\"400ms\"",
        "{ every = \"2s\", after = \"3s\" }",
    ]);
    let ran = runner.run(&(cases_of(queries), settings), |(case, setting)| {
        let job = case.job_with(&format!("{OUTPUT}early = {setting}\n"));
        check(&runtime, &case, &job);
        let mut random = Random::seeded(case.seed);
        let (with, without) = runtime.block_on(async {
            let plain = case.job_with(OUTPUT);
            let without = undisturbed(&case, &plain, &mut random).await;
            (undisturbed(&case, &job, &mut random).await, without)
        });
        let (finals, others) = final_rows(&with);
        let without = without.iter().filter(|(key, ..)| key.0 == "out");
        let expected: Vec<_> = without.map(|(_, _, row)| row.clone()).collect();
        prop_assert_eq!(finals, expected);
        early.set(early.get() + others);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
    assert!(early.get() >= 100, "{} early rows are few", early.get());
}
