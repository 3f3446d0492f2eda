//! A whole instance as bytes: for snapshots, hand-overs and the history.

use std::sync::Arc;

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};

use super::RecordError;
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

/// The index of a value in a list of all values.
fn index_in<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let index = all.iter().position(|known| known == value);
    index.expect("the list has all of them") as u8
}

fn value_at<T: Copy>(all: &[T], index: u8) -> Result<T, DecodeError> {
    let value = all.get(usize::from(index)).copied();
    value.ok_or(DecodeError::unknown("a state", index))
}

pub(crate) fn write(out: &mut Vec<u8>, instance: &Instance) {
    out.u64_be(instance.version.0);
    out.zigzag(instance.started_ms);
    out.zigzag(instance.changed_ms - instance.started_ms);
    out.u8(index_in(&PHASES, &instance.phase));
    out.bool(instance.notified);
    out.varint(u64::from(instance.stage));
    out.blob_var(&instance.input);
    match &instance.cause {
        None => out.u8(0),
        Some(cause) => {
            out.u8(1 + index_in(&End::ALL, &cause.end));
            out.varint(cause.step.map_or(0, |step| u64::from(step) + 1));
            out.zigzag(cause.at_ms);
            out.text_var(&cause.reason);
        }
    }
    for step in &instance.steps {
        write_progress(out, &step.done);
        write_progress(out, &step.undone);
        out.bool(step.in_doubt);
    }
    out.varint(instance.attempts.len() as u64);
    for attempt in &instance.attempts {
        out.varint(u64::from(attempt.step) << 1 | u64::from(attempt.undo));
        out.varint(u64::from(attempt.number));
        out.zigzag(attempt.begun_ms);
        out.zigzag(attempt.ended_ms);
        out.text_var(&attempt.reason);
    }
    out.varint(instance.notes.len() as u64);
    for note in &instance.notes {
        out.zigzag(note.at_ms);
        out.text_var(&note.text);
    }
}

fn write_progress(out: &mut Vec<u8>, progress: &Progress) {
    let has_answer = u8::from(progress.answer.is_some());
    out.u8(index_in(&STATUSES, &progress.status) << 1 | has_answer);
    if progress.status == Status::Waiting {
        return;
    }
    out.varint(u64::from(progress.tries));
    out.zigzag(progress.begun_ms);
    out.zigzag(progress.ended_ms);
    out.zigzag(progress.due_ms);
    if let Some(answer) = &progress.answer {
        write_answer(out, answer);
    }
}

pub(crate) fn read(
    from: &mut Reader<'_>,
    id: &str,
    versions: &Versions,
) -> Result<Instance, RecordError> {
    let version = Version(from.u64_be()?);
    let definition = versions.get(version).ok_or(RecordError::Version(version))?;
    let started_ms = from.zigzag()?;
    let lasted = from.zigzag()?;
    let mut instance = Instance {
        id: Arc::from(id),
        version,
        started_ms,
        changed_ms: started_ms.wrapping_add(lasted),
        phase: value_at(&PHASES, from.u8()?)?,
        notified: from.u8()? != 0,
        stage: from.varint_as()?,
        input: Bytes::copy_from_slice(from.blob_var()?),
        cause: read_cause(from)?,
        steps: Box::default(),
        attempts: Vec::new(),
        notes: Vec::new(),
        definition,
    };
    let count = instance.definition.steps.len();
    let steps: Result<_, DecodeError> = (0..count).map(|_| read_step(from)).collect();
    instance.steps = steps?;
    for _ in 0..from.varint()? {
        instance.attempts.push(read_attempt(from)?);
    }
    for _ in 0..from.varint()? {
        instance.notes.push(Note {
            at_ms: from.zigzag()?,
            text: from.text_var()?.to_owned(),
        });
    }
    match is_whole(&instance) {
        true => Ok(instance),
        false => Err(RecordError::Mismatch),
    }
}

/// Every referenced step exists.
fn is_whole(instance: &Instance) -> bool {
    let count = instance.steps.len();
    let mut steps = instance.attempts.iter().map(|attempt| attempt.step);
    let cause = instance.cause.as_ref().and_then(|cause| cause.step);
    usize::from(instance.stage) <= count
        && cause.is_none_or(|step| usize::from(step) < count)
        && steps.all(|step| usize::from(step) < count)
}

fn read_cause(from: &mut Reader<'_>) -> Result<Option<Box<Cause>>, DecodeError> {
    let Some(end) = from.u8()?.checked_sub(1) else {
        return Ok(None);
    };
    let end = value_at(&End::ALL, end)?;
    let step: u16 = from.varint_as()?;
    Ok(Some(Box::new(Cause {
        end,
        step: step.checked_sub(1),
        at_ms: from.zigzag()?,
        reason: from.text_var()?.to_owned(),
    })))
}

fn read_step(from: &mut Reader<'_>) -> Result<StepState, DecodeError> {
    Ok(StepState {
        done: read_progress(from)?,
        undone: read_progress(from)?,
        in_doubt: from.u8()? != 0,
    })
}

fn read_progress(from: &mut Reader<'_>) -> Result<Progress, DecodeError> {
    let packed = from.u8()?;
    let status = value_at(&STATUSES, packed >> 1)?;
    if status == Status::Waiting {
        return Ok(Progress::default());
    }
    Ok(Progress {
        status,
        tries: from.varint_as()?,
        begun_ms: from.zigzag()?,
        ended_ms: from.zigzag()?,
        due_ms: from.zigzag()?,
        answer: match packed & 1 {
            1 => Some(read_answer(from)?),
            _ => None,
        },
    })
}

fn read_attempt(from: &mut Reader<'_>) -> Result<Attempt, DecodeError> {
    let packed: u32 = from.varint_as()?;
    Ok(Attempt {
        step: u16::try_from(packed >> 1)
            .map_err(|_| DecodeError::Invalid("a step is too large"))?,
        undo: packed & 1 == 1,
        number: from.varint_as()?,
        begun_ms: from.zigzag()?,
        ended_ms: from.zigzag()?,
        reason: from.text_var()?.to_owned(),
    })
}
