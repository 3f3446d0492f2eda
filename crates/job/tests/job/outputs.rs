//! Where rows go when several statements write them.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use highwater_job::config::JobFile;
use highwater_job::{Job, Options, Outputs, Report, run};

/// The file that the job writes, and its report.
fn written(sql: &str) -> (String, Report) {
    let folder = tempfile::tempdir().unwrap();
    let event = |second| format!("{{\"id\":{second},\"t\":\"2026-01-01T00:00:0{second}Z\"}}\n");
    let events: String = (1..4).map(event).collect();
    std::fs::write(folder.path().join("in.jsonl"), events).unwrap();
    let text = format!(
        "sql = '''{sql}'''\n[inputs.a]\npath = \"in.jsonl\"\n[outputs.out]\npath = \"out.jsonl\"\n"
    );
    let file = JobFile::parse(&text, "job.toml").unwrap_or_else(|e| panic!("{e}"));
    let job = Job::new(file.resolve(folder.path())).unwrap_or_else(|e| panic!("{e}"));
    let outputs = Outputs::declared(&job.file, &job.plan).unwrap();
    let report = run(&job, outputs, Options::default()).unwrap().report;
    let rows = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    (rows, report)
}

const MERGED: &str = "{\"id\":1}\n{\"n\":1}\n{\"id\":2}\n{\"n\":2}\n{\"id\":3}\n{\"n\":3}\n";

// proves T9
#[test]
fn statements_of_one_output_are_merged_by_time_then_by_statement() {
    let sql =
        "SELECT id INTO out FROM a TIMESTAMP BY t SELECT id AS n INTO out FROM a TIMESTAMP BY t";
    assert_eq!(written(sql).0, MERGED);
}

/// Names are the same but for case, so this is one output, and its file holds JSON lines and nothing else.
#[test]
fn an_output_that_is_spelt_in_two_ways_is_one_output() {
    let sql =
        "SELECT id INTO out FROM a TIMESTAMP BY t SELECT id AS n INTO Out FROM a TIMESTAMP BY t";
    let (rows, report) = written(sql);
    assert_eq!(rows, MERGED);
    assert_eq!(report.outputs.len(), 1);
    assert_eq!(report.outputs[0].rows, 6);
}
