//! A queue over the embedded hub on a disk that fills up, fails or is corrupted: accepted messages stay or their loss
//! is reported, rejected ones leave nothing behind, and work continues when it can. proves Q1

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use highwater_env::disk::Faults;
use highwater_env::random::Random;
use highwater_env::{Disk, SimDisk};
use highwater_hub::Hub;
use highwater_log::AppendError;
use highwater_queue::{
    Error, JournalError, Options, Queue, Queues, ReceiveLimit, ReceiveRequest, Settings,
};

use crate::service::common::{TokioClock, bodies, message};

fn hub(disk: &SimDisk) -> Hub {
    let options = highwater_hub::Options {
        committers: 1,
        readers: 1,
        // So that every write needs space.
        reserve_bytes: 0,
        ..highwater_hub::Options::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let path = Path::new("data");
    Hub::open(disk, path, options, TokioClock::new(), &|_| {}).unwrap()
}

/// The queues of a hub, and those that could not be opened.
async fn queues_of(hub: Hub) -> (Queues, Vec<(String, JournalError)>) {
    let options = Options {
        pause: Duration::from_millis(1),
        ..Options::default()
    };
    let (hub, clock) = (Arc::new(hub), TokioClock::new());
    Queues::open(hub, clock, Random::from_os(), options).await
}

async fn open(disk: &SimDisk) -> Queues {
    let (queues, failed) = queues_of(hub(disk)).await;
    assert!(failed.is_empty(), "{failed:?}");
    queues
}

/// Sends until it succeeds: right after a rejection every request is rejected.
async fn sent(queue: &Queue, body: &str) {
    while queue.send(vec![message(body)]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn fills_up(crashes: bool) {
    let disk = SimDisk::new(1);
    let mut queues = open(&disk).await;
    let mut queue = queues.create("q", Settings::default()).await.unwrap();
    queue.send(vec![message("a"), message("b")]).await.unwrap();
    let held = queue.receive(ReceiveRequest::default()).await.unwrap();
    let token = held[0].lock.unwrap().0;

    disk.set_faults(Faults {
        capacity: Some(0),
        ..Faults::default()
    });
    let no_room = |error: &Error| matches!(error, Error::Log(AppendError::DiskFull { .. }));
    let refused = queue.complete(vec![token]).await.unwrap_err();
    assert!(no_room(&refused), "{refused}");
    let refused = queue.send(vec![message("c")]).await.unwrap_err();
    assert!(no_room(&refused), "{refused}");

    if crashes {
        drop((queue, queues));
        disk.crash();
        disk.set_faults(Faults::default());
        queues = open(&disk).await;
        queue = queues.get("q").unwrap();
    }
    disk.set_faults(Faults::default());
    sent(&queue, "d").await;
    let settled = queue.complete(vec![token]).await;
    assert_eq!(settled, Ok(vec![Ok(())]), "its lock was not touched");
    let rest = ReceiveRequest {
        limit: ReceiveLimit::from(10),
        ..ReceiveRequest::default()
    };
    assert_eq!(bodies(&queue.receive(rest).await.unwrap()), ["b", "d"]);
    queues.stop().await;
}

async fn in_time(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(Duration::from_secs(120), test).await;
    ended.expect("it does not take that long");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_turns_away_whole_requests_and_nothing_accepted_is_lost() {
    in_time(fills_up(false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_on_a_full_disk_everything_accepted_is_there() {
    in_time(fills_up(true)).await;
}

async fn fails_to_sync() {
    let disk = SimDisk::new(1);
    let queues = open(&disk).await;
    let queue = queues.create("q", Settings::default()).await.unwrap();
    queue.send(vec![message("a")]).await.unwrap();
    let always = Faults {
        syncs: 1,
        ..Faults::default()
    };
    disk.set_faults(always);
    let refused = queue.send(vec![message("b")]).await;
    assert!(matches!(refused, Err(Error::Log(_))), "{refused:?}");
    // The disk works again, but its content is unknown.
    disk.set_faults(Faults::default());
    for _ in 0..3 {
        let refused = queue.send(vec![message("c")]).await;
        assert!(refused.is_err(), "{refused:?}");
        assert!(queue.receive(ReceiveRequest::default()).await.is_err());
    }
    drop((queue, queues));
    disk.crash();

    let queues = open(&disk).await;
    let queue = queues.get("q").unwrap();
    let all = ReceiveRequest {
        limit: ReceiveLimit::from(10),
        ..ReceiveRequest::default()
    };
    let there = bodies(&queue.receive(all).await.unwrap());
    // An unanswered request may have been applied.
    assert!(there == ["a"] || there == ["a", "b"], "{there:?}");
    queues.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_sync_a_queue_takes_nothing_until_it_is_opened_again() {
    in_time(fails_to_sync()).await;
}

async fn rots() {
    let disk = SimDisk::new(1);
    let hub_before = hub(&disk);
    let (queues, _) = queues_of(hub_before.clone()).await;
    for name in ["bad", "good"] {
        let queue = queues.create(name, Settings::default()).await.unwrap();
        queue
            .send(vec![message(name), message(name)])
            .await
            .unwrap();
    }
    queues.stop().await;
    let stopped = tokio::task::spawn_blocking(move || hub_before.stop());
    stopped.await.unwrap();
    drop(queues);
    disk.restart();
    // Its message is in its segment as it was sent.
    let place = |path: PathBuf| {
        let bytes = disk.contents(&path).unwrap();
        let at = bytes.windows(3).position(|bytes| bytes == b"bad")?;
        path.extension()
            .is_some_and(|it| it == "log")
            .then_some((path, at as u64))
    };
    let (log, at) = disk.files().into_iter().find_map(place).unwrap();
    disk.flip(&log, at, 1).unwrap();

    let (queues, failed) = queues_of(hub(&disk)).await;
    let [(name, error)] = &failed[..] else {
        panic!("{failed:?}");
    };
    assert_eq!(name, "bad");
    assert!(error.to_string().contains("__queue.bad"), "{error}");
    assert!(queues.get("bad").is_none());
    let good = queues.get("good").unwrap();
    let got = good.receive(ReceiveRequest::default()).await.unwrap();
    assert_eq!(bodies(&got), ["good"]);
    queues.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_whose_journal_rots_is_left_out_by_name_and_the_others_work() {
    in_time(rots()).await;
}
