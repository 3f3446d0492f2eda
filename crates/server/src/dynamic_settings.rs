//! Settings that Kafka's administrators change while the node runs, in `kafka.json` in the data folder.
//!
//! They are those of the broker and of groups, subscriptions to the metrics of clients and quotas of clients. A change
//! is on the disk before it counts; the settings file of the node is not touched.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_env::disk;
use highwater_kafka::{
    DynamicSettingStore, DynamicSettings, SettingError, SettingOwner, SettingUpdate, SettingValues,
};
use highwater_log::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};

/// The settings of a node.
pub(crate) struct StoredSettings(Arc<Store>);

struct Store {
    path: PathBuf,
    /// Held while a change is written.
    changing: Mutex<()>,
    settings: watch::Sender<Arc<DynamicSettings>>,
    /// Called with settings that are to count from now on. They may be those of before.
    apply: Box<Apply>,
}

type Apply = dyn Fn(&Arc<DynamicSettings>) -> Result<(), String> + Send + Sync;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingFile {
    version: u32,
    settings: Vec<SettingRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingRecord {
    owner: SettingOwner,
    values: SettingValues,
}

const VERSION: u32 = 1;

impl StoredSettings {
    /// Reads the settings and applies them, now and when they change.
    pub(crate) fn open(
        folder: &Path,
        apply: impl Fn(&Arc<DynamicSettings>) -> Result<(), String> + Send + Sync + 'static,
    ) -> io::Result<StoredSettings> {
        let path = folder.join("kafka.json");
        let settings = Arc::new(read(&path)?);
        apply(&settings).map_err(io::Error::other)?;
        Ok(StoredSettings(Arc::new(Store {
            path,
            changing: Mutex::new(()),
            settings: watch::Sender::new(settings),
            apply: Box::new(apply),
        })))
    }
}

impl DynamicSettingStore for StoredSettings {
    fn watch(&self) -> watch::Receiver<Arc<DynamicSettings>> {
        self.0.settings.subscribe()
    }

    fn update(&self, update: SettingUpdate) -> BoxFuture<Result<(), SettingError>> {
        let store = self.0.clone();
        Box::pin(async move {
            let _changing = store.changing.lock().await;
            let changed = Arc::new(store.settings.borrow().updated(update)?);
            write(&store.path, &changed)
                .map_err(|error| SettingError::Storage(error.to_string()))?;
            (store.apply)(&changed).map_err(SettingError::Storage)?;
            store.settings.send_replace(changed);
            Ok(())
        })
    }
}

fn read(path: &Path) -> io::Result<DynamicSettings> {
    let invalid = |reason: String| {
        let message = format!("{}: {reason}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let text = match disk::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(DynamicSettings::default());
        }
        Err(error) => return Err(error),
    };
    let file: SettingFile =
        serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    match file.version {
        VERSION => {
            let settings = file.settings.into_iter();
            let settings = settings.map(|record| (record.owner, record.values));
            Ok(DynamicSettings::new(settings))
        }
        other => Err(invalid(format!("it has the unknown version {other}"))),
    }
}

fn write(path: &Path, settings: &DynamicSettings) -> io::Result<()> {
    let records = settings.iter().map(|(owner, values)| SettingRecord {
        owner: owner.clone(),
        values: values.clone(),
    });
    let file = SettingFile {
        version: VERSION,
        settings: records.collect(),
    };
    disk::write_private(path, &serde_json::to_vec_pretty(&file)?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use highwater_kafka::QuotaName;

    use super::*;

    fn update(owner: SettingOwner, name: &str, value: Option<&str>) -> SettingUpdate {
        SettingUpdate {
            owner,
            values: vec![(name.to_owned(), value.map(str::to_owned))],
            replaces: false,
        }
    }

    /// The stored settings, and the interval that was applied last.
    fn open(folder: &Path) -> (StoredSettings, Arc<AtomicU64>) {
        let applied = Arc::new(AtomicU64::new(0));
        let last = applied.clone();
        let apply = move |settings: &Arc<DynamicSettings>| {
            let interval = settings.maintenance().unwrap_or_default();
            last.store(interval.as_millis() as u64, Ordering::Relaxed);
            Ok(())
        };
        (StoredSettings::open(folder, apply).unwrap(), applied)
    }

    // proves K4
    #[tokio::test]
    async fn settings_count_at_once_and_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (stored, applied) = open(folder.path());
        let quota = SettingOwner::ClientQuota {
            user: Some(QuotaName::Default),
            client_id: Some(QuotaName::Exact("c".to_owned())),
        };
        let backoff = "log.cleaner.backoff.ms";
        for update in [
            update(SettingOwner::EveryBroker, backoff, Some("7000")),
            update(SettingOwner::Broker, backoff, Some("5000")),
            update(quota, "producer_byte_rate", Some("10")),
            update(
                SettingOwner::ClientMetrics("m".to_owned()),
                "metrics",
                Some("*"),
            ),
        ] {
            stored.update(update).await.unwrap();
        }
        assert_eq!(applied.load(Ordering::Relaxed), 5000);
        let before = stored.watch().borrow().clone();
        drop(stored);
        let (stored, applied) = open(folder.path());
        assert_eq!(applied.load(Ordering::Relaxed), 5000);
        assert_eq!(*stored.watch().borrow(), before);
        let removed = update(SettingOwner::Broker, backoff, None);
        stored.update(removed).await.unwrap();
        assert_eq!(applied.load(Ordering::Relaxed), 7000);
    }

    // proves K4
    #[tokio::test]
    async fn what_cannot_be_applied_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let refuse =
            |settings: &Arc<DynamicSettings>| match **settings == DynamicSettings::default() {
                true => Ok(()),
                false => Err("the disk is full".to_owned()),
            };
        let stored = StoredSettings::open(folder.path(), refuse).unwrap();
        let change = update(SettingOwner::Broker, "log.retention.ms", Some("5000"));
        let refused = stored.update(change).await;
        assert!(matches!(refused, Err(SettingError::Storage(_))));
        assert_eq!(**stored.watch().borrow(), DynamicSettings::default());
    }

    #[tokio::test]
    async fn a_change_that_cannot_be_stored_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let (stored, applied) = open(&folder.path().join("missing"));
        let change = update(SettingOwner::Broker, "log.cleaner.backoff.ms", Some("5000"));
        let refused = stored.update(change).await;
        assert!(matches!(refused, Err(SettingError::Storage(_))));
        assert_eq!(applied.load(Ordering::Relaxed), 0);
        assert_eq!(**stored.watch().borrow(), DynamicSettings::default());
    }
}
