//! How people are reached, whatever there is to tell: by webhook and by mail, until they are.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use highwater_connect::http::{self, Client};
use highwater_env::Clock;
use highwater_flow::retry::{Delay, Policy, Retry};
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::Value;

use super::{Options, smtp};
use crate::processors::certificates;
use crate::processors::spec::Secret;

/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What is told.
pub struct News {
    /// The body of the webhook.
    pub event: Value,
    /// The mail.
    pub subject: String,
    pub text: String,
    /// No other news has the same.
    pub id: String,
}

#[derive(Clone)]
pub struct Ways {
    pub options: Options,
    /// What the file of the options holds.
    ca: Option<String>,
    clock: Arc<dyn Clock>,
}

impl Ways {
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Result<Ways, String> {
        let ca = certificates(options.ca.as_deref())?;
        Ok(Ways { options, ca, clock })
    }

    /// Whether there is any.
    pub fn is_any(&self) -> bool {
        self.options.url.is_some() || self.options.email.is_some()
    }

    /// Tries every way until it worked, nobody needs to know any more, or hours have passed. Answers whether all of them
    /// worked.
    pub async fn tell(&self, news: impl Fn() -> News, is_current: impl Fn() -> bool) -> bool {
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
        while is_current() {
            let news = news();
            by_webhook = by_webhook || timed("webhook", self.post(&news)).await;
            by_mail = by_mail || timed("mail", self.mail(&news)).await;
            if by_webhook && by_mail {
                return true;
            }
            tries += 1;
            match policy.next(tries, Duration::ZERO, None, 0) {
                Retry::After(delay) => tokio::time::sleep(delay).await,
                Retry::GiveUp(_) => return false,
            }
        }
        false
    }

    pub fn now_seconds(&self) -> i64 {
        (self.clock.unix_nanos() / 1_000_000_000) as i64
    }

    async fn post(&self, news: &News) -> Result<(), String> {
        let Some(url) = &self.options.url else {
            return Ok(());
        };
        let mut request = Request::post(url).header(CONTENT_TYPE, "application/json");
        if let Some(Secret(text)) = &self.options.authorization {
            request = request.header(AUTHORIZATION, text);
        }
        let request = request.body(news.event.to_string().into());
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

    async fn mail(&self, news: &News) -> Result<(), String> {
        let Some(email) = &self.options.email else {
            return Ok(());
        };
        let now = Duration::from_secs(self.now_seconds().max(0) as u64);
        let mail = smtp::Mail {
            subject: &news.subject,
            text: &news.text,
            date: &httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + now),
            id: &news.id,
        };
        smtp::send(email, self.ca.as_deref(), &mail).await
    }
}

async fn timed(way: &str, sending: impl Future<Output = Result<(), String>>) -> bool {
    let sent = tokio::time::timeout(TIMEOUT, sending).await;
    let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")));
    if let Err(error) = &sent {
        tracing::warn!(way, error, "people could not be told yet");
    }
    sent.is_ok()
}
