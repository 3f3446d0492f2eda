//! A small HTTP client for one address: connections are kept and used again, answers are bounded.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use highwater_env::disk;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The largest answer that is read. Of a longer one the connection is given up.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that are kept while nobody uses them.
const IDLE_MAX: usize = 64;

pub struct Client {
    authority: String,
    host: HeaderValue,
    path: Uri,
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<Connection>>,
}

type Connection = SendRequest<Full<Bytes>>;

/// No answer came.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no connection to {0}: {1}")]
    Connect(String, String),
    #[error("the connection broke: {0}")]
    Broken(String),
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Whether an address can be posted to, or why not.
pub fn check_url(url: &str) -> Result<(), String> {
    parse(url).map(drop)
}

struct Address {
    https: bool,
    authority: String,
    uri: Uri,
}

fn parse(url: &str) -> Result<Address, String> {
    let uri: Uri = url
        .parse()
        .map_err(|error| format!("`{url}` is no URL: {error}"))?;
    let https = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(format!("`{url}` is neither http nor https")),
    };
    let Some(authority) = uri
        .authority()
        .filter(|authority| !authority.as_str().contains('@'))
    else {
        return Err(format!("`{url}` names no host, or a user"));
    };
    let port = authority.port_u16().unwrap_or(if https { 443 } else { 80 });
    Ok(Address {
        https,
        authority: format!("{}:{port}", authority.host()),
        uri,
    })
}

impl Client {
    /// For one URL; `ca` names certificates to trust instead of those of the system.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Client, String> {
        let address = parse(url)?;
        let uri = &address.uri;
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Client {
            host: HeaderValue::from_str(host).map_err(|error| error.to_string())?,
            path: path.parse().map_err(|error| format!("{path}: {error}"))?,
            tls: match address.https {
                true => Some(connector(ca)?),
                false => None,
            },
            authority: address.authority,
            idle: Mutex::default(),
        })
    }

    pub async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<Answer, ClientError> {
        let mut request = Request::post(self.path.clone())
            .body(Full::new(body))
            .map_err(|error| ClientError::Broken(error.to_string()))?;
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.host.clone());
        // One that was kept may have been closed by the other side in the meantime; then the request
        // comes back unsent, and is sent on a new one.
        while let Some(mut connection) = self.kept() {
            if connection.ready().await.is_err() {
                continue;
            }
            match connection.try_send_request(request).await {
                Ok(response) => return self.finish(connection, response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ClientError::Broken(error.into_error().to_string())),
                },
            }
        }
        let mut connection = tokio::time::timeout(CONNECT_TIMEOUT, self.connect())
            .await
            .map_err(|_| self.unreachable(format!("none within {CONNECT_TIMEOUT:?}")))??;
        let response = connection.send_request(request).await;
        let response = response.map_err(|error| ClientError::Broken(error.to_string()))?;
        self.finish(connection, response).await
    }

    async fn finish(
        &self,
        connection: Connection,
        response: Response<Incoming>,
    ) -> Result<Answer, ClientError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let answer = |body| Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        };
        match body {
            Ok(body) => {
                self.keep(connection);
                Ok(answer(body.to_bytes()))
            }
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Ok(answer(Bytes::new()))
            }
            Err(error) => Err(ClientError::Broken(error.to_string())),
        }
    }

    fn kept(&self) -> Option<Connection> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !connection.is_closed() {
            idle.push(connection);
        }
    }

    fn unreachable(&self, why: impl ToString) -> ClientError {
        ClientError::Connect(self.authority.clone(), why.to_string())
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.map_err(|error| self.unreachable(error))?;
        stream
            .set_nodelay(true)
            .map_err(|error| self.unreachable(error))?;
        let Some(tls) = &self.tls else {
            return self.start(TokioIo::new(stream)).await;
        };
        let stream = tls.connect(
            server_name(&self.authority).map_err(|why| self.unreachable(why))?,
            stream,
        );
        let stream = stream.await.map_err(|error| self.unreachable(error))?;
        self.start(TokioIo::new(stream)).await
    }

    async fn start<T>(&self, io: T) -> Result<Connection, ClientError>
    where
        T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let started = http1::handshake(io).await;
        let (sender, connection) = started.map_err(|error| self.unreachable(error))?;
        // What goes wrong with it comes back from the request that meets it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// The name that the certificate of `host:port` is to be for.
pub fn server_name(authority: &str) -> Result<ServerName<'static>, String> {
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
    name.map_err(|error| error.to_string())
}

/// TLS as a client, with the certificates of the system or those of a file.
pub fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let pem = disk::read_to_string(path);
            let pem = pem.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|error| error.to_string())?;
                roots.add(certificate).map_err(|error| error.to_string())?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err("there are no certificates to trust: name some with `ca`".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host_and_no_user() {
        for url in [
            "host/path",
            "ftp://host",
            "http://",
            "http://a:b@host",
            "http://ho st",
        ] {
            assert!(check_url(url).is_err(), "{url}");
        }
        let authority = |url| parse(url).map(|address| address.authority);
        assert_eq!(authority("http://host/a?b=c"), Ok("host:80".into()));
        assert_eq!(authority("https://[::1]"), Ok("[::1]:443".into()));
        assert_eq!(authority("https://host:81"), Ok("host:81".into()));
    }
}
