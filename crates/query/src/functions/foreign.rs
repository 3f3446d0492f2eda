//! Functions of other SQL dialects, and their replacements.

const NOW: &str =
    "write System.Timestamp(), the time of the event or result; a query has no other clock";
const COALESCE: &str = "write COALESCE(x, y)";
const RANKS: &str = "write TopOne(..) or CollectTop(n) OVER (ORDER BY x) in a window";
const LOGARITHM: &str =
    "there are no logarithms; write a JavaScript function and call it udf.name(x)";
const NO_CHANCE: &str = "a query gives the same result every time, so there is no randomness";
const FORMAT: &str = "put the text together: CONCAT(DATEPART(year, t), '-', DATENAME(month, t))";
const FIELDS: &str = "write JSON_PARSE(text).field, or record.field";

/// Name and advice.
const FOREIGN: [(&str, &str); 34] = [
    ("ISNULL", COALESCE),
    ("IFNULL", COALESCE),
    ("NVL", COALESCE),
    ("GETDATE", NOW),
    ("GETUTCDATE", NOW),
    ("SYSDATETIME", NOW),
    ("SYSUTCDATETIME", NOW),
    ("CURRENT_TIMESTAMP", NOW),
    ("NOW", NOW),
    ("CONVERT", "write CAST(x AS type)"),
    ("TRY_CONVERT", "write TRY_CAST(x AS type)"),
    ("PARSE", "write CAST(x AS type)"),
    ("TRY_PARSE", "write TRY_CAST(x AS type)"),
    ("IIF", "write CASE WHEN condition THEN x ELSE y END"),
    (
        "CHOOSE",
        "write CASE i WHEN 1 THEN x WHEN 2 THEN y ELSE NULL END",
    ),
    ("ISNUMERIC", "write TRY_CAST(x AS float) IS NOT NULL"),
    ("ISDATE", "write TRY_CAST(x AS datetime) IS NOT NULL"),
    ("LENGTH", "write LEN(x)"),
    ("DATALENGTH", "write LEN(x), which counts characters"),
    ("SUBSTR", "write SUBSTRING(x, start, length)"),
    ("STRING_AGG", "write Collect(x), an array of the values"),
    ("FORMAT", FORMAT),
    ("LOG", LOGARITHM),
    ("LOG10", LOGARITHM),
    ("RAND", NO_CHANCE),
    ("NEWID", NO_CHANCE),
    ("ROW_NUMBER", RANKS),
    ("RANK", RANKS),
    ("DENSE_RANK", RANKS),
    (
        "LEAD",
        "write LAG(x) OVER (..): an event sees earlier events only",
    ),
    (
        "FIRST_VALUE",
        "write TopOne(x) OVER (ORDER BY t) in a window",
    ),
    ("LAST_VALUE", "write LAST(x) OVER (LIMIT DURATION(unit, n))"),
    ("JSON_VALUE", FIELDS),
    ("JSON_QUERY", FIELDS),
];

/// The replacement of a function of another dialect.
pub(crate) fn replacement(name: &str) -> Option<&'static str> {
    let known = FOREIGN.iter();
    let mut known = known.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    known.next().map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions;

    // proves S2
    #[test]
    fn no_function_of_the_language_is_foreign() {
        for (name, _) in FOREIGN {
            assert!(functions::find(name).is_none(), "{name} exists");
        }
        assert_eq!(replacement("isNull"), Some(COALESCE));
    }
}
