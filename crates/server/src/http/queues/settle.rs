//! Received messages settled; scheduled ones cancelled; dead letters resubmitted; queues purged.

use highwater_log::EnqueueTime;
use highwater_queue::{LockToken, Properties, Refusal, SubQueue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::queue;
use super::send::{Sequences, texts};
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::text::time_text;

/// How received messages are settled.
#[derive(Clone, Copy)]
pub(in crate::http) enum Settle {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Renew,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleRequest {
    tokens: Vec<String>,
    properties: Option<Map<String, Value>>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    description: String,
}

pub(in crate::http) async fn settle(
    mut request: ApiRequest<'_>,
    settle: Settle,
) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let example = "{\"tokens\":[\"1-9c41d07f\"]}";
    let body: SettleRequest = request.read_json(example).await?;
    let given = body.tokens;
    let tokens = tokens(&given);
    let properties: Option<Properties> = body.properties.map(texts);
    let settled = match settle {
        Settle::Complete => queue.complete(tokens).await?,
        Settle::Abandon => queue.abandon(tokens, properties).await?,
        Settle::Defer => queue.defer(tokens, properties).await?,
        Settle::DeadLetter => {
            let (reason, description) = (body.reason, body.description);
            let dead = queue.dead_letter(tokens, reason, description, properties);
            dead.await?
        }
        Settle::Renew => return renewed(queue.renew(tokens).await?, &given),
    };
    answer(settled, &given, Vec::new())
}

/// Parses tokens. A text that is no token becomes one that no lock has: locks are numbered from 1.
pub(super) fn tokens(texts: &[String]) -> Vec<LockToken> {
    const NO_LOCK: LockToken = LockToken { seq: 0, number: 0 };
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

/// How many messages were settled, and why the others were not. An error if none was.
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
        error.details = Some(Box::new(json!({"failed": outcomes.failed})));
        return Err(error);
    }
    if locks.is_empty() {
        return Ok(reply::ok(&outcomes));
    }
    let mut body = json!(outcomes);
    body["locks"] = locks.into();
    Ok(reply::ok(&body))
}

/// The outcomes of settling messages.
#[derive(Serialize)]
pub(super) struct Outcomes {
    pub(super) settled: usize,
    pub(super) failed: Vec<Value>,
}

impl Outcomes {
    pub(super) fn of<'a, G: Serialize + 'a>(
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

/// Cancels scheduled messages.
pub(in crate::http) async fn cancel(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let seqs = Sequences::read(&mut request).await?;
    answer(queue.cancel(seqs.clone()).await?, &seqs, Vec::new())
}

/// Which dead letters to send to their queue again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResubmitRequest {
    #[serde(default)]
    sequences: Vec<u64>,
    /// All that are not locked.
    #[serde(default)]
    all: bool,
    /// Only counts them.
    #[serde(default)]
    dry_run: bool,
}

/// Sends dead letters to their queue again.
pub(in crate::http) async fn resubmit(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let queue = queue(&request)?;
    let example = "{\"sequences\":[1,2]} or {\"all\":true,\"dry_run\":true}";
    let wanted: ResubmitRequest = request.read_json(example).await?;
    match wanted {
        ResubmitRequest {
            all: true,
            dry_run: true,
            ..
        } => {
            let summary = queue.dead_letter_summary().await?;
            let body = json!({
                "dry_run": true, "messages": summary.unlocked, "locked": summary.locked,
                "reasons": summary.reasons, "other_reasons": summary.other,
            });
            Ok(reply::ok(&body))
        }
        ResubmitRequest { all: true, .. } => {
            let settled = queue.resubmit_all().await?;
            let failed = Vec::new();
            Ok(reply::ok(&Outcomes { settled, failed }))
        }
        ResubmitRequest { dry_run: true, .. } => Err(Error::bad(
            "dry_run counts all dead letters",
            format!("such as {example}"),
        )),
        ResubmitRequest {
            sequences: seqs, ..
        } => answer(queue.resubmit(seqs.clone()).await?, &seqs, Vec::new()),
    }
}

pub(in crate::http) async fn purge(
    request: ApiRequest<'_>,
    sub_queue: SubQueue,
) -> Result<Reply, Error> {
    let count = queue(&request)?.purge(sub_queue).await?;
    Ok(reply::ok(&json!({"removed": count})))
}
