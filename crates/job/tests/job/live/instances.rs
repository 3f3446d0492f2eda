//! Several instances of one job: for any assignment of partitions, and any deaths and late wake-ups, the rows are those
//! of one undisturbed run. // proves X1, X3

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_env::random::Random;
use highwater_job::Job;
use highwater_job::live::{
    Handle, JobState, Options, ShardAssignment, ShardAssignor, ShardMembership, ShardNumber, start,
    store_checkpoints,
};
use highwater_log::batch::TimestampType;
use highwater_log::{Isolation, Log, partition_for_key};
use tokio::sync::{mpsc, watch};

use crate::live::repeatable::{QUERIES, runtime};
use crate::live::world::{World, at, job, live, soon, to_the_end};

/// The section of a job that instances share.
pub(super) const SHARED: &str = "[state]\npath = \"state\"\nshared = true\n";

/// Gives shards out as a test says.
pub(super) struct Assignments {
    current: watch::Sender<ShardAssignment>,
    /// Alive as long as the instance takes part.
    rebalances: Mutex<VecDeque<mpsc::Sender<tokio::sync::oneshot::Sender<()>>>>,
}

impl Assignments {
    fn new() -> Arc<Assignments> {
        Arc::new(Assignments {
            current: watch::Sender::new(ShardAssignment::None),
            rebalances: Mutex::default(),
        })
    }

    pub(super) fn give(&self, shards: impl IntoIterator<Item = ShardNumber>) {
        let shards: BTreeSet<ShardNumber> = shards.into_iter().collect();
        self.current.send_replace(ShardAssignment::Shards(shards));
    }

    fn take_all(&self) {
        self.current.send_replace(ShardAssignment::None);
    }
}

impl ShardAssignor for Assignments {
    fn join(&self, _shards: usize) -> ShardMembership {
        let (rebalance, rebalances) = mpsc::channel(1);
        self.rebalances.lock().unwrap().push_back(rebalance);
        ShardMembership {
            assignment: self.current.subscribe(),
            rebalances,
            leave: None,
        }
    }
}

/// An instance of the job.
pub(super) struct Instance {
    pub handle: Handle,
    pub assignments: Arc<Assignments>,
}

pub(super) fn begin(world: &World, job: &Arc<Job>, options: Options) -> Instance {
    let assignments = Assignments::new();
    let mut context = world.context();
    context.assignor = Some(assignments.clone());
    Instance {
        handle: start(job.clone(), context, options),
        assignments,
    }
}

/// Sides: dead letters and late events have outputs. `key`: of the outputs of the query.
fn job_text_with(sql: &str, key: Option<&str>, lines: &str) -> String {
    let topic = |name: &str| {
        format!(
            "[inputs.{name}]\ntype = \"kafka\"\nservers = [\"cluster:9092\"]\ntopic = \"{name}\"\n"
        )
    };
    let output = |name: &str| {
        format!(
            "[outputs.{name}]\ntype = \"kafka\"\nservers = [\"cluster:9092\"]\ntopic = \"{name}\"\n"
        )
    };
    let rest = match key {
        // Dead letters have one order, so combiners do not share the job.
        Some(key) => format!(
            "{}key = \"{key}\"\n{}key = \"{key}\"\n",
            output("out"),
            output("two")
        ),
        None => format!(
            "{}[errors]\non_error = \"dead_letter\"\ndead_letter = \"Dead\"\n",
            output("Dead")
        ),
    };
    format!(
        "name = \"shared\"\nsql = '''{sql}'''\nstart = \"beginning\"\n\
         [time]\nlate_arrival = \"6s\"\nout_of_order = \"2s\"\nearly_arrival = \"2s\"\n\
         {}{}{}{rest}[late]\noutput = \"Late\"\n{lines}",
        topic("a"),
        topic("b"),
        output("Late"),
    )
}

pub(super) fn job_text(sql: &str, lines: &str) -> String {
    job_text_with(sql, None, lines)
}

