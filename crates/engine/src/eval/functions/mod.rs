//! The built-in scalar functions.
//!
//! Each function is a rule on the values of one row; for columns of one type, some functions have a faster kernel over
//! the whole buffer. Such a kernel returns a result only if no row failed; otherwise the rule runs row by row and
//! reports the failures. So one rule per function decides, and it does not depend on the representation of the data.
//!
//! Unless a function says otherwise, a NULL argument gives NULL, before anything can fail. An argument of another type
//! is converted if that loses nothing: text becomes a number or a datetime where one is expected, and numbers, bits and
//! datetimes become text. Counts and positions lose their fraction, and saturate at the largest bigint.

mod cache;
mod call;
mod date;
#[cfg(feature = "geo")]
mod geo;
mod json;
mod letter_case;
mod math;
mod records;
mod regexmatch;
mod round;
mod text_building;
mod text_parts;
mod text_search;

#[cfg(test)]
mod tests;

use highwater_query::functions::{DatePart, Function};

use super::operand::{Datum, KernelContext};

use call::Call;

pub(super) use records::record;

/// Evaluates a call: the table of kernels, one line per function. The binder has checked the number of arguments and
/// the datepart.
pub(super) fn call(
    function: Function,
    part: Option<DatePart>,
    args: &[Datum],
    context: &mut KernelContext<'_>,
) -> Datum {
    let part = part.unwrap_or(DatePart::Day);
    let call = Call::new(function, args, context);
    match function {
        Function::DateAdd => date::add(call, part),
        Function::DateDiff => date::diff(call, part),
        Function::DateName => date::name(call, part),
        Function::DatePart => date::part(call, part),
        Function::Day => date::part(call, DatePart::Day),
        Function::Month => date::part(call, DatePart::Month),
        Function::Year => date::part(call, DatePart::Year),
        Function::DateTimeFromParts => date::from_parts(call),
        Function::Abs => math::same_type(call, i64::checked_abs, f64::abs),
        Function::Ceiling => math::to_whole(call, f64::ceil),
        Function::Exp => math::to_float(call, f64::exp),
        Function::Floor => math::to_whole(call, f64::floor),
        Function::Sign => math::same_type(call, |int| Some(int.signum()), math::sign),
        Function::Square => math::to_float(call, |float| float * float),
        Function::Sqrt => math::to_float(call, f64::sqrt),
        Function::Power => math::power(call),
        Function::Round => round::round(call),
        Function::CharIndex => text_search::char_index(call),
        Function::PatIndex => text_search::pat_index(call),
        Function::RegexMatch => regexmatch::regex_match(call),
        Function::Len => text_parts::len(call),
        Function::Left => text_parts::left(call),
        Function::Right => text_parts::right(call),
        Function::LTrim => text_parts::trim(call, str::trim_start),
        Function::RTrim => text_parts::trim(call, str::trim_end),
        Function::Trim => text_parts::trim(call, str::trim),
        Function::Substring => text_parts::substring(call),
        Function::Lower => letter_case::lower(call),
        Function::Upper => letter_case::upper(call),
        Function::Concat => text_building::concat(call),
        Function::ConcatWs => text_building::concat_ws(call),
        Function::NChar => text_building::nchar(call),
        Function::Unicode => text_building::unicode(call),
        Function::Replace => text_building::replace(call),
        Function::Replicate => text_building::replicate(call),
        Function::Reverse => text_building::reverse(call),
        Function::Space => text_building::space(call),
        Function::Stuff => text_building::stuff(call),
        Function::Translate => text_building::translate(call),
        Function::JsonParse => records::json_parse(call),
        Function::GetType => records::get_type(call),
        Function::GetArrayElement => records::get_array_element(call),
        Function::GetArrayLength => records::get_array_length(call),
        Function::GetRecordPropertyValue => records::get_record_property_value(call),
        Function::CreatePoint
        | Function::CreateLineString
        | Function::CreatePolygon
        | Function::StDistance
        | Function::StIntersects
        | Function::StOverlaps
        | Function::StWithin
        | Function::GlobeLineString
        | Function::GlobePolygon
        | Function::GlobeIntersects
        | Function::GlobeOverlaps
        | Function::GlobeWithin => geo::call(function, call),
    }
}

#[cfg(not(feature = "geo"))]
mod geo {
    use super::{Call, Datum, Function};

    /// The binder refuses the functions where the catalog is `without_geo`.
    pub(super) fn call(function: Function, _: Call<'_, '_>) -> Datum {
        unreachable!("{function:?} needs the feature `geo`")
    }
}
