//! The event types of the values of a leaf column.

use highwater_engine::Value;
use highwater_time::Instant;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as PhysicalType};
use parquet::data_type::Int96;
use parquet::schema::types::Type;

/// One value of a row, or why events cannot hold it.
pub(super) type ValueResult = Result<Value, &'static str>;

const NANOS_PER_DAY: i128 = 86_400_000_000_000;
/// The Julian day on which Unix time starts: `INT96` counts days from the start of the Julian period.
const JULIAN_DAY_OF_UNIX_EPOCH: i128 = 2_440_588;
/// The decimals that fit into an `i128`.
const DECIMAL_DIGITS_MAX: i32 = 38;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LeafType {
    /// A column that holds nothing but NULLs.
    Null,
    Bit,
    Int,
    /// An integer without a sign, in the low bits of the physical one.
    Unsigned {
        bits: u8,
    },
    Float,
    /// Two bytes.
    HalfFloat,
    Decimal {
        scale: i32,
    },
    Text,
    Date,
    Timestamp {
        nanos_per_unit: i128,
    },
    /// Days and nanoseconds, in 96 bits.
    JulianTime,
}

impl LeafType {
    /// The error names a type that events cannot hold.
    pub(super) fn of(column: &Type) -> Result<LeafType, String> {
        let info = column.get_basic_info();
        let logical = info.logical_type_ref();
        let converted = info.converted_type();
        if let Some(LogicalType::Unknown) = logical {
            return Ok(LeafType::Null);
        }
        let known = match column.get_physical_type() {
            PhysicalType::BOOLEAN => Some(LeafType::Bit),
            PhysicalType::INT32 | PhysicalType::INT64 => integer(column, logical, converted),
            PhysicalType::INT96 => Some(LeafType::JulianTime),
            PhysicalType::FLOAT | PhysicalType::DOUBLE => Some(LeafType::Float),
            PhysicalType::BYTE_ARRAY => bytes(column, logical, converted),
            PhysicalType::FIXED_LEN_BYTE_ARRAY => match (logical, converted) {
                (Some(LogicalType::Float16), _) => Some(LeafType::HalfFloat),
                (None, ConvertedType::INTERVAL) => None,
                _ => bytes(column, logical, converted),
            },
        };
        known.ok_or_else(|| unsupported(column, logical, converted))
    }
}

