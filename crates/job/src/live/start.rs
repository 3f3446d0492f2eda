//! Where a job begins: from a checkpoint, or anew at a place that its start asks for.

use std::sync::Arc;

use highwater_connect::RowNames;
use highwater_engine::PhysicalPlan;
use highwater_env::random::Random;
use highwater_log::Offset;
use highwater_query::plan::Name;
use highwater_time::{Instant, TICKS_PER_MILLI};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use super::build::{JobBuilder, JobParts};
use super::checkpoint::Checkpoint;
use super::checkpoint_builder::CheckpointBuilder;
use super::files::create_hubs;
use super::fingerprint::Fingerprint;
use super::growth::can_grow;
use super::output::{EndpointStates, Output};
use super::partitions::{InputPartition, PartitionSet};
use super::reference_tables::{CheckpointedReferences, ReferenceTables};
use super::run::RunningJob;
use super::status::StatusHandle;
use super::{EndpointRequest, JobContext, Options, StartError};
use crate::config::{OnFailure, Start};
use crate::load::Job;

/// Where a job begins.
struct Begin {
    epoch: u64,
    since: Instant,
    from: From,
}

enum From {
    Checkpoint(Box<Checkpoint>),
    Positions(Vec<Offset>),
}

pub(super) enum Prepared {
    Live(Box<RunningJob>),
    /// It ended before, and has nothing to go on with.
    HasEnded,
}

/// `take_up` is for a job that has just been saved, and may go on with reference data and partitions that are new. `writing` is where to
/// find the checkpoint that is being written, should somebody lose patience meanwhile.
pub(super) async fn prepare(
    (job, context, options): (Arc<Job>, JobContext, Options),
    take_up: bool,
    board: &StatusHandle,
    writing: &mut Option<JoinHandle<std::io::Result<()>>>,
) -> Result<Prepared, StartError> {
    if options.until_end.is_none() {
        create_hubs(&job, &*context.log).await?;
    }
    let all = PartitionSet::find(&job, &*context.log)?;
    let (mut number, saved) = latest(&context, board).await?;
    let (known, new) = known_and_new(&job, &all, saved.as_ref());
    let fingerprint = Fingerprint::of(&job, &known);
    let mut begin = begin((&job, &all, &options), (number, saved), &fingerprint, board).await?;
    let mut partitions = match &begin.from {
        From::Checkpoint(_) => known,
        From::Positions(_) => all,
    };
    let mut fingerprint = Fingerprint::of(&job, &partitions);
    let mut tables = find_tables(&job, &begin, take_up, &context, board).await?;
    if let (true, From::Checkpoint(saved)) = (tables.is_new, &mut begin.from) {
        let next = number.map_or(0, |number| number + 1);
        match save_tables(&context, next, &mut tables, saved, writing).await {
            Ok(()) => number = Some(next),
            Err(error) => {
                // What no checkpoint knows of must not show in a row.
                board.update(|status| status.checkpoint.trouble = Some(error.to_string()));
                tables = find_tables(&job, &begin, false, &context, board).await?;
            }
        }
    }
    keep_tables(&context, number.map_or(0, |number| number + 1), &mut tables).await?;
    let loaded = tables.loaded.physical.as_ref();
    let physical = loaded.unwrap_or(&job.physical);
    let (mut built, mut begin) =
        assemble((&job, physical, &partitions), begin, &context, board).await?;
    if let (true, From::Checkpoint(saved)) = (take_up && !new.is_empty(), &begin.from) {
        let next = number.map_or(0, |number| number + 1);
        let wider = widen(
            (&job, physical, &partitions),
            (saved, &new),
            &context,
            board,
        )?;
        if let Some((grown, among, saved)) = wider
            && taken_up(save(&context, next, &saved, writing).await, &new, board)
        {
            (number, built, partitions) = (Some(next), grown, among);
            fingerprint = saved.fingerprint.clone();
            begin.from = From::Checkpoint(Box::new(saved));
        }
    }
    built.show(&job, &partitions, board);
    let (to_marks, heard) = mpsc::unbounded_channel();
    let epoch = begin.epoch;
    let mut outputs = open_outputs(&job, &context, &options, board, (&built, epoch), &to_marks)?;
    let marks = match &begin.from {
        From::Checkpoint(saved) => saved
            .outputs
            .iter()
            .map(|output| output.mark.clone())
            .collect(),
        From::Positions(_) => vec![None; built.outputs.len()],
    };
    for (output, mark) in outputs.iter_mut().zip(&marks) {
        output.resume(mark.as_ref()).await;
    }
    if matches!(&begin.from, From::Checkpoint(saved) if saved.ended) {
        return Ok(Prepared::HasEnded);
    }
    let keeper = CheckpointBuilder {
        fingerprint,
        epoch: begin.epoch,
        since: begin.since,
        names: built
            .outputs
            .iter()
            .map(|output| output.name.clone())
            .collect(),
        references: tables.force,
        tables: tables.kept,
    };
    if matches!(begin.from, From::Positions(_)) {
        // Only who has left a mark finds out after a crash what it had written.
        let mut marks = Vec::new();
        for output in &mut outputs {
            marks.push(Some(output.settle().await));
        }
        let first = keeper.first(&built, marks);
        save(&context, epoch, &first, writing).await?;
    }
    let number = number.unwrap_or(0).max(begin.epoch);
    let live = RunningJob::launch(
        (job, context, options),
        (built, outputs, heard),
        partitions,
        (keeper, number, tables.known),
        board,
    )?;
    Ok(Prepared::Live(Box::new(live)))
}

