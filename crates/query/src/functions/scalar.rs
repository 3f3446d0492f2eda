//! The scalar functions, section by section, except those on text. Examples are facts of the language, not of this implementation: each is
//! an expression and the value it must have.

use super::{Category, Function, FunctionInfo, Kind, NULL_IN_NULL_OUT};
use Category::{Conversion, DateTime, Geospatial, Mathematical, Records};

/// An expression and its value; see [`FunctionInfo::examples`].
type Examples = &'static [(&'static str, &'static str)];

pub(super) const fn scalar(
    function: Function,
    category: Category,
    signature: &'static str,
    result: &'static str,
    description: &'static str,
    examples: Examples,
) -> FunctionInfo {
    FunctionInfo {
        name: function.name(),
        aliases: &[],
        kind: Kind::Scalar(function),
        category,
        signature,
        arguments: (1, Some(1)),
        result,
        nulls: NULL_IN_NULL_OUT,
        description,
        examples,
    }
}

pub(super) const fn takes(least: usize, most: usize, info: FunctionInfo) -> FunctionInfo {
    FunctionInfo {
        arguments: (least, Some(most)),
        ..info
    }
}

pub(super) const fn takes_many(least: usize, info: FunctionInfo) -> FunctionInfo {
    FunctionInfo {
        arguments: (least, None),
        ..info
    }
}

pub(super) const fn nulls(rule: &'static str, info: FunctionInfo) -> FunctionInfo {
    FunctionInfo {
        nulls: rule,
        ..info
    }
}

pub(super) static DATE_AND_TIME: [FunctionInfo; 8] = [
    takes(
        3,
        3,
        scalar(
            Function::DateAdd,
            DateTime,
            "DATEADD(datepart, n, date)",
            "datetime",
            "The date moved by n units; a fraction of n is cut off, and months end where the shorter month ends.",
            &[
                (
                    "DATEADD(month, 1, '2024-01-31')",
                    "2024-02-29T00:00:00.0000000Z",
                ),
                (
                    "DATEADD(mm, 1, '2023-01-31T10:00:00Z')",
                    "2023-02-28T10:00:00.0000000Z",
                ),
                (
                    "DATEADD(second, -1.9, '2024-01-01')",
                    "2023-12-31T23:59:59.0000000Z",
                ),
                (
                    "DATEADD(dayofyear, 1, '2024-02-28')",
                    "2024-02-29T00:00:00.0000000Z",
                ),
                ("DATEADD(day, NULL, '2024-01-01')", "NULL"),
            ],
        ),
    ),
    takes(
        3,
        3,
        scalar(
            Function::DateDiff,
            DateTime,
            "DATEDIFF(datepart, start, end)",
            "bigint",
            "How many boundaries of the unit lie between two dates, with a sign. In ON it bounds a join of two sources.",
            &[
                (
                    "DATEDIFF(hh, '2024-03-05T10:59:00', '2024-03-05T11:01:00')",
                    "1",
                ),
                ("DATEDIFF(year, '2024-12-31', '2025-01-01')", "1"),
                ("DATEDIFF(day, '2024-03-05', '2024-03-01')", "-4"),
                ("DATEDIFF(week, '2024-03-02', '2024-03-03')", "1"),
            ],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::DateName,
            DateTime,
            "DATENAME(datepart, date)",
            "nvarchar(max)",
            "A part of a date as text; months and weekdays by their English name.",
            &[
                ("DATENAME(mm, '2024-03-05')", "March"),
                ("DATENAME(weekday, '2024-03-05')", "Tuesday"),
                ("DATENAME(year, '2024-03-05')", "2024"),
            ],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::DatePart,
            DateTime,
            "DATEPART(datepart, date)",
            "bigint",
            "A part of a date as a number. Weeks start on Sunday, which is weekday 1; week 1 holds 1 January.",
            &[
                ("DATEPART(ms, '2024-03-05T00:00:00.1234567')", "123"),
                (
                    "DATEPART(microsecond, '2024-03-05T00:00:00.1234567')",
                    "123456",
                ),
                ("DATEPART(weekday, '2024-03-03')", "1"),
                ("DATEPART(quarter, '2024-03-05')", "1"),
                ("DATEPART(dayofyear, '2024-03-01')", "61"),
            ],
        ),
    ),
    scalar(
        Function::Day,
        DateTime,
        "DAY(date)",
        "bigint",
        "The day of the month.",
        &[("DAY('2024-03-05')", "5")],
    ),
    scalar(
        Function::Month,
        DateTime,
        "MONTH(date)",
        "bigint",
        "The month of the year, from 1.",
        &[("MONTH('2024-03-05')", "3")],
    ),
    scalar(
        Function::Year,
        DateTime,
        "YEAR(date)",
        "bigint",
        "The year.",
        &[("YEAR('2024-03-05')", "2024")],
    ),
    takes(
        7,
        7,
        scalar(
            Function::DateTimeFromParts,
            DateTime,
            "DATETIMEFROMPARTS(year, month, day, hour, minute, second, millisecond)",
            "datetime",
            "The point in time that has these parts; a part out of its range is an error, nothing carries over.",
            &[(
                "DATETIMEFROMPARTS(2024, 3, 5, 1, 2, 3, 4)",
                "2024-03-05T01:02:03.0040000Z",
            )],
        ),
    ),
];