/// A query over topics that are filled while instances come and go.
pub(super) struct Play {
    pub world: World,
    job: Arc<Job>,
    random: Random,
    /// Partitions of `a`.
    partitions: u32,
    shards: usize,
    combiners: usize,
    /// Values of `k`, as JSON.
    keys: &'static [&'static str],
    events: u64,
    instances: Vec<Instance>,
    kills: usize,
    overlaps: usize,
}

impl Play {
    pub(super) async fn new(seed: u64, sql: &str, partitions: u32) -> Play {
        Play::of(seed, sql, partitions, &job_text(sql, SHARED)).await
    }

    /// The job of `text` runs the query.
    pub(super) async fn of(seed: u64, sql: &str, partitions: u32, text: &str) -> Play {
        let world = World::new(seed);
        world
            .cluster
            .topic("a", partitions, TimestampType::LogAppend)
            .await;
        world.cluster.topic("b", 1, TimestampType::LogAppend).await;
        let has_b = sql.contains("FROM b") || sql.contains("JOIN b");
        Play {
            world,
            job: job(text),
            random: Random::seeded(seed),
            partitions,
            shards: partitions as usize + usize::from(has_b) + 1,
            combiners: 1,
            keys: &["\"k0\"", "\"k1\"", "\"k2\""],
            events: 0,
            instances: Vec::new(),
            kills: 0,
            overlaps: 0,
        }
    }

