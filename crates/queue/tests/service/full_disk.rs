//! A queue over the embedded hub on a disk that fills up: what was accepted stays, what was not leaves
//! nothing behind, and work goes on when there is room. proves Q1

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_env::disk::Faults;
use highwater_env::random::Random;
use highwater_env::{Disk, SimDisk};
use highwater_hub::Hub;
use highwater_log::AppendError;
use highwater_queue::{Error, Most, Options, Queue, Queues, Receive, Settings};

use crate::common::{TokioClock, bodies, message};

async fn open(disk: &SimDisk) -> Queues {
    let clock = TokioClock::new();
    let options = highwater_hub::Options {
        committers: 1,
        readers: 1,
        // Whatever is written needs room, then.
        reserve_bytes: 0,
        ..highwater_hub::Options::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let hub = Hub::open(disk, Path::new("data"), options, clock.clone(), &|_| {});
    let options = Options {
        pause: Duration::from_millis(1),
        ..Options::default()
    };
    let hub = Arc::new(hub.unwrap());
    let (queues, failed) = Queues::open(hub, clock, Random::from_os(), options).await;
    assert!(failed.is_empty(), "{failed:?}");
    queues
}

/// Until there is room again: right after a refusal everything else is refused too.
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
    let held = queue.receive(Receive::default()).await.unwrap();
    let token = held[0].lock.unwrap().0;

    disk.set_faults(Faults {
        capacity: Some(0),
        ..Faults::default()
    });
    let no_room = |error: &Error| matches!(error, Error::Log(AppendError::NoRoom { .. }));
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
    let rest = Receive {
        most: Most::from(10),
        ..Receive::default()
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
