//! JavaScript functions that do not return.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::time::Duration;

use highwater_job::live::{Handle, JobState, JobStatus};

use crate::live::world::{World, job, live, soon};

/// A job whose function spends a minute in one native function for the event 7, and the events up to there.
async fn world() -> (World, tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("slow.js");
    let source =
        "function main(x) { return x === 7 ? [].reverse.call({ length: 1e9 }).length : x; }";
    std::fs::write(&script, source).unwrap();
    let text = format!(
        r#"
name = "events"
sql = "SELECT udf.slow(id) AS id INTO out FROM e"
[inputs.e]
hub = "e"
[functions.slow]
path = "{}"
"#,
        script.display()
    );
    let world = World::new(9);
    world.hub("e", 1).await;
    (world, folder, text)
}

async fn send(world: &World, ids: std::ops::Range<i64>) {
    let events: Vec<String> = ids.map(|id| format!("{{\"id\":{id}}}")).collect();
    world.advance(10);
    world.send("e", 0, &events).await;
    world.advance(10);
}

/// Moves the clock until the job is over.
async fn until_over(world: &World, handle: &Handle) -> JobStatus {
    soon(async {
        while !handle.status().state.is_over() {
            world.advance(100);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        handle.status()
    })
    .await
}

// proves G2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_does_not_return_fails_its_job_with_its_name() {
    let (world, _folder, text) = world().await;
    let job = job(&text);
    let handle = world.start(&job, live());
    send(&world, 0..5).await;
    soon(world.recorder.until("out", 5)).await;
    send(&world, 7..8).await;
    let state = until_over(&world, &handle).await.state;
    let JobState::Failed { reason } = state else {
        panic!("{state:?}");
    };
    let expected = "function 'slow' has not returned for 10s";
    assert!(reason.starts_with(expected), "{reason}");
    // It can be stopped, and runs again beside the abandoned thread.
    soon(handle.stop()).await;
    let handle = world.start(&job, live());
    soon(world.recorder.until("out", 5)).await;
    soon(handle.kill()).await;
}

// proves G2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_stops_although_its_function_does_not_return() {
    let (world, _folder, text) = world().await;
    let handle = world.start(&job(&text), live());
    send(&world, 7..8).await;
    let stopping = async {
        handle.stop().await;
    };
    let (_, status) = tokio::join!(soon(stopping), until_over(&world, &handle));
    assert!(status.state.is_over());
}
