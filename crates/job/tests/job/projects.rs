//! Stream Analytics projects: the files that make a job, and local files in order of event time.

#![allow(
    clippy::disallowed_methods,
    reason = "tests prepare the files that are read"
)]

use std::path::Path;

use highwater_job::config::JobFile;
use highwater_job::{Job, Options, Outputs, run};

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The rows of every output, run on one thread.
fn rows(job: &Job) -> String {
    let (outputs, collected) = Outputs::collected_as_declared(&job.file, &job.plan);
    run(job, outputs, Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let collected = collected.lock().unwrap();
    let texts = collected
        .values()
        .map(|bytes| String::from_utf8_lossy(bytes));
    texts.collect()
}

const JOB_CONFIG: &str = r#"{"ScriptType":"JobConfig","EventsLateArrivalMaxDelayInSeconds":5,
    "EventsOutOfOrderMaxDelayInSeconds":10,"EventsOutOfOrderPolicy":"Drop","CompatibilityLevel":"1.2"}"#;

const LOCAL_INPUT: &str = r#"{"InputAlias":"A","Type":"Data Stream","Format":"Json",
    "FilePath":"..\\data\\a.json","ScriptType":"InputMock"}"#;

/// The second event is 18 seconds before the first.
const EVENTS: &str = r#"{"id":1,"t":"2026-03-02T00:00:20Z"}
{"id":2,"t":"2026-03-02T00:00:02Z"}
"#;

const MSBUILD: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<Project DefaultTargets="Build" xmlns="http://schemas.microsoft.com/developer/msbuild/2003">
  <ItemGroup>
    <Script Include="Script.asaql" />
    <Configure Include="JobConfig.json"><SubType>JobConfig</SubType></Configure>
    <Configure Include="Inputs\Local_A.json"><SubType>InputMock</SubType></Configure>
    <Configure Include="Functions\twice.js.json"><SubType>JSFunction</SubType></Configure>
    <Configure Include="Gone.json" />
  </ItemGroup>
</Project>"#;

fn visual_studio(folder: &Path) {
    write(folder, "Toll.asaproj", MSBUILD);
    write(
        folder,
        "Script.asaql",
        "SELECT udf.twice(id) AS id, udf.half(id) AS half FROM A TIMESTAMP BY t",
    );
    write(folder, "JobConfig.json", JOB_CONFIG);
    write(folder, "Inputs/Local_A.json", LOCAL_INPUT);
    write(folder, "data/a.json", EVENTS);
    write(
        folder,
        "Functions/twice.js.json",
        r#"{"Name":"twice","ScriptType":"JSFunction"}"#,
    );
    write(
        folder,
        "Functions/twice.js",
        "function main(x) { return 2 * x; }",
    );
    write(
        folder,
        "Functions/half.js",
        "function main(x) { return x / 2; }",
    );
}

// proves S1
#[test]
fn a_project_of_visual_studio_becomes_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    visual_studio(folder);
    let job = Job::load(folder).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(job.file.name, "Toll");
    assert_eq!(
        rows(&job),
        "{\"id\":4,\"half\":1}\n{\"id\":2,\"half\":0.5}\n"
    );
    let by_name = JobFile::load(&folder.join("Toll.asaproj")).unwrap();
    assert_eq!(by_name.functions, job.file.functions);
}

// proves S1
#[test]
fn local_files_are_read_in_order_of_event_time_unless_policies_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    visual_studio(folder);
    write(folder, "Script.asaql", "SELECT id FROM A TIMESTAMP BY t");
    let job = Job::load(folder).unwrap();
    assert_eq!(rows(&job), "{\"id\":2}\n{\"id\":1}\n");
    // With its policy, the event that is 18 seconds late is dropped.
    let job = Job::new(JobFile::load(folder).unwrap()).unwrap();
    assert_eq!(rows(&job), "{\"id\":1}\n");
}

// proves S1
#[test]
fn scripts_are_beside_their_settings_in_either_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "asaproj.json", r#"{"startFile":"q.asaql"}"#);
    write(folder, "q.asaql", "SELECT 1 AS one FROM A");
    for (settings, name) in [("a.js.json", "a"), ("b.json", "b")] {
        let text = r#"{"ScriptType":"JSFunction"}"#;
        write(folder, &format!("Functions/{settings}"), text);
        let script = "function main(x) { return x; }";
        write(folder, &format!("Functions/{name}.js"), script);
    }
    let file = JobFile::load(folder).unwrap();
    let mut names: Vec<&str> = file.functions.iter().map(|f| &f.name[..]).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    assert!(file.functions.iter().all(|f| f.path.is_file()));
    assert_eq!(file.remarks, [""; 0]);
}

// proves S1 S2
#[test]
fn what_a_run_here_lacks_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "query.saql", "SELECT * INTO o FROM a");
    write(folder, "a.jsonl", "{}\n");
    let refusal = |text: &str| {
        write(folder, "job.toml", text);
        let job = Job::load(folder).unwrap_or_else(|error| panic!("{error}"));
        let (outputs, _) = Outputs::collected_as_declared(&job.file, &job.plan);
        match run(&job, outputs, Options::default()) {
            Ok(_) => panic!("it cannot run here"),
            Err(error) => error.to_string(),
        }
    };
    let files = refusal(
        "query = \"query.saql\"\n[inputs.a]\npath = \"a.jsonl\"\n[outputs.o]\ntype = \"files\"\npath = \"out\"\n",
    );
    assert!(
        files.contains("type = \"file\" and path = \"o.jsonl\""),
        "{files}"
    );
    assert!(!files.contains("--data"), "{files}");
    let hub = refusal("query = \"query.saql\"\n[inputs.a]\nhub = \"a\"\n");
    assert!(hub.contains("--data"), "{hub}");
}
