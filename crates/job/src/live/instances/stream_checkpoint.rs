//! The checkpoint of a stream that an instance runs on its own: its state, and where its outputs in the exchange end.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_log::Offset;

const MAGIC: [u8; 8] = *b"HWSTREAM";
const VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamCheckpoint {
    /// The offset in the exchange after the last output that the state covers.
    pub exchanged: Offset,
    pub state: Vec<u8>,
}

impl StreamCheckpoint {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.u8(VERSION);
        out.i64(self.exchanged.0);
        out.blob(&self.state);
        let sum = crc32c::crc32c(&out);
        out.u32(sum);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<StreamCheckpoint, DecodeError> {
        let contents = bytes.len().checked_sub(4).ok_or(DecodeError::Truncated)?;
        let (contents, sum) = bytes.split_at(contents);
        if crc32c::crc32c(contents) != Reader::new(sum).u32()? {
            return Err(DecodeError::Invalid("its checksum is wrong"));
        }
        let mut from = Reader::new(contents);
        if from.array()? != MAGIC {
            return Err(DecodeError::Invalid("it is no checkpoint of a stream"));
        }
        from.version(VERSION)?;
        let checkpoint = StreamCheckpoint {
            exchanged: Offset(from.i64()?),
            state: from.blob()?.to_vec(),
        };
        from.end()?;
        Ok(checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_read_back_and_damage_is_noticed() {
        let checkpoint = StreamCheckpoint {
            exchanged: Offset(9),
            state: vec![1, 2, 3],
        };
        let bytes = checkpoint.encode();
        assert_eq!(StreamCheckpoint::decode(&bytes), Ok(checkpoint));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            StreamCheckpoint::decode(&damaged).unwrap_err();
            StreamCheckpoint::decode(&bytes[..at]).unwrap_err();
        }
    }
}
