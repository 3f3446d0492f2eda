//! The file that lists the hubs.
//!
//! A line with a checksum, then readable JSON. It is replaced atomically.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use highwater_env::Disk;
use highwater_env::disk::Access;
use highwater_log::batch::{Codec, TimestampType};
use highwater_log::{
    CleanupPolicy, CompactionSettings, HubId, HubInfo, HubName, HubSettings, SegmentSettings,
    SettingOrigin, TimestampSettings,
};
use serde::{Deserialize, Serialize};

pub(crate) const FILE: &str = "catalogue.json";
const TEMPORARY: &str = "catalogue.json.tmp";
const TITLE: &str = "highwater catalogue ";
const VERSION: &str = "2";
/// Versions that are read. Entries of version 1 have no settings of timestamps, segments and compaction.
const VERSIONS: [&str; 2] = ["1", VERSION];

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    hubs: Vec<CatalogueEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogueEntry {
    name: String,
    id: String,
    partitions: u32,
    created_ms: i64,
    cleanup: CleanupName,
    retention_ms: Option<u64>,
    retention_bytes: Option<u64>,
    batch_bytes_max: u32,
    #[serde(default)]
    timestamps: TimestampEntry,
    #[serde(default)]
    segments: SegmentEntry,
    #[serde(default)]
    compaction: CompactionEntry,
    compression: Option<CodecName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ineffective: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    origins: BTreeMap<String, OriginEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum OriginEntry {
    Hub,
    Node { before: Option<String> },
}

impl OriginEntry {
    fn of(origin: &SettingOrigin) -> OriginEntry {
        match origin {
            SettingOrigin::Hub => OriginEntry::Hub,
            SettingOrigin::Node { before } => OriginEntry::Node {
                before: before.clone(),
            },
        }
    }

    fn into_origin(self) -> SettingOrigin {
        match self {
            OriginEntry::Hub => SettingOrigin::Hub,
            OriginEntry::Node { before } => SettingOrigin::Node { before },
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimestampEntry {
    kind: TimestampName,
    before_max_ms: Option<u64>,
    after_max_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TimestampName {
    Create,
    Append,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CodecName {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Names and codecs.
const CODECS: [(CodecName, Codec); 5] = [
    (CodecName::None, Codec::None),
    (CodecName::Gzip, Codec::Gzip),
    (CodecName::Snappy, Codec::Snappy),
    (CodecName::Lz4, Codec::Lz4),
    (CodecName::Zstd, Codec::Zstd),
];

impl CodecName {
    fn of(codec: Codec) -> Option<CodecName> {
        let found = CODECS.iter().find(|(_, other)| *other == codec);
        found.map(|(name, _)| *name)
    }

    fn codec(self) -> Option<Codec> {
        let found = CODECS.iter().find(|(name, _)| *name == self);
        found.map(|(_, codec)| *codec)
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentEntry {
    bytes: Option<u64>,
    age_ms: Option<u64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompactionEntry {
    dirty_ratio_min: u32,
    tombstone_age_ms: Option<u64>,
    lag_min_ms: u64,
    lag_max_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CleanupName {
    Delete,
    Compact,
    #[serde(rename = "compact,delete")]
    CompactDelete,
}

/// Why a catalogue cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CatalogueError {
    Version(String),
    Damaged(String),
}

impl<E: ToString> From<E> for CatalogueError {
    fn from(reason: E) -> CatalogueError {
        CatalogueError::Damaged(reason.to_string())
    }
}

/// `None` if there is no file; the inner error is the reason.
pub(crate) fn read(
    disk: &dyn Disk,
    folder: &Path,
) -> io::Result<Option<Result<Vec<HubInfo>, CatalogueError>>> {
    let file = match disk.open(&folder.join(FILE), Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    Ok(Some(parse(&file.read_all()?)))
}

fn parse(bytes: &[u8]) -> Result<Vec<HubInfo>, CatalogueError> {
    let text = std::str::from_utf8(bytes)?;
    let title = text.strip_prefix(TITLE);
    let (version, crc, body) = title
        .and_then(|text| text.split_once('\n'))
        .and_then(|(title, body)| {
            let (version, crc) = title.split_once(" crc32c=")?;
            Some((version, crc, body))
        })
        .ok_or("it does not begin with the title of a catalogue")?;
    if !VERSIONS.contains(&version) {
        return Err(CatalogueError::Version(version.to_owned()));
    }
    if crc != format!("{:08x}", crc32c::crc32c(body.as_bytes())) {
        return Err("its checksum is wrong".into());
    }
    let catalogue: Catalogue = serde_json::from_str(body)?;
    let hubs = catalogue.hubs.into_iter().map(CatalogueEntry::into_info);
    Ok(hubs.collect::<Result<_, String>>()?)
}

/// Durable on return.
pub(crate) fn write<'a>(
    disk: &dyn Disk,
    folder: &Path,
    hubs: impl Iterator<Item = &'a HubInfo>,
) -> io::Result<()> {
    let hubs = hubs.map(CatalogueEntry::of).collect();
    let mut body = serde_json::to_string_pretty(&Catalogue { hubs })?;
    body.push('\n');
    let checksum = crc32c::crc32c(body.as_bytes());
    let title = format!("{TITLE}{VERSION} crc32c={checksum:08x}\n");
    let temporary = folder.join(TEMPORARY);
    let file = disk.open(&temporary, Access::Create)?;
    file.set_len(0)?;
    file.write_all_at(&[title.as_bytes(), body.as_bytes()], 0)?;
    file.sync_all()?;
    disk.rename(&temporary, &folder.join(FILE))?;
    disk.sync_folder(folder)
}

impl CatalogueEntry {
    fn of(info: &HubInfo) -> CatalogueEntry {
        let settings = &info.settings;
        CatalogueEntry {
            name: info.name.to_string(),
            id: info.id.to_string(),
            partitions: info.partitions,
            created_ms: info.created_ms,
            cleanup: match settings.cleanup {
                CleanupPolicy::Delete => CleanupName::Delete,
                CleanupPolicy::Compact => CleanupName::Compact,
                CleanupPolicy::CompactDelete => CleanupName::CompactDelete,
            },
            retention_ms: settings.retention.map(millis),
            retention_bytes: settings.retention_bytes,
            batch_bytes_max: settings.batch_bytes_max,
            timestamps: TimestampEntry::of(&settings.timestamps),
            segments: SegmentEntry {
                bytes: settings.segments.bytes,
                age_ms: settings.segments.age.map(millis),
            },
            compaction: CompactionEntry {
                dirty_ratio_min: settings.compaction.dirty_ratio_min,
                tombstone_age_ms: settings.compaction.tombstone_age.map(millis),
                lag_min_ms: millis(settings.compaction.lag_min),
                lag_max_ms: settings.compaction.lag_max.map(millis),
            },
            compression: settings.compression.and_then(CodecName::of),
            ineffective: settings.ineffective.clone(),
            origins: (settings.origins.iter())
                .map(|(name, origin)| (name.clone(), OriginEntry::of(origin)))
                .collect(),
        }
    }

    fn into_info(self) -> Result<HubInfo, String> {
        let id = u128::from_str_radix(&self.id, 16).map_err(|error| error.to_string())?;
        Ok(HubInfo {
            name: HubName::new(&self.name).map_err(|error| error.to_string())?,
            id: HubId(id.to_be_bytes()),
            partitions: self.partitions,
            settings: HubSettings {
                cleanup: match self.cleanup {
                    CleanupName::Delete => CleanupPolicy::Delete,
                    CleanupName::Compact => CleanupPolicy::Compact,
                    CleanupName::CompactDelete => CleanupPolicy::CompactDelete,
                },
                retention: self.retention_ms.map(Duration::from_millis),
                retention_bytes: self.retention_bytes,
                batch_bytes_max: self.batch_bytes_max,
                timestamps: self.timestamps.into_settings(),
                segments: SegmentSettings {
                    bytes: self.segments.bytes,
                    age: self.segments.age_ms.map(Duration::from_millis),
                },
                compaction: self.compaction.into_settings(),
                compression: self.compression.and_then(CodecName::codec),
                ineffective: self.ineffective,
                origins: (self.origins.into_iter())
                    .map(|(name, origin)| (name, origin.into_origin()))
                    .collect(),
            },
            created_ms: self.created_ms,
        })
    }
}

impl Default for TimestampEntry {
    fn default() -> TimestampEntry {
        TimestampEntry::of(&TimestampSettings::default())
    }
}

impl TimestampEntry {
    fn of(settings: &TimestampSettings) -> TimestampEntry {
        TimestampEntry {
            kind: match settings.kind {
                TimestampType::Create => TimestampName::Create,
                TimestampType::LogAppend => TimestampName::Append,
            },
            before_max_ms: settings.before_max.map(millis),
            after_max_ms: settings.after_max.map(millis),
        }
    }

    fn into_settings(self) -> TimestampSettings {
        TimestampSettings {
            kind: match self.kind {
                TimestampName::Create => TimestampType::Create,
                TimestampName::Append => TimestampType::LogAppend,
            },
            before_max: self.before_max_ms.map(Duration::from_millis),
            after_max: self.after_max_ms.map(Duration::from_millis),
        }
    }
}

impl CompactionEntry {
    fn into_settings(self) -> CompactionSettings {
        CompactionSettings {
            dirty_ratio_min: self.dirty_ratio_min,
            tombstone_age: self.tombstone_age_ms.map(Duration::from_millis),
            lag_min: Duration::from_millis(self.lag_min_ms),
            lag_max: self.lag_max_ms.map(Duration::from_millis),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use highwater_env::SimDisk;

    use super::*;

    fn info(name: &str) -> HubInfo {
        HubInfo {
            name: HubName::new(name).unwrap(),
            id: HubId([7; 16]),
            partitions: 3,
            settings: HubSettings {
                cleanup: CleanupPolicy::CompactDelete,
                retention: None,
                timestamps: TimestampSettings {
                    kind: TimestampType::Create,
                    before_max: Some(Duration::from_millis(7)),
                    after_max: None,
                },
                segments: SegmentSettings {
                    bytes: Some(2_000_000),
                    age: Some(Duration::from_secs(5)),
                },
                compaction: CompactionSettings {
                    dirty_ratio_min: 250_000,
                    tombstone_age: Some(Duration::from_secs(9)),
                    lag_min: Duration::from_millis(3),
                    lag_max: Some(Duration::from_secs(60)),
                },
                compression: Some(Codec::None),
                ineffective: [("flush.ms".to_owned(), "9".to_owned())].into(),
                origins: [
                    ("cleanup.policy".to_owned(), SettingOrigin::Hub),
                    (
                        "segment.ms".to_owned(),
                        SettingOrigin::Node { before: None },
                    ),
                    (
                        "retention.ms".to_owned(),
                        SettingOrigin::Node {
                            before: Some("5".to_owned()),
                        },
                    ),
                ]
                .into(),
                ..HubSettings::default()
            },
            created_ms: -5,
        }
    }

    #[test]
    fn a_catalogue_is_read_back_and_a_changed_byte_is_detected() {
        let disk = SimDisk::new(1);
        let folder = Path::new("data");
        disk.create_folder(folder).unwrap();
        assert!(read(&disk, folder).unwrap().is_none());
        let hubs = [info("a"), info("b")];
        write(&disk, folder, hubs.iter()).unwrap();
        assert_eq!(read(&disk, folder).unwrap(), Some(Ok(hubs.to_vec())));
        let path = folder.join(FILE);
        for position in 0..disk.contents(&path).unwrap().len() as u64 {
            disk.flip(&path, position, 4).unwrap();
            assert!(read(&disk, folder).unwrap().unwrap().is_err(), "{position}");
            disk.flip(&path, position, 4).unwrap();
        }
    }

    #[test]
    fn an_entry_of_the_first_version_has_the_defaults() {
        let body = r#"{"hubs":[{"name":"a","id":"07","partitions":1,"created_ms":5,"cleanup":"delete",
            "retention_ms":604800000,"retention_bytes":null,"batch_bytes_max":1048588}]}"#;
        let text = format!(
            "{TITLE}1 crc32c={:08x}\n{body}",
            crc32c::crc32c(body.as_bytes())
        );
        let hubs = parse(text.as_bytes()).unwrap();
        assert_eq!(hubs[0].settings, HubSettings::default());
        let later = text.replacen("catalogue 1", "catalogue 3", 1);
        let refused = parse(later.as_bytes());
        assert_eq!(refused, Err(CatalogueError::Version("3".into())));
    }
}
