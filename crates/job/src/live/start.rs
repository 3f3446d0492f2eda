//! Where a job begins: from a checkpoint, or anew at a place that its start asks for.

use std::sync::Arc;

use highwater_connect::RowNames;
use highwater_engine::Physical;
use highwater_env::random::Random;
use highwater_log::Offset;
use highwater_query::plan::Name;
use highwater_time::{Instant, TICKS_PER_MILLI};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use super::build::{Built, build};
use super::files::make_hubs;
use super::growth::can_grow;
use super::keeper::Keeper;
use super::output::{Mark, Output};
use super::places::{Places, Source};
use super::print::Fingerprint;
use super::run::Live;
use super::saved::Saved;
use super::status::Board;
use super::tables::{Before, Tables};
use super::{Options, Site, StartError, Which};
use crate::config::{OnFailure, Start};
use crate::load::Job;

/// Where a job begins.
struct Begin {
    epoch: u64,
    since: Instant,
    from: From,
}

enum From {
    Checkpoint(Box<Saved>),
    Positions(Vec<Offset>),
}

pub(super) enum Prepared {
    Live(Box<Live>),
    /// It ended before, and has nothing to go on with.
    HasEnded,
}

/// `take_up` is for a job that has just been saved, and may go on with reference data that is new. `writing` is where to
/// find the checkpoint that is being written, should somebody lose patience meanwhile.
pub(super) async fn prepare(
    (job, site, options): (Arc<Job>, Site, Options),
    take_up: bool,
    board: &Board,
    writing: &mut Option<JoinHandle<std::io::Result<()>>>,
) -> Result<Prepared, StartError> {
    if options.until_end.is_none() {
        make_hubs(&job, &*site.log).await?;
    }
    let all = Places::find(&job, &*site.log)?;
    let (mut number, saved) = latest(&site, board).await?;
    let words = saved
        .as_ref()
        .and_then(|saved| saved.fingerprint.partitions());
    let (known, new) = words
        .and_then(|words| all.known_and_new(words))
        // Where they cannot be taken up, the job begins anew with all of them.
        .filter(|(_, new)| new.iter().all(|source| can_grow(&job, source.input)))
        .unwrap_or_else(|| (all.clone(), Vec::new()));
    let fingerprint = Fingerprint::of(&job, &known);
    let mut begin = begin((&job, &all, &options), (number, saved), &fingerprint, board).await?;
    let mut places = match &begin.from {
        From::Checkpoint(_) => known,
        From::Positions(_) => all,
    };
    let mut fingerprint = Fingerprint::of(&job, &places);
    let mut tables = find_tables(&job, &begin, take_up, &site, board).await?;
    if let (true, From::Checkpoint(saved)) = (tables.is_new, &mut begin.from) {
        let next = number.map_or(0, |number| number + 1);
        match save_tables(&site, next, &mut tables, saved, writing).await {
            Ok(()) => number = Some(next),
            Err(error) => {
                // What no checkpoint knows of must not show in a row.
                board.change(|status| status.checkpoint.trouble = Some(error.to_string()));
                tables = find_tables(&job, &begin, false, &site, board).await?;
            }
        }
    }
    keep_tables(&site, number.map_or(0, |number| number + 1), &mut tables).await?;
    let loaded = tables.loaded.physical.as_ref();
    let physical = loaded.unwrap_or(&job.physical);
    let (mut built, mut begin) = assemble((&job, physical, &places), begin, &site, board).await?;
    if let (true, From::Checkpoint(saved)) = (take_up && !new.is_empty(), &begin.from) {
        let next = number.map_or(0, |number| number + 1);
        let wider = widen((&job, physical, &places), (saved, &new), &site, board)?;
        if let Some((grown, among, saved)) = wider {
            match save(&site, next, &saved, writing).await {
                Ok(()) => {
                    for source in &new {
                        board.say(format!("`{}` is read from now on", source.place));
                    }
                    (number, built, places) = (Some(next), grown, among);
                    fingerprint = saved.fingerprint.clone();
                    begin.from = From::Checkpoint(Box::new(saved));
                }
                Err(error) => {
                    board.change(|status| status.checkpoint.trouble = Some(error.to_string()));
                }
            }
        }
    }
    built.lay_out(&job, &places, board);
    let (to_marks, heard) = mpsc::unbounded_channel();
    let epoch = begin.epoch;
    let mut outputs = open_outputs(&job, &site, &options, board, (&built, epoch), &to_marks)?;
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
    let keeper = Keeper {
        fingerprint,
        epoch: begin.epoch,
        since: begin.since,
        names: built
            .outputs
            .iter()
            .map(|(shape, _)| shape.output.clone())
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
        save(&site, epoch, &first, writing).await?;
    }
    let number = number.unwrap_or(0).max(begin.epoch);
    let live = Live::launch(
        (job, site, options),
        (built, outputs, heard),
        places,
        (keeper, number, tables.known),
        board,
    )?;
    Ok(Prepared::Live(Box::new(live)))
}

