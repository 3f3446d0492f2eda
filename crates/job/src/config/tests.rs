#![allow(clippy::disallowed_methods, reason = "tests make their own files")]
use std::path::{Path, PathBuf};

use highwater_connect::{ClusterRef, OutputFormat, OutsideAccess, SinkTarget, StateSettings};
use highwater_env::FolderPolicy;
use highwater_time::{Duration, Instant, ViolationAction};

use super::*;

fn parse(text: &str) -> JobFile {
    JobFile::parse(text, "job.toml").unwrap_or_else(|e| panic!("{e}"))
}

/// The rendered mistakes of a wrong file.
fn wrong(text: &str) -> String {
    JobFile::parse(text, "job.toml")
        .expect_err("the file is wrong")
        .to_string()
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let actual = wrong(text);
    assert_eq!(actual.trim(), expected.trim(), "\n{actual}\n");
}

fn target(output: &Output, folder: &str) -> SinkTarget {
    let target = output.settings.sink_target(Path::new(folder));
    target.expect("a file or standard output")
}

fn seconds(n: i64) -> Duration {
    Duration::from_ticks(n * highwater_time::TICKS_PER_SECOND)
}

#[test]
fn the_job_file_of_the_design_is_read_whole() {
    let job = parse(
        r#"
name = "toll-counts"
query = "query.saql"

[time]
late_arrival = "10s"
out_of_order = "2s"
early_arrival = "1m"
late_events = "drop"
out_of_order_events = "drop"
early_events = "adjust"

[inputs.Entry]
type = "file"
path = "input/Entry.jsonl"
arrival = "ArrivalTime"
partition = "p"

[inputs.Registration]
path = ["a.jsonl", "b.jsonl"]
reference = true

[outputs.Alerts]
path = "out/alerts.jsonl"

[outputs.Log]
type = "stdout"

[errors]
on_error = "stop"

[expect]
order = "strict"
error = ""
"#,
    );
    assert_eq!(job.name, "toll-counts");
    assert_eq!(job.query, QuerySource::File(PathBuf::from("query.saql")));
    let time = TimePolicy {
        late_arrival: seconds(10),
        out_of_order: seconds(2),
        early_arrival: Some(seconds(60)),
        late_events: ViolationAction::Drop,
        out_of_order_events: ViolationAction::Drop,
        early_events: ViolationAction::Adjust,
    };
    assert_eq!(job.time, time);
    let entry = Input {
        name: "Entry".to_owned(),
        paths: vec![PathBuf::from("input/Entry.jsonl")],
        hubs: Vec::new(),
        kafka: None,
        arrival: Some("ArrivalTime".to_owned()),
        partition: Some("p".to_owned()),
        reference: false,
        refresh: None,
        format: None,
        compression: Default::default(),
    };
    assert_eq!(job.inputs[0], entry);
    assert_eq!(
        job.inputs[1].paths,
        [PathBuf::from("a.jsonl"), PathBuf::from("b.jsonl")]
    );
    assert!(job.inputs[1].reference);
    let path = |output: &Output| target(output, "").path;
    assert_eq!(path(&job.outputs[0]), Some("out/alerts.jsonl".into()));
    assert_eq!(path(&job.outputs[1]), None);
    assert_eq!(job.on_error, OnError::Stop);
    assert_eq!(
        job.expect,
        Some(Expect {
            order: Order::Strict,
            error: Some(String::new())
        })
    );
}

// proves T3, T4, T5
#[test]
fn what_the_file_leaves_out_has_the_documented_default() {
    let job = parse("query = \"q.saql\"\n[inputs.I]\npath = \"i.jsonl\"\n[time]\n");
    assert_eq!(job.time, TimePolicy::default());
    assert_eq!(job.time.late_arrival, seconds(5));
    assert_eq!(job.time.out_of_order, seconds(0));
    assert_eq!(job.time.early_arrival, Some(seconds(300)));
    assert_eq!(job.time.early_events, ViolationAction::Drop);
    assert_eq!(job.on_error, OnError::Drop);
    assert_eq!(job.expect, None);
    assert!(!job.inputs[0].reference);
}

