//! A small HTTP/1.1 client with one connection, opened on demand and reopened after a loss.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
pub(crate) use highwater_access::percent_encode;
use highwater_env::disk;
use highwater_net::tls;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::exit::UsageError;

/// The largest response body accepted.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of a node with default settings.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The node to talk to, and the credentials.
#[derive(clap::Args, Clone)]
pub(crate) struct Server {
    /// The address of the node
    #[arg(
        long = "server",
        visible_alias = "url",
        value_name = "URL",
        env = "HIGHWATER_SERVER",
        default_value = DEFAULT_URL
    )]
    url: String,
    /// The access key, as name:secret; prefer the variable, as other users can see the command line
    #[arg(
        long,
        value_name = "NAME:SECRET",
        env = "HIGHWATER_KEY",
        hide_env_values = true
    )]
    key: Option<String>,
    /// A PEM file of trusted certificates, instead of the system's
    #[arg(long, value_name = "FILE", env = "HIGHWATER_CA")]
    ca: Option<PathBuf>,
    /// A PEM file with a client certificate and its private key, for a node that asks for one
    #[arg(long, value_name = "FILE", env = "HIGHWATER_CLIENT_CERT")]
    client_cert: Option<PathBuf>,
}

impl Server {
    /// A server without authentication and TLS.
    pub(crate) fn at(url: &str) -> Server {
        Server {
            url: url.to_owned(),
            key: None,
            ca: None,
            client_cert: None,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.starts_with("https://")
    }

    fn without_scheme(&self) -> &str {
        let url = self.url.as_str();
        let stripped = url.split_once("://").map_or(url, |(_, rest)| rest);
        stripped.trim_end_matches('/')
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> String {
        let host = self.without_scheme().split('/').next().unwrap_or_default();
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match (has_port, self.is_https()) {
            (true, _) => host.to_owned(),
            (false, true) => format!("{host}:443"),
            (false, false) => format!("{host}:80"),
        }
    }

    /// The path prefix of a server behind a proxy; mostly empty.
    pub(crate) fn base_path(&self) -> &str {
        let url = self.without_scheme();
        url.find('/').map_or("", |at| &url[at..])
    }

    pub(crate) fn authorization(&self) -> Result<Option<String>, UsageError> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        match key.contains(':') {
            true => Ok(Some(format!("Basic {}", STANDARD.encode(key)))),
            false => Err(UsageError("write the key as name:secret".into())),
        }
    }

    fn check(&self) -> Result<(), UsageError> {
        let known = self.url.starts_with("http://") || self.is_https() || !self.url.contains("://");
        match known && !self.without_scheme().is_empty() {
            true => Ok(()),
            false => Err(UsageError(format!(
                "--server {}: write a URL such as http://127.0.0.1:8080",
                self.url
            ))),
        }
    }

    fn tls(&self) -> anyhow::Result<Option<Arc<ClientConfig>>> {
        if !self.is_https() {
            return Ok(None);
        }
        let read = |path: &PathBuf| {
            let pem = disk::read_to_string(path);
            pem.with_context(|| format!("cannot read {}", path.display()))
        };
        let own = self.client_cert.as_ref().map(read).transpose()?;
        let identity = own.map(|pem| tls::Identity {
            certificate: pem.clone(),
            key: pem,
        });
        let identity = identity.as_ref();
        let config = match &self.ca {
            Some(path) => tls::trust_only(&read(path)?, identity),
            None => tls::trust_system_and("", identity),
        };
        let config = config.map_err(anyhow::Error::msg);
        Ok(Some(config.context("invalid --ca or --client-cert")?))
    }
}

/// A response with its whole body.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The server answered with an error status.
#[derive(Debug, thiserror::Error)]
#[error("the server refused ({status}): {message}")]
pub(crate) struct ErrorResponse {
    pub status: u16,
    pub message: String,
}

impl HttpResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The value of `Retry-After`; zero without one.
    pub(crate) fn retry_after(&self) -> Duration {
        let value = self
            .headers
            .get("retry-after")
            .and_then(|value| value.to_str().ok());
        Duration::from_secs(value.and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    pub(crate) fn into_error(self) -> ErrorResponse {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let part = |name: &str| body[name].as_str();
        let message = match (part("message"), part("hint")) {
            (Some(message), Some(hint)) if !hint.is_empty() => format!("{message}\n  {hint}"),
            (Some(message), _) => message.to_owned(),
            (None, _) => String::from_utf8_lossy(&self.body)
                .chars()
                .take(500)
                .collect(),
        };
        ErrorResponse {
            status: self.status,
            message,
        }
    }

    pub(crate) fn success(self) -> Result<HttpResponse, ErrorResponse> {
        match self.is_success() {
            true => Ok(self),
            false => Err(self.into_error()),
        }
    }

    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).context("the response is not JSON")
    }
}

