//! Jobs that read topics of a cluster: rows as from hubs, and punctuations from a journal. // proves X4 X5 T7
//! T8

use std::sync::Arc;

use highwater_env::random::Random;
use highwater_job::Job;
use highwater_job::live::{Checkpoints, JobState, Options};
use highwater_log::Log;
use highwater_log::batch::TimestampType;

use crate::live::world::{World, at, job, live, soon, to_the_end};

/// The default of `clock_margin`.
const MARGIN_MS: u64 = 1_000;

fn login(who: &str, ms: i64) -> String {
    format!("{{\"who\":\"{who}\",\"t\":\"{}\"}}", at(ms))
}

fn over(input: &str, job_file: &str) -> Arc<Job> {
    job(&format!("{job_file}\n{input}"))
}

const TOPIC: &str = "[inputs.e]\ntype = \"kafka\"\nservers = [\"cluster:9092\"]\ntopic = \"e\"\n";
const HUB: &str = "[inputs.e]\nhub = \"e\"\n";

/// Tells of everybody who did not log in again within three minutes.
const NOBODY: &str = r#"
name = "nobody"
sql = """
SELECT a.who AS who, System.Timestamp() AS at INTO out
FROM e a TIMESTAMP BY t
LEFT JOIN e b TIMESTAMP BY t ON a.who = b.who AND DATEDIFF(second, a, b) BETWEEN 1 AND 180
WHERE b.who IS NULL
"""
"#;

const COUNTS: &str = r#"
name = "counts"
sql = "SELECT System.Timestamp() AS at, COUNT(*) AS n INTO out FROM e TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)"
"#;

