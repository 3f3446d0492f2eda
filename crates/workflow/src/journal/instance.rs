//! A whole instance as bytes: for snapshots, for what is handed over, and for the history.

use std::sync::Arc;

use bytes::Bytes;

use super::RecordError;
use super::bytes::{Cut, Reader, Writer};
use super::event::{read_answer, write_answer};
use crate::definition::Version;
use crate::machine::{Attempt, Cause, End, Instance, Note, Phase, Progress, Status, StepState};
use crate::versions::Versions;

const STATUSES: [Status; 6] = [
    Status::Waiting,
    Status::Ready,
    Status::Succeeded,
    Status::Passed,
    Status::Failed,
    Status::Skipped,
];

const PHASES: [Phase; 9] = [
    Phase::Running,
    Phase::Failing,
    Phase::Undoing,
    Phase::Parked,
    Phase::Ended(End::Completed),
    Phase::Ended(End::Refused),
    Phase::Ended(End::Failed),
    Phase::Ended(End::Cancelled),
    Phase::Ended(End::Resolved),
];

/// The place of a value in a list of all there are.
fn place<T: PartialEq>(of: &T, among: &[T]) -> u8 {
    let place = among.iter().position(|one| one == of);
    place.expect("the list has all of them") as u8
}

fn at<T: Copy>(place: u8, among: &[T]) -> Result<T, Cut> {
    among.get(usize::from(place)).copied().ok_or(Cut)
}

pub fn write(out: &mut Writer<'_>, instance: &Instance) {
    out.fixed(instance.version.0);
    out.signed(instance.started_ms);
    out.signed(instance.changed_ms - instance.started_ms);
    out.byte(place(&instance.phase, &PHASES));
    out.byte(u8::from(instance.told));
    out.number(u64::from(instance.stage));
    out.bytes(&instance.input);
    match &instance.cause {
        None => out.byte(0),
        Some(cause) => {
            out.byte(1 + place(&cause.end, &End::ALL));
            out.number(cause.step.map_or(0, |step| u64::from(step) + 1));
            out.signed(cause.at_ms);
            out.bytes(cause.reason.as_bytes());
        }
    }
    for step in &instance.steps {
        write_progress(out, &step.done);
        write_progress(out, &step.undone);
        out.byte(u8::from(step.in_doubt));
    }
    out.number(instance.attempts.len() as u64);
    for attempt in &instance.attempts {
        out.number(u64::from(attempt.step) << 1 | u64::from(attempt.undo));
        out.number(u64::from(attempt.number));
        out.signed(attempt.begun_ms);
        out.signed(attempt.ended_ms);
        out.bytes(attempt.reason.as_bytes());
    }
    out.number(instance.notes.len() as u64);
    for note in &instance.notes {
        out.signed(note.at_ms);
        out.bytes(note.text.as_bytes());
    }
}

fn write_progress(out: &mut Writer<'_>, progress: &Progress) {
    let has_answer = u8::from(progress.answer.is_some());
    out.byte(place(&progress.status, &STATUSES) << 1 | has_answer);
    if progress.status == Status::Waiting {
        return;
    }
    out.number(u64::from(progress.tries));
    out.signed(progress.begun_ms);
    out.signed(progress.ended_ms);
    out.signed(progress.due_ms);
    if let Some(answer) = &progress.answer {
        write_answer(out, answer);
    }
}

pub fn read(from: &mut Reader<'_>, id: &str, versions: &Versions) -> Result<Instance, RecordError> {
    let version = Version(from.fixed()?);
    let definition = versions.get(version).ok_or(RecordError::Version(version))?;
    let started_ms = from.signed()?;
    let lasted = from.signed()?;
    let mut instance = Instance {
        id: Arc::from(id),
        version,
        started_ms,
        changed_ms: started_ms.wrapping_add(lasted),
        phase: at(from.byte()?, &PHASES)?,
        told: from.byte()? != 0,
        stage: from.small()?,
        input: Bytes::copy_from_slice(from.bytes()?),
        cause: read_cause(from)?,
        steps: Box::default(),
        attempts: Vec::new(),
        notes: Vec::new(),
        definition,
    };
    let count = instance.definition.steps.len();
    let steps: Result<_, Cut> = (0..count).map(|_| read_step(from)).collect();
    instance.steps = steps?;
    for _ in 0..from.number()? {
        instance.attempts.push(read_attempt(from)?);
    }
    for _ in 0..from.number()? {
        instance.notes.push(Note {
            at_ms: from.signed()?,
            text: from.text()?,
        });
    }
    match is_whole(&instance) {
        true => Ok(instance),
        false => Err(RecordError::Misfit),
    }
}

/// Every step that is named is there.
fn is_whole(instance: &Instance) -> bool {
    let count = instance.steps.len();
    let mut steps = instance.attempts.iter().map(|attempt| attempt.step);
    let cause = instance.cause.as_ref().and_then(|cause| cause.step);
    usize::from(instance.stage) <= count
        && cause.is_none_or(|step| usize::from(step) < count)
        && steps.all(|step| usize::from(step) < count)
}

fn read_cause(from: &mut Reader<'_>) -> Result<Option<Box<Cause>>, Cut> {
    let Some(end) = from.byte()?.checked_sub(1) else {
        return Ok(None);
    };
    let end = at(end, &End::ALL)?;
    let step: u16 = from.small()?;
    Ok(Some(Box::new(Cause {
        end,
        step: step.checked_sub(1),
        at_ms: from.signed()?,
        reason: from.text()?,
    })))
}

fn read_step(from: &mut Reader<'_>) -> Result<StepState, Cut> {
    Ok(StepState {
        done: read_progress(from)?,
        undone: read_progress(from)?,
        in_doubt: from.byte()? != 0,
    })
}

fn read_progress(from: &mut Reader<'_>) -> Result<Progress, Cut> {
    let packed = from.byte()?;
    let status = at(packed >> 1, &STATUSES)?;
    if status == Status::Waiting {
        return Ok(Progress::default());
    }
    Ok(Progress {
        status,
        tries: from.small()?,
        begun_ms: from.signed()?,
        ended_ms: from.signed()?,
        due_ms: from.signed()?,
        answer: match packed & 1 {
            1 => Some(read_answer(from)?),
            _ => None,
        },
    })
}

fn read_attempt(from: &mut Reader<'_>) -> Result<Attempt, Cut> {
    let packed: u32 = from.small()?;
    Ok(Attempt {
        step: u16::try_from(packed >> 1).map_err(|_| Cut)?,
        undo: packed & 1 == 1,
        number: from.small()?,
        begun_ms: from.signed()?,
        ended_ms: from.signed()?,
        reason: from.text()?,
    })
}
