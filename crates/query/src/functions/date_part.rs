//! The units of DATEADD, DATEDIFF and the like.

/// The unit of a date function.
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

    /// By name, also in the plural, or by abbreviation.
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

    pub(crate) const fn abbreviations(self) -> &'static [&'static str] {
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
