//! The page of one queue.

use std::time::Duration;

use highwater_access::{Resource, Right};
use highwater_console::View;
use highwater_console::format::{bytes, count, plural, rate, seconds, segment};
use highwater_console::parts::{Figure, Pager};
use highwater_console::queue::{
    DeadLetterCause, QueueLists, QueueMessage, QueuePage, QueueSession,
};
use highwater_queue::{
    DeadLetterSummary, PeekedMessage, Queue, QueueStats, ReceiveLimit, SubQueue,
};

use super::Context;
use super::payload::{LIST_BYTES, payload};
use super::queues::{age_seconds, counts};
use crate::http::error::Error;
use crate::http::queues::{find_queue, state_name};
use crate::http::read;
use crate::text::parameter;

/// Messages of each list.
const MESSAGES_SHOWN: usize = 25;

/// Bytes of the messages of each list.
const MESSAGES_BYTES_MAX: usize = 1 << 20;

/// Sessions of a page.
const SESSIONS_SHOWN: usize = 50;

/// The part of a body that is decoded.
const BODY_BYTES_MAX: usize = 64 << 10;

const LIMIT: ReceiveLimit = ReceiveLimit {
    // One more tells whether there is another page.
    count: MESSAGES_SHOWN + 1,
    bytes: MESSAGES_BYTES_MAX,
};

pub(in crate::http) async fn view(context: &Context<'_>) -> Result<View, Error> {
    let [name] = context.variables.all();
    let queue = find_queue(context.app, name)?;
    let stats = queue.stats().await?;
    let resource = Resource::Queue(name);
    let lists = match context.live {
        true => None,
        false => Some(lists(context, &queue, &stats).await?),
    };
    Ok(View::from(&QueuePage {
        name: name.to_owned(),
        figures: figures(context, name, &stats),
        counts: counts(&stats.counts),
        settings: settings(&stats),
        totals: totals(&stats),
        has_sessions: stats.settings.sessions,
        may_send: context.caller.may(Right::Send, resource),
        may_manage: context.caller.may(Right::Manage, resource),
        lists,
    }))
}

fn figures(context: &Context<'_>, name: &str, stats: &QueueStats) -> Vec<Figure> {
    let series = context.app.console.figures.queue(name);
    let counts = &stats.counts;
    let (sent, completed) = (series.sent, series.completed);
    let active = format!("{} · {}", count(counts.active), rate(sent.rate()));
    let locked = format!("{} · {}", count(counts.locked), rate(completed.rate()));
    let oldest = age_seconds(context, stats.oldest_ready_ms);
    vec![
        Figure::new("active · sent", active).history(sent.points()),
        Figure::new("locked · completed", locked).history(completed.points()),
        Figure::new("scheduled", count(counts.scheduled)),
        Figure::new("deferred", count(counts.deferred)),
        Figure::new("dead letters", count(counts.dead)).bad_if(counts.dead > 0),
        Figure::new("oldest active", oldest.map_or("none".into(), seconds)),
    ]
}

fn settings(stats: &QueueStats) -> Vec<(&'static str, String)> {
    let settings = &stats.settings;
    let time = |time: Duration| seconds(time.as_secs_f64());
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    vec![
        ("Lock", time(settings.lock)),
        (
            "Deliveries",
            format!(
                "{} at most, then a dead letter",
                count(settings.deliveries_max.into())
            ),
        ),
        (
            "Time to live",
            settings.time_to_live.map_or("forever".into(), time),
        ),
        (
            "Expired become dead letters",
            yes(settings.dead_letter_expired),
        ),
        (
            "Duplicates are found within",
            settings.duplicates_within.map_or("off".into(), time),
        ),
        ("Sessions", yes(settings.sessions)),
        (
            "Size",
            format!(
                "{} of {}",
                bytes(stats.counts.bytes),
                bytes(settings.bytes_max)
            ),
        ),
        (
            "Message size",
            format!("{} at most", bytes(settings.message_bytes_max.into())),
        ),
    ]
}

fn totals(stats: &QueueStats) -> Vec<(&'static str, u64)> {
    let totals = &stats.totals;
    vec![
        ("Sent", totals.sent),
        ("Duplicates", totals.duplicates),
        ("Received", totals.received),
        ("Completed", totals.completed),
        ("Abandoned", totals.abandoned),
        ("Locks expired", totals.locks_lost),
        ("Expired", totals.expired),
        ("Dead-lettered", totals.dead_lettered),
    ]
}

