//! `kill -9` of a real process: its acknowledged appends are found by the next one. // proves L3

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use highwater_env::{RealClock, RealDisk};
use highwater_hub::{Hub, Options, Recovery};
use highwater_log::{HubSettings, Isolation, Log, Offset};
use parking_lot::Mutex;

use crate::common::{contents, record, spec};

const FOLDER: &str = "HIGHWATER_KILL_FOLDER";

fn start(folder: &Path) -> (Hub, Vec<Recovery>) {
    let options = Options {
        segment_bytes: 4000,
        checkpoint_bytes: 1500,
        ..Options::default()
    };
    let recoveries = Mutex::new(Vec::new());
    let note = |progress: highwater_hub::OpenProgress| recoveries.lock().push(progress.recovery);
    let clock = Arc::new(RealClock::new());
    let hub = Hub::open(Arc::new(RealDisk), folder, options, clock, &note).unwrap();
    (hub, recoveries.into_inner())
}

/// Not a test on its own: the process that is killed. It appends for ever and prints what was acknowledged.
#[tokio::test]
async fn child() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let (hub, _) = start(Path::new(&folder));
    if hub.hub("h").is_none() {
        hub.create(spec("h", 1, HubSettings::default()))
            .await
            .unwrap();
    }
    let partition = hub.partition("h", 0).unwrap();
    for number in partition.bounds().end.0.. {
        let text = format!("value {number}");
        let appended = partition.append_records(&[record(&text)]).await.unwrap();
        let mut output = std::io::stdout().lock();
        writeln!(output, "\nacknowledged {} {text}", appended.offset).unwrap();
        output.flush().unwrap();
    }
}

#[tokio::test]
async fn acknowledged_records_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<(i64, String)> = Vec::new();
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut wanted = 20 + 13 * round;
        for line in lines.map_while(Result::ok) {
            let Some(told) = line.strip_prefix("acknowledged ") else {
                continue;
            };
            let (offset, text) = told.split_once(' ').unwrap();
            acknowledged.push((offset.parse().unwrap(), text.into()));
            wanted -= 1;
            if wanted == 0 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();

        let (hub, recoveries) = start(folder.path());
        assert!(recoveries.iter().all(|recovery| recovery.damage.is_none()));
        let found = read_everything(&hub).await;
        for (offset, text) in &acknowledged {
            assert_eq!(&found[*offset as usize], text);
        }
        hub.stop();
    }
    assert!(acknowledged.len() >= 6 * 20);
}

/// Values by offset.
async fn read_everything(hub: &Hub) -> Vec<String> {
    let partition = hub.partition("h", 0).unwrap();
    let (mut from, mut found) = (Offset(0), Vec::new());
    loop {
        let fetched = partition
            .read(from, 3000, Isolation::Uncommitted)
            .await
            .unwrap();
        let (headers, seen) = contents(&fetched);
        let Some(last) = headers.last() else {
            return found;
        };
        from = last.next_offset();
        found.extend(seen.into_iter().map(|seen| seen.value));
    }
}
