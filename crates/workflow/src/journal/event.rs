//! Events as bytes.

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};

use super::RecordError;
use crate::machine::{Answer, AttemptSpan, Event, FailureKind, Millis};

const SUCCEEDED: u8 = 1;
const FAILED: u8 = 2;
const DEADLINE_PASSED: u8 = 3;
const CANCELLED: u8 = 4;
const UNDO_STARTED: u8 = 5;
const RETRIED: u8 = 6;
const SKIPPED: u8 = 7;
const RESOLVED: u8 = 8;
const NOTIFIED: u8 = 9;

const RETRY: u8 = 0;
const FINAL: u8 = 1;
const REFUSED: u8 = 2;

pub(crate) fn write(out: &mut Vec<u8>, event: &Event) {
    match event {
        Event::Succeeded { attempt, answer } => {
            out.u8(SUCCEEDED);
            write_attempt(out, attempt);
            write_answer(out, answer);
        }
        Event::Failed {
            attempt,
            kind,
            in_doubt,
            reason,
        } => {
            out.u8(FAILED);
            write_attempt(out, attempt);
            match kind {
                FailureKind::Retry { due_ms } => {
                    out.u8(RETRY);
                    out.zigzag(*due_ms);
                }
                FailureKind::Final => out.u8(FINAL),
                FailureKind::Refused => out.u8(REFUSED),
            }
            out.bool(*in_doubt);
            out.text_var(reason);
        }
        Event::DeadlinePassed { at_ms } => write_time(out, DEADLINE_PASSED, *at_ms),
        Event::Cancelled { at_ms, note } => write_note(out, CANCELLED, *at_ms, note),
        Event::UndoStarted { at_ms, doubtful } => {
            write_time(out, UNDO_STARTED, *at_ms);
            out.varint(*doubtful);
        }
        Event::Retried { at_ms, note } => write_note(out, RETRIED, *at_ms, note),
        Event::Skipped { step, at_ms, note } => {
            write_note(out, SKIPPED, *at_ms, note);
            out.varint(u64::from(*step));
        }
        Event::Resolved { at_ms, note } => write_note(out, RESOLVED, *at_ms, note),
        Event::Notified { at_ms } => write_time(out, NOTIFIED, *at_ms),
    }
}

fn write_time(out: &mut Vec<u8>, kind: u8, at_ms: Millis) {
    out.u8(kind);
    out.zigzag(at_ms);
}

fn write_note(out: &mut Vec<u8>, kind: u8, at_ms: Millis, note: &str) {
    write_time(out, kind, at_ms);
    out.text_var(note);
}

fn write_attempt(out: &mut Vec<u8>, attempt: &AttemptSpan) {
    out.varint(u64::from(attempt.step) << 1 | u64::from(attempt.undo));
    out.zigzag(attempt.at_ms);
    out.zigzag(attempt.at_ms - attempt.begun_ms);
}

pub(crate) fn write_answer(out: &mut Vec<u8>, answer: &Answer) {
    out.varint(u64::from(answer.status));
    out.blob_var(&answer.body);
}

pub(crate) fn read(from: &mut Reader<'_>) -> Result<Event, RecordError> {
    Ok(match from.u8()? {
        SUCCEEDED => Event::Succeeded {
            attempt: read_attempt(from)?,
            answer: read_answer(from)?,
        },
        FAILED => Event::Failed {
            attempt: read_attempt(from)?,
            kind: match from.u8()? {
                RETRY => FailureKind::Retry {
                    due_ms: from.zigzag()?,
                },
                REFUSED => FailureKind::Refused,
                _ => FailureKind::Final,
            },
            in_doubt: from.u8()? != 0,
            reason: from.text_var()?.to_owned(),
        },
        DEADLINE_PASSED => Event::DeadlinePassed {
            at_ms: from.zigzag()?,
        },
        CANCELLED => Event::Cancelled {
            at_ms: from.zigzag()?,
            note: from.text_var()?.to_owned(),
        },
        UNDO_STARTED => Event::UndoStarted {
            at_ms: from.zigzag()?,
            doubtful: from.varint()?,
        },
        RETRIED => Event::Retried {
            at_ms: from.zigzag()?,
            note: from.text_var()?.to_owned(),
        },
        SKIPPED => Event::Skipped {
            at_ms: from.zigzag()?,
            note: from.text_var()?.to_owned(),
            step: from.varint_as()?,
        },
        RESOLVED => Event::Resolved {
            at_ms: from.zigzag()?,
            note: from.text_var()?.to_owned(),
        },
        NOTIFIED => Event::Notified {
            at_ms: from.zigzag()?,
        },
        kind => return Err(RecordError::Kind(kind)),
    })
}

fn read_attempt(from: &mut Reader<'_>) -> Result<AttemptSpan, DecodeError> {
    let packed: u32 = from.varint_as()?;
    let step =
        u16::try_from(packed >> 1).map_err(|_| DecodeError::Invalid("a step is too large"))?;
    let at_ms = from.zigzag()?;
    let lasted = from.zigzag()?;
    Ok(AttemptSpan {
        step,
        undo: packed & 1 == 1,
        begun_ms: at_ms.wrapping_sub(lasted),
        at_ms,
    })
}

pub(crate) fn read_answer(from: &mut Reader<'_>) -> Result<Answer, DecodeError> {
    Ok(Answer {
        status: from.varint_as()?,
        body: Bytes::copy_from_slice(from.blob_var()?),
    })
}
