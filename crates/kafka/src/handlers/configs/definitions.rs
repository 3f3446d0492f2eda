//! The topic settings of Kafka: their types, defaults, names on a broker and documentation.

/// A topic setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition {
    pub name: &'static str,
    /// One of [`kind`].
    pub kind: i8,
    /// The setting of a broker that it overrides; empty if there is none.
    pub synonym: &'static str,
    pub documentation: &'static str,
    /// The default of a setting that has no effect. `None`: it has an effect, and the hub has its value.
    pub ineffective: Option<&'static str>,
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

pub(crate) mod name {
    pub(crate) const CLEANUP: &str = "cleanup.policy";
    pub(crate) const TOMBSTONE_AGE: &str = "delete.retention.ms";
    pub(crate) const LAG_MAX: &str = "max.compaction.lag.ms";
    pub(crate) const BATCH_BYTES_MAX: &str = "max.message.bytes";
    pub(crate) const TIMESTAMP_AFTER: &str = "message.timestamp.after.max.ms";
    pub(crate) const TIMESTAMP_BEFORE: &str = "message.timestamp.before.max.ms";
    pub(crate) const TIMESTAMP_TYPE: &str = "message.timestamp.type";
    pub(crate) const DIRTY_RATIO: &str = "min.cleanable.dirty.ratio";
    pub(crate) const LAG_MIN: &str = "min.compaction.lag.ms";
    pub(crate) const RETENTION_BYTES: &str = "retention.bytes";
    pub(crate) const RETENTION_MS: &str = "retention.ms";
    pub(crate) const SEGMENT_BYTES: &str = "segment.bytes";
    pub(crate) const SEGMENT_MS: &str = "segment.ms";
    pub(crate) const COMPRESSION: &str = "compression.type";
    pub(crate) const REMOTE_STORAGE: &str = "remote.storage.enable";
}

macro_rules! effective {
    ($name:expr, $kind:ident, $synonym:literal, $documentation:literal) => {
        Definition {
            name: $name,
            kind: kind::$kind,
            synonym: $synonym,
            documentation: $documentation,
            ineffective: None,
        }
    };
}

macro_rules! ineffective {
    ($name:expr, $kind:ident = $default:literal, $synonym:literal) => {
        Definition {
            name: $name,
            kind: kind::$kind,
            synonym: $synonym,
            documentation: "Stored without effect.",
            ineffective: Some($default),
        }
    };
}

/// All topic settings, by name.
pub(crate) const DEFINITIONS: [Definition; 36] = [
    effective!(
        name::CLEANUP,
        LIST,
        "log.cleanup.policy",
        "How old records are removed: `delete` by age and size, `compact` to the last of each key, or both."
    ),
    ineffective!(
        "compression.gzip.level",
        INT = "-1",
        "compression.gzip.level"
    ),
    ineffective!("compression.lz4.level", INT = "9", "compression.lz4.level"),
    effective!(
        name::COMPRESSION,
        STRING,
        "compression.type",
        "The compression of stored batches; `producer` keeps that of the producer."
    ),
    ineffective!(
        "compression.zstd.level",
        INT = "3",
        "compression.zstd.level"
    ),
    effective!(
        name::TOMBSTONE_AGE,
        LONG,
        "log.cleaner.delete.retention.ms",
        "How long a compacted topic keeps records without a value, from their first compaction on."
    ),
    ineffective!(
        "file.delete.delay.ms",
        LONG = "0",
        "log.segment.delete.delay.ms"
    ),
    ineffective!("flush.messages", LONG = "1", "log.flush.interval.messages"),
    ineffective!("flush.ms", LONG = "0", "log.flush.interval.ms"),
    ineffective!("follower.replication.throttled.replicas", LIST = "", ""),
    ineffective!(
        "index.interval.bytes",
        INT = "65536",
        "log.index.interval.bytes"
    ),
    ineffective!("leader.replication.throttled.replicas", LIST = "", ""),
    ineffective!(
        "local.retention.bytes",
        LONG = "-2",
        "log.local.retention.bytes"
    ),
    ineffective!("local.retention.ms", LONG = "-2", "log.local.retention.ms"),
    effective!(
        name::LAG_MAX,
        LONG,
        "log.cleaner.max.compaction.lag.ms",
        "A record that is this old is compacted, whatever the ratio."
    ),
    effective!(
        name::BATCH_BYTES_MAX,
        INT,
        "message.max.bytes",
        "The largest batch that is accepted."
    ),
    ineffective!(
        "message.downconversion.enable",
        BOOLEAN = "false",
        "log.message.downconversion.enable"
    ),
    ineffective!(
        "message.format.version",
        STRING = "3.0-IV1",
        "log.message.format.version"
    ),
    effective!(
        name::TIMESTAMP_AFTER,
        LONG,
        "log.message.timestamp.after.max.ms",
        "With CreateTime: how far a timestamp may be after the time of the append."
    ),
    effective!(
        name::TIMESTAMP_BEFORE,
        LONG,
        "log.message.timestamp.before.max.ms",
        "With CreateTime: how far a timestamp may be before the time of the append."
    ),
    ineffective!(
        "message.timestamp.difference.max.ms",
        LONG = "9223372036854775807",
        "log.message.timestamp.difference.max.ms"
    ),
    effective!(
        name::TIMESTAMP_TYPE,
        STRING,
        "log.message.timestamp.type",
        "Whether consumers see the producers' timestamps (CreateTime) or the time of the append (LogAppendTime)."
    ),
    effective!(
        name::DIRTY_RATIO,
        DOUBLE,
        "log.cleaner.min.cleanable.ratio",
        "The share of bytes not compacted yet from which on compaction runs."
    ),
    effective!(
        name::LAG_MIN,
        LONG,
        "log.cleaner.min.compaction.lag.ms",
        "Records are not compacted before this age."
    ),
    ineffective!("min.insync.replicas", INT = "1", "min.insync.replicas"),
    ineffective!("preallocate", BOOLEAN = "false", "log.preallocate"),
    ineffective!("remote.log.copy.disable", BOOLEAN = "false", ""),
    ineffective!("remote.log.delete.on.disable", BOOLEAN = "false", ""),
    ineffective!(name::REMOTE_STORAGE, BOOLEAN = "false", ""),
    effective!(
        name::RETENTION_BYTES,
        LONG,
        "log.retention.bytes",
        "The size from which on old segments of a partition are removed; -1 for no limit."
    ),
    effective!(
        name::RETENTION_MS,
        LONG,
        "log.retention.ms",
        "How long records are kept, from their append on; -1 for ever."
    ),
    effective!(
        name::SEGMENT_BYTES,
        INT,
        "log.segment.bytes",
        "The size at which a segment is closed."
    ),
    ineffective!(
        "segment.index.bytes",
        INT = "10485760",
        "log.index.size.max.bytes"
    ),
    ineffective!("segment.jitter.ms", LONG = "0", "log.roll.jitter.ms"),
    effective!(
        name::SEGMENT_MS,
        LONG,
        "log.roll.ms",
        "The age of its first record at which a segment is closed."
    ),
    ineffective!(
        "unclean.leader.election.enable",
        BOOLEAN = "false",
        "unclean.leader.election.enable"
    ),
];

pub(crate) fn definition(name: &str) -> Option<&'static Definition> {
    DEFINITIONS
        .iter()
        .find(|definition| definition.name == name)
}
