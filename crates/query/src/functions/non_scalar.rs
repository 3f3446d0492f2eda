//! The functions that are not scalar: CAST and COALESCE, aggregates, analytic functions, windows, and the functions of
//! APPLY and MATCH_RECOGNIZE.

use super::{
    AggregateKind, AnalyticKind, Category, FunctionInfo, Kind, NULL_IN_NULL_OUT, WindowKind,
};

const IGNORED: &str = "NULL values are ignored; NULL if there are no others";

const fn info(
    name: &'static str,
    kind: Kind,
    category: Category,
    signature: &'static str,
    result: &'static str,
    description: &'static str,
) -> FunctionInfo {
    FunctionInfo {
        name,
        aliases: &[],
        kind,
        category,
        signature,
        arguments: (1, Some(1)),
        result,
        nulls: "",
        description,
        examples: &[],
    }
}

pub(super) static CONVERSION: [FunctionInfo; 4] = [
    FunctionInfo {
        nulls: NULL_IN_NULL_OUT,
        examples: &[
            ("CAST('7' AS bigint)", "7"),
            ("CAST(1.9 AS bigint)", "1"),
            ("CAST(NULL AS float)", "NULL"),
        ],
        ..info(
            "CAST",
            Kind::Cast,
            Category::Conversion,
            "CAST(x AS type)",
            "the type",
            "The value as another type; what cannot be converted is an error.",
        )
    },
    FunctionInfo {
        nulls: "NULL if x is NULL or cannot be converted",
        examples: &[
            ("TRY_CAST('z' AS bigint)", "NULL"),
            ("TRY_CAST('1.5' AS bigint)", "NULL"),
            ("TRY_CAST(' 7 ' AS bigint)", "7"),
        ],
        ..info(
            "TRY_CAST",
            Kind::Cast,
            Category::Conversion,
            "TRY_CAST(x AS type)",
            "the type",
            "The value as another type; what cannot be converted becomes NULL.",
        )
    },
    FunctionInfo {
        arguments: (2, None),
        nulls: "NULL if all are NULL",
        examples: &[
            ("COALESCE(NULL, 2, 'x')", "2"),
            ("COALESCE(NULL, 'x')", "x"),
            ("COALESCE(NULL, NULL)", "NULL"),
        ],
        ..info(
            "COALESCE",
            Kind::Coalesce,
            Category::Conversion,
            "COALESCE(a, b, ..)",
            "type of the first that is not NULL",
            "The first argument that is not NULL.",
        )
    },
    FunctionInfo {
        arguments: (2, Some(2)),
        nulls: "NULL if a is NULL; a if b is NULL",
        examples: &[
            ("NULLIF(4, 4)", "NULL"),
            ("NULLIF(4, 5)", "4"),
            ("NULLIF(4, NULL)", "4"),
        ],
        ..info(
            "NULLIF",
            Kind::NullIf,
            Category::Conversion,
            "NULLIF(a, b)",
            "type of a",
            "NULL if both are equal, the first one otherwise.",
        )
    },
];

pub(super) static METADATA: [FunctionInfo; 1] = [FunctionInfo {
    arguments: (2, Some(2)),
    nulls: "NULL if there is no such property",
    ..info(
        "GetMetadataPropertyValue",
        Kind::Metadata,
        Category::Metadata,
        "GetMetadataPropertyValue(input, 'path')",
        "any",
        "A property of the event that is not in its payload; the path is a constant text.",
    )
}];

const fn aggregate(
    name: &'static str,
    kind: AggregateKind,
    signature: &'static str,
    result: &'static str,
    description: &'static str,
) -> FunctionInfo {
    FunctionInfo {
        nulls: IGNORED,
        ..info(
            name,
            Kind::Aggregate(kind),
            Category::Aggregate,
            signature,
            result,
            description,
        )
    }
}

