//! Converts the arrays of a Parquet file to columns of events.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_schema::{DataType, TimeUnit};
use highwater_engine::{Column, ColumnBuilder, Record, Value, ValueRef};
use highwater_time::Instant;

use crate::source::BadKind;
use crate::table::BadRow;

const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// The column, and the rows with values that events cannot hold. The error names a type that events cannot hold at all.
pub(crate) fn decode_column(
    array: &ArrayRef,
    name: &str,
    bad: &mut Vec<BadRow>,
) -> Result<Column, String> {
    match array.data_type() {
        DataType::Int64 => Ok(Column::Int(array.as_primitive::<Int64Type>().clone())),
        DataType::Float64 => Ok(Column::Float(array.as_primitive::<Float64Type>().clone())),
        DataType::Boolean => Ok(Column::Bit(array.as_boolean().clone())),
        DataType::Utf8 => Ok(Column::Text(array.as_string::<i32>().clone())),
        _ => {
            let mut builder = ColumnBuilder::with_capacity(array.len());
            for row in 0..array.len() {
                match decode(array, row)? {
                    Ok(value) => builder.push_owned(value),
                    Err(reason) => {
                        builder.push_null();
                        bad.push(BadRow {
                            row,
                            kind: BadKind::InvalidData,
                            reason: format!("{name}: {reason}"),
                        });
                    }
                }
            }
            Ok(builder.finish())
        }
    }
}

/// One value of a row, or why it is invalid.
type ValueResult = Result<Value, &'static str>;

fn decode(array: &ArrayRef, row: usize) -> Result<ValueResult, String> {
    if array.is_null(row) {
        return Ok(Ok(Value::Null));
    }
    match array.data_type() {
        DataType::Null => Ok(Ok(Value::Null)),
        DataType::Boolean => Ok(Ok(Value::Bit(array.as_boolean().value(row)))),
        number if number.is_numeric() => match decode_number(array, row) {
            Some(value) => Ok(value),
            None => Err(unsupported(number)),
        },
        DataType::Utf8 => Ok(Ok(Value::text(array.as_string::<i32>().value(row)))),
        DataType::LargeUtf8 => Ok(Ok(Value::text(array.as_string::<i64>().value(row)))),
        DataType::Utf8View => Ok(Ok(Value::text(array.as_string_view().value(row)))),
        DataType::Binary => Ok(text(array.as_binary::<i32>().value(row))),
        DataType::LargeBinary => Ok(text(array.as_binary::<i64>().value(row))),
        DataType::BinaryView => Ok(text(array.as_binary_view().value(row))),
        DataType::FixedSizeBinary(_) => Ok(text(array.as_fixed_size_binary().value(row))),
        DataType::Date32 => Ok(time(
            i128::from(native::<Date32Type>(array, row)) * NANOS_PER_DAY,
        )),
        DataType::Timestamp(unit, _) => {
            let (value, nanos) = match unit {
                TimeUnit::Second => (native::<TimestampSecondType>(array, row), 1_000_000_000),
                TimeUnit::Millisecond => {
                    (native::<TimestampMillisecondType>(array, row), 1_000_000)
                }
                TimeUnit::Microsecond => (native::<TimestampMicrosecondType>(array, row), 1_000),
                TimeUnit::Nanosecond => (native::<TimestampNanosecondType>(array, row), 1),
            };
            Ok(time(i128::from(value) * nanos))
        }
        DataType::List(_) => items(&array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => items(&array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(_, _) => items(&array.as_fixed_size_list().value(row)),
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let mut record = Vec::with_capacity(fields.len());
            for (field, column) in fields.iter().zip(columns) {
                match decode(column, row)? {
                    Ok(value) => record.push((Arc::from(field.name().as_str()), value)),
                    Err(reason) => return Ok(Err(reason)),
                }
            }
            Ok(Ok(Value::Record(Record::from_fields(record).into())))
        }
        DataType::Map(_, _) => entries(&array.as_map().value(row)),
        other => Err(unsupported(other)),
    }
}

fn native<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

/// `None` for a type that events cannot hold.
fn decode_number(array: &ArrayRef, row: usize) -> Option<ValueResult> {
    let int = |value: i64| Some(Ok(Value::Int(value)));
    let float = |value: f64| Some(Ok(Value::Float(value)));
    match array.data_type() {
        DataType::Int8 => int(native::<Int8Type>(array, row).into()),
        DataType::Int16 => int(native::<Int16Type>(array, row).into()),
        DataType::Int32 => int(native::<Int32Type>(array, row).into()),
        DataType::Int64 => int(native::<Int64Type>(array, row)),
        DataType::UInt8 => int(native::<UInt8Type>(array, row).into()),
        DataType::UInt16 => int(native::<UInt16Type>(array, row).into()),
        DataType::UInt32 => int(native::<UInt32Type>(array, row).into()),
        DataType::UInt64 => Some(
            i64::try_from(native::<UInt64Type>(array, row))
                .map(Value::Int)
                .map_err(|_| "the integer does not fit into 64 bits with a sign"),
        ),
        DataType::Float16 => float(native::<Float16Type>(array, row).into()),
        DataType::Float32 => float(native::<Float32Type>(array, row).into()),
        DataType::Float64 => float(native::<Float64Type>(array, row)),
        DataType::Decimal128(_, scale) => {
            let unscaled = native::<Decimal128Type>(array, row);
            // Through decimal text, so that there is one rounding.
            let value = format!("{unscaled}e{}", -i32::from(*scale)).parse();
            let value = value.map(Value::Float);
            Some(value.map_err(|_| "the decimal is not a number"))
        }
        _ => None,
    }
}

fn unsupported(data_type: &DataType) -> String {
    format!("it has a column of type {data_type}, which events cannot hold")
}

fn items(array: &ArrayRef) -> Result<ValueResult, String> {
    let mut values = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        match decode(array, row)? {
            Ok(value) => values.push(value),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    Ok(Ok(Value::Array(values.into())))
}

/// A map becomes a record if its keys are texts.
fn entries(entries: &arrow_array::StructArray) -> Result<ValueResult, String> {
    let mut fields = Vec::with_capacity(entries.len());
    for row in 0..entries.len() {
        let key = decode(entries.column(0), row)?;
        let value = decode(entries.column(1), row)?;
        match (key, value) {
            (Ok(Value::Text(key)), Ok(value)) => fields.push((key, value)),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
            _ => return Ok(Err("a map has a key that is not text")),
        }
    }
    Ok(Ok(Value::Record(Record::from_fields(fields).into())))
}

fn text(bytes: &[u8]) -> ValueResult {
    let text = std::str::from_utf8(bytes);
    text.map(Value::text)
        .map_err(|_| "the bytes are not valid UTF-8, and events hold text only")
}

fn time(nanos: i128) -> ValueResult {
    let time = Instant::from_unix_nanos(nanos);
    match time.is_in_calendar() {
        true => Ok(Value::Time(time)),
        false => Err("the time is outside of the years 1 to 9999"),
    }
}

/// Whether a value fits into nanoseconds since 1970 in 64 bits.
pub(crate) fn unix_nanos(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Time(time) => i64::try_from(time.to_unix_nanos()).ok(),
        _ => None,
    }
}
