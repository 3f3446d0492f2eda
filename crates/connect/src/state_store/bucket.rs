//! A store in an object store, whose objects are created only if they are absent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::runtime::Handle;

use super::{StateStore, StoreUnavailable};

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
            found => found.map_err(unavailable)?,
        };
        let bytes = found.bytes().await.map_err(unavailable)?;
        Ok(Some(bytes.to_vec()))
    }

    /// Whether the object has these contents, if there is one.
    async fn has(&self, at: &Path, bytes: &[u8]) -> io::Result<Option<bool>> {
        let there = self.get(at).await?;
        Ok(there.map(|there| there == bytes))
    }

    async fn create_object(&self, at: &Path, bytes: &[u8]) -> io::Result<bool> {
        for _ in 0..CREATIONS_MAX {
            let options = PutOptions::from(PutMode::Create);
            match self
                .store
                .put_opts(at, bytes.to_vec().into(), options)
                .await
            {
                Ok(_) => return Ok(true),
                // This request may have been sent twice.
                Err(Error::AlreadyExists { .. }) => {
                    if let Some(is_same) = self.has(at, bytes).await? {
                        return Ok(is_same);
                    }
                }
                Err(error) => return Err(unavailable(error)),
            }
            // S3 answers 409 while another request about the same object is under way, which may fail.
            tokio::time::sleep(CREATION_PAUSE).await;
        }
        let text = format!("others create or delete `{at}` all the time");
        Err(StoreUnavailable(text).into())
    }
}

/// How often the creation of an object is tried while others create or delete it.
const CREATIONS_MAX: u32 = 10;
const CREATION_PAUSE: Duration = Duration::from_millis(50);

pub(super) fn unavailable(error: Error) -> io::Error {
    let text = error.to_string();
    let answered = |status: &str| text.contains(&format!("status code: {status}"));
    let is_refused = matches!(
        error,
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. }
    );
    let problem = match error {
        _ if is_refused || answered("401") || answered("403") => {
            "the object store refuses access; check the credentials in `state.options` or the environment, and their rights \
             on the bucket"
        }
        Error::NotFound { .. } => "the object store has no such bucket",
        _ if answered("404") => "the object store has no such bucket",
        _ => "the object store cannot be used",
    };
    StoreUnavailable(format!("{problem}: {}", reason(&text))).into()
}

/// The code and the message of an answer in XML, which may be long otherwise, or the whole error.
fn reason(error: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = error.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}, {message}"),
        _ => error.to_owned(),
    }
}

impl StateStore for BucketStore {
    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let at = self.path(folder)?;
        let listed = self
            .runtime
            .block_on(self.store.list_with_delimiter(Some(&at)));
        let objects = listed.map_err(unavailable)?.objects.into_iter();
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
        self.runtime.block_on(self.create_object(&at, bytes))
    }

    fn delete(&self, path: &str) -> io::Result<()> {
        let at = self.path(path)?;
        match self.runtime.block_on(self.store.delete(&at)) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }
}