pub(crate) struct Client {
    server: Server,
    tls: Option<Arc<ClientConfig>>,
    authorization: Option<String>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(crate) fn new(server: &Server) -> anyhow::Result<Client> {
        server.check()?;
        Ok(Client {
            tls: server.tls()?,
            authorization: server.authorization()?,
            server: server.clone(),
            connection: None,
        })
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<HttpResponse> {
        self.request(Method::GET, path, &[], Bytes::new()).await
    }

    pub(crate) async fn send_json(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<HttpResponse> {
        let kind = [("content-type", "application/json")];
        self.request(method, path, &kind, body.to_string().into())
            .await
    }

    pub(crate) async fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<HttpResponse> {
        let (head, body) = self.open(method, path, headers, body).await?.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the response broke off: {error}"))?;
        Ok(HttpResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.to_bytes(),
        })
    }

    /// Sends a request and returns once the head of the response is there.
    pub(crate) async fn open(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let path = format!("{}{path}", self.server.base_path());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.server.authority());
        if let Some(key) = &self.authorization {
            request = request.header("authorization", key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).context("invalid request")?;
        let mut connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => self.connect().await?,
        };
        connection
            .ready()
            .await
            .context("the server closed the connection")?;
        let response = connection
            .send_request(request)
            .await
            .context("the server did not answer")?;
        self.connection = Some(connection);
        Ok(response)
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let authority = self.server.authority();
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&authority));
        let stream = match connecting.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Err(anyhow::Error::new(error).context(format!(
                    "cannot reach {authority}; is a server running there? start one with: highwater up"
                )));
            }
            Err(_) => anyhow::bail!("{authority} did not answer within {CONNECT_TIMEOUT:?}"),
        };
        stream.set_nodelay(true)?;
        let Some(config) = &self.tls else {
            return start(TokioIo::new(stream)).await;
        };
        let host = authority
            .rsplit_once(':')
            .map_or(&*authority, |(host, _)| host);
        let stream = tls::connect(config.clone(), host, stream).await;
        let stream = stream.with_context(|| format!("no TLS connection to {authority}"))?;
        start(TokioIo::new(stream)).await
    }
}

async fn start<T>(io: T) -> anyhow::Result<SendRequest<Full<Bytes>>>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(io).await?;
    // The request that meets a connection error returns it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Server {
        Server {
            url: url.into(),
            key: Some("a:b".into()),
            ca: None,
            client_cert: None,
        }
    }

    #[test]
    fn a_url_has_a_host_a_port_and_maybe_a_path() {
        let parts = |url: &str| (server(url).authority(), server(url).base_path().to_owned());
        assert_eq!(parts("http://h"), ("h:80".into(), "".into()));
        assert_eq!(parts("https://h/"), ("h:443".into(), "".into()));
        assert_eq!(parts("h:81/a/b/"), ("h:81".into(), "/a/b".into()));
        assert_eq!(parts("http://[::1]:82"), ("[::1]:82".into(), "".into()));
        assert_eq!(parts("http://[::1]"), ("[::1]:80".into(), "".into()));
        assert!(server("ftp://h").check().is_err() && server("http://").check().is_err());
    }

    #[test]
    fn a_client_certificate_needs_its_private_key() {
        let certificate = include_str!("../../server/tests/server/http/client.pem");
        let key = include_str!("../../server/tests/server/http/client.key");
        let folder = tempfile::tempdir().unwrap();
        let connector = |name: &str, pem: &str| {
            let path = folder.path().join(name);
            disk::write_private(&path, pem.as_bytes()).unwrap();
            Server {
                client_cert: Some(path),
                ..server("https://h")
            }
            .tls()
        };
        assert!(connector("both", &format!("{key}{certificate}")).is_ok());
        for (pem, reason) in [(certificate, "no private key"), (key, "no certificate")] {
            let error = connector("one", pem).err().unwrap();
            assert!(format!("{error:#}").contains(reason), "{error:#}");
        }
    }

    #[test]
    fn a_key_is_sent_as_basic_credentials() {
        assert_eq!(
            server("h").authorization().unwrap().as_deref(),
            Some("Basic YTpi")
        );
    }
}
