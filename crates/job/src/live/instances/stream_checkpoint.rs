//! The checkpoint of a stream that an instance runs on its own: its state, and where its outputs in the exchange end.

use highwater_codec::{DecodeError, Writer};
use highwater_log::Offset;

use super::super::store_object::ObjectFormat;

const FORMAT: ObjectFormat = ObjectFormat {
    title: *b"HWSTREAM",
    version: 1,
    mistaken: "it is no checkpoint of a stream",
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamCheckpoint {
    /// The offset in the exchange after the last output that the state covers.
    pub exchanged: Offset,
    pub state: Vec<u8>,
}

impl StreamCheckpoint {
    pub(super) fn encode(&self) -> Vec<u8> {
        FORMAT.encode(|out| {
            out.i64(self.exchanged.0);
            out.blob(&self.state);
        })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<StreamCheckpoint, DecodeError> {
        FORMAT.decode(bytes, |from| {
            Ok(StreamCheckpoint {
                exchanged: Offset(from.i64()?),
                state: from.blob()?.to_vec(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_read_back() {
        let checkpoint = StreamCheckpoint {
            exchanged: Offset(9),
            state: vec![1, 2, 3],
        };
        let bytes = checkpoint.encode();
        assert_eq!(StreamCheckpoint::decode(&bytes), Ok(checkpoint));
    }
}
