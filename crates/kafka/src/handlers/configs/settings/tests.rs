//! Tests of the settings under Kafka's names.

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
    let all = all(settings, &TopicDefaults::default());
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

proptest! {
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
        let shown = all(&settings, &TopicDefaults::default());
        let own = shown.iter().filter(|setting| setting.source() == source::TOPIC);
        let pairs = own.map(|setting| (setting.name, Some(setting.value())));
        let read = read(base(), &base(), pairs);
        prop_assert_eq!(read.map_err(|refusal| refusal.reason), Ok(settings));
    }
}
