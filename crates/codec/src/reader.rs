use crate::{DecodeError, varint};

type Read<T> = Result<T, DecodeError>;

/// Takes values from the front of a slice. See the crate documentation for the three families of methods.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    pub fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    /// An error if bytes are left.
    pub fn end(&self) -> Read<()> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// The next `count` bytes.
    #[inline]
    pub fn raw(&mut self, count: usize) -> Read<&'a [u8]> {
        let split = self.bytes.split_at_checked(count);
        let (taken, rest) = split.ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let split = self.bytes.split_first_chunk();
        let (taken, rest) = split.ok_or(DecodeError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    #[inline]
    pub fn u8(&mut self) -> Read<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// 0 or 1; any other byte is an error.
    pub fn bool(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::unknown("a flag", other)),
        }
    }

    /// A byte that says which version follows.
    pub fn version(&mut self, expected: u8) -> Read<()> {
        match self.u8()? {
            found if found == expected => Ok(()),
            found => Err(DecodeError::unknown("version", found)),
        }
    }

    /// A flag, then the value if the flag is set.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        match self.bool()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }

    #[inline]
    pub fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub fn i64(&mut self) -> Read<i64> {
        self.array().map(i64::from_le_bytes)
    }

    #[inline]
    pub fn i128(&mut self) -> Read<i128> {
        self.array().map(i128::from_le_bytes)
    }

    #[inline]
    pub fn f64(&mut self) -> Read<f64> {
        self.u64().map(f64::from_bits)
    }

    /// A count of things that take at least one byte each.
    #[inline]
    pub fn count(&mut self) -> Read<usize> {
        let count = self.u64()?;
        self.plausible(count)
    }

    #[inline]
    pub fn blob(&mut self) -> Read<&'a [u8]> {
        let length = self.count()?;
        self.raw(length)
    }

    pub fn text(&mut self) -> Read<&'a str> {
        utf8(self.blob()?)
    }

    #[inline]
    pub fn u16_be(&mut self) -> Read<u16> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub fn u32_be(&mut self) -> Read<u32> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub fn u64_be(&mut self) -> Read<u64> {
        self.array().map(u64::from_be_bytes)
    }

    #[inline]
    pub fn i16_be(&mut self) -> Read<i16> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline]
    pub fn i32_be(&mut self) -> Read<i32> {
        self.array().map(i32::from_be_bytes)
    }

    #[inline]
    pub fn i64_be(&mut self) -> Read<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A count of things that take at least one byte each.
    #[inline]
    pub fn count_be(&mut self) -> Read<usize> {
        let count = self.u32_be()?;
        self.plausible(count.into())
    }

    #[inline]
    pub fn blob_be(&mut self) -> Read<&'a [u8]> {
        let length = self.count_be()?;
        self.raw(length)
    }

    pub fn text_be(&mut self) -> Read<&'a str> {
        utf8(self.blob_be()?)
    }

    /// A text after a length of two bytes, as Kafka's protocol has it.
    pub fn short_text_be(&mut self) -> Read<&'a str> {
        let length = self.u16_be()?;
        utf8(self.raw(length.into())?)
    }

    /// A count, then so many values.
    pub fn list_be<T>(&mut self, mut each: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        (0..self.count_be()?).map(|_| each(self)).collect()
    }

    #[inline]
    pub fn varint(&mut self) -> Read<u64> {
        varint::take(&mut self.bytes).ok_or(DecodeError::Truncated)
    }

    /// A varint that must fit into a smaller type.
    pub fn varint_as<T: TryFrom<u64>>(&mut self) -> Read<T> {
        let value = T::try_from(self.varint()?);
        value.map_err(|_| DecodeError::Invalid("a number is too large"))
    }

    #[inline]
    pub fn zigzag(&mut self) -> Read<i64> {
        self.varint().map(varint::unfold)
    }

    /// A count of things that take at least one byte each.
    #[inline]
    pub fn count_var(&mut self) -> Read<usize> {
        let count = self.varint()?;
        self.plausible(count)
    }

    #[inline]
    pub fn blob_var(&mut self) -> Read<&'a [u8]> {
        let length = self.count_var()?;
        self.raw(length)
    }

    pub fn text_var(&mut self) -> Read<&'a str> {
        utf8(self.blob_var()?)
    }

    /// Refuses a count that the remaining bytes cannot hold.
    #[inline]
    fn plausible(&self, count: u64) -> Read<usize> {
        match usize::try_from(count) {
            Ok(count) if count <= self.bytes.len() => Ok(count),
            _ => Err(DecodeError::Truncated),
        }
    }
}

fn utf8(bytes: &[u8]) -> Read<&str> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;
    use proptest::prelude::*;

    #[test]
    fn a_length_beyond_the_end_is_refused_before_anything_is_reserved() {
        let mut out = Vec::new();
        out.u64(u64::MAX);
        assert_eq!(Reader::new(&out).blob(), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&out).blob_be(), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&out).blob_var(), Err(DecodeError::Truncated));
    }

    #[test]
    fn each_family_has_its_byte_order() {
        let mut out = Vec::new();
        out.u32(1);
        out.u32_be(1);
        out.varint(300);
        out.zigzag(-2);
        assert_eq!(out, [1, 0, 0, 0, 0, 0, 0, 1, 0xac, 2, 3]);
    }

    #[test]
    fn a_flag_is_0_or_1_and_nothing_may_follow_the_end() {
        let mut from = Reader::new(&[1, 0, 2, 9]);
        assert_eq!(from.bool(), Ok(true));
        assert_eq!(from.optional(Reader::u8), Ok(None));
        let error = from.bool().unwrap_err();
        assert_eq!(error, DecodeError::unknown("a flag", 2u8));
        assert_eq!(from.end(), Err(DecodeError::Trailing(1)));
        assert_eq!(from.rest(), [9]);
        assert_eq!(from.end(), Ok(()));
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(a: u64, b: i64, c: i128, text: String, bytes: Vec<u8>) {
            let mut out = Vec::new();
            out.u64(a);
            out.i64_be(b);
            out.i128(c);
            out.zigzag(b);
            out.varint(a);
            out.text(&text);
            out.blob_be(&bytes);
            out.text_var(&text);
            let mut from = Reader::new(&out);
            prop_assert_eq!(from.u64(), Ok(a));
            prop_assert_eq!(from.i64_be(), Ok(b));
            prop_assert_eq!(from.i128(), Ok(c));
            prop_assert_eq!(from.zigzag(), Ok(b));
            prop_assert_eq!(from.varint(), Ok(a));
            prop_assert_eq!(from.text(), Ok(&text[..]));
            prop_assert_eq!(from.blob_be(), Ok(&bytes[..]));
            prop_assert_eq!(from.text_var(), Ok(&text[..]));
            prop_assert_eq!(from.end(), Ok(()));
        }
    }
}
