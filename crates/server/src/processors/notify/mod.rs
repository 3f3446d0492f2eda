//! Tells people that a circuit has opened, by webhook and by mail, with a link that resumes.

pub mod link;
mod smtp;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use highwater_connect::http::{self, Client};
use highwater_env::Clock;
use highwater_flow::retry::{Delay, Policy, Retry};
use highwater_flow::{Circuits, Opening};
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::json;
use tokio::sync::mpsc;

use super::spec::Secret;
use crate::text::time_text;
use link::Signer;

/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Who is told, and how people reach this node.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub url: Option<String>,
    pub authorization: Option<Secret>,
    pub email: Option<Email>,
    /// A file of certificates in PEM form that are believed beside those of the system.
    pub ca: Option<PathBuf>,
    /// Before `/resume/..`.
    pub public_url: Option<String>,
    pub link_lifetime: Duration,
}

#[derive(Clone, Debug)]
pub struct Email {
    /// Host and port.
    pub server: String,
    pub tls: Tls,
    pub login: Option<(String, Secret)>,
    pub from: String,
    pub to: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// From the first byte on.
    Always,
    /// Asked for before anything is said.
    Start,
    Off,
}

pub struct Notifier {
    pub options: Options,
    /// What the file of the options holds.
    pub ca: Option<String>,
    pub circuits: Circuits,
    pub signer: Signer,
    pub clock: Arc<dyn Clock>,
}

impl Notifier {
    /// Tells of every opening that comes, until there are no more.
    pub async fn run(self, mut openings: mpsc::Receiver<Opening>) {
        while let Some(opening) = openings.recv().await {
            tracing::warn!(
                processor = opening.circuit,
                why = opening.why,
                "deliveries have stopped; highwater circuit close {} resumes",
                opening.circuit
            );
            if self.options.url.is_some() || self.options.email.is_some() {
                self.persist(&opening).await;
            }
        }
    }

    /// Tries until it is told, the circuit is closed, or hours have passed.
    async fn persist(&self, opening: &Opening) {
        let policy = Policy {
            delay: Delay::Exponential {
                first: Duration::from_secs(2),
                cap: Duration::from_secs(300),
            },
            tries_max: Some(60),
            ..Policy::default()
        };
        let (mut by_webhook, mut by_mail) =
            (self.options.url.is_none(), self.options.email.is_none());
        let mut tries = 0;
        while self.is_current(opening) {
            by_webhook = by_webhook || self.timed("webhook", self.post(opening)).await;
            by_mail = by_mail || self.timed("mail", self.mail(opening)).await;
            if by_webhook && by_mail {
                if let Err(error) = self.circuits.notified(opening).await {
                    tracing::warn!(%error, "it was not noted that people were told");
                }
                return;
            }
            tries += 1;
            match policy.next(tries, Duration::ZERO, None, 0) {
                Retry::After(delay) => tokio::time::sleep(delay).await,
                Retry::GiveUp(_) => return,
            }
        }
    }

    fn is_current(&self, opening: &Opening) -> bool {
        let standing = self.circuits.get(&opening.circuit);
        standing.is_some_and(|standing| standing.opening.as_ref() == Some(opening))
    }

    async fn timed(&self, way: &str, sending: impl Future<Output = Result<(), String>>) -> bool {
        let sent = tokio::time::timeout(TIMEOUT, sending).await;
        let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")));
        if let Err(error) = &sent {
            tracing::warn!(way, error, "nobody could be told of the stop yet");
        }
        sent.is_ok()
    }

    fn now_seconds(&self) -> i64 {
        (self.clock.unix_nanos() / 1_000_000_000) as i64
    }

    fn link(&self, opening: &Opening) -> String {
        let lifetime = self.options.link_lifetime.as_secs() as i64;
        let token = self
            .signer
            .sign(opening, self.now_seconds().saturating_add(lifetime));
        let base = self.options.public_url.as_deref().unwrap_or_default();
        format!("{}/resume/{token}", base.trim_end_matches('/'))
    }

    async fn post(&self, opening: &Opening) -> Result<(), String> {
        let Some(url) = &self.options.url else {
            return Ok(());
        };
        let mut request = Request::post(url).header(CONTENT_TYPE, "application/json");
        if let Some(Secret(text)) = &self.options.authorization {
            request = request.header(AUTHORIZATION, text);
        }
        let body = json!({
            "event": "circuit.opened", "processor": opening.circuit, "why": opening.why,
            "at": time_text(opening.at), "resume": self.link(opening),
        });
        let request = request.body(body.to_string().into());
        let request = request.map_err(|error| error.to_string())?;
        let options = http::Options {
            ca: self.ca.clone(),
            ..http::Options::default()
        };
        let answer = Client::new(options).send(request).await;
        let status = answer.map_err(|error| error.to_string())?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("status {status}")),
        }
    }

    async fn mail(&self, opening: &Opening) -> Result<(), String> {
        let Some(email) = &self.options.email else {
            return Ok(());
        };
        let Opening {
            circuit,
            why,
            at,
            offset,
        } = opening;
        let text = format!(
            "The processor {circuit} has stopped delivering events since {}:\n\n    {why}\n\n\
             Nothing is lost, and the order is kept. Once the cause is removed, resume here:\n\n    {}\n\n\
             The link works once. On the command line: highwater circuit close {circuit}\n",
            time_text(*at),
            self.link(opening),
        );
        let now = Duration::from_secs(self.now_seconds().max(0) as u64);
        let mail = smtp::Mail {
            subject: &format!("Highwater: {circuit} has stopped"),
            text: &text,
            date: &httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + now),
            id: &format!("{circuit}-{offset}-{}", at.0),
        };
        smtp::send(email, self.ca.as_deref(), &mail).await
    }
}
