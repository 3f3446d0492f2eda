//! The functions of the language: one table that the binder checks calls against, the engine dispatches on and the
//! manual is made from.
//!
//! A name that is not in [`table`] is no function, and what the table says about arguments is what the binder accepts.

mod other;
mod scalar;
mod text;

use std::sync::LazyLock;

/// What there is to know about a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionInfo {
    /// As the reference spells it.
    pub name: &'static str,
    /// Other names for the same.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    pub category: Category,
    /// How it is called, in the notation of the manual: `[optional]`, `this | that`, `..` for more of the same.
    pub signature: &'static str,
    /// The least and the most arguments; `None`: as many as you like. A datepart is an argument.
    pub arguments: (usize, Option<usize>),
    /// The type of the result, in words where it depends on the arguments.
    pub result: &'static str,
    /// What NULL arguments lead to.
    pub nulls: &'static str,
    /// What it is good for, in a sentence.
    pub description: &'static str,
    /// Expressions and their values. The value is written as in JSON output, except that text has no quotes and NULL
    /// is `NULL`.
    pub examples: &'static [(&'static str, &'static str)],
}

/// What sort of function a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value made of values.
    Scalar(Function),
    /// COALESCE, which is a [`crate::plan::ExprKind`] of its own.
    Coalesce,
    /// NULLIF, which is short for CASE.
    NullIf,
    /// CAST and TRY_CAST, whose argument has a syntax of its own.
    Cast,
    /// GetMetadataPropertyValue, which reads the source.
    Metadata,
    /// Behind the prefix `System.`
    System,
    Aggregate(AggregateKind),
    Analytic(AnalyticKind),
    /// Defines a window in GROUP BY.
    Window(WindowKind),
    /// Names an argument of a window.
    WindowPart,
    /// Makes rows, behind APPLY only.
    Apply,
    /// Inside MATCH_RECOGNIZE only. Some of these names mean something else outside.
    Pattern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateKind {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    StDev,
    StDevP,
    Var,
    VarP,
    PercentileCont,
    PercentileDisc,
    Collect,
    CollectTop,
    TopOne,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnalyticKind {
    Lag,
    Last,
    IsFirst,
    SpikeAndDip,
    ChangePoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    Tumbling,
    Hopping,
    Sliding,
    Session,
    /// Several windows.
    Windows,
    /// One of several, with its id.
    Window,
}

/// The chapters of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    DateTime,
    Mathematical,
    Text,
    Conversion,
    Geospatial,
    Records,
    Metadata,
    Aggregate,
    Analytic,
    Window,
    Apply,
    Pattern,
}

impl Category {
    pub const fn title(self) -> &'static str {
        match self {
            Category::DateTime => "Date and time",
            Category::Mathematical => "Mathematical",
            Category::Text => "String",
            Category::Conversion => "Conversion, conditional and type",
            Category::Geospatial => "Geospatial",
            Category::Records => "Records and arrays",
            Category::Metadata => "Metadata",
            Category::Aggregate => "Aggregates",
            Category::Analytic => "Analytic functions",
            Category::Window => "Windows",
            Category::Apply => "APPLY",
            Category::Pattern => "MATCH_RECOGNIZE",
        }
    }
}

const NULL_IN_NULL_OUT: &str = "NULL if an argument is NULL";

/// Every function there is, by category.
pub fn table() -> &'static [FunctionInfo] {
    static TABLE: LazyLock<Vec<FunctionInfo>> = LazyLock::new(|| {
        let parts: [&[FunctionInfo]; 12] = [
            &scalar::DATE_AND_TIME,
            &other::SYSTEM[..1],
            &scalar::MATHEMATICAL,
            &text::STRING,
            &scalar::CONVERSION,
            &scalar::GEOSPATIAL,
            &scalar::RECORDS,
            &other::AGGREGATE,
            &other::ANALYTIC,
            &other::WINDOW,
            &other::APPLY,
            &other::PATTERN,
        ];
        let mut table = parts.concat();
        table.extend(&other::SYSTEM[1..]);
        table.sort_by_key(|info| info.category);
        table
    });
    &TABLE
}

/// The function that a bare name stands for outside MATCH_RECOGNIZE.
pub fn find(name: &str) -> Option<&'static FunctionInfo> {
    let named = |info: &&FunctionInfo| info.names().any(|known| known.eq_ignore_ascii_case(name));
    let found = || table().iter().filter(named);
    let outside = found().find(|info| info.kind != Kind::Pattern);
    outside.or_else(|| found().next())
}

/// What a mistyped name may have meant.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    table()
        .iter()
        .filter(|info| !matches!(info.kind, Kind::WindowPart | Kind::System | Kind::Pattern))
        .flat_map(FunctionInfo::names)
}

