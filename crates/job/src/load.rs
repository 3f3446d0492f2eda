//! Loads a job: reads the job file, compiles the query and checks them against each other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_connect::{Format, Level, MissingFeature, OutsideAccess};
use highwater_engine::{PhysicalPlan, PhysicalPlanError, ScriptError, Scripts};
use highwater_env::disk;
use highwater_query::plan::Plan;
use highwater_query::{Catalog, CatalogInput, Diagnostic, compile};
use highwater_settings::FileError;

use crate::config::{FilesError, Input, JobFile, OnError, OnFailure, Output, QuerySource};
use crate::early::{EarlyError, EarlyPlan};
use crate::project;
use crate::reference;

/// A job file and its query, compiled and laid out.
#[derive(Debug)]
pub struct Job {
    /// Paths are resolved.
    pub file: JobFile,
    /// The name of the query in error messages.
    pub query_name: String,
    pub query: String,
    pub plan: Arc<Plan>,
    pub physical: PhysicalPlan,
    /// The job's JavaScript functions.
    pub scripts: Arc<Scripts>,
    pub warnings: Vec<Diagnostic>,
    /// Set if an output has early results.
    pub(crate) early: Option<Arc<EarlyPlan>>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {}: {source}", file.display())]
    Read {
        file: PathBuf,
        source: std::io::Error,
    },
    #[error("{0}")]
    Config(#[from] FileError),
    #[error("{rendered}")]
    Query {
        rendered: String,
        name: String,
        text: String,
        diagnostics: Vec<Diagnostic>,
    },
    #[error("error: {0}")]
    Script(#[from] ScriptError),
    #[error("error: {0}")]
    PhysicalPlan(#[from] PhysicalPlanError),
    #[error("error: the format of input \"{input}\": {missing}")]
    InputFormat {
        input: String,
        missing: MissingFeature,
    },
    #[error(
        "error: input \"{input}\" has a partition column and {files} files; \
         name one file, or leave the column out and let each file be a partition"
    )]
    PartitionedFiles { input: String, files: usize },
    #[error("error: {0}")]
    Files(#[from] FilesError),
    #[error("error: {0}")]
    Early(#[from] EarlyError),
    #[error("error: {part} of the job: {reason}")]
    Access { part: String, reason: String },
    #[error("error: {}: {reason}", file.display())]
    Project { file: PathBuf, reason: String },
    #[error(
        "error: the query writes rows to \"{output}\", which is the output for dead letters; \
         give dead letters an output of their own"
    )]
    DeadLetterOutput { output: String },
    #[error(
        "error: output \"{output}\" writes refused rows to the output for dead letters, and there is none; \
         set on_error = \"dead_letter\" and dead_letter = \"..\" in [errors]"
    )]
    NoDeadLetterOutput { output: String },
}

/// The job file that `path` names: the file itself, or `job.toml` in that folder, or a Stream Analytics project there.
pub fn job_file_of(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_path_buf();
    }
    let job = path.join("job.toml");
    match job.is_file() {
        true => job,
        false => project::find_in(path).unwrap_or(job),
    }
}

impl JobFile {
    /// Reads the job file at `path`, which may be the folder that holds it.
    pub fn load(path: &Path) -> Result<JobFile, LoadError> {
        let file = job_file_of(path);
        if project::is_project(&file) {
            return project::load(&file);
        }
        let text = read(&file)?;
        let job = JobFile::parse(&text, &file.display().to_string())?;
        Ok(job.resolve(file.parent().unwrap_or(Path::new(""))))
    }

    /// The input that the query calls `name`.
    pub fn input(&self, name: &str) -> Option<&Input> {
        let exact = self.inputs.iter().find(|input| input.name == name);
        exact.or_else(|| {
            self.inputs
                .iter()
                .find(|input| input.name.eq_ignore_ascii_case(name))
        })
    }

    /// The output that the query calls `name`.
    pub(crate) fn output(&self, name: &str) -> Option<&Output> {
        let mut outputs = self.outputs.iter();
        outputs.find(|output| output.name.eq_ignore_ascii_case(name))
    }
}

