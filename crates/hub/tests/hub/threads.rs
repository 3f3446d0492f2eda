//! The hub with its own threads, a real disk and many concurrent callers.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use highwater_env::{RealClock, RealDisk};
use highwater_hub::{Hub, Options};
use highwater_log::{HubSettings, Isolation, Log, Offset, Producer};

use crate::common::{batch, contents, record, spec};

fn start(folder: &Path) -> Hub {
    let options = Options {
        segment_bytes: 64 << 10,
        index_bytes: 2 << 10,
        tail_bytes: 32 << 10,
        files_open: 16,
        ..Options::default()
    };
    let clock = Arc::new(RealClock::new());
    Hub::open(Arc::new(RealDisk), folder, options, clock, &|_| {}).unwrap()
}

const PARTITIONS: u32 = 24;
const CALLERS: u32 = 48;
const EACH: usize = 40;

/// Callers of both kinds, each in its own order, over more partitions than files may be open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_answered_in_order_and_find_their_records_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let hub = start(folder.path());
    hub.create(spec("h", PARTITIONS, HubSettings::default()))
        .await
        .unwrap();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let partition = hub.partition("h", caller % PARTITIONS).unwrap();
            tokio::spawn(async move {
                let producer = Producer {
                    id: i64::from(caller),
                    epoch: 0,
                };
                let mut last = Offset(-1);
                for number in 0..EACH {
                    let text = format!("{caller}:{number} {}", "x".repeat(caller as usize * 7));
                    let pending = match caller % 2 {
                        0 => partition.append_records(&[record(&text)]),
                        _ => {
                            partition.append(batch(&[text], Some((producer, number as i32)), false))
                        }
                    };
                    let appended = pending.await.unwrap();
                    assert!(appended.offset > last && !appended.duplicate);
                    last = appended.offset;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let totals = hub.status().totals;
    assert_eq!(totals.records, u64::from(CALLERS) * EACH as u64);
    assert!(totals.syncs >= 1 && totals.groups <= totals.batches);
    let before = read_everything(&hub).await;
    assert_eq!(before.len(), CALLERS as usize * EACH);
    assert_eq!(hub.stop(), Vec::<String>::new());
    drop(hub);

    let hub = start(folder.path());
    assert_eq!(read_everything(&hub).await, before);
    hub.stop();
}

async fn read_everything(hub: &Hub) -> BTreeSet<(u32, i64, String)> {
    let mut all = BTreeSet::new();
    for number in 0..PARTITIONS {
        let partition = hub.partition("h", number).unwrap();
        let mut from = Offset(0);
        loop {
            let fetched = partition
                .read(from, 4000, Isolation::Uncommitted)
                .await
                .unwrap();
            let (headers, seen) = contents(&fetched);
            let Some(last) = headers.last() else {
                break;
            };
            from = last.next_offset();
            all.extend(
                seen.into_iter()
                    .map(|seen| (number, seen.offset, seen.value)),
            );
        }
    }
    all
}

/// Every append wakes a reader that waits at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_at_the_end_sees_every_record() {
    let folder = tempfile::tempdir().unwrap();
    let hub = start(folder.path());
    hub.create(spec("h", 1, HubSettings::default()))
        .await
        .unwrap();
    let partition = hub.partition("h", 0).unwrap();
    let reader = tokio::spawn({
        let partition = partition.clone();
        async move {
            let (mut from, mut values) = (Offset(0), Vec::new());
            while values.len() < 200 {
                partition.wait_past(from, Isolation::Committed).await;
                let fetched = partition
                    .read(from, 1 << 20, Isolation::Committed)
                    .await
                    .unwrap();
                let (headers, seen) = contents(&fetched);
                from = headers.last().unwrap().next_offset();
                values.extend(seen.into_iter().map(|seen| seen.value));
            }
            values
        }
    });
    for number in 0..200 {
        let text = number.to_string();
        partition.append_records(&[record(&text)]).await.unwrap();
    }
    let expected: Vec<String> = (0..200).map(|number: i32| number.to_string()).collect();
    assert_eq!(reader.await.unwrap(), expected);
    hub.stop();
}
