//! The rules of language.md, sections 4 and 5, applied to all events at once.

use std::collections::BTreeSet;

use highwater_engine::Value;

use crate::windows::query::{Event, Query, Window, from_origin};

/// The end of the window in seconds, and the row.
pub(crate) type Row = (i64, Vec<String>);

/// Every row of the query, sorted.
pub(crate) fn rows(query: &Query, partitions: usize, events: &[Event]) -> Vec<Row> {
    rows_of(query, partitions, events, &row)
}

/// The displayed values of a group, keys included.
pub(crate) type Show<'a> = &'a dyn Fn(&Query, &[&Event]) -> Vec<String>;

/// One row for every group of every window, sorted.
pub(crate) fn rows_of(
    query: &Query,
    partitions: usize,
    events: &[Event],
    show: Show<'_>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    if query.apart {
        for partition in 0..partitions {
            let own: Vec<Event> = events
                .iter()
                .filter(|e| e.partition == partition)
                .cloned()
                .collect();
            add_rows(query, &own, show, &mut rows);
        }
    } else {
        add_rows(query, events, show, &mut rows);
    }
    rows.sort();
    rows
}

fn add_rows(query: &Query, events: &[Event], show: Show<'_>, rows: &mut Vec<Row>) {
    let grid = |size: i64, hop: i64, offset: i64| grid_windows(events, size, hop, offset);
    let windows: Vec<(i64, Vec<&Event>)> = match query.window {
        Window::Tumbling { size, offset } => grid(size, size, offset),
        Window::Hopping { size, hop, offset } => grid(size, hop, offset),
        // Events of one instant: all times are whole seconds.
        Window::Snapshot => grid(1, 1, 0),
        Window::Sliding { size } => groups(&in_order(events), &|e| group_key(query, e))
            .iter()
            .flat_map(|group| sliding_windows(group, size))
            .collect(),
        Window::Session {
            timeout,
            max,
            over: false,
        } => session_windows(&in_order(events), timeout, max),
        Window::Session {
            timeout,
            max,
            over: true,
        } => groups(&in_order(events), &|e| key_of(query, &e.k))
            .iter()
            .flat_map(|group| session_windows(group, timeout, max))
            .collect(),
    };
    for (end, content) in windows {
        for group in groups(&content, &|e| group_key(query, e)) {
            rows.push((end, show(query, &group)));
        }
    }
}

/// By time; equal times by partition, then by place (T9).
fn in_order(events: &[Event]) -> Vec<&Event> {
    let mut ordered: Vec<&Event> = events.iter().collect();
    ordered.sort_by_key(|e| (e.second, e.partition, e.number));
    ordered
}

/// All windows (E - size, E] with E on the grid that hold an event (4.1, 4.2). What is shown of equal keys and values
/// is the first in the order of panes, then partitions.
fn grid_windows(events: &[Event], size: i64, hop: i64, offset: i64) -> Vec<(i64, Vec<&Event>)> {
    let on_grid = |end: i64, step: i64| (from_origin(end) - offset).rem_euclid(step) == 0;
    let ends: BTreeSet<i64> = events
        .iter()
        .flat_map(|e| e.second..e.second + size)
        .filter(|end| on_grid(*end, hop))
        .collect();
    let pane = (1..=size)
        .rev()
        .find(|pane| size % pane == 0 && hop % pane == 0)
        .unwrap_or(1);
    let pane_end = |e: &Event| (e.second..).find(|end| on_grid(*end, pane));
    let window = |end: i64| {
        let inside = |e: &&Event| end - size < e.second && e.second <= end;
        let mut content: Vec<&Event> = events.iter().filter(inside).collect();
        content.sort_by_key(|e| (pane_end(e), e.partition, e.second, e.number));
        (end, content)
    };
    ends.into_iter().map(window).collect()
}

/// The content (t - size, t] at every instant at which it changes and is not empty (4.3).
fn sliding_windows<'e>(group: &[&'e Event], size: i64) -> Vec<(i64, Vec<&'e Event>)> {
    let changes: BTreeSet<i64> = group
        .iter()
        .flat_map(|e| [e.second, e.second + size])
        .collect();
    let content = |t: i64| -> Vec<&'e Event> {
        group
            .iter()
            .filter(|e| t - size < e.second && e.second <= t)
            .copied()
            .collect()
    };
    changes
        .into_iter()
        .map(|t| (t, content(t)))
        .filter(|(_, c)| !c.is_empty())
        .collect()
}

