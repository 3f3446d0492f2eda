//! Formats, dead letters and Stream Analytics projects, over whole jobs.

#![allow(
    clippy::disallowed_methods,
    reason = "tests prepare the files that are read"
)]

use std::io::Write;
use std::path::Path;

use highwater_connect::{Format, Level};
use highwater_job::config::JobFile;
use highwater_job::{InputErrorKind, Job, LoadError, Options, Outputs, Report, run};
use highwater_time::{Duration, ViolationAction};

fn write(folder: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn run_in(folder: &Path, threads: usize) -> Report {
    let job = Job::load(folder).unwrap_or_else(|error| panic!("{error}"));
    let outputs = Outputs::declared(&job.file, &job.plan).unwrap();
    let options = Options {
        threads,
        ..Options::default()
    };
    match run(&job, outputs, options) {
        Ok(outcome) => outcome.report,
        Err(error) => panic!("{error}"),
    }
}

// proves S3
#[test]
fn parquet_goes_out_and_comes_back_in_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lines: String = (0..100)
        .map(|i| {
            format!(
                "{{\"i\":{i},\"r\":{{\"x\":\"{i}\"}},\"t\":\"2026-01-01T00:00:{:02}Z\"}}\n",
                i % 60
            )
        })
        .collect();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(lines.as_bytes()).unwrap();
    write(folder, "in/a.jsonl.gz", gz.finish().unwrap());
    write(
        folder,
        "job.toml",
        "sql = \"SELECT i, r, CAST(t AS datetime) AS t INTO O FROM I\"\n\
         [inputs.I]\npath = \"in\"\n[outputs.O]\npath = \"out.parquet\"\n",
    );
    let report = run_in(folder, 1);
    assert_eq!(
        (report.inputs[0].events(), report.outputs[0].rows),
        (100, 100)
    );
    write(
        folder,
        "back/job.toml",
        "sql = \"SELECT i, r.x AS x, t INTO O FROM I WHERE i < 2\"\n\
         [inputs.I]\npath = \"../out.parquet\"\n[outputs.O]\npath = \"../back.jsonl\"\n",
    );
    run_in(&folder.join("back"), 1);
    assert_eq!(
        read(folder, "back.jsonl"),
        "{\"i\":0,\"x\":\"0\",\"t\":\"2026-01-01T00:00:00.0000000Z\"}\n\
         {\"i\":1,\"x\":\"1\",\"t\":\"2026-01-01T00:00:01.0000000Z\"}\n"
    );
}

// proves S2
#[test]
fn a_file_that_cannot_be_read_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "in/a.csv", "a,a\n1,2\n");
    write(folder, "in/b.csv", "a,t\n1,2026-01-01T00:00:00Z\n");
    write(folder, "in/c.csv.gz", "not compressed");
    write(
        folder,
        "job.toml",
        "sql = \"SELECT a INTO O FROM I TIMESTAMP BY t\"\n\
         [inputs.I]\npath = \"in\"\nformat = \"csv\"\n[outputs.O]\npath = \"o.csv\"\n\
         [outputs.D]\npath = \"d.jsonl\"\n\
         [errors]\non_error = \"dead_letter\"\ndead_letter = \"D\"\n",
    );
    for threads in [1, 2] {
        let report = run_in(folder, threads);
        let errors = &report.inputs[0].errors;
        assert_eq!(errors.of(InputErrorKind::Header), 1);
        assert_eq!(errors.of(InputErrorKind::Compression), 1);
        assert_eq!((report.inputs[0].events(), report.dead_letters), (1, 2));
        assert_eq!(read(folder, "o.csv"), "a\r\n1\r\n");
        assert_eq!(read(folder, "d.jsonl").lines().count(), 2);
    }
}

// proves S2
#[test]
fn dead_letters_do_not_depend_on_threads() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for file in 0..3 {
        let lines: String = (0..500)
            .map(|i| match i % 7 {
                0 => format!(
                    "{{\"v\":\"x{i}\",\"t\":\"2026-01-01T00:{:02}:00Z\"}}\n",
                    i / 10
                ),
                1 => "oops\n".to_owned(),
                2 => "{\"v\":\"1\",\"t\":5}\n".to_owned(),
                _ => format!(
                    "{{\"v\":\"{i}\",\"t\":\"2026-01-01T00:{:02}:00Z\"}}\n",
                    i / 10
                ),
            })
            .collect();
        write(folder, &format!("in/{file}.jsonl"), lines);
    }
    write(
        folder,
        "job.toml",
        "sql = \"SELECT CAST(v AS bigint) AS v INTO O FROM I TIMESTAMP BY t\"\n\
         [inputs.I]\npath = \"in\"\n[outputs.O]\npath = \"o.jsonl\"\n\
         [outputs.D]\npath = \"d.jsonl\"\n\
         [errors]\non_error = \"dead_letter\"\ndead_letter = \"D\"\n",
    );
    let report = run_in(folder, 1);
    let letters = read(folder, "d.jsonl");
    assert_eq!(report.dead_letters, 3 * (72 + 72 + 72));
    assert_eq!(letters.lines().count() as u64, report.dead_letters);
    let with_event = letters
        .lines()
        .filter(|line| !line.contains("\"Event\":null"));
    assert_eq!(with_event.count() as u64, report.dead_letters);
    run_in(folder, 3);
    assert_eq!(read(folder, "d.jsonl"), letters);
}

