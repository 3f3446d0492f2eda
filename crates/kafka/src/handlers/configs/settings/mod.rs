//! Settings of a hub under Kafka's names.
//!
//! Every setting that Kafka knows is stored and described. Those that have no effect on a hub are kept as the client
//! set them, because tools and frameworks set them unconditionally and compare them later. Unknown names are an error.

use std::time::Duration;

use highwater_log::batch::{Codec, TimestampType};
use highwater_log::{CleanupPolicy, HubSettings, SettingOrigin};
use kafka_protocol::ResponseError as Code;

use super::definitions::{DEFINITIONS, Definition, definition, kind, name};
use crate::dynamic::{DynamicSettings, SettingOwner};
use crate::handlers::Refusal;
use crate::options::TopicDefaults;

/// A setting as DescribeConfigs returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub name: &'static str,
    /// One of [`kind`].
    pub kind: i8,
    pub read_only: bool,
    pub documentation: &'static str,
    /// The value that holds comes first, then those that it precedes.
    pub levels: Vec<SettingLevel>,
}

/// A value of a setting, from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingLevel {
    /// The name that it has there; empty if it has none.
    pub name: &'static str,
    pub value: String,
    /// One of [`source`].
    pub source: i8,
}

impl Setting {
    pub(crate) fn value(&self) -> &str {
        self.levels.first().map_or("", |level| &level.value)
    }

    pub(crate) fn source(&self) -> i8 {
        self.levels
            .first()
            .map_or(source::DEFAULT, |level| level.source)
    }
}

/// Kafka's sources of values.
pub(crate) mod source {
    pub(crate) const TOPIC: i8 = 1;
    pub(crate) const DYNAMIC_NODE: i8 = 2;
    pub(crate) const DYNAMIC_EVERY_NODE: i8 = 3;
    pub(crate) const NODE: i8 = 4;
    pub(crate) const DEFAULT: i8 = 5;
    pub(crate) const CLIENT_METRICS: i8 = 7;
    pub(crate) const GROUP: i8 = 8;
}

/// The longest value of a setting that is stored as it is.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// The most bytes of all such values of a hub.
const STORED_BYTES_MAX: usize = 16 << 10;

/// Ratios are stored in millionths.
const MILLION: f64 = 1_000_000.0;

/// The settings of a topic that a client creates with no settings.
pub(crate) fn initial(defaults: &TopicDefaults) -> HubSettings {
    let mut settings = HubSettings::default();
    settings.timestamps.kind = defaults.timestamp_type;
    settings.compaction.dirty_ratio_min = DIRTY_RATIO_DEFAULT;
    settings
}

/// Kafka's default of `min.cleanable.dirty.ratio`.
const DIRTY_RATIO_DEFAULT: u32 = 500_000;

/// Changes settings by Kafka's names; `None` resets one to `initial`.
pub(crate) fn read<'a>(
    mut settings: HubSettings,
    initial: &HubSettings,
    pairs: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<HubSettings, Refusal> {
    for (name, value) in pairs {
        let Some(definition) = definition(name) else {
            let reason = format!("unknown setting {name}");
            return Err(Refusal::new(Code::InvalidConfig, reason));
        };
        match (value.map(str::trim), definition.ineffective) {
            (Some(value), Some(_)) => store(&mut settings, definition, value)?,
            (None, Some(_)) => {
                settings.ineffective.remove(name);
            }
            (Some(value), None) => set(&mut settings, definition, value)?,
            (None, None) => reset(&mut settings, name, initial),
        }
    }
    check(&settings)?;
    Ok(settings)
}

/// Changes settings as [`read`] does, and notes which of them were set for the hub.
pub(crate) fn change<'a>(
    settings: HubSettings,
    initial: &HubSettings,
    pairs: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
) -> Result<HubSettings, Refusal> {
    let mut settings = read(settings, initial, pairs.clone())?;
    for (name, value) in pairs {
        let Some(definition) = definition(name).filter(|one| one.ineffective.is_none()) else {
            continue;
        };
        match value {
            Some(_) => settings.set_for_hub([definition.name]),
            None => {
                settings.origins.remove(name);
            }
        }
    }
    Ok(settings)
}