pub(super) static MATHEMATICAL: [FunctionInfo; 9] = [
    scalar(
        Function::Abs,
        Mathematical,
        "ABS(x)",
        "type of x",
        "The value without its sign.",
        &[
            ("ABS(-2)", "2"),
            ("ABS(-2.5)", "2.5"),
            ("ABS(NULL)", "NULL"),
        ],
    ),
    scalar(
        Function::Ceiling,
        Mathematical,
        "CEILING(x)",
        "type of x",
        "The smallest whole number that is not below x; a float stays a float.",
        &[("CEILING(1.2)", "2.0"), ("CEILING(3)", "3")],
    ),
    scalar(
        Function::Exp,
        Mathematical,
        "EXP(x)",
        "float",
        "e to the power of x; too large a result is an error.",
        &[("EXP(0)", "1.0")],
    ),
    scalar(
        Function::Floor,
        Mathematical,
        "FLOOR(x)",
        "type of x",
        "The largest whole number that is not above x; a float stays a float.",
        &[("FLOOR(1.8)", "1.0"), ("FLOOR(-1.2)", "-2.0")],
    ),
    takes(
        2,
        2,
        scalar(
            Function::Power,
            Mathematical,
            "POWER(x, y)",
            "type of x",
            "x to the power of y; a bigint base gives a bigint, cut off at the point.",
            &[
                ("POWER(2, 3)", "8"),
                ("POWER(2.0, 3)", "8.0"),
                ("POWER(2, -1)", "0"),
            ],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::Round,
            Mathematical,
            "ROUND(x, n)",
            "type of x",
            "x rounded to n digits behind the point, halves away from zero; a negative n rounds left of the point.",
            &[
                ("ROUND(-0.5, 0)", "-1.0"),
                ("ROUND(501.1, -3)", "1000.0"),
                ("ROUND(123.9995, 3)", "124.0"),
                ("ROUND(12, -3)", "0"),
            ],
        ),
    ),
    scalar(
        Function::Sign,
        Mathematical,
        "SIGN(x)",
        "type of x",
        "-1, 0 or 1, as x is negative, zero or positive.",
        &[("SIGN(-3.5)", "-1.0"), ("SIGN(0)", "0")],
    ),
    scalar(
        Function::Square,
        Mathematical,
        "SQUARE(x)",
        "float",
        "x times itself.",
        &[("SQUARE(3)", "9.0")],
    ),
    scalar(
        Function::Sqrt,
        Mathematical,
        "SQRT(x)",
        "float",
        "The square root; of a negative number it is an error.",
        &[("SQRT(9)", "3.0")],
    ),
];

