//! Imports Stream Analytics projects of Visual Studio Code and of Visual Studio.
//!
//! `asaproj.json`, or a `.asaproj` of MSBuild, names the query and a settings file for everything else. The import
//! takes the job settings (time policy, compatibility level), the functions and the inputs with local files; results go
//! to standard output. Unsupported parts become remarks. A live input without a local file is enough to check the
//! query; to run it is an error that says what to add.
//!
//! Local files stand for live inputs: a local run takes their events in order of event time, as the original tools do,
//! and the time policy of the project does not apply ([`JobFile::in_event_order`]).
//!
//! A `testConfig.json` of the project's test tool holds golden cases: each has its own input files and expected
//! outputs, with the query and settings of the project.

mod msbuild;

use std::path::{Path, PathBuf};

use highwater_connect::{Compression, CsvFormat, Format, Level, is_delimiter};
use highwater_env::disk;
use highwater_time::{Duration, TimePolicy, ViolationAction};
use serde_json::Value as Json;

use crate::config::{Function, Input, JobFile, Live, OnError, QuerySource, RemoteInput};
use crate::load::LoadError;

const PROJECT_FILE: &str = "asaproj.json";
/// The extension of a project of Visual Studio.
const MSBUILD_EXTENSION: &str = "asaproj";
/// The usual name of the query there.
const MSBUILD_QUERY: &str = "Script.asaql";
pub const TEST_FILE: &str = "testConfig.json";

/// Effectively no bound on lateness.
const UNLIMITED: Duration = Duration::from_days(36_500);

impl JobFile {
    /// A project with local files in place of its live inputs: their events are taken in order of event time, whatever
    /// the time policy says. Other jobs stay as they are.
    #[must_use]
    pub fn in_event_order(mut self) -> JobFile {
        if self.project {
            self.time.late_arrival = UNLIMITED;
            self.time.out_of_order = UNLIMITED;
            self.time.early_arrival = None;
        }
        self
    }
}

/// A case of a test configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct TestCase {
    pub name: String,
    pub inputs: Vec<Input>,
    pub expected: Vec<ExpectedOutput>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedOutput {
    pub output: String,
    pub file: PathBuf,
    /// Otherwise the rows are not compared.
    pub required: bool,
}

/// The files of a project.
struct ProjectFiles {
    name: String,
    query: PathBuf,
    settings: Vec<PathBuf>,
}

/// The project in a folder, if there is one.
pub(crate) fn find_in(folder: &Path) -> Option<PathBuf> {
    let project = folder.join(PROJECT_FILE);
    if project.is_file() {
        return Some(project);
    }
    let listed = disk::list(folder).unwrap_or_default();
    listed.into_iter().find(|path| is_msbuild(path))
}

/// Whether the file is a project.
pub fn is_project(file: &Path) -> bool {
    is_msbuild(file)
        || file
            .extension()
            .is_some_and(|extension| extension == "json")
}

fn is_msbuild(file: &Path) -> bool {
    file.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case(MSBUILD_EXTENSION))
}

/// Loads the job of a project.
pub(crate) fn load(file: &Path) -> Result<JobFile, LoadError> {
    let (mut job, live) = import(file)?;
    add_live_inputs(&mut job, &live);
    Ok(job)
}

/// The job of the project, and the settings of its live inputs.
fn import(file: &Path) -> Result<(JobFile, Vec<Json>), LoadError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let files = match is_msbuild(file) {
        true => msbuild_files(file, folder)?,
        false => code_files(file, folder)?,
    };
    let mut job = JobFile {
        name: files.name,
        query: QuerySource::File(files.query),
        folder: folder.to_path_buf(),
        compatibility: Level::default(),
        ignore_case: false,
        strict_types: false,
        time: TimePolicy::default(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        on_error: OnError::default(),
        dead_letter: None,
        remarks: Vec::new(),
        functions: Vec::new(),
        live: Live::default(),
        expect: None,
        project: true,
        remote_inputs: Vec::new(),
    };
    let mut live = Vec::new();
    for settings in files.settings {
        let content = read_json(&settings)?;
        match text(&content, "ScriptType").unwrap_or_default() {
            "JobConfig" => job_settings(&settings, &content, &mut job)?,
            "InputMock" => job.inputs.push(local_input(&settings, &content)?),
            "Input" => live.push(content),
            "JSFunction" | "JSUDF" | "JSUDA" => add_function(&mut job, &settings, &content),
            _ => {}
        }
    }
    add_scripts(&mut job, folder);
    Ok((job, live))
}

