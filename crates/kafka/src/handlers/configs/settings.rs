//! Settings of a hub under Kafka's names.
//!
//! Four of them have an effect. The others that Kafka knows are accepted and described with the value that holds
//! for this log, because tools and frameworks set them unconditionally. Unknown names are an error.

use std::time::Duration;

use highwater_log::{CleanupPolicy, HubSettings};
use kafka_protocol::ResponseError as Code;

use crate::handlers::Refusal;

/// A setting as DescribeConfigs returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub name: &'static str,
    pub value: String,
    /// One of [`kind`].
    pub kind: i8,
    /// One of [`source`].
    pub source: i8,
    /// Setting it has no effect.
    pub fixed: bool,
}

/// Kafka's types of settings.
pub(crate) mod kind {
    pub(crate) const BOOLEAN: i8 = 1;
    pub(crate) const STRING: i8 = 2;
    pub(crate) const INT: i8 = 3;
    pub(crate) const LONG: i8 = 5;
    pub(crate) const DOUBLE: i8 = 6;
    pub(crate) const LIST: i8 = 7;
}

/// Kafka's sources of values.
pub(crate) mod source {
    pub(crate) const TOPIC: i8 = 1;
    pub(crate) const NODE: i8 = 4;
    pub(crate) const DEFAULT: i8 = 5;
}

const CLEANUP: &str = "cleanup.policy";
const RETENTION_MS: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";
const BATCH_BYTES_MAX: &str = "max.message.bytes";
pub(crate) const MEANINGFUL: [&str; 4] = [CLEANUP, RETENTION_MS, RETENTION_BYTES, BATCH_BYTES_MAX];

/// Settings that are accepted without effect, and their values.
const FIXED: [(&str, &str, i8); 23] = [
    ("compression.type", "producer", kind::STRING),
    ("delete.retention.ms", "86400000", kind::LONG),
    ("file.delete.delay.ms", "0", kind::LONG),
    ("flush.messages", "1", kind::LONG),
    ("flush.ms", "0", kind::LONG),
    ("follower.replication.throttled.replicas", "", kind::LIST),
    ("index.interval.bytes", "4096", kind::INT),
    ("leader.replication.throttled.replicas", "", kind::LIST),
    ("local.retention.bytes", "-2", kind::LONG),
    ("local.retention.ms", "-2", kind::LONG),
    ("max.compaction.lag.ms", "9223372036854775807", kind::LONG),
    ("message.downconversion.enable", "false", kind::BOOLEAN),
    ("message.format.version", "3.0-IV1", kind::STRING),
    ("message.timestamp.type", "LogAppendTime", kind::STRING),
    ("min.cleanable.dirty.ratio", "0.5", kind::DOUBLE),
    ("min.compaction.lag.ms", "0", kind::LONG),
    ("min.insync.replicas", "1", kind::INT),
    ("preallocate", "false", kind::BOOLEAN),
    ("remote.storage.enable", "false", kind::BOOLEAN),
    ("segment.bytes", "1073741824", kind::INT),
    ("segment.jitter.ms", "0", kind::LONG),
    ("segment.ms", "604800000", kind::LONG),
    ("unclean.leader.election.enable", "false", kind::BOOLEAN),
];

/// Bounds for producers' timestamps, which are not used.
const IGNORED: [&str; 4] = [
    "message.timestamp.difference.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "segment.index.bytes",
];

/// Changes settings by Kafka's names; `None` resets one to its default.
pub(crate) fn read<'a>(
    mut settings: HubSettings,
    pairs: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<HubSettings, Refusal> {
    for (name, value) in pairs {
        set(&mut settings, name, value)?;
    }
    Ok(settings)
}

fn set(settings: &mut HubSettings, name: &str, value: Option<&str>) -> Result<(), Refusal> {
    let default = HubSettings::default();
    let Some(value) = value.map(str::trim) else {
        return unset(settings, name, default);
    };
    let invalid = |expected: &str| {
        let reason = format!("`{value}` is not valid for {name}: expected {expected}");
        Refusal::new(Code::InvalidConfig, reason)
    };
    let number = || value.parse::<i64>().map_err(|_| invalid("a number"));
    match name {
        CLEANUP => settings.cleanup = cleanup(value).ok_or_else(|| invalid("delete or compact"))?,
        RETENTION_MS => settings.retention = limit(number()?).map(Duration::from_millis),
        RETENTION_BYTES => settings.retention_bytes = limit(number()?),
        BATCH_BYTES_MAX => {
            let bytes = u32::try_from(number()?).map_err(|_| invalid("0 to 4294967295"))?;
            settings.batch_bytes_max = bytes;
        }
        _ => known(name)?,
    }
    Ok(())
}

