//! The jobs of a node: which there are, which of them run, and how they are told to.
//!
//! A job is in the settings, which name its folder, or was handed over and is kept below the node's data. A job that ran
//! when the node went down runs again when it comes back, and goes on where it was.

mod at_rest;
mod definition;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_env::{Clock, RealDisk};
use highwater_job::config::{JobFile, Start};
use highwater_job::live::{
    self, Checkpoints, DeclaredEndpoints, DiskCheckpoints, FollowError, Handle, JobContext,
    JobStatus,
};
use highwater_job::{Job, LoadError};
use highwater_log::{HubName, Log, TransactionCoordinator};
use highwater_queue::Queues;

pub use at_rest::{AtRestError, run_at_rest};
pub use definition::Files;
use definition::{Home, Wanted};

use crate::sharded::Sharded;

/// A job of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    /// Its job file, or the folder that holds it.
    pub path: PathBuf,
}

/// Why a job was not changed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("there is no job `{0}`")]
    Unknown(String),
    #[error("`{0}` cannot name a job: use letters, digits, dots, dashes and underscores")]
    Name(String),
    #[error("`{0}` is a path that leads out of the job's folder, or nowhere")]
    Path(String),
    #[error("job `{0}` is in the settings of the node, which say what it is")]
    Declared(String),
    #[error("job `{0}` runs")]
    Running(String),
    #[error("`{0}` is no start")]
    Start(String),
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Follow(#[from] FollowError),
    #[error(
        "input \"{input}\" reads {path}, which is a place in the job's folder and not on the machine of the node"
    )]
    NotOnNode { input: String, path: String },
    #[error("the job could not be stored: {0}")]
    Storage(#[from] std::io::Error),
}

/// What jobs are given to work with.
#[derive(Clone)]
pub struct Around {
    pub log: Arc<dyn Log>,
    pub transactions: Arc<dyn TransactionCoordinator>,
    pub queues: Queues,
    pub clock: Arc<dyn Clock>,
    /// Names that lead to several hubs.
    pub sharded: Arc<[Sharded]>,
    /// Threads for the partitions of one job.
    pub threads: usize,
}

/// All jobs of a node.
#[derive(Clone)]
pub struct Jobs(Arc<Inner>);

struct Inner {
    around: Around,
    folder: PathBuf,
    jobs: Mutex<BTreeMap<String, Arc<Entry>>>,
}

struct Entry {
    name: String,
    home: Home,
    /// Where the settings say it is.
    declared: Option<PathBuf>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    now: Mutex<Now>,
}

#[derive(Clone, Default)]
struct Now {
    handle: Option<Arc<Handle>>,
    query: String,
    /// Why it cannot be run at all.
    trouble: Option<String>,
}

/// A job as it is now.
pub struct Seen {
    pub name: String,
    pub declared: bool,
    pub query: String,
    /// `None` if it was not started since the node was.
    pub status: Option<JobStatus>,
    pub trouble: Option<String>,
}

impl Jobs {
    /// The jobs that are kept in `folder` and those of the settings. None runs yet.
    pub fn open(
        around: Around,
        folder: PathBuf,
        declared: Vec<Declared>,
    ) -> Result<Jobs, std::io::Error> {
        let mut jobs = BTreeMap::new();
        let mut add = |name: String, declared: Option<PathBuf>| {
            let entry = Entry {
                home: Home::new(&folder, &name),
                name: name.clone(),
                declared,
                changing: tokio::sync::Mutex::default(),
                now: Mutex::default(),
            };
            jobs.insert(name, Arc::new(entry));
        };
        for name in definition::names(&folder)? {
            add(name, None);
        }
        for job in declared {
            add(job.name, Some(job.path));
        }
        Ok(Jobs(Arc::new(Inner {
            around,
            folder,
            jobs: Mutex::new(jobs),
        })))
    }

    /// Starts every job that is wanted to run. One that cannot be is no reason not to start the others.
    pub async fn start_wanted(&self) {
        for entry in self.entries() {
            let _one = entry.changing.lock().await;
            let wanted = match entry.home.wanted() {
                Ok(wanted) => wanted,
                Err(error) => {
                    entry.note_trouble(format!("what is wanted of it cannot be read: {error}"));
                    continue;
                }
            };
            let runs = wanted
                .as_ref()
                .map_or(entry.declared.is_some(), |w| w.running);
            let start = wanted.and_then(|wanted| wanted.start);
            if let Err(error) = self.run(&entry, start.as_deref(), runs, false).await {
                tracing::error!(job = entry.name, %error, "a job cannot be run");
                entry.note_trouble(error.to_string());
            }
        }
    }

    pub fn list(&self) -> Vec<Seen> {
        self.entries().iter().map(|entry| entry.seen()).collect()
    }