// proves T5
#[test]
fn early_arrival_can_be_off() {
    let job = parse("sql = \"SELECT 1\"\n[time]\nearly_arrival = \"off\"\n");
    assert_eq!(job.time.early_arrival, None);
    assert_eq!(job.query, QuerySource::Inline("SELECT 1".to_owned()));
}

#[test]
fn inputs_keep_the_order_of_the_file() {
    let job = parse("query='q'\n[inputs.Z]\npath='z'\n[inputs.A]\npath='a'\n[inputs.M]\npath='m'");
    let names: Vec<_> = job.inputs.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["Z", "A", "M"]);
}

#[test]
fn a_nameless_job_is_named_after_its_folder() {
    let name = |file| JobFile::parse("query = 'q'", file).expect("valid").name;
    assert_eq!(name("cases/06-tumbling/job.toml"), "06-tumbling");
    assert_eq!(name("job.toml"), "job");
}

#[test]
fn paths_are_taken_from_the_folder_of_the_job_file() {
    let text = "query='q.saql'\n[inputs.I]\npath=['a','/abs/b']\n[outputs.O]\npath='o'";
    let job = parse(text).resolve(Path::new("/jobs/one"));
    assert_eq!(
        job.query,
        QuerySource::File(PathBuf::from("/jobs/one/q.saql"))
    );
    assert_eq!(
        job.inputs[0].paths,
        [PathBuf::from("/jobs/one/a"), PathBuf::from("/abs/b")]
    );
    let path = target(&job.outputs[0], "/jobs/one").path;
    assert_eq!(path, Some("/jobs/one/o".into()));
}

#[test]
fn a_folder_stands_for_its_json_files_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["b.jsonl", "a.ndjson", "c.json", "readme.txt"] {
        std::fs::write(folder.path().join(name), "").expect("a file");
    }
    let job = parse("query='q'\n[inputs.I]\npath='.'").resolve(folder.path());
    let files = job.inputs[0].files().expect("three files");
    let names: Vec<_> = files
        .iter()
        .filter_map(|f| f.file_name()?.to_str())
        .collect();
    assert_eq!(names, ["a.ndjson", "b.jsonl", "c.json"]);
}

#[test]
fn a_folder_without_json_files_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = parse("query='q'\n[inputs.I]\npath='.'").resolve(folder.path());
    let error = job.inputs[0]
        .files()
        .expect_err("nothing to read")
        .to_string();
    assert!(
        error.contains("holds no .jsonl, .json or .ndjson file"),
        "{error}"
    );
}

#[test]
fn an_unknown_key_names_its_nearest_neighbour() {
    check(
        "query = \"q.saql\"\n\n[time]\n# how late\nlate_arival = \"5s\"\n",
        r#"
error: unknown key "late_arival" in [time]
 --> job.toml:5:1
  |
5 | late_arival = "5s"
  | ^^^^^^^^^^^ did you mean "late_arrival"?
  = known keys: late_arrival, out_of_order, early_arrival, late_events, out_of_order_events, early_events
"#,
    );
}

// proves S2
#[test]
fn functions_that_are_no_javascript_are_refused_with_the_reason() {
    check(
        r#"
query = "query.saql"

[functions.fee]
path = "functions/Fees.cs"

[functions.score]
endpoint = "https://example.invalid/score"
"#,
        r#"
error: functions in .NET do not run here
 --> job.toml:5:1
  |
5 | path = "functions/Fees.cs"
  | ^^^^ write it in JavaScript, for example functions/toCelsius.js

error: a machine-learning function cannot be called from a query
 --> job.toml:8:1
  |
8 | endpoint = "https://example.invalid/score"
  | ^^^^^^^^ a query asks no other machine; score the events before or after it
"#,
    );
}

