//! Reference data that changes while a job runs. // proves S3 T8

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::{Disk, RealDisk, disk};
use highwater_job::Job;
use highwater_job::live::{Handle, JobState, Options};

use crate::live::world::{World, at, job, live, soon, to_the_end};

/// A version of the table that takes effect so many minutes after ten.
fn snapshot(folder: &Path, minute: u32, version: u32) {
    write(
        &folder.join(format!("2026-01-31/10-{minute:02}/r.jsonl")),
        version,
    );
}

fn write(path: &Path, version: u32) {
    disk::create_folder(path.parent().unwrap()).unwrap();
    let mut file = disk::create_atomic(path).unwrap();
    writeln!(file, "{{\"k\":1,\"version\":{version}}}").unwrap();
    file.commit().unwrap();
}

fn versions(folder: &Path, path: &str) -> Arc<Job> {
    let path = folder.join(path).display().to_string();
    job(&format!(
        "name = \"versions\"\n\
         sql = \"SELECT e.id AS id, r.version AS v INTO out FROM e TIMESTAMP BY t JOIN ref r ON r.k = e.k\"\n\
         [inputs.e]\nhub = \"e\"\n\
         [inputs.ref]\nreference = true\npath = \"{path}\"\nrefresh = \"20ms\"\n"
    ))
}

/// Looks for reference data as soon as the clock is moved, and takes checkpoints on request or when it must.
fn options() -> Options {
    Options {
        checkpoint_every: Some(Duration::from_secs(1_000_000)),
        ..live()
    }
}

/// An event at so many seconds after ten, sent then.
async fn event(world: &World, id: i64, seconds: i64) {
    let now = world.now_ms();
    world.advance((seconds * 1000 - now) as u64);
    let event = format!("{{\"id\":{id},\"k\":1,\"t\":\"{}\"}}", at(seconds * 1000));
    world.send("e", 0, &[event]).await;
}

/// Lets time pass until the job has logged a new line, and runs.
async fn until_said(world: &World, handle: &Handle, words: &str, times: usize) {
    soon(async {
        loop {
            let status = handle.status();
            let said = status.log.iter().filter(|line| line.text.contains(words));
            if said.count() >= times && status.state == JobState::Running {
                return;
            }
            world.advance(1);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn row(id: i64, version: u32) -> String {
    format!("{{\"id\":{id},\"v\":{version}}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_comes_while_the_job_runs_counts_from_its_time_on() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(6);
    world.hub("e", 1).await;
    snapshot(folder.path(), 0, 1);
    let job = versions(folder.path(), "{date}/{time}/r.jsonl");
    let handle = world.start(&job, options());
    event(&world, 1, 1).await;
    soon(world.recorder.until("out", 1)).await;

    snapshot(folder.path(), 2, 2);
    until_said(&world, &handle, "takes effect then", 1).await;
    event(&world, 2, 100).await;
    event(&world, 3, 180).await;
    let rows = soon(world.recorder.until("out", 3)).await;
    assert_eq!(rows, [row(1, 1), row(2, 1), row(3, 2)]);

    // Too late for the event at 3:20, and for another one that comes with a time of before.
    event(&world, 4, 200).await;
    soon(world.recorder.until("out", 4)).await;
    snapshot(folder.path(), 1, 9);
    snapshot(folder.path(), 3, 3);
    until_said(&world, &handle, "is late and takes effect at", 1).await;
    event(&world, 5, 260).await;
    let rows = soon(world.recorder.until("out", 5)).await;
    assert_eq!(rows[3..], [row(4, 2), row(5, 3)]);

    // Events after the checkpoint are processed again, with the same rows: the recorder refuses others.
    soon(handle.kill()).await;
    snapshot(folder.path(), 4, 8);
    let handle = world.start(
        &job,
        Options {
            start: None,
            ..options()
        },
    );
    until_said(&world, &handle, "is late and takes effect at", 1).await;
    event(&world, 6, 300).await;
    let rows = soon(world.recorder.until("out", 6)).await;
    assert_eq!(rows[3..], [row(4, 2), row(5, 3), row(6, 8)]);
    soon(handle.stop()).await;

    // Who reads the log later goes by the names: nothing is late any more.
    let later = world.afresh();
    let status = soon(later.start(&job, to_the_end()).ended()).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.log);
    let expected = [
        row(1, 1),
        row(2, 9),
        row(3, 3),
        row(4, 3),
        row(5, 8),
        row(6, 8),
    ];
    assert_eq!(later.recorder.rows("out"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_times_is_read_again_when_it_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(7);
    world.hub("e", 1).await;
    let table = folder.path().join("r.jsonl");
    write(&table, 1);
    let handle = world.start(&versions(folder.path(), "r.jsonl"), options());
    event(&world, 1, 1).await;
    soon(world.recorder.until("out", 1)).await;
    write(&table, 22);
    until_said(&world, &handle, "there is other reference data", 1).await;
    event(&world, 2, 10).await;
    let rows = soon(world.recorder.until("out", 2)).await;
    assert_eq!(rows, [row(1, 1), row(2, 22)]);
    // A row may be out before it is counted. Counts continue.
    soon(async {
        loop {
            let status = handle.status();
            let events = status.inputs[0].partitions[0].events;
            if (events, status.outputs[0].rows) == (2, 2) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    soon(handle.stop()).await;
}

/// After a crash an event is joined with the same table again, though the file has changed or was deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_times_is_the_same_after_a_crash_until_another_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(8);
    world.hub("e", 1).await;
    let table = folder.path().join("r.jsonl");
    let job = versions(folder.path(), "r.jsonl");
    let resume = || Options {
        start: None,
        ..options()
    };
    write(&table, 1);
    let mut handle = world.start(&job, options());
    // Rows that no checkpoint knows of: the recorder would not take others for them.
    for (id, version) in [(1, 1), (2, 2), (3, 3)] {
        event(&world, id, id * 10).await;
        let rows = soon(world.recorder.until("out", id as usize)).await;
        assert_eq!(rows.last(), Some(&row(id, version)));
        soon(handle.kill()).await;
        write(&table, version + 1);
        handle = world.start(&job, resume());
        until_said(&world, &handle, "there is other reference data", 1).await;
    }
    event(&world, 4, 50).await;
    soon(world.recorder.until("out", 4)).await;
    soon(handle.kill()).await;
    RealDisk.remove_file(&table).unwrap();
    let handle = world.start(&job, resume());
    event(&world, 5, 60).await;
    let rows = soon(world.recorder.until("out", 5)).await;
    assert_eq!(rows[3..], [row(4, 4), row(5, 4)]);
    soon(handle.stop()).await;
    let kept = world.disk.list(Path::new("checkpoints")).unwrap();
    let tables = kept.iter().filter(|name| name.ends_with(".tables"));
    assert!(tables.count() <= 2, "{kept:?}");
}
