//! Durations as the administration API writes them: ISO 8601, days and smaller.

use std::time::Duration;

/// The value for no limit in Service Bus: the largest time span of .NET. Clients cut its fraction differently.
pub(super) const FOREVER: &str = "P10675199DT2H48M5.4775807S";
const FOREVER_MIN: Duration = Duration::from_secs(10_675_199 * 86_400);

/// A duration of a client, such as `PT1M` or `P14DT2.5S`; `None` if it is none. Years and months have no length.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let (mut total, mut in_time, mut parts) = (0_f64, false, 0);
    let mut rest = text.strip_prefix('P')?;
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix('T') {
            if in_time || time.is_empty() {
                return None;
            }
            (in_time, rest) = (true, time);
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit_and_rest) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let unit = unit_and_rest.chars().next()?;
        let seconds = match (unit, in_time) {
            ('W', false) => 604_800.0,
            ('D', false) => 86_400.0,
            ('H', true) => 3600.0,
            ('M', true) => 60.0,
            ('S', true) => 1.0,
            _ => return None,
        };
        total += number * seconds;
        parts += 1;
        rest = &unit_and_rest[unit.len_utf8()..];
    }
    match parts {
        0 => None,
        // Service Bus has milliseconds at best.
        _ => Some(Duration::from_millis((total * 1000.0).round() as u64)),
    }
}

/// Whether a duration means that there is no limit.
pub(super) fn is_forever(duration: Duration) -> bool {
    duration >= FOREVER_MIN
}

pub(super) fn text(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let mut out = String::from("P");
    if days > 0 {
        out.push_str(&format!("{days}D"));
    }
    let rest = seconds % 60;
    if hours + minutes + rest > 0 || millis > 0 || days == 0 {
        out.push('T');
    }
    if hours > 0 {
        out.push_str(&format!("{hours}H"));
    }
    if minutes > 0 {
        out.push_str(&format!("{minutes}M"));
    }
    match (rest, millis) {
        (0, 0) if seconds > 0 => {}
        (rest, 0) => out.push_str(&format!("{rest}S")),
        (rest, millis) => out.push_str(&format!("{rest}.{millis:03}S")),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves A3
    #[test]
    fn durations_are_read_and_written() {
        for (given, millis, written) in [
            ("PT1M", 60_000, "PT1M"),
            ("PT60S", 60_000, "PT1M"),
            ("P14D", 14 * 86_400_000, "P14D"),
            ("P1DT2H3M4.5S", 93_784_500, "P1DT2H3M4.500S"),
            ("P1W", 604_800_000, "P7D"),
            ("PT0S", 0, "PT0S"),
            ("PT0.5S", 500, "PT0.500S"),
        ] {
            let read = parse(given).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{given}");
            assert_eq!(text(read), written);
            assert_eq!(parse(written), Some(read));
        }
        for wrong in [
            "", "P", "PT", "1M", "P1", "P1M", "P1Y", "PT1D", "P-1D", "PT1.S.S", "PTT1S", "P1ü",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_longest_time_of_each_client_is_no_limit() {
        for forever in [
            FOREVER,
            "P10675199DT2H48M5.477S",
            "P10675199DT2H48M5.477539S",
        ] {
            assert!(is_forever(parse(forever).unwrap()), "{forever}");
        }
        assert!(!is_forever(parse("P14D").unwrap()));
        assert!(
            is_forever(parse("P99999999999999999999D").unwrap()),
            "and does not overflow"
        );
    }
}
