//! Events as bytes.

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};

use super::RecordError;
use crate::machine::{Answer, Event, Millis, Tried, Trouble};

const SUCCEEDED: u8 = 1;
const FAILED: u8 = 2;
const LATE: u8 = 3;
const CANCELLED: u8 = 4;
const SURRENDERED: u8 = 5;
const RETRIED: u8 = 6;
const SKIPPED: u8 = 7;
const RESOLVED: u8 = 8;
const TOLD: u8 = 9;

const AGAIN: u8 = 0;
const FINAL: u8 = 1;
const REFUSED: u8 = 2;

pub fn write(out: &mut Vec<u8>, event: &Event) {
    match event {
        Event::Succeeded { tried, answer } => {
            out.u8(SUCCEEDED);
            write_tried(out, tried);
            write_answer(out, answer);
        }
        Event::Failed {
            tried,
            trouble,
            in_doubt,
            reason,
        } => {
            out.u8(FAILED);
            write_tried(out, tried);
            match trouble {
                Trouble::Again { due_ms } => {
                    out.u8(AGAIN);
                    out.zigzag(*due_ms);
                }
                Trouble::Final => out.u8(FINAL),
                Trouble::Refused => out.u8(REFUSED),
            }
            out.bool(*in_doubt);
            out.text_var(reason);
        }
        Event::Late { at_ms } => write_time(out, LATE, *at_ms),
        Event::Cancelled { at_ms, note } => write_note(out, CANCELLED, *at_ms, note),
        Event::Surrendered { at_ms, doubtful } => {
            write_time(out, SURRENDERED, *at_ms);
            out.varint(*doubtful);
        }
        Event::Retried { at_ms, note } => write_note(out, RETRIED, *at_ms, note),
        Event::Skipped { step, at_ms, note } => {
            write_note(out, SKIPPED, *at_ms, note);
            out.varint(u64::from(*step));
        }
        Event::Resolved { at_ms, note } => write_note(out, RESOLVED, *at_ms, note),
        Event::Told { at_ms } => write_time(out, TOLD, *at_ms),
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

fn write_tried(out: &mut Vec<u8>, tried: &Tried) {
    out.varint(u64::from(tried.step) << 1 | u64::from(tried.undo));
    out.zigzag(tried.at_ms);
    out.zigzag(tried.at_ms - tried.begun_ms);
}

pub fn write_answer(out: &mut Vec<u8>, answer: &Answer) {
    out.varint(u64::from(answer.status));
    out.blob_var(&answer.body);
}

pub fn read(from: &mut Reader<'_>) -> Result<Event, RecordError> {
    Ok(match from.u8()? {
        SUCCEEDED => Event::Succeeded {
            tried: read_tried(from)?,
            answer: read_answer(from)?,
        },
        FAILED => Event::Failed {
            tried: read_tried(from)?,
            trouble: match from.u8()? {
                AGAIN => Trouble::Again {
                    due_ms: from.zigzag()?,
                },
                REFUSED => Trouble::Refused,
                _ => Trouble::Final,
            },
            in_doubt: from.u8()? != 0,
            reason: from.text_var()?.to_owned(),
        },
        LATE => Event::Late {
            at_ms: from.zigzag()?,
        },
        CANCELLED => Event::Cancelled {
            at_ms: from.zigzag()?,
            note: from.text_var()?.to_owned(),
        },
        SURRENDERED => Event::Surrendered {
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
        TOLD => Event::Told {
            at_ms: from.zigzag()?,
        },
        kind => return Err(RecordError::Kind(kind)),
    })
}

fn read_tried(from: &mut Reader<'_>) -> Result<Tried, DecodeError> {
    let packed: u32 = from.varint_as()?;
    let step =
        u16::try_from(packed >> 1).map_err(|_| DecodeError::Invalid("a step is too large"))?;
    let at_ms = from.zigzag()?;
    let lasted = from.zigzag()?;
    Ok(Tried {
        step,
        undo: packed & 1 == 1,
        begun_ms: at_ms.wrapping_sub(lasted),
        at_ms,
    })
}

pub fn read_answer(from: &mut Reader<'_>) -> Result<Answer, DecodeError> {
    Ok(Answer {
        status: from.varint_as()?,
        body: Bytes::copy_from_slice(from.blob_var()?),
    })
}