/// The partitions that a checkpoint knows, and those by which hubs have grown since. Where more has changed, or the query does not
/// let partitions be taken up, all are as good as known: the job begins anew with them.
fn known_and_new(
    job: &Job,
    all: &PartitionSet,
    saved: Option<&Checkpoint>,
) -> (PartitionSet, Vec<InputPartition>) {
    let words = saved.and_then(|saved| saved.fingerprint.partitions());
    let split = words.and_then(|words| all.known_and_new(words));
    let split = split.filter(|(_, new)| new.iter().all(|source| can_grow(job, source.input)));
    split.unwrap_or_else(|| (all.clone(), Vec::new()))
}

/// Says that partitions are read from now on, or why not.
fn taken_up(saved: Result<(), StartError>, new: &[InputPartition], board: &StatusHandle) -> bool {
    match &saved {
        Ok(()) => new.iter().for_each(|source| {
            board.log(format!("`{}` is read from now on", source.place));
        }),
        Err(error) => board.update(|status| status.checkpoint.trouble = Some(error.to_string())),
    }
    saved.is_ok()
}

/// The job of a checkpoint with the partitions by which its hubs have grown, and the checkpoint that says so: no row is made of
/// them before it is saved, so that every replay takes them up at the same point. `None` if the query cannot have them.
fn widen(
    (job, physical, partitions): (&Job, &PhysicalPlan, &PartitionSet),
    (saved, new): (&Checkpoint, &[InputPartition]),
    context: &JobContext,
    board: &StatusHandle,
) -> Result<Option<(JobParts, PartitionSet, Checkpoint)>, StartError> {
    let builder = JobBuilder {
        job,
        physical,
        clock: &context.clock,
        status: board,
    };
    let mut built = builder.build(partitions, saved.since)?;
    let mut among = partitions.clone();
    if built.restore(saved).is_err() || !built.grow(&builder, &mut among, new)? {
        return Ok(None);
    }
    let (streams, shared) = built.encoded();
    let saved = Checkpoint {
        fingerprint: Fingerprint::of(job, &among),
        streams,
        shared,
        ..saved.clone()
    };
    Ok(Some((built, among, saved)))
}

/// Writes a checkpoint where that may block.
async fn save(
    context: &JobContext,
    number: u64,
    saved: &Checkpoint,
    writing: &mut Option<JoinHandle<std::io::Result<()>>>,
) -> Result<(), StartError> {
    let (store, bytes) = (context.checkpoints.clone(), saved.encode());
    let write = tokio::task::spawn_blocking(move || store.write(number, &bytes));
    let written = writing.insert(write).await;
    *writing = None;
    written.map_err(failed)?.map_err(StartError::Checkpoints)
}

async fn find_tables(
    job: &Arc<Job>,
    begin: &Begin,
    take_up: bool,
    context: &JobContext,
    board: &StatusHandle,
) -> Result<ReferenceTables, StartError> {
    let before = match &begin.from {
        From::Checkpoint(saved) => Some(CheckpointedReferences {
            force: saved.references.clone(),
            reached: saved.reached,
            kept: saved.tables,
        }),
        From::Positions(_) => None,
    };
    let (job, store, noted) = (job.clone(), context.checkpoints.clone(), board.clone());
    let found =
        aside(move || ReferenceTables::find(&job, before, take_up, (&*store, &noted))).await?;
    Ok(found?)
}

