//! The memory of a group in a hopping window.
//!
//! In a file of its own, because the measurement is the peak of the whole process, unused capacity included.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::io::Write;

use highwater_env::usage;
use highwater_job::config::JobFile;
use highwater_job::{Job, Options, Outputs, run};
use highwater_time::{Instant, TICKS_PER_MILLI, TICKS_PER_MINUTE};

const MINUTES: i64 = 7;
const EVENTS_A_MINUTE: i64 = 100_000;

/// Every key once a minute or more often, so that all of them are in all five panes of a window. Returns the peak of
/// the process so far.
fn peak_with(keys: i64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("in.jsonl")).unwrap();
    let mut file = std::io::BufWriter::new(file);
    for event in 0..MINUTES * EVENTS_A_MINUTE {
        let (minute, place) = (event / EVENTS_A_MINUTE, event % EVENTS_A_MINUTE);
        let ticks = minute * TICKS_PER_MINUTE + place * TICKS_PER_MINUTE / EVENTS_A_MINUTE;
        let time = Instant::from_ticks(63_900_000_000_000 * TICKS_PER_MILLI + ticks);
        let key = place % keys;
        writeln!(
            file,
            "{{\"k\":\"device-{key}\",\"t\":\"{time}\",\"v\":0.25}}"
        )
        .unwrap();
    }
    file.flush().unwrap();
    let job = "sql = '''SELECT k, COUNT(*) AS n, SUM(v) AS s INTO out FROM a TIMESTAMP BY t
                        GROUP BY k, HoppingWindow(minute, 5, 1) HAVING COUNT(*) > 1000000'''
               [time]
               out_of_order = \"5s\"
               [inputs.a]
               path = \"in.jsonl\"";
    let file = JobFile::parse(job, "job.toml")
        .unwrap()
        .resolve(folder.path());
    let job = Job::new(file).unwrap();
    let (outputs, _) = Outputs::collected(&job.plan);
    let options = Options {
        threads: 1,
        ..Options::default()
    };
    let report = run(&job, outputs, options).unwrap().report;
    assert_eq!(
        report.inputs[0].time.kept,
        (MINUTES * EVENTS_A_MINUTE) as u64
    );
    assert_eq!(report.outputs[0].rows, 0);
    usage().memory_peak_bytes.unwrap_or(0)
}

/// `benches/README.md` says what they are spent on.
const BYTES_A_KEY_MAX: u64 = 200;

/// Set in the processes that measure.
const MEASURES: &str = "HIGHWATER_STATE_BYTES";

/// A process has only one peak, and the system may add to it by handing out large pages. So it is measured in processes
/// of its own, and the least of a few counts. Their allocator is told to give large pieces back when they are freed,
/// which it otherwise does or does not, depending on what was freed before.
#[test]
fn a_key_in_every_pane_of_a_hopping_window_takes_little_more_than_its_aggregates() {
    if std::env::var_os(MEASURES).is_some() {
        let few = peak_with(1_000);
        let many = peak_with(EVENTS_A_MINUTE);
        println!("bytes={}", (many - few) / (EVENTS_A_MINUTE - 1_000) as u64);
        return;
    }
    let least = (0..3).map(|_| measured_apart()).min().unwrap();
    println!("{least} bytes a key");
    assert!(least < BYTES_A_KEY_MAX, "{least} bytes a key");
}

fn measured_apart() -> u64 {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .arg("--nocapture")
        .env(MEASURES, "1")
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let bytes = text.split("bytes=").nth(1).expect("the process measured");
    let digits = bytes.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}
