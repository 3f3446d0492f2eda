//! The frame of the small objects in a state store: a title, a version, the contents, and a checksum of all of it.

use highwater_codec::{DecodeError, Reader, Writer};

/// How one kind of object begins.
pub(super) struct ObjectFormat {
    pub title: [u8; 8],
    pub version: u8,
    /// The error of an object with another title.
    pub mistaken: &'static str,
}

impl ObjectFormat {
    pub(super) fn encode(&self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = self.title.to_vec();
        out.u8(self.version);
        write(&mut out);
        let sum = crc32c::crc32c(&out);
        out.u32(sum);
        out
    }

    /// Decodes all of an object, if it is whole and of this kind.
    pub(super) fn decode<T>(
        &self,
        bytes: &[u8],
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let contents = bytes.len().checked_sub(4).ok_or(DecodeError::Truncated)?;
        let (contents, sum) = bytes.split_at(contents);
        if crc32c::crc32c(contents) != Reader::new(sum).u32()? {
            return Err(DecodeError::Invalid("its checksum is wrong"));
        }
        let mut from = Reader::new(contents);
        if from.array()? != self.title {
            return Err(DecodeError::Invalid(self.mistaken));
        }
        from.version(self.version)?;
        let decoded = read(&mut from)?;
        from.end()?;
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: ObjectFormat = ObjectFormat {
        title: *b"NUMBERS.",
        version: 1,
        mistaken: "it is no number",
    };

    fn decode(bytes: &[u8]) -> Result<u64, DecodeError> {
        NUMBERS.decode(bytes, |from| from.u64())
    }

    #[test]
    fn an_object_is_read_back_and_damage_is_noticed() {
        let bytes = NUMBERS.encode(|out| out.u64(7));
        assert_eq!(decode(&bytes), Ok(7));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            decode(&damaged).unwrap_err();
            decode(&bytes[..at]).unwrap_err();
        }
        let longer = NUMBERS.encode(|out| out.extend([0; 9]));
        decode(&longer).unwrap_err();
        let other = ObjectFormat {
            title: *b"LETTERS.",
            ..NUMBERS
        };
        let other = other.encode(|out| out.u64(7));
        assert_eq!(decode(&other), Err(DecodeError::Invalid(NUMBERS.mistaken)));
    }
}
