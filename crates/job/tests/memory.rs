//! Keys come and go without end, and memory stays where it was.
//!
//! In a file of its own, because the measurement is of the whole process.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::fmt::Write;

use highwater_env::usage;
use highwater_job::config::JobFile;
use highwater_job::{Job, Options, Outputs, run};
use highwater_time::{Instant, TICKS_PER_MILLI};

/// Runs a job over that many keys, a thousand at a time active, and returns the number of rows.
fn run_keys(keys: i64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for key in 0..keys {
        // One every millisecond; windows last 100 ms and lateness is bounded by a second.
        let time = Instant::from_ticks((63_900_000_000_000 + key) * TICKS_PER_MILLI);
        writeln!(
            text,
            "{{\"k\":\"device-{key}\",\"t\":\"{time}\",\"arr\":\"{time}\"}}"
        )
        .unwrap();
    }
    std::fs::write(folder.path().join("in.jsonl"), text).unwrap();
    let job = "sql = '''SELECT k, COUNT(*) AS n INTO out FROM a TIMESTAMP BY t OVER k
                        GROUP BY k, TumblingWindow(ms, 100) HAVING COUNT(*) > 1'''
               [time]
               late_arrival = \"1s\"
               [inputs.a]
               path = \"in.jsonl\"
               arrival = \"arr\"";
    let file = JobFile::parse(job, "job.toml")
        .unwrap()
        .resolve(folder.path());
    let job = Job::new(file).unwrap();
    let (outputs, _) = Outputs::collected(&job.plan);
    let report = run(&job, outputs, Options::default()).unwrap().report;
    assert_eq!(report.inputs[0].time.kept, keys as u64);
    report.outputs[0].rows
}

// proves T11
#[test]
fn a_key_that_has_gone_is_forgotten() {
    let peak = || usage().memory_peak_bytes.unwrap_or(0);
    assert_eq!(run_keys(20_000), 0);
    let few = peak();
    let text_bytes = 200_000 * 120;
    assert_eq!(run_keys(200_000), 0);
    let many = peak();
    // The text of the file is held by this test, twice while it grows. A remembered key costs several hundred bytes.
    let allowed = few + 2 * text_bytes + (16 << 20);
    assert!(
        many <= allowed,
        "{few} bytes for 20,000 keys, {many} for 200,000"
    );
}
