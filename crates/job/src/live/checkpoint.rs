//! The encoding of a checkpoint, the whole state of a job.
//!
//! A header with a checksum precedes the contents, so that a truncated or damaged file is detected.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::Offset;
use highwater_time::Instant;

use super::fingerprint::Fingerprint;
use super::output::EndpointStates;
use crate::reference::EffectiveSnapshots;

const MAGIC: [u8; 8] = *b"HWCHECKP";
const VERSION: u32 = 3;
/// Magic, version, length, checksum of the contents, checksum of the header.
const HEADER_LEN: usize = 28;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// The identity of the job whose state this is.
    pub fingerprint: Fingerprint,
    /// The number of the first checkpoint of this row numbering.
    pub epoch: u64,
    /// Rows before this time are not sent.
    pub since: Instant,
    /// All rows before this time have been sent.
    pub watermark: Instant,
    /// Time has ended: the job cannot continue.
    pub ended: bool,
    /// The next offset and the state of each stream.
    pub streams: Vec<(Offset, Vec<u8>)>,
    pub shared: Vec<u8>,
    pub outputs: Vec<OutputCheckpoint>,
    /// The latest time of any processed event.
    pub reached: Instant,
    pub references: EffectiveSnapshots,
    /// The number under which static reference tables are stored, if there are any.
    pub tables: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutputCheckpoint {
    pub name: String,
    /// The number of the next row.
    pub next: u64,
    pub states: Option<EndpointStates>,
}

/// Bytes that are no valid checkpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum CheckpointError {
    #[error("truncated: {0} bytes, shorter than the header")]
    Short(usize),
    #[error("it does not start like a checkpoint")]
    Magic,
    #[error("it is of version {0}, which this version of Highwater cannot read")]
    Version(u32),
    #[error("it should have {expected} bytes and has {found}")]
    Length { expected: u64, found: u64 },
    #[error("its checksum is wrong")]
    Checksum,
    #[error("its contents are damaged: {0}")]
    Contents(#[from] DecodeError),
}

impl Checkpoint {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_LEN];
        self.fingerprint.write(&mut out);
        out.u64(self.epoch);
        out.i64(self.since.ticks());
        out.i64(self.watermark.ticks());
        out.bool(self.ended);
        out.count(self.streams.len());
        for (next, state) in &self.streams {
            out.i64(next.0);
            out.blob(state);
        }
        out.blob(&self.shared);
        out.count(self.outputs.len());
        for output in &self.outputs {
            out.text(&output.name);
            out.u64(output.next);
            write_states(output.states.as_ref(), &mut out);
        }
        out.i64(self.reached.ticks());
        self.references.write(&mut out);
        out.bool(self.tables.is_some());
        out.u64(self.tables.unwrap_or_default());
        seal(out)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
        let mut from = Reader::new(checked_contents(bytes)?);
        let saved = Checkpoint {
            fingerprint: Fingerprint::read(&mut from)?,
            epoch: from.u64()?,
            since: Instant::from_ticks(from.i64()?),
            watermark: Instant::from_ticks(from.i64()?),
            ended: from.u8()? != 0,
            streams: (0..from.count()?)
                .map(|_| Ok((Offset(from.i64()?), from.blob()?.to_vec())))
                .collect::<Result<_, DecodeError>>()?,
            shared: from.blob()?.to_vec(),
            outputs: (0..from.count()?)
                .map(|_| {
                    Ok(OutputCheckpoint {
                        name: String::from_utf8_lossy(from.blob()?).into_owned(),
                        next: from.u64()?,
                        states: read_states(&mut from)?,
                    })
                })
                .collect::<Result<_, DecodeError>>()?,
            reached: Instant::from_ticks(from.i64()?),
            references: EffectiveSnapshots::read(&mut from)?,
            tables: match (from.u8()?, from.u64()?) {
                (0, _) => None,
                (_, number) => Some(number),
            },
        };
        from.end()?;
        Ok(saved)
    }
}

