//! The scalar functions: one entry each, from which the enum [`Function`], its rows of the function table and the
//! manual are made.
//!
//! The kernel of a function is its line in the engine's `eval/functions/mod.rs`, which does not compile without one.
//! The name of a function is its signature up to the parenthesis; one whose first argument is called `datepart` takes a
//! [`DatePart`](super::DatePart). Examples are facts of the language: tests run each and compare its value.

use super::Category::{Conversion, DateTime, Geospatial, Mathematical, Records, Text};
use super::{FunctionInfo, Kind, NULL_IN_NULL_OUT, at_least, between, exactly};

macro_rules! scalar_functions {
    (
        on_globe { $($planar:ident => $globe:ident,)* }
        $(
            $function:ident {
                category: $category:expr,
                signature: $signature:literal,
                arguments: $arguments:expr,
                result: $result:literal,
                $(nulls: $nulls:literal,)?
                description: $description:literal,
                examples: [$(($expression:literal, $value:literal),)*],
            }
        )*
    ) => {
        /// A built-in scalar function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Function {
            $($function,)*
            // No query names these: [`Function::on_globe`] makes them.
            $($globe,)*
        }

        pub(super) static SCALAR: &[FunctionInfo] = &[
            $(FunctionInfo {
                name: Function::$function.name(),
                aliases: &[],
                kind: Kind::Scalar(Function::$function),
                category: $category,
                signature: $signature,
                arguments: $arguments,
                result: $result,
                nulls: [$($nulls,)? NULL_IN_NULL_OUT][0],
                description: $description,
                examples: &[$(($expression, $value)),*],
            },)*
        ];

        impl Function {
            /// See [`FunctionInfo::signature`].
            pub const fn signature(self) -> &'static str {
                match self {
                    $(Function::$function => $signature,)*
                    $(Function::$globe => Function::$planar.signature(),)*
                }
            }

            /// See [`FunctionInfo::result`].
            pub const fn result(self) -> &'static str {
                match self {
                    $(Function::$function => $result,)*
                    $(Function::$globe => Function::$planar.result(),)*
                }
            }

            /// The variant for shapes on the globe, below compatibility level 1.2.
            pub(crate) const fn on_globe(self) -> Function {
                match self {
                    $(Function::$planar => Function::$globe,)*
                    other => other,
                }
            }
        }
    };
}