async fn lists(
    context: &Context<'_>,
    queue: &Queue,
    stats: &QueueStats,
) -> Result<QueueLists, Error> {
    let _share = context.app.budget.try_take(3 * MESSAGES_BYTES_MAX)?;
    let query = context.query;
    let link = |parameter: &str, value: &str| {
        let name = segment(queue.name());
        format!("/console/queues/{name}?{parameter}={}", segment(value))
    };
    let mut lists = QueueLists {
        from: parameter(query, "from").unwrap_or_default().into_owned(),
        ..QueueLists::default()
    };
    let from = match lists.from.is_empty() {
        true => Ok(1),
        false => read::count(query, "from", 1),
    };
    match from {
        Ok(from) => {
            let peeked = queue.peek(SubQueue::Main, from, LIMIT).await?;
            let (messages, next) = shown(&peeked);
            lists.messages = messages;
            lists.pager.after = next.map(|next| link("from", &next.to_string()));
            lists.pager.before = (from > 1).then(|| link("from", "1"));
        }
        Err(error) => lists.error = Some(format!("{} ({})", error.message, error.hint)),
    }
    if stats.counts.dead > 0 {
        let from = read::count(query, "dead", 1).unwrap_or(1);
        let peeked = queue.peek(SubQueue::DeadLetters, from, LIMIT).await?;
        let (dead, next) = shown(&peeked);
        lists.dead = dead;
        lists.dead_pager = Pager {
            before: (from > 1).then(|| link("dead", "1")),
            after: next.map(|next| link("dead", &next.to_string())),
            text: String::new(),
        };
        let summary = queue.dead_letter_summary().await?;
        lists.dead_reasons = reasons(&summary);
        (lists.dead_unlocked, lists.dead_locked) = (summary.unlocked, summary.locked);
    }
    if stats.counts.scheduled > 0 {
        lists.scheduled = shown(&queue.peek_scheduled(LIMIT).await?).0;
    }
    if stats.settings.sessions {
        let after = parameter(query, "session").map(|name| name.into_owned());
        let mut sessions = queue.list_sessions(after, SESSIONS_SHOWN + 1).await?;
        let more = sessions.len() > SESSIONS_SHOWN;
        sessions.truncate(SESSIONS_SHOWN);
        let last = sessions.last().filter(|_| more);
        lists.sessions_pager.after = last.map(|last| link("session", &last.session));
        let sessions = sessions.into_iter().map(|session| QueueSession {
            name: session.session,
            ready: session.ready as u64,
            locked: session.locked as u64,
            locked_until_ms: session.locked_until_ms,
            state_bytes: session.state_bytes as u64,
        });
        lists.sessions = sessions.collect();
    }
    Ok(lists)
}

/// `9 × expired, 3 × refused`
fn reasons(summary: &DeadLetterSummary) -> String {
    let mut reasons: Vec<(&String, &u64)> = summary.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let shown = reasons.iter().take(5);
    let mut shown: Vec<String> = shown
        .map(|(reason, number)| {
            let reason: String = reason.chars().take(60).collect();
            format!("{} × {reason}", count(**number))
        })
        .collect();
    let rest = reasons.iter().skip(5).map(|(_, count)| **count);
    let rest = rest.sum::<u64>() + summary.other;
    if rest > 0 {
        shown.push(format!("{} for other reasons", plural(rest, "message")));
    }
    shown.join(", ")
}

/// The messages of a page, and the number that the next page begins with.
fn shown(peeked: &[PeekedMessage]) -> (Vec<QueueMessage>, Option<u64>) {
    let messages = peeked.iter().take(MESSAGES_SHOWN).map(message);
    let next = peeked.get(MESSAGES_SHOWN).map(|next| next.seq);
    (messages.collect(), next)
}

fn message(peeked: &PeekedMessage) -> QueueMessage {
    let PeekedMessage { seq, message } = peeked;
    let content = &message.content;
    let start = &content.body[..content.body.len().min(BODY_BYTES_MAX)];
    QueueMessage {
        sequence: *seq,
        state: state_name(message.state),
        time_ms: message.enqueued_ms,
        expires_ms: message.expires_ms,
        deliveries: message.deliveries.into(),
        id: content.id.clone(),
        session: content.session.clone(),
        content_type: content.content_type.clone(),
        properties: content.properties.clone(),
        dead_letter: message.dead_letter.as_ref().map(|dead| DeadLetterCause {
            reason: dead.reason.clone(),
            description: dead.description.clone(),
            time_ms: dead.at_ms,
        }),
        body: payload(
            start,
            content.body.len(),
            content.content_type.as_deref(),
            LIST_BYTES,
        ),
    }
}