fn count(ms: i64, n: u64) -> String {
    format!("{{\"at\":\"{}\",\"n\":{n}}}", at(ms))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_told_on_time_by_one_row_and_again_tomorrow() {
    let world = World::new(1);
    world.cluster.topic("e", 2, TimestampType::LogAppend).await;
    world.cluster.send("e", 0, &[login("eve", 0)]).await;
    let job = over(TOPIC, NOBODY);
    let handle = world.start(&job, live());
    // 184 seconds and the margin later an event could still arrive that happened before the three minutes were over.
    world.advance(184_000 + MARGIN_MS);
    soon(world.recorder.until_time("out", at(179_000))).await;
    assert_eq!(world.recorder.rows("out"), [""; 0]);
    world.advance(1_001);
    let expected = format!("{{\"who\":\"eve\",\"at\":\"{}\"}}", at(180_000));
    let rows = soon(world.recorder.until("out", 1)).await;
    assert_eq!(rows, std::slice::from_ref(&expected));
    assert_eq!(soon(handle.stop()).await.state, JobState::Stopped);
    assert_eq!(
        world.cluster.end("e", 0).0,
        1,
        "the topic has the event alone"
    );

    let tomorrow = world.afresh();
    let status = soon(tomorrow.start(&job, to_the_end()).ended()).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    assert_eq!(tomorrow.recorder.rows("out"), [expected]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_never_had_an_event_lets_time_pass() {
    let world = World::new(2);
    world.cluster.topic("e", 2, TimestampType::LogAppend).await;
    world.advance(1_000);
    world.cluster.send("e", 0, &[login("a", 1_000)]).await;
    let handle = world.start(&over(TOPIC, COUNTS), live());
    world.advance(15_000 + MARGIN_MS);
    let rows = soon(world.recorder.until("out", 1)).await;
    assert_eq!(rows, [count(10_000, 1)]);
    soon(handle.stop()).await;
}

/// Sends events at random times, with kills, checkpoints and silences between them. Returns the rows.
async fn played(world: &World, seed: u64) -> Vec<String> {
    let mut random = Random::seeded(seed);
    let job = over(TOPIC, COUNTS);
    let mut handle = world.start(&job, live());
    for _ in 0..30 {
        let ms = random.below(4_000) as i64;
        world.advance(ms as u64);
        let time = world.now_ms() - random.below(7_000) as i64;
        let partition = random.below(2) as u32;
        match random.below(6) {
            0 => {
                world.advance(12_000);
                let passed = world.now_ms() - 10_000;
                soon(world.recorder.until_time("out", at(passed))).await;
            }
            1 => {
                // A job that is starting has nothing to store.
                let _ = soon(handle.checkpoint()).await;
            }
            2 => {
                soon(handle.kill()).await;
                world.recorder.crash(&mut random);
                // Killed before its first checkpoint, it begins again.
                let has_begun = !world.checkpoints().list().unwrap().is_empty();
                let resumed = Options {
                    start: live().start.filter(|_| !has_begun),
                    ..live()
                };
                handle = world.start(&job, resumed);
            }
            _ => {
                let events = [login("a", time), login("b", time + 5)];
                world.cluster.send("e", partition, &events).await;
            }
        }
    }
    world.advance(60_000);
    let passed = world.now_ms() - 10_000;
    soon(world.recorder.until_time("out", at(passed))).await;
    assert_eq!(soon(handle.stop()).await.state, JobState::Stopped);
    world.recorder.rows("out")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_between_events_and_silences_change_no_row() {
    for seed in 0..12 {
        let world = World::new(seed);
        world.cluster.topic("e", 2, TimestampType::LogAppend).await;
        let rows = played(&world, seed).await;
        // The rows of one undisturbed run over the same topic and journal, with a stopped clock.
        let undisturbed = world.afresh();
        let job = over(TOPIC, COUNTS);
        let status = soon(undisturbed.start(&job, to_the_end()).ended()).await;
        assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
        assert_eq!(rows, undisturbed.recorder.rows("out"), "seed {seed}");
        assert!(!rows.is_empty(), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_gives_the_rows_of_a_hub() {
    let world = World::new(3);
    world.hub("e", 2).await;
    world.cluster.topic("e", 2, TimestampType::LogAppend).await;
    for n in 0..50 {
        world.advance(700);
        let events = [login("a", 700 * n - 300), login("b", 700 * n)];
        let partition = (n % 2) as u32;
        world.send("e", partition, &events).await;
        world.cluster.send("e", partition, &events).await;
    }
    let mut rows = Vec::new();
    for input in [HUB, TOPIC] {
        let own = world.afresh();
        let status = soon(own.start(&over(input, COUNTS), to_the_end()).ended()).await;
        assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
        rows.push(own.recorder.rows("out"));
    }
    assert_eq!(rows[0], rows[1]);
    assert!(rows[0].len() > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_start_elsewhere_shuts_the_first_one_out() {
    let world = World::new(4);
    world.cluster.topic("e", 1, TimestampType::LogAppend).await;
    world.cluster.send("e", 0, &[login("a", 0)]).await;
    let job = over(TOPIC, COUNTS);
    let first = world.start(&job, live());
    world.advance(15_000 + MARGIN_MS);
    soon(world.recorder.until("out", 1)).await;
    let elsewhere = world.afresh();
    let second = elsewhere.start(&job, live());
    soon(elsewhere.recorder.until("out", 1)).await;
    // The first one finds out at its next punctuation.
    world.advance(60_000);
    let JobState::Failed { reason } = soon(first.ended()).await.state else {
        panic!("two jobs write one journal");
    };
    assert!(reason.contains("taken over"), "{reason}");
    world.cluster.send("e", 0, &[login("b", 76_000)]).await;
    world.advance(60_000);
    let rows = soon(elsewhere.recorder.until("out", 2)).await;
    assert_eq!(rows, [count(0, 1), count(80_000, 1)]);
    soon(second.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_with_the_times_of_producers_is_refused_unless_they_are_wanted() {
    let world = World::new(5);
    world.cluster.topic("e", 1, TimestampType::Create).await;
    let refused = soon(world.start(&over(TOPIC, COUNTS), live()).ended()).await;
    let JobState::Failed { reason } = refused.state else {
        panic!("it started");
    };
    assert!(
        reason.contains("message.timestamp.type=LogAppendTime"),
        "{reason}"
    );
    assert!(reason.contains("arrival = \"create-time\""), "{reason}");

    world.cluster.send("e", 0, &[login("a", 0)]).await;
    world.advance(20_000);
    world.cluster.send("e", 0, &[login("b", 20_000)]).await;
    let wanted = format!("{TOPIC}arrival = \"create-time\"\n");
    let handle = world.start(&over(&wanted, COUNTS), live());
    let rows = soon(world.recorder.until("out", 1)).await;
    assert_eq!(rows, [count(0, 1)]);
    soon(handle.stop()).await;
    let journal = world.cluster.log.hubs().len();
    assert_eq!(journal, 1, "there is nothing to write about silence");
}
