//! A small HTTP/1.1 client for calling other services, plain or over TLS, with a connection pool and limits on
//! everything. It follows no redirects and repeats no request that may have arrived; that is the caller's decision.

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use highwater_env::EgressPolicy;
use highwater_net::{Stream, tls};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;

#[derive(Clone, Debug)]
pub struct Options {
    /// For the whole exchange, connecting included.
    pub timeout: Duration,
    /// A longer response is an error.
    pub answer_bytes_max: usize,
    /// How many idle connections are kept.
    pub idle_max: usize,
    /// Certificates in PEM form to trust beside those of the system.
    pub ca: Option<String>,
    /// The hosts that may be connected to.
    pub egress: EgressPolicy,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: Duration::from_secs(30),
            answer_bytes_max: 1 << 20,
            idle_max: 32,
            ca: None,
            egress: EgressPolicy::default(),
        }
    }
}

/// Clones share a connection pool.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    /// The most recently used one is last.
    idle: Mutex<VecDeque<(Origin, Sender)>>,
}

type Sender = SendRequest<Full<Bytes>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    tls: bool,
    authority: Authority,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The request is invalid, or the egress policy refuses it.
    #[error("{0}")]
    Request(String),
    /// Nothing was sent.
    #[error("cannot connect to {to}: {source}")]
    Connect { to: String, source: io::Error },
    /// The request may have arrived.
    #[error("no response from {to} within {after:?}")]
    TimedOut { to: String, after: Duration },
    /// The request may have arrived.
    #[error("the connection to {to} broke: {source}")]
    Broken { to: String, source: hyper::Error },
    #[error("the response of {to} is longer than {max} bytes")]
    TooLong { to: String, max: usize },
}

impl Client {
    pub fn new(options: Options) -> Client {
        Client {
            inner: Arc::new(Inner {
                options,
                tls: OnceLock::new(),
                idle: Mutex::default(),
            }),
        }
    }

    /// Sends a request with an absolute URL, such as `https://example.org/hook?x=1`, and reads the whole response.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let origin = Origin::of(request.uri())?;
        let after = self.inner.options.timeout;
        let exchange = tokio::time::timeout(after, self.exchange(&origin, request));
        exchange.await.unwrap_or_else(|_| {
            let to = origin.to_string();
            Err(HttpError::TimedOut { to, after })
        })
    }

    async fn exchange(
        &self,
        origin: &Origin,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, HttpError> {
        let mut request = origin.form(request)?;
        let broken = |source| HttpError::Broken {
            to: origin.to_string(),
            source,
        };
        loop {
            let (mut sender, kept) = match self.inner.take_idle(origin) {
                Some(sender) => (sender, true),
                None => (self.inner.connect(origin).await?, false),
            };
            let answer = match sender.try_send_request(request).await {
                Ok(answer) => answer,
                Err(mut failed) => match failed.take_message() {
                    // The server closed the connection before anything was sent.
                    Some(unsent) if kept => {
                        request = unsent;
                        continue;
                    }
                    _ => return Err(broken(failed.into_error())),
                },
            };
            let (head, body) = answer.into_parts();
            let max = self.inner.options.answer_bytes_max;
            let body = Limited::new(body, max)
                .collect()
                .await
                .map_err(|error| match error.downcast::<hyper::Error>() {
                    Ok(error) => broken(*error),
                    Err(other) => {
                        debug_assert!(other.is::<LengthLimitError>(), "there is no third reason");
                        let to = origin.to_string();
                        HttpError::TooLong { to, max }
                    }
                })?;
            self.inner.keep(origin, sender).await;
            return Ok(Response::from_parts(head, body.to_bytes()));
        }
    }
}

impl Inner {
    fn take_idle(&self, origin: &Origin) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, sender)| !sender.is_closed());
        let at = idle.iter().rposition(|(known, _)| known == origin)?;
        idle.remove(at).map(|(_, sender)| sender)
    }

    /// Returns a connection to the pool, if the server keeps it open.
    async fn keep(&self, origin: &Origin, mut sender: Sender) {
        if sender.ready().await.is_err() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push_back((origin.clone(), sender));
        while idle.len() > self.options.idle_max {
            idle.pop_front();
        }
    }

    async fn connect(&self, origin: &Origin) -> Result<Sender, HttpError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => HttpError::Request(source.to_string()),
            _ => HttpError::Connect {
                to: origin.to_string(),
                source,
            },
        };
        let host = origin.authority.host();
        let stream = self.options.egress.connect(host, origin.port()).await;
        let stream = stream.map_err(failed)?;
        let _ = stream.set_nodelay(true);
        if !origin.tls {
            return handshake(stream).await.map_err(failed);
        }
        let ca = self.options.ca.as_deref().unwrap_or_default();
        let config = self.tls.get_or_init(|| tls::trust_system_and(ca, None));
        let config = config.clone().map_err(HttpError::Request)?;
        let stream = tls::connect(config, host, stream).await;
        let stream = stream.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => HttpError::Request(format!("{host}: {error}")),
            _ => failed(error),
        })?;
        handshake(stream).await.map_err(failed)
    }
}

/// Begins HTTP on a connection, which a task drives until the sender is dropped or the server closes it. A caller that
/// waits for a response then gets the error.
pub async fn handshake<B>(stream: impl Stream) -> io::Result<SendRequest<B>>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(io::Error::other)?;
    tokio::spawn(async {
        let _ = connection.await;
    });
    Ok(sender)
}

impl Origin {
    fn of(uri: &Uri) -> Result<Origin, HttpError> {
        // The URL may hold a secret, so it is not shown.
        let wrong = || {
            let reason =
                "the URL has no scheme or host: write one such as https://example.org/hook";
            HttpError::Request(reason.to_owned())
        };
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().cloned().ok_or_else(wrong)?;
        Ok(Origin { tls, authority })
    }

    fn port(&self) -> u16 {
        let default = if self.tls { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(default)
    }

    /// As sent: the path alone, and the host in a header.
    fn form(&self, request: Request<Bytes>) -> Result<Request<Full<Bytes>>, HttpError> {
        let (mut head, body) = request.into_parts();
        let wrong = |error: &dyn fmt::Display| HttpError::Request(error.to_string());
        let host = self.authority.as_str();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let host = HeaderValue::from_str(host).map_err(|error| wrong(&error))?;
        head.headers.insert(HOST, host);
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = path.parse().map_err(|error| wrong(&error))?;
        Ok(Request::from_parts(head, Full::new(body)))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let host = self.authority.host();
        write!(f, "{scheme}://{host}:{}", self.port())
    }
}
