//! Dead letters: counted, listed, described, replayed and purged.

use std::collections::BTreeSet;

use highwater_flow::circuit::CircuitState;
use highwater_flow::{
    DeadLetterFilter, EventId, EventIdError, FailedAttempt, ReplayOutcome, StoredDeadLetter,
};
use highwater_log::{EnqueueTime, Offset};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{entry, may_see, processors};
use crate::http::dispatch::ApiRequest;
use crate::http::error::{Code, Error};
use crate::http::read::unix_ms;
use crate::http::reply::{self, Reply};
use crate::processors::event_json;
use crate::text::{parameter, percent_decode, time_text};

/// Dead letters of one request.
const COUNT_DEFAULT: usize = 100;
const COUNT_MAX: usize = 1000;

/// Which dead letters a request is for, and how it treats them.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Selection {
    id: Option<String>,
    /// Several of them.
    #[serde(default)]
    ids: Vec<String>,
    from: Option<String>,
    until: Option<String>,
    reason: Option<String>,
    key: Option<String>,
    /// Continues after this offset of the dead-letter hub.
    after: Option<i64>,
    max: Option<usize>,
    #[serde(default)]
    dry_run: bool,
    /// Includes those that reached `replays_max`.
    #[serde(default)]
    force: bool,
}

impl Selection {
    fn from_query(query: Option<&str>) -> Result<Selection, Error> {
        let text = |name| parameter(query, name).map(|text| text.into_owned());
        let number = |name: &str| match text_of(query, name) {
            None => Ok(None),
            Some(text) => text.parse::<i64>().map(Some).map_err(|_| {
                Error::bad(
                    format!("`{text}` is no number"),
                    format!("such as {name}=100"),
                )
            }),
        };
        Ok(Selection {
            id: text("id"),
            from: text("from"),
            until: text("until"),
            reason: text("reason"),
            key: text("key"),
            after: number("after")?,
            max: number("max")?.map(|max| max.clamp(1, COUNT_MAX as i64) as usize),
            ..Selection::default()
        })
    }

    async fn from_body(request: &mut ApiRequest<'_>) -> Result<Selection, Error> {
        request
            .read_optional_json("{\"reason\":\"timeout\",\"dry_run\":true}")
            .await
    }

    fn event_ids(&self) -> Result<BTreeSet<EventId>, Error> {
        if self.ids.len() > COUNT_MAX {
            let message = format!("{} ids are too many for one request", self.ids.len());
            return Err(Error::bad(message, format!("send up to {COUNT_MAX}")));
        }
        let wrong = |error: EventIdError| {
            Error::bad(error.to_string(), "GET /api/dead-letters/NAME lists them")
        };
        let ids = self.id.iter().chain(&self.ids);
        ids.map(|id| id.parse().map_err(wrong)).collect()
    }

    fn filter(&self) -> Result<DeadLetterFilter, Error> {
        Ok(DeadLetterFilter {
            ids: self.event_ids()?,
            from_ms: unix_ms(self.from.as_deref())?,
            until_ms: unix_ms(self.until.as_deref())?,
            reason: self.reason.clone(),
            key: self.key.clone().map(String::into_bytes),
            replays_max: None,
        })
    }

    fn after(&self) -> Offset {
        Offset(self.after.map_or(0, |after| after.saturating_add(1).max(0)))
    }

    fn max(&self) -> usize {
        self.max.unwrap_or(COUNT_DEFAULT).clamp(1, COUNT_MAX)
    }
}

fn text_of(query: Option<&str>, name: &str) -> Option<String> {
    parameter(query, name).map(|text| text.into_owned())
}

pub(in crate::http) async fn count(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let mut counts = Vec::new();
    let entries = processors(request.app)?.entries();
    for entry in entries
        .iter()
        .filter(|entry| may_see(&request, &entry.spec.name))
    {
        let count = entry.letters.count().await.map_err(unreadable)?;
        let (name, hub) = (&entry.spec.name, entry.spec.dead.as_str());
        counts.push(json!({"processor": name, "hub": hub, "letters": count}));
    }
    Ok(reply::ok(&json!({"dead_letters": counts})))
}

pub(in crate::http) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let entry = entry(&request, name)?;
    let selection = Selection::from_query(request.query())?;
    let found = entry
        .letters
        .find(&selection.filter()?, selection.after(), selection.max())
        .await;
    let found = found.map_err(unreadable)?;
    let letters: Vec<Value> = found.letters.iter().map(summary_json).collect();
    let next = found
        .letters
        .last()
        .filter(|_| found.more)
        .map(|last| last.offset.0);
    let body = json!({"letters": letters, "more": found.more, "next": next});
    Ok(reply::ok(&body))
}

