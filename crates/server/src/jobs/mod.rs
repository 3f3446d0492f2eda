//! The jobs of a node: deployed, started, stopped and deleted.
//!
//! A job is declared in the settings, which name its folder, or deployed over HTTP and stored below the node's data. A
//! job that ran when the node went down resumes when the node starts again. Nodes that share jobs over a cluster have
//! the definitions on its log, and each of them a copy.

mod at_rest;
mod author;
mod clusters;
mod definition;
mod history;
mod shared_changes;
mod shared_definitions;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use highwater_access::Keys;
use highwater_connect::{ClusterConnector, OutsideAccess, StateStore};
use highwater_env::{Clock, EgressPolicy, OutputDisk, RealDisk};
use highwater_job::config::{ArrivalTime, JobFile, JobStateStore, Start};
use highwater_job::live::{
    self, Checkpoints, DeclaredEndpoints, DiskCheckpoints, FollowError, Handle, JobContext,
    JobStatus,
};
use highwater_job::project::is_project;
use highwater_job::{Job, LoadError, job_file_of};
use highwater_kafka::client::Profile;
use highwater_log::batch::TimestampType;
use highwater_log::{Log, TransactionCoordinator};
use highwater_queue::Queues;
use tokio::task::AbortHandle;

pub use at_rest::{AtRestError, run_at_rest};
use author::Author;
use clusters::KafkaClusters;
pub use definition::Files;
use definition::{DesiredState, JobFolder};
pub(crate) use history::{HISTORY_INTERVAL, HistoryPoint};
use history::{JobHistory, record_histories};
use shared_changes::{follow_shared, is_job_name};
use shared_definitions::SharedDefinition;
pub(crate) use shared_definitions::SharedDefinitions;

use crate::cluster::ClusterSettings;
use crate::sharded::ShardedHub;

/// A job of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredJob {
    pub name: String,
    /// Its job file, or the folder that holds it.
    pub path: PathBuf,
}

/// Why an operation on a job failed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("there is no job `{0}`")]
    Unknown(String),
    #[error("`{0}` cannot name a job: use letters, digits, dots, dashes and underscores")]
    Name(String),
    #[error("`{0}` is no path of a file in the job's folder")]
    Path(String),
    #[error("job `{0}` is declared in the settings of the node")]
    Declared(String),
    #[error("job `{0}` is running")]
    Running(String),
    #[error("`{0}` is no start position")]
    Start(String),
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Follow(#[from] FollowError),
    #[error(
        "input \"{input}\" follows {path} in the job's folder, which is not on the machine of the node"
    )]
    NotOnNode { input: String, path: String },
    #[error("key `{author}` deployed the job and has no right to {right} on {resource}")]
    Right {
        author: String,
        right: &'static str,
        resource: String,
    },
    #[error(
        "key `{0}` deployed the job and is not a valid key of the node any more: deploy it again with another key"
    )]
    AuthorRevoked(String),
    #[error(
        "a Stream Analytics project names files by itself, so only the settings may have one: send job.toml"
    )]
    Project,
    #[error(
        "input \"{0}\" follows files, which a node whose log is a cluster does not do: send their events to a hub, and \
         read that"
    )]
    FilesOverCluster(String),
    #[error("the state of the job cannot be opened: {0}")]
    State(String),
    #[error(
        "nodes share job `{0}`, and the new version of it would run on one node; delete the job, or give this one another name"
    )]
    Shared(String),
    #[error(
        "the change of job `{0}` is on the log, and this node has not applied it yet; it may be stopping the job"
    )]
    NotApplied(String),
    #[error("the job could not be stored: {0}")]
    Storage(#[from] std::io::Error),
}

/// The parts of a node that jobs use.
#[derive(Clone)]
pub struct JobResources {
    pub log: Arc<dyn Log>,
    pub transactions: Arc<dyn TransactionCoordinator>,
    /// The log is this cluster, so jobs use hubs as its topics.
    pub cluster: Option<ClusterSettings>,
    /// The state of jobs without a `[state]` of their own; `None`: in the node's folder.
    pub state: Option<JobStateStore>,
    pub queues: Queues,
    pub clock: Arc<dyn Clock>,
    /// The sharded hubs: an input that names one reads its members.
    pub sharded: Arc<[ShardedHub]>,
    /// The hosts that outputs of the operator's own jobs may connect to.
    pub egress: EgressPolicy,
    /// What jobs that come over HTTP may reach.
    pub deployed_access: OutsideAccess,
    pub keys: Arc<Keys>,
    /// The largest state of a job.
    pub state_bytes_max: u64,
    /// Threads for the partitions of one job.
    pub threads: usize,
}

