//! Events as bytes.

use bytes::Bytes;

use super::RecordError;
use super::bytes::{Cut, Reader, Writer};
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

pub fn write(out: &mut Writer<'_>, event: &Event) {
    match event {
        Event::Succeeded { tried, answer } => {
            out.byte(SUCCEEDED);
            write_tried(out, tried);
            write_answer(out, answer);
        }
        Event::Failed {
            tried,
            trouble,
            in_doubt,
            reason,
        } => {
            out.byte(FAILED);
            write_tried(out, tried);
            match trouble {
                Trouble::Again { due_ms } => {
                    out.byte(AGAIN);
                    out.signed(*due_ms);
                }
                Trouble::Final => out.byte(FINAL),
                Trouble::Refused => out.byte(REFUSED),
            }
            out.byte(u8::from(*in_doubt));
            out.bytes(reason.as_bytes());
        }
        Event::Late { at_ms } => write_time(out, LATE, *at_ms),
        Event::Cancelled { at_ms, note } => write_note(out, CANCELLED, *at_ms, note),
        Event::Surrendered { at_ms, doubtful } => {
            write_time(out, SURRENDERED, *at_ms);
            out.number(*doubtful);
        }
        Event::Retried { at_ms, note } => write_note(out, RETRIED, *at_ms, note),
        Event::Skipped { step, at_ms, note } => {
            write_note(out, SKIPPED, *at_ms, note);
            out.number(u64::from(*step));
        }
        Event::Resolved { at_ms, note } => write_note(out, RESOLVED, *at_ms, note),
        Event::Told { at_ms } => write_time(out, TOLD, *at_ms),
    }
}

fn write_time(out: &mut Writer<'_>, kind: u8, at_ms: Millis) {
    out.byte(kind);
    out.signed(at_ms);
}

fn write_note(out: &mut Writer<'_>, kind: u8, at_ms: Millis, note: &str) {
    write_time(out, kind, at_ms);
    out.bytes(note.as_bytes());
}

fn write_tried(out: &mut Writer<'_>, tried: &Tried) {
    out.number(u64::from(tried.step) << 1 | u64::from(tried.undo));
    out.signed(tried.at_ms);
    out.signed(tried.at_ms - tried.begun_ms);
}

pub fn write_answer(out: &mut Writer<'_>, answer: &Answer) {
    out.number(u64::from(answer.status));
    out.bytes(&answer.body);
}

pub fn read(from: &mut Reader<'_>) -> Result<Event, RecordError> {
    Ok(match from.byte()? {
        SUCCEEDED => Event::Succeeded {
            tried: read_tried(from)?,
            answer: read_answer(from)?,
        },
        FAILED => Event::Failed {
            tried: read_tried(from)?,
            trouble: match from.byte()? {
                AGAIN => Trouble::Again {
                    due_ms: from.signed()?,
                },
                REFUSED => Trouble::Refused,
                _ => Trouble::Final,
            },
            in_doubt: from.byte()? != 0,
            reason: from.text()?,
        },
        LATE => Event::Late {
            at_ms: from.signed()?,
        },
        CANCELLED => Event::Cancelled {
            at_ms: from.signed()?,
            note: from.text()?,
        },
        SURRENDERED => Event::Surrendered {
            at_ms: from.signed()?,
            doubtful: from.number()?,
        },
        RETRIED => Event::Retried {
            at_ms: from.signed()?,
            note: from.text()?,
        },
        SKIPPED => Event::Skipped {
            at_ms: from.signed()?,
            note: from.text()?,
            step: from.small()?,
        },
        RESOLVED => Event::Resolved {
            at_ms: from.signed()?,
            note: from.text()?,
        },
        TOLD => Event::Told {
            at_ms: from.signed()?,
        },
        kind => return Err(RecordError::Kind(kind)),
    })
}

fn read_tried(from: &mut Reader<'_>) -> Result<Tried, Cut> {
    let packed: u32 = from.small()?;
    let step = u16::try_from(packed >> 1).map_err(|_| Cut)?;
    let at_ms = from.signed()?;
    let lasted = from.signed()?;
    Ok(Tried {
        step,
        undo: packed & 1 == 1,
        begun_ms: at_ms.wrapping_sub(lasted),
        at_ms,
    })
}

pub fn read_answer(from: &mut Reader<'_>) -> Result<Answer, Cut> {
    Ok(Answer {
        status: from.small()?,
        body: Bytes::copy_from_slice(from.bytes()?),
    })
}
