//! Object stores. Objects appear atomically; this module only refuses to overwrite one.

use std::sync::Arc;

use bytes::Bytes;
#[cfg(feature = "object-store")]
use highwater_env::EgressPolicy;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use super::super::{EndpointError, EndpointFuture};
use super::store::{Store, conflict};

pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

impl Bucket {
    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Bucket {
        let prefix = prefix.trim_matches('/').to_owned();
        Bucket { store, prefix }
    }

    async fn write(&self, path: &str, bytes: Bytes) -> Result<(), EndpointError> {
        let whole = format!("{}/{path}", self.prefix);
        let at = Path::parse(whole.trim_start_matches('/')).map_err(EndpointError::unfit)?;
        let create = PutOptions::from(PutMode::Create);
        match self.store.put_opts(&at, bytes.clone().into(), create).await {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. }) => {
                let there = match self.store.get(&at).await {
                    // S3 answers 409 while another request about the same object is under way, which may fail.
                    Err(error @ Error::NotFound { .. }) => Err(EndpointError::unavailable(error)),
                    there => there.map_err(endpoint_error),
                };
                let there = there?;
                match there.bytes().await.map_err(endpoint_error)? == bytes {
                    true => Ok(()),
                    false => Err(conflict(&whole)),
                }
            }
            Err(error) => Err(endpoint_error(error)),
        }
    }
}

fn endpoint_error(error: Error) -> EndpointError {
    match error {
        Error::NotFound { .. }
        | Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::UnknownConfigurationKey { .. } => EndpointError::unfit(error),
        error => EndpointError::unavailable(error),
    }
}

#[cfg(feature = "object-store")]
pub(super) fn open(
    url: &str,
    options: &[(String, String)],
    egress: &EgressPolicy,
) -> Result<Box<dyn Store>, EndpointError> {
    let (store, prefix) = connect(url, options, egress)?;
    Ok(Box::new(Bucket::new(store, &prefix)))
}

/// The store of a URL, and the prefix of its objects. The settings of the operator's own jobs come from the
/// environment, as with the vendor's tools, and from `options`, which take precedence; users' stores from `options`
/// alone, because the environment belongs to the operator. The job does the retries, so that it can report failures.
#[cfg(feature = "object-store")]
pub(crate) fn connect(
    url: &str,
    options: &[(String, String)],
    egress: &EgressPolicy,
) -> Result<(Arc<dyn ObjectStore>, String), EndpointError> {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let store: Arc<dyn ObjectStore> = match scheme {
        #[cfg(feature = "aws")]
        "s3" | "s3a" => build!(object_store::aws::AmazonS3Builder, url, options, egress),
        #[cfg(feature = "azure")]
        "az" | "abfs" | "abfss" => build!(
            object_store::azure::MicrosoftAzureBuilder,
            url,
            options,
            egress
        ),
        #[cfg(feature = "gcp")]
        "gs" => build!(
            object_store::gcp::GoogleCloudStorageBuilder,
            url,
            options,
            egress
        ),
        _ => {
            let _ = (options, egress);
            return Err(super::no_object_store(scheme));
        }
    };
    let prefix = rest.split_once('/').map_or("", |(_, prefix)| prefix);
    Ok((store, prefix.to_owned()))
}

#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
macro_rules! build {
    ($builder:path, $url:expr, $options:expr, $egress:expr) => {{
        use $builder as Builder;
        let once = object_store::RetryConfig {
            max_retries: 0,
            ..Default::default()
        };
        let builder = match $egress.is_restricted() {
            true => Builder::new(),
            false => Builder::from_env(),
        };
        let connector = super::store_client::StoreConnector::new($egress);
        let builder = builder.with_url($url).with_retry(once);
        let mut builder = builder.with_http_connector(connector);
        for (name, value) in $options {
            let key = name.to_ascii_lowercase().parse();
            builder = builder.with_config(key.map_err(EndpointError::unfit)?, value);
        }
        Arc::new(builder.build().map_err(EndpointError::unfit)?)
    }};
}
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
use build;

impl Store for Bucket {
    fn put<'a>(&'a self, path: &'a str, bytes: Bytes) -> EndpointFuture<'a, ()> {
        Box::pin(self.write(path, bytes))
    }
}