/// Saves a checkpoint that goes by other reference data from now on.
async fn save_tables(
    context: &JobContext,
    number: u64,
    tables: &mut ReferenceTables,
    saved: &mut Checkpoint,
    writing: &mut Option<JoinHandle<std::io::Result<()>>>,
) -> Result<(), StartError> {
    keep_tables(context, number, tables).await?;
    let next = Checkpoint {
        references: tables.force.clone(),
        tables: tables.kept,
        ..saved.clone()
    };
    save(context, number, &next, writing).await?;
    *saved = next;
    Ok(())
}

/// Keeps tables that no checkpoint names yet, for the checkpoint of that number.
async fn keep_tables(
    context: &JobContext,
    number: u64,
    tables: &mut ReferenceTables,
) -> Result<(), StartError> {
    let Some(bytes) = tables.to_keep() else {
        return Ok(());
    };
    let (store, in_use) = (context.checkpoints.clone(), tables.before);
    let kept = aside(move || store.write_tables(number, &bytes, in_use)).await?;
    kept.map_err(StartError::Checkpoints)?;
    tables.kept = Some(number);
    Ok(())
}

/// The number of the latest checkpoint, and the latest that is whole.
async fn latest(
    context: &JobContext,
    board: &StatusHandle,
) -> Result<(Option<u64>, Option<Checkpoint>), StartError> {
    let (store, noted) = (context.checkpoints.clone(), board.clone());
    let read = aside(move || {
        let numbers = store.list()?;
        for number in numbers.iter().rev() {
            let read = store.read(*number).map_err(|error| error.to_string());
            match read
                .and_then(|bytes| Checkpoint::decode(&bytes).map_err(|error| error.to_string()))
            {
                Ok(saved) => return Ok((numbers.last().copied(), Some(saved))),
                Err(reason) => {
                    store.distrust(*number);
                    let trouble = format!("checkpoint {number} cannot be used: {reason}");
                    noted.log(format!("{trouble}; the one before is tried"));
                    noted.update(|status| status.checkpoint.trouble = Some(trouble));
                }
            }
        }
        Ok((numbers.last().copied(), None))
    });
    read.await?.map_err(StartError::Checkpoints)
}

/// Does what may block where nobody waits for it.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StartError> {
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

fn failed(error: JoinError) -> StartError {
    StartError::Thread(error.into())
}

async fn begin(
    (job, partitions, options): (&Job, &PartitionSet, &Options),
    (number, saved): (Option<u64>, Option<Checkpoint>),
    fingerprint: &Fingerprint,
    board: &StatusHandle,
) -> Result<Begin, StartError> {
    let epoch = number.map_or(0, |number| number + 1);
    let fresh = |since, positions| Begin {
        epoch,
        since,
        from: From::Positions(positions),
    };
    let goes_on = matches!(options.start, None | Some(Start::Resume));
    if goes_on && number.is_some() && saved.is_none() {
        return Err(StartError::Damaged);
    }
    // One that has ended has no time to go on from, unless it is the same one.
    let saved = saved.filter(|saved| !saved.ended || saved.fingerprint == *fingerprint);
    // What the job file says is for the first time; after that it goes on where it was.
    let first = saved.is_none().then_some(job.file.live.start);
    let wanted = options.start.or(first).unwrap_or_default();
    let since = match (wanted, saved) {
        (Start::Beginning, _) => {
            board.log("starts with the first events that are kept");
            return Ok(fresh(Instant::BEFORE_ALL, partitions.starts()));
        }
        (Start::At(time), _) => time,
        (Start::Now, _) | (Start::Resume, None) => now(board),
        (Start::Resume, Some(saved)) => match saved.fingerprint.difference(fingerprint) {
            None => {
                board.log("goes on from its last checkpoint");
                return Ok(Begin {
                    epoch: saved.epoch,
                    since: saved.since,
                    from: From::Checkpoint(Box::new(saved)),
                });
            }
            Some(change) => {
                board.log(format!(
                    "cannot go on from its last checkpoint, because {change}; \
                     the state is built anew by reading back"
                ));
                saved.watermark.max(saved.since)
            }
        },
    };
    if since == Instant::BEFORE_ALL {
        return Ok(fresh(since, partitions.starts()));
    }
    board.log(format!("starts with rows of {since}"));
    let positions = partitions.positions_for(since, job).await?;
    Ok(fresh(since, positions))
}