pub(in crate::http) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name, id] = request.variables();
    let (entry, id) = (entry(&request, name)?, percent_decode(id));
    let selection = Selection {
        id: Some(id.to_string()),
        ..Selection::default()
    };
    let mut found = entry
        .letters
        .find(&selection.filter()?, Offset(0), 1)
        .await
        .map_err(unreadable)?;
    let none = || no_letter(&entry.spec.name, &id);
    let stored = found.letters.pop().ok_or_else(none)?;
    let mut letter = summary_json(&stored);
    let attempts: Vec<Value> = stored.letter.attempts.iter().map(attempt).collect();
    letter["attempts"] = attempts.into();
    letter["event"] = event_json(&stored.letter.event);
    Ok(reply::ok(&letter))
}

/// Delivers dead letters to the handler again, one after another. One that fails stays a dead letter.
pub(in crate::http) async fn replay(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let entry = entry(&request, name)?;
    let clock = processors(request.app)?.clock();
    let selection = Selection::from_body(&mut request).await?;
    let filter = DeadLetterFilter {
        replays_max: (!selection.force).then_some(entry.spec.replays_max.saturating_sub(1)),
        ..selection.filter()?
    };
    let found = entry
        .letters
        .find(&filter, selection.after(), selection.max())
        .await
        .map_err(unreadable)?;
    let mut outcome = Outcome::new(&found.letters, found.more);
    if selection.dry_run {
        return Ok(outcome.reply("would_replay"));
    }
    for stored in found.letters {
        if entry.circuit.state() != CircuitState::Closed {
            let message = format!(
                "deliveries to `{}` have stopped, so the replay stops here",
                entry.spec.name
            );
            let hint = format!("highwater circuit close {} resumes them", entry.spec.name);
            let mut error = Error::new(Code::Conflict, message, hint);
            error.details = Some(Box::new(outcome.json("handled")));
            return Err(error);
        }
        let id = stored.letter.event.id().to_string();
        let replayed = entry
            .letters
            .replay(stored, &**clock, |delivery| entry.deliver(delivery))
            .await;
        match replayed.map_err(unwritten)? {
            ReplayOutcome::Handled => outcome.count += 1,
            ReplayOutcome::Failed(reason) => {
                outcome.failed.push(json!({"id": id, "reason": reason}))
            }
        }
    }
    Ok(outcome.reply("handled"))
}

pub(in crate::http) async fn purge(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let entry = entry(&request, name)?;
    let selection = Selection::from_body(&mut request).await?;
    let found = entry
        .letters
        .find(&selection.filter()?, selection.after(), selection.max())
        .await;
    let found = found.map_err(unreadable)?;
    let mut outcome = Outcome::new(&found.letters, found.more);
    if selection.dry_run {
        return Ok(outcome.reply("would_purge"));
    }
    for stored in found.letters {
        entry
            .letters
            .remove(&stored.letter.event.id())
            .await
            .map_err(unwritten)?;
        outcome.count += 1;
    }
    Ok(outcome.reply("purged"))
}

/// The outcome of a request.
struct Outcome {
    ids: Vec<String>,
    count: usize,
    failed: Vec<Value>,
    more: bool,
    /// The offset after which the next request continues.
    next: Option<i64>,
}

impl Outcome {
    fn new(letters: &[StoredDeadLetter], more: bool) -> Outcome {
        Outcome {
            ids: letters
                .iter()
                .map(|stored| stored.letter.event.id().to_string())
                .collect(),
            count: 0,
            failed: Vec::new(),
            more,
            next: letters.last().filter(|_| more).map(|last| last.offset.0),
        }
    }

    fn json(&self, word: &str) -> Value {
        let mut body = json!({"failed": self.failed, "more": self.more, "next": self.next});
        body[word] = match word.starts_with("would") {
            true => self.ids.clone().into(),
            false => self.count.into(),
        };
        body
    }

    fn reply(&self, word: &str) -> Reply {
        reply::ok(&self.json(word))
    }
}

fn summary_json(stored: &StoredDeadLetter) -> Value {
    let letter = &stored.letter;
    let last = letter.attempts.last();
    json!({
        "id": letter.event.id().to_string(), "offset": stored.offset.0,
        "dead": time_text(EnqueueTime(stored.dead_ms)),
        "enqueued": time_text(EnqueueTime(letter.event.timestamp())),
        "key": letter.event.key().map(String::from_utf8_lossy),
        "tries": last.map(|attempt| attempt.number), "reason": last.map(|attempt| &attempt.reason),
        "replays": letter.replays,
    })
}

fn attempt(attempt: &FailedAttempt) -> Value {
    json!({
        "number": attempt.number, "reason": attempt.reason,
        "at": attempt.at_ms.map(|ms| time_text(EnqueueTime(ms))),
    })
}

pub(in crate::http) fn no_letter(processor: &str, id: &str) -> Error {
    let message = format!("`{id}` is no dead letter of `{processor}`");
    Error::not_found(message, "it may have been replayed or purged")
}

pub(in crate::http) fn unreadable(error: highwater_flow::SourceError) -> Error {
    Error::new(
        Code::Stopped,
        format!("the dead letters cannot be read: {error}"),
        "see the log of the node",
    )
}

fn unwritten(error: String) -> Error {
    Error::new(
        Code::Stopped,
        format!("the dead letter stays as it was: {error}"),
        "see the log of the node",
    )
}