pub(super) static AGGREGATE: [FunctionInfo; 14] = [
    FunctionInfo {
        arguments: (0, Some(1)),
        nulls: "COUNT(*) counts events; otherwise NULL values are not counted",
        ..aggregate(
            "COUNT",
            AggregateKind::Count,
            "COUNT(* | [DISTINCT] x)",
            "bigint",
            "How many events there are, how many values, or how many different values.",
        )
    },
    aggregate(
        "SUM",
        AggregateKind::Sum,
        "SUM(x)",
        "bigint if all values are, else float",
        "The sum of the values.",
    ),
    aggregate(
        "AVG",
        AggregateKind::Avg,
        "AVG(x)",
        "float",
        "The mean of the values.",
    ),
    aggregate(
        "MIN",
        AggregateKind::Min,
        "MIN(x)",
        "type of x",
        "The smallest value. Text is read as a number unless the query casts it to nvarchar(max).",
    ),
    aggregate(
        "MAX",
        AggregateKind::Max,
        "MAX(x)",
        "type of x",
        "The largest value. Text is read as a number unless the query casts it to nvarchar(max).",
    ),
    FunctionInfo {
        nulls: "NULL values are ignored; NULL for fewer than two others",
        ..aggregate(
            "STDEV",
            AggregateKind::StDev,
            "STDEV(x)",
            "float",
            "The standard deviation of a sample (n - 1).",
        )
    },
    aggregate(
        "STDEVP",
        AggregateKind::StDevP,
        "STDEVP(x)",
        "float",
        "The standard deviation of a population (n).",
    ),
    FunctionInfo {
        nulls: "NULL values are ignored; NULL for fewer than two others",
        ..aggregate(
            "VAR",
            AggregateKind::Var,
            "VAR(x)",
            "float",
            "The variance of a sample (n - 1).",
        )
    },
    aggregate(
        "VARP",
        AggregateKind::VarP,
        "VARP(x)",
        "float",
        "The variance of a population (n).",
    ),
    aggregate(
        "PERCENTILE_CONT",
        AggregateKind::PercentileCont,
        "PERCENTILE_CONT(p) OVER (ORDER BY x [ASC | DESC])",
        "float",
        "The value below which the part p of all values lies, between two values if need be; p is a constant from 0 to 1.",
    ),
    aggregate(
        "PERCENTILE_DISC",
        AggregateKind::PercentileDisc,
        "PERCENTILE_DISC(p) OVER (ORDER BY x [ASC | DESC])",
        "type of x",
        "The first value that has at least the part p of all values up to it; p is a constant from 0 to 1.",
    ),
    FunctionInfo {
        arguments: (0, Some(1)),
        nulls: "NULL values are left out; an empty array if there are no others",
        ..aggregate(
            "Collect",
            AggregateKind::Collect,
            "Collect([x])",
            "array",
            "All values, or all events as records, in one array.",
        )
    },
    FunctionInfo {
        arguments: (1, Some(2)),
        nulls: "NULL ranks as the smallest value; an empty array if there is nothing",
        ..aggregate(
            "CollectTop",
            AggregateKind::CollectTop,
            "CollectTop(n [, x]) OVER (ORDER BY y [ASC | DESC], ..)",
            "array of records of rank and value",
            "The first n values, or events, by an order; n is a constant.",
        )
    },
    FunctionInfo {
        arguments: (0, Some(1)),
        nulls: "NULL ranks as the smallest value; NULL if there is nothing",
        ..aggregate(
            "TopOne",
            AggregateKind::TopOne,
            "TopOne([x]) OVER (ORDER BY y [ASC | DESC], ..)",
            "record, or type of x",
            "The first event by an order, or its value.",
        )
    },
];

const fn analytic(
    name: &'static str,
    kind: AnalyticKind,
    signature: &'static str,
    result: &'static str,
    description: &'static str,
) -> FunctionInfo {
    info(
        name,
        Kind::Analytic(kind),
        Category::Analytic,
        signature,
        result,
        description,
    )
}

