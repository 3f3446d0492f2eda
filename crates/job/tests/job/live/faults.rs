//! Disks and outputs that fail. // proves S4

use std::path::Path;

use highwater_connect::EndpointError;
use highwater_env::Disk;
use highwater_env::disk::Faults;
use highwater_job::live::{AtEnd, Checkpoints, Handle, JobState, JobStatus, Options};

use crate::live::world::{World, at, job, live, soon};

const EVENTS: &str = r#"
name = "events"
sql = "SELECT id INTO out FROM e"
[inputs.e]
hub = "e"
"#;

async fn world() -> World {
    let world = World::new(4);
    world.hub("e", 1).await;
    world
}

async fn send(world: &World, ids: std::ops::Range<i64>) {
    let events: Vec<String> = ids.map(|id| format!("{{\"id\":{id}}}")).collect();
    world.advance(10);
    world.send("e", 0, &events).await;
    world.advance(10);
}

fn ids(ids: std::ops::Range<i64>) -> Vec<String> {
    ids.map(|id| format!("{{\"id\":{id}}}")).collect()
}

fn resume() -> Options {
    Options {
        start: None,
        ..live()
    }
}

/// Once the status is as it should be.
async fn until(handle: &Handle, what: impl Fn(&JobStatus) -> bool) -> JobStatus {
    soon(async {
        loop {
            let status = handle.status();
            if what(&status) {
                return status;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

// proves G2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_state_outgrows_its_limit_fails_and_says_so() {
    const KEYS: &str = r#"
name = "keys"
sql = "SELECT id, COUNT(*) AS n INTO out FROM e GROUP BY id, TumblingWindow(day, 1)"
[inputs.e]
hub = "e"
"#;
    for (state_bytes_max, fails) in [(100_000, true), (u64::MAX, false)] {
        let world = world().await;
        let options = Options {
            state_bytes_max,
            ..live()
        };
        let handle = world.start(&job(KEYS), options);
        for block in 0..50 {
            send(&world, block * 1_000..(block + 1) * 1_000).await;
        }
        let status = until(&handle, |status| {
            // A job that fails may have counted all events before.
            let mut inputs = status.inputs.iter();
            status.state.is_over()
                || !fails && inputs.any(|input| input.partitions[0].events == 50_000)
        })
        .await;
        match status.state {
            JobState::Failed { reason } => {
                assert!(fails && reason.contains("its state has"), "{reason}");
            }
            other => assert!(!fails, "{other:?}"),
        }
        soon(handle.kill()).await;
    }
}

// proves G2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_makes_too_many_rows_of_one_batch_fails_by_itself() {
    let join = "SELECT a.id AS a, b.id AS b INTO out\n FROM e a\n JOIN e b ON DATEDIFF(hour, a, b) BETWEEN 0 AND 1";
    let apply = "SELECT e.id, x.ArrayIndex AS i INTO out FROM e\n CROSS APPLY GetArrayElements(e.list) AS x";
    let windows =
        "SELECT id, COUNT(*) AS n INTO out FROM e GROUP BY id, HoppingWindow(second, 300, 1)";
    for (sql, step) in [
        (
            join,
            "the JOIN in line 3 of the query makes more than 1000000 bytes",
        ),
        (
            apply,
            "the CROSS APPLY in line 2 of the query makes more than 1000000 bytes",
        ),
        (windows, "the window makes more than 1000000 bytes"),
    ] {
        let text = format!("name = \"many\"\nsql = \"\"\"{sql}\"\"\"\n[inputs.e]\nhub = \"e\"\n");
        for (state_bytes_max, fails) in [(1_000_000, true), (u64::MAX, false)] {
            let world = world().await;
            let list = vec!["1"; 400].join(",");
            let events: Vec<String> = (0..400)
                .map(|id| format!(r#"{{"id": {id}, "list": [{list}]}}"#))
                .collect();
            world.send("e", 0, &events).await;
            let options = Options {
                state_bytes_max,
                until_end: Some(AtEnd::TimeEnds),
                ..live()
            };
            let handle = world.start(&job(&text), options);
            let status = until(&handle, |status| status.state.is_over()).await;
            match status.state {
                JobState::Failed { reason } => assert!(fails && reason.contains(step), "{reason}"),
                other => assert!(!fails, "{sql}: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_checkpoint_is_refused_and_the_one_before_is_used() {
    let world = world().await;
    let job = job(EVENTS);
    let handle = world.start(&job, live());
    send(&world, 0..3).await;
    soon(world.recorder.until("out", 3)).await;
    soon(handle.checkpoint()).await.unwrap();
    send(&world, 3..5).await;
    soon(world.recorder.until("out", 5)).await;
    soon(handle.stop()).await;

    let store = world.checkpoints();
    let kept = store.list().unwrap();
    assert_eq!(kept.len(), 2, "older ones are removed");
    let file = format!("checkpoints/{:020}.checkpoint", kept[1]);
    world.disk.flip(Path::new(&file), 40, 1).unwrap();
    let handle = world.start(&job, resume());
    send(&world, 5..7).await;
    assert_eq!(soon(world.recorder.until("out", 7)).await, ids(0..7));
    let log = handle.status().log;
    let said = format!("checkpoint {} cannot be used", kept[1]);
    assert!(log.iter().any(|line| line.text.contains(&said)), "{log:?}");
    let alarms = handle.status().alarms;
    assert_eq!(
        alarms,
        [format!("checkpoint: {said}: its checksum is wrong")]
    );

    // The next one is damaged as well: the one that was used must still be there.
    let next = soon(handle.checkpoint()).await.unwrap();
    assert!(handle.status().alarms.is_empty());
    assert_eq!(store.list().unwrap(), [kept[0], kept[1], next]);
    soon(handle.kill()).await;
    let file = format!("checkpoints/{next:020}.checkpoint");
    world.disk.flip(Path::new(&file), 40, 1).unwrap();
    let handle = world.start(&job, resume());
    send(&world, 7..8).await;
    assert_eq!(soon(world.recorder.until("out", 8)).await, ids(0..8));
    for _ in 0..2 {
        soon(handle.checkpoint()).await.unwrap();
    }
    assert_eq!(store.list().unwrap(), [next + 1, next + 2]);
    soon(handle.kill()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_any_checkpoint_left_asks_where_to_begin() {
    let world = world().await;
    let job = job(EVENTS);
    let handle = world.start(&job, live());
    send(&world, 0..3).await;
    soon(world.recorder.until("out", 3)).await;
    soon(handle.stop()).await;
    for number in world.checkpoints().list().unwrap() {
        let file = format!("checkpoints/{number:020}.checkpoint");
        world.disk.flip(Path::new(&file), 40, 1).unwrap();
    }
    let state = soon(world.start(&job, resume()).ended()).await.state;
    let JobState::Failed { reason } = &state else {
        panic!("{state:?}");
    };
    assert!(
        reason.starts_with("none of its checkpoints can be used"),
        "{reason}"
    );
    let handle = world.start(&job, live());
    let rows = soon(world.recorder.until("out", 6)).await;
    assert_eq!(rows, [ids(0..3), ids(0..3)].concat(), "a new epoch");
    soon(handle.stop()).await;
}

/// Metadata of a hub is part of the event and overrides fields of the same names. // proves S1 (Metadata columns in
/// SELECT *)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn select_star_shows_what_the_hub_knows_of_an_event() {
    let world = world().await;
    let text = EVENTS.replace("SELECT id", "SELECT *");
    let handle = world.start(&job(&text), live());
    world.advance(10);
    let events = [
        "{\"partitionid\":9,\"id\":1}".to_owned(),
        "{\"id\":{\"a\":2}}".to_owned(),
    ];
    world.send("e", 0, &events).await;
    world.advance(10);
    let time = at(10);
    let added = format!(
        "\"EventProcessedUtcTime\":\"{time}\",\"PartitionId\":0,\"EventEnqueuedUtcTime\":\"{time}\""
    );
    let expected = [
        format!("{{\"id\":1,{added}}}"),
        format!("{{\"id\":{{\"a\":2}},{added}}}"),
    ];
    assert_eq!(soon(world.recorder.until("out", 2)).await, expected);
    soon(handle.stop()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_checkpoints_and_not_the_job() {
    let world = world().await;
    let handle = world.start(&job(EVENTS), live());
    send(&world, 0..2).await;
    soon(world.recorder.until("out", 2)).await;
    world.disk.set_faults(Faults {
        capacity: Some(0),
        ..Faults::default()
    });
    soon(handle.checkpoint()).await.unwrap_err();
    let status = handle.status();
    assert!(
        status.alarms[0].starts_with("checkpoint: "),
        "{:?}",
        status.alarms
    );
    send(&world, 2..4).await;
    assert_eq!(soon(world.recorder.until("out", 4)).await, ids(0..4));
    world.disk.set_faults(Faults::default());
    let number = soon(handle.checkpoint()).await.unwrap();
    let status = handle.status();
    assert_eq!((status.checkpoint.number, status.alarms.len()), (number, 0));
    let state = soon(handle.stop()).await.state;
    assert_eq!(state, JobState::Stopped);
    assert!(world.disk.list(Path::new("checkpoints")).unwrap().len() <= 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_is_away_for_a_while_gets_every_row_once() {
    let world = world().await;
    let handle = world.start(&job(EVENTS), live());
    until(&handle, |status| status.state == JobState::Running).await;
    let away = EndpointError::Unavailable {
        reason: "nobody answers".into(),
        retry_after: None,
    };
    world.recorder.fail(Some(away));
    send(&world, 0..3).await;
    let status = until(&handle, |status| !status.alarms.is_empty()).await;
    assert_eq!(status.alarms, ["output \"out\": nobody answers"]);
    world.recorder.fail(None);
    assert_eq!(soon(world.recorder.until("out", 3)).await, ids(0..3));
    let status = until(&handle, |status| status.alarms.is_empty()).await;
    assert!(status.outputs[0].retries >= 1);
    assert_eq!(status.outputs[0].next, 3);
    soon(handle.stop()).await;
}

fn refusing(policy: &str) -> String {
    EVENTS.to_owned()
        + &format!(
            "[outputs.out]\ntype = \"stdout\"\non_failure = \"{policy}\"\n[outputs.dead]\ntype = \"stdout\"\n\
             [errors]\non_error = \"dead_letter\"\ndead_letter = \"dead\"\n"
        )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_an_output_refuses_go_where_the_user_said() {
    for (policy, letters) in [("drop", 0), ("dead_letter", 1)] {
        let world = world().await;
        let handle = world.start(&job(&refusing(policy)), live());
        until(&handle, |status| status.state == JobState::Running).await;
        world.recorder.refuse(1, "no such plate");
        send(&world, 0..4).await;
        let rows = soon(world.recorder.until("out", 3)).await;
        assert_eq!(rows, [&ids(0..1)[..], &ids(2..4)[..]].concat());
        soon(world.recorder.until("dead", letters)).await;
        let status = until(&handle, |status| status.outputs[0].dropped == 1).await;
        assert_eq!(status.outputs[0].name, "out");
        if letters == 1 {
            let letter = &world.recorder.rows("dead")[0];
            let said = "\"Output\":\"out\",\"Number\":1,\"Message\":\"no such plate\",\"Row\":\"{\\\"id\\\":1}\"";
            assert!(letter.contains(said), "{letter}");
        }
        soon(handle.stop()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_counted() {
    let world = world().await;
    let text =
        EVENTS.replace("FROM e\"", "FROM e TIMESTAMP BY t\"") + "[time]\nearly_arrival = \"1s\"\n";
    let handle = world.start(&job(&text), live());
    let event = |ms: i64| format!("{{\"id\":1,\"t\":\"{}\"}}", at(ms));
    let events = [
        event(0),
        event(60_000),
        event(-60_000),
        "{".into(),
        "{\"id\":1}".into(),
    ];
    world.send("e", 0, &events).await;
    let status = until(&handle, |status| {
        let input = status.inputs.first();
        input.is_some_and(|input| input.partitions[0].events == 5)
    })
    .await;
    let partition = &status.inputs[0].partitions[0];
    assert_eq!(
        (partition.time.early_dropped, partition.time.late_adjusted),
        (1, 1)
    );
    assert_eq!(
        (
            partition.deserialization_errors,
            partition.conversion_errors
        ),
        (1, 1)
    );
    assert!(partition.last_error.as_ref().unwrap().contains("e/0@4"));
    soon(handle.stop()).await;
}
