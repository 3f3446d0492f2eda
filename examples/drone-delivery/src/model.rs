//! Types shared by the services: locations, sizes, stages.

use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// An enum that is serialised as its name and deserialised from its name in any case or from its number, because the
/// reference application and its clients send both.
macro_rules! named {
    ($(#[$about:meta])* $name:ident { $first:ident $(, $other:ident)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum $name { #[default] $first $(, $other)* }

        impl $name {
            pub const ALL: &[$name] = &[$name::$first $(, $name::$other)*];

            pub fn name(self) -> &'static str {
                match self {
                    $name::$first => stringify!($first),
                    $($name::$other => stringify!($other),)*
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                from.deserialize_any(NameOrNumber { all: $name::ALL, name: $name::name })
            }
        }
    };
}

/// Reads one of `all`.
struct NameOrNumber<T: 'static> {
    all: &'static [T],
    name: fn(T) -> &'static str,
}

impl<T: Copy> Visitor<'_> for NameOrNumber<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.all.iter().map(|one| (self.name)(*one)).collect();
        write!(out, "one of {}", names.join(", "))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let place = usize::try_from(number).ok();
        let found = place.and_then(|place| self.all.get(place)).copied();
        found.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let mut all = self.all.iter().copied();
        let found = all.find(|one| (self.name)(*one).eq_ignore_ascii_case(text));
        found.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

named!(Size {
    Small,
    Medium,
    Large
});
named!(
    /// How the receiver confirms the delivery.
    Confirmation { FingerPrint, Picture, Voice, None }
);
named!(Stage {
    Created,
    Rescheduled,
    HeadedToPickup,
    HeadedToDropoff,
    Completed,
    Cancelled
});

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Location {
    pub altitude: f64,
    pub latitude: f64,
    pub longitude: f64,
}

/// The drones' base; free text is mapped to an address near it.
pub const DEPOT: Location = Location {
    altitude: 0.0,
    latitude: 47.61,
    longitude: -122.33,
};

impl Location {
    /// `47.61,-122.33` is a position. Any other text is an address, mapped deterministically to a position within 10 km
    /// of the depot.
    pub fn of_text(text: &str) -> Location {
        let numbers = text.split_once(',').and_then(|(latitude, longitude)| {
            Some((
                latitude.trim().parse().ok()?,
                longitude.trim().parse().ok()?,
            ))
        });
        let on_earth =
            |(latitude, longitude): &(f64, f64)| latitude.abs() <= 90.0 && longitude.abs() <= 180.0;
        let (latitude, longitude) = numbers.filter(on_earth).unwrap_or_else(|| address(text));
        Location {
            altitude: 0.0,
            latitude,
            longitude,
        }
    }

    /// Great-circle distance.
    pub fn kilometres_to(self, other: Location) -> f64 {
        const EARTH_RADIUS_KM: f64 = 6371.0;
        let (a, b) = (self.latitude.to_radians(), other.latitude.to_radians());
        let half = |x: f64, y: f64| ((x - y).to_radians() / 2.0).sin().powi(2);
        let h = half(self.latitude, other.latitude)
            + a.cos() * b.cos() * half(self.longitude, other.longitude);
        2.0 * EARTH_RADIUS_KM * h.sqrt().min(1.0).asin()
    }
}

fn address(text: &str) -> (f64, f64) {
    // FNV-1a: stable across platforms and versions, unlike a hash map's hash.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let step = |bits: u64| (bits & 0xffff) as f64 / f64::from(0xffff) * 0.12 - 0.06;
    (
        DEPOT.latitude + step(hash >> 16),
        DEPOT.longitude + step(hash >> 32),
    )
}

impl<'de> Deserialize<'de> for Location {
    /// From a text, or from `{altitude, latitude, longitude}`.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Location, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Numbers {
                #[serde(default)]
                altitude: f64,
                latitude: f64,
                longitude: f64,
            },
        }
        Ok(match Form::deserialize(from)? {
            Form::Text(text) => Location::of_text(&text),
            Form::Numbers {
                altitude,
                latitude,
                longitude,
            } => Location {
                altitude,
                latitude,
                longitude,
            },
        })
    }
}

/// Ids come from clients, are stored and appear in paths: their length is bounded, and they need no escaping.
pub fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(plain)
}

/// `year` and `month` of a moment in milliseconds since 1970, in UTC.
pub fn month_of(unix_ms: i64) -> (i16, i8) {
    let moment = jiff::Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    let date = moment.to_zoned(jiff::tz::TimeZone::UTC).date();
    (date.year(), date.month())
}

/// As `2026-11-15T12:11:04.123Z`.
pub fn time_text(unix_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(unix_ms)
        .unwrap_or_default()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_names_are_written() {
        for text in ["\"Medium\"", "\"medium\"", "1"] {
            assert_eq!(serde_json::from_str::<Size>(text).unwrap(), Size::Medium);
        }
        assert_eq!(serde_json::to_string(&Size::Medium).unwrap(), "\"Medium\"");
        let wrong = serde_json::from_str::<Size>("\"huge\"")
            .unwrap_err()
            .to_string();
        assert!(wrong.contains("Small, Medium, Large"), "{wrong}");
        assert!(serde_json::from_str::<Size>("3").is_err());
    }

    #[test]
    fn an_address_is_always_the_same_place_near_the_depot() {
        let place = Location::of_text("5 Harbour Road");
        assert_eq!(place, Location::of_text("5 Harbour Road"));
        assert_ne!(place, Location::of_text("6 Harbour Road"));
        assert!(place.kilometres_to(DEPOT) < 10.0);
    }

    #[test]
    fn positions_are_read_from_text_and_numbers() {
        let text: Location = serde_json::from_str("\"48.0, 2.5\"").unwrap();
        let numbers: Location =
            serde_json::from_str(r#"{"altitude":0,"latitude":48.0,"longitude":2.5}"#).unwrap();
        assert_eq!(text, numbers);
        // Paris to London is 344 km.
        let (paris, london) = (
            Location::of_text("48.8566,2.3522"),
            Location::of_text("51.5074,-0.1278"),
        );
        assert!((paris.kilometres_to(london) - 344.0).abs() < 1.0);
    }
}