pub(super) static ANALYTIC: [FunctionInfo; 5] = [
    FunctionInfo {
        arguments: (1, Some(3)),
        nulls: "NULL if that event has NULL; the default, or NULL, if there is no such event",
        ..analytic(
            "LAG",
            AnalyticKind::Lag,
            "LAG(x [, offset [, default]]) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN condition])",
            "type of x",
            "The value in an earlier event: the offset-th before this one that fulfils the condition.",
        )
    },
    FunctionInfo {
        arguments: (1, Some(2)),
        nulls: "NULL if that event has NULL; the default, or NULL, if there is no such event",
        ..analytic(
            "LAST",
            AnalyticKind::Last,
            "LAST(x [, default]) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN condition])",
            "type of x",
            "The value in the latest event, this one included, that fulfils the condition.",
        )
    },
    FunctionInfo {
        arguments: (2, Some(2)),
        nulls: "never NULL",
        ..analytic(
            "ISFIRST",
            AnalyticKind::IsFirst,
            "ISFIRST(unit, n) [OVER ([PARTITION BY k] [WHEN condition])]",
            "bigint",
            "1 for the first event in each interval of this length, 0 for the others.",
        )
    },
    FunctionInfo {
        arguments: (4, Some(4)),
        nulls: "NULL values are not learned from",
        ..analytic(
            "AnomalyDetection_SpikeAndDip",
            AnalyticKind::SpikeAndDip,
            "AnomalyDetection_SpikeAndDip(x, confidence, historySize, mode) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN condition])",
            "record of IsAnomaly and Score",
            "Is the value out of line with the last historySize ones? The mode is 'spikes', 'dips' or 'spikesanddips'.",
        )
    },
    FunctionInfo {
        arguments: (3, Some(3)),
        nulls: "NULL values are not learned from",
        ..analytic(
            "AnomalyDetection_ChangePoint",
            AnalyticKind::ChangePoint,
            "AnomalyDetection_ChangePoint(x, confidence, historySize) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN condition])",
            "record of IsAnomaly and Score",
            "Have the values changed their level or trend for good?",
        )
    },
];

const fn window(
    name: &'static str,
    aliases: &'static [&'static str],
    kind: WindowKind,
    signature: &'static str,
    description: &'static str,
) -> FunctionInfo {
    FunctionInfo {
        aliases,
        arguments: (1, None),
        ..info(
            name,
            Kind::Window(kind),
            Category::Window,
            signature,
            "groups of events",
            description,
        )
    }
}

const fn part(
    name: &'static str,
    signature: &'static str,
    description: &'static str,
) -> FunctionInfo {
    FunctionInfo {
        arguments: (2, Some(2)),
        ..info(
            name,
            Kind::WindowPart,
            Category::Window,
            signature,
            "a length of time",
            description,
        )
    }
}

