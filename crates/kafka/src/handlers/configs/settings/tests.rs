//! Tests of the settings under Kafka's names.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn base() -> HubSettings {
    initial(&TopicDefaults::default())
}

fn read_all(pairs: &[(&str, Option<&str>)]) -> Result<HubSettings, String> {
    let read = read(base(), &base(), pairs.iter().copied());
    read.map_err(|refusal| refusal.reason)
}

fn read_one(name: &str, value: &str) -> Result<HubSettings, String> {
    read_all(&[(name, Some(value))])
}

fn shown(settings: &HubSettings, name: &str) -> (String, i8) {
    let all = all(
        settings,
        &TopicDefaults::default(),
        &DynamicSettings::default(),
    );
    let setting = all.into_iter().find(|setting| setting.name == name);
    let setting = setting.unwrap();
    (setting.value().to_owned(), setting.source())
}

/// A value of each setting that is not its default.
const CHANGED: [(&str, &str); 36] = [
    ("cleanup.policy", "compact,delete"),
    ("compression.gzip.level", "5"),
    ("compression.lz4.level", "5"),
    ("compression.type", "zstd"),
    ("compression.zstd.level", "5"),
    ("delete.retention.ms", "5"),
    ("file.delete.delay.ms", "5"),
    ("flush.messages", "5"),
    ("flush.ms", "5"),
    ("follower.replication.throttled.replicas", "0:1"),
    ("index.interval.bytes", "5"),
    ("leader.replication.throttled.replicas", "*"),
    ("local.retention.bytes", "5"),
    ("local.retention.ms", "5"),
    ("max.compaction.lag.ms", "50"),
    ("max.message.bytes", "5000"),
    ("message.downconversion.enable", "true"),
    ("message.format.version", "2.8-IV1"),
    ("message.timestamp.after.max.ms", "5"),
    ("message.timestamp.before.max.ms", "5"),
    ("message.timestamp.difference.max.ms", "5"),
    ("message.timestamp.type", "LogAppendTime"),
    ("min.cleanable.dirty.ratio", "0.25"),
    ("min.compaction.lag.ms", "5"),
    ("min.insync.replicas", "2"),
    ("preallocate", "true"),
    ("remote.log.copy.disable", "true"),
    ("remote.log.delete.on.disable", "true"),
    ("remote.storage.enable", "false"),
    ("retention.bytes", "5"),
    ("retention.ms", "5"),
    ("segment.bytes", "1048576"),
    ("segment.index.bytes", "5"),
    ("segment.jitter.ms", "5"),
    ("segment.ms", "5"),
    ("unclean.leader.election.enable", "true"),
];

// proves K4
#[test]
fn every_setting_is_stored_shown_and_reset() {
    let names: Vec<&str> = DEFINITIONS.iter().map(|one| one.name).collect();
    assert_eq!(names, CHANGED.map(|(name, _)| name));
    assert!(names.is_sorted());
    let pairs: Vec<_> = CHANGED
        .iter()
        .map(|(name, value)| (*name, Some(*value)))
        .collect();
    let settings = read_all(&pairs).unwrap();
    for (name, value) in CHANGED {
        assert_eq!(
            shown(&settings, name),
            (value.to_owned(), source::TOPIC),
            "{name}"
        );
        let reset = read(settings.clone(), &base(), [(name, None)].into_iter());
        let reset = reset.map_err(|refusal| refusal.reason).unwrap();
        assert_eq!(shown(&reset, name), shown(&base(), name), "{name}");
        assert_eq!(shown(&reset, name).1, source::DEFAULT, "{name}");
    }
    let unset: Vec<_> = CHANGED.iter().map(|(name, _)| (*name, None)).collect();
    let reset = read(settings, &base(), unset.into_iter());
    assert_eq!(reset.map_err(|refusal| refusal.reason), Ok(base()));
}