impl JobFile {
    /// Refuses files, outputs and secrets beyond `access`, before any of them is read. The files of the job's own
    /// folder came with it.
    pub fn check_access(&self, access: &OutsideAccess) -> Result<(), LoadError> {
        let own = OutsideAccess {
            folders: access.folders.with(&self.folder),
            ..access.clone()
        };
        let refused = |part: String| move |reason| LoadError::Access { part, reason };
        if let QuerySource::File(path) = &self.query {
            let checked = own.check_path(path);
            checked.map_err(refused("the query".to_owned()))?;
        }
        for function in &self.functions {
            let part = format!("function \"{}\"", function.name);
            own.check_path(&function.path).map_err(refused(part))?;
        }
        for input in &self.inputs {
            for path in &input.paths {
                let part = format!("input \"{}\"", input.name);
                let checked = own.check_path(&reference::fixed_folder(path));
                checked.map_err(refused(part))?;
            }
            if let Some(kafka) = &input.kafka {
                let part = format!("input \"{}\"", input.name);
                let checked = kafka.cluster.check(&own, &self.folder);
                checked.map_err(refused(part))?;
            }
        }
        for output in &self.outputs {
            let part = format!("output \"{}\"", output.name);
            let checked = output.settings.check(&own, &self.folder);
            checked.map_err(refused(part))?;
        }
        if let Some(state) = &self.live.state {
            let checked = state.store.check(access, &self.folder);
            checked.map_err(refused("the state".to_owned()))?;
        }
        Ok(())
    }
}

impl Job {
    /// Loads a job for a run here. The local files of a project are read in order of event time.
    pub fn load(path: &Path) -> Result<Job, LoadError> {
        Job::new(JobFile::load(path)?.in_event_order())
    }

    /// The same job with another plan of its query, and without early results.
    pub(crate) fn with_plan(&self, plan: Plan) -> Result<Job, PhysicalPlanError> {
        let plan = Arc::new(plan);
        let physical = PhysicalPlan::new(plan.clone())?.with_scripts(self.scripts.clone());
        Ok(Job {
            file: self.file.clone(),
            query_name: self.query_name.clone(),
            query: self.query.clone(),
            plan,
            physical,
            scripts: self.scripts.clone(),
            warnings: Vec::new(),
            early: None,
        })
    }

    /// Why the job cannot run to the end of its inputs outside a node, and the remedy; `None` if it reads and
    /// writes only files.
    pub(crate) fn local_obstacle(&self) -> Option<String> {
        let inputs = self.plan.inputs.iter().map(|input| &input.name);
        let tables = self.plan.references.iter().map(|table| &table.name);
        let mut read = inputs.chain(tables);
        let remote = |name: &String| {
            let mut remote = self.file.remote_inputs.iter();
            remote.find(|remote| remote.name.eq_ignore_ascii_case(name))
        };
        if let Some(remote) = read.find_map(remote) {
            let (name, kind) = (&remote.name, &remote.kind);
            return Some(format!(
                "the input {name} is a live {kind}; add a local input Inputs/Local_{name}.json with a \
                 FilePath"
            ));
        }
        let mut inputs = self.file.inputs.iter();
        if let Some(input) = inputs.find(|input| !input.hubs.is_empty()) {
            if input.kafka.is_some() {
                return Some(format!(
                    "input \"{}\" reads a Kafka topic; start the job on a node",
                    input.name
                ));
            }
            return Some(format!(
                "input \"{}\" reads a hub; start the job on a node, or run it with --data over the \
                 folder of one that is stopped",
                input.name
            ));
        }
        let mut outputs = self.file.outputs.iter();
        let live = outputs.find(|output| output.settings.sink_target(&self.file.folder).is_none());
        live.map(|output| {
            let name = &output.name;
            format!(
                "output \"{name}\" is no single file, and only a node writes it; start the job on a node, or \
                 give the output type = \"file\" and path = \"{name}.jsonl\" for a run here"
            )
        })
    }