fn integer(
    column: &Type,
    logical: Option<&LogicalType>,
    converted: ConvertedType,
) -> Option<LeafType> {
    let timestamp = |nanos_per_unit| Some(LeafType::Timestamp { nanos_per_unit });
    match (logical, converted) {
        (Some(LogicalType::Integer(integer)), _) if integer.is_signed => Some(LeafType::Int),
        (Some(LogicalType::Integer(integer)), _) => Some(LeafType::Unsigned {
            bits: u8::try_from(integer.bit_width).ok()?,
        }),
        (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => Some(LeafType::Date),
        (Some(LogicalType::Timestamp(time)), _) => timestamp(match time.unit {
            TimeUnit::MILLIS => 1_000_000,
            TimeUnit::MICROS => 1_000,
            TimeUnit::NANOS => 1,
        }),
        (Some(LogicalType::Decimal(decimal)), _) => Some(LeafType::Decimal {
            scale: decimal.scale,
        }),
        (Some(_), _) => None,
        (None, ConvertedType::TIMESTAMP_MILLIS) => timestamp(1_000_000),
        (None, ConvertedType::TIMESTAMP_MICROS) => timestamp(1_000),
        (None, ConvertedType::UINT_8) => Some(LeafType::Unsigned { bits: 8 }),
        (None, ConvertedType::UINT_16) => Some(LeafType::Unsigned { bits: 16 }),
        (None, ConvertedType::UINT_32) => Some(LeafType::Unsigned { bits: 32 }),
        (None, ConvertedType::UINT_64) => Some(LeafType::Unsigned { bits: 64 }),
        (None, ConvertedType::DECIMAL) => Some(LeafType::Decimal {
            scale: column.get_scale(),
        }),
        (None, ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS) => None,
        (None, _) => Some(LeafType::Int),
    }
}

/// Bytes are decimals or else text.
fn bytes(
    column: &Type,
    logical: Option<&LogicalType>,
    converted: ConvertedType,
) -> Option<LeafType> {
    let (scale, digits) = match (logical, converted) {
        (Some(LogicalType::Decimal(decimal)), _) => (decimal.scale, decimal.precision),
        (None, ConvertedType::DECIMAL) => (column.get_scale(), column.get_precision()),
        _ => return Some(LeafType::Text),
    };
    (digits <= DECIMAL_DIGITS_MAX).then_some(LeafType::Decimal { scale })
}

fn unsupported(column: &Type, logical: Option<&LogicalType>, converted: ConvertedType) -> String {
    let name = column.name();
    let physical = column.get_physical_type();
    let annotation = match (logical, converted) {
        (Some(LogicalType::Decimal(_)), _) | (None, ConvertedType::DECIMAL) => {
            format!("DECIMAL of more than {DECIMAL_DIGITS_MAX} digits")
        }
        (Some(LogicalType::Time(_)), _) => "TIME".into(),
        (Some(logical), _) => format!("{logical:?}"),
        (None, converted) => converted.to_string(),
    };
    format!("its column `{name}` is of type {physical} ({annotation}), which events cannot hold")
}

pub(super) fn unsigned(value: i64, bits: u8) -> ValueResult {
    let value = match bits {
        64 => value as u64,
        bits => value as u64 & ((1 << bits) - 1),
    };
    i64::try_from(value)
        .map(Value::Int)
        .map_err(|_| "the integer does not fit into 64 bits with a sign")
}

pub(super) fn half_float(bytes: &[u8]) -> ValueResult {
    let bytes = bytes.try_into().map_err(|_| "a FLOAT16 has two bytes")?;
    Ok(Value::Float(half::f16::from_le_bytes(bytes).into()))
}

pub(super) fn decimal(unscaled: i128, scale: i32) -> ValueResult {
    // Through decimal text, so that there is one rounding.
    let value = format!("{unscaled}e{}", -i64::from(scale)).parse();
    value
        .map(Value::Float)
        .map_err(|_| "the decimal is not a number")
}

/// The unscaled value in big-endian bytes.
pub(super) fn decimal_of_bytes(bytes: &[u8], scale: i32) -> ValueResult {
    const WIDTH: usize = size_of::<i128>();
    if bytes.len() > WIDTH {
        return Err("the decimal is longer than 16 bytes");
    }
    let sign = bytes.first().map_or(0, |first| ((*first as i8) >> 7) as u8);
    let mut wide = [sign; WIDTH];
    wide[WIDTH - bytes.len()..].copy_from_slice(bytes);
    decimal(i128::from_be_bytes(wide), scale)
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, &'static str> {
    std::str::from_utf8(bytes)
        .map_err(|_| "the bytes are not valid UTF-8, and events hold text only")
}

pub(super) fn date(days: i64) -> ValueResult {
    time(i128::from(days) * NANOS_PER_DAY)
}

pub(super) fn julian_time(value: &Int96) -> ValueResult {
    let [low, high, day] = *value.data() else {
        return Err("an INT96 has twelve bytes");
    };
    let nanos = i128::from(u64::from(high) << 32 | u64::from(low));
    time((i128::from(day) - JULIAN_DAY_OF_UNIX_EPOCH) * NANOS_PER_DAY + nanos)
}

pub(super) fn time(unix_nanos: i128) -> ValueResult {
    let time = Instant::from_unix_nanos(unix_nanos);
    match time.is_in_calendar() {
        true => Ok(Value::Time(time)),
        false => Err("the time is outside of the years 1 to 9999"),
    }
}