#[test]
fn the_defaults_are_those_of_kafka_and_of_the_node() {
    let expected = [
        ("message.timestamp.type", "CreateTime"),
        ("message.timestamp.before.max.ms", "9223372036854775807"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("cleanup.policy", "delete"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("delete.retention.ms", "86400000"),
        ("segment.bytes", "67108864"),
        ("segment.ms", "86400000"),
        ("max.compaction.lag.ms", "9223372036854775807"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "-1"),
    ];
    for (name, value) in expected {
        assert_eq!(
            shown(&base(), name),
            (value.to_owned(), source::DEFAULT),
            "{name}"
        );
    }
}

#[test]
fn an_unknown_setting_and_a_wrong_value_are_named() {
    assert!(
        read_one("retention.hours", "1")
            .unwrap_err()
            .contains("retention.hours")
    );
    for (name, value) in [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "compact,shred"),
        ("cleanup.policy", ""),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("segment.bytes", "0"),
        ("segment.ms", "0"),
        ("flush.ms", "often"),
        ("preallocate", "yes"),
        ("compression.type", "brotli"),
        ("remote.storage.enable", "true"),
        ("max.compaction.lag.ms", "0"),
    ] {
        let reason = read_one(name, value).unwrap_err();
        assert!(
            reason.contains(name) && reason.contains(&format!("`{value}`")),
            "{reason}"
        );
    }
    let lags = [
        ("min.compaction.lag.ms", Some("9")),
        ("max.compaction.lag.ms", Some("8")),
    ];
    assert!(read_all(&lags).is_err());
}

#[test]
fn values_are_added_to_lists_and_removed_from_them() {
    let change = |settings: HubSettings, name, value, append| {
        let changed = change_list(settings, &base(), (name, Some(value)), append);
        changed.map_err(|refusal| refusal.reason)
    };
    let both = change(base(), "cleanup.policy", "compact", true).unwrap();
    assert_eq!(both.cleanup, CleanupPolicy::CompactDelete);
    let again = change(both.clone(), "cleanup.policy", "compact", true).unwrap();
    assert_eq!(again, both);
    let compacted = change(both, "cleanup.policy", "delete", false).unwrap();
    assert_eq!(compacted.cleanup, CleanupPolicy::Compact);
    assert!(change(compacted, "cleanup.policy", "compact", false).is_err());
    let throttled = "leader.replication.throttled.replicas";
    let two = change(base(), throttled, "0:1,1:1", true).unwrap();
    assert_eq!(shown(&two, throttled).0, "0:1,1:1");
    let one = change(two, throttled, "0:1", false).unwrap();
    assert_eq!(shown(&one, throttled).0, "1:1");
    assert!(
        change(base(), "retention.ms", "5", true)
            .unwrap_err()
            .contains("retention.ms")
    );
    assert!(change(base(), "nothing", "5", true).is_err());
}

#[test]
fn stored_values_are_bounded() {
    let throttled = "leader.replication.throttled.replicas";
    assert!(read_one(throttled, &"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
    assert!(read_one(throttled, &"x".repeat(TEXT_BYTES_MAX)).is_ok());
}

/// Defaults that were set for the node, by the names of settings of topics.
fn node_defaults(pairs: &[(&str, &str)]) -> DynamicSettings {
    let values = pairs.iter().map(|(name, value)| {
        let synonym = definition(name).unwrap().synonym;
        (synonym.to_owned(), (*value).to_owned())
    });
    DynamicSettings::new([(SettingOwner::EveryBroker, values.collect())])
}

#[test]
fn a_hub_over_http_and_one_of_before_keep_what_differs_from_the_default() {
    let day = Duration::from_secs(24 * 3600);
    let plain = HubSettings::default();
    let short = HubSettings {
        retention: Some(day),
        ..HubSettings::default()
    };
    let defaults = [
        ("retention.ms", "5"),
        ("message.timestamp.type", "CreateTime"),
    ];
    let defaults = node_defaults(&defaults);
    let taken = with_defaults(plain.clone(), &defaults);
    assert_eq!(taken.retention, Some(Duration::from_millis(5)));
    assert_eq!(taken.timestamps.kind, TimestampType::Create);
    assert_eq!(with_defaults(short, &defaults).retention, Some(day));
    let given_back = with_defaults(taken, &DynamicSettings::default());
    assert_eq!(given_back, plain, "with its own kind of timestamps");
    let mut explicit = plain;
    explicit.set_for_hub(["retention.ms"]);
    let kept = with_defaults(explicit, &defaults).retention;
    assert_eq!(kept, HubSettings::default().retention);
}

#[test]
fn a_default_is_shown_with_its_source_and_behind_the_value_of_the_topic() {
    let defaults = node_defaults(&[("retention.ms", "5"), ("flush.ms", "7")]);
    let shown = |settings: &HubSettings, name: &str| {
        let all = all(settings, &TopicDefaults::default(), &defaults);
        let setting = all.into_iter().find(|one| one.name == name).unwrap();
        let levels = setting.levels.into_iter();
        levels
            .map(|level| (level.name, level.value, level.source))
            .collect::<Vec<_>>()
    };
    let level = |name, value: &str, source| (name, value.to_owned(), source);
    let every = level("log.retention.ms", "5", source::DYNAMIC_EVERY_NODE);
    let default = level("log.retention.ms", "604800000", source::DEFAULT);
    let taken = with_defaults(base(), &defaults);
    let expected = [every.clone(), default.clone()];
    assert_eq!(shown(&taken, "retention.ms"), expected);
    let pair = ("retention.ms", Some("604800000"));
    let own = change(taken, &base(), [pair].into_iter());
    let own = own.map_err(|refusal| refusal.reason).unwrap();
    let topic = level("retention.ms", "604800000", source::TOPIC);
    assert_eq!(shown(&own, "retention.ms"), [topic, every, default]);
    assert_eq!(shown(&base(), "flush.ms")[0].1, "7", "without effect");
}

#[test]
fn a_default_that_no_topic_could_have_is_refused() {
    let refused = |name: &str, value: &str| {
        let definition = definition(name).unwrap();
        check_default(definition, &TopicDefaults::default(), value).is_err()
    };
    assert!(refused("cleanup.policy", "shred"));
    assert!(refused("segment.bytes", "100"));
    assert!(refused("max.message.bytes", "100"));
    assert!(refused("flush.ms", "often"));
    assert!(!refused("segment.bytes", "1048576"));
}

/// Changes of settings and of defaults, by number in `CHANGED`. A default is set or removed, a setting set or reset.
#[derive(Clone, Debug)]
struct Step {
    of_node: bool,
    at: usize,
    is_set: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<bool>(), 0..CHANGED.len(), any::<bool>());
    let step = step.prop_map(|(of_node, at, is_set)| Step {
        of_node,
        at,
        is_set,
    });
    prop::collection::vec(step, 0..40)
}

proptest! {
    /// The oracle: a setting has its own value, else the default of the node, else the built-in one.
    // proves K4
    #[test]
    fn a_topic_has_its_own_settings_and_the_defaults_of_the_node(steps in steps()) {
        let mut settings = base();
        let mut own = BTreeSet::new();
        let mut of_node = BTreeMap::new();
        for step in steps {
            let (name, value) = CHANGED[step.at];
            let definition = definition(name).unwrap();
            if definition.ineffective.is_some() {
                continue;
            }
            if step.of_node {
                // Another value than that of the topic.
                let value = match definition.kind {
                    kind::INT | kind::LONG => "1048577",
                    kind::DOUBLE => "0.75",
                    _ => value,
                };
                match step.is_set {
                    true => of_node.insert(name, value),
                    false => of_node.remove(name),
                };
            } else {
                let value = Some(value).filter(|_| step.is_set);
                let changed = change(settings.clone(), &base(), [(name, value)].into_iter());
                let Ok(changed) = changed else {
                    continue;
                };
                settings = changed;
                match step.is_set {
                    true => own.insert(name),
                    false => own.remove(name),
                };
            }
            let pairs: Vec<_> = of_node.iter().map(|(name, value)| (*name, *value)).collect();
            let defaults = node_defaults(&pairs);
            settings = with_defaults(settings, &defaults);
            prop_assert_eq!(&with_defaults(settings.clone(), &defaults), &settings);
            for (name, value) in CHANGED {
                let is_effective = effective().any(|effective| effective == name);
                let built_in = value_of(&base(), name);
                let expected = match own.contains(name) {
                    true => Some(value.to_owned()),
                    false => of_node.get(name).map(|value| (*value).to_owned()).or(built_in),
                };
                if is_effective {
                    prop_assert_eq!(value_of(&settings, name), expected, "{}", name);
                }
            }
        }
    }

    // proves K4
    #[test]
    fn what_is_described_can_be_set_again(changes in prop::collection::vec((0..33usize, any::<u32>()), 0..12)) {
        let mut settings = base();
        for (at, number) in changes {
            let definition = &DEFINITIONS[at];
            let text = match definition.kind {
                kind::INT | kind::LONG => number.to_string(),
                kind::DOUBLE => (f64::from(number) / f64::from(u32::MAX)).to_string(),
                _ => CHANGED[at].1.to_owned(),
            };
            let pair = (definition.name, Some(&*text));
            settings = read(settings.clone(), &base(), [pair].into_iter()).unwrap_or(settings);
        }
        let shown = all(&settings, &TopicDefaults::default(), &DynamicSettings::default());
        let own = shown.iter().filter(|setting| setting.source() == source::TOPIC);
        let pairs = own.map(|setting| (setting.name, Some(setting.value())));
        let read = read(base(), &base(), pairs);
        prop_assert_eq!(read.map_err(|refusal| refusal.reason), Ok(settings));
    }
}