    /// Several combiners, and keys of all kinds.
    async fn keyed(seed: u64, sql: &str, partitions: u32, combiners: usize) -> Play {
        let text = job_text_with(sql, Some("k"), &several(combiners));
        let mut play = Play::of(seed, sql, partitions, &text).await;
        play.shards += combiners - 1;
        play.combiners = combiners;
        play.keys = KEYS;
        play
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    async fn send(&mut self) {
        let partition = self.below(self.partitions as usize + 1) as u32;
        let events = 1 + self.below(6);
        let now_ms = self.world.now_ms();
        let mut texts = Vec::new();
        for _ in 0..events {
            self.events += 1;
            let (id, age) = (self.events, self.below(12) as i64 - 3);
            let k = self.below(self.keys.len());
            let (k, v) = (self.keys[k], self.below(8));
            let time = at(now_ms - age * 1000);
            texts.push(match id % 13 {
                0 => format!("{{\"id\":{id}, oops"),
                7 => {
                    format!("{{\"id\":{id},\"t\":\"{time}\",\"k\":{k},\"v\":{v},\"w\":\"x\"}}")
                }
                _ => {
                    format!("{{\"id\":{id},\"t\":\"{time}\",\"k\":{k},\"v\":{v}.25,\"w\":\"{v}\"}}")
                }
            });
        }
        let cluster = &self.world.cluster;
        match partition == self.partitions {
            true => cluster.send("b", 0, &texts).await,
            false => cluster.send("a", partition, &texts).await,
        }
    }

    pub(super) fn begin(&mut self) {
        let options = Options {
            fetch_bytes: 100 + self.below(3000),
            ..live()
        };
        self.instances.push(begin(&self.world, &self.job, options));
    }

    /// Assigns every shard, and some of them to two owners at the same time.
    pub(super) fn assign(&mut self) {
        let count = self.instances.len();
        let mut given = vec![BTreeSet::new(); count];
        for shard in 0..self.shards {
            let owner = self.below(count);
            given[owner].insert(shard);
            if self.below(4) == 0 {
                let other = self.below(count);
                self.overlaps += usize::from(given[other].insert(shard));
            }
        }
        for (instance, shards) in self.instances.iter().zip(given) {
            instance.assignments.give(shards);
        }
    }

    pub(super) async fn step(&mut self) {
        match self.below(16) {
            0..=6 => self.send().await,
            7..=8 => {
                let ms = self.random.below(3000);
                self.world.advance(ms);
            }
            9 => self.world.advance(7_000),
            10 if self.instances.len() < 3 => {
                self.begin();
                self.assign();
            }
            11 if self.instances.len() > 1 => {
                let which = self.below(self.instances.len());
                let instance = self.instances.swap_remove(which);
                match self.below(3) {
                    0 => drop(soon(instance.handle.stop()).await),
                    _ => drop(soon(instance.handle.kill()).await),
                }
                self.kills += 1;
                self.assign();
            }
            12 => {
                let which = self.below(self.instances.len());
                // It fails if a shard is being lost.
                let _ = soon(self.instances[which].handle.checkpoint()).await;
            }
            13 => {
                let which = self.below(self.instances.len());
                self.instances[which].assignments.take_all();
                self.assign();
            }
            14 => self.assign(),
            _ => tokio::time::sleep(Duration::from_millis(self.random.below(30))).await,
        }
    }

    /// Everything goes to one instance, and time passes.
    pub(super) async fn finish(mut self) -> Played {
        while self.instances.len() > 1 {
            let instance = self.instances.remove(0);
            drop(soon(instance.handle.kill()).await);
        }
        self.instances[0].assignments.give(0..self.shards);
        self.world.advance(60_000);
        let passed = at(self.world.now_ms() - 20_000);
        let moving = async {
            loop {
                // A shard that was lost just now starts again after a pause of the job's clock.
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.world.advance(100);
            }
        };
        let outputs = match self.combiners {
            1 => vec!["out".to_owned()],
            several => (0..several).map(|n| format!("out#{n}")).collect(),
        };
        let all_passed = async {
            for output in &outputs {
                soon(self.world.recorder.until_time(output, passed)).await;
            }
        };
        tokio::select! {
            () = all_passed => {}
            () = moving => {}
        }
        let status = soon(self.instances[0].handle.stop()).await;
        assert_eq!(status.state, JobState::Stopped, "{:?}", status.log);
        Played {
            world: self.world,
            kills: self.kills,
            overlaps: self.overlaps,
            log: status.log.into_iter().map(|line| line.text).collect(),
        }
    }

    /// The lines in the logs of the instances that run.
    pub(super) fn logs(&self) -> Vec<String> {
        let statuses = self
            .instances
            .iter()
            .map(|instance| instance.handle.status());
        let lines = statuses.flat_map(|status| status.log);
        lines.map(|line| line.text).collect()
    }
}

/// What is left of a play.
pub(super) struct Played {
    pub world: World,
    pub kills: usize,
    pub overlaps: usize,
    /// Of the last instance.
    pub log: Vec<String>,
}

/// The rows of one run over the same topics and time journals that nothing disturbs.
pub(super) async fn undisturbed(world: &World, job: &Arc<Job>) -> World {
    let own = world.afresh();
    let status = soon(own.start(job, to_the_end()).ended()).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    own
}

#[test]
fn no_kill_no_zombie_and_no_move_shows_in_the_rows() {
    let (mut kills, mut overlaps, mut rows) = (0, 0, 0);
    for seed in 0..2 * QUERIES.len() as u64 {
        let (sql, partitions) = QUERIES[seed as usize % QUERIES.len()];
        let runtime = runtime();
        runtime.block_on(async {
            let mut play = Play::new(seed, sql, partitions).await;
            play.begin();
            play.assign();
            for _ in 0..60 {
                play.step().await;
            }
            let played = play.finish().await;
            let world = played.world;
            let expected = undisturbed(&world, &job(&job_text(sql, ""))).await;
            for output in ["out", "two", "Dead", "Late"] {
                let (found, expected) =
                    (world.recorder.rows(output), expected.recorder.rows(output));
                assert_eq!(found, expected, "seed {seed}, output {output} of {sql}");
                rows += found.len();
            }
            kills += played.kills;
            overlaps += played.overlaps;
        });
    }
    assert!(rows > 500, "{rows} rows are few");
    assert!(
        kills > 30 && overlaps > 60,
        "{kills} kills, {overlaps} overlaps"
    );
}

/// Values that look different and are in one group, and some that are none.
const KEYS: &[&str] = &[
    "\"k0\"", "\"k1\"", "\"k2\"", "\"k3\"", "\"k4\"", "1", "1.0", "2.5", "true", "null", "[1]",
    "\"1\"",
];

/// The section of a job that instances share with several combiners.
fn several(combiners: usize) -> String {
    format!("{SHARED}combiners = {combiners}\n")
}

/// Queries that keep keys apart after partitions are combined, with the number of partitions of `a`.
const KEYED: &[(&str, u32)] = &[
    ("SELECT id, k, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t", 3),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(v) AS s, STDEV(v) AS d INTO out
         FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 5)",
        3,
    ),
    (
        "SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, AVG(v) AS m INTO out FROM a TIMESTAMP BY t
         GROUP BY k, SlidingWindow(second, 4)
         SELECT id, k, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 9)) AS before INTO two
         FROM a TIMESTAMP BY t",
        2,
    ),
    (
        "SELECT id, k, System.Timestamp() AS ts INTO out FROM a TIMESTAMP BY t WHERE v > 2
         SELECT k, COUNT(*) AS n, System.Timestamp() AS ts INTO out FROM b TIMESTAMP BY t
         GROUP BY v, k, HoppingWindow(second, 6, 4) HAVING COUNT(*) < 4",
        2,
    ),
    (
        "SELECT PartitionId AS k, System.Timestamp() AS ts, COUNT(*) AS n INTO out
         FROM a TIMESTAMP BY t PARTITION BY PartitionId GROUP BY PartitionId, TumblingWindow(second, 5)",
        3,
    ),
    (
        "SELECT k, System.Timestamp() AS ts, MAX(v) AS m INTO out FROM a TIMESTAMP BY t
         GROUP BY k, SessionWindow(second, 3, 8) OVER (PARTITION BY k)",
        2,
    ),
    (
        "WITH s AS (SELECT k, MAX(v) AS v FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 2))
         SELECT k, System.Timestamp() AS ts, COUNT(*) AS n, SUM(v) AS s INTO out FROM s
         GROUP BY k, TumblingWindow(second, 6)",
        3,
    ),
    (
        "WITH x AS (SELECT id, TRY_CAST(k AS nvarchar(max)) AS k FROM a TIMESTAMP BY t),
              y AS (SELECT id, TRY_CAST(k AS nvarchar(max)) AS k FROM b TIMESTAMP BY t)
         SELECT y.k AS k, x.id AS x, y.id AS y, System.Timestamp() AS ts INTO out
         FROM x JOIN y ON x.k = y.k AND DATEDIFF(second, x, y) BETWEEN 0 AND 3",
        3,
    ),
    (
        "WITH x AS (SELECT id, TRY_CAST(k AS bigint) AS k FROM a TIMESTAMP BY t),
              y AS (SELECT id, TRY_CAST(k AS bigint) AS k, v FROM b TIMESTAMP BY t),
              z AS (SELECT x.k AS k, x.id AS x, y.v AS v FROM x LEFT JOIN y
                    ON x.k = y.k AND DATEDIFF(second, x, y) BETWEEN -2 AND 4)
         SELECT k, x, v, System.Timestamp() AS ts INTO out FROM z
         SELECT k, COUNT(*) AS n, SUM(v) AS s, System.Timestamp() AS ts INTO two FROM z
         GROUP BY k, TumblingWindow(second, 5)",
        2,
    ),
];