#[test]
fn every_mistake_is_reported_in_the_order_of_the_file() {
    check(
        r#"
nmae = "x"
query = 5

[time]
late_arrival = "5 apples"
early_arrival = 300
late_events = "dorp"

[input.Entry]
path = "x"

[outputs.Alerts]
type = "kafka"
topic = "alerts"

[errors]
on_error = "dead_letter"
"#,
        r#"
error: unknown key "nmae"
 --> job.toml:2:1
  |
2 | nmae = "x"
  | ^^^^ did you mean "name"?
  = known keys: name, query, sql, compatibility, ignore_case, strict_types, time, inputs, outputs, functions, errors, start, checkpoint, work, state, late, expect

error: "query" must be a string, not an integer
 --> job.toml:3:9
  |
3 | query = 5
  |         ^ expected a string
  = for example: query = "query.saql"

error: "5 apples" is not a duration
 --> job.toml:6:16
  |
6 | late_arrival = "5 apples"
  |                ^^^^^^^^^^ expected a duration
  = a duration is "150ms", "5s", "3m", "1h30m", "2d" or the like

error: "early_arrival" must be a duration, not an integer
 --> job.toml:7:17
  |
7 | early_arrival = 300
  |                 ^^^ expected a duration
  = for example: early_arrival = "5s"

error: unknown value "dorp" for "late_events" in [time]
 --> job.toml:8:15
  |
8 | late_events = "dorp"
  |               ^^^^^^ did you mean "drop"?
  = known values: "adjust", "drop"

error: unknown key "input"
  --> job.toml:10:2
   |
10 | [input.Entry]
   |  ^^^^^ did you mean "inputs"?
   = known keys: name, query, sql, compatibility, ignore_case, strict_types, time, inputs, outputs, functions, errors, start, checkpoint, work, state, late, expect

error: missing key "servers" in [outputs.Alerts]
  --> job.toml:13:10
   |
13 | [outputs.Alerts]
   |          ^^^^^^ add servers = ["broker-1:9092"]

error: missing key "dead_letter" in [errors]
  --> job.toml:17:2
   |
17 | [errors]
   |  ^^^^^^ add dead_letter = "DeadLetters"
"#,
    );
}

#[test]
fn off_is_offered_only_where_it_is_allowed() {
    let wrong = wrong("query='q'\n[time]\nlate_arrival = \"off\"\nearly_arrival = \"on\"\n");
    assert_eq!(
        wrong.matches("\"off\" is allowed here").count(),
        1,
        "{wrong}"
    );
    assert!(wrong.contains("\"off\" is not a duration"), "{wrong}");
}

#[test]
fn a_missing_key_points_at_its_table() {
    check(
        "[inputs.Entry]\narrival = \"At\"\n[outputs.Alerts]\n",
        r#"
error: missing key "query"
 --> job.toml:1:1
  |
1 | [inputs.Entry]
  | ^ add query = "query.saql", or sql = "SELECT ..."

error: missing key "path" in [inputs.Entry]
 --> job.toml:1:9
  |
1 | [inputs.Entry]
  |         ^^^^^ add path = "input/Entry.jsonl"

error: missing key "path" in [outputs.Alerts]
 --> job.toml:3:10
  |
3 | [outputs.Alerts]
  |          ^^^^^^ add path = "out/Alerts.jsonl", or type = "stdout"
"#,
    );
}

#[test]
fn a_query_given_twice_is_refused() {
    check(
        "query = \"q.saql\"\nsql = \"SELECT 1\"",
        r#"
error: the query is given twice
 --> job.toml:2:1
  |
2 | sql = "SELECT 1"
  | ^^^ keep one of "query" (a file) and "sql" (the text itself)
"#,
    );
}

#[test]
fn a_setting_that_would_be_ignored_is_refused() {
    check(
        "query='q'\n[inputs.R]\npath='r'\nreference = true\narrival = 'At'\n",
        r#"
error: "arrival" has no effect in [inputs.R]
 --> job.toml:5:1
  |
5 | arrival = 'At'
  | ^^^^^^^ reference data has neither arrival times nor partitions
"#,
    );
}

#[test]
fn a_bad_item_of_a_list_of_paths_is_underlined_itself() {
    check(
        "query='q'\n[inputs.I]\npath = [\"a\", 7, \"\"]\n",
        r#"
error: "path" must be a path or a list of paths, not an integer
 --> job.toml:3:14
  |
3 | path = ["a", 7, ""]
  |              ^ expected a path or a list of paths
  = for example: path = "input/Entry.jsonl" or path = ["a.jsonl", "b.jsonl"]

error: "path" is empty
 --> job.toml:3:17
  |
3 | path = ["a", 7, ""]
  |                 ^^ nothing here
  = for example: path = "input/Entry.jsonl"
"#,
    );
}