fn write_states(states: Option<&EndpointStates>, out: &mut Vec<u8>) {
    let Some(states) = states else {
        return out.u8(0);
    };
    out.u8(1 + u8::from(states.dead.is_some()));
    out.blob(&states.own);
    if let Some(dead) = &states.dead {
        out.blob(dead);
    }
}

fn read_states(from: &mut Reader<'_>) -> Result<Option<EndpointStates>, DecodeError> {
    let kind = from.u8()?;
    if kind == 0 {
        return Ok(None);
    }
    Ok(Some(EndpointStates {
        own: from.blob()?.to_vec(),
        dead: match kind {
            1 => None,
            _ => Some(from.blob()?.to_vec()),
        },
    }))
}

/// Fills in the header.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let contents = &bytes[HEADER_LEN..];
    let (length, sum) = (contents.len() as u64, crc32c::crc32c(contents));
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..20].copy_from_slice(&length.to_le_bytes());
    bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    let header = crc32c::crc32c(&bytes[..24]);
    bytes[24..28].copy_from_slice(&header.to_le_bytes());
    bytes
}

/// The contents, if length and checksums match the header.
fn checked_contents(bytes: &[u8]) -> Result<&[u8], CheckpointError> {
    let split = bytes.split_at_checked(HEADER_LEN);
    let (header, contents) = split.ok_or(CheckpointError::Short(bytes.len()))?;
    let mut header = Reader::new(header);
    if header.array()? != MAGIC {
        return Err(CheckpointError::Magic);
    }
    let version = header.u32()?;
    let (expected, sum) = (header.u64()?, header.u32()?);
    if header.u32()? != crc32c::crc32c(&bytes[..24]) {
        return Err(CheckpointError::Checksum);
    }
    if version != VERSION {
        return Err(CheckpointError::Version(version));
    }
    let found = contents.len() as u64;
    if expected != found {
        return Err(CheckpointError::Length { expected, found });
    }
    match crc32c::crc32c(contents) == sum {
        true => Ok(contents),
        false => Err(CheckpointError::Checksum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Checkpoint {
        let output = |name: &str, states| OutputCheckpoint {
            name: name.to_owned(),
            next: 17,
            states,
        };
        let states = |dead| EndpointStates {
            own: vec![1, 2, 3],
            dead,
        };
        Checkpoint {
            fingerprint: Fingerprint::of_words(&[("query", "select"), ("plan", "")]),
            epoch: 7,
            since: Instant::from_ticks(5),
            watermark: Instant::from_ticks(900),
            ended: false,
            streams: vec![(Offset(4), vec![9; 20]), (Offset(0), Vec::new())],
            shared: vec![8; 5],
            outputs: vec![
                output("a", None),
                output("b", Some(states(None))),
                output("c", Some(states(Some(vec![4])))),
            ],
            reached: Instant::from_ticks(950),
            references: EffectiveSnapshots::default(),
            tables: Some(6),
        }
    }

    #[test]
    fn what_was_saved_is_read_back() {
        let bytes = saved().encode();
        assert_eq!(&bytes[..12], b"HWCHECKP\x03\0\0\0");
        assert_eq!(Checkpoint::decode(&bytes), Ok(saved()));
    }

    #[test]
    fn no_flipped_bit_and_no_missing_byte_goes_unnoticed() {
        let bytes = saved().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            Checkpoint::decode(&damaged).unwrap_err();
            Checkpoint::decode(&bytes[..at]).unwrap_err();
        }
        Checkpoint::decode(&[&bytes[..], &[0]].concat()).unwrap_err();
    }

    #[test]
    fn another_version_is_told_apart_from_damage() {
        let mut bytes = saved().encode();
        bytes[8] = 4;
        let sum = crc32c::crc32c(&bytes[..24]);
        bytes[24..28].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Checkpoint::decode(&bytes), Err(CheckpointError::Version(4)));
    }
}
