//! The functions that are not scalar: CAST and COALESCE, aggregates, analytic functions, windows, and the functions of
//! APPLY and MATCH_RECOGNIZE.

use super::{
    AggregateKind, AnalyticKind, Category, FunctionInfo, Kind, NULL_IN_NULL_OUT, WindowKind,
    at_least, between, exactly, name_of,
};

/// Rows of the function table: the kind, the signature, the result and the description of each function. It takes one
/// argument and is called as its signature begins, unless the row says otherwise.
macro_rules! function_table {
    ($table:ident, $category:ident, nulls: $default:expr;
        $($kind:expr => $signature:literal -> $result:literal: $description:literal
            $(, name: $name:literal)?
            $(, aliases: $aliases:expr)?
            $(, arguments: $arguments:expr)?
            $(, nulls: $nulls:expr)?
            $(, examples: $examples:expr)?;
        )*
    ) => {
        pub(super) static $table: &[FunctionInfo] = &[
            $(FunctionInfo {
                name: [$($name,)? name_of($signature)][0],
                aliases: [$($aliases as &[_],)? &[]][0],
                kind: $kind,
                category: Category::$category,
                signature: $signature,
                arguments: [$($arguments,)? exactly(1)][0],
                result: $result,
                nulls: [$($nulls,)? $default][0],
                description: $description,
                examples: [$($examples as &[_],)? &[]][0],
            },)*
        ];
    };
}

function_table! { CONVERSION, Conversion, nulls: "";
    Kind::Cast => "CAST(x AS type)" -> "the type":
        "The value as another type; what cannot be converted is an error.",
        nulls: NULL_IN_NULL_OUT,
        examples: &[("CAST('7' AS bigint)", "7"), ("CAST(1.9 AS bigint)", "1"), ("CAST(NULL AS float)", "NULL")];
    Kind::Cast => "TRY_CAST(x AS type)" -> "the type":
        "The value as another type; what cannot be converted becomes NULL.",
        nulls: "NULL if x is NULL or cannot be converted",
        examples: &[("TRY_CAST('z' AS bigint)", "NULL"),
            ("TRY_CAST('1.5' AS bigint)", "NULL"), ("TRY_CAST(' 7 ' AS bigint)", "7")];
    Kind::Coalesce => "COALESCE(a, b, ..)" -> "type of the first that is not NULL":
        "The first argument that is not NULL.",
        arguments: at_least(2), nulls: "NULL if all are NULL",
        examples: &[("COALESCE(NULL, 2, 'x')", "2"), ("COALESCE(NULL, 'x')", "x"), ("COALESCE(NULL, NULL)", "NULL")];
    Kind::NullIf => "NULLIF(a, b)" -> "type of a":
        "NULL if both are equal, the first one otherwise.",
        arguments: exactly(2), nulls: "NULL if a is NULL; a if b is NULL",
        examples: &[("NULLIF(4, 4)", "NULL"), ("NULLIF(4, 5)", "4"), ("NULLIF(4, NULL)", "4")];
}

function_table! { METADATA, Metadata, nulls: "";
    Kind::Metadata => "GetMetadataPropertyValue(input, 'path')" -> "any":
        "A property of the event that is not in its payload; the path is a constant text.",
        arguments: exactly(2), nulls: "NULL if there is no such property";
}