/// The combiner of a row by its key.
fn combiner_of(row: &str, combiners: usize) -> usize {
    let row: serde_json::Value = serde_json::from_str(row).unwrap();
    let text = match &row["k"] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 => format!("{}", whole as i64),
            _ => number.to_string(),
        },
        serde_json::Value::Bool(bit) => u8::from(*bit).to_string(),
        _ => return 0,
    };
    partition_for_key(text.as_bytes(), combiners as u32) as usize
}

#[test]
fn combiners_that_share_keys_give_the_rows_of_one() {
    let (mut kills, mut overlaps) = (0, 0);
    let (mut rows, mut rows_of_query) = ([0; 3], vec![0; KEYED.len()]);
    for seed in 0..3 * KEYED.len() as u64 {
        let query = seed as usize % KEYED.len();
        let (sql, partitions) = KEYED[query];
        let runtime = runtime();
        runtime.block_on(async {
            let combiners = 2 + seed as usize % 2;
            let mut play = Play::keyed(seed, sql, partitions, combiners).await;
            play.begin();
            play.assign();
            for _ in 0..60 {
                play.step().await;
            }
            let played = play.finish().await;
            let world = played.world;
            let alone = job(&job_text_with(sql, Some("k"), ""));
            let expected = undisturbed(&world, &alone).await;
            for output in ["out", "two", "Late"] {
                let all = expected.recorder.rows(output);
                for (combiner, rows) in rows.iter_mut().enumerate().take(combiners) {
                    let is_its_own = |row: &&String| match output {
                        "Late" => combiner == 0,
                        _ => combiner_of(row, combiners) == combiner,
                    };
                    let own: Vec<String> = all.iter().filter(is_its_own).cloned().collect();
                    let found = world.recorder.rows(&format!("{output}#{combiner}"));
                    assert_eq!(found, own, "seed {seed}, {output} of {combiner}, {sql}");
                    *rows += found.len();
                    if output != "Late" {
                        rows_of_query[query] += found.len();
                    }
                }
            }
            kills += played.kills;
            overlaps += played.overlaps;
        });
    }
    assert!(rows.iter().all(|rows| *rows > 80), "{rows:?} rows are few");
    let has_few = rows_of_query.iter().any(|rows| *rows < 5);
    assert!(!has_few, "{rows_of_query:?} rows of each query are few");
    assert!(
        kills > 20 && overlaps > 40,
        "{kills} kills, {overlaps} overlaps"
    );
}

