//! The functions of the language: one table, from which the binder checks calls and the manual is printed.
//!
//! Scalar functions are declared in `scalar.rs`, all others in `non_scalar.rs`.

mod date_part;
mod foreign;
mod non_scalar;
mod scalar;

use std::sync::LazyLock;

pub use date_part::DatePart;
pub(crate) use foreign::replacement;
pub use scalar::Function;

/// The declaration of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionInfo {
    /// As the reference spells it.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    pub category: Category,
    /// The syntax of a call, in the notation of the manual: `[optional]`, `this | that`, `..` for repetition.
    pub signature: &'static str,
    /// How many arguments it takes. A datepart counts as one.
    pub arguments: Arguments,
    /// The type of the result: a type's name, `type of x` for the type of the first argument, or other words.
    pub result: &'static str,
    /// The result for NULL arguments.
    pub nulls: &'static str,
    /// Its purpose, in a sentence.
    pub description: &'static str,
    /// Expressions and their values. The value is written as in JSON output, except that text has no quotes and NULL
    /// is `NULL`.
    pub examples: &'static [(&'static str, &'static str)],
}

/// How many arguments a function takes: the minimum, and the maximum if there is one.
pub type Arguments = (usize, Option<usize>);

const fn exactly(count: usize) -> Arguments {
    (count, Some(count))
}

const fn between(min: usize, max: usize) -> Arguments {
    (min, Some(max))
}

const fn at_least(min: usize) -> Arguments {
    (min, None)
}

/// The kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function of the values of one row.
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

/// Every function, by category.
pub fn table() -> &'static [FunctionInfo] {
    static TABLE: LazyLock<Vec<FunctionInfo>> = LazyLock::new(|| {
        let (casts, conditional) = non_scalar::CONVERSION.split_at(2);
        // Sorted by category; within one, in this order.
        let parts: [&[FunctionInfo]; 11] = [
            casts,
            scalar::SCALAR,
            conditional,
            non_scalar::METADATA,
            non_scalar::AGGREGATE,
            non_scalar::ANALYTIC,
            non_scalar::WINDOW,
            non_scalar::APPLY,
            non_scalar::PATTERN,
            non_scalar::SYSTEM_TIME,
            non_scalar::SYSTEM_WINDOW,
        ];
        let mut table = parts.concat();
        table.sort_by_key(|info| info.category);
        table
    });
    &TABLE
}

/// The function of a bare name outside MATCH_RECOGNIZE.
pub fn find(name: &str) -> Option<&'static FunctionInfo> {
    let named = |info: &&FunctionInfo| info.names().any(|known| known.eq_ignore_ascii_case(name));
    let found = || table().iter().filter(named);
    let outside = found().find(|info| info.kind != Kind::Pattern);
    outside.or_else(|| found().next())
}

/// The candidates for a mistyped name.
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

    /// Whether the first argument is a datepart.
    pub fn takes_part(&self) -> bool {
        match self.kind {
            Kind::Scalar(function) => function.takes_part(),
            _ => false,
        }
    }
}

/// The part of a signature before the parenthesis.
const fn name_of(signature: &'static str) -> &'static str {
    let mut end = 0;
    while end < signature.len() && signature.as_bytes()[end] != b'(' {
        end += 1;
    }
    signature.split_at(end).0
}

impl Function {
    /// As the reference spells it.
    pub const fn name(self) -> &'static str {
        name_of(self.signature())
    }

    /// Whether the first argument is a [`DatePart`].
    pub fn takes_part(self) -> bool {
        let arguments = self.signature().trim_start_matches(self.name());
        arguments.starts_with("(datepart")
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
    fn scalar_functions_have_examples() {
        for info in scalar::SCALAR {
            assert!(!info.examples.is_empty(), "{}", info.name);
        }
    }

    // proves S1
    #[test]
    fn the_name_of_a_scalar_function_is_in_its_signature() {
        assert_eq!(Function::DateAdd.name(), "DATEADD");
        assert_eq!(Function::GlobeWithin.name(), "ST_WITHIN");
        assert_eq!(Function::CreatePoint.on_globe(), Function::CreatePoint);
        assert!(Function::DatePart.takes_part());
        assert!(!Function::Day.takes_part());
    }
}