/// Adds values to a list setting, or removes them from it.
pub(crate) fn change_list(
    settings: HubSettings,
    initial: &HubSettings,
    config: (&str, Option<&str>),
    append: bool,
) -> Result<HubSettings, Refusal> {
    let (name, value) = config;
    let definition = definition(name).filter(|definition| definition.kind == kind::LIST);
    let Some(definition) = definition else {
        let reason = format!("{name} is not a list, to which values can be added");
        return Err(Refusal::new(Code::InvalidConfig, reason));
    };
    let current = match definition.ineffective {
        Some(default) => stored(&settings, name).unwrap_or(default).to_owned(),
        None => value_of(&settings, name).unwrap_or_default(),
    };
    let text = changed_list(&current, value.unwrap_or_default(), append);
    change(settings, initial, std::iter::once((name, Some(&*text))))
}

/// A list with further values, or without some.
pub(super) fn changed_list(current: &str, changed: &str, append: bool) -> String {
    let mut values = list(current);
    let changed = list(changed);
    match append {
        true => {
            let new = changed
                .iter()
                .filter(|value| !list(current).contains(value));
            values.extend(new);
        }
        false => values.retain(|value| !changed.contains(value)),
    }
    values.join(",")
}

pub(crate) fn list(text: &str) -> Vec<&str> {
    let values = text.split(',').map(str::trim);
    values.filter(|value| !value.is_empty()).collect()
}

fn stored<'a>(settings: &'a HubSettings, name: &str) -> Option<&'a str> {
    settings.ineffective.get(name).map(String::as_str)
}

fn invalid(definition: &Definition, value: &str, expected: &str) -> Refusal {
    let name = definition.name;
    let reason = format!("`{value}` is not valid for {name}: expected {expected}");
    Refusal::new(Code::InvalidConfig, reason)
}

/// Stores a setting that has no effect, if its value has the right type.
fn store(settings: &mut HubSettings, definition: &Definition, value: &str) -> Result<(), Refusal> {
    let expected = match definition.kind {
        kind::BOOLEAN => Some("true or false").filter(|_| value.parse::<bool>().is_err()),
        kind::INT => Some("a number").filter(|_| value.parse::<i32>().is_err()),
        kind::LONG => Some("a number").filter(|_| value.parse::<i64>().is_err()),
        _ => Some("a shorter text").filter(|_| value.len() > TEXT_BYTES_MAX),
    };
    let expected = expected.or(match definition.name {
        name::REMOTE_STORAGE if value != "false" => Some("false: there is no tiered storage"),
        _ => None,
    });
    if let Some(expected) = expected {
        return Err(invalid(definition, value, expected));
    }
    let (name, value) = (definition.name.to_owned(), value.to_owned());
    settings.ineffective.insert(name, value);
    Ok(())
}

/// Kafka's names of compressions. `None` is that of the producer.
const COMPRESSION: [(&str, Option<Codec>); 6] = [
    ("producer", None),
    ("uncompressed", Some(Codec::None)),
    ("gzip", Some(Codec::Gzip)),
    ("snappy", Some(Codec::Snappy)),
    ("lz4", Some(Codec::Lz4)),
    ("zstd", Some(Codec::Zstd)),
];

