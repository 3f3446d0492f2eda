//! The `highwater` command from a user's view: its output and its exit codes.
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const EVENT: &str = r#"{"id":1,"k":"a","t":"2026-01-01T00:00:01Z"}"#;
const QUERY: &str = "SELECT id FROM a TIMESTAMP BY t";

fn highwater(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args(arguments)
        .output()
        .expect("it starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Checks the exit code: a panic has 101, a signal none.
#[track_caller]
fn ends(output: &Output, code: i32) {
    let result = (output.status.code(), stdout(output), stderr(output));
    assert_eq!(result.0, Some(code), "{}\n{}", result.1, result.2);
    assert!(!result.2.contains("panicked"), "{}", result.2);
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not said in:\n{text}");
    }
}

/// A job in a folder of its own.
struct TestJob {
    folder: TempDir,
}

impl TestJob {
    fn new(query: &str, events: &[u8]) -> TestJob {
        let made = TestJob {
            folder: tempfile::tempdir().unwrap(),
        };
        made.write("query.saql", query.as_bytes());
        made.write("in.jsonl", events);
        made.write(
            "job.toml",
            b"query = \"query.saql\"\n[inputs.a]\npath = \"in.jsonl\"\n",
        );
        made
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().expect("a plain path")
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }

    fn run(&self) -> Output {
        highwater(&["run", self.path()])
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn a_run_writes_data_to_stdout_and_its_summary_to_stderr() {
    let made = TestJob::new(QUERY, format!("{EVENT}\n{EVENT}\n").as_bytes());
    let output = made.run();
    ends(&output, 0);
    assert_eq!(stdout(&output), "{\"id\":1}\n{\"id\":1}\n");
    says(
        &stderr(&output),
        &["input a: 2 events read, 2 kept", "output output: 2 rows"],
    );

    let output = highwater(&["run", &made.file("job.toml"), "--json", "--threads", "2"]);
    ends(&output, 0);
    let summary = json(&stderr(&output));
    assert_eq!(summary["inputs"][0]["kept"], 2);
    assert_eq!(summary["lost_data"], false);
}

// proves S2
#[test]
fn bad_events_are_counted_named_and_make_the_exit_code_3() {
    let deep = "[".repeat(10_000);
    let bad: [(&[u8], &str, &str); 7] = [
        (
            b"{\"id\":",
            "InputDeserializerError.InvalidData",
            "cut short",
        ),
        (
            b"{\"id\":2}",
            "InvalidInputTimeStamp",
            "no ISO 8601 date-time",
        ),
        (
            br#"{"id":2,"t":"soon"}"#,
            "InvalidInputTimeStamp",
            "ISO 8601",
        ),
        (
            b"{\"id\":\"\xff\"}",
            "InputDeserializerError.InvalidData",
            "UTF-8",
        ),
        (
            deep.as_bytes(),
            "InputDeserializerError.InvalidData",
            "not an object",
        ),
        (
            b"42",
            "InputDeserializerError.InvalidData",
            "a number, not an object",
        ),
        (br#"{"id":2,"t":7}"#, "InvalidInputTimeStamp", "ISO 8601"),
    ];
    for (line, kind, reason) in bad {
        let text = [
            EVENT.as_bytes(),
            b"\n",
            line,
            b"\n",
            EVENT.as_bytes(),
            b"\n",
        ]
        .concat();
        let output = TestJob::new(QUERY, &text).run();
        ends(&output, 3);
        assert_eq!(stdout(&output), "{\"id\":1}\n{\"id\":1}\n");
        let summary = [
            "3 events read, 2 kept; 1 lost to errors",
            kind,
            "in.jsonl:2:",
            reason,
        ];
        says(&stderr(&output), &summary);
    }
}

// proves S2
#[test]
fn a_runtime_error_is_reported_with_its_position_in_the_query() {
    let text = format!("{EVENT}\n{{\"id\":\"x\",\"t\":\"2026-01-01T00:00:02Z\"}}\n");
    let made = TestJob::new(
        "SELECT\n  id * 2 AS id FROM a TIMESTAMP BY t",
        text.as_bytes(),
    );
    let output = made.run();
    ends(&output, 3);
    assert_eq!(stdout(&output), "{\"id\":2}\n");
    says(
        &stderr(&output),
        &["failed on 1 rows", "query.saql:2:3", "the text 'x'"],
    );
}

// proves G2
#[test]
#[cfg_attr(not(feature = "javascript"), ignore = "needs the feature `javascript`")]
fn a_function_that_does_not_return_ends_the_run_with_its_name() {
    let made = TestJob::new(
        "SELECT udf.slow(id) AS id FROM a TIMESTAMP BY t",
        EVENT.as_bytes(),
    );
    // Inside of this native function no step is counted.
    let slow = "function main(n) { return [].reverse.call({ length: 2 ** 53 - 1 }).length; }";
    made.write("slow.js", slow.as_bytes());
    made.write(
        "job.toml",
        b"query = \"query.saql\"\n[inputs.a]\npath = \"in.jsonl\"\n[functions.slow]\npath = \"slow.js\"\n\
          [work]\nfunction_timeout = \"1s\"\n",
    );
    let output = made.run();
    ends(&output, 1);
    says(
        &stderr(&output),
        &["function 'slow' has not returned for 1s"],
    );
}

#[test]
fn unusual_files_lose_nothing() {
    let pad = "x".repeat(10_000_000);
    let long = format!("{{\"pad\":\"{pad}\",\"id\":1,\"t\":\"2026-01-01T00:00:01Z\"}}\n");
    for (text, rows) in [
        (String::new(), 0),
        (format!("{EVENT}\r\n{EVENT}\r\n"), 2),
        (format!("\u{feff}{EVENT}\n"), 1),
        (EVENT.to_string(), 1),
        (long, 1),
    ] {
        let output = TestJob::new(QUERY, text.as_bytes()).run();
        ends(&output, 0);
        assert_eq!(stdout(&output).lines().count(), rows);
    }
}

#[test]
fn a_missing_file_is_named() {
    let made = TestJob::new(QUERY, b"");
    std::fs::remove_file(made.file("in.jsonl")).unwrap();
    let output = made.run();
    ends(&output, 1);
    says(&stderr(&output), &["error: ", "cannot open", "in.jsonl"]);

    let output = highwater(&["run", "/nowhere/at/all"]);
    ends(&output, 2);
    says(&stderr(&output), &["cannot read /nowhere/at/all"]);
}

// proves S2
#[test]
fn a_run_says_what_to_write_for_an_output_that_only_a_node_has() {
    let made = TestJob::new(QUERY, format!("{EVENT}\n").as_bytes());
    let inputs = "query = \"query.saql\"\n[inputs.a]\npath = \"in.jsonl\"\n[outputs.output]\n";
    let job = |output: &str| made.write("job.toml", format!("{inputs}{output}").as_bytes());
    job("type = \"files\"\npath = \"rows\"\n");
    let output = made.run();
    ends(&output, 1);
    let instead = "type = \"file\" and path = \"output.jsonl\"";
    says(&stderr(&output), &["only a node writes it", instead]);
    assert!(!stderr(&output).contains("--data"));
    job(&instead.replace(" and ", "\n"));
    ends(&made.run(), 0);
    let rows = std::fs::read_to_string(made.file("output.jsonl")).unwrap();
    assert_eq!(rows, "{\"id\":1}\n");
}

#[test]
fn a_wrong_job_file_shows_the_key_the_line_and_the_nearest_one() {
    let made = TestJob::new(QUERY, b"");
    let job =
        "query = \"query.saql\"\n[time]\nlate_arival = \"5s\"\n[inputs.a]\npath = \"in.jsonl\"\n";
    made.write("job.toml", job.as_bytes());
    for command in ["run", "explain", "why", "timeline", "check"] {
        let output = highwater(&[command, made.path()]);
        ends(&output, 2);
        says(
            &stderr(&output),
            &["late_arival", "late_arrival", "job.toml:3:1", "^^^^"],
        );
    }
}

// proves S2
#[test]
fn a_wrong_query_shows_the_position_and_the_expected_token() {
    let made = TestJob::new("SELECT id\nFROM a TIMESTAMP t", b"");
    let output = made.run();
    ends(&output, 2);
    says(
        &stderr(&output),
        &[
            "error[HW",
            "query.saql:2:",
            "FROM a TIMESTAMP t",
            "^",
            "expected",
        ],
    );
    let made = TestJob::new("SELECT id FROM b", b"");
    let output = made.run();
    ends(&output, 2);
    says(
        &stderr(&output),
        &["query.saql:1:16", "there is no input or step `b`"],
    );
}

#[test]
fn unknown_commands_and_flags_are_refused() {
    for arguments in [
        &["fly"][..],
        &["run", ".", "--quick"],
        &["run"],
        &["bench", "fly"],
        &[],
    ] {
        ends(&highwater(arguments), 2);
    }
    ends(&highwater(&["--version"]), 0);
    says(
        &stdout(&highwater(&["--help"])),
        &["run", "test", "why", "timeline", "demo"],
    );
}

#[test]
fn a_closed_pipe_ends_a_run_quietly() {
    let made = TestJob::new(QUERY, format!("{EVENT}\n").repeat(100_000).as_bytes());
    quietly(&["run", made.path()]);
    quietly(&["why", made.path()]);
    quietly(&["why", made.path(), "--json"]);
}

/// `println!` panics where `write!` fails, so every command that prints much is tried.
#[test]
fn a_closed_pipe_ends_drawings_and_lists_quietly() {
    let made = TestJob::new(QUERY, format!("{EVENT}\n").repeat(20_000).as_bytes());
    quietly(&["timeline", made.path(), "--json"]);
    let cases = TestJob::new(QUERY, b"");
    for number in 0..2_000 {
        let folder = cases
            .folder
            .path()
            .join(format!("case-with-quite-a-long-name-{number:040}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(
            folder.join("job.toml"),
            "sql = \"SELECT\"\n[expect]\nerror = \"\"\n",
        )
        .unwrap();
    }
    quietly(&["test", cases.path()]);
}

/// Runs the command with its output piped into `head -1`.
#[track_caller]
fn quietly(arguments: &[&str]) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut first = String::new();
    let out = child.stdout.take().expect("a pipe");
    BufReader::with_capacity(16, out)
        .read_line(&mut first)
        .unwrap();
    assert!(!first.is_empty());
    let output = child.wait_with_output().unwrap();
    ends(&output, 0);
    assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
}

fn write_case(folder: &Path, expected: &str) {
    std::fs::create_dir_all(folder.join("expected")).unwrap();
    std::fs::write(folder.join("in.jsonl"), format!("{EVENT}\n")).unwrap();
    let job = format!("sql = \"{QUERY}\"\n[inputs.a]\npath = \"in.jsonl\"\n");
    std::fs::write(folder.join("job.toml"), job).unwrap();
    std::fs::write(folder.join("expected/output.jsonl"), expected).unwrap();
}

// proves U4
#[test]
fn a_failing_case_shows_how_it_differs() {
    let folder = tempfile::tempdir().unwrap();
    write_case(&folder.path().join("good"), "{\"id\":1}\n");
    let path = folder.path().to_str().unwrap();
    let output = highwater(&["test", path]);
    ends(&output, 0);
    says(&stdout(&output), &["ok    good", "1 passed, 0 failed"]);

    write_case(&folder.path().join("bad"), "{\"id\":2}\n");
    let output = highwater(&["test", path]);
    ends(&output, 1);
    says(
        &stdout(&output),
        &["FAIL  bad", "ok    good", "1 passed, 1 failed", "\"id\""],
    );

    let output = highwater(&["test", path, "--json"]);
    ends(&output, 1);
    let cases: Vec<Value> = stdout(&output).lines().map(json).collect();
    let passed = |case: &Value| (case["case"].clone(), case["passed"].clone());
    let shown: Vec<_> = cases.iter().map(passed).collect();
    assert_eq!(
        shown,
        [("bad".into(), false.into()), ("good".into(), true.into())]
    );
    assert!(cases[0]["diff"].is_string());

    ends(&highwater(&["test", "/nowhere/at/all"]), 2);
    let empty = tempfile::tempdir().unwrap();
    ends(&highwater(&["test", empty.path().to_str().unwrap()]), 2);
}

#[test]
fn check_has_spans_for_editors() {
    let made = TestJob::new("SELECT id\nFROM a TIMESTAMP t", b"");
    let output = highwater(&["check", &made.file("query.saql"), "--json"]);
    ends(&output, 1);
    let finding = json(stdout(&output).lines().next().unwrap());
    assert_eq!(
        (&finding["severity"], &finding["line"]),
        (&"error".into(), &2.into())
    );
    assert!(finding["column"].is_u64() && finding["end_column"].is_u64());
    assert!(
        finding["code"]
            .as_str()
            .is_some_and(|code| code.starts_with("HW"))
    );

    let output = highwater(&["check", &made.file("query.saql")]);
    ends(&output, 1);
    says(&stdout(&output), &["^", "query.saql:2:"]);

    made.write("query.saql", QUERY.as_bytes());
    for path in [made.file("query.saql"), made.path().to_string()] {
        let output = highwater(&["check", &path]);
        ends(&output, 0);
        says(&stdout(&output), &["the query is fine"]);
    }
    ends(&highwater(&["check", &made.file("none.saql")]), 2);
}

// proves T18
#[test]
fn why_explains_all_events_or_selected_ones() {
    let late = r#"{"id":2,"k":"b","t":"2026-01-01T00:00:00Z"}"#;
    let text = format!("{EVENT}\n{late}\nnonsense\n");
    let query = "SELECT COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)";
    let made = TestJob::new(query, text.as_bytes());
    let output = highwater(&["why", made.path(), "--json"]);
    ends(&output, 0);
    let fates: Vec<Value> = stdout(&output).lines().map(json).collect();
    let verdicts: Vec<_> = fates
        .iter()
        .map(|f| f["verdict"].as_str().unwrap())
        .collect();
    let lost = "lost: InputDeserializerError.InvalidData";
    assert_eq!(verdicts, ["on time", "out of order: adjusted", lost]);
    assert_eq!(fates[1]["timestamp"], "2026-01-01T00:00:01.000Z");
    assert_eq!(fates[1]["windows"][0]["end"], "2026-01-01T00:00:10.000Z");

    let chosen = |more: &[&str]| -> Vec<u64> {
        let output = highwater(&[&["why", made.path(), "--json"], more].concat());
        ends(&output, 0);
        stdout(&output)
            .lines()
            .map(|line| json(line)["line"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(chosen(&["--moved"]), [2, 3]);
    assert_eq!(chosen(&["--line", "1"]), [1]);
    assert_eq!(chosen(&["--where", "k = 'b'"]), [2]);
    assert!(chosen(&["--where", "k = 'c'"]).is_empty());
    says(
        &stdout(&highwater(&["why", made.path()])),
        &["in.jsonl:2  out of order: adjusted"],
    );
    let output = highwater(&["why", made.path(), "--where", "k ="]);
    ends(&output, 2);
}

#[test]
fn timeline_draws_in_three_ways() {
    let made = TestJob::new(QUERY, format!("{EVENT}\n").as_bytes());
    let svg = made.file("x.svg");
    ends(&highwater(&["timeline", made.path(), "-o", &svg]), 0);
    says(&std::fs::read_to_string(&svg).unwrap(), &["<svg", "</svg>"]);
    let output = highwater(&["timeline", made.path(), "--json"]);
    ends(&output, 0);
    let drawn = json(&stdout(&output));
    assert_eq!(drawn["points"].as_array().map(Vec::len), Some(1));
    let output = highwater(&["timeline", made.path()]);
    ends(&output, 0);
    assert!(stdout(&output).lines().count() > 10);
    let output = highwater(&["timeline", made.path(), "--input", "c"]);
    ends(&output, 2);
    says(&stderr(&output), &["has no input \"c\"", "it has a"]);
    let empty = TestJob::new(QUERY, b"");
    ends(&highwater(&["timeline", empty.path()]), 2);
}

// proves S2
#[test]
fn warnings_have_a_position_or_are_part_of_the_json() {
    let query = "SELECT COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY HoppingWindow(second, 1, 2)";
    let made = TestJob::new(query, b"");
    for command in ["run", "explain"] {
        let output = highwater(&[command, made.path()]);
        ends(&output, 0);
        says(
            &stderr(&output),
            &["warning[HW1504]", "query.saql:1:53", "help: "],
        );
        let output = highwater(&[command, made.path(), "--json"]);
        ends(&output, 0);
        let text = match command {
            "run" => stderr(&output),
            _ => stdout(&output),
        };
        let warning = &json(&text)["warnings"][0];
        assert_eq!(warning["code"], "HW1504");
        assert_eq!(warning["severity"], "warning");
        assert_eq!(
            (&warning["line"], &warning["column"]),
            (&1.into(), &53.into())
        );
    }
    let output = highwater(&["check", made.path()]);
    ends(&output, 0);
    says(&stdout(&output), &["warning[HW1504]", "the query is fine"]);
}

// proves S2
#[test]
fn data_errors_are_summed_by_input_and_kind() {
    let event = |t: &str, at: u32| {
        format!("{{\"id\":1,\"t\":\"{t}\",\"at\":\"2026-03-02T00:00:0{at}Z\"}}\n")
    };
    let good = "2026-03-02T00:00:00Z";
    let events = [
        event(good, 1),
        event("soon", 2),
        "no json\n".to_string(),
        event("later", 5),
        event("2026-03-01T00:00:00Z", 6),
    ];
    let made = TestJob::new(QUERY, events.concat().as_bytes());
    made.write(
        "job.toml",
        b"query = \"query.saql\"\n[inputs.a]\npath = \"in.jsonl\"\narrival = \"at\"\n",
    );
    let output = highwater(&["run", made.path(), "--json"]);
    ends(&output, 3);
    let summary = json(&stderr(&output));
    let errors = summary["data_errors"].as_array().unwrap();
    let kinds: Vec<&Value> = errors.iter().map(|error| &error["DataErrorType"]).collect();
    assert_eq!(
        kinds,
        [
            "LateInputEvent",
            "InputDeserializerError.InvalidData",
            "InvalidInputTimeStamp"
        ]
    );
    assert_eq!(errors[0]["Level"], "Info");
    assert_eq!(errors[0]["Message"], "1 adjusted, 0 dropped");
    assert_eq!(errors[1]["ExampleEvents"][0], "no json");
    assert_eq!(errors[1]["FromTimestamp"], Value::Null);
    assert_eq!(errors[2]["ErrorCode"], "InputEventTimestampNotFound");
    assert_eq!(errors[2]["EventCount"], 2);
    assert_eq!(errors[2]["FromTimestamp"], "2026-03-02T00:00:02.0000000Z");
    assert_eq!(errors[2]["ToTimestamp"], "2026-03-02T00:00:05.0000000Z");
    assert!(
        errors[2]["Message"]
            .as_str()
            .is_some_and(|m| m.contains("in.jsonl:2:"))
    );
}

#[test]
fn explain_shows_the_plan_and_how_far_a_start_reads_back() {
    let query = "SELECT COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)";
    let made = TestJob::new(query, b"");
    let output = highwater(&["explain", made.path(), "--json"]);
    ends(&output, 0);
    let plan = json(&stdout(&output));
    assert!(
        plan["plan"]
            .as_str()
            .is_some_and(|plan| plan.contains("output"))
    );
    assert_eq!(plan["lookback"], "10s");
    assert_eq!(plan["state"][0]["step"], "tumbling window");
    assert_eq!(plan["state"][0]["kept"][0]["held"], "10s");
    let output = highwater(&["explain", made.path()]);
    ends(&output, 0);
    says(
        &stdout(&output),
        &[
            "output",
            "10s",
            "B per key and open window, 1 open at a time",
        ],
    );
}

// proves U4
#[test]
fn a_new_project_passes_its_golden_case_and_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("project");
    let path = |name: &str| project.join(name).to_str().unwrap().to_owned();
    let init = ["init", project.to_str().unwrap()];
    ends(&highwater(&init), 0);
    let tested = highwater(&["test", &path("cases")]);
    ends(&tested, 0);
    says(&stdout(&tested), &["averages"]);
    ends(&highwater(&["check", &path("jobs/averages")]), 0);
    let moved = stdout(&highwater(&["why", &path("cases/averages"), "--moved"]));
    says(&moved, &["late"]);
    std::fs::write(path("README.md"), "mine").unwrap();
    let again = highwater(&init);
    ends(&again, 2);
    says(&stderr(&again), &["README.md exists"]);
    assert_eq!(std::fs::read_to_string(path("README.md")).unwrap(), "mine");
}

#[test]
fn examples_of_help_work_in_a_new_project() {
    let folder = tempfile::tempdir().unwrap();
    ends(&highwater(&["init", folder.path().to_str().unwrap()]), 0);
    for name in ["run", "test", "check", "explain", "why", "timeline"] {
        let help = stdout(&highwater(&[name, "--help"]));
        let example = help.trim_end().lines().last().unwrap_or_default();
        let arguments: Vec<&str> = example.split_whitespace().skip(1).collect();
        assert_eq!(arguments.first(), Some(&name), "{help}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        ends(
            &command
                .args(&arguments)
                .current_dir(folder.path())
                .output()
                .unwrap(),
            0,
        );
    }
}

#[test]
fn completions_and_man_pages_are_printed() {
    says(
        &stdout(&highwater(&["completions", "bash"])),
        &["_highwater", "dead-letter"],
    );
    says(
        &stdout(&highwater(&["man"])),
        &[".TH highwater", "highwater"],
    );
    let page = stdout(&highwater(&["man", "hub", "create"]));
    says(&page, &["partitions", "hub create orders"]);
    ends(&highwater(&["man", "hub", "paint"]), 2);
    ends(&highwater(&["completions", "abacus"]), 2);
}

// proves U1
#[test]
fn the_demo_makes_a_job_that_can_be_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    let demo = demo.to_str().unwrap();
    let fast = [
        "demo", "--once", "--dir", demo, "--events", "200", "--speed", "120",
    ];
    let first = highwater(&fast);
    ends(&first, 0);
    let printed = stdout(&first);
    let rows_of = |job: &str| {
        let rows = printed.lines().filter_map(|line| line.strip_prefix(job));
        rows.map(|row| row.trim_start().to_owned())
            .collect::<Vec<_>>()
    };
    for job in ["counts", "stolen", "silence", "booths"] {
        assert!(!rows_of(job).is_empty(), "{job}: {printed}");
    }
    assert!(Path::new(demo).join("timeline.svg").is_file());
    let again = highwater(&["run", &format!("{demo}/replay")]);
    ends(&again, 0);
    let mut live = rows_of("counts");
    let mut at_rest: Vec<String> = stdout(&again).lines().map(str::to_owned).collect();
    live.sort();
    at_rest.sort();
    assert_eq!(live, at_rest, "the same rows, live and from a file");
    // Started again, it resumes: no row is printed twice.
    let second = stdout(&highwater(&fast));
    assert!(
        second
            .lines()
            .all(|line| !printed.lines().any(|other| other == line))
    );
    ends(&highwater(&["demo", "--dir", demo, "--events", "0"]), 2);
}

#[test]
fn bench_runs_a_job_from_hub_to_hub_and_counts_every_event() {
    let made = TestJob::new("", b"");
    let folder = made.file("bench");
    let output = highwater(&[
        "bench",
        "job",
        "--events",
        "130000",
        "--runs",
        "1",
        "--partitions",
        "2",
        "--dir",
        &folder,
        "--json",
    ]);
    ends(&output, 0);
    let measured = json(stdout(&output).lines().last().unwrap());
    let rows = |of: &str| measured[of]["rows"].as_u64().unwrap();
    assert!(rows("hubs") >= 200, "two minutes have ended");
    assert_eq!(
        rows("files"),
        rows("hubs") + 100,
        "and a third, with the files"
    );
    assert!(
        measured["cpu_ratio"]
            .as_f64()
            .is_some_and(|ratio| ratio > 0.0)
    );
    assert!(!Path::new(&folder).exists());

    let output = highwater(&[
        "bench",
        "latency",
        "--rate",
        "1000",
        "--seconds",
        "2",
        "--dir",
        &folder,
        "--json",
    ]);
    ends(&output, 0);
    let measured: Vec<_> = stdout(&output).lines().map(json).collect();
    assert_eq!(measured[0]["query"], "rows");
    assert_eq!(measured[0]["rows"]["seen"], 2000);
    assert_eq!(measured[0]["appends"]["seen"], 2000);
    assert_eq!(measured[1]["query"], "windows");
    assert!(
        measured[1]["rows"]["seen"]
            .as_u64()
            .is_some_and(|seen| seen >= 100)
    );
    assert!(!Path::new(&folder).exists());
}

#[test]
fn bench_makes_the_same_events_for_a_seed_and_measures_a_job() {
    let made = TestJob::new(
        "SELECT TollId FROM a TIMESTAMP BY EntryTime WHERE TollId = 7",
        b"",
    );
    let (one, two) = (made.file("in.jsonl"), made.file("other.jsonl"));
    for file in [&one, &two] {
        ends(
            &highwater(&["bench", "generate", "--events", "2000", "--seed", "5", file]),
            0,
        );
    }
    let text = std::fs::read_to_string(&one).unwrap();
    assert_eq!(text.lines().count(), 2000);
    assert_eq!(text, std::fs::read_to_string(&two).unwrap());
    made.write(
        "job.toml",
        b"query = \"query.saql\"\n[inputs.a]\npath = \"in.jsonl\"\n[outputs.output]\npath = \"out.jsonl\"\n",
    );
    let output = highwater(&["bench", "run", made.path(), "--json"]);
    ends(&output, 0);
    let measured = json(stdout(&output).lines().last().unwrap());
    assert_eq!(measured["events"], 2000);
    assert!(
        measured["events_per_second"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0)
    );
    let output = highwater(&["bench", "run", made.path()]);
    ends(&output, 0);
    says(&stdout(&output), &["BENCH job=", "events=2000"]);
    assert!(Path::new(&made.file("out.jsonl")).is_file());
}
