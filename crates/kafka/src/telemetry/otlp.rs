//! Reads the metrics of a client: the gauges and sums of a `MetricsData` message of OpenTelemetry.
//!
//! The message is walked in place. Fields that are not needed are skipped; a length that its message does not have is
//! an error.

/// A gauge or a sum.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading<'a> {
    pub name: &'a str,
    pub value: f64,
    /// Of a sum: values of several points and clients add up.
    pub is_sum: bool,
}

/// The message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the metrics are no OpenTelemetry message")]
pub(crate) struct InvalidMetrics;

enum Field<'a> {
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// Not needed.
    Other,
}

/// Calls `each` with the number and the value of every field.
fn fields<'a>(
    mut rest: &'a [u8],
    mut each: impl FnMut(u64, Field<'a>) -> Result<(), InvalidMetrics>,
) -> Result<(), InvalidMetrics> {
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let field = match tag & 7 {
            0 => {
                varint(&mut rest)?;
                Field::Other
            }
            1 => {
                let (bytes, after) = rest.split_first_chunk().ok_or(InvalidMetrics)?;
                rest = after;
                Field::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).map_err(|_| InvalidMetrics)?;
                let (bytes, after) = rest.split_at_checked(length).ok_or(InvalidMetrics)?;
                rest = after;
                Field::Bytes(bytes)
            }
            5 => {
                rest = rest.get(4..).ok_or(InvalidMetrics)?;
                Field::Other
            }
            _ => return Err(InvalidMetrics),
        };
        each(tag >> 3, field)?;
    }
    Ok(())
}

fn varint(rest: &mut &[u8]) -> Result<u64, InvalidMetrics> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(InvalidMetrics)?;
        *rest = after;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(InvalidMetrics)
}

/// Calls `each` with every nested message in this field.
fn nested<'a>(
    message: &'a [u8],
    number: u64,
    mut each: impl FnMut(&'a [u8]) -> Result<(), InvalidMetrics>,
) -> Result<(), InvalidMetrics> {
    fields(message, |found, field| match field {
        Field::Bytes(bytes) if found == number => each(bytes),
        _ => Ok(()),
    })
}

/// Calls `each` with the gauges and sums of the message.
pub(super) fn readings<'a>(
    message: &'a [u8],
    mut each: impl FnMut(Reading<'a>),
) -> Result<(), InvalidMetrics> {
    const RESOURCE_METRICS: u64 = 1;
    const SCOPE_METRICS: u64 = 2;
    const METRICS: u64 = 2;
    nested(message, RESOURCE_METRICS, |resource| {
        nested(resource, SCOPE_METRICS, |scope| {
            nested(scope, METRICS, |metric| read_metric(metric, &mut each))
        })
    })
}

fn read_metric<'a>(
    metric: &'a [u8],
    each: &mut impl FnMut(Reading<'a>),
) -> Result<(), InvalidMetrics> {
    const NAME: u64 = 1;
    const GAUGE: u64 = 5;
    const SUM: u64 = 7;
    let (mut name, mut points, mut is_sum) = ("", None, false);
    fields(metric, |number, field| {
        match (number, field) {
            (NAME, Field::Bytes(text)) => {
                name = std::str::from_utf8(text).map_err(|_| InvalidMetrics)?;
            }
            (GAUGE | SUM, Field::Bytes(data)) => {
                points = Some(data);
                is_sum = number == SUM;
            }
            _ => {}
        }
        Ok(())
    })?;
    const DATA_POINTS: u64 = 1;
    let mut value: Option<f64> = None;
    nested(points.unwrap_or_default(), DATA_POINTS, |point| {
        let read = point_value(point)?;
        value = match (value, read) {
            (Some(before), Some(read)) if is_sum => Some(before + read),
            (Some(before), Some(read)) => Some(before.max(read)),
            (before, read) => read.or(before),
        };
        Ok(())
    })?;
    if let Some(value) = value {
        each(Reading {
            name,
            value,
            is_sum,
        });
    }
    Ok(())
}

fn point_value(point: &[u8]) -> Result<Option<f64>, InvalidMetrics> {
    const DOUBLE: u64 = 4;
    const INTEGER: u64 = 6;
    let mut value = None;
    fields(point, |number, field| {
        match (number, field) {
            (DOUBLE, Field::Fixed64(bits)) => value = Some(f64::from_bits(bits)),
            (INTEGER, Field::Fixed64(bits)) => value = Some(bits.cast_signed() as f64),
            _ => {}
        }
        Ok(())
    })?;
    Ok(value.filter(|value| value.is_finite()))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, bytes.len() as u8];
        field.extend_from_slice(bytes);
        field
    }

    /// A message with one metric whose points have these values.
    pub(in crate::telemetry) fn message(name: &str, is_sum: bool, values: &[f64]) -> Vec<u8> {
        let points = values.iter().flat_map(|value| {
            let mut point = vec![4 << 3 | 1];
            point.extend_from_slice(&value.to_bits().to_le_bytes());
            field(1, &point)
        });
        let data: Vec<u8> = points.collect();
        let mut metric = field(1, name.as_bytes());
        metric.extend(field(if is_sum { 7 } else { 5 }, &data));
        field(1, &field(2, &field(2, &metric)))
    }

    fn all(message: &[u8]) -> Result<Vec<(String, f64, bool)>, InvalidMetrics> {
        let mut all = Vec::new();
        readings(message, |one| {
            all.push((one.name.to_owned(), one.value, one.is_sum))
        })?;
        Ok(all)
    }

    #[test]
    fn points_of_a_sum_add_up_and_of_gauges_the_largest_counts() {
        let sum = all(&message("a", true, &[1.0, 2.5])).unwrap();
        assert_eq!(sum, [("a".to_owned(), 3.5, true)]);
        let gauge = all(&message("b", false, &[1.0, f64::NAN, 0.5])).unwrap();
        assert_eq!(gauge, [("b".to_owned(), 1.0, false)]);
        assert_eq!(all(&[]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn invalid_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = all(&bytes);
        }

        #[test]
        fn a_message_that_is_cut_is_refused(cut in 1usize..8) {
            let whole = message("org.apache.kafka.a", false, &[1.0]);
            prop_assert!(all(&whole[..whole.len() - cut]).is_err());
        }
    }
}
