//! Every function name of the language, so that a name not there yet is told apart from a typo.

use crate::plan::AggregateFunction;

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Aggregate(AggregateFunction),
    /// Aggregates that cannot run yet.
    OtherAggregate,
    Analytic,
    Scalar,
    /// Defines a window in GROUP BY.
    Window,
    /// Names an argument of a window.
    WindowPart,
    /// Makes rows, behind APPLY only.
    Apply,
}

/// The function of this name as the reference spells it.
pub fn find(name: &str) -> Option<(&'static str, Kind)> {
    all().find(|(known, _)| known.eq_ignore_ascii_case(name))
}

pub fn names() -> impl Iterator<Item = &'static str> {
    all()
        .map(|(name, _)| name)
        .filter(|name| !PARTS.contains(name))
}

fn all() -> impl Iterator<Item = (&'static str, Kind)> {
    let of = |names: &'static [&'static str], kind| {
        names.iter().map(move |name| (*name, Kind::clone(&kind)))
    };
    AGGREGATES
        .into_iter()
        .chain(of(&OTHER_AGGREGATES, Kind::OtherAggregate))
        .chain(of(&ANALYTIC, Kind::Analytic))
        .chain(of(&SCALAR, Kind::Scalar))
        .chain(of(&WINDOWS, Kind::Window))
        .chain(of(&PARTS, Kind::WindowPart))
        .chain(of(&APPLY, Kind::Apply))
}

const AGGREGATES: [(&str, Kind); 5] = [
    ("COUNT", Kind::Aggregate(AggregateFunction::Count)),
    ("SUM", Kind::Aggregate(AggregateFunction::Sum)),
    ("AVG", Kind::Aggregate(AggregateFunction::Avg)),
    ("MIN", Kind::Aggregate(AggregateFunction::Min)),
    ("MAX", Kind::Aggregate(AggregateFunction::Max)),
];

const OTHER_AGGREGATES: [&str; 9] = [
    "STDEV",
    "STDEVP",
    "VAR",
    "VARP",
    "PERCENTILE_CONT",
    "PERCENTILE_DISC",
    "Collect",
    "CollectTop",
    "TopOne",
];

const ANALYTIC: [&str; 5] = [
    "LAG",
    "LAST",
    "ISFIRST",
    "AnomalyDetection_SpikeAndDip",
    "AnomalyDetection_ChangePoint",
];

const SCALAR: [&str; 54] = [
    "DATEADD",
    "DATEDIFF",
    "DATENAME",
    "DATEPART",
    "DAY",
    "MONTH",
    "YEAR",
    "DATETIMEFROMPARTS",
    "ABS",
    "CEILING",
    "EXP",
    "FLOOR",
    "POWER",
    "ROUND",
    "SIGN",
    "SQUARE",
    "SQRT",
    "CHARINDEX",
    "CONCAT",
    "CONCAT_WS",
    "JSON_PARSE",
    "LEFT",
    "LEN",
    "LOWER",
    "LTRIM",
    "NCHAR",
    "PATINDEX",
    "REGEXMATCH",
    "REPLACE",
    "REPLICATE",
    "REVERSE",
    "RIGHT",
    "RTRIM",
    "SPACE",
    "STUFF",
    "SUBSTRING",
    "TRANSLATE",
    "TRIM",
    "UNICODE",
    "UPPER",
    "GetType",
    "COALESCE",
    "NULLIF",
    "CreatePoint",
    "CreateLineString",
    "CreatePolygon",
    "ST_DISTANCE",
    "ST_INTERSECTS",
    "ST_OVERLAPS",
    "ST_WITHIN",
    "GetArrayElement",
    "GetArrayLength",
    "GetRecordPropertyValue",
    "GetMetadataPropertyValue",
];

const WINDOWS: [&str; 10] = [
    "TumblingWindow",
    "Tumbling",
    "HoppingWindow",
    "Hopping",
    "SlidingWindow",
    "Sliding",
    "SessionWindow",
    "Session",
    "Windows",
    "Window",
];

const PARTS: [&str; 5] = ["Duration", "Offset", "Hop", "Timeout", "MaxDuration"];

const APPLY: [&str; 2] = ["GetArrayElements", "GetRecordProperties"];
