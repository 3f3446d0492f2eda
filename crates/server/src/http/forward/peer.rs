//! Connections to the other nodes.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_connect::http::handshake;
use highwater_env::disk;
use highwater_flow::NodeInfo;
use highwater_net::tls;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::error::{Code, Error};
use super::{RelayedBody, unusable_address};
use crate::owners::PeerSettings;
use crate::text::is_local;

/// Requests in flight to other nodes.
const IN_FLIGHT_MAX: usize = 512;
/// Idle connections that are kept to a node.
const IDLE_MAX: usize = 32;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Sender = SendRequest<RelayedBody>;

/// The connections, by the URL of the node.
pub(crate) struct Peers {
    tls: Arc<ClientConfig>,
    insecure: bool,
    in_flight: Arc<Semaphore>,
    idle: Arc<Mutex<HashMap<String, Vec<Sender>>>>,
}

impl Peers {
    /// Reads the authorities of the nodes' certificates.
    pub(crate) fn new(settings: &PeerSettings) -> Result<Peers, String> {
        let read = |path: &Path| {
            let text = disk::read_to_string(path);
            text.map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        let ca = settings.ca.as_deref().map(read).transpose()?;
        Ok(Peers {
            tls: tls::trust_system_and(ca.as_deref().unwrap_or_default(), None)?,
            insecure: settings.insecure,
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            idle: Arc::default(),
        })
    }

    /// Whether callers' secrets may be sent to this address.
    pub(super) fn may_see_secrets(&self, url: &str) -> bool {
        let uri = url.parse::<Uri>().unwrap_or_default();
        let is_here = uri.host().is_some_and(is_local);
        self.insecure || is_here || uri.scheme_str() == Some("https")
    }

    /// Sends a request whose URI is a path. The permit is held until the answer has been read.
    pub(super) async fn send(
        &self,
        node: &NodeInfo,
        mut request: Request<RelayedBody>,
        patience: Duration,
    ) -> Result<(Response<Incoming>, OwnedSemaphorePermit), Error> {
        let Ok(permit) = self.in_flight.clone().try_acquire_owned() else {
            let message = "too many requests are on their way to other nodes";
            return Err(Error::new(
                Code::Full,
                message,
                "send again after the time in Retry-After",
            ));
        };
        let base: Uri = node.url.parse().map_err(|_| unusable_address(node))?;
        let authority = base.authority().ok_or_else(|| unusable_address(node))?;
        let host = HeaderValue::from_str(authority.as_str());
        request
            .headers_mut()
            .insert(HOST, host.map_err(|_| unusable_address(node))?);
        loop {
            let (mut sender, kept) = match self.take_idle(&node.url) {
                Some(sender) => (sender, true),
                None => (self.connect(node, &base).await?, false),
            };
            let answer = tokio::time::timeout(patience, sender.try_send_request(request)).await;
            match answer {
                Err(_) => return Err(unknown_outcome(node, &"it did not answer in time")),
                Ok(Ok(answer)) => {
                    self.keep_when_ready(&node.url, sender);
                    return Ok((answer, permit));
                }
                Ok(Err(mut failed)) => match failed.take_message() {
                    // The node closed the idle connection before anything was sent.
                    Some(unsent) if kept => request = unsent,
                    _ => return Err(unknown_outcome(node, &failed.into_error())),
                },
            }
        }
    }

    fn take_idle(&self, url: &str) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.get_mut(url)?;
        senders.retain(|sender| !sender.is_closed());
        let sender = senders.pop();
        if senders.is_empty() {
            idle.remove(url);
        }
        sender
    }

    /// Keeps the connection once the answer has been read. It is closed if the caller disconnects before.
    fn keep_when_ready(&self, url: &str, mut sender: Sender) {
        let (idle, url) = (self.idle.clone(), url.to_owned());
        tokio::spawn(async move {
            if sender.ready().await.is_err() {
                return;
            }
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|_, senders| {
                senders.retain(|sender| !sender.is_closed());
                !senders.is_empty()
            });
            let senders = idle.entry(url).or_default();
            if senders.len() < IDLE_MAX {
                senders.push(sender);
            }
        });
    }

    async fn connect(&self, node: &NodeInfo, base: &Uri) -> Result<Sender, Error> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.dial(base)).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        connected.map_err(|error| {
            let message = format!(
                "node `{}` cannot be reached at {}: {error}",
                node.name, node.url
            );
            let hint = "try again: if the node is dead, another one takes over";
            Error::new(Code::Starting, message, hint)
        })
    }

    async fn dial(&self, base: &Uri) -> io::Result<Sender> {
        let host = base.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_tls = base.scheme_str() == Some("https");
        let port = base.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        if !is_tls {
            return handshake(stream).await;
        }
        handshake(tls::connect(self.tls.clone(), host, stream).await?).await
    }
}

fn unknown_outcome(node: &NodeInfo, why: &dyn std::fmt::Display) -> Error {
    let message = format!(
        "node `{}` has the request, and its answer is lost: {why}",
        node.name
    );
    let hint = "it may have been carried out: look before you send it again, or send it with an id";
    Error::new(Code::Stopped, message, hint)
}
