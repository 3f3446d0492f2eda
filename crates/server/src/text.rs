//! Texts of HTTP: query parameters, times.

use std::borrow::Cow;
use std::io;

pub(crate) use highwater_access::percent_decode;
use highwater_log::EnqueueTime;
use highwater_time::Instant;

/// A parameter of a query such as `from=earliest&max=10`.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    Some(percent_decode(encoded(query?, name)?))
}

/// A field of a form, in a query or a posted body. Forms write a space as `+`.
pub(crate) fn form_field(form: &str, name: &str) -> Option<String> {
    let value = encoded(form, name)?.replace('+', " ");
    Some(percent_decode(&value).into_owned())
}

/// The first value of a name, as it was sent.
fn encoded<'a>(pairs: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = pairs.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    Some(value)
}

/// `2026-11-15T12:11:04.123Z`, written by hand because every answer to a posted event has one.
pub(crate) fn write_time(out: &mut Vec<u8>, time: EnqueueTime) {
    let instant = Instant::from_unix_millis(time.0);
    if !instant.is_in_calendar() {
        return out.extend_from_slice(b"9999-12-31T23:59:59.999Z");
    }
    let (year, month, day) = instant.civil();
    let millis = time.0.rem_euclid(24 * 3600 * 1000) as u32;
    let digits = |out: &mut Vec<u8>, value: u32, width: u32| {
        (0..width)
            .rev()
            .for_each(|power| out.push(b'0' + (value / 10_u32.pow(power) % 10) as u8));
    };
    digits(out, year.unsigned_abs(), 4);
    for (mark, value, width) in [
        (b'-', month, 2),
        (b'-', day, 2),
        (b'T', millis / 3_600_000, 2),
        (b':', millis / 60_000 % 60, 2),
        (b':', millis / 1000 % 60, 2),
        (b'.', millis % 1000, 3),
    ] {
        out.push(mark);
        digits(out, value, width);
    }
    out.push(b'Z');
}

/// For answers that are not on the hot path.
pub(crate) fn time_text(time: EnqueueTime) -> String {
    let mut out = Vec::with_capacity(24);
    write_time(&mut out, time);
    String::from_utf8_lossy(&out).into_owned()
}

/// The remedy for an address that cannot be listened on; `setting` names it.
pub(crate) fn taken_hint(error: &io::Error, setting: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "\n  something else listens there: stop it, or set {setting} to another port, or `off`"
            )
        }
        _ => String::new(),
    }
}

/// Whether a host, with or without scheme and port, is this machine.
pub(crate) fn is_local(host: &str) -> bool {
    let host = host.split_once("://").map_or(host, |(_, rest)| rest);
    if let Some(rest) = host.strip_prefix("[::1]") {
        return rest.is_empty() || rest.starts_with(':');
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_a_form_may_have_spaces() {
        let form = "name=a%40b&secret=x+y%2Bz&secret=second";
        assert_eq!(form_field(form, "name").unwrap(), "a@b");
        assert_eq!(form_field(form, "secret").unwrap(), "x y+z");
        assert_eq!(form_field(form, "next"), None);
    }

    #[test]
    fn a_parameter_is_found_by_its_whole_name() {
        let query = Some("from=2026-01-01T00%3A00%3A00Z&max=10&ax=1");
        assert_eq!(parameter(query, "ax").as_deref(), Some("1"));
        assert_eq!(
            parameter(query, "from").as_deref(),
            Some("2026-01-01T00:00:00Z")
        );
        assert_eq!(parameter(query, "x"), None);
        assert_eq!(parameter(None, "x"), None);
    }

    #[test]
    fn times_are_in_iso_format() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_763_208_664_123, "2025-11-15T12:11:04.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(time_text(EnqueueTime(millis)), text);
        }
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8080",
            "127.1.2.3",
            "[::1]:1",
            "http://localhost:3",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]",
            "",
            "null",
            "http://evil:1",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