/// A function with settings. Its script `F.js` is beside `F.js.json` or `F.json`.
fn add_function(job: &mut JobFile, settings: &Path, content: &Json) {
    let stem = settings.file_stem().unwrap_or_default().to_string_lossy();
    let stem = stem.strip_suffix(".js").unwrap_or(&stem);
    let path = settings.with_file_name(format!("{stem}.js"));
    let name = text(content, "Name").unwrap_or(stem).to_owned();
    match path.is_file() {
        true => job.functions.push(Function { name, path }),
        false => job.remarks.push(format!(
            "the function {name} has no script {}; the query cannot call it",
            path.display()
        )),
    }
}

/// The scripts in the folder `Functions` without settings; a function is called by the name of its file.
fn add_scripts(job: &mut JobFile, folder: &Path) {
    for path in disk::list(folder.join("Functions")).unwrap_or_default() {
        let is_script = path.is_file() && path.extension().is_some_and(|e| e == "js");
        let known = job.functions.iter().any(|function| function.path == path);
        if let (true, false, Some(stem)) = (is_script, known, path.file_stem()) {
            let name = stem.to_string_lossy().into_owned();
            job.functions.push(Function { name, path });
        }
    }
}

/// Live inputs without a local one: the query can be checked against them, and run only with local files.
fn add_live_inputs(job: &mut JobFile, live: &[Json]) {
    let query = match &job.query {
        QuerySource::File(path) => disk::read_to_string(path).unwrap_or_default(),
        QuerySource::Inline(text) => text.clone(),
    };
    let query = query.to_lowercase();
    for input in live {
        let Some(name) = text(input, "Name").or(text(input, "InputAlias")) else {
            continue;
        };
        if job.inputs.iter().any(|i| i.name.eq_ignore_ascii_case(name)) {
            continue;
        }
        let kind = text(input, "DataSourceType").unwrap_or("live source");
        if !query.contains(&name.to_lowercase()) {
            job.remarks
                .push(format!("the input {name} is a live {kind} and is ignored"));
            continue;
        }
        job.remote_inputs.push(RemoteInput {
            name: name.to_owned(),
            kind: kind.to_owned(),
        });
        job.inputs.push(Input {
            name: name.to_owned(),
            paths: Vec::new(),
            hubs: Vec::new(),
            kafka: None,
            arrival: None,
            partition: None,
            reference: is_reference(input),
            refresh: None,
            format: None,
            compression: Compression::ByName,
        });
    }
}

/// `Reference data`, as opposed to `Data stream`.
fn is_reference(input: &Json) -> bool {
    let kind = text(input, "Type").unwrap_or_default();
    kind.to_ascii_lowercase().starts_with("reference")
}

/// The files of a project of Visual Studio Code.
fn code_files(file: &Path, folder: &Path) -> Result<ProjectFiles, LoadError> {
    let project = read_json(file)?;
    let name = text(&project, "name").map(str::to_owned);
    Ok(ProjectFiles {
        name: name.unwrap_or_else(|| folder_name(folder)),
        query: match text(&project, "startFile") {
            Some(start) => path_in(folder, start),
            None => single_query(file, folder)?,
        },
        settings: settings_files(&project, folder),
    })
}