/// To the millisecond, like everything that a log says about time.
fn now(board: &StatusHandle) -> Instant {
    let ticks = board.now().ticks();
    Instant::from_ticks(ticks - ticks.rem_euclid(TICKS_PER_MILLI))
}

/// Builds the job as its beginning asks. State that turns out to be unfit is built anew.
async fn assemble(
    (job, physical, partitions): (&Job, &PhysicalPlan, &PartitionSet),
    begin: Begin,
    context: &JobContext,
    board: &StatusHandle,
) -> Result<(JobParts, Begin), StartError> {
    let builder = JobBuilder {
        job,
        physical,
        clock: &context.clock,
        status: board,
    };
    let new = |since| builder.build(partitions, since);
    let mut built = new(begin.since)?;
    let (since, reason) = match &begin.from {
        From::Positions(positions) => {
            built.begin(positions);
            return Ok((built, begin));
        }
        From::Checkpoint(saved) => match built.restore(saved) {
            Ok(()) => return Ok((built, begin)),
            Err(reason) => (saved.watermark.max(saved.since), reason),
        },
    };
    board.log(format!(
        "cannot go on from its last checkpoint: {reason}; the state is built anew by reading back"
    ));
    let positions = match since {
        Instant::BEFORE_ALL => partitions.starts(),
        since => partitions.positions_for(since, job).await?,
    };
    let mut built = new(since)?;
    built.begin(&positions);
    let begin = Begin {
        // Later than any that has been, because every epoch begins with a checkpoint of its number.
        epoch: begin.epoch.max(latest_number(context).await?) + 1,
        since,
        from: From::Positions(positions),
    };
    Ok((built, begin))
}

async fn latest_number(context: &JobContext) -> Result<u64, StartError> {
    let store = context.checkpoints.clone();
    let listed = aside(move || store.list()).await?;
    let listed = listed.map_err(StartError::Checkpoints)?;
    Ok(listed.last().copied().unwrap_or(0))
}

/// Where outputs say what they have made sure of.
type Marks = mpsc::UnboundedSender<(usize, u64, EndpointStates)>;
pub(super) type MarksHeard = mpsc::UnboundedReceiver<(usize, u64, EndpointStates)>;

fn open_outputs(
    job: &Job,
    context: &JobContext,
    options: &Options,
    board: &StatusHandle,
    (built, epoch): (&JobParts, u64),
    marks: &Marks,
) -> Result<Vec<Output>, StartError> {
    let declared = |name: &str| {
        let mut outputs = job.file.outputs.iter();
        outputs.find(|output| output.name.eq_ignore_ascii_case(name))
    };
    let open = |request: EndpointRequest<'_>| {
        let opened = context.endpoints.open(&request);
        opened.map_err(|error| StartError::Output {
            output: request.output.to_owned(),
            error,
        })
    };
    let spread = [Name::Spread];
    let outputs = built.outputs.iter().enumerate();
    outputs
        .map(|(index, pending)| {
            let request = EndpointRequest {
                job: &job.file.name,
                folder: &job.file.folder,
                output: &pending.name,
                refused_by: None,
                epoch,
                names: &pending.columns,
                declared: declared(&pending.name),
            };
            let on_failure = request
                .declared
                .map(|output| output.on_failure)
                .unwrap_or_default();
            let dead = job.file.dead_letter.as_deref();
            let dead = dead.filter(|_| on_failure == OnFailure::DeadLetter);
            let dead = dead.map(|output| {
                open(EndpointRequest {
                    output,
                    refused_by: Some(&pending.name),
                    names: &spread,
                    declared: declared(output),
                    ..request
                })
            });
            Ok(Output {
                index,
                name: pending.name.clone(),
                endpoint: open(request)?,
                dead: dead.transpose()?,
                names: RowNames::new(pending.columns.clone()),
                on_failure,
                retry: options.retry.clone(),
                random: Random::from_os(),
                board: board.clone(),
                marks: marks.clone(),
            })
        })
        .collect()
}
