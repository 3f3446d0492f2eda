//! The HTTP client of object stores, under the egress policy.
//!
//! The client is the vendor library's own, with two additions: names are resolved by the policy, which leaves out the
//! addresses that it refuses, and a request to a literal address is checked before it is sent. The client connects to
//! the checked address. A proxy of the environment or of `options` is the operator's, and so is the choice of what it
//! reaches.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use highwater_env::EgressPolicy;
use object_store::ClientOptions;
use object_store::client::{
    DnsFuture, DnsResolver, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpResponse, HttpService, ReqwestConnector,
};

/// Creates clients that enforce a policy.
#[derive(Debug)]
pub(super) struct StoreConnector {
    egress: EgressPolicy,
}

impl StoreConnector {
    /// For the operator's own definitions the services that give machines their credentials are open, because the
    /// library asks them where the environment has none.
    pub(super) fn new(egress: &EgressPolicy) -> StoreConnector {
        let egress = match egress.is_restricted() {
            true => egress.clone(),
            false => egress.with_credential_services(),
        };
        StoreConnector { egress }
    }
}

impl HttpConnector for StoreConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // This client takes the provider of the process, which only the first client sets; all others name theirs.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let resolver = Arc::new(PolicyResolver(self.egress.clone()));
        let options = options.clone().with_dns_resolver(resolver);
        let client = ReqwestConnector::default().connect(&options)?;
        Ok(HttpClient::new(CheckedClient {
            client,
            egress: self.egress.clone(),
        }))
    }
}

#[derive(Debug)]
struct PolicyResolver(EgressPolicy);

impl DnsResolver for PolicyResolver {
    fn resolve(&self, host: &str) -> DnsFuture {
        /// The client sets the port itself.
        const ANY_PORT: u16 = 0;
        let (egress, host) = (self.0.clone(), host.to_owned());
        Box::pin(async move {
            let found = egress.resolve(&host, ANY_PORT).await?;
            Ok(found.iter().map(|address| address.ip()).collect())
        })
    }
}

/// A client that sends no request to a literal address that the policy refuses.
struct CheckedClient {
    client: HttpClient,
    egress: EgressPolicy,
}

impl fmt::Debug for CheckedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedClient").finish_non_exhaustive()
    }
}

impl CheckedClient {
    fn check(&self, host: Option<&str>) -> io::Result<()> {
        let host = host.unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        match literal.parse::<IpAddr>() {
            Ok(address) => self.egress.check(literal, address),
            Err(_) => Ok(()),
        }
    }
}

impl HttpService for CheckedClient {
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let checked = self.check(request.uri().host());
            checked.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
            self.client.execute(request).await
        })
    }
}

#[cfg(all(test, feature = "aws"))]
mod tests {
    use object_store::aws::AmazonS3Builder;
    use object_store::path::Path;
    use object_store::{ObjectStoreExt, RetryConfig};
    use tokio::net::TcpListener;

    use super::*;

    /// The error of a write to this endpoint.
    async fn refusal(endpoint: &str, egress: &EgressPolicy) -> String {
        let once = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let store = AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_bucket_name("bucket")
            .with_access_key_id("id")
            .with_secret_access_key("secret")
            .with_allow_http(true)
            .with_retry(once)
            .with_http_connector(StoreConnector::new(egress))
            .build()
            .expect("the settings are complete");
        let error = store.put(&Path::from("file"), "row".into()).await;
        let error = error.expect_err("nobody answers");
        let mut text = error.to_string();
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = source {
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }

    // proves G3
    #[tokio::test]
    async fn object_stores_are_reached_as_far_as_the_egress_policy_says() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let users = EgressPolicy::default().restricted();
        for host in ["127.0.0.1", "localhost", "[::1]"] {
            let refused = refusal(&format!("http://{host}:{port}"), &users).await;
            assert!(refused.contains("egress policy"), "{host}: {refused}");
        }
        let metadata = refusal("http://169.254.169.254", &users).await;
        assert!(metadata.contains("egress policy"), "{metadata}");
        // The operator's own definitions reach loopback.
        drop(listener);
        let endpoint = format!("http://127.0.0.1:{port}");
        let closed = refusal(&endpoint, &EgressPolicy::default()).await;
        assert!(!closed.contains("egress policy"), "{closed}");
    }
}