pub(super) static WINDOW: [FunctionInfo; 11] = [
    window(
        "TumblingWindow",
        &["Tumbling"],
        WindowKind::Tumbling,
        "TumblingWindow(unit, size [, offset]) or TumblingWindow(Duration(unit, n) [, Offset(unit, n)])",
        "Windows of one size, side by side: every event is in exactly one.",
    ),
    window(
        "HoppingWindow",
        &["Hopping"],
        WindowKind::Hopping,
        "HoppingWindow(unit, size, hop [, offset]) or HoppingWindow(Duration(unit, n), Hop(unit, n) [, Offset(unit, n)])",
        "Windows of one size that end at every hop and may overlap.",
    ),
    window(
        "SlidingWindow",
        &["Sliding"],
        WindowKind::Sliding,
        "SlidingWindow(unit, size) or SlidingWindow(Duration(unit, n))",
        "A window of one size, looked at whenever an event enters or leaves it.",
    ),
    window(
        "SessionWindow",
        &["Session"],
        WindowKind::Session,
        "SessionWindow(unit, timeout, maxDuration) or SessionWindow(Timeout(unit, n), MaxDuration(unit, n)) [OVER (PARTITION BY k)]",
        "A window that lasts as long as events keep coming.",
    ),
    window(
        "Windows",
        &[],
        WindowKind::Windows,
        "Windows(window, ..) or Windows(Window('id', window), ..)",
        "Several windows over the same events; their results come out together.",
    ),
    window(
        "Window",
        &[],
        WindowKind::Window,
        "Window('id', window)",
        "Gives a window inside Windows(..) an id, which System.Window().Id shows.",
    ),
    part("Duration", "Duration(unit, n)", "The size of a window."),
    part(
        "Offset",
        "Offset(unit, n)",
        "By how much windows are moved; may be negative.",
    ),
    part("Hop", "Hop(unit, n)", "How often a hopping window ends."),
    part(
        "Timeout",
        "Timeout(unit, n)",
        "How long a session waits for its next event.",
    ),
    part(
        "MaxDuration",
        "MaxDuration(unit, n)",
        "After how long a session is ended in any case.",
    ),
];

pub(super) static APPLY: [FunctionInfo; 2] = [
    FunctionInfo {
        nulls: "no rows for NULL",
        ..info(
            "GetArrayElements",
            Kind::Apply,
            Category::Apply,
            "CROSS | OUTER APPLY GetArrayElements(array) AS e",
            "records of ArrayIndex and ArrayValue",
            "One row per element of an array, in their order.",
        )
    },
    FunctionInfo {
        nulls: "no rows for NULL",
        ..info(
            "GetRecordProperties",
            Kind::Apply,
            Category::Apply,
            "CROSS | OUTER APPLY GetRecordProperties(record) AS e",
            "records of PropertyName and PropertyValue",
            "One row per property of a record.",
        )
    },
];

pub(super) static SYSTEM: [FunctionInfo; 2] = [
    FunctionInfo {
        arguments: (0, Some(0)),
        nulls: "never NULL",
        ..info(
            "System.Timestamp",
            Kind::System,
            Category::DateTime,
            "System.Timestamp()",
            "datetime",
            "The time of the event or result: what TIMESTAMP BY says, or the end of the window.",
        )
    },
    FunctionInfo {
        arguments: (0, Some(0)),
        nulls: "its Id is NULL unless the windows have ids",
        ..info(
            "System.Window",
            Kind::System,
            Category::Window,
            "System.Window()",
            "record of Id",
            "Which window of Windows(..) a result is of; in the SELECT list of a grouped query only.",
        )
    },
];

const fn pattern(
    name: &'static str,
    signature: &'static str,
    result: &'static str,
    description: &'static str,
) -> FunctionInfo {
    FunctionInfo {
        nulls: "NULL if the variable has matched nothing",
        ..info(
            name,
            Kind::Pattern,
            Category::Pattern,
            signature,
            result,
            description,
        )
    }
}

pub(super) static PATTERN: [FunctionInfo; 5] = [
    pattern(
        "First",
        "First(variable.field)",
        "type of the field",
        "The field in the first event that the variable has matched.",
    ),
    pattern(
        "Last",
        "Last(variable.field)",
        "type of the field",
        "The field in the last event that the variable has matched.",
    ),
    pattern(
        "Min",
        "Min(variable.field)",
        "type of the field",
        "The smallest value of the field in the events that the variable has matched.",
    ),
    pattern(
        "Max",
        "Max(variable.field)",
        "type of the field",
        "The largest value of the field in the events that the variable has matched.",
    ),
    FunctionInfo {
        arguments: (0, Some(0)),
        nulls: "never NULL",
        ..pattern(
            "Classifier",
            "Classifier()",
            "array",
            "The names of the matched variables, one per event; in MEASURES only.",
        )
    },
];
