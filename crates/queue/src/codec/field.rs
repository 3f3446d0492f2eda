//! The encoding of each type of field: numbers are varints, times are big-endian, texts and bytes are preceded by
//! their length, an optional value by a flag and a list by its count.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};

pub(super) type Read<T> = Result<T, DecodeError>;

pub(super) trait Field: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(from: &mut FieldReader<'_>) -> Read<Self>;
}

/// A reader that knows its record: bodies are slices of it, not copies.
pub(super) struct FieldReader<'a> {
    record: &'a Bytes,
    reader: Reader<'a>,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(record: &'a Bytes) -> FieldReader<'a> {
        let reader = Reader::new(record);
        FieldReader { record, reader }
    }
}

impl<'a> Deref for FieldReader<'a> {
    type Target = Reader<'a>;

    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl<'a> DerefMut for FieldReader<'a> {
    fn deref_mut(&mut self) -> &mut Reader<'a> {
        &mut self.reader
    }
}

macro_rules! field {
    ($type:ty, |$value:ident, $out:ident| $write:expr, |$from:ident| $read:expr) => {
        impl Field for $type {
            fn write(&self, $out: &mut Vec<u8>) {
                let $value = self;
                $write
            }

            fn read($from: &mut FieldReader<'_>) -> Read<$type> {
                $read
            }
        }
    };
}

field!(bool, |flag, out| out.bool(*flag), |from| from.bool());
field!(u32, |number, out| out.varint(u64::from(*number)), |from| {
    from.varint_as()
});
field!(u64, |number, out| out.varint(*number), |from| from.varint());
field!(i64, |time_ms, out| out.i64_be(*time_ms), |from| from
    .i64_be());
field!(
    Duration,
    |time, out| out.varint(time.as_millis() as u64),
    |from| from.varint().map(Duration::from_millis)
);
field!(String, |text, out| out.text_var(text), |from| from
    .text_var()
    .map(str::to_owned));
field!(Bytes, |bytes, out| out.blob_var(bytes), |from| {
    let bytes = from.blob_var()?;
    Ok(from.record.slice_ref(bytes))
});

impl<T: Field> Field for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        out.bool(self.is_some());
        self.iter().for_each(|value| value.write(out));
    }

    fn read(from: &mut FieldReader<'_>) -> Read<Option<T>> {
        from.bool()?.then(|| T::read(from)).transpose()
    }
}

impl<T: Field> Field for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        out.varint(self.len() as u64);
        self.iter().for_each(|value| value.write(out));
    }

    fn read(from: &mut FieldReader<'_>) -> Read<Vec<T>> {
        (0..from.count_var()?).map(|_| T::read(from)).collect()
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(from: &mut FieldReader<'_>) -> Read<(A, B)> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

impl<T: Field> Field for Arc<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn read(from: &mut FieldReader<'_>) -> Read<Arc<T>> {
        T::read(from).map(Arc::new)
    }
}