fn set(settings: &mut HubSettings, definition: &Definition, value: &str) -> Result<(), Refusal> {
    let invalid = |expected: &str| invalid(definition, value, expected);
    let number = |min: i64, max: i64| {
        let number = value.parse::<i64>().ok();
        let number = number.filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| invalid(&format!("a number from {min} to {max}")))
    };
    let time = |min: i64| number(min, i64::MAX).map(|ms| Duration::from_millis(ms.unsigned_abs()));
    let limit = |time: Duration| Some(time).filter(|time| *time < FOREVER);
    let (timestamps, segments) = (&mut settings.timestamps, &mut settings.segments);
    let compaction = &mut settings.compaction;
    match definition.name {
        name::CLEANUP => {
            settings.cleanup = cleanup(value).ok_or_else(|| invalid("delete, compact or both"))?;
        }
        name::RETENTION_MS => {
            let limited = number(-1, i64::MAX)?;
            settings.retention = u64::try_from(limited).ok().map(Duration::from_millis);
        }
        name::RETENTION_BYTES => {
            settings.retention_bytes = u64::try_from(number(i64::MIN, i64::MAX)?).ok();
        }
        name::BATCH_BYTES_MAX => settings.batch_bytes_max = number(0, INT_MAX)? as u32,
        name::TIMESTAMP_TYPE => {
            let kind = timestamp_type(value);
            timestamps.kind = kind.ok_or_else(|| invalid("CreateTime or LogAppendTime"))?;
        }
        name::TIMESTAMP_BEFORE => timestamps.before_max = limit(time(0)?),
        name::TIMESTAMP_AFTER => timestamps.after_max = limit(time(0)?),
        name::SEGMENT_BYTES => segments.bytes = Some(number(1, INT_MAX)?.unsigned_abs()),
        name::SEGMENT_MS => segments.age = Some(time(1)?),
        name::DIRTY_RATIO => {
            let ratio = value.parse::<f64>().ok();
            let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
            let ratio = ratio.ok_or_else(|| invalid("a number from 0 to 1"))?;
            compaction.dirty_ratio_min = (ratio * MILLION).round() as u32;
        }
        name::COMPRESSION => {
            let found = COMPRESSION.iter().find(|(name, _)| *name == value);
            let (_, codec) = found.ok_or_else(|| invalid("a compression of Kafka"))?;
            settings.compression = *codec;
        }
        name::TOMBSTONE_AGE => compaction.tombstone_age = Some(time(0)?),
        name::LAG_MIN => compaction.lag_min = time(0)?,
        name::LAG_MAX => compaction.lag_max = limit(time(1)?),
        _ => {}
    }
    Ok(())
}

const INT_MAX: i64 = i32::MAX as i64;

/// Kafka's largest number stands for no limit.
const FOREVER: Duration = Duration::from_millis(i64::MAX as u64);

fn reset(settings: &mut HubSettings, name: &str, initial: &HubSettings) {
    let (timestamps, segments) = (&mut settings.timestamps, &mut settings.segments);
    let compaction = &mut settings.compaction;
    match name {
        name::CLEANUP => settings.cleanup = initial.cleanup,
        name::RETENTION_MS => settings.retention = initial.retention,
        name::RETENTION_BYTES => settings.retention_bytes = initial.retention_bytes,
        name::BATCH_BYTES_MAX => settings.batch_bytes_max = initial.batch_bytes_max,
        name::TIMESTAMP_TYPE => timestamps.kind = initial.timestamps.kind,
        name::TIMESTAMP_BEFORE => timestamps.before_max = initial.timestamps.before_max,
        name::TIMESTAMP_AFTER => timestamps.after_max = initial.timestamps.after_max,
        name::SEGMENT_BYTES => segments.bytes = initial.segments.bytes,
        name::SEGMENT_MS => segments.age = initial.segments.age,
        name::DIRTY_RATIO => compaction.dirty_ratio_min = initial.compaction.dirty_ratio_min,
        name::TOMBSTONE_AGE => compaction.tombstone_age = initial.compaction.tombstone_age,
        name::COMPRESSION => settings.compression = initial.compression,
        name::LAG_MIN => compaction.lag_min = initial.compaction.lag_min,
        name::LAG_MAX => compaction.lag_max = initial.compaction.lag_max,
        _ => {}
    }
}

/// Checks settings that depend on each other.
fn check(settings: &HubSettings) -> Result<(), Refusal> {
    let refused = |reason: String| Err(Refusal::new(Code::InvalidConfig, reason));
    let compaction = &settings.compaction;
    if compaction
        .lag_max
        .is_some_and(|max| max < compaction.lag_min)
    {
        let (min, max) = (name::LAG_MIN, name::LAG_MAX);
        return refused(format!("{max} must not be smaller than {min}"));
    }
    let stored = settings.ineffective.iter();
    let bytes: usize = stored.map(|(name, value)| name.len() + value.len()).sum();
    match bytes <= STORED_BYTES_MAX {
        true => Ok(()),
        false => refused(format!(
            "the values of a topic exceed {STORED_BYTES_MAX} bytes"
        )),
    }
}

