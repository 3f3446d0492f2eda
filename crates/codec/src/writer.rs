use crate::varint;

/// Appends values to a `Vec<u8>`. See the crate documentation for the three families of methods.
pub trait Writer {
    /// The bytes as they are, without a length.
    fn raw(&mut self, bytes: &[u8]);

    #[inline]
    fn u8(&mut self, value: u8) {
        self.raw(&[value]);
    }

    #[inline]
    fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    #[inline]
    fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    #[inline]
    fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    #[inline]
    fn i64(&mut self, value: i64) {
        self.raw(&value.to_le_bytes());
    }

    #[inline]
    fn i128(&mut self, value: i128) {
        self.raw(&value.to_le_bytes());
    }

    #[inline]
    fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }

    #[inline]
    fn count(&mut self, value: usize) {
        self.u64(value as u64);
    }

    #[inline]
    fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    fn text(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    #[inline]
    fn u32_be(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    fn u64_be(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    fn i16_be(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    fn i32_be(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    #[inline]
    fn i64_be(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// # Panics
    /// If there are 2^32 things or more, which no record can hold.
    #[inline]
    fn count_be(&mut self, value: usize) {
        self.u32_be(u32::try_from(value).expect("a record is smaller than 4 GiB"));
    }

    #[inline]
    fn blob_be(&mut self, bytes: &[u8]) {
        self.count_be(bytes.len());
        self.raw(bytes);
    }

    fn text_be(&mut self, text: &str) {
        self.blob_be(text.as_bytes());
    }

    /// # Panics
    /// If the text is longer than 65,535 bytes.
    fn short_text_be(&mut self, text: &str) {
        let length = u16::try_from(text.len()).expect("a name is shorter than 64 KiB");
        self.raw(&length.to_be_bytes());
        self.raw(text.as_bytes());
    }

    fn varint(&mut self, value: u64);

    #[inline]
    fn zigzag(&mut self, value: i64) {
        self.varint(varint::fold(value));
    }

    #[inline]
    fn blob_var(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }

    fn text_var(&mut self, text: &str) {
        self.blob_var(text.as_bytes());
    }
}

impl Writer for Vec<u8> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        varint::put(self, value);
    }
}
