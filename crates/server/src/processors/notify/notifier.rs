//! Sends notifications by webhook and by mail, with retries.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use highwater_connect::http::{self, Client};
use highwater_env::{Clock, EgressPolicy};
use highwater_retry::{Backoff, RetryDecision, RetryPolicy};
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::Value;

use super::{Options, smtp};
use crate::processors::spec::Secret;
use crate::processors::{read_certificates, resolve_secrets};

/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One notification, for the webhook and for the mail.
pub(crate) struct Notification {
    /// The body of the webhook.
    pub(crate) event: Value,
    /// Subject and text of the mail.
    pub(crate) subject: String,
    pub(crate) text: String,
    /// Unique, for the message id of the mail.
    pub(crate) id: String,
}

/// Notifies people by the webhook and the mail server of the settings.
#[derive(Clone)]
pub(crate) struct Notifier {
    pub(crate) options: Options,
    /// The certificates in the file of the options.
    ca: Option<String>,
    egress: EgressPolicy,
    clock: Arc<dyn Clock>,
}

impl Notifier {
    pub(crate) fn new(
        options: Options,
        egress: EgressPolicy,
        clock: Arc<dyn Clock>,
    ) -> Result<Notifier, String> {
        Ok(Notifier {
            ca: read_certificates(options.ca.as_deref())?,
            options,
            egress,
            clock,
        })
    }

    /// Whether the settings have a webhook or a mail server.
    pub(crate) fn is_configured(&self) -> bool {
        self.options.url.is_some() || self.options.email.is_some()
    }

    /// Retries webhook and mail until both succeed, the notification is out of date, or hours have passed. Answers
    /// whether both succeeded.
    pub(crate) async fn notify(
        &self,
        notification: impl Fn() -> Notification,
        is_current: impl Fn() -> bool,
    ) -> bool {
        let policy = RetryPolicy {
            backoff: Backoff::Exponential {
                first: Duration::from_secs(2),
                cap: Duration::from_secs(300),
            },
            tries_max: Some(60),
            ..RetryPolicy::default()
        };
        let (mut by_webhook, mut by_mail) =
            (self.options.url.is_none(), self.options.email.is_none());
        let mut tries = 0;
        while is_current() {
            let notification = notification();
            by_webhook = by_webhook || attempt("webhook", self.post(&notification)).await;
            by_mail = by_mail || attempt("mail", self.mail(&notification)).await;
            if by_webhook && by_mail {
                return true;
            }
            tries += 1;
            match policy.next(tries, Duration::ZERO, None, 0) {
                RetryDecision::After(delay) => tokio::time::sleep(delay).await,
                RetryDecision::GiveUp(_) => return false,
            }
        }
        false
    }

    pub(crate) fn now_seconds(&self) -> i64 {
        (self.clock.unix_nanos() / 1_000_000_000) as i64
    }

    async fn post(&self, notification: &Notification) -> Result<(), String> {
        let Some(url) = &self.options.url else {
            return Ok(());
        };
        let url = &*resolve_secrets(url)?;
        let mut request = Request::post(url).header(CONTENT_TYPE, "application/json");
        if let Some(Secret(text)) = &self.options.authorization {
            request = request.header(AUTHORIZATION, &*resolve_secrets(text)?);
        }
        let request = request.body(notification.event.to_string().into());
        let request = request.map_err(|error| error.to_string())?;
        let options = http::Options {
            ca: self.ca.clone(),
            egress: self.egress.clone(),
            ..http::Options::default()
        };
        let answer = Client::new(options).send(request).await;
        let status = answer.map_err(|error| error.to_string())?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("status {status}")),
        }
    }

    async fn mail(&self, notification: &Notification) -> Result<(), String> {
        let Some(email) = &self.options.email else {
            return Ok(());
        };
        let now = Duration::from_secs(self.now_seconds().max(0) as u64);
        let mail = smtp::Mail {
            subject: &notification.subject,
            text: &notification.text,
            date: &httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + now),
            id: &notification.id,
        };
        smtp::send(email, &self.egress, self.ca.as_deref(), &mail).await
    }
}

async fn attempt(channel: &str, sending: impl Future<Output = Result<(), String>>) -> bool {
    let sent = tokio::time::timeout(TIMEOUT, sending).await;
    let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")));
    if let Err(error) = &sent {
        tracing::warn!(channel, error, "a notification failed and is retried");
    }
    sent.is_ok()
}
