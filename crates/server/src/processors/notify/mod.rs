//! Tells people that a circuit has opened, by webhook and by mail, with a link that resumes.

pub mod link;
mod smtp;
mod ways;

use std::path::PathBuf;
use std::time::Duration;

use highwater_flow::{Circuits, Opening};
use serde_json::json;
use tokio::sync::mpsc;

use super::spec::Secret;
use crate::text::time_text;
use link::Signer;
pub use ways::{News, Ways};

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
    pub ways: Ways,
    pub circuits: Circuits,
    pub signer: Signer,
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
            let news = || self.news(&opening);
            let told =
                self.ways.is_any() && self.ways.tell(news, || self.is_current(&opening)).await;
            if told && let Err(error) = self.circuits.notified(&opening).await {
                tracing::warn!(%error, "it was not noted that people were told");
            }
        }
    }

    fn is_current(&self, opening: &Opening) -> bool {
        let standing = self.circuits.get(&opening.circuit);
        standing.is_some_and(|standing| standing.opening.as_ref() == Some(opening))
    }

    fn link(&self, opening: &Opening) -> String {
        let options = &self.ways.options;
        let lifetime = options.link_lifetime.as_secs() as i64;
        let until = self.ways.now_seconds().saturating_add(lifetime);
        let token = self.signer.sign(opening, until);
        let base = options.public_url.as_deref().unwrap_or_default();
        format!("{}/resume/{token}", base.trim_end_matches('/'))
    }

    fn news(&self, opening: &Opening) -> News {
        let Opening {
            circuit,
            why,
            at,
            offset,
        } = opening;
        let (since, link) = (time_text(*at), self.link(opening));
        News {
            event: json!({
                "event": "circuit.opened", "processor": circuit, "why": why, "at": since, "resume": link,
            }),
            subject: format!("Highwater: {circuit} has stopped"),
            text: format!(
                "The processor {circuit} has stopped delivering events since {since}:\n\n    {why}\n\n\
                 Nothing is lost, and the order is kept. Once the cause is removed, resume here:\n\n    {link}\n\n\
                 The link works once. On the command line: highwater circuit close {circuit}\n",
            ),
            id: format!("{circuit}-{offset}-{}", at.0),
        }
    }
}