/// The files of a project of Visual Studio.
fn msbuild_files(file: &Path, folder: &Path) -> Result<ProjectFiles, LoadError> {
    let content = read_text(file)?;
    let included = msbuild::included_files(&content);
    let included = included.iter().map(|path| path_in(folder, path));
    let has = |path: &Path, extension: &str| {
        path.extension()
            .is_some_and(|of| of.eq_ignore_ascii_case(extension))
    };
    let mut queries = included.clone().filter(|path| has(path, "asaql"));
    let usual = folder.join(MSBUILD_QUERY);
    let query = match (queries.next(), usual.is_file()) {
        (Some(query), _) => query,
        (None, true) => usual,
        (None, false) => single_query(file, folder)?,
    };
    let settings = included.filter(|path| has(path, "json") && path.is_file());
    let mut settings: Vec<PathBuf> = settings.collect();
    if settings.is_empty() {
        settings = usual_settings(folder);
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    Ok(ProjectFiles {
        name: stem.into_owned(),
        query,
        settings,
    })
}

/// The settings files of the project, or those in the usual folders if it lists none.
fn settings_files(project: &Json, folder: &Path) -> Vec<PathBuf> {
    let listed = project.get("configurations").and_then(Json::as_array);
    let listed = listed.into_iter().flatten();
    let listed: Vec<PathBuf> = listed
        .filter_map(|entry| text(entry, "filePath"))
        .map(|path| path_in(folder, path))
        .collect();
    match listed.is_empty() {
        true => usual_settings(folder),
        false => listed,
    }
}

fn usual_settings(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.join("JobConfig.json")];
    for sub in ["Inputs", "Functions"] {
        found.extend(disk::list(folder.join(sub)).unwrap_or_default());
    }
    found.retain(|path| path.is_file() && path.extension().is_some_and(|e| e == "json"));
    found
}

fn single_query(file: &Path, folder: &Path) -> Result<PathBuf, LoadError> {
    let listed = disk::list(folder).unwrap_or_default();
    let mut queries = listed
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "asaql"));
    match (queries.next(), queries.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(project_error(
            file,
            "it has no startFile, and its folder does not hold exactly one .asaql file".into(),
        )),
    }
}

fn job_settings(file: &Path, settings: &Json, job: &mut JobFile) -> Result<(), LoadError> {
    let seconds = |key: &str| number(settings, key);
    job.time.late_arrival = match seconds("EventsLateArrivalMaxDelayInSeconds") {
        Some(seconds) if seconds >= 0 => Duration::from_secs(seconds),
        // -1 and no value both mean no limit.
        _ => UNLIMITED,
    };
    if let Some(seconds) = seconds("EventsOutOfOrderMaxDelayInSeconds") {
        job.time.out_of_order = Duration::from_secs(seconds.max(0));
    }
    let action = match text(settings, "EventsOutOfOrderPolicy") {
        Some(policy) if policy.eq_ignore_ascii_case("drop") => ViolationAction::Drop,
        _ => ViolationAction::Adjust,
    };
    job.time.late_events = action;
    job.time.out_of_order_events = action;
    job.compatibility = match text(settings, "CompatibilityLevel") {
        Some("1.0") => Level::V1_0,
        Some("1.1") => Level::V1_1,
        Some("1.2") | None => Level::V1_2,
        Some(other) => {
            return Err(project_error(
                file,
                format!("unknown compatibility level {other:?}; 1.0, 1.1 and 1.2 are supported"),
            ));
        }
    };
    Ok(())
}

/// An input with a local file. Older projects have `InputAlias` and `Format`, newer ones `Name` and `Serialization`.
fn local_input(file: &Path, settings: &Json) -> Result<Input, LoadError> {
    let missing = |key: &str| project_error(file, format!("it has no {key}"));
    let name = text(settings, "Name").or(text(settings, "InputAlias"));
    let name = name.ok_or_else(|| missing("Name"))?;
    let path = text(settings, "FilePath").ok_or_else(|| missing("FilePath"))?;
    let path = path_in(file.parent().unwrap_or(Path::new("")), path);
    let form = settings.get("Serialization").unwrap_or(settings);
    let format = text(form, "Type").filter(|_| settings.get("Serialization").is_some());
    let format = format.or(text(settings, "Format")).unwrap_or("Json");
    let format = match &format.to_ascii_lowercase()[..] {
        "json" => Format::Json,
        "csv" => Format::Csv(csv_format(form)),
        "avro" => Format::Avro,
        "parquet" => Format::Parquet,
        _ => {
            return Err(project_error(
                file,
                format!("unsupported format {format}; Json, Csv, Avro and Parquet are supported"),
            ));
        }
    };
    let compression = match text(settings, "CompressionType").unwrap_or_default() {
        "GZip" => Compression::Gzip,
        "Deflate" => Compression::Deflate,
        _ => Compression::ByName,
    };
    Ok(Input {
        name: name.to_owned(),
        paths: vec![path],
        hubs: Vec::new(),
        kafka: None,
        arrival: None,
        partition: None,
        reference: is_reference(settings),
        refresh: None,
        format: Some(format),
        compression,
    })
}

