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
use crate::project::{self, PROJECT_FILE};
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

/// The job file that `path` names: the file itself, or `job.toml` in that folder, or the
/// `asaproj.json` of a Stream Analytics project there.
pub fn job_file_of(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_path_buf();
    }
    let (job, project) = (path.join("job.toml"), path.join(PROJECT_FILE));
    match project.is_file() && !job.is_file() {
        true => project,
        false => job,
    }
}

impl JobFile {
    /// Reads the job file at `path`, which may be the folder that holds it.
    pub fn load(path: &Path) -> Result<JobFile, LoadError> {
        let file = job_file_of(path);
        if file
            .extension()
            .is_some_and(|extension| extension == "json")
        {
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
    /// Refuses files, outputs and secrets beyond `access`, before any of them is read. The files of the job's own folder
    /// came with it.
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
        }
        for output in &self.outputs {
            let part = format!("output \"{}\"", output.name);
            let checked = output.settings.check(&own, &self.folder);
            checked.map_err(refused(part))?;
        }
        Ok(())
    }
}

impl Job {
    pub fn load(path: &Path) -> Result<Job, LoadError> {
        Job::new(JobFile::load(path)?)
    }

    /// Why the job needs a node; `None` if it reads and writes only files.
    pub fn needs_a_node(&self) -> Option<String> {
        let mut inputs = self.file.inputs.iter();
        let hub = inputs.find(|input| !input.hubs.is_empty());
        let hub = hub.map(|input| format!("input \"{}\" reads a hub", input.name));
        let mut outputs = self.file.outputs.iter();
        hub.or_else(|| {
            let live =
                outputs.find(|output| output.settings.sink_target(&self.file.folder).is_none());
            live.map(|output| format!("output \"{}\" is no file", output.name))
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
        })
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