/// All jobs of a node.
#[derive(Clone)]
pub struct Jobs(Arc<Inner>);

struct Inner {
    resources: JobResources,
    /// Those of jobs that nodes share; `None` if each node has its own.
    shared: Option<SharedDefinitions>,
    /// The task that applies their changes.
    follower: OnceLock<AbortHandle>,
    folder: PathBuf,
    jobs: Mutex<BTreeMap<String, Arc<Entry>>>,
    /// The task that records the histories of jobs.
    recorder: OnceLock<AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in [&self.recorder, &self.follower] {
            if let Some(task) = task.get() {
                task.abort();
            }
        }
    }
}

struct Entry {
    name: String,
    folder: JobFolder,
    /// Its path in the settings.
    declared: Option<PathBuf>,
    /// Serialises changes.
    changing: tokio::sync::Mutex<()>,
    runtime: Mutex<Runtime>,
    history: JobHistory,
}

/// The running instance of a job, and its query.
#[derive(Clone, Default)]
struct Runtime {
    handle: Option<Arc<Handle>>,
    query: String,
    /// Why it cannot run.
    problem: Option<String>,
}

/// A loaded job and how to start it.
struct Launch<'a> {
    job: Job,
    start: Option<&'a str>,
    /// `start` counts though there are checkpoints.
    fresh: bool,
    author: Author<'a>,
}

/// A snapshot of a job.
pub struct JobView {
    pub name: String,
    pub declared: bool,
    pub query: String,
    /// `None` if it was not started since the start of the node.
    pub status: Option<JobStatus>,
    pub problem: Option<String>,
}

