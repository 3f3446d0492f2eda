//! The settings of one table, by the rest of their keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::Origin;
use super::super::effective_settings::Settings;

/// A table such as `[hubs.telemetry]`. Values outlive it, so that problems can be noted while they are in use.
pub(super) struct Table<'a> {
    pub(super) settings: &'a Settings,
    /// Where relative paths of the file start.
    pub(super) folder: &'a Path,
    /// The full key, such as `hubs.telemetry`; empty for the settings outside of tables.
    pub(super) path: String,
    /// Its last part.
    pub(super) name: String,
}

impl<'a> Table<'a> {
    /// The full key of a setting; with an empty name, the key of the table itself.
    pub(super) fn key(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// The tables below `list`, such as the listeners.
    pub(super) fn tables(&self, list: &str) -> Vec<Table<'a>> {
        let list = self.key(list);
        let names = self.settings.tables(&list).into_iter();
        let table = |name: String| Table {
            path: format!("{list}.{name}"),
            name,
            ..*self
        };
        names.map(table).collect()
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.settings.text(&self.key(name))
    }

    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.settings.flag(&self.key(name))
    }

    pub(super) fn address(&self, name: &str) -> Option<SocketAddr> {
        self.settings.address(&self.key(name))
    }

    pub(super) fn list(&self, name: &str) -> Option<&'a [String]> {
        self.settings.list(&self.key(name))
    }

    /// `None`: unlimited, or unset.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.settings.number(&self.key(name))
    }

    /// `None`: unlimited, or unset.
    pub(super) fn number_u32(&self, name: &str) -> Option<u32> {
        let number = self.number(name);
        number.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    pub(super) fn count(&self, name: &str) -> u32 {
        self.number_u32(name).unwrap_or(u32::MAX)
    }

    pub(super) fn bytes(&self, name: &str) -> usize {
        let bytes = self.number(name).map(usize::try_from);
        bytes.and_then(Result::ok).unwrap_or(usize::MAX)
    }

    /// `None`: forever, or unset.
    pub(super) fn time(&self, name: &str) -> Option<Duration> {
        self.settings.time(&self.key(name))
    }

    pub(super) fn duration(&self, name: &str) -> Duration {
        self.time(name).unwrap_or(Duration::MAX)
    }

    /// Relative paths in the file start at its folder, others at the working directory.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.resolve(name, self.text(name)?))
    }

    /// A path of the setting.
    pub(super) fn resolve(&self, name: &str, path: &str) -> PathBuf {
        match self.settings.origin(&self.key(name)) {
            Origin::File(_) => self.folder.join(path),
            _ => Path::new(path).to_owned(),
        }
    }
}
