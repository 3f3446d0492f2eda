//! Avro's binary encoding: from bytes to values.

use std::sync::Arc;

use highwater_engine::{Record, Value};
use highwater_time::Instant;

use super::schema::{Schema, Schemas};

/// How deep values may nest.
const DEPTH_MAX: u32 = 128;
/// How many values without bytes (null, records of nulls) a block may have beyond one per byte. Otherwise any damaged
/// count would be accepted.
const WITHOUT_BYTES_MAX: usize = 4096;
const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// Reads values from the bytes of one block.
pub(crate) struct ValueReader<'a> {
    schemas: &'a Schemas,
    bytes: &'a [u8],
    /// A well-formed value that an event cannot hold.
    misfit: Option<&'static str>,
    /// How many more values may have no bytes.
    spare: usize,
}

/// Why a value cannot be read. The rest of its block is lost.
#[derive(Debug)]
pub(crate) struct BadValue {
    pub reason: String,
}

type ReadResult<T> = Result<T, BadValue>;

fn bad<T>(reason: impl Into<String>) -> ReadResult<T> {
    Err(BadValue {
        reason: reason.into(),
    })
}

impl<'a> ValueReader<'a> {
    pub(super) fn new(schemas: &'a Schemas, bytes: &'a [u8]) -> ValueReader<'a> {
        ValueReader {
            schemas,
            bytes,
            misfit: None,
            spare: bytes.len().saturating_add(WITHOUT_BYTES_MAX),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The fields of the next event, in the order of the schema. An event may be well-formed and still be bad, for the
    /// returned reason.
    pub(super) fn event(
        &mut self,
        root: usize,
        fields: &mut Vec<Value>,
    ) -> ReadResult<Option<String>> {
        fields.clear();
        let mut misfit = None;
        let (schemas, before) = (self.schemas, self.bytes.len());
        for (name, schema) in &schemas.records[root] {
            let value = self.value(schema, 1);
            let value = value.map_err(|error| BadValue {
                reason: format!("{name}: {}", error.reason),
            })?;
            fields.push(value);
            if let Some(reason) = self.misfit.take() {
                misfit = Some(format!("{name}: {reason}"));
            }
        }
        self.took(before)?;
        Ok(misfit)
    }

    /// Counts a value or an event that has no bytes.
    fn took(&mut self, before: usize) -> ReadResult<()> {
        if self.bytes.len() < before {
            return Ok(());
        }
        match self.spare.checked_sub(1) {
            Some(spare) => {
                self.spare = spare;
                Ok(())
            }
            None => bad("the block has more values than its bytes can hold"),
        }
    }

    /// NULL in place of a value that an event cannot hold.
    fn fit(&mut self, value: Result<Value, &'static str>) -> Value {
        value.unwrap_or_else(|reason| {
            self.misfit = Some(reason);
            Value::Null
        })
    }

    fn value(&mut self, schema: &Schema, depth: u32) -> ReadResult<Value> {
        if depth > DEPTH_MAX {
            return bad(format!("values nest more than {DEPTH_MAX} levels deep"));
        }
        let before = self.bytes.len();
        let value = self.value_of(schema, depth)?;
        self.took(before)?;
        Ok(value)
    }

    fn value_of(&mut self, schema: &Schema, depth: u32) -> ReadResult<Value> {
        Ok(match schema {
            Schema::Null => Value::Null,
            Schema::Boolean => match self.take(1)?[0] {
                0 => Value::Bit(false),
                1 => Value::Bit(true),
                other => return bad(format!("a boolean is written as {other}")),
            },
            Schema::Int | Schema::Long => Value::Int(self.long()?),
            Schema::Float => {
                let bytes = self.array()?;
                Value::Float(f32::from_le_bytes(bytes).into())
            }
            Schema::Double => Value::Float(f64::from_le_bytes(self.array()?)),
            Schema::String | Schema::Bytes => {
                let length = self.length()?;
                let text = text(self.take(length)?);
                self.fit(text)
            }
            Schema::Fixed(length) => {
                let text = text(self.take(*length)?);
                self.fit(text)
            }
            Schema::Enum(symbols) => {
                let place = usize::try_from(self.long()?).ok();
                match place.and_then(|place| symbols.get(place)) {
                    Some(symbol) => Value::Text(symbol.clone()),
                    None => return bad("an enum has no such symbol"),
                }
            }
            Schema::Union(branches) => {
                let place = usize::try_from(self.long()?).ok();
                match place.and_then(|place| branches.get(place)) {
                    Some(branch) => self.value(branch, depth + 1)?,
                    None => return bad("a union has no such branch"),
                }
            }
            Schema::Array(items) => self.items(items, depth)?,
            Schema::Record(record) => {
                let schemas = self.schemas;
                let fields = schemas.records[*record].iter();
                let fields = fields
                    .map(|(name, schema)| Ok((name.clone(), self.value(schema, depth + 1)?)))
                    .collect::<ReadResult<_>>()?;
                Value::Record(Record::from_fields(fields).into())
            }
            Schema::Date => {
                let time = instant(i128::from(self.long()?) * NANOS_PER_DAY);
                self.fit(time)
            }
            Schema::Timestamp(nanos) => {
                let time = instant(i128::from(self.long()?) * nanos);
                self.fit(time)
            }
            Schema::Decimal(scale, length) => {
                let length = match length {
                    Some(length) => *length,
                    None => self.length()?,
                };
                let value = decimal(self.take(length)?, *scale);
                self.fit(value)
            }
        })
    }

    fn items(&mut self, schema: &Schema, depth: u32) -> ReadResult<Value> {
        let mut items = Vec::new();
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(Value::Array(Arc::from(items)));
            }
            if count < 0 {
                // The size in bytes follows, which lets readers skip the block.
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                items.push(self.value(schema, depth + 1)?);
            }
        }
    }

    fn take(&mut self, count: usize) -> ReadResult<&'a [u8]> {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => bad("the block ends inside the value"),
        }
    }

    fn array<const N: usize>(&mut self) -> ReadResult<[u8; N]> {
        let taken = self.take(N)?;
        Ok(*taken.first_chunk().expect("that many bytes were taken"))
    }

    fn length(&mut self) -> ReadResult<usize> {
        match usize::try_from(self.long()?) {
            Ok(length) => Ok(length),
            Err(_) => bad("a length is negative"),
        }
    }

    pub(super) fn long(&mut self) -> ReadResult<i64> {
        let mut value = 0u64;
        for (i, &byte) in self.bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.bytes = &self.bytes[i + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        bad("a number has no end")
    }
}

fn text(bytes: &[u8]) -> Result<Value, &'static str> {
    let text = std::str::from_utf8(bytes);
    text.map(Value::text)
        .map_err(|_| "the bytes are not valid UTF-8, and events hold text only")
}

fn instant(nanos: i128) -> Result<Value, &'static str> {
    let time = Instant::from_unix_nanos(nanos);
    match time.is_in_calendar() {
        true => Ok(Value::Time(time)),
        false => Err("the time is outside of the years 1 to 9999"),
    }
}

/// SAQL has no decimals; the nearest float is used.
fn decimal(bytes: &[u8], scale: u32) -> Result<Value, &'static str> {
    if bytes.len() > 16 {
        return Err("the decimal has more than 38 digits");
    }
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let start = if negative { -1i128 } else { 0 };
    let unscaled = bytes
        .iter()
        .fold(start, |value, byte| value << 8 | i128::from(*byte));
    // Through decimal text, so that there is one rounding.
    let value = format!("{unscaled}e-{scale}").parse();
    value
        .map(Value::Float)
        .map_err(|_| "the decimal is not a number")
}