/// The job of a checkpoint with the partitions by which its hubs have grown, and the checkpoint that says so: no row is made of
/// them before it is saved, so that every replay takes them up at the same point. `None` if the query cannot have them.
fn widen(
    (job, physical, places): (&Job, &Physical, &Places),
    (saved, new): (&Saved, &[Source]),
    site: &Site,
    board: &Board,
) -> Result<Option<(Built, Places, Saved)>, StartError> {
    let since = (saved.since, site.clock.clone());
    let mut built = build(job, physical, places, since, board)?;
    let mut among = places.clone();
    if built.restore(saved).is_err() || !built.grow((job, physical), &mut among, new)? {
        return Ok(None);
    }
    let (streams, shared) = built.written();
    let saved = Saved {
        fingerprint: Fingerprint::of(job, &among),
        streams,
        shared,
        ..saved.clone()
    };
    Ok(Some((built, among, saved)))
}

/// Writes a checkpoint where that may block.
async fn save(
    site: &Site,
    number: u64,
    saved: &Saved,
    writing: &mut Option<JoinHandle<std::io::Result<()>>>,
) -> Result<(), StartError> {
    let (store, bytes) = (site.checkpoints.clone(), saved.encode());
    let write = tokio::task::spawn_blocking(move || store.write(number, &bytes));
    let written = writing.insert(write).await;
    *writing = None;
    written.map_err(failed)?.map_err(StartError::Checkpoints)
}

async fn find_tables(
    job: &Arc<Job>,
    begin: &Begin,
    take_up: bool,
    site: &Site,
    board: &Board,
) -> Result<Tables, StartError> {
    let before = match &begin.from {
        From::Checkpoint(saved) => Some(Before {
            force: saved.references.clone(),
            reached: saved.reached,
            kept: saved.tables,
        }),
        From::Positions(_) => None,
    };
    let (job, store, noted) = (job.clone(), site.checkpoints.clone(), board.clone());
    let found = aside(move || Tables::find(&job, before, take_up, (&*store, &noted))).await?;
    Ok(found?)
}

/// Saves a checkpoint that goes by other reference data from now on.
async fn save_tables(
    site: &Site,
    number: u64,
    tables: &mut Tables,
    saved: &mut Saved,
    writing: &mut Option<JoinHandle<std::io::Result<()>>>,
) -> Result<(), StartError> {
    keep_tables(site, number, tables).await?;
    let next = Saved {
        references: tables.force.clone(),
        tables: tables.kept,
        ..saved.clone()
    };
    save(site, number, &next, writing).await?;
    *saved = next;
    Ok(())
}

/// Keeps tables that no checkpoint names yet, for the checkpoint of that number.
async fn keep_tables(site: &Site, number: u64, tables: &mut Tables) -> Result<(), StartError> {
    let Some(bytes) = tables.to_keep() else {
        return Ok(());
    };
    let (store, in_use) = (site.checkpoints.clone(), tables.before);
    let kept = aside(move || store.write_tables(number, &bytes, in_use)).await?;
    kept.map_err(StartError::Checkpoints)?;
    tables.kept = Some(number);
    Ok(())
}

