//! Notifies people that a circuit has opened, by webhook and by mail, with a link that resumes deliveries.

pub(crate) mod link;
mod notifier;
mod smtp;

use std::path::PathBuf;
use std::time::Duration;

use highwater_flow::{CircuitTrip, Circuits};
use serde_json::json;
use tokio::sync::mpsc;

use super::spec::Secret;
use crate::text::time_text;
use link::Signer;
pub(crate) use notifier::{Notification, Notifier};

/// The targets of notifications, and the base of their links.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub url: Option<String>,
    pub authorization: Option<Secret>,
    pub email: Option<Email>,
    /// A PEM file of certificates to trust in addition to those of the system.
    pub ca: Option<PathBuf>,
    /// The base of links to this node.
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
    /// From the first byte.
    Always,
    /// By STARTTLS, before any other command.
    Start,
    Off,
}

/// Notifies people of circuits that open.
pub(crate) struct CircuitNotifier {
    pub(crate) notifier: Notifier,
    pub(crate) circuits: Circuits,
    pub(crate) signer: Signer,
}

impl CircuitNotifier {
    /// Notifies of every opening until the channel closes.
    pub(crate) async fn run(self, mut openings: mpsc::Receiver<CircuitTrip>) {
        while let Some(opening) = openings.recv().await {
            tracing::warn!(
                processor = opening.circuit,
                why = opening.why,
                "deliveries have stopped; highwater circuit close {} resumes",
                opening.circuit
            );
            if !self.notifier.is_configured() {
                continue;
            }
            let notification = || self.notification(&opening);
            let is_current = || self.is_current(&opening);
            let notified = self.notifier.notify(notification, is_current).await;
            if notified && let Err(error) = self.circuits.notified(&opening).await {
                tracing::warn!(%error, "the notification was sent but not recorded");
            }
        }
    }

    fn is_current(&self, opening: &CircuitTrip) -> bool {
        let standing = self.circuits.get(&opening.circuit);
        standing.is_some_and(|standing| standing.opening.as_ref() == Some(opening))
    }

    fn link(&self, opening: &CircuitTrip) -> String {
        let options = &self.notifier.options;
        let lifetime = options.link_lifetime.as_secs() as i64;
        let until = self.notifier.now_seconds().saturating_add(lifetime);
        let token = self.signer.sign(opening, until);
        let base = options.public_url.as_deref().unwrap_or_default();
        format!("{}/resume/{token}", base.trim_end_matches('/'))
    }

    fn notification(&self, opening: &CircuitTrip) -> Notification {
        let CircuitTrip {
            circuit,
            why,
            at,
            offset,
        } = opening;
        let (since, link) = (time_text(*at), self.link(opening));
        Notification {
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