impl FunctionInfo {
    fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// `2 arguments`, `1 to 3 arguments`, `at least 2 arguments`
    pub fn takes(&self) -> String {
        let plural = |count: usize| match count {
            0 => "no arguments".to_string(),
            1 => "one argument".to_string(),
            _ => format!("{count} arguments"),
        };
        match self.arguments {
            (least, Some(most)) if least == most => plural(least),
            (0, Some(most)) => format!("at most {}", plural(most)),
            (least, Some(most)) => format!("{least} to {most} arguments"),
            (least, None) => format!("at least {}", plural(least)),
        }
    }

    /// Does the function start with a datepart?
    pub fn takes_part(&self) -> bool {
        match self.kind {
            Kind::Scalar(function) => function.takes_part(),
            _ => false,
        }
    }
}

/// A built-in scalar function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    DateAdd,
    DateDiff,
    DateName,
    DatePart,
    Day,
    Month,
    Year,
    DateTimeFromParts,
    Abs,
    Ceiling,
    Exp,
    Floor,
    Power,
    Round,
    Sign,
    Square,
    Sqrt,
    CharIndex,
    Concat,
    ConcatWs,
    JsonParse,
    Left,
    Len,
    Lower,
    LTrim,
    NChar,
    PatIndex,
    RegexMatch,
    Replace,
    Replicate,
    Reverse,
    Right,
    RTrim,
    Space,
    Stuff,
    Substring,
    Translate,
    Trim,
    Unicode,
    Upper,
    GetType,
    CreatePoint,
    CreateLineString,
    CreatePolygon,
    StDistance,
    StIntersects,
    StOverlaps,
    StWithin,
    GetArrayElement,
    GetArrayLength,
    GetRecordPropertyValue,
    // No text of a query names these: [`Function::on_globe`] makes them.
    GlobeLineString,
    GlobePolygon,
    GlobeIntersects,
    GlobeOverlaps,
    GlobeWithin,
}

/// The unit that a date function works in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DatePart {
    Year,
    Quarter,
    Month,
    DayOfYear,
    Day,
    Week,
    Weekday,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
}

impl Function {
    /// Its row of [`table`].
    pub fn info(self) -> &'static FunctionInfo {
        let mine = |info: &&FunctionInfo| matches!(info.kind, Kind::Scalar(of) if of == self || of.on_globe() == self);
        table()
            .iter()
            .find(mine)
            .expect("the table has every function, as a test proves")
    }

    /// What it is where shapes lie on the globe, below compatibility level 1.2.
    pub const fn on_globe(self) -> Function {
        match self {
            Function::CreateLineString => Function::GlobeLineString,
            Function::CreatePolygon => Function::GlobePolygon,
            Function::StIntersects => Function::GlobeIntersects,
            Function::StOverlaps => Function::GlobeOverlaps,
            Function::StWithin => Function::GlobeWithin,
            other => other,
        }
    }

    /// DATEADD(part, ..) and the like.
    pub const fn takes_part(self) -> bool {
        matches!(
            self,
            Function::DateAdd | Function::DateDiff | Function::DateName | Function::DatePart
        )
    }

    /// As the reference spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Function::DateAdd => "DATEADD",
            Function::DateDiff => "DATEDIFF",
            Function::DateName => "DATENAME",
            Function::DatePart => "DATEPART",
            Function::Day => "DAY",
            Function::Month => "MONTH",
            Function::Year => "YEAR",
            Function::DateTimeFromParts => "DATETIMEFROMPARTS",
            Function::Abs => "ABS",
            Function::Ceiling => "CEILING",
            Function::Exp => "EXP",
            Function::Floor => "FLOOR",
            Function::Power => "POWER",
            Function::Round => "ROUND",
            Function::Sign => "SIGN",
            Function::Square => "SQUARE",
            Function::Sqrt => "SQRT",
            Function::CharIndex => "CHARINDEX",
            Function::Concat => "CONCAT",
            Function::ConcatWs => "CONCAT_WS",
            Function::JsonParse => "JSON_PARSE",
            Function::Left => "LEFT",
            Function::Len => "LEN",
            Function::Lower => "LOWER",
            Function::LTrim => "LTRIM",
            Function::NChar => "NCHAR",
            Function::PatIndex => "PATINDEX",
            Function::RegexMatch => "REGEXMATCH",
            Function::Replace => "REPLACE",
            Function::Replicate => "REPLICATE",
            Function::Reverse => "REVERSE",
            Function::Right => "RIGHT",
            Function::RTrim => "RTRIM",
            Function::Space => "SPACE",
            Function::Stuff => "STUFF",
            Function::Substring => "SUBSTRING",
            Function::Translate => "TRANSLATE",
            Function::Trim => "TRIM",
            Function::Unicode => "UNICODE",
            Function::Upper => "UPPER",
            Function::GetType => "GetType",
            Function::CreatePoint => "CreatePoint",
            Function::CreateLineString | Function::GlobeLineString => "CreateLineString",
            Function::CreatePolygon | Function::GlobePolygon => "CreatePolygon",
            Function::StDistance => "ST_DISTANCE",
            Function::StIntersects | Function::GlobeIntersects => "ST_INTERSECTS",
            Function::StOverlaps | Function::GlobeOverlaps => "ST_OVERLAPS",
            Function::StWithin | Function::GlobeWithin => "ST_WITHIN",
            Function::GetArrayElement => "GetArrayElement",
            Function::GetArrayLength => "GetArrayLength",
            Function::GetRecordPropertyValue => "GetRecordPropertyValue",
        }
    }
}

