//! The values and levels of one leaf column, a few thousand rows at a time.

use highwater_engine::{ColumnBuilder, Value};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type, Int96Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::ColumnDescriptor;

use super::leaf_type::{
    LeafType, ValueResult, date, decimal, decimal_of_bytes, half_float, julian_time, text, time,
    unsigned,
};

/// A leaf column of a row group, and its rows that are being read.
pub(super) struct Leaf {
    leaf_type: LeafType,
    values: Values,
    levels: Levels,
    /// The next level, and the next value.
    at: usize,
    next_value: usize,
}

/// One level for each value, NULL or empty list; levels that are always 0 are not stored.
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
    definition_max: i16,
    repetition_max: i16,
    count: usize,
}

/// The values that are not NULL, by physical type.
enum Values {
    Bool(Decoded<BoolType>),
    Int32(Decoded<Int32Type>),
    Int64(Decoded<Int64Type>),
    Int96(Decoded<Int96Type>),
    Float(Decoded<FloatType>),
    Double(Decoded<DoubleType>),
    Bytes(Decoded<ByteArrayType>),
    FixedBytes(Decoded<FixedLenByteArrayType>),
}

struct Decoded<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
}

impl<T: DataType> Decoded<T> {
    fn of(reader: ColumnReaderImpl<T>) -> Decoded<T> {
        Decoded {
            reader,
            values: Vec::new(),
        }
    }

    fn read(&mut self, rows: usize, levels: &mut Levels) -> Result<()> {
        self.values.clear();
        levels.definition.clear();
        levels.repetition.clear();
        let (definition, repetition) = (&mut levels.definition, &mut levels.repetition);
        let (records, _, count) =
            self.reader
                .read_records(rows, Some(definition), Some(repetition), &mut self.values)?;
        if records != rows {
            return Err(malformed("a column has fewer rows than its row group"));
        }
        levels.count = count;
        Ok(())
    }
}