function_table! { AGGREGATE, Aggregate, nulls: "NULL values are ignored; NULL if there are no others";
    Kind::Aggregate(AggregateKind::Count) => "COUNT(* | [DISTINCT] x)" -> "bigint":
        "How many events there are, how many values, or how many different values.",
        arguments: between(0, 1), nulls: "COUNT(*) counts events; otherwise NULL values are not counted";
    Kind::Aggregate(AggregateKind::Sum) => "SUM(x)" -> "bigint if all values are, else float":
        "The sum of the values.";
    Kind::Aggregate(AggregateKind::Avg) => "AVG(x)" -> "float":
        "The mean of the values.";
    Kind::Aggregate(AggregateKind::Min) => "MIN(x)" -> "type of x":
        "The smallest value. Text counts as a number, a datetime or text, as it reads, unless the query casts it to nvarchar(max).";
    Kind::Aggregate(AggregateKind::Max) => "MAX(x)" -> "type of x":
        "The largest value. Text counts as a number, a datetime or text, as it reads, unless the query casts it to nvarchar(max).";
    Kind::Aggregate(AggregateKind::StDev) => "STDEV(x)" -> "float":
        "The standard deviation of a sample (n - 1).",
        nulls: "NULL values are ignored; NULL for fewer than two others";
    Kind::Aggregate(AggregateKind::StDevP) => "STDEVP(x)" -> "float":
        "The standard deviation of a population (n).";
    Kind::Aggregate(AggregateKind::Var) => "VAR(x)" -> "float":
        "The variance of a sample (n - 1).",
        nulls: "NULL values are ignored; NULL for fewer than two others";
    Kind::Aggregate(AggregateKind::VarP) => "VARP(x)" -> "float":
        "The variance of a population (n).";
    Kind::Aggregate(AggregateKind::PercentileCont) => "PERCENTILE_CONT(p) OVER (ORDER BY x [ASC | DESC])" -> "float":
        "The value below which the part p of all values lies, between two values if need be; p is a constant from 0 to 1.";
    Kind::Aggregate(AggregateKind::PercentileDisc) =>
        "PERCENTILE_DISC(p) OVER (ORDER BY x [ASC | DESC])"
        -> "type of x":
        "The first value that has at least the part p of all values up to it; p is a constant from 0 to 1.";
    Kind::Aggregate(AggregateKind::Collect) => "Collect([x])" -> "array":
        "All values, or all events as records, in one array.",
        arguments: between(0, 1), nulls: "NULL values are left out; an empty array if there are no others";
    Kind::Aggregate(AggregateKind::CollectTop) =>
        "CollectTop(n [, x]) OVER (ORDER BY y [ASC | DESC], ..)"
        -> "array of records of rank and value":
        "The first n values, or events, by an order; n is a constant.",
        arguments: between(1, 2), nulls: "NULL ranks as the smallest value; an empty array if there is nothing";
    Kind::Aggregate(AggregateKind::TopOne) =>
        "TopOne([x]) OVER (ORDER BY y [ASC | DESC], ..)"
        -> "record, or type of x":
        "The first event by an order, or its value.",
        arguments: between(0, 1), nulls: "NULL ranks as the smallest value; NULL if there is nothing";
}

function_table! { ANALYTIC, Analytic, nulls: "";
    Kind::Analytic(AnalyticKind::Lag) =>
        "LAG(x [, offset [, default]]) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN condition])"
        -> "type of x":
        "The value in an earlier event: the offset-th before this one that fulfils the condition.",
        arguments: between(1, 3), nulls: "NULL if that event has NULL; the default, or NULL, if there is no such event";
    Kind::Analytic(AnalyticKind::Last) =>
        "LAST(x [, default]) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN condition])"
        -> "type of x":
        "The value in the latest event, this one included, that fulfils the condition.",
        arguments: between(1, 2), nulls: "NULL if that event has NULL; the default, or NULL, if there is no such event";
    Kind::Analytic(AnalyticKind::IsFirst) => "ISFIRST(unit, n) [OVER ([PARTITION BY k] [WHEN condition])]" -> "bigint":
        "1 for the first event in each interval of this length, 0 for the others.",
        arguments: exactly(2), nulls: "never NULL";
    Kind::Analytic(AnalyticKind::SpikeAndDip) =>
        "AnomalyDetection_SpikeAndDip(x, confidence, historySize, mode) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN condition])"
        -> "record of IsAnomaly and Score":
        "Is the value out of line with the last historySize ones? The mode is 'spikes', 'dips' or 'spikesanddips'.",
        arguments: exactly(4), nulls: "NULL values are not learned from";
    Kind::Analytic(AnalyticKind::ChangePoint) =>
        "AnomalyDetection_ChangePoint(x, confidence, historySize) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN condition])"
        -> "record of IsAnomaly and Score":
        "Have the values changed their level or trend for good?",
        arguments: exactly(3), nulls: "NULL values are not learned from";
}