pub(super) static CONVERSION: [FunctionInfo; 5] = [
    FunctionInfo {
        name: "CAST",
        kind: Kind::Cast,
        ..scalar(
            Function::GetType,
            Conversion,
            "CAST(x AS type)",
            "the type",
            "The value as another type; what cannot be converted is an error.",
            &[
                ("CAST('7' AS bigint)", "7"),
                ("CAST(1.9 AS bigint)", "1"),
                ("CAST(NULL AS float)", "NULL"),
            ],
        )
    },
    FunctionInfo {
        name: "TRY_CAST",
        kind: Kind::Cast,
        nulls: "NULL if x is NULL or cannot be converted",
        ..scalar(
            Function::GetType,
            Conversion,
            "TRY_CAST(x AS type)",
            "the type",
            "The value as another type; what cannot be converted becomes NULL.",
            &[
                ("TRY_CAST('z' AS bigint)", "NULL"),
                ("TRY_CAST('1.5' AS bigint)", "NULL"),
                ("TRY_CAST(' 7 ' AS bigint)", "7"),
            ],
        )
    },
    scalar(
        Function::GetType,
        Conversion,
        "GetType(x)",
        "nvarchar(max)",
        "The name of the value's type.",
        &[
            ("GetType(1.5)", "float"),
            ("GetType(1)", "bigint"),
            ("GetType('a')", "nvarchar(max)"),
            ("GetType(NULL)", "NULL"),
        ],
    ),
    FunctionInfo {
        name: "COALESCE",
        kind: Kind::Coalesce,
        arguments: (2, None),
        nulls: "NULL if all are NULL",
        ..scalar(
            Function::GetType,
            Conversion,
            "COALESCE(a, b, ..)",
            "type of the first that is not NULL",
            "The first argument that is not NULL.",
            &[
                ("COALESCE(NULL, 2, 'x')", "2"),
                ("COALESCE(NULL, 'x')", "x"),
                ("COALESCE(NULL, NULL)", "NULL"),
            ],
        )
    },
    FunctionInfo {
        name: "NULLIF",
        kind: Kind::NullIf,
        arguments: (2, Some(2)),
        nulls: "NULL if a is NULL; a if b is NULL",
        ..scalar(
            Function::GetType,
            Conversion,
            "NULLIF(a, b)",
            "type of a",
            "NULL if both are equal, the first one otherwise.",
            &[
                ("NULLIF(4, 4)", "NULL"),
                ("NULLIF(4, 5)", "4"),
                ("NULLIF(4, NULL)", "4"),
            ],
        )
    },
];

