//! The built-in scalar functions.
//!
//! Each function is a rule on the values of one row; where a column happens to hold one type, some functions have a
//! faster spelling of the same rule over its whole buffer. Such a spelling answers only if nothing failed on the way:
//! failures are rare, and then the rule is asked row by row, which knows how to report them. So there is one place per
//! function that decides, and it does not depend on how the data is laid out.
//!
//! Unless a function says otherwise NULL among its arguments gives NULL, before anything can fail. An argument of
//! another type is converted where that is lossless to the reader: text becomes a number or a datetime where one is
//! expected, and numbers, bits and datetimes become text. Counts and positions lose their fraction, and one that is
//! too large for a bigint acts as the largest.

mod args;
mod cache;
mod case;
mod cut;
mod date;
#[cfg(feature = "geo")]
mod geo;
mod json;
mod make;
mod math;
mod pattern;
mod records;
mod regexmatch;
mod round;

#[cfg(test)]
mod tests;

use highwater_query::functions::{DatePart, Function};

use super::datum::{Datum, Site};

use args::Call;

pub(super) use records::record;

/// The value of a call in every row. The binder has checked the number of arguments and whether there is a datepart.
pub(super) fn call(
    function: Function,
    part: Option<DatePart>,
    args: &[Datum],
    site: &mut Site<'_>,
) -> Datum {
    let part = part.unwrap_or(DatePart::Day);
    let call = Call {
        function,
        args,
        site,
    };
    match function {
        Function::DateAdd => date::add(call, part),
        Function::DateDiff => date::diff(call, part),
        Function::DateName => date::name(call, part),
        Function::DatePart => date::part(call, part),
        Function::Day => date::part(call, DatePart::Day),
        Function::Month => date::part(call, DatePart::Month),
        Function::Year => date::part(call, DatePart::Year),
        Function::DateTimeFromParts => date::from_parts(call),
        Function::Abs
        | Function::Ceiling
        | Function::Exp
        | Function::Floor
        | Function::Sign
        | Function::Square
        | Function::Sqrt => math::of_one(call),
        Function::Power => math::power(call),
        Function::Round => round::round(call),
        Function::CharIndex => pattern::char_index(call),
        Function::PatIndex => pattern::pat_index(call),
        Function::RegexMatch => regexmatch::regex_match(call),
        Function::Len => cut::len(call),
        Function::Left => cut::left(call),
        Function::Right => cut::right(call),
        Function::LTrim => cut::trim(call, str::trim_start),
        Function::RTrim => cut::trim(call, str::trim_end),
        Function::Trim => cut::trim(call, str::trim),
        Function::Substring => cut::substring(call),
        Function::Lower => case::lower(call),
        Function::Upper => case::upper(call),
        Function::Concat => make::concat(call),
        Function::ConcatWs => make::concat_ws(call),
        Function::NChar => make::nchar(call),
        Function::Unicode => make::unicode(call),
        Function::Replace => make::replace(call),
        Function::Replicate => make::replicate(call),
        Function::Reverse => make::reverse(call),
        Function::Space => make::space(call),
        Function::Stuff => make::stuff(call),
        Function::Translate => make::translate(call),
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