fn csv_format(form: &Json) -> CsvFormat {
    let delimiter = text(form, "FieldDelimiter").or(text(form, "Delimiter"));
    let delimiter = match delimiter {
        Some("\\t" | "tab" | "Tab") => b'\t',
        Some(delimiter) if is_delimiter(delimiter) => delimiter.as_bytes()[0],
        _ => b',',
    };
    CsvFormat {
        delimiter,
        ..CsvFormat::default()
    }
}

/// The cases of a test configuration, without their project.
pub fn test_cases(file: &Path) -> Result<Vec<TestCase>, LoadError> {
    let config = read_json(file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let list = |from: &Json, key: &str| {
        let list = from.get(key).and_then(Json::as_array);
        list.cloned().unwrap_or_default()
    };
    let mut cases = Vec::new();
    for (i, case) in list(&config, "TestCases").iter().enumerate() {
        let name = text(case, "Name").map_or_else(|| format!("case {}", i + 1), str::to_owned);
        let inputs = list(case, "Inputs");
        let inputs = inputs.iter().map(|input| local_input(file, input));
        let mut expected = Vec::new();
        for output in list(case, "ExpectedOutputs") {
            let alias = text(&output, "OutputAlias");
            let alias =
                alias.ok_or_else(|| project_error(file, "an output has no OutputAlias".into()))?;
            let required = output.get("Required").and_then(Json::as_bool);
            expected.push(ExpectedOutput {
                output: alias.to_owned(),
                file: path_in(folder, text(&output, "FilePath").unwrap_or_default()),
                required: required.unwrap_or(true),
            });
        }
        cases.push(TestCase {
            name,
            inputs: inputs.collect::<Result<_, _>>()?,
            expected,
        });
    }
    Ok(cases)
}

/// The job of a test case: that of its project with the inputs of the case.
pub fn test_job(file: &Path, case: &TestCase) -> Result<JobFile, LoadError> {
    let config = read_json(file)?;
    let project = find_project(file, text(&config, "Script")).ok_or_else(|| {
        project_error(
            file,
            "there is no project in its folder or one above".to_owned(),
        )
    })?;
    let (mut job, live) = import(&project)?;
    for input in &case.inputs {
        job.inputs
            .retain(|known| !known.name.eq_ignore_ascii_case(&input.name));
        job.inputs.push(input.clone());
    }
    add_live_inputs(&mut job, &live);
    Ok(job.in_event_order())
}

/// The project of a test configuration: that of its script, or the nearest in the folders above.
fn find_project(file: &Path, script: Option<&str>) -> Option<PathBuf> {
    let folder = file.parent()?;
    let of_script = script.map(|script| path_in(folder, script));
    let of_script = of_script.and_then(|script| find_in(script.parent()?));
    of_script.or_else(|| folder.ancestors().find_map(find_in))
}

fn read_text(file: &Path) -> Result<String, LoadError> {
    disk::read_to_string(file).map_err(|source| LoadError::Read {
        file: file.to_path_buf(),
        source,
    })
}

fn read_json(file: &Path) -> Result<Json, LoadError> {
    let content = read_text(file)?;
    let content = content.strip_prefix('\u{feff}').unwrap_or(&content);
    serde_json::from_str(content)
        .map_err(|error| project_error(file, format!("it is not valid JSON: {error}")))
}

fn project_error(file: &Path, reason: String) -> LoadError {
    LoadError::Project {
        file: file.to_path_buf(),
        reason,
    }
}

fn text<'a>(from: &'a Json, key: &str) -> Option<&'a str> {
    let found = from.get(key).and_then(Json::as_str);
    found.filter(|text| !text.is_empty())
}

/// A number, which may be written as text.
fn number(from: &Json, key: &str) -> Option<i64> {
    match from.get(key)? {
        Json::Number(number) => number.as_i64(),
        Json::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Paths of projects from Windows have backslashes.
fn path_in(folder: &Path, path: &str) -> PathBuf {
    folder.join(path.replace('\\', "/"))
}

fn folder_name(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy());
    name.map_or_else(|| "job".to_owned(), std::borrow::Cow::into_owned)
}