#[test]
fn a_table_of_the_wrong_shape_says_how_it_is_written() {
    check(
        "query='q'\ntime = 5\ninputs = []\n[outputs]\nAlerts = \"x\"\n",
        r#"
error: "time" must be a table, not an integer
 --> job.toml:2:8
  |
2 | time = 5
  |        ^ expected a table
  = for example: [time]

error: "inputs" must be a table per name, not an array
 --> job.toml:3:10
  |
3 | inputs = []
  |          ^^ expected a table per name
  = for example: [inputs.Entry]

error: "Alerts" must be a table, not a string
 --> job.toml:5:10
  |
5 | Alerts = "x"
  |          ^^^ expected a table
  = for example: [outputs.Alerts]
"#,
    );
}

#[test]
fn an_unknown_type_lists_what_is_there() {
    check(
        "query='q'\n[inputs.I]\ntype = \"kafak\"\n",
        r#"
error: unknown value "kafak" for "type" in [inputs.I]
 --> job.toml:3:8
  |
3 | type = "kafak"
  |        ^^^^^^^ did you mean "kafka"?
  = known values: "file", "hub", "kafka"
"#,
    );
}

#[test]
fn a_file_that_is_not_toml_says_where() {
    let error = JobFile::parse("name = \"x\nquery = 'q'\n", "job.toml").expect_err("not TOML");
    assert_eq!(
        (
            error.mistakes[0].position.line,
            error.mistakes[0].key.as_str()
        ),
        (1, "")
    );
    assert!(
        error.to_string().starts_with("error: not valid TOML: "),
        "{error}"
    );
}

