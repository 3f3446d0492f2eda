//! The checkpoint of a stream that an instance runs on its own: its state, and where its outputs in the exchange end.

use highwater_codec::{DecodeError, Writer};
use highwater_log::Offset;

use super::super::store_object::ObjectFormat;

/// With one combiner.
const FORMAT: ObjectFormat = ObjectFormat {
    title: *b"HWSTREAM",
    version: 1,
    mistaken: "it is not a checkpoint of a stream (unknown header)",
};

/// With several.
const FORMAT_OF_SEVERAL: ObjectFormat = ObjectFormat {
    version: 2,
    ..FORMAT
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamCheckpoint {
    /// Per combiner, the offset in the exchange after the last output that the state covers.
    pub exchanged: Vec<Offset>,
    pub state: Vec<u8>,
}

impl StreamCheckpoint {
    pub(super) fn encode(&self) -> Vec<u8> {
        match &self.exchanged[..] {
            [exchanged] => FORMAT.encode(|out| {
                out.i64(exchanged.0);
                out.blob(&self.state);
            }),
            several => FORMAT_OF_SEVERAL.encode(|out| {
                out.count(several.len());
                several.iter().for_each(|exchanged| out.i64(exchanged.0));
                out.blob(&self.state);
            }),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<StreamCheckpoint, DecodeError> {
        let is_of_several = bytes.get(FORMAT.title.len()) == Some(&FORMAT_OF_SEVERAL.version);
        let format = match is_of_several {
            true => FORMAT_OF_SEVERAL,
            false => FORMAT,
        };
        format.decode(bytes, |from| {
            let combiners = match is_of_several {
                true => from.count()?,
                false => 1,
            };
            let exchanged = (0..combiners).map(|_| from.i64().map(Offset));
            Ok(StreamCheckpoint {
                exchanged: exchanged.collect::<Result<_, _>>()?,
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
        for exchanged in [vec![Offset(9)], vec![Offset(9), Offset(0), Offset(4)]] {
            let checkpoint = StreamCheckpoint {
                exchanged,
                state: vec![1, 2, 3],
            };
            let bytes = checkpoint.encode();
            assert_eq!(StreamCheckpoint::decode(&bytes), Ok(checkpoint));
        }
    }
}