impl Leaf {
    pub(super) fn new(
        reader: ColumnReader,
        column: &ColumnDescriptor,
        leaf_type: LeafType,
    ) -> Leaf {
        Leaf {
            leaf_type,
            values: match reader {
                ColumnReader::BoolColumnReader(reader) => Values::Bool(Decoded::of(reader)),
                ColumnReader::Int32ColumnReader(reader) => Values::Int32(Decoded::of(reader)),
                ColumnReader::Int64ColumnReader(reader) => Values::Int64(Decoded::of(reader)),
                ColumnReader::Int96ColumnReader(reader) => Values::Int96(Decoded::of(reader)),
                ColumnReader::FloatColumnReader(reader) => Values::Float(Decoded::of(reader)),
                ColumnReader::DoubleColumnReader(reader) => Values::Double(Decoded::of(reader)),
                ColumnReader::ByteArrayColumnReader(reader) => Values::Bytes(Decoded::of(reader)),
                ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                    Values::FixedBytes(Decoded::of(reader))
                }
            },
            levels: Levels {
                definition: Vec::new(),
                repetition: Vec::new(),
                definition_max: column.max_def_level(),
                repetition_max: column.max_rep_level(),
                count: 0,
            },
            at: 0,
            next_value: 0,
        }
    }

    /// Decodes the next `rows` rows.
    pub(super) fn read(&mut self, rows: usize) -> Result<()> {
        (self.at, self.next_value) = (0, 0);
        let levels = &mut self.levels;
        match &mut self.values {
            Values::Bool(values) => values.read(rows, levels),
            Values::Int32(values) => values.read(rows, levels),
            Values::Int64(values) => values.read(rows, levels),
            Values::Int96(values) => values.read(rows, levels),
            Values::Float(values) => values.read(rows, levels),
            Values::Double(values) => values.read(rows, levels),
            Values::Bytes(values) => values.read(rows, levels),
            Values::FixedBytes(values) => values.read(rows, levels),
        }
    }

    /// The definition level of the next value.
    pub(super) fn definition(&self) -> Result<i16> {
        match self.levels.definition_max {
            _ if self.at >= self.levels.count => Err(malformed("a column ends within a row")),
            0 => Ok(0),
            _ => Ok(self.levels.definition[self.at]),
        }
    }

    /// The repetition level of the next value; `None` at the end of the rows.
    pub(super) fn repetition(&self) -> Option<i16> {
        match self.levels.repetition_max {
            _ if self.at >= self.levels.count => None,
            0 => Some(0),
            _ => Some(self.levels.repetition[self.at]),
        }
    }

    /// Goes past a level that stands for no value.
    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    /// The next value.
    pub(super) fn take(&mut self) -> Result<ValueResult> {
        let defined = self.definition()? == self.levels.definition_max;
        self.at += 1;
        if !defined {
            return Ok(Ok(Value::Null));
        }
        self.next_value += 1;
        self.value(self.next_value - 1)
    }

    fn value(&self, index: usize) -> Result<ValueResult> {
        let integer = match &self.values {
            Values::Int32(ints) => i64::from(*at(&ints.values, index)?),
            Values::Int64(ints) => *at(&ints.values, index)?,
            Values::Bool(bits) => return Ok(Ok(Value::Bit(*at(&bits.values, index)?))),
            Values::Float(floats) => {
                return Ok(Ok(Value::Float((*at(&floats.values, index)?).into())));
            }
            Values::Double(floats) => return Ok(Ok(Value::Float(*at(&floats.values, index)?))),
            Values::Int96(times) => return Ok(julian_time(at(&times.values, index)?)),
            Values::Bytes(bytes) => return Ok(self.of_bytes(at(&bytes.values, index)?.data())),
            Values::FixedBytes(bytes) => return Ok(self.of_bytes(at(&bytes.values, index)?.data())),
        };
        Ok(match self.leaf_type {
            LeafType::Null => Ok(Value::Null),
            LeafType::Unsigned { bits } => unsigned(integer, bits),
            LeafType::Decimal { scale } => decimal(integer.into(), scale),
            LeafType::Date => date(integer),
            LeafType::Timestamp { nanos_per_unit } => time(i128::from(integer) * nanos_per_unit),
            _ => Ok(Value::Int(integer)),
        })
    }

    fn of_bytes(&self, bytes: &[u8]) -> ValueResult {
        match self.leaf_type {
            LeafType::Null => Ok(Value::Null),
            LeafType::Decimal { scale } => decimal_of_bytes(bytes, scale),
            LeafType::HalfFloat => half_float(bytes),
            _ => text(bytes).map(Value::text),
        }
    }

    /// All rows of a column that is not nested, into its column; `bad` is called for rows that events cannot hold.
    pub(super) fn flat_rows(
        &mut self,
        rows: usize,
        column: &mut ColumnBuilder,
        mut bad: impl FnMut(usize, &'static str),
    ) -> Result<()> {
        match (&self.values, self.leaf_type) {
            (Values::Bool(bits), LeafType::Bit) => {
                self.each(rows, &bits.values, column, |_, bit, column| {
                    column.push_bit(*bit)
                })
            }
            (Values::Int64(ints), LeafType::Int) => {
                self.each(rows, &ints.values, column, |_, int, column| {
                    column.push_int(*int)
                })
            }
            (Values::Int32(ints), LeafType::Int) => {
                self.each(rows, &ints.values, column, |_, int, column| {
                    column.push_int((*int).into())
                })
            }
            (Values::Double(floats), LeafType::Float) => {
                self.each(rows, &floats.values, column, |_, float, column| {
                    column.push_float(*float)
                })
            }
            (Values::Bytes(texts), LeafType::Text) => self.each(
                rows,
                &texts.values,
                column,
                |row, bytes, column| match text(bytes.data()) {
                    Ok(text) => column.push_text(text),
                    Err(reason) => {
                        column.push_null();
                        bad(row, reason);
                    }
                },
            ),
            _ => {
                for row in 0..rows {
                    match self.take()? {
                        Ok(value) => column.push_owned(value),
                        Err(reason) => {
                            column.push_null();
                            bad(row, reason);
                        }
                    }
                }
                Ok(())
            }
        }
    }

    fn each<T>(
        &self,
        rows: usize,
        values: &[T],
        column: &mut ColumnBuilder,
        mut push: impl FnMut(usize, &T, &mut ColumnBuilder),
    ) -> Result<()> {
        let mut values = values.iter();
        for row in 0..rows {
            let levels = &self.levels;
            let defined = levels.definition_max == 0
                || levels.definition.get(row) == Some(&levels.definition_max);
            match defined {
                true => push(row, values.next().ok_or_else(no_value)?, column),
                false => column.push_null(),
            }
        }
        Ok(())
    }
}

fn at<T>(values: &[T], index: usize) -> Result<&T> {
    values.get(index).ok_or_else(no_value)
}

fn no_value() -> ParquetError {
    malformed("a column has fewer values than levels")
}

pub(super) fn malformed(reason: &str) -> ParquetError {
    ParquetError::General(reason.into())
}