/// The number of the latest checkpoint, and the latest that is whole.
async fn latest(site: &Site, board: &Board) -> Result<(Option<u64>, Option<Saved>), StartError> {
    let (store, noted) = (site.checkpoints.clone(), board.clone());
    let read = aside(move || {
        let numbers = store.list()?;
        for number in numbers.iter().rev() {
            let read = store.read(*number).map_err(|error| error.to_string());
            match read.and_then(|bytes| Saved::decode(&bytes).map_err(|error| error.to_string())) {
                Ok(saved) => return Ok((numbers.last().copied(), Some(saved))),
                Err(reason) => {
                    store.distrust(*number);
                    let trouble = format!("checkpoint {number} cannot be used: {reason}");
                    noted.say(format!("{trouble}; the one before is tried"));
                    noted.change(|status| status.checkpoint.trouble = Some(trouble));
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
    (job, places, options): (&Job, &Places, &Options),
    (number, saved): (Option<u64>, Option<Saved>),
    fingerprint: &Fingerprint,
    board: &Board,
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
            board.say("starts with the first events that are kept");
            return Ok(fresh(Instant::BEFORE_ALL, places.starts()));
        }
        (Start::At(time), _) => time,
        (Start::Now, _) | (Start::Resume, None) => now(board),
        (Start::Resume, Some(saved)) => match saved.fingerprint.difference(fingerprint) {
            None => {
                board.say("goes on from its last checkpoint");
                return Ok(Begin {
                    epoch: saved.epoch,
                    since: saved.since,
                    from: From::Checkpoint(Box::new(saved)),
                });
            }
            Some(change) => {
                board.say(format!(
                    "cannot go on from its last checkpoint, because {change}; \
                     the state is built anew by reading back"
                ));
                saved.watermark.max(saved.since)
            }
        },
    };
    if since == Instant::BEFORE_ALL {
        return Ok(fresh(since, places.starts()));
    }
    board.say(format!("starts with rows of {since}"));
    let positions = places.positions_for(since, job).await?;
    Ok(fresh(since, positions))
}

/// To the millisecond, like everything that a log says about time.
fn now(board: &Board) -> Instant {
    let ticks = board.now().ticks();
    Instant::from_ticks(ticks - ticks.rem_euclid(TICKS_PER_MILLI))
}

/// Builds the job as its beginning asks. State that turns out to be unfit is built anew.
async fn assemble(
    (job, physical, places): (&Job, &Physical, &Places),
    begin: Begin,
    site: &Site,
    board: &Board,
) -> Result<(Built, Begin), StartError> {
    let new = |since| build(job, physical, places, (since, site.clock.clone()), board);
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
    board.say(format!(
        "cannot go on from its last checkpoint: {reason}; the state is built anew by reading back"
    ));
    let positions = match since {
        Instant::BEFORE_ALL => places.starts(),
        since => places.positions_for(since, job).await?,
    };
    let mut built = new(since)?;
    built.begin(&positions);
    let begin = Begin {
        // Later than any that has been, because every epoch begins with a checkpoint of its number.
        epoch: begin.epoch.max(latest_number(site).await?) + 1,
        since,
        from: From::Positions(positions),
    };
    Ok((built, begin))
}

async fn latest_number(site: &Site) -> Result<u64, StartError> {
    let store = site.checkpoints.clone();
    let listed = aside(move || store.list()).await?;
    let listed = listed.map_err(StartError::Checkpoints)?;
    Ok(listed.last().copied().unwrap_or(0))
}

/// Where outputs say what they have made sure of.
type Marks = mpsc::UnboundedSender<(usize, u64, Mark)>;
pub(super) type MarksHeard = mpsc::UnboundedReceiver<(usize, u64, Mark)>;

fn open_outputs(
    job: &Job,
    site: &Site,
    options: &Options,
    board: &Board,
    (built, epoch): (&Built, u64),
    marks: &Marks,
) -> Result<Vec<Output>, StartError> {
    let declared = |name: &str| {
        let mut outputs = job.file.outputs.iter();
        outputs.find(|output| output.name.eq_ignore_ascii_case(name))
    };
    let open = |which: Which<'_>| {
        let opened = site.endpoints.open(&which);
        opened.map_err(|error| StartError::Output {
            output: which.output.to_owned(),
            error,
        })
    };
    let spread = [Name::Spread];
    let shapes = built.outputs.iter().map(|(shape, _)| shape).enumerate();
    shapes
        .map(|(index, shape)| {
            let which = Which {
                job: &job.file.name,
                output: &shape.output,
                refused_by: None,
                epoch,
                names: &shape.names,
                declared: declared(&shape.output),
            };
            let on_failure = which
                .declared
                .map(|output| output.on_failure)
                .unwrap_or_default();
            let dead = job.file.dead_letter.as_deref();
            let dead = dead.filter(|_| on_failure == OnFailure::DeadLetter);
            let dead = dead.map(|output| {
                open(Which {
                    output,
                    refused_by: Some(&shape.output),
                    names: &spread,
                    declared: declared(output),
                    ..which
                })
            });
            Ok(Output {
                index,
                name: shape.output.clone(),
                endpoint: open(which)?,
                dead: dead.transpose()?,
                names: RowNames::new(shape.names.clone()),
                on_failure,
                retry: options.retry.clone(),
                random: Random::from_os(),
                board: board.clone(),
                marks: marks.clone(),
            })
        })
        .collect()
}