    pub fn see(&self, name: &str) -> Result<Seen, JobError> {
        Ok(self.entry(name)?.seen())
    }

    /// Takes a job, or a new version of one, and starts it. A job that runs is stopped first; if the new version cannot be
    /// run, the old one stays what it was and runs on.
    pub async fn put(
        &self,
        name: &str,
        files: Files,
        start: Option<String>,
    ) -> Result<Seen, JobError> {
        let named = HubName::new(name).is_ok_and(|name| !name.is_internal());
        if !named {
            return Err(JobError::Name(name.to_owned()));
        }
        if let Some(path) = files.strange_path() {
            return Err(JobError::Path(path.to_owned()));
        }
        let entry = self.entry_or_new(name);
        let _one = entry.changing.lock().await;
        if entry.declared.is_some() {
            return Err(JobError::Declared(name.to_owned()));
        }
        let kept = self.keep(&entry, &files);
        let (number, job) = match kept {
            Ok(kept) => kept,
            Err(error) => {
                self.drop_if_empty(&entry);
                return Err(error);
            }
        };
        entry.stop().await;
        entry.home.want(&Wanted {
            definition: Some(number),
            running: true,
            start: start.clone(),
        })?;
        entry.home.keep_only(number);
        self.launch(&entry, job, start.as_deref(), true)?;
        Ok(entry.seen())
    }

    /// Writes a definition down and sees whether it can be run.
    fn keep(&self, entry: &Entry, files: &Files) -> Result<(u64, Job), JobError> {
        let before = entry.home.wanted()?.and_then(|wanted| wanted.definition);
        let number = before.map_or(1, |number| number + 1);
        let folder = entry.home.keep(number, files)?;
        let loaded = self.0.around.load(&entry.name, folder);
        let runnable = loaded.and_then(on_this_machine);
        if runnable.is_err() {
            entry.home.keep_only(before.unwrap_or(0));
        }
        Ok((number, runnable?))
    }

    fn drop_if_empty(&self, entry: &Entry) {
        if let Ok(None) = entry.home.wanted() {
            let _ = entry.home.forget();
            self.lock().remove(&entry.name);
        }
    }

    /// Starts a job that is there. `start` beats what it would do by itself, which is to go on where it stopped.
    pub async fn start(&self, name: &str, start: Option<String>) -> Result<Seen, JobError> {
        let entry = self.entry(name)?;
        let _one = entry.changing.lock().await;
        if entry.runs() {
            return Err(JobError::Running(name.to_owned()));
        }
        if let Some(text) = &start {
            Start::parse(text).ok_or_else(|| JobError::Start(text.clone()))?;
        }
        self.run(&entry, start.as_deref(), true, start.is_some())
            .await?;
        let definition = entry.home.wanted()?.and_then(|wanted| wanted.definition);
        entry.home.want(&Wanted {
            definition,
            running: true,
            start,
        })?;
        Ok(entry.seen())
    }

    /// Stops a job, which saves its state; it stays stopped until it is started.
    pub async fn stop(&self, name: &str) -> Result<Seen, JobError> {
        let entry = self.entry(name)?;
        let _one = entry.changing.lock().await;
        let wanted = entry.home.wanted()?;
        entry.home.want(&Wanted {
            definition: wanted.as_ref().and_then(|wanted| wanted.definition),
            running: false,
            start: None,
        })?;
        entry.stop().await;
        Ok(entry.seen())
    }

    /// Stops a job and forgets it and its state.
    pub async fn delete(&self, name: &str) -> Result<(), JobError> {
        let entry = self.entry(name)?;
        let _one = entry.changing.lock().await;
        if entry.declared.is_some() {
            return Err(JobError::Declared(name.to_owned()));
        }
        entry.stop().await;
        let forgotten = live::forget_files(name, &*self.0.around.log).await;
        forgotten.map_err(|error| JobError::Storage(std::io::Error::other(error)))?;
        entry.home.forget()?;
        self.lock().remove(name);
        Ok(())
    }

    /// Stops all of them, which saves their state; they run again when the node does.
    pub async fn stop_all(&self) {
        let entries = self.entries();
        let stops = entries.iter().map(|entry| entry.stop());
        futures_util::future::join_all(stops).await;
    }