/// Second by second, as 4.4 tells it: events first, then the check at multiples of `max`, then the timeout.
fn session_windows<'e>(events: &[&'e Event], timeout: i64, max: i64) -> Vec<(i64, Vec<&'e Event>)> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return Vec::new();
    };
    let mut closed = Vec::new();
    // When the session opened, its last event, its content.
    let mut open: Option<(i64, i64, Vec<&Event>)> = None;
    for t in first.second..=last.second + timeout {
        for event in events.iter().filter(|e| e.second == t) {
            let session = open.get_or_insert((t, t, Vec::new()));
            session.1 = t;
            session.2.push(event);
        }
        if let Some((start, _, content)) = &mut open
            && from_origin(t) % max == 0
            && t - *start >= max
        {
            closed.push((t, std::mem::take(content)));
            *start = t;
        }
        if let Some((_, latest, _)) = &open
            && *latest + timeout == t
        {
            closed.extend(open.take().map(|(_, _, content)| (t, content)));
        }
    }
    closed.retain(|(_, content)| !content.is_empty());
    closed
}

/// Events with equal keys, groups and events in the order given.
fn groups<'e>(events: &[&'e Event], key: &dyn Fn(&Event) -> String) -> Vec<Vec<&'e Event>> {
    let mut groups: Vec<(String, Vec<&Event>)> = Vec::new();
    for event in events {
        let key = key(event);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(event),
            None => groups.push((key, vec![event])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// A session's own key is a group key even if GROUP BY lacks it.
fn group_key(query: &Query, event: &Event) -> String {
    let mut key = String::new();
    if query.keys > 0 || query.window.has_sessions_of_keys() {
        key += &key_of(query, &event.k);
    }
    if query.keys > 1 {
        key += &key_of(query, &event.j);
    }
    key
}

fn key_of(query: &Query, value: &Value) -> String {
    let key = same_key(value);
    match query.ignore_case {
        true => key.to_lowercase(),
        false => key,
    }
}

/// Equal numbers are one key, whatever their type.
pub(crate) fn same_key(value: &Value) -> String {
    match value {
        Value::Int(i) => format!("number {:?};", *i as f64),
        Value::Float(f) => format!("number {f:?};"),
        other => format!("{};", show(other)),
    }
}

/// The keys in their first representation.
pub(crate) fn keys(query: &Query, group: &[&Event]) -> Vec<String> {
    let mut row = Vec::new();
    if query.apart {
        row.push(show(&Value::Int(group[0].partition as i64)));
    }
    row.extend(
        [&group[0].k, &group[0].j][..query.keys]
            .iter()
            .map(|key| show(key)),
    );
    row
}

/// One result row: the keys, COUNT(*), COUNT, SUM, AVG, MIN, MAX.
fn row(query: &Query, group: &[&Event]) -> Vec<String> {
    let mut row = keys(query, group);
    let values: Vec<&Value> = group
        .iter()
        .map(|e| &e.v)
        .filter(|v| !v.is_null())
        .collect();
    let sum: f64 = values.iter().map(|v| number(v)).sum::<f64>() + 0.0;
    let all_ints = values.iter().all(|v| matches!(v, Value::Int(_)));
    let (total, mean) = match values.len() {
        0 => (Value::Null, Value::Null),
        n if all_ints => (Value::Int(sum as i64), Value::Float(sum / n as f64)),
        n => (Value::Float(sum), Value::Float(sum / n as f64)),
    };
    // Of equal values the first one is shown.
    let least = values
        .iter()
        .copied()
        .reduce(|a, b| if number(b) < number(a) { b } else { a });
    let most = values
        .iter()
        .copied()
        .reduce(|a, b| if number(b) > number(a) { b } else { a });
    let counts = [
        Value::Int(group.len() as i64),
        Value::Int(values.len() as i64),
    ];
    row.extend(counts.iter().chain([&total, &mean]).map(show));
    row.extend(
        [least, most]
            .iter()
            .map(|v| show(v.unwrap_or(&Value::Null))),
    );
    row
}

pub(crate) fn number(value: &Value) -> f64 {
    match value {
        Value::Int(i) => *i as f64,
        Value::Float(f) => *f,
        other => panic!("not a number: {other:?}"),
    }
}

/// Value and type.
pub(crate) fn show(value: &Value) -> String {
    format!("{value:?}")
}
