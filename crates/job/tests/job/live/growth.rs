//! Hubs that get more partitions while a job reads them. // proves T8 T9 S4

use std::time::Duration;

use highwater_env::random::Random;
use highwater_job::live::{AtEnd, Handle, JobState, Options};
use highwater_log::{HubName, Log};

use crate::live::world::{World, at, job, live, soon};

const TWO_WAYS: &str = r#"
name = "grown"
start = "beginning"
sql = """
SELECT id, PartitionId AS p INTO rows FROM e TIMESTAMP BY t
SELECT System.Timestamp() AS at, COUNT(*) AS n, SUM(id) AS s INTO counts FROM e TIMESTAMP BY t
GROUP BY TumblingWindow(second, 1)
SELECT PartitionId AS p, COUNT(*) AS n INTO each FROM e TIMESTAMP BY t PARTITION BY PartitionId
GROUP BY PartitionId, TumblingWindow(second, 2)"""
[inputs.e]
hub = "e"
[outputs.rows]
type = "stdout"
[outputs.counts]
type = "stdout"
[outputs.each]
type = "stdout"
[outputs.dead]
type = "stdout"
[errors]
on_error = "dead_letter"
dead_letter = "dead"
"#;

const COUNTS: &str = "[outputs.counts]\n";

const OUTPUTS: [&str; 4] = ["rows", "counts", "each", "dead"];

async fn grow(world: &World, partitions: u32) {
    let name = HubName::new("e").unwrap();
    world.log.grow(&name, partitions).await.unwrap();
}

fn event(id: u64, ms: i64) -> String {
    match id % 10 {
        9 => format!("{{\"id\":{id},\"t\":\"never\"}}"),
        _ => format!("{{\"id\":{id},\"t\":\"{}\"}}", at(ms)),
    }
}

fn resume() -> Options {
    Options {
        start: None,
        ..live()
    }
}