    async fn run(
        &self,
        entry: &Entry,
        start: Option<&str>,
        runs: bool,
        afresh: bool,
    ) -> Result<(), JobError> {
        let path = match (&entry.declared, entry.home.wanted()?) {
            (Some(path), _) => path.clone(),
            (
                None,
                Some(Wanted {
                    definition: Some(number),
                    ..
                }),
            ) => entry.home.definition(number),
            (None, _) => return Err(JobError::Unknown(entry.name.clone())),
        };
        let (name, around) = (entry.name.clone(), self.0.around.clone());
        let loaded = tokio::task::spawn_blocking(move || around.load(&name, path)).await;
        let job = match loaded {
            Ok(loaded) => loaded?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        if !runs {
            entry.lock().query = job.query;
            return Ok(());
        }
        self.launch(entry, job, start, afresh)
    }

    fn launch(
        &self,
        entry: &Entry,
        job: Job,
        start: Option<&str>,
        afresh: bool,
    ) -> Result<(), JobError> {
        let around = &self.0.around;
        let checkpoints = DiskCheckpoints::new(Arc::new(RealDisk), entry.home.checkpoints());
        let has_run = !checkpoints.list()?.is_empty();
        let parse = |text: &str| Start::parse(text).ok_or_else(|| JobError::Start(text.to_owned()));
        let start = match start {
            Some(text) if afresh || !has_run => Some(parse(text)?),
            _ if has_run => Some(Start::Resume),
            _ => None,
        };
        let site = JobContext {
            log: around.log.clone(),
            clock: around.clock.clone(),
            checkpoints: Arc::new(checkpoints),
            endpoints: Arc::new(DeclaredEndpoints {
                hubs: Some((around.log.clone(), around.transactions.clone())),
                queues: Some(around.queues.clone()),
                disk: Arc::new(RealDisk),
            }),
        };
        let options = live::Options {
            start,
            ..live::Options::of(&job, around.threads)
        };
        let query = job.query.clone();
        let handle = live::start(Arc::new(job), site, options);
        *entry.lock() = Now {
            handle: Some(Arc::new(handle)),
            query,
            trouble: None,
        };
        Ok(())
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.lock().values().cloned().collect()
    }

    fn entry(&self, name: &str) -> Result<Arc<Entry>, JobError> {
        let found = self.lock().get(name).cloned();
        found.ok_or_else(|| JobError::Unknown(name.to_owned()))
    }

    fn entry_or_new(&self, name: &str) -> Arc<Entry> {
        let new = || {
            Arc::new(Entry {
                name: name.to_owned(),
                home: Home::new(&self.0.folder, name),
                declared: None,
                changing: tokio::sync::Mutex::default(),
                now: Mutex::default(),
            })
        };
        self.lock()
            .entry(name.to_owned())
            .or_insert_with(new)
            .clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Entry>>> {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn seen(&self) -> Seen {
        let now = self.lock().clone();
        Seen {
            name: self.name.clone(),
            declared: self.declared.is_some(),
            query: now.query,
            status: now.handle.map(|handle| handle.status()),
            trouble: now.trouble,
        }
    }

    fn runs(&self) -> bool {
        let handle = self.lock().handle.clone();
        handle.is_some_and(|handle| !handle.status().state.is_over())
    }

    async fn stop(&self) {
        let handle = self.lock().handle.clone();
        if let Some(handle) = handle {
            handle.stop().await;
        }
    }

    fn note_trouble(&self, trouble: String) {
        self.lock().trouble = Some(trouble);
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that was handed over has no files beside it but those that came with it, so what it follows must be elsewhere.
fn on_this_machine(job: Job) -> Result<Job, JobError> {
    let folder = &job.file.folder;
    let followed = job.file.inputs.iter().filter(|input| input.is_followed());
    let mut paths = followed.flat_map(|input| input.paths.iter().map(move |path| (input, path)));
    match paths.find(|(_, path)| path.starts_with(folder)) {
        Some((input, path)) => Err(JobError::NotOnNode {
            input: input.name.clone(),
            path: path
                .strip_prefix(folder)
                .unwrap_or(path)
                .display()
                .to_string(),
        }),
        None => Ok(job),
    }
}

impl Around {
    /// A job goes by the name that the node has for it, because its outputs know it by that. A name that leads to several
    /// hubs is read as all of them, and files are followed.
    fn load(&self, name: &str, path: PathBuf) -> Result<Job, JobError> {
        let mut file = JobFile::load(&path)?;
        file.name = name.to_owned();
        file.follow_files()?;
        for input in &mut file.inputs {
            let hubs = std::mem::take(&mut input.hubs).into_iter();
            input.hubs = hubs.flat_map(|hub| self.behind(hub)).collect();
        }
        Ok(Job::new(file)?)
    }

    fn behind(&self, hub: String) -> Vec<String> {
        let mut sharded = self.sharded.iter();
        match sharded.find(|sharded| sharded.name.as_str() == hub) {
            Some(sharded) => sharded.hubs.iter().map(|hub| hub.to_string()).collect(),
            None => vec![hub],
        }
    }
}
