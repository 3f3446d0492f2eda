//! A store in an object store, whose objects are created only if they are absent.

use std::io;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::runtime::Handle;

use super::StateStore;

/// Objects below a prefix.
pub(super) struct BucketStore {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    runtime: Handle,
}

impl BucketStore {
    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: &str, runtime: Handle) -> BucketStore {
        BucketStore {
            store,
            prefix: prefix.trim_matches('/').to_owned(),
            runtime,
        }
    }

    fn path(&self, path: &str) -> io::Result<Path> {
        let whole = format!("{}/{path}", self.prefix);
        Path::parse(whole.trim_matches('/')).map_err(io::Error::other)
    }

    async fn get(&self, at: &Path) -> io::Result<Option<Vec<u8>>> {
        let found = match self.store.get(at).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(io_error)?,
        };
        let bytes = found.bytes().await.map_err(io_error)?;
        Ok(Some(bytes.to_vec()))
    }
}

fn io_error(error: Error) -> io::Error {
    io::Error::other(error)
}

impl StateStore for BucketStore {
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let at = self.path(folder)?;
        let listed = self
            .runtime
            .block_on(self.store.list_with_delimiter(Some(&at)));
        let objects = listed.map_err(io_error)?.objects.into_iter();
        let names = objects.filter_map(|object| object.location.filename().map(str::to_owned));
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }

    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let at = self.path(path)?;
        self.runtime.block_on(self.get(&at))
    }

    fn create(&self, path: &str, bytes: &[u8]) -> io::Result<bool> {
        let at = self.path(path)?;
        let put = async {
            let options = PutOptions::from(PutMode::Create);
            let body = bytes.to_vec().into();
            match self.store.put_opts(&at, body, options).await {
                Ok(_) => Ok(true),
                // A request may have been sent twice.
                Err(Error::AlreadyExists { .. }) => {
                    let there = self.get(&at).await?;
                    Ok(there.is_some_and(|there| there == bytes))
                }
                Err(error) => Err(io_error(error)),
            }
        };
        self.runtime.block_on(put)
    }

    fn delete(&self, path: &str) -> io::Result<()> {
        let at = self.path(path)?;
        match self.runtime.block_on(self.store.delete(&at)) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(io_error(error)),
        }
    }
}
