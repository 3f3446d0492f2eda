//! Numbers and texts as bytes: LEB128, zigzag for signed ones, lengths before texts.

pub struct Writer<'o>(pub &'o mut Vec<u8>);

impl Writer<'_> {
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub fn fixed(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)) as u64);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

pub struct Reader<'b>(pub &'b [u8]);

/// The bytes end before the record does, or a number has too many of them.
#[derive(Debug)]
pub struct Cut;

impl<'b> Reader<'b> {
    pub fn byte(&mut self) -> Result<u8, Cut> {
        let (first, rest) = self.0.split_first().ok_or(Cut)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn fixed(&mut self) -> Result<u64, Cut> {
        let (number, rest) = self.0.split_first_chunk().ok_or(Cut)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*number))
    }

    pub fn number(&mut self) -> Result<u64, Cut> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Cut)
    }

    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Cut> {
        T::try_from(self.number()?).map_err(|_| Cut)
    }

    pub fn signed(&mut self) -> Result<i64, Cut> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub fn bytes(&mut self) -> Result<&'b [u8], Cut> {
        let length = self.small()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Cut)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub fn text(&mut self) -> Result<String, Cut> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}