fn unset(settings: &mut HubSettings, name: &str, default: HubSettings) -> Result<(), Refusal> {
    match name {
        CLEANUP => settings.cleanup = default.cleanup,
        RETENTION_MS => settings.retention = default.retention,
        RETENTION_BYTES => settings.retention_bytes = default.retention_bytes,
        BATCH_BYTES_MAX => settings.batch_bytes_max = default.batch_bytes_max,
        _ => known(name)?,
    }
    Ok(())
}

fn known(name: &str) -> Result<(), Refusal> {
    let fixed = FIXED.iter().any(|(known, _, _)| *known == name);
    match fixed || IGNORED.contains(&name) {
        true => Ok(()),
        false => Err(Refusal::new(
            Code::InvalidConfig,
            format!(
                "unknown setting {name}; these can be set: {}",
                MEANINGFUL.join(", ")
            ),
        )),
    }
}

fn cleanup(value: &str) -> Option<CleanupPolicy> {
    match value {
        "delete" => Some(CleanupPolicy::Delete),
        "compact" => Some(CleanupPolicy::Compact),
        _ => None,
    }
}

/// A negative value means no limit.
fn limit(value: i64) -> Option<u64> {
    u64::try_from(value).ok()
}

/// Every setting of a hub, by name.
pub(crate) fn all(settings: &HubSettings) -> Vec<Setting> {
    let default = values(&HubSettings::default());
    let own = values(settings)
        .into_iter()
        .zip(default)
        .map(|((name, value, kind), other)| {
            let source = match value == other.1 {
                true => source::DEFAULT,
                false => source::TOPIC,
            };
            Setting {
                name,
                value,
                kind,
                source,
                fixed: false,
            }
        });
    let fixed = FIXED.iter().map(|(name, value, kind)| Setting {
        name,
        value: (*value).to_string(),
        kind: *kind,
        source: source::DEFAULT,
        fixed: true,
    });
    let mut all: Vec<Setting> = own.chain(fixed).collect();
    all.sort_by_key(|setting| setting.name);
    all
}

pub(crate) fn values(settings: &HubSettings) -> [(&'static str, String, i8); 4] {
    let cleanup = match settings.cleanup {
        CleanupPolicy::Delete => "delete",
        CleanupPolicy::Compact => "compact",
    };
    let unlimited = |limit: Option<String>| limit.unwrap_or_else(|| "-1".into());
    let retention = settings
        .retention
        .map(|limit| limit.as_millis().to_string());
    let bytes = settings.retention_bytes.map(|limit| limit.to_string());
    [
        (CLEANUP, cleanup.into(), kind::LIST),
        (RETENTION_MS, unlimited(retention), kind::LONG),
        (RETENTION_BYTES, unlimited(bytes), kind::LONG),
        (
            BATCH_BYTES_MAX,
            settings.batch_bytes_max.to_string(),
            kind::INT,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(name: &str, value: Option<&str>) -> Result<HubSettings, String> {
        let read = read(HubSettings::default(), [(name, value)].into_iter());
        read.map_err(|refusal| refusal.reason)
    }

    #[test]
    fn settings_with_effect_are_read_and_described() {
        let pairs = [
            ("cleanup.policy", Some("compact")),
            ("retention.ms", Some("-1")),
            ("retention.bytes", Some("1000")),
            ("max.message.bytes", Some("2000")),
        ];
        let settings = read(HubSettings::default(), pairs.into_iter())
            .ok()
            .unwrap();
        assert_eq!(settings.cleanup, CleanupPolicy::Compact);
        assert_eq!(settings.retention, None);
        let shown = all(&settings);
        for (name, value) in pairs {
            let setting = shown.iter().find(|setting| setting.name == name).unwrap();
            assert_eq!(Some(&*setting.value), value, "{name}");
            assert_eq!((setting.source, setting.fixed), (source::TOPIC, false));
        }
    }

    #[test]
    fn a_setting_without_effect_is_accepted_and_described_with_its_fixed_value() {
        let settings = read_one("message.timestamp.type", Some("CreateTime")).unwrap();
        assert_eq!(settings, HubSettings::default());
        let shown = all(&settings);
        let time = shown
            .iter()
            .find(|setting| setting.name == "message.timestamp.type");
        assert_eq!(
            time.map(|time| (&*time.value, time.fixed)),
            Some(("LogAppendTime", true))
        );
    }

    #[test]
    fn an_unknown_setting_and_a_wrong_value_are_named() {
        assert!(
            read_one("retention.hours", Some("1"))
                .unwrap_err()
                .contains("retention.hours")
        );
        assert!(
            read_one("retention.ms", Some("soon"))
                .unwrap_err()
                .contains("`soon`")
        );
        assert!(read_one("cleanup.policy", Some("compact,delete")).is_err());
    }

    #[test]
    fn without_a_value_the_default_is_restored() {
        let changed = read_one("retention.ms", Some("5")).unwrap();
        let back = read(changed, [("retention.ms", None)].into_iter())
            .ok()
            .unwrap();
        assert_eq!(back, HubSettings::default());
    }
}