fn cleanup(value: &str) -> Option<CleanupPolicy> {
    let values = list(value);
    let has = |name: &str| values.contains(&name);
    let known = values
        .iter()
        .all(|value| matches!(*value, "delete" | "compact"));
    match (has("delete"), has("compact")) {
        _ if !known => None,
        (true, true) => Some(CleanupPolicy::CompactDelete),
        (true, false) => Some(CleanupPolicy::Delete),
        (false, true) => Some(CleanupPolicy::Compact),
        (false, false) => None,
    }
}

fn timestamp_type(value: &str) -> Option<TimestampType> {
    match value {
        "CreateTime" => Some(TimestampType::Create),
        "LogAppendTime" => Some(TimestampType::LogAppend),
        _ => None,
    }
}

pub(super) fn timestamp_type_name(kind: TimestampType) -> &'static str {
    match kind {
        TimestampType::Create => "CreateTime",
        TimestampType::LogAppend => "LogAppendTime",
    }
}

/// Every setting of a hub, by name.
pub(crate) fn all(
    settings: &HubSettings,
    defaults: &TopicDefaults,
    dynamic: &DynamicSettings,
) -> Vec<Setting> {
    let initial = initial(defaults);
    let describe = |definition: &Definition| {
        let name = definition.name;
        let default = default_of(definition, &initial, defaults);
        let own = match definition.ineffective {
            Some(_) => stored(settings, name).map(str::to_owned),
            None => own_value(settings, name, &default),
        };
        let own = own.map(|value| SettingLevel {
            name,
            value,
            source: source::TOPIC,
        });
        let default = SettingLevel {
            name: definition.synonym,
            value: default,
            source: source::DEFAULT,
        };
        let levels = own.into_iter().chain(node_levels(definition, dynamic));
        Setting {
            name,
            kind: definition.kind,
            read_only: false,
            documentation: definition.documentation,
            levels: levels.chain([default]).collect(),
        }
    };
    DEFINITIONS.iter().map(describe).collect()
}

/// The default of a setting without a value.
pub(super) fn default_of(
    definition: &Definition,
    initial: &HubSettings,
    defaults: &TopicDefaults,
) -> String {
    match definition.ineffective {
        Some(default) => default.to_owned(),
        None => {
            let default = value_of(initial, definition.name);
            default.unwrap_or_else(|| node_value(defaults, definition.name))
        }
    }
}

/// Refuses a default of a setting that no topic could have.
pub(super) fn check_default(
    definition: &Definition,
    defaults: &TopicDefaults,
    value: &str,
) -> Result<(), Refusal> {
    let initial = initial(defaults);
    let pair = std::iter::once((definition.name, Some(value)));
    let checked = read(initial.clone(), &initial, pair).and_then(|settings| Ok(settings.check()?));
    checked.map_err(|refusal| Refusal::new(Code::InvalidRequest, refusal.reason))
}

/// The value of a setting that has an effect, if the hub has it of its own.
fn own_value(settings: &HubSettings, name: &str, default: &str) -> Option<String> {
    let value = value_of(settings, name);
    match settings.origins.get(name) {
        Some(SettingOrigin::Hub) => value,
        Some(SettingOrigin::Node { .. }) => None,
        None => value.filter(|value| value != default),
    }
}

/// The defaults that were set for the node and for every node.
fn node_levels(definition: &Definition, dynamic: &DynamicSettings) -> Vec<SettingLevel> {
    let owners = [
        (SettingOwner::Broker, source::DYNAMIC_NODE),
        (SettingOwner::EveryBroker, source::DYNAMIC_EVERY_NODE),
    ];
    let levels = owners.iter().filter_map(|(owner, source)| {
        Some(SettingLevel {
            name: definition.synonym,
            value: dynamic.value(owner, definition.synonym)?.to_owned(),
            source: *source,
        })
    });
    levels.collect()
}

/// The settings of a hub with the defaults that were set for the node, for those that it does not have of its own.
pub(crate) fn with_defaults(mut settings: HubSettings, dynamic: &DynamicSettings) -> HubSettings {
    for name in effective() {
        let Some(definition) = definition(name) else {
            continue;
        };
        let default = dynamic.of_broker(definition.synonym);
        let before = match settings.origins.get(name) {
            Some(SettingOrigin::Hub) => continue,
            Some(SettingOrigin::Node { before }) => before.clone(),
            None if default.is_none() || is_set(&settings, name) => continue,
            None => value_of(&settings, name),
        };
        // It was checked when it was set.
        let is_taken = default.is_some_and(|value| set(&mut settings, definition, value).is_ok());
        if is_taken {
            let origin = SettingOrigin::Node { before };
            settings.origins.insert(name.to_owned(), origin);
            continue;
        }
        settings.origins.remove(name);
        match before {
            Some(value) => {
                // It was the value of the hub.
                let _ = set(&mut settings, definition, &value);
            }
            None => reset(&mut settings, name, &HubSettings::default()),
        }
    }
    settings
}