scalar_functions! {
    on_globe {
        CreateLineString => GlobeLineString,
        CreatePolygon => GlobePolygon,
        StIntersects => GlobeIntersects,
        StOverlaps => GlobeOverlaps,
        StWithin => GlobeWithin,
    }
    DateAdd {
        category: DateTime,
        signature: "DATEADD(datepart, n, date)",
        arguments: exactly(3),
        result: "datetime",
        description: "The date plus n units. A fraction of n is truncated; a day past the end of the month becomes its last day.",
        examples: [
            ("DATEADD(month, 1, '2024-01-31')", "2024-02-29T00:00:00.0000000Z"),
            ("DATEADD(mm, 1, '2023-01-31T10:00:00Z')", "2023-02-28T10:00:00.0000000Z"),
            ("DATEADD(second, -1.9, '2024-01-01')", "2023-12-31T23:59:59.0000000Z"),
            ("DATEADD(dayofyear, 1, '2024-02-28')", "2024-02-29T00:00:00.0000000Z"),
            ("DATEADD(day, NULL, '2024-01-01')", "NULL"),
        ],
    }
    DateDiff {
        category: DateTime,
        signature: "DATEDIFF(datepart, start, end)",
        arguments: exactly(3),
        result: "bigint",
        description: "The number of unit boundaries between two dates, with a sign. In ON it bounds a join of two sources.",
        examples: [
            ("DATEDIFF(hh, '2024-03-05T10:59:00', '2024-03-05T11:01:00')", "1"),
            ("DATEDIFF(year, '2024-12-31', '2025-01-01')", "1"),
            ("DATEDIFF(day, '2024-03-05', '2024-03-01')", "-4"),
            ("DATEDIFF(week, '2024-03-02', '2024-03-03')", "1"),
        ],
    }
    DateName {
        category: DateTime,
        signature: "DATENAME(datepart, date)",
        arguments: exactly(2),
        result: "nvarchar(max)",
        description: "A part of a date as text; months and weekdays by their English name.",
        examples: [
            ("DATENAME(mm, '2024-03-05')", "March"),
            ("DATENAME(weekday, '2024-03-05')", "Tuesday"),
            ("DATENAME(year, '2024-03-05')", "2024"),
        ],
    }
    DatePart {
        category: DateTime,
        signature: "DATEPART(datepart, date)",
        arguments: exactly(2),
        result: "bigint",
        description: "A part of a date as a number. Weeks start on Sunday, which is weekday 1; week 1 holds 1 January.",
        examples: [
            ("DATEPART(ms, '2024-03-05T00:00:00.1234567')", "123"),
            ("DATEPART(microsecond, '2024-03-05T00:00:00.1234567')", "123456"),
            ("DATEPART(weekday, '2024-03-03')", "1"),
            ("DATEPART(quarter, '2024-03-05')", "1"),
            ("DATEPART(dayofyear, '2024-03-01')", "61"),
        ],
    }
    Day {
        category: DateTime,
        signature: "DAY(date)",
        arguments: exactly(1),
        result: "bigint",
        description: "The day of the month.",
        examples: [
            ("DAY('2024-03-05')", "5"),
        ],
    }
    Month {
        category: DateTime,
        signature: "MONTH(date)",
        arguments: exactly(1),
        result: "bigint",
        description: "The month of the year, from 1.",
        examples: [
            ("MONTH('2024-03-05')", "3"),
        ],
    }
    Year {
        category: DateTime,
        signature: "YEAR(date)",
        arguments: exactly(1),
        result: "bigint",
        description: "The year.",
        examples: [
            ("YEAR('2024-03-05')", "2024"),
        ],
    }
    DateTimeFromParts {
        category: DateTime,
        signature: "DATETIMEFROMPARTS(year, month, day, hour, minute, second, millisecond)",
        arguments: exactly(7),
        result: "datetime",
        description: "The point in time that has these parts; a part out of its range is an error, nothing carries over.",
        examples: [
            ("DATETIMEFROMPARTS(2024, 3, 5, 1, 2, 3, 4)", "2024-03-05T01:02:03.0040000Z"),
        ],
    }
    Abs {
        category: Mathematical,
        signature: "ABS(x)",
        arguments: exactly(1),
        result: "type of x",
        description: "The value without its sign.",
        examples: [
            ("ABS(-2)", "2"),
            ("ABS(-2.5)", "2.5"),
            ("ABS(NULL)", "NULL"),
        ],
    }
    Ceiling {
        category: Mathematical,
        signature: "CEILING(x)",
        arguments: exactly(1),
        result: "type of x",
        description: "The smallest whole number that is not below x; a float stays a float.",
        examples: [
            ("CEILING(1.2)", "2.0"),
            ("CEILING(3)", "3"),
        ],
    }
    Exp {
        category: Mathematical,
        signature: "EXP(x)",
        arguments: exactly(1),
        result: "float",
        description: "e to the power of x; too large a result is an error.",
        examples: [
            ("EXP(0)", "1.0"),
        ],
    }
    Floor {
        category: Mathematical,
        signature: "FLOOR(x)",
        arguments: exactly(1),
        result: "type of x",
        description: "The largest whole number that is not above x; a float stays a float.",
        examples: [
            ("FLOOR(1.8)", "1.0"),
            ("FLOOR(-1.2)", "-2.0"),
        ],
    }
    Power {
        category: Mathematical,
        signature: "POWER(x, y)",
        arguments: exactly(2),
        result: "type of x",
        description: "x to the power of y; a bigint base gives a bigint, cut off at the point.",
        examples: [
            ("POWER(2, 3)", "8"),
            ("POWER(2.0, 3)", "8.0"),
            ("POWER(2, -1)", "0"),
        ],
    }
    Round {
        category: Mathematical,
        signature: "ROUND(x, n)",
        arguments: exactly(2),
        result: "type of x",
        description: "x rounded to n digits behind the point, halves away from zero; a negative n rounds left of the point.",
        examples: [
            ("ROUND(-0.5, 0)", "-1.0"),
            ("ROUND(501.1, -3)", "1000.0"),
            ("ROUND(123.9995, 3)", "124.0"),
            ("ROUND(12, -3)", "0"),
        ],
    }
    Sign {
        category: Mathematical,
        signature: "SIGN(x)",
        arguments: exactly(1),
        result: "type of x",
        description: "-1, 0 or 1, as x is negative, zero or positive.",
        examples: [
            ("SIGN(-3.5)", "-1.0"),
            ("SIGN(0)", "0"),
        ],
    }
    Square {
        category: Mathematical,
        signature: "SQUARE(x)",
        arguments: exactly(1),
        result: "float",
        description: "x times itself.",
        examples: [
            ("SQUARE(3)", "9.0"),
        ],
    }
    Sqrt {
        category: Mathematical,
        signature: "SQRT(x)",
        arguments: exactly(1),
        result: "float",
        description: "The square root; of a negative number it is an error.",
        examples: [
            ("SQRT(9)", "3.0"),
        ],
    }
    CharIndex {
        category: Text,
        signature: "CHARINDEX(find, s [, start])",
        arguments: between(2, 3),
        result: "bigint",
        description: "The position of a text in another, counted from 1; 0 if it does not occur.",
        examples: [
            ("CHARINDEX('b', 'abcb', 3)", "4"),
            ("CHARINDEX('b', 'abcb')", "2"),
            ("CHARINDEX('b', 'abcb', -7)", "2"),
            ("CHARINDEX('x', 'abcb')", "0"),
        ],
    }
    Concat {
        category: Text,
        signature: "CONCAT(a, b, ..)",
        arguments: at_least(2),
        result: "nvarchar(max)",
        nulls: "NULL counts as empty text",
        description: "All arguments as one text.",
        examples: [
            ("CONCAT('a', NULL, 1)", "a1"),
            ("CONCAT(NULL, NULL)", ""),
        ],
    }
    ConcatWs {
        category: Text,
        signature: "CONCAT_WS(separator, a, b, ..)",
        arguments: at_least(3),
        result: "nvarchar(max)",
        nulls: "NULL values are left out with their separator; a NULL separator is empty",
        description: "All arguments as one text, with the separator between them.",
        examples: [
            ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
            ("CONCAT_WS('-', NULL, NULL)", ""),
            ("CONCAT_WS(NULL, 'a', 'b')", "ab"),
        ],
    }
    JsonParse {
        category: Text,
        signature: "JSON_PARSE(s)",
        arguments: exactly(1),
        result: "record",
        nulls: "NULL for whatever is not the text of a JSON object",
        description: "The record that a JSON text describes; never an error.",
        examples: [
            ("JSON_PARSE('{\"a\":1}').a", "1"),
            ("JSON_PARSE('{\"a\":')", "NULL"),
            ("JSON_PARSE('[1]')", "NULL"),
            ("JSON_PARSE(5)", "NULL"),
        ],
    }
    Left {
        category: Text,
        signature: "LEFT(s, n)",
        arguments: exactly(2),
        result: "nvarchar(max)",
        description: "The first n characters; a negative n is an error.",
        examples: [
            ("LEFT('abc', 2)", "ab"),
            ("LEFT('abc', 9)", "abc"),
        ],
    }
    Len {
        category: Text,
        signature: "LEN(s)",
        arguments: exactly(1),
        result: "bigint",
        description: "The number of characters of a text without trailing blanks.",
        examples: [
            ("LEN('ab  ')", "2"),
            ("LEN('  ab')", "4"),
        ],
    }
    Lower {
        category: Text,
        signature: "LOWER(s)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        description: "The text in lower case.",
        examples: [
            ("LOWER('aB')", "ab"),
        ],
    }
    LTrim {
        category: Text,
        signature: "LTRIM(s)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        description: "The text without white space at its start.",
        examples: [
            ("LTRIM('  a ')", "a "),
        ],
    }
    NChar {
        category: Text,
        signature: "NCHAR(n)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        nulls: "NULL if n is NULL or no code point",
        description: "The character with this code point.",
        examples: [
            ("NCHAR(97)", "a"),
            ("NCHAR(-1)", "NULL"),
            ("NCHAR(1114112)", "NULL"),
        ],
    }
    PatIndex {
        category: Text,
        signature: "PATINDEX('%pattern%', s)",
        arguments: exactly(2),
        result: "bigint",
        description: "The position of the first match of a LIKE pattern, counted from 1; 0 if none. Without % it matches only at the ends.",
        examples: [
            ("PATINDEX('%1_%', 'ab12')", "3"),
            ("PATINDEX('b%', 'abc')", "0"),
            ("PATINDEX('a%', 'abc')", "1"),
        ],
    }
    RegexMatch {
        category: Text,
        signature: "REGEXMATCH(s, pattern)",
        arguments: exactly(2),
        result: "bigint",
        description: "The position of the first match of a regular expression, ignoring case, counted from 1; 0 if there is none or the expression is invalid.",
        examples: [
            ("REGEXMATCH('aB7', 'b[0-9]')", "2"),
            ("REGEXMATCH('aB7', '(')", "0"),
            ("REGEXMATCH('aB7', NULL)", "NULL"),
        ],
    }
    Replace {
        category: Text,
        signature: "REPLACE(s, find, by)",
        arguments: exactly(3),
        result: "nvarchar(max)",
        description: "The text with every occurrence of one text replaced by another.",
        examples: [
            ("REPLACE('abab', 'ab', 'x')", "xx"),
            ("REPLACE('abab', '', 'x')", "abab"),
        ],
    }
    Replicate {
        category: Text,
        signature: "REPLICATE(s, n)",
        arguments: exactly(2),
        result: "nvarchar(max)",
        nulls: "NULL if an argument is NULL or n is negative",
        description: "The text n times in a row.",
        examples: [
            ("REPLICATE('0', 3)", "000"),
            ("REPLICATE('0', 0)", ""),
            ("REPLICATE('0', -1)", "NULL"),
        ],
    }
    Reverse {
        category: Text,
        signature: "REVERSE(s)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        description: "The text backwards.",
        examples: [
            ("REVERSE('abc')", "cba"),
        ],
    }
    Right {
        category: Text,
        signature: "RIGHT(s, n)",
        arguments: exactly(2),
        result: "nvarchar(max)",
        description: "The last n characters; a negative n is an error.",
        examples: [
            ("RIGHT('abc', 2)", "bc"),
            ("RIGHT('abc', 9)", "abc"),
        ],
    }
    RTrim {
        category: Text,
        signature: "RTRIM(s)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        description: "The text without white space at its end.",
        examples: [
            ("RTRIM(' a  ')", " a"),
        ],
    }
    Space {
        category: Text,
        signature: "SPACE(n)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        nulls: "NULL if n is NULL or negative",
        description: "n blanks.",
        examples: [
            ("SPACE(2)", "  "),
            ("SPACE(-1)", "NULL"),
        ],
    }
    Stuff {
        category: Text,
        signature: "STUFF(s, start, length, insert)",
        arguments: exactly(4),
        result: "nvarchar(max)",
        nulls: "NULL if an argument is NULL, except that a NULL insert only deletes",
        description: "The text with a stretch of it replaced; a negative length is an error.",
        examples: [
            ("STUFF('abcd', 2, 2, 'X')", "aXd"),
            ("STUFF('abcd', 2, 0, 'X')", "aXbcd"),
            ("STUFF('abcd', 2, 99, 'X')", "aX"),
            ("STUFF('abcd', 5, 1, 'X')", ""),
            ("STUFF('abcd', 2, 2, NULL)", "ad"),
        ],
    }
    Substring {
        category: Text,
        signature: "SUBSTRING(s, start, length)",
        arguments: exactly(3),
        result: "nvarchar(max)",
        description: "A stretch of the text, counted from 1; a negative length is an error.",
        examples: [
            ("SUBSTRING('abc', 2, 9)", "bc"),
            ("SUBSTRING('abc', 0, 2)", "a"),
            ("SUBSTRING('abc', 4, 1)", ""),
        ],
    }
    Translate {
        category: Text,
        signature: "TRANSLATE(s, from, to)",
        arguments: exactly(3),
        result: "nvarchar(max)",
        description: "The text with each character of one list replaced by that of the other; the lists are of equal length.",
        examples: [
            ("TRANSLATE('[a]', '[]', '()')", "(a)"),
            ("TRANSLATE('ab', 'ab', 'ba')", "ba"),
        ],
    }
    Trim {
        category: Text,
        signature: "TRIM(s)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        description: "The text without white space at both ends.",
        examples: [
            ("TRIM(' a ')", "a"),
        ],
    }
    Unicode {
        category: Text,
        signature: "UNICODE(s)",
        arguments: exactly(1),
        result: "bigint",
        nulls: "NULL if the text is NULL or empty",
        description: "The code point of the first character.",
        examples: [
            ("UNICODE('a')", "97"),
            ("UNICODE('')", "NULL"),
        ],
    }
    Upper {
        category: Text,
        signature: "UPPER(s)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        description: "The text in upper case.",
        examples: [
            ("UPPER('ab')", "AB"),
        ],
    }
    GetType {
        category: Conversion,
        signature: "GetType(x)",
        arguments: exactly(1),
        result: "nvarchar(max)",
        description: "The name of the value's type.",
        examples: [
            ("GetType(1.5)", "float"),
            ("GetType(1)", "bigint"),
            ("GetType('a')", "nvarchar(max)"),
            ("GetType(NULL)", "NULL"),
        ],
    }
    CreatePoint {
        category: Geospatial,
        signature: "CreatePoint(latitude, longitude)",
        arguments: exactly(2),
        result: "record",
        description: "A GeoJSON point. It stores longitude first, but takes latitude first.",
        examples: [
            ("CreatePoint(47.5, -122.5)", "{\"type\":\"Point\",\"coordinates\":[-122.5,47.5]}"),
        ],
    }
    CreateLineString {
        category: Geospatial,
        signature: "CreateLineString(point, point, ..)",
        arguments: at_least(2),
        result: "record",
        description: "A GeoJSON line through the points.",
        examples: [
            ("CreateLineString(CreatePoint(1.5, 2.5), CreatePoint(3.5, 4.5))", "{\"type\":\"LineString\",\"coordinates\":[[2.5,1.5],[4.5,3.5]]}"),
        ],
    }
    CreatePolygon {
        category: Geospatial,
        signature: "CreatePolygon(point, point, point, .., point)",
        arguments: at_least(4),
        result: "record",
        description: "A GeoJSON polygon; the last point is the first one again.",
        examples: [
            ("CreatePolygon(CreatePoint(0.5, 0.5), CreatePoint(0.5, 1.5), CreatePoint(1.5, 1.5), CreatePoint(0.5, 0.5))", "{\"type\":\"Polygon\",\"coordinates\":[[[0.5,0.5],[1.5,0.5],[1.5,1.5],[0.5,0.5]]]}"),
        ],
    }
    StDistance {
        category: Geospatial,
        signature: "ST_DISTANCE(a, b)",
        arguments: exactly(2),
        result: "float",
        description: "Metres between two points on the WGS-84 ellipsoid.",
        examples: [
            ("ROUND(ST_DISTANCE(CreatePoint(-5.0, -5.0), CreatePoint(0.0, 0.0)), 2)", "784028.74"),
        ],
    }
    StIntersects {
        category: Geospatial,
        signature: "ST_INTERSECTS(a, b)",
        arguments: exactly(2),
        result: "bigint",
        description: "1 if two geometries have a point in common, touching included; 0 otherwise.",
        examples: [
            (
                "ST_INTERSECTS(CreateLineString(CreatePoint(0.0, 0.0), CreatePoint(2.0, 2.0)), \
                 CreateLineString(CreatePoint(0.0, 2.0), CreatePoint(2.0, 0.0)))",
                "1"
            ),
            (
                "ST_INTERSECTS(CreateLineString(CreatePoint(0.0, 0.0), CreatePoint(2.0, 2.0)), \
                 CreateLineString(CreatePoint(5.0, 5.0), CreatePoint(5.0, 6.0)))",
                "0"
            ),
        ],
    }
    StOverlaps {
        category: Geospatial,
        signature: "ST_OVERLAPS(a, b)",
        arguments: exactly(2),
        result: "bigint",
        description: "1 if two polygons share a part but neither holds the other; 0 otherwise.",
        examples: [
            ("ST_OVERLAPS('POLYGON((0 0, 2 0, 2 2, 0 2, 0 0))', 'POLYGON((1 1, 3 1, 3 3, 1 3, 1 1))')", "1"),
            ("ST_OVERLAPS('POLYGON((0 0, 4 0, 4 4, 0 4, 0 0))', 'POLYGON((1 1, 2 1, 2 2, 1 2, 1 1))')", "0"),
        ],
    }
    StWithin {
        category: Geospatial,
        signature: "ST_WITHIN(geometry, polygon)",
        arguments: exactly(2),
        result: "bigint",
        description: "1 if the geometry lies wholly inside the polygon; 0 otherwise, also on its edge.",
        examples: [
            ("ST_WITHIN(CreatePoint(1.0, 1.0), 'POLYGON((0 0, 2 0, 2 2, 0 2, 0 0))')", "1"),
            ("ST_WITHIN(CreatePoint(0.0, 1.0), 'POLYGON((0 0, 2 0, 2 2, 0 2, 0 0))')", "0"),
        ],
    }
    GetArrayElement {
        category: Records,
        signature: "GetArrayElement(array, index)",
        arguments: exactly(2),
        result: "any",
        nulls: "NULL if an argument is NULL or there is no such element",
        description: "An element of an array, counted from 0.",
        examples: [
            ("GetArrayElement(JSON_PARSE('{\"a\":[7,8]}').a, 1)", "8"),
            ("GetArrayElement(JSON_PARSE('{\"a\":[7,8]}').a, 2)", "NULL"),
            ("GetArrayElement(JSON_PARSE('{\"a\":[7,8]}').a, -1)", "NULL"),
        ],
    }
    GetArrayLength {
        category: Records,
        signature: "GetArrayLength(array)",
        arguments: exactly(1),
        result: "bigint",
        description: "The number of elements of an array.",
        examples: [
            ("GetArrayLength(JSON_PARSE('{\"a\":[7,8]}').a)", "2"),
            ("GetArrayLength(NULL)", "NULL"),
        ],
    }
    GetRecordPropertyValue {
        category: Records,
        signature: "GetRecordPropertyValue(record, name)",
        arguments: exactly(2),
        result: "any",
        nulls: "NULL if an argument is NULL or there is no such property",
        description: "A property of a record by a name that is computed at run time.",
        examples: [
            ("GetRecordPropertyValue(JSON_PARSE('{\"a\":1}'), 'a')", "1"),
            ("GetRecordPropertyValue(JSON_PARSE('{\"a\":1}'), 'b')", "NULL"),
        ],
    }
}