impl Jobs {
    /// The jobs stored in `folder` and those of the settings. None runs yet.
    pub fn open(
        resources: JobResources,
        shared: Option<SharedDefinitions>,
        folder: PathBuf,
        declared: Vec<DeclaredJob>,
    ) -> Result<Jobs, std::io::Error> {
        let mut jobs = BTreeMap::new();
        let mut add = |name: String, declared: Option<PathBuf>| {
            let entry = Entry {
                folder: JobFolder::new(&folder, &name),
                name: name.clone(),
                declared,
                changing: tokio::sync::Mutex::default(),
                runtime: Mutex::default(),
                history: JobHistory::default(),
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
            resources,
            shared,
            follower: OnceLock::new(),
            folder,
            jobs: Mutex::new(jobs),
            recorder: OnceLock::new(),
        })))
    }

    /// Starts every job whose desired state is running. A job that fails does not keep the others from starting.
    pub(crate) async fn start_desired(&self) -> Result<(), std::io::Error> {
        if let Some(shared) = &self.0.shared {
            self.catch_up(shared).await?;
        }
        let record = || tokio::spawn(record_histories(Arc::downgrade(&self.0))).abort_handle();
        self.0.recorder.get_or_init(record);
        for entry in self.entries() {
            let _one = entry.changing.lock().await;
            let desired = match entry.folder.desired_state() {
                Ok(desired) => desired,
                Err(error) => {
                    entry.set_problem(format!("its desired state cannot be read: {error}"));
                    continue;
                }
            };
            let runs = desired
                .as_ref()
                .map_or(entry.declared.is_some(), |desired| desired.running);
            let start = desired.and_then(|desired| desired.start);
            if let Err(error) = self.run(&entry, start.as_deref(), runs, false).await {
                tracing::error!(job = entry.name, %error, "a job cannot start");
                entry.set_problem(error.to_string());
            }
        }
        if let Some(shared) = self.0.shared.clone() {
            let follow = follow_shared(Arc::downgrade(&self.0), shared);
            let follow = || tokio::spawn(follow).abort_handle();
            self.0.follower.get_or_init(follow);
        }
        Ok(())
    }

    pub fn list(&self) -> Vec<JobView> {
        self.entries().iter().map(|entry| entry.view()).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub fn view(&self, name: &str) -> Result<JobView, JobError> {
        Ok(self.entry(name)?.view())
    }

    /// The running instance of a job, or its last one; `None` if it was not started since the start of the node.
    pub(crate) fn handle(&self, name: &str) -> Result<Option<Arc<Handle>>, JobError> {
        Ok(self.entry(name)?.lock().handle.clone())
    }

    /// The last minutes of a job.
    pub(crate) fn history(&self, name: &str) -> Result<Vec<HistoryPoint>, JobError> {
        Ok(self.entry(name)?.history.points())
    }

    /// Deploys a job, or a new version of one, and starts it. A running job is stopped first. If the new version cannot
    /// be loaded, the old one keeps running. `key` is the name of the key that deploys it; `None` on a node without
    /// keys.
    pub async fn put(
        &self,
        name: &str,
        files: Files,
        start: Option<String>,
        key: Option<String>,
    ) -> Result<JobView, JobError> {
        if !is_job_name(name) {
            return Err(JobError::Name(name.to_owned()));
        }
        if let Some(path) = files.invalid_path() {
            return Err(JobError::Path(path.to_owned()));
        }
        check_start(start.as_deref())?;
        let entry = self.entry_or_new(name);
        let _one = entry.changing.lock().await;
        if entry.declared.is_some() {
            return Err(JobError::Declared(name.to_owned()));
        }
        let (jobs, stored, by) = (self.clone(), entry.clone(), key.clone());
        let storing = blocking(move || {
            let author = Author::of_deployed(by.as_deref());
            (jobs.store(&stored, &files, author), files)
        });
        let (number, job, files) = match storing.await {
            (Ok((number, job)), files) => (number, job, files),
            (Err(error), _) => {
                self.drop_if_empty(&entry);
                return Err(error);
            }
        };
        if let Some(shared) = self.unstore_shared(&entry, &job)? {
            drop(_one);
            let definition = SharedDefinition {
                files,
                running: true,
                start,
                author: key,
            };
            return self.change_shared(shared, name, &definition).await;
        }
        entry.stop().await;
        entry.folder.set_desired_state(&DesiredState {
            definition: Some(number),
            running: true,
            start: start.clone(),
            author: key.clone(),
            shared: false,
        })?;
        entry.folder.delete_definitions_except(number);
        let launch = Launch {
            job,
            start: start.as_deref(),
            fresh: true,
            author: Author::of_deployed(key.as_deref()),
        };
        self.launch(&entry, launch)?;
        Ok(entry.view())
    }

    /// Stores a definition and loads it.
    fn store(
        &self,
        entry: &Entry,
        files: &Files,
        author: Author<'_>,
    ) -> Result<(u64, Job), JobError> {
        let before = entry
            .folder
            .desired_state()?
            .and_then(|desired| desired.definition);
        let number = before.map_or(1, |number| number + 1);
        let folder = entry.folder.store_definition(number, files)?;
        let loaded = self.0.resources.load(&entry.name, folder, author);
        let runnable = loaded.and_then(check_followed_files);
        if runnable.is_err() {
            entry.folder.delete_definitions_except(before.unwrap_or(0));
        }
        Ok((number, runnable?))
    }

    fn drop_if_empty(&self, entry: &Entry) {
        if let Ok(None) = entry.folder.desired_state() {
            let _ = entry.folder.delete();
            self.lock().remove(&entry.name);
        }
    }

    /// The files of a deployed job.
    pub async fn files(&self, name: &str) -> Result<Files, JobError> {
        let entry = self.entry(name)?;
        let _one = entry.changing.lock().await;
        if entry.declared.is_some() {
            return Err(JobError::Declared(name.to_owned()));
        }
        let desired = entry.folder.desired_state()?;
        let number = desired.and_then(|desired| desired.definition);
        let number = number.ok_or_else(|| JobError::Unknown(name.to_owned()))?;
        let folder = entry.folder.clone();
        Ok(blocking(move || folder.read_definition(number)).await?)
    }

    /// Starts a job. Without `start` it resumes from its checkpoint.
    pub async fn start(&self, name: &str, start: Option<String>) -> Result<JobView, JobError> {
        let entry = self.entry(name)?;
        let _one = entry.changing.lock().await;
        if entry.runs() {
            return Err(JobError::Running(name.to_owned()));
        }
        check_start(start.as_deref())?;
        if let Some((shared, definition)) = self.shared_definition(&entry)? {
            drop(_one);
            let running = SharedDefinition {
                running: true,
                start,
                ..definition
            };
            return self.change_shared(&shared, name, &running).await;
        }
        self.run(&entry, start.as_deref(), true, start.is_some())
            .await?;
        let desired = entry.folder.desired_state()?.unwrap_or_default();
        entry.folder.set_desired_state(&DesiredState {
            running: true,
            start,
            ..desired
        })?;
        Ok(entry.view())
    }

    /// Stops a job, which stores a checkpoint. It stays stopped until it is started.
    pub async fn stop(&self, name: &str) -> Result<JobView, JobError> {
        let entry = self.entry(name)?;
        let _one = entry.changing.lock().await;
        if let Some((shared, definition)) = self.shared_definition(&entry)? {
            drop(_one);
            let stopped = SharedDefinition {
                running: false,
                start: None,
                ..definition
            };
            return self.change_shared(&shared, name, &stopped).await;
        }
        let desired = entry.folder.desired_state()?.unwrap_or_default();
        entry.folder.set_desired_state(&DesiredState {
            running: false,
            start: None,
            ..desired
        })?;
        entry.stop().await;
        Ok(entry.view())
    }

    /// Stops a job and deletes it with its state.
    pub async fn delete(&self, name: &str) -> Result<(), JobError> {
        let entry = self.entry(name)?;
        let _one = entry.changing.lock().await;
        if entry.declared.is_some() {
            return Err(JobError::Declared(name.to_owned()));
        }
        if let Some((shared, _)) = self.shared_definition(&entry)? {
            drop(_one);
            return shared.change(name, None).await;
        }
        entry.stop().await;
        let forgotten = live::delete_file_hubs(name, &*self.0.resources.log).await;
        forgotten.map_err(|error| JobError::Storage(std::io::Error::other(error)))?;
        entry.folder.delete()?;
        self.lock().remove(name);
        Ok(())
    }

    /// Stops all jobs, which store checkpoints. They resume when the node starts again.
    pub(crate) async fn stop_all(&self) {
        if let Some(follower) = self.0.follower.get() {
            follower.abort();
        }
        let entries = self.entries();
        let stops = entries.iter().map(|entry| entry.stop());
        futures_util::future::join_all(stops).await;
    }

    async fn run(
        &self,
        entry: &Entry,
        start: Option<&str>,
        runs: bool,
        fresh: bool,
    ) -> Result<(), JobError> {
        let declared = entry.declared.is_some();
        let (path, key) = match (&entry.declared, entry.folder.desired_state()?) {
            (Some(path), _) => (path.clone(), None),
            (
                None,
                Some(DesiredState {
                    definition: Some(number),
                    author,
                    ..
                }),
            ) => (entry.folder.definition(number), author),
            (None, _) => return Err(JobError::Unknown(entry.name.clone())),
        };
        let (name, resources) = (entry.name.clone(), self.0.resources.clone());
        let by = key.clone();
        let loading = blocking(move || {
            let author = Author::of(declared, by.as_deref());
            resources.load(&name, path, author)
        });
        let job = loading.await?;
        if !runs {
            entry.lock().query = job.query;
            return Ok(());
        }
        let launch = Launch {
            job,
            start,
            fresh,
            author: Author::of(declared, key.as_deref()),
        };
        self.launch(entry, launch)
    }

    fn launch(&self, entry: &Entry, launch: Launch<'_>) -> Result<(), JobError> {
        let Launch {
            job, start, fresh, ..
        } = launch;
        let resources = &self.0.resources;
        let state = self.open_state(&job, launch.author)?;
        let (checkpoints, has_run) = match &state {
            // Whether there are any is found out by the job, which may wait for the store.
            Some(store) => (live::store_checkpoints(store, &job), !fresh),
            None => {
                let folder = entry.folder.checkpoints();
                let checkpoints = DiskCheckpoints::new(Arc::new(RealDisk), folder);
                let has_run = !checkpoints.list()?.is_empty();
                (Arc::new(checkpoints) as Arc<dyn Checkpoints>, has_run)
            }
        };
        let parse = |text: &str| Start::parse(text).ok_or_else(|| JobError::Start(text.to_owned()));
        let start = match start {
            Some(text) if fresh || !has_run => Some(parse(text)?),
            _ if has_run && state.is_none() => Some(Start::Resume),
            _ => None,
        };
        let clusters = Arc::new(KafkaClusters {
            clock: resources.clock.clone(),
            node: resources.cluster.clone(),
        });
        let context = JobContext {
            log: resources.log.clone(),
            clock: resources.clock.clone(),
            checkpoints,
            endpoints: Arc::new(DeclaredEndpoints {
                hubs: Some((resources.log.clone(), resources.transactions.clone())),
                queues: Some(resources.queues.clone()),
                clusters: Some(clusters.clone()),
                disk: Arc::new(OutputDisk),
                access: resources.access(launch.author),
            }),
            clusters: Some(ClusterConnector {
                clusters,
                access: resources.access(launch.author),
            }),
            state,
            assignor: None,
        };
        let options = live::Options {
            start,
            state_bytes_max: resources.state_bytes_max,
            ..live::Options::of(&job, resources.threads)
        };
        let query = job.query.clone();
        let handle = live::start(Arc::new(job), context, options);
        *entry.lock() = Runtime {
            handle: Some(Arc::new(handle)),
            query,
            problem: None,
        };
        Ok(())
    }

    /// The store of the job's state, if it is not in the node's folder.
    fn open_state(
        &self,
        job: &Job,
        author: Author<'_>,
    ) -> Result<Option<Arc<dyn StateStore>>, JobError> {
        let Some(state) = &job.file.live.state else {
            return Ok(None);
        };
        let author = match state.of_node {
            true => Author::Operator,
            false => author,
        };
        let access = self.0.resources.access(author);
        let opened = state
            .store
            .open(&access, &job.file.folder, Arc::new(RealDisk));
        opened.map(Some).map_err(JobError::State)
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
                folder: JobFolder::new(&self.0.folder, name),
                declared: None,
                changing: tokio::sync::Mutex::default(),
                runtime: Mutex::default(),
                history: JobHistory::default(),
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
    fn view(&self) -> JobView {
        let runtime = self.lock().clone();
        JobView {
            name: self.name.clone(),
            declared: self.declared.is_some(),
            query: runtime.query,
            status: runtime.handle.map(|handle| handle.status()),
            problem: runtime.problem,
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

    fn set_problem(&self, problem: String) {
        self.lock().problem = Some(problem);
    }

    fn lock(&self) -> MutexGuard<'_, Runtime> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_start(start: Option<&str>) -> Result<(), JobError> {
    match start {
        Some(text) if Start::parse(text).is_none() => Err(JobError::Start(text.to_owned())),
        _ => Ok(()),
    }
}

/// Runs work that may block for seconds, such as the scripts of a job, apart from the tasks of the node.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Refuses a deployed job that follows files in its own folder: the folder has only the files that came with it.
fn check_followed_files(job: Job) -> Result<Job, JobError> {
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

impl JobResources {
    /// Loads a job under the name that the node has for it, because its outputs know it by that name. A sharded hub is
    /// replaced by its members, files are followed, and what the job file leaves to the node is filled in. The rights
    /// of the author are checked before any file but the job file is read.
    fn load(&self, name: &str, path: PathBuf, author: Author<'_>) -> Result<Job, JobError> {
        let job_file = job_file_of(&path);
        if author != Author::Operator && is_project(&job_file) {
            return Err(JobError::Project);
        }
        let mut file = JobFile::load(&job_file)?;
        if author != Author::Operator {
            file.check_access(&self.access(author))?;
        }
        if let Author::Key(key) = author {
            self.check_rights(name, &file, key)?;
        }
        file.name = name.to_owned();
        file.follow_files()?;
        for input in file.inputs.iter_mut().filter(|input| input.kafka.is_none()) {
            let hubs = std::mem::take(&mut input.hubs).into_iter();
            input.hubs = hubs.flat_map(|hub| self.members(hub)).collect();
        }
        if let Some(cluster) = &self.cluster {
            self.use_cluster(&mut file, cluster)?;
        }
        if file.live.state.is_none() {
            file.live.state = self.state.clone();
        }
        Ok(Job::new(file)?)
    }

    /// Turns the hubs of a job into topics of the cluster that is the log of the node.
    fn use_cluster(&self, file: &mut JobFile, cluster: &ClusterSettings) -> Result<(), JobError> {
        if let Some(input) = file.inputs.iter().find(|input| input.is_followed()) {
            return Err(JobError::FilesOverCluster(input.name.clone()));
        }
        // Event Hubs does not tell the settings of a topic.
        let is_known = cluster.profile == Profile::Kafka;
        let has_create_time = |hub: &String| {
            let kind = self.log.hub(hub).map(|hub| hub.settings.timestamps.kind);
            !is_known || kind == Some(TimestampType::Create)
        };
        // Time passes by the producers' clocks in an input with such a hub, if the settings allow it; else it is
        // refused.
        file.over_cluster(cluster.has_transactions(), |hubs| {
            match cluster.create_time_counts && hubs.iter().any(has_create_time) {
                true => ArrivalTime::Create,
                false => ArrivalTime::LogAppend,
            }
        });
        Ok(())
    }

    /// What the job of this author may reach outside of the node.
    fn access(&self, author: Author<'_>) -> OutsideAccess {
        let egress = self.egress.clone();
        match author {
            Author::Operator => OutsideAccess {
                egress,
                ..OutsideAccess::default()
            },
            // It is on this machine, so it can connect to whatever the node can connect to.
            Author::Client => OutsideAccess {
                egress,
                ..self.deployed_access.clone()
            },
            Author::Key(_) => self.deployed_access.clone(),
        }
    }

    fn members(&self, hub: String) -> Vec<String> {
        let mut sharded = self.sharded.iter();
        match sharded.find(|sharded| sharded.name.as_str() == hub) {
            Some(sharded) => sharded.hubs.iter().map(|hub| hub.to_string()).collect(),
            None => vec![hub],
        }
    }
}
