//! What is done with messages that were received, and with those that nobody wants.

use highwater_log::EnqueueTime;
use highwater_queue::{Part, Properties, Queue, Refusal, Token};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::read_json;
use super::send::{Sequences, texts};
use crate::http::app::App;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::text::time_text;

#[derive(Clone, Copy)]
pub enum Settle {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Renew,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    tokens: Vec<String>,
    properties: Option<Map<String, Value>>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    description: String,
}

impl Settle {
    pub fn named(word: &str) -> Option<Settle> {
        match word {
            "complete" => Some(Settle::Complete),
            "abandon" => Some(Settle::Abandon),
            "defer" => Some(Settle::Defer),
            "dead-letter" => Some(Settle::DeadLetter),
            "renew" => Some(Settle::Renew),
            _ => None,
        }
    }

    pub async fn act(self, app: &App, queue: &Queue, body: Incoming) -> Result<Reply, Error> {
        let wanted: Wanted = read_json(app, body, "{\"tokens\":[\"1-9c41d07f\"]}").await?;
        let given = wanted.tokens;
        let tokens = tokens(&given);
        let properties: Option<Properties> = wanted.properties.map(texts);
        let settled = match self {
            Settle::Complete => queue.complete(tokens).await?,
            Settle::Abandon => queue.abandon(tokens, properties).await?,
            Settle::Defer => queue.defer(tokens, properties).await?,
            Settle::DeadLetter => {
                let (reason, description) = (wanted.reason, wanted.description);
                let dead = queue.dead_letter(tokens, reason, description, properties);
                dead.await?
            }
            Settle::Renew => return renewed(queue.renew(tokens).await?, &given),
        };
        answer(settled, &given, Vec::new())
    }
}

/// A text that is no token fits no lock, and those are numbered from 1.
pub fn tokens(texts: &[String]) -> Vec<Token> {
    const NO_LOCK: Token = Token { seq: 0, number: 0 };
    let tokens = texts.iter().map(|text| text.parse().unwrap_or(NO_LOCK));
    tokens.collect()
}

fn renewed(renewed: Vec<Result<i64, Refusal>>, given: &[String]) -> Result<Reply, Error> {
    let until = |result: &Result<i64, Refusal>| result.clone().ok().map(EnqueueTime);
    let locks = renewed.iter().zip(given).filter_map(|(result, token)| {
        let until = time_text(until(result)?);
        Some(json!({"token": token, "locked_until": until}))
    });
    let locks = locks.collect();
    let settled = renewed.into_iter().map(|result| result.map(drop));
    answer(settled.collect(), given, locks)
}

/// How many it went well with, and what became of the others. Where it went well with none, that is
/// an error.
fn answer(
    settled: Vec<Result<(), Refusal>>,
    given: &[impl Serialize],
    locks: Vec<Value>,
) -> Result<Reply, Error> {
    let outcomes = Outcomes::of(&settled, given);
    if outcomes.settled == 0
        && let Some(Err(first)) = settled.into_iter().next()
    {
        let mut error = Error::from(first);
        error.more = Some(Box::new(json!({"failed": outcomes.failed})));
        return Err(error);
    }
    if locks.is_empty() {
        return Ok(reply::json(StatusCode::OK, &outcomes));
    }
    let mut body = json!(outcomes);
    body["locks"] = locks.into();
    Ok(reply::json(StatusCode::OK, &body))
}

/// What is told of messages that were to be settled.
#[derive(Serialize)]
pub struct Outcomes {
    pub settled: usize,
    pub failed: Vec<Value>,
}

impl Outcomes {
    pub fn of<'a, G: Serialize + 'a>(
        settled: &[Result<(), Refusal>],
        given: impl IntoIterator<Item = &'a G>,
    ) -> Outcomes {
        let errors = settled.iter().zip(given).filter_map(|(result, given)| {
            let error = Error::from(result.clone().err()?);
            let mut facts = error.to_json();
            facts["of"] = json!(given);
            Some(facts)
        });
        let failed: Vec<Value> = errors.collect();
        Outcomes {
            settled: settled.len() - failed.len(),
            failed,
        }
    }
}

/// Scheduled messages that are not to be.
pub async fn cancel(app: &App, queue: &Queue, body: Incoming) -> Result<Reply, Error> {
    let seqs = Sequences::read(app, body).await?;
    answer(queue.cancel(seqs.clone()).await?, &seqs, Vec::new())
}

/// Dead letters that are to be tried again.
pub async fn resubmit(app: &App, queue: &Queue, body: Incoming) -> Result<Reply, Error> {
    let seqs = Sequences::read(app, body).await?;
    answer(queue.resubmit(seqs.clone()).await?, &seqs, Vec::new())
}

pub async fn purge(queue: &Queue, part: Part) -> Result<Reply, Error> {
    let count = queue.purge(part).await?;
    Ok(reply::json(StatusCode::OK, &json!({"removed": count})))
}
