//! Numbers, sizes and times as text, each with its unit.

/// `24,960`
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `24,960 /s`, `3.4 /s`
pub fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 10.0 => format!("{} /s", count(rate.round() as u64)),
        rate if rate < 0.05 => "0 /s".to_owned(),
        rate => format!("{rate:.1} /s"),
    }
}

/// `27 MB`, in powers of ten.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value} B"),
        _ if scaled < 9.95 => format!("{scaled:.1} {}", UNITS[unit]),
        _ => format!("{scaled:.0} {}", UNITS[unit]),
    }
}

/// `0.8 %`
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 9.95 => format!("{percent:.0} %"),
        0.0 => "0 %".to_owned(),
        percent if percent < 0.1 => "< 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// `1.0 s`, `2 min 5 s`, `2 h 14 min`
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match seconds {
        seconds if seconds < 0.0 => format!("−{}", self::seconds(-seconds)),
        seconds if seconds < 0.0995 => format!("{:.0} ms", seconds * 1000.0),
        seconds if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds if seconds < 59.5 => format!("{seconds:.0} s"),
        _ if whole < 600 => two(whole / 60, "min", whole % 60, "s"),
        _ if whole < 3600 => format!("{} min", whole / 60),
        _ if whole < 86_400 => two(whole / 3600, "h", whole / 60 % 60, "min"),
        _ => two(whole / 86_400, "d", whole / 3600 % 24, "h"),
    }
}

fn two(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    }
}

/// `n thing` or `n things`.
pub fn plural(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

/// A long name without its middle.
pub(crate) fn shortened(name: &str, length_max: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= length_max {
        return name.to_owned();
    }
    let end = (length_max - 1) / 2;
    let begin = length_max - 1 - end;
    let head: String = chars[..begin].iter().collect();
    let tail: String = chars[chars.len() - end..].iter().collect();
    format!("{head}…{tail}")
}

/// A name as one segment of a path.
pub fn segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte.into())
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The precision of a shown time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// `10:04:58`
    Second,
    /// `10:04:58.917`
    Millisecond,
    /// `2026-11-16 10:04:58`
    Full,
}

/// A time in UTC, given in milliseconds since 1970.
pub(crate) fn time(unix_ms: i64, precision: Precision) -> String {
    let (year, month, day) = civil(unix_ms.div_euclid(86_400_000));
    let ms = unix_ms.rem_euclid(86_400_000);
    let clock = format!(
        "{:02}:{:02}:{:02}",
        ms / 3_600_000,
        ms / 60_000 % 60,
        ms / 1000 % 60
    );
    match precision {
        Precision::Second => clock,
        Precision::Millisecond => format!("{clock}.{:03}", ms % 1000),
        Precision::Full => format!("{year:04}-{month:02}-{day:02} {clock}"),
    }
}

/// `2026-11-16T10:04:58.917Z`
pub(crate) fn iso(unix_ms: i64) -> String {
    let (year, month, day) = civil(unix_ms.div_euclid(86_400_000));
    let clock = time(unix_ms, Precision::Millisecond);
    format!("{year:04}-{month:02}-{day:02}T{clock}Z")
}

/// Year, month and day of a number of days since 1970 (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_units() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0.0, 3.42, 24_960.4].map(rate),
            ["0 /s", "3.4 /s", "24,960 /s"]
        );
        assert_eq!(
            [0, 999, 27_300_000, 1_540_000_000].map(bytes),
            ["0 B", "999 B", "27 MB", "1.5 GB"]
        );
        assert_eq!(
            [0.0, 0.0004, 0.008, 0.5].map(percent),
            ["0 %", "< 0.1 %", "0.8 %", "50 %"]
        );
        assert_eq!(plural(1, "row"), "1 row");
    }

    #[test]
    fn durations_have_the_precision_that_matters() {
        let shown = [0.004, 1.04, 42.4, 125.0, 1800.0, 8040.0, 90_000.0].map(seconds);
        assert_eq!(
            shown,
            [
                "4 ms",
                "1.0 s",
                "42 s",
                "2 min 5 s",
                "30 min",
                "2 h 14 min",
                "1 d 1 h"
            ]
        );
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(1_709_251_199_999), "2024-02-29T23:59:59.999Z");
        assert_eq!(time(-1, Precision::Full), "1969-12-31 23:59:59");
    }

    #[test]
    fn a_long_name_keeps_its_ends() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("a-very-long-name-of-a-hub", 11), "a-ver…a-hub");
    }
}