impl DatePart {
    pub const ALL: [DatePart; 12] = [
        DatePart::Year,
        DatePart::Quarter,
        DatePart::Month,
        DatePart::DayOfYear,
        DatePart::Day,
        DatePart::Week,
        DatePart::Weekday,
        DatePart::Hour,
        DatePart::Minute,
        DatePart::Second,
        DatePart::Millisecond,
        DatePart::Microsecond,
    ];

    /// The part of this name or abbreviation; names also in the plural.
    pub fn find(name: &str) -> Option<DatePart> {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        let plural = |known: &str| match name.char_indices().next_back() {
            Some((at, 's' | 'S')) => known.eq_ignore_ascii_case(&name[..at]),
            _ => false,
        };
        DatePart::ALL.into_iter().find(|part| {
            let known = part.name();
            is(known) || plural(known) || part.abbreviations().iter().any(|known| is(known))
        })
    }

    pub const fn abbreviations(self) -> &'static [&'static str] {
        match self {
            DatePart::Year => &["yy", "yyyy"],
            DatePart::Quarter => &["qq", "q"],
            DatePart::Month => &["mm", "m"],
            DatePart::DayOfYear => &["dy", "y"],
            DatePart::Day => &["dd", "d"],
            DatePart::Week => &["wk", "ww"],
            DatePart::Weekday => &["dw", "w"],
            DatePart::Hour => &["hh"],
            DatePart::Minute => &["mi", "n"],
            DatePart::Second => &["ss", "s"],
            DatePart::Millisecond => &["ms"],
            DatePart::Microsecond => &["mcs"],
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            DatePart::Year => "year",
            DatePart::Quarter => "quarter",
            DatePart::Month => "month",
            DatePart::DayOfYear => "dayofyear",
            DatePart::Day => "day",
            DatePart::Week => "week",
            DatePart::Weekday => "weekday",
            DatePart::Hour => "hour",
            DatePart::Minute => "minute",
            DatePart::Second => "second",
            DatePart::Millisecond => "millisecond",
            DatePart::Microsecond => "microsecond",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S1
    #[test]
    fn names_are_unique_and_every_row_is_filled_in() {
        let mut seen = std::collections::HashSet::new();
        for info in table() {
            for name in info.names() {
                let inside = info.kind == Kind::Pattern;
                assert!(seen.insert((inside, name.to_lowercase())), "{name} twice");
            }
            let (least, most) = info.arguments;
            assert!(most.is_none_or(|most| least <= most), "{}", info.name);
            let texts = [info.signature, info.result, info.description];
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", info.name);
            assert!(info.description.ends_with(['.', '?']), "{}", info.name);
            assert!(info.signature.contains(info.name), "{}", info.name);
        }
    }

    // proves S1
    #[test]
    fn scalar_functions_have_a_row_with_examples() {
        for info in table() {
            if let Kind::Scalar(function) = info.kind {
                assert_eq!(function.info().name, function.name());
                assert!(!info.examples.is_empty(), "{}", info.name);
            }
        }
        let scalars = table()
            .iter()
            .filter(|info| matches!(info.kind, Kind::Scalar(_)));
        assert_eq!(
            scalars.count(),
            Function::GetRecordPropertyValue as usize + 1
        );
    }

    // proves S1
    #[test]
    fn dateparts_have_abbreviations_and_plurals() {
        let cases = [
            ("yyyy", DatePart::Year),
            ("Q", DatePart::Quarter),
            ("m", DatePart::Month),
            ("y", DatePart::DayOfYear),
            ("DAYS", DatePart::Day),
            ("ww", DatePart::Week),
            ("w", DatePart::Weekday),
            ("hours", DatePart::Hour),
            ("n", DatePart::Minute),
            ("s", DatePart::Second),
            ("ms", DatePart::Millisecond),
            ("mcs", DatePart::Microsecond),
        ];
        for (name, part) in cases {
            assert_eq!(DatePart::find(name), Some(part), "{name}");
        }
        for name in ["", "hhs", "mss", "fortnight", "dayss", "ä"] {
            assert_eq!(DatePart::find(name), None, "{name}");
        }
    }
}
