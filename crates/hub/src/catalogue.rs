//! The file that lists the hubs.
//!
//! A line with a checksum, then readable JSON. It is replaced atomically.

use std::io;
use std::path::Path;
use std::time::Duration;

use highwater_env::Disk;
use highwater_env::disk::Access;
use highwater_log::{CleanupPolicy, HubId, HubInfo, HubName, HubSettings};
use serde::{Deserialize, Serialize};

pub(crate) const FILE: &str = "catalogue.json";
const TEMPORARY: &str = "catalogue.json.tmp";
const TITLE: &str = "highwater catalogue ";
const VERSION: &str = "1";

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
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CleanupName {
    Delete,
    Compact,
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

/// `None` if there is no file; the inner error says why the file is invalid.
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
    if version != VERSION {
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
        let millis = |retention: Duration| u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        CatalogueEntry {
            name: info.name.to_string(),
            id: info.id.to_string(),
            partitions: info.partitions,
            created_ms: info.created_ms,
            cleanup: match settings.cleanup {
                CleanupPolicy::Delete => CleanupName::Delete,
                CleanupPolicy::Compact => CleanupName::Compact,
            },
            retention_ms: settings.retention.map(millis),
            retention_bytes: settings.retention_bytes,
            batch_bytes_max: settings.batch_bytes_max,
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
                },
                retention: self.retention_ms.map(Duration::from_millis),
                retention_bytes: self.retention_bytes,
                batch_bytes_max: self.batch_bytes_max,
            },
            created_ms: self.created_ms,
        })
    }
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
                cleanup: CleanupPolicy::Compact,
                retention: None,
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
}