#[test]
fn an_output_cannot_take_rows_and_dead_letters() {
    let text = "sql = \"SELECT a INTO D FROM I\"\n[inputs.I]\npath = \"i.jsonl\"\n\
                [outputs.D]\npath = \"d.jsonl\"\n\
                [errors]\non_error = \"dead_letter\"\ndead_letter = \"D\"\n";
    let file = JobFile::parse(text, "job.toml").unwrap();
    assert!(matches!(
        Job::new(file),
        Err(LoadError::DeadLetterOutput { .. })
    ));
}

#[test]
fn a_project_becomes_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let project = r#"{"name":"P","startFile":"q.asaql","configurations":[
        {"filePath":"JobConfig.json","subType":"JobConfig"},
        {"filePath":"Inputs\\Local_A.json","subType":"InputMock"},
        {"filePath":"Inputs/Local_R.json","subType":"InputMock"},
        {"filePath":"Inputs/Live.json","subType":"Input"},
        {"filePath":"Functions/F.js.json","subType":"JSFunction"}]}"#;
    write(folder, "asaproj.json", project);
    write(folder, "q.asaql", "SELECT x INTO o FROM A");
    write(
        folder,
        "JobConfig.json",
        r#"{"ScriptType":"JobConfig","EventsLateArrivalMaxDelayInSeconds":-1,
            "EventsOutOfOrderMaxDelayInSeconds":"7","EventsOutOfOrderPolicy":"Drop",
            "CompatibilityLevel":"1.0"}"#,
    );
    write(
        folder,
        "Inputs/Local_A.json",
        r#"{"InputAlias":"A","Type":"Data Stream","Format":"Csv","FilePath":"..\\data\\a.csv",
            "ScriptType":"InputMock"}"#,
    );
    write(
        folder,
        "Inputs/Local_R.json",
        r#"{"Name":"R","Type":"Reference data","Serialization":{"Type":"Avro"},
            "FilePath":"r.avro","ScriptType":"InputMock"}"#,
    );
    write(
        folder,
        "Inputs/Live.json",
        r#"{"Name":"Hub","DataSourceType":"Event Hub","ScriptType":"Input"}"#,
    );
    write(
        folder,
        "Functions/F.js.json",
        r#"{"Name":"F","Type":"Scalar","ScriptType":"JSFunction"}"#,
    );
    let job = JobFile::load(folder).unwrap();
    assert_eq!((&job.name[..], job.compatibility), ("P", Level::V1_0));
    assert!(job.time.late_arrival > Duration::from_days(21));
    assert_eq!(job.time.out_of_order, Duration::from_secs(7));
    assert_eq!(job.time.late_events, ViolationAction::Drop);
    assert_eq!(job.time.out_of_order_events, ViolationAction::Drop);
    assert_eq!(job.inputs[0].paths, [folder.join("Inputs/../data/a.csv")]);
    assert!(matches!(job.inputs[0].format, Some(Format::Csv(_))));
    assert!(!job.inputs[0].reference && job.inputs[1].reference);
    assert_eq!(job.inputs[1].format, Some(Format::Avro));
    assert_eq!(job.remarks.len(), 2, "{:?}", job.remarks);
    let local = job.in_event_order();
    assert!(local.time.out_of_order > Duration::from_days(21));
    // A live input is enough to check the query, and not to run it.
    write(folder, "q.asaql", "SELECT x INTO o FROM hub");
    let job = Job::load(folder).unwrap_or_else(|error| panic!("{error}"));
    let outputs = Outputs::declared(&job.file, &job.plan).unwrap();
    let Err(error) = run(&job, outputs, Options::default()) else {
        panic!("it has nothing to read");
    };
    let error = error.to_string();
    assert!(error.contains("Inputs/Local_Hub.json"), "{error}");
    write(folder, "JobConfig.json", "{");
    assert!(matches!(
        JobFile::load(folder),
        Err(LoadError::Project { .. })
    ));
}
