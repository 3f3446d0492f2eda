//! The small encoding of keys and values on the coordinators' hubs: numbers in big-endian order, texts
//! and bytes with their length in front. `docs/formats/offsets.md` and `docs/formats/transactions.md`
//! draw what is made of it.

use bytes::Bytes;

/// A record does not say what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it ends too early")]
    Short,
    #[error("it has {0} bytes too many")]
    Long(usize),
    #[error("a text is not UTF-8")]
    Text,
    #[error("kind or version {0} is not known to this version")]
    Unknown(u8),
    #[error("{0}")]
    Value(&'static str),
}

pub(crate) trait Write {
    fn put(&mut self, bytes: &[u8]);

    fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    fn i16(&mut self, value: i16) {
        self.put(&value.to_be_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.put(&value.to_be_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        // Nothing near 4 GiB fits into a record.
        self.u32(value.len() as u32);
        self.put(value);
    }

    fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }
}

impl Write for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Everything has been read.
    pub fn end(self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(Malformed::Long(left)),
        }
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    pub fn owned(&mut self) -> Result<Bytes, Malformed> {
        Ok(Bytes::copy_from_slice(self.bytes()?))
    }

    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)
    }

    /// As many as a count in front says. Nothing is set aside for them beforehand, because the count
    /// may lie.
    pub fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(each(self)?);
        }
        Ok(list)
    }
}