pub(super) static GEOSPATIAL: [FunctionInfo; 7] = [
    takes(
        2,
        2,
        scalar(
            Function::CreatePoint,
            Geospatial,
            "CreatePoint(latitude, longitude)",
            "record",
            "A GeoJSON point. It stores longitude first, but takes latitude first.",
            &[(
                "CreatePoint(47.5, -122.5)",
                "{\"type\":\"Point\",\"coordinates\":[-122.5,47.5]}",
            )],
        ),
    ),
    takes_many(
        2,
        scalar(
            Function::CreateLineString,
            Geospatial,
            "CreateLineString(point, point, ..)",
            "record",
            "A GeoJSON line through the points.",
            &[(
                "CreateLineString(CreatePoint(1.5, 2.5), CreatePoint(3.5, 4.5))",
                "{\"type\":\"LineString\",\"coordinates\":[[2.5,1.5],[4.5,3.5]]}",
            )],
        ),
    ),
    takes_many(
        4,
        scalar(
            Function::CreatePolygon,
            Geospatial,
            "CreatePolygon(point, point, point, .., point)",
            "record",
            "A GeoJSON polygon; the last point is the first one again.",
            &[(
                "CreatePolygon(CreatePoint(0.5, 0.5), CreatePoint(0.5, 1.5), CreatePoint(1.5, 1.5), CreatePoint(0.5, 0.5))",
                "{\"type\":\"Polygon\",\"coordinates\":[[[0.5,0.5],[1.5,0.5],[1.5,1.5],[0.5,0.5]]]}",
            )],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::StDistance,
            Geospatial,
            "ST_DISTANCE(a, b)",
            "float",
            "Metres between two points on the WGS-84 ellipsoid.",
            &[(
                "ROUND(ST_DISTANCE(CreatePoint(-5.0, -5.0), CreatePoint(0.0, 0.0)), 2)",
                "784028.74",
            )],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::StIntersects,
            Geospatial,
            "ST_INTERSECTS(a, b)",
            "bigint",
            "1 if two geometries have a point in common, touching included; 0 otherwise.",
            &[
                (
                    "ST_INTERSECTS(CreateLineString(CreatePoint(0.0, 0.0), CreatePoint(2.0, 2.0)), \
                     CreateLineString(CreatePoint(0.0, 2.0), CreatePoint(2.0, 0.0)))",
                    "1",
                ),
                (
                    "ST_INTERSECTS(CreateLineString(CreatePoint(0.0, 0.0), CreatePoint(2.0, 2.0)), \
                     CreateLineString(CreatePoint(5.0, 5.0), CreatePoint(5.0, 6.0)))",
                    "0",
                ),
            ],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::StOverlaps,
            Geospatial,
            "ST_OVERLAPS(a, b)",
            "bigint",
            "1 if two polygons share a part but neither holds the other; 0 otherwise.",
            &[
                (
                    "ST_OVERLAPS('POLYGON((0 0, 2 0, 2 2, 0 2, 0 0))', 'POLYGON((1 1, 3 1, 3 3, 1 3, 1 1))')",
                    "1",
                ),
                (
                    "ST_OVERLAPS('POLYGON((0 0, 4 0, 4 4, 0 4, 0 0))', 'POLYGON((1 1, 2 1, 2 2, 1 2, 1 1))')",
                    "0",
                ),
            ],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::StWithin,
            Geospatial,
            "ST_WITHIN(geometry, polygon)",
            "bigint",
            "1 if the geometry lies wholly inside the polygon; 0 otherwise, also on its edge.",
            &[
                (
                    "ST_WITHIN(CreatePoint(1.0, 1.0), 'POLYGON((0 0, 2 0, 2 2, 0 2, 0 0))')",
                    "1",
                ),
                (
                    "ST_WITHIN(CreatePoint(0.0, 1.0), 'POLYGON((0 0, 2 0, 2 2, 0 2, 0 0))')",
                    "0",
                ),
            ],
        ),
    ),
];

pub(super) static RECORDS: [FunctionInfo; 4] = [
    nulls(
        "NULL if an argument is NULL or there is no such element",
        takes(
            2,
            2,
            scalar(
                Function::GetArrayElement,
                Records,
                "GetArrayElement(array, index)",
                "any",
                "An element of an array, counted from 0.",
                &[
                    ("GetArrayElement(JSON_PARSE('{\"a\":[7,8]}').a, 1)", "8"),
                    ("GetArrayElement(JSON_PARSE('{\"a\":[7,8]}').a, 2)", "NULL"),
                    ("GetArrayElement(JSON_PARSE('{\"a\":[7,8]}').a, -1)", "NULL"),
                ],
            ),
        ),
    ),
    scalar(
        Function::GetArrayLength,
        Records,
        "GetArrayLength(array)",
        "bigint",
        "How many elements an array has.",
        &[
            ("GetArrayLength(JSON_PARSE('{\"a\":[7,8]}').a)", "2"),
            ("GetArrayLength(NULL)", "NULL"),
        ],
    ),
    nulls(
        "NULL if an argument is NULL or there is no such property",
        takes(
            2,
            2,
            scalar(
                Function::GetRecordPropertyValue,
                Records,
                "GetRecordPropertyValue(record, name)",
                "any",
                "The property of a record whose name is only known while running.",
                &[
                    ("GetRecordPropertyValue(JSON_PARSE('{\"a\":1}'), 'a')", "1"),
                    (
                        "GetRecordPropertyValue(JSON_PARSE('{\"a\":1}'), 'b')",
                        "NULL",
                    ),
                ],
            ),
        ),
    ),
    FunctionInfo {
        name: "GetMetadataPropertyValue",
        kind: Kind::Metadata,
        category: Category::Metadata,
        arguments: (2, Some(2)),
        nulls: "NULL if there is no such property",
        ..scalar(
            Function::GetType,
            Records,
            "GetMetadataPropertyValue(input, 'path')",
            "any",
            "What the adapter knows about the event besides its payload; the path is a constant text.",
            &[],
        )
    },
];
