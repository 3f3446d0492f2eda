//! Time without events. // proves T7 T8 T9

use highwater_job::live::JobState;
use highwater_log::batch::{BatchBuilder, BatchOptions, NewRecord};
use highwater_log::{Log, Producer, TransactionMarker};

use crate::live::world::{World, at, job, live, soon, to_the_end};

fn login(who: &str, ms: i64) -> String {
    format!("{{\"who\":\"{who}\",\"t\":\"{}\"}}", at(ms))
}

/// Tells of everybody who did not log in again within three minutes.
const NOBODY: &str = r#"
name = "nobody"
sql = """
SELECT a.who AS who, System.Timestamp() AS at INTO out
FROM login a TIMESTAMP BY t
LEFT JOIN login b TIMESTAMP BY t ON a.who = b.who AND DATEDIFF(second, a, b) BETWEEN 1 AND 180
WHERE b.who IS NULL
"""
[inputs.login]
hub = "login"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_login_for_three_minutes_is_told_on_time_and_again_tomorrow() {
    let world = World::new(1);
    world.hub("login", 1).await;
    world.send("login", 0, &[login("eve", 0)]).await;
    let job = job(NOBODY);
    let handle = world.start(&job, live());
    // 184 seconds later an event could still arrive that happened before the three minutes were over.
    world.advance(184_000);
    soon(world.recorder.until_time("out", at(179_000))).await;
    assert_eq!(world.recorder.rows("out"), [""; 0]);
    world.advance(1_001);
    let rows = soon(world.recorder.until("out", 1)).await;
    let expected = format!("{{\"who\":\"eve\",\"at\":\"{}\"}}", at(180_000));
    assert_eq!(rows, std::slice::from_ref(&expected));
    assert_eq!(soon(handle.stop()).await.state, JobState::Stopped);

    // A later replay of the log gives the same rows with a stopped clock.
    let tomorrow = world.afresh();
    let status = soon(tomorrow.start(&job, to_the_end()).ended()).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    assert_eq!(tomorrow.recorder.rows("out"), [expected]);
}

const COUNTS: &str = r#"
name = "counts"
sql = "SELECT System.Timestamp() AS at, COUNT(*) AS n INTO out FROM e TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)"
[inputs.e]
hub = "e"
"#;

fn count(ms: i64, n: u64) -> String {
    format!("{{\"at\":\"{}\",\"n\":{n}}}", at(ms))
}

/// Partition 0 has an event; partition 1 is silent, has never had one, or is not read to its end.
async fn two_partitions() -> World {
    let world = World::new(2);
    world.hub("e", 2).await;
    world.advance(1_000);
    world.send("e", 0, &[login("a", 1_000)]).await;
    world
}

/// Time passes, and the first window comes with so many logins.
async fn ten_seconds_hold(world: &World, logins: u64) {
    let handle = world.start(&job(COUNTS), live());
    world.advance(15_000);
    let rows = soon(world.recorder.until("out", 1)).await;
    assert_eq!(rows, [count(10_000, logins)]);
    soon(handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_and_silent_partition_lets_time_pass() {
    let world = two_partitions().await;
    world.send("e", 1, &[login("b", 1_000)]).await;
    ten_seconds_hold(&world, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_never_had_an_event_lets_time_pass() {
    let world = two_partitions().await;
    ten_seconds_hold(&world, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_not_read_to_its_end_holds_time() {
    let world = two_partitions().await;
    // An event that is there and cannot be seen yet, because its transaction is open.
    let producer = Producer { id: 7, epoch: 0 };
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord {
        key: None,
        value: Some(login("b", 2_000).as_bytes()),
        headers: &[],
    });
    let seal = BatchOptions {
        producer: Some((producer, 0)),
        transactional: true,
        ..BatchOptions::default()
    };
    let slow = world.log.partition("e", 1).unwrap();
    slow.append(builder.build(&seal).unwrap()).await.unwrap();
    let handle = world.start(&job(COUNTS), live());
    world.advance(15_000);
    // Partition 0 is said to be silent, again and again; that moves nothing.
    let end = world.end("e", 0);
    while world.end("e", 0).0 < end.0 + 3 {
        world.advance(1_000);
        tokio::task::yield_now().await;
    }
    assert_eq!(
        world.end("e", 1).0,
        1,
        "nobody says that partition 1 is silent"
    );
    assert_eq!(world.recorder.rows("out"), [""; 0]);
    slow.append_marker(producer, TransactionMarker::Commit)
        .await
        .unwrap();
    world.advance(15_000);
    assert_eq!(
        soon(world.recorder.until("out", 1)).await,
        [count(10_000, 2)]
    );
    soon(handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_partition_holds_up_no_clock_of_another() {
    let world = two_partitions().await;
    let job = job(r#"
name = "clocks"
sql = """SELECT PartitionId AS p, who, System.Timestamp() AS at, COUNT(*) AS n INTO out
FROM e TIMESTAMP BY t OVER PartitionId, who PARTITION BY PartitionId
GROUP BY PartitionId, who, TumblingWindow(second, 10)"""
[inputs.e]
hub = "e"
"#);
    let handle = world.start(&job, live());
    world.advance(15_000);
    let expected = format!(
        "{{\"p\":0,\"who\":\"a\",\"at\":\"{}\",\"n\":1}}",
        at(10_000)
    );
    assert_eq!(soon(world.recorder.until("out", 1)).await, [expected]);
    soon(handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_and_then_forward_loses_nothing() {
    let world = two_partitions().await;
    let handle = world.start(&job(COUNTS), live());
    world.advance(15_000);
    assert_eq!(
        soon(world.recorder.until("out", 1)).await,
        [count(10_000, 1)]
    );
    let set_to = |ms: i64| {
        let unix_ms = at(ms).to_unix_millis();
        world.clock.set_unix_nanos(i128::from(unix_ms) * 1_000_000);
    };
    // An hour back: arrivals stay where they were, and the event counts by its own time.
    set_to(-3_600_000);
    world.send("e", 0, &[login("c", 17_000)]).await;
    // A day later all pending rows are emitted at once.
    set_to(86_400_000);
    let rows = soon(world.recorder.until("out", 2)).await;
    assert_eq!(rows, [count(10_000, 1), count(20_000, 1)]);
    soon(handle.stop()).await;
}