const COUNTS: &str = "SELECT System.Timestamp() AS at, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)";

fn event(ms: i64) -> String {
    format!("{{\"t\":\"{}\",\"k\":\"k\",\"v\":1}}", at(ms))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_combiner_on_three_instances_give_the_rows_of_one() {
    let world = World::new(1);
    world.cluster.topic("a", 2, TimestampType::LogAppend).await;
    world.cluster.topic("b", 1, TimestampType::LogAppend).await;
    let shared = job(&job_text(COUNTS, SHARED));
    let instances: Vec<Instance> = (0..3).map(|_| begin(&world, &shared, live())).collect();
    for (shard, instance) in instances.iter().enumerate() {
        instance.assignments.give([shard]);
    }
    world.cluster.send("a", 0, &[event(0), event(1_000)]).await;
    world.cluster.send("a", 1, &[event(2_000)]).await;
    world.advance(30_000);
    let rows = soon(world.recorder.until("out", 2)).await;
    let count = |ms: i64, n: u64| format!("{{\"at\":\"{}\",\"n\":{n}}}", at(ms));
    assert_eq!(rows, [count(0, 1), count(10_000, 2)]);
    for instance in &instances {
        assert_eq!(soon(instance.handle.stop()).await.state, JobState::Stopped);
    }
    // An instance that continues logs nothing again.
    let again = begin(&world, &shared, live());
    again.assignments.give(0..3);
    world.cluster.send("a", 1, &[event(31_000)]).await;
    world.advance(30_000);
    let rows = soon(world.recorder.until("out", 3)).await;
    assert_eq!(rows[2], count(40_000, 1));
    soon(again.handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exchange_keeps_only_what_a_checkpoint_needs() {
    let world = World::new(2);
    world.cluster.topic("a", 1, TimestampType::LogAppend).await;
    world.cluster.topic("b", 1, TimestampType::LogAppend).await;
    let instance = begin(&world, &job(&job_text(COUNTS, SHARED)), live());
    instance.assignments.give(0..2);
    let exchange = || {
        let hubs = world.cluster.log.hubs().into_iter();
        let mut found = hubs.filter(|hub| hub.name.as_str().starts_with("_highwater-exchange"));
        let name = found.next().unwrap().name.clone();
        world.cluster.log.partition(name.as_str(), 0).unwrap()
    };
    let mut rows = 0;
    for round in 0..4 {
        world.cluster.send("a", 0, &[event(round * 20_000)]).await;
        world.advance(20_000);
        rows += 1;
        soon(world.recorder.until("out", rows)).await;
        soon(instance.handle.checkpoint()).await.unwrap();
    }
    let partition = exchange();
    while partition.bounds().start.0 == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(partition.bounds().start < partition.bounds().visible(Isolation::Committed));
    soon(instance.handle.kill()).await;
    // The records that are left are enough.
    let again = begin(&world, &job(&job_text(COUNTS, SHARED)), live());
    again.assignments.give(0..2);
    world.cluster.send("a", 0, &[event(80_000)]).await;
    world.advance(20_000);
    soon(world.recorder.until("out", rows + 1)).await;
    soon(again.handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_instances_cannot_share_is_refused_with_the_reason() {
    let world = World::new(3);
    world.hub("a", 1).await;
    let hub = format!("name = \"x\"\nsql = '''{COUNTS}'''\n[inputs.a]\nhub = \"a\"\n{SHARED}");
    let file = job_text(COUNTS, SHARED) + "[outputs.out]\ntype = \"stdout\"\n";
    let unfenced = job_text(COUNTS, SHARED)
        .replace("topic = \"a\"\n", "topic = \"a\"\ntransactions = false\n");
    for (text, reason) in [
        (hub, "is no Kafka topic"),
        (file, "output \"out\" cannot shut out"),
        (unfenced, "transactions = false"),
    ] {
        let status = soon(begin(&world, &job(&text), live()).handle.ended()).await;
        let JobState::Failed { reason: found } = status.state else {
            panic!("it started: {text}");
        };
        assert!(
            found.contains("cannot share this job") && found.contains(reason),
            "{found}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_query_under_the_same_name_is_refused() {
    let world = World::new(4);
    world.cluster.topic("a", 1, TimestampType::LogAppend).await;
    world.cluster.topic("b", 1, TimestampType::LogAppend).await;
    let first = begin(&world, &job(&job_text(COUNTS, SHARED)), live());
    first.assignments.give(0..2);
    world.cluster.send("a", 0, &[event(0)]).await;
    world.advance(30_000);
    soon(world.recorder.until("out", 1)).await;
    let other = COUNTS.replace("COUNT(*)", "COUNT(*) + 1");
    let second = begin(&world, &job(&job_text(&other, SHARED)), live());
    let JobState::Failed { reason } = soon(second.handle.ended()).await.state else {
        panic!("two queries share one state");
    };
    assert!(reason.contains("the query is another"), "{reason}");
    assert!(reason.contains("another name"), "{reason}");
    soon(first.handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_not_shared_goes_on_elsewhere_from_the_store() {
    let world = World::new(5);
    world.cluster.topic("a", 2, TimestampType::LogAppend).await;
    world.cluster.topic("b", 1, TimestampType::LogAppend).await;
    let job = job(&job_text(COUNTS, "[state]\npath = \"state\"\n"));
    let begin = |options| {
        let mut context = world.context();
        context.checkpoints = store_checkpoints(context.state.as_ref().unwrap(), &job);
        start(job.clone(), context, options)
    };
    let first = begin(live());
    world.cluster.send("a", 0, &[event(0)]).await;
    world.advance(30_000);
    soon(world.recorder.until("out", 1)).await;
    soon(first.checkpoint()).await.unwrap();
    // The first machine is thought dead.
    let resumed = Options {
        start: None,
        ..live()
    };
    let second = begin(resumed);
    world.cluster.send("a", 1, &[event(31_000)]).await;
    world.advance(30_000);
    soon(world.recorder.until("out", 2)).await;
    // The first may have written the row before the second has started.
    while soon(second.checkpoint()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = soon(first.checkpoint()).await.unwrap_err();
    let is_over = first.is_over() || refused.contains("the job is over");
    assert!(is_over || refused.contains("taken it over"), "{refused}");
    soon(second.checkpoint()).await.unwrap();
    soon(second.stop()).await;
    assert_eq!(world.recorder.rows("out").len(), 2);
}