/// Whether a value that nobody is known to have set is neither the default of Kafka's topics nor that of other hubs.
fn is_set(settings: &HubSettings, name: &str) -> bool {
    let kinds = [TimestampType::Create, TimestampType::LogAppend];
    let kafka = kinds.map(|timestamp_type| {
        let defaults = TopicDefaults {
            timestamp_type,
            ..TopicDefaults::default()
        };
        initial(&defaults)
    });
    let value = value_of(settings, name);
    let mut defaults = kafka.into_iter().chain([HubSettings::default()]);
    defaults.all(|default| value_of(&default, name) != value)
}

/// The settings that have an effect, by Kafka's names. `None`: the node decides.
pub(crate) fn values(settings: &HubSettings) -> Vec<(&'static str, Option<String>)> {
    effective()
        .map(|name| (name, value_of(settings, name)))
        .collect()
}

/// Settings whose default on a Kafka cluster may differ from that of a hub.
pub(crate) const ALWAYS_EXPLICIT: [&str; 6] = [
    name::CLEANUP,
    name::RETENTION_MS,
    name::RETENTION_BYTES,
    name::BATCH_BYTES_MAX,
    name::TIMESTAMP_TYPE,
    name::DIRTY_RATIO,
];

/// The names of the settings that have an effect.
pub(crate) fn effective() -> impl Iterator<Item = &'static str> {
    let definitions = DEFINITIONS.iter();
    let effective = definitions.filter(|definition| definition.ineffective.is_none());
    effective.map(|definition| definition.name)
}

/// The value of a setting that has an effect. `None`: the node decides.
fn value_of(settings: &HubSettings, name: &str) -> Option<String> {
    let unlimited = |limit: Option<u64>| limit.map_or("-1".to_owned(), |limit| limit.to_string());
    let time = |time: Duration| time.as_millis().to_string();
    let limit = |limit: Option<Duration>| time(limit.unwrap_or(FOREVER));
    let (timestamps, compaction) = (&settings.timestamps, &settings.compaction);
    Some(match name {
        name::CLEANUP => match settings.cleanup {
            CleanupPolicy::Delete => "delete".into(),
            CleanupPolicy::Compact => "compact".into(),
            CleanupPolicy::CompactDelete => "compact,delete".into(),
        },
        name::RETENTION_MS => settings.retention.map_or("-1".into(), time),
        name::RETENTION_BYTES => unlimited(settings.retention_bytes),
        name::BATCH_BYTES_MAX => settings.batch_bytes_max.to_string(),
        name::TIMESTAMP_TYPE => timestamp_type_name(timestamps.kind).into(),
        name::TIMESTAMP_BEFORE => limit(timestamps.before_max),
        name::TIMESTAMP_AFTER => limit(timestamps.after_max),
        name::SEGMENT_BYTES => settings.segments.bytes?.to_string(),
        name::SEGMENT_MS => time(settings.segments.age?),
        name::DIRTY_RATIO => (f64::from(compaction.dirty_ratio_min) / MILLION).to_string(),
        name::TOMBSTONE_AGE => time(compaction.tombstone_age?),
        name::COMPRESSION => {
            let found = COMPRESSION
                .iter()
                .find(|(_, codec)| *codec == settings.compression);
            found?.0.into()
        }
        name::LAG_MIN => time(compaction.lag_min),
        name::LAG_MAX => limit(compaction.lag_max),
        _ => return None,
    })
}

/// The value of the node, for topics that set none.
fn node_value(defaults: &TopicDefaults, name: &str) -> String {
    match name {
        name::SEGMENT_BYTES => defaults.segment_bytes.to_string(),
        name::SEGMENT_MS => defaults.segment_age.as_millis().to_string(),
        name::TOMBSTONE_AGE => defaults.tombstone_age.as_millis().to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