#[test]
fn columns_count_characters_and_carets_line_up() {
    let error = JobFile::parse("query='q'\n\t\"größe\" = 1\n", "job.toml").expect_err("unknown");
    assert_eq!(
        (
            error.mistakes[0].position.line,
            error.mistakes[0].position.column
        ),
        (2, 2)
    );
    assert!(
        error
            .to_string()
            .contains("2 | \t\"größe\" = 1\n  | \t^^^^^^^ "),
        "{error}"
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[\\[\\]a-z\"'=., \n\t\r\u{e9}0-9#]{0,80}") {
        let _ = JobFile::parse(&text, "job.toml").map_err(|e| e.to_string());
    }

    #[test]
    fn no_change_of_one_character_makes_the_parser_panic(at in 0usize..200, c: char) {
        let text = "name='x'\nquery='q'\n[time]\nlate_arrival='5s'\n[inputs.A]\npath=['a','b']\n";
        let mut chars: Vec<char> = text.chars().collect();
        let at = at % chars.len();
        chars[at] = c;
        let text: String = chars.into_iter().collect();
        let _ = JobFile::parse(&text, "job.toml").map_err(|e| e.to_string());
    }
}

// proves S3
#[test]
fn formats_are_said_or_seen_in_names() {
    let job = parse(
        r#"
query = "q"
compatibility = "1.1"
[inputs.A]
path = "a.txt"
format = "csv"
delimiter = "\t"
header = false
[inputs.B]
path = "b.avro"
compression = "gzip"
[inputs.C]
path = "c.csv"
delimiter = ";"
[outputs.O]
path = "o.csv"
header = false
[outputs.P]
path = "p.parquet"
[outputs.J]
path = "j.json"
format = "json"
[outputs.L]
path = "l.json"
[errors]
on_error = "dead_letter"
dead_letter = "L"
"#,
    );
    let csv = |delimiter, header| CsvFormat { delimiter, header };
    assert_eq!(job.compatibility, Level::V1_1);
    assert!(!job.ignore_case);
    assert!(parse("query='q.saql'\nignore_case = true").ignore_case);
    assert!(!job.strict_types);
    assert!(parse("query='q.saql'\nstrict_types = true").strict_types);
    assert_eq!(job.inputs[0].format, Some(Format::Csv(csv(b'\t', false))));
    assert_eq!(job.inputs[1].format, None);
    assert_eq!(job.inputs[1].compression, Compression::Gzip);
    assert_eq!(job.inputs[2].format, Some(Format::Csv(csv(b';', true))));
    let formats: Vec<OutputFormat> = job.outputs.iter().map(|o| target(o, "").format).collect();
    assert_eq!(
        formats,
        [
            OutputFormat::Csv(csv(b',', false)),
            OutputFormat::Parquet,
            OutputFormat::JsonArray,
            OutputFormat::JsonLines
        ]
    );
    assert_eq!(job.on_error, OnError::DeadLetter);
    assert_eq!(job.dead_letter.as_deref(), Some("L"));
}

#[test]
fn settings_that_do_not_go_together_are_told() {
    for (text, message) in [
        (
            "[inputs.A]\npath='a.json'\ndelimiter=','\n",
            "\"delimiter\" has no effect in [inputs.A]",
        ),
        (
            "[inputs.A]\npath='a.csv'\ndelimiter='ab'\n",
            "\"delimiter\" must be one character",
        ),
        (
            "[outputs.A]\ntype='stdout'\nformat='parquet'\n",
            "Parquet is written to files only",
        ),
        (
            "[errors]\non_error='dead_letter'\ndead_letter='X'\n",
            "there is no such output",
        ),
        (
            "[outputs.X]\npath='x.csv'\n[errors]\non_error='dead_letter'\ndead_letter='X'\n",
            "written as lines of JSON",
        ),
        (
            "[outputs.X]\npath='x'\n[errors]\ndead_letter='X'\n",
            "it needs on_error",
        ),
        ("[inputs.A]\npath='a'\nformat='xml'\n", "unknown value"),
    ] {
        let wrong = wrong(&format!("query='q'\n{text}"));
        assert!(wrong.contains(message), "{wrong}");
    }
    assert!(wrong("query='q'\ncompatibility='2'\n").contains("\"1.2\" or \"1.1\" or \"1.0\""));
}

#[test]
fn a_job_on_hubs_says_where_it_starts_and_what_becomes_of_what_is_late() {
    let job = parse(
        r#"
query = "q.saql"
start = "2026-01-31T10:00:00Z"

[inputs.Entry]
type = "hub"
hub = ["toll-a", "toll-b"]
format = "csv"
delimiter = ";"

[inputs.Exit]
hub = "exit"

[outputs.Alerts]
type = "postgres"
connection = "postgres://me@db/toll"
table = "alerts"
key = ["plate", "at"]
on_failure = "dead_letter"

[outputs.Late]
type = "hub"
hub = "late"

[checkpoint]
every = "30s"

[work]
threads = 3
fetch_bytes = 5000
function_timeout = "4s"

[late]
output = "Late"

[state]
path = "state"
shared = true
session_timeout = "8s"
combiners = 4
"#,
    );
    let time = Instant::parse_iso(b"2026-01-31T10:00:00Z").unwrap();
    let live = Live {
        start: Start::At(time),
        checkpoint_every: seconds(30),
        late: Some("Late".to_owned()),
        threads: Some(3),
        fetch_bytes: Some(5000),
        function_timeout: Some(seconds(4)),
        state: Some(JobStateStore {
            store: StateSettings::folder("state"),
            of_node: false,
            shared: true,
            session_timeout: std::time::Duration::from_secs(8),
            combiners: 4,
        }),
    };
    assert_eq!(job.live, live);
    assert_eq!(job.inputs[0].hubs, ["toll-a", "toll-b"]);
    assert!(matches!(job.inputs[0].format, Some(Format::Csv(csv)) if csv.delimiter == b';'));
    assert_eq!(job.inputs[1].hubs, ["exit"]);
    assert_eq!(job.outputs[0].on_failure, OnFailure::DeadLetter);
    let settings = job.outputs.iter();
    let settings = settings.map(|output| format!("{:?}", output.settings));
    assert_eq!(
        settings.collect::<Vec<_>>(),
        [
            r#"PostgresOutput { table: "alerts", key: ["plate", "at"], .. }"#,
            r#"HubOutput { hub: "late", key: None }"#,
        ]
    );
}

#[test]
fn a_wrong_start_and_an_unknown_place_for_late_events_are_told() {
    let wrong = wrong(
        "query='q'\nstart='yesterday'\n[inputs.I]\nhub='h'\nformat='parquet'\n[late]\noutput='Late'\n",
    );
    for part in [
        "\"yesterday\" is no start",
        "no such output for late events",
        "\"parquet\" for \"format\"",
    ] {
        assert!(wrong.contains(part), "{wrong}");
    }
}

// proves G3
#[test]
fn a_job_with_limited_access_has_its_own_folder_and_the_listed_ones() {
    let root = tempfile::tempdir().expect("a folder");
    let (own, listed) = (root.path().join("own"), root.path().join("listed"));
    for folder in [&own, &listed] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let access = OutsideAccess {
        folders: FolderPolicy::below([listed.clone()]),
        ..OutsideAccess::default()
    };
    let check = |text: &str| parse(text).resolve(&own).check_access(&access);
    let listed = listed.display();
    for good in [
        "query='q.saql'\n[inputs.I]\npath='in.jsonl'\n[outputs.O]\npath='out'\n".to_owned(),
        format!("sql='SELECT 1'\n[inputs.R]\nreference=true\npath='{listed}/{{date}}/r.jsonl'\n"),
        format!("sql='SELECT 1'\n[outputs.O]\ntype='files'\npath='{listed}/o'\n"),
    ] {
        assert!(check(&good).is_ok(), "{good}");
    }
    for (wrong, part) in [
        ("query='/etc/passwd'\n", "the query"),
        ("query='../own2/q'\n", "the query"),
        (
            "sql='SELECT 1'\n[functions.f]\npath='/etc/f.js'\n",
            "function \"f\"",
        ),
        ("sql='SELECT 1'\n[inputs.I]\npath='/etc'\n", "input \"I\""),
        (
            "sql='SELECT 1'\n[inputs.I]\npath='/{date}/x'\n",
            "input \"I\"",
        ),
        (
            "sql='SELECT 1'\n[outputs.O]\npath='/tmp/o'\n",
            "output \"O\"",
        ),
        (
            "sql='SELECT 1'\n[outputs.O]\ntype='files'\npath='/tmp'\n",
            "output \"O\"",
        ),
    ] {
        let refused = check(wrong).expect_err(wrong).to_string();
        assert!(
            refused.contains(part) && refused.contains("jobs.folders"),
            "{refused}"
        );
    }
}

// proves E1
#[test]
fn early_results_have_an_interval_and_an_age() {
    let early = |line: &str| {
        let text = format!("query='q'\n[inputs.I]\nhub='h'\n[outputs.o]\ntype='stdout'\n{line}\n");
        parse(&text).outputs[0].early
    };
    let results = |every, after| {
        Some(EarlyResults {
            every: seconds(every),
            after: seconds(after),
        })
    };
    assert_eq!(early(""), None);
    assert_eq!(early("early = '2s'"), results(2, 0));
    assert_eq!(
        early("early = { every = '1m', after = '5s' }"),
        results(60, 5)
    );
}

#[test]
fn wrong_intervals_of_early_results_are_told() {
    let told = |line: &str| {
        wrong(&format!(
            "query='q'\n[inputs.I]\nhub='h'\n[outputs.o]\ntype='stdout'\n{line}\n"
        ))
    };
    assert!(told("early = '10ms'").contains("100ms apart"));
    assert!(told("early = { after = '1s' }").contains("every"));
    assert!(told("early = { every = '1s', later = '1s' }").contains("later"));
    assert!(told("early = true").contains("early"));
}

#[test]
fn a_kafka_input_has_a_topic_a_cluster_and_a_time() {
    let text = r#"
sql = "SELECT * FROM Entry"
[inputs.Entry]
type = "kafka"
servers = ["broker-1:9092", "broker-2:9092"]
tls = true
user = "app"
password = "s3cret"
topic = "toll"
journal = "toll-time"
clock_margin = "250ms"
format = "jsonl"
"#;
    let file = JobFile::parse(text, "job.toml").unwrap();
    let input = &file.inputs[0];
    assert_eq!(input.hubs, ["toll"]);
    assert_eq!(input.node_hubs(), [""; 0]);
    let kafka = input.kafka.as_ref().unwrap();
    assert_eq!(kafka.arrival, ArrivalTime::LogAppend);
    assert_eq!(kafka.journal.as_deref(), Some("toll-time"));
    assert_eq!(kafka.clock_margin, std::time::Duration::from_millis(250));
    let ClusterRef::Named(cluster) = &kafka.cluster else {
        panic!("it names its cluster: {kafka:?}");
    };
    assert!(kafka.transactions && cluster.tls);
    assert_eq!(cluster.servers.len(), 2);
    // proves U3
    let shown = format!("{file:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

// proves X1
#[test]
fn hubs_are_topics_where_the_log_is_a_cluster() {
    let text = r#"
sql = "SELECT * INTO Out FROM Entry"
[inputs.Entry]
hub = ["toll-a", "toll-b"]
[inputs.Other]
type = "kafka"
servers = "broker-1:9092"
topic = "toll"
[inputs.Table]
path = "table.csv"
reference = true
[outputs.Out]
type = "hub"
hub = "alerts"
key = "plate"
[outputs.Rows]
path = "rows.jsonl"
"#;
    let mut file = JobFile::parse(text, "job.toml").unwrap();
    let before = file.clone();
    let mut asked = Vec::new();
    file.over_cluster(true, |hubs| {
        asked.extend_from_slice(hubs);
        ArrivalTime::Create
    });
    assert_eq!(asked, ["toll-a", "toll-b"]);
    let entry = file.inputs[0].kafka.as_ref().unwrap();
    assert_eq!(
        (&entry.cluster, entry.arrival, entry.transactions),
        (&ClusterRef::OfNode, ArrivalTime::Create, true)
    );
    assert_eq!(file.inputs[1..], before.inputs[1..]);
    let [out, rows] = [0, 1].map(|output| &file.outputs[output].settings);
    assert!(out.is_fenced() && out.destination().is_none());
    assert_eq!(out.partition_key(), Some("plate"));
    assert!(!before.outputs[0].settings.is_fenced());
    assert!(!rows.is_fenced() && rows.sink_target("".as_ref()).is_some());
}

#[test]
fn settings_of_a_cluster_that_have_no_effect_are_mistakes() {
    let text = |input: &str| format!("sql='q'\n[inputs.I]\ntype='kafka'\n{input}\n");
    let no_servers = wrong(&text("topic='t'"));
    assert!(
        no_servers.contains("servers = [\"broker-1:9092\"]"),
        "{no_servers}"
    );
    let no_topic = wrong(&text("servers='b:1'"));
    assert!(no_topic.contains("missing key \"topic\""), "{no_topic}");
    let no_password = wrong(&text("servers='b:1'\ntopic='t'\nuser='u'"));
    assert!(
        no_password.contains("missing key \"password\""),
        "{no_password}"
    );
    let no_user = wrong(&text("servers='b:1'\ntopic='t'\npassword='u'"));
    assert!(no_user.contains("missing key \"user\""), "{no_user}");
    let plain = wrong(&text("servers='b:1'\ntopic='t'\nca='ca.pem'"));
    assert!(plain.contains("\"ca\" has no effect"), "{plain}");
    let no_token = wrong(&text("servers='b:1'\ntopic='t'\nmechanism='OAUTHBEARER'"));
    assert!(no_token.contains("missing key \"token\""), "{no_token}");
    let token = wrong(&text("servers='b:1'\ntopic='t'\ntoken='t'"));
    assert!(token.contains("\"token\" has no effect"), "{token}");
    let scram = wrong(&text("servers='b:1'\ntopic='t'\nmechanism='SCRAM-SHA-512'"));
    assert!(scram.contains("missing key \"user\""), "{scram}");
    let half = wrong(&text("servers='b:1'\ntopic='t'\ntls=true\nclient_cert='c'"));
    assert!(half.contains("missing key \"client_key\""), "{half}");
    let created = "servers='b:1'\ntopic='t'\narrival='create-time'\njournal='j'";
    let created = wrong(&text(created));
    assert!(created.contains("only events move time"), "{created}");
}
