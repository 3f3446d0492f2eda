//! Batches whose records are compressed anew: after compaction, or into the codec of their hub.

use bytes::Bytes;

use super::codec::{Codec, compress};
use super::{Batch, BatchError, BatchHeader, Decompressor, HEADER_LEN, LENGTH_END};

impl Batch {
    /// The same records in another codec.
    pub fn recompressed(
        &self,
        codec: Codec,
        decompressor: &mut Decompressor,
    ) -> Result<Batch, BatchError> {
        let records = self.records(decompressor)?;
        let mut header = self.header;
        header.set_codec(codec);
        packed(header, records.rest())
    }
}

/// A batch of these records, which are not compressed yet, in the codec of the header. Length and checksum are set.
pub(super) fn packed(mut header: BatchHeader, body: &[u8]) -> Result<Batch, BatchError> {
    let records: Bytes = match header.codec()? {
        Codec::None => Bytes::copy_from_slice(body),
        codec => {
            let mut compressed = Vec::new();
            compress(codec, body, &mut compressed)?;
            compressed.into()
        }
    };
    let size = HEADER_LEN + records.len();
    let length = i32::try_from(size - LENGTH_END).map_err(|_| BatchError::TooLong { size })?;
    header.set_length(length);
    header.set_crc(header.crc_with(&records));
    Ok(Batch {
        header,
        records,
        time: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{BatchBuilder, BatchOptions, NewRecord};
    use super::*;

    // proves K4
    #[test]
    fn records_are_the_same_in_every_codec() {
        let mut builder = BatchBuilder::new();
        for number in 0..100 {
            builder.push(&NewRecord {
                key: Some(b"key"),
                value: Some(format!("value {number}").as_bytes()),
                headers: &[("name", Some(b"value"))],
            });
        }
        let options = BatchOptions {
            timestamp: Some(77),
            ..BatchOptions::default()
        };
        let plain = builder.build(&options).unwrap();
        let mut decompressor = Decompressor::new(1 << 20);
        for from in Codec::ALL {
            let packed = plain.recompressed(from, &mut decompressor).unwrap();
            assert_eq!(packed.header().codec(), Ok(from));
            assert_eq!(packed.check_records(), plain.check_records(), "{from:?}");
            assert!(from == Codec::None || packed.size() < plain.size());
            // As a producer could have sent it: with a right length and checksum.
            let (parsed, rest) = Batch::parse(packed.to_bytes()).unwrap();
            assert!(rest.is_empty());
            for to in Codec::ALL {
                let again = parsed.recompressed(to, &mut decompressor).unwrap();
                let unpacked = again.recompressed(Codec::None, &mut decompressor).unwrap();
                assert_eq!(unpacked.to_bytes(), plain.to_bytes(), "{from:?} {to:?}");
            }
        }
    }
}