/// Until the job reads so many partitions.
async fn until_read(world: &World, handle: &Handle, partitions: usize) {
    soon(async {
        loop {
            let status = handle.status();
            assert!(
                !status.state.is_over(),
                "{:?} {:?}",
                status.state,
                status.log
            );
            let read = status
                .inputs
                .first()
                .map_or(0, |input| input.partitions.len());
            if read == partitions && status.state == JobState::Running {
                return;
            }
            world.advance(1);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_are_added_are_read_and_whoever_reads_later_sees_the_same() {
    for seed in 0..8 {
        let world = World::new(seed);
        world.hub("e", 2).await;
        let job = match seed % 2 {
            0 => job(TWO_WAYS),
            // proves E1
            _ => job(&TWO_WAYS.replace(COUNTS, &format!("{COUNTS}early = \"300ms\"\n"))),
        };
        let mut random = Random::seeded(seed);
        let mut handle = world.start(&job, live());
        let (mut partitions, mut id) = (2, 0);
        for _ in 0..60 {
            match random.below(12) {
                0..7 => {
                    let count = 1 + random.below(4);
                    let events: Vec<String> = (id..id + count)
                        .map(|id| event(id, world.now_ms()))
                        .collect();
                    id += count;
                    let partition = random.below(u64::from(partitions)) as u32;
                    world.send("e", partition, &events).await;
                }
                7 => drop(soon(handle.checkpoint()).await),
                8 if partitions < 6 => {
                    partitions += 1 + random.below(2) as u32;
                    grow(&world, partitions).await;
                }
                8 | 9 => {
                    soon(handle.kill()).await;
                    world.recorder.crash(&mut random);
                    handle = world.start(&job, resume());
                }
                10 => {
                    soon(handle.stop()).await;
                    handle = world.start(&job, resume());
                }
                _ => tokio::time::sleep(Duration::from_millis(random.below(5))).await,
            }
            world.advance(random.below(400));
        }
        until_read(&world, &handle, partitions as usize).await;
        soon(handle.stop()).await;
        for partition in 0..partitions {
            world.advance(10_000);
            world.silence("e", partition).await;
        }
        // The job processes the remaining events to the end, as a batch does from the start.
        let to_end = |start| Options {
            start,
            until_end: Some(AtEnd::TimeEnds),
            ..live()
        };
        let status = soon(world.start(&job, to_end(None)).ended()).await;
        assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
        let batch = world.afresh();
        let status = soon(batch.start(&job, to_end(live().start)).ended()).await;
        assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
        for output in OUTPUTS {
            let (found, expected) = (world.recorder.rows(output), batch.recorder.rows(output));
            let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
            let lengths = (found.len(), expected.len());
            assert_eq!(
                (differs, lengths.0),
                (None, lengths.1),
                "seed {seed}, {output}: {:?}",
                differs.map(|at| (&found[at], &expected[at]))
            );
        }
        let epochs = world.recorder.everything();
        let first = epochs.iter().map(|row| row.0.2).min();
        assert!(
            epochs.iter().all(|row| Some(row.0.2) == first),
            "one numbering"
        );
    }
}

const EVENTS: &str = r#"
name = "events"
sql = "SELECT id, System.Timestamp() AS at INTO out FROM e TIMESTAMP BY t"
[inputs.e]
hub = "e"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_from_before_its_partition_was_taken_up_is_out_of_order() {
    let world = World::new(4);
    world.hub("e", 1).await;
    let job = job(EVENTS);
    let handle = world.start(&job, live());
    world.advance(10_000);
    world
        .send("e", 0, &[event(1, 9_000), event(2, 10_000)])
        .await;
    world.advance(4_000);
    world.send("e", 0, &[event(3, 14_000)]).await;
    soon(world.recorder.until("out", 3)).await;
    grow(&world, 2).await;
    world
        .send("e", 1, &[event(4, 13_000), event(5, 14_500)])
        .await;
    until_read(&world, &handle, 2).await;
    world.advance(10_000);
    let rows = soon(world.recorder.until("out", 5)).await;
    let row = |id: u64, ms: i64| format!("{{\"id\":{id},\"at\":\"{}\"}}", at(ms));
    assert_eq!(rows[..3], [row(1, 9_000), row(2, 10_000), row(3, 14_000)]);
    assert_eq!(rows[3..], [row(4, 14_000), row(5, 14_500)]);
    // A row may be out before it is counted. Counts continue.
    let status = soon(async {
        loop {
            let status = handle.status();
            let events = status.inputs[0].partitions.iter();
            let events: Vec<u64> = events.map(|partition| partition.events).collect();
            if events == [3, 2] && status.outputs[0].rows == 5 {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    let adjusted = status.inputs[0].partitions[1].time.out_of_order_adjusted;
    assert_eq!((adjusted, status.alarms.len()), (1, 0));
    soon(handle.stop()).await;
}

/// After a crash one partition may have nothing to read before the hub grew, and another much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_waits_for_new_ones_holds_up_no_other() {
    let world = World::new(6);
    world.hub("e", 2).await;
    let job = job(EVENTS);
    let handle = world.start(&job, live());
    until_read(&world, &handle, 2).await;
    soon(handle.stop()).await;
    for id in 0..9 {
        world.advance(10);
        world.send("e", 0, &[event(id, world.now_ms())]).await;
    }
    grow(&world, 3).await;
    for (id, partition) in [(10, 2), (11, 1), (12, 0)] {
        world.advance(10);
        world
            .send("e", partition, &[event(id, world.now_ms())])
            .await;
    }
    let one_by_one = Options {
        fetch_bytes: 1,
        ..resume()
    };
    let handle = world.start(&job, one_by_one);
    until_read(&world, &handle, 3).await;
    world.advance(10_000);
    let rows = soon(world.recorder.until("out", 12)).await;
    let ids: Vec<&str> = rows
        .iter()
        .filter_map(|row| row.split([':', ',']).nth(1))
        .collect();
    let expected: Vec<String> = (0..9).chain(10..13).map(|id: i32| id.to_string()).collect();
    assert_eq!(ids, expected);
    soon(handle.stop()).await;
}

const APART: &str = r#"
name = "apart"
sql = """SELECT a.id AS id INTO out FROM e a TIMESTAMP BY t OVER PartitionId
JOIN f b TIMESTAMP BY t OVER PartitionId ON a.id = b.id AND a.PartitionId = b.PartitionId AND DATEDIFF(second, a, b) BETWEEN 0 AND 5"""
[inputs.e]
hub = "e"
[inputs.f]
hub = "e"
"#;

/// Where the shape of the query depends on the number of partitions, the job says so and reads all after the next
/// start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_keeps_partitions_apart_reads_them_after_the_next_start() {
    let world = World::new(5);
    world.hub("e", 1).await;
    let job = job(APART);
    let handle = world.start(&job, live());
    until_read(&world, &handle, 1).await;
    grow(&world, 2).await;
    let said = "hub `e` has 2 partitions, of which 1 are read: stop the job and start it again to read them all";
    soon(async {
        while !handle
            .status()
            .alarms
            .iter()
            .any(|alarm| alarm.contains(said))
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    soon(handle.stop()).await;
    let handle = world.start(&job, resume());
    until_read(&world, &handle, 2).await;
    assert!(handle.status().alarms.is_empty());
    soon(handle.stop()).await;
}