function_table! { WINDOW, Window, nulls: "";
    Kind::Window(WindowKind::Tumbling) =>
        "TumblingWindow(unit, size [, offset]) or TumblingWindow(Duration(unit, n) [, Offset(unit, n)])"
        -> "groups of events":
        "Windows of one size, side by side: every event is in exactly one.",
        aliases: &["Tumbling"], arguments: at_least(1);
    Kind::Window(WindowKind::Hopping) =>
        "HoppingWindow(unit, size, hop [, offset]) or HoppingWindow(Duration(unit, n), Hop(unit, n) [, Offset(unit, n)])"
        -> "groups of events":
        "Windows of one size that end at every hop and may overlap.",
        aliases: &["Hopping"], arguments: at_least(1);
    Kind::Window(WindowKind::Sliding) =>
        "SlidingWindow(unit, size) or SlidingWindow(Duration(unit, n))"
        -> "groups of events":
        "A window of one size, looked at whenever an event enters or leaves it.",
        aliases: &["Sliding"], arguments: at_least(1);
    Kind::Window(WindowKind::Session) =>
        "SessionWindow(unit, timeout, maxDuration) or SessionWindow(Timeout(unit, n), MaxDuration(unit, n)) [OVER (PARTITION BY k)]"
        -> "groups of events":
        "A window that lasts as long as events keep coming.",
        aliases: &["Session"], arguments: at_least(1);
    Kind::Window(WindowKind::Windows) =>
        "Windows(window, ..) or Windows(Window('id', window), ..)"
        -> "groups of events":
        "Several windows over the same events; their results come out together.",
        arguments: at_least(1);
    Kind::Window(WindowKind::Window) => "Window('id', window)" -> "groups of events":
        "Gives a window inside Windows(..) an id, which System.Window().Id shows.",
        arguments: at_least(1);
    Kind::WindowPart => "Duration(unit, n)" -> "a length of time":
        "The size of a window.",
        arguments: exactly(2);
    Kind::WindowPart => "Offset(unit, n)" -> "a length of time":
        "By how much windows are moved; may be negative.",
        arguments: exactly(2);
    Kind::WindowPart => "Hop(unit, n)" -> "a length of time":
        "How often a hopping window ends.",
        arguments: exactly(2);
    Kind::WindowPart => "Timeout(unit, n)" -> "a length of time":
        "How long a session waits for its next event.",
        arguments: exactly(2);
    Kind::WindowPart => "MaxDuration(unit, n)" -> "a length of time":
        "After how long a session is ended in any case.",
        arguments: exactly(2);
}

function_table! { APPLY, Apply, nulls: "no rows for NULL";
    Kind::Apply => "CROSS | OUTER APPLY GetArrayElements(array) AS e" -> "records of ArrayIndex and ArrayValue":
        "One row per element of an array, in their order.",
        name: "GetArrayElements", aliases: &["GetElements"];
    Kind::Apply =>
        "CROSS | OUTER APPLY GetRecordProperties(record) AS e"
        -> "records of PropertyName and PropertyValue":
        "One row per property of a record.",
        name: "GetRecordProperties";
}

function_table! { SYSTEM_TIME, DateTime, nulls: "never NULL";
    Kind::System => "System.Timestamp()" -> "datetime":
        "The time of the event or result: what TIMESTAMP BY says, or the end of the window.",
        arguments: exactly(0);
}

function_table! { SYSTEM_WINDOW, Window, nulls: "its Id is NULL unless the windows have ids";
    Kind::System => "System.Window()" -> "record of Id":
        "Which window of Windows(..) a result is of; in the SELECT list of a grouped query only.",
        arguments: exactly(0);
}

function_table! { PATTERN, Pattern, nulls: "NULL if the variable has matched nothing";
    Kind::Pattern => "First(variable.field)" -> "type of the field":
        "The field in the first event that the variable has matched.";
    Kind::Pattern => "Last(variable.field)" -> "type of the field":
        "The field in the last event that the variable has matched.";
    Kind::Pattern => "Min(variable.field)" -> "type of the field":
        "The smallest value of the field in the events that the variable has matched.";
    Kind::Pattern => "Max(variable.field)" -> "type of the field":
        "The largest value of the field in the events that the variable has matched.";
    Kind::Pattern => "Classifier()" -> "array":
        "The names of the matched variables, one per event; in MEASURES only.",
        arguments: exactly(0), nulls: "never NULL";
}