    pub fn new(file: JobFile) -> Result<Job, LoadError> {
        let (query_name, query) = match &file.query {
            QuerySource::File(path) => (path.display().to_string(), read(path)?),
            QuerySource::Inline(text) => ("query".to_string(), text.clone()),
        };
        let catalog = Catalog {
            inputs: file
                .inputs
                .iter()
                .map(|i| CatalogInput {
                    name: i.name.clone(),
                    reference: i.reference,
                })
                .collect(),
            outputs: named_outputs(&file),
            without_geo: !highwater_engine::HAS_GEO,
            functions: Some(file.functions.iter().map(|f| f.name.clone()).collect()),
            ignore_case: file.ignore_case,
            strict_types: file.strict_types,
            older_level: match file.compatibility {
                Level::V1_0 => Some("1.0"),
                Level::V1_1 => Some("1.1"),
                Level::V1_2 => None,
            },
            ..Catalog::default()
        };
        let compiled = compile(&query, &catalog).map_err(|diagnostics| LoadError::Query {
            rendered: render(&diagnostics, &query, &query_name),
            name: query_name.clone(),
            text: query.clone(),
            diagnostics,
        })?;
        check_formats(&file)?;
        let plan = Arc::new(compiled.plan);
        let scripts = scripts(&file)?;
        let physical = PhysicalPlan::new(plan.clone())?.with_scripts(scripts.clone());
        if let (OnError::DeadLetter, Some(dead)) = (file.on_error, &file.dead_letter)
            && plan
                .outputs
                .iter()
                .any(|o| o.name.eq_ignore_ascii_case(dead))
        {
            let output = dead.clone();
            return Err(LoadError::DeadLetterOutput { output });
        }
        let early = EarlyPlan::of(&file, &plan)?.map(Arc::new);
        let mut outputs = file.outputs.iter();
        let refused = outputs.find(|output| output.on_failure == OnFailure::DeadLetter);
        if let (Some(output), None) = (refused, &file.dead_letter) {
            let output = output.name.clone();
            return Err(LoadError::NoDeadLetterOutput { output });
        }
        for (index, input) in plan.inputs.iter().enumerate() {
            let declared = file.input(&input.name);
            let files = declared.filter(|input| !input.is_followed());
            let files = files.map_or(1, |input| input.files().map_or(1, |files| files.len()));
            let by_column = declared.is_some_and(|input| input.partition.is_some());
            physical.check_partitions(index, files > 1 || by_column)?;
        }
        Ok(Job {
            file,
            query_name,
            query,
            plan,
            physical,
            scripts,
            warnings: compiled.warnings,
            early,
        })
    }

    /// A line for each statement whose output has early results.
    pub fn early_results(&self) -> Vec<String> {
        let early = self.early.as_ref();
        early.map_or_else(Vec::new, |early| early.describe(&self.plan))
    }
}

/// The outputs that INTO may name; `None` if only those for dead letters and late events are declared, and rows go to
/// standard output.
fn named_outputs(file: &JobFile) -> Option<Vec<String>> {
    let own = [&file.dead_letter, &file.live.late];
    let is_own = |name: &String| {
        own.into_iter()
            .flatten()
            .any(|own| own.eq_ignore_ascii_case(name))
    };
    let names: Vec<String> = file.outputs.iter().map(|o| o.name.clone()).collect();
    (!names.iter().all(is_own)).then_some(names)
}

fn check_formats(file: &JobFile) -> Result<(), LoadError> {
    for input in &file.inputs {
        let by_name = || input.paths.first().map(|path| Format::of_name(path));
        let format = input.format.or_else(by_name).unwrap_or(Format::Json);
        let missing = |missing| LoadError::InputFormat {
            input: input.name.clone(),
            missing,
        };
        format.check_built_in().map_err(missing)?;
    }
    Ok(())
}

fn scripts(file: &JobFile) -> Result<Arc<Scripts>, LoadError> {
    let sources: Result<Vec<_>, LoadError> = file
        .functions
        .iter()
        .map(|function| Ok((function.name.clone(), read(&function.path)?)))
        .collect();
    Ok(Scripts::new(sources?)?)
}

pub fn render(diagnostics: &[Diagnostic], query: &str, name: &str) -> String {
    let rendered: Vec<String> = diagnostics.iter().map(|d| d.render(query, name)).collect();
    rendered.join("\n")
}

fn read(file: &Path) -> Result<String, LoadError> {
    disk::read_to_string(file).map_err(|source| LoadError::Read {
        file: file.to_path_buf(),
        source,
    })
}
