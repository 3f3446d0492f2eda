//! Lists instances page by page: those in progress, then ended ones, each the newest first.
//!
//! Instances in progress are in memory. Ended ones are on a hub with one record each, in the order in which they ended;
//! a list reads it backwards in windows, and stops after [`SCAN_MAX`] records even if few of them match. A page says
//! where the next one continues, so a list of any length costs no more per page than a short one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use highwater_log::Offset;
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::journal::JournalError;
use crate::machine::{Instance, Phase, View};

/// Ended instances that one page looks at.
const SCAN_MAX: usize = 5000;

/// Ended instances of one window.
const WINDOW_MIN: usize = 16;
const WINDOW_MAX: usize = 512;

/// The names of the states of instances: in progress, then ended.
pub const STATES: &[&str] = &[
    "running",
    "failing",
    "undoing",
    "parked",
    "completed",
    "refused",
    "failed",
    "cancelled",
    "resolved",
];

/// The names of the states of instances in progress.
pub const STATES_IN_PROGRESS: &[&str] = STATES.split_at(4).0;

/// Which instances to list.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// Names of states; empty means all.
    pub states: Vec<String>,
    /// The version begins with this text.
    pub version: Option<String>,
    /// The id begins with this text.
    pub id: Option<String>,
    /// Started at this time or later, in milliseconds since 1970.
    pub from_ms: Option<i64>,
    /// Started before this time.
    pub until_ms: Option<i64>,
    /// Continues after the page that had this as its `next`.
    pub after: Option<ListCursor>,
    pub limit: usize,
}

/// An instance in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstanceSummary {
    pub id: String,
    #[serde(default)]
    pub version: String,
    pub state: String,
    pub started_ms: i64,
    pub changed_ms: i64,
    /// The step in progress, or the failed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Instances of a list.
#[derive(Clone, Debug, Default)]
pub struct InstancePage {
    pub instances: Vec<InstanceSummary>,
    /// Where the next page continues. A page may have fewer instances than asked for, and still not be the last.
    pub next: Option<ListCursor>,
}

/// The end of a page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListCursor {
    /// The last instance of the page is in progress.
    InProgress { started_ms: i64, id: String },
    /// The page has no ended instances from these offsets on, one for each partition.
    Ended(Vec<Offset>),
}

/// A text that is not a cursor of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the end of a page")]
pub struct ListCursorError(String);

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListCursor::InProgress { started_ms, id } => write!(f, "r.{started_ms}.{id}"),
            ListCursor::Ended(offsets) => {
                let offsets: Vec<String> = offsets.iter().map(Offset::to_string).collect();
                write!(f, "e.{}", offsets.join("."))
            }
        }
    }
}

impl FromStr for ListCursor {
    type Err = ListCursorError;

    fn from_str(text: &str) -> Result<ListCursor, ListCursorError> {
        let parsed = || match text.split_once('.')? {
            ("r", rest) => {
                let (started_ms, id) = rest.split_once('.')?;
                Some(ListCursor::InProgress {
                    started_ms: started_ms.parse().ok()?,
                    id: id.to_owned(),
                })
            }
            ("e", rest) => {
                let offsets = rest.split('.').map(|text| text.parse().ok().map(Offset));
                offsets.collect::<Option<_>>().map(ListCursor::Ended)
            }
            _ => None,
        };
        parsed().ok_or_else(|| ListCursorError(text.chars().take(300).collect()))
    }
}

impl ListFilter {
    fn has_state(&self, state: &str) -> bool {
        self.states.is_empty() || self.states.iter().any(|wanted| wanted == state)
    }

    /// Whether instances in progress can match.
    pub(super) fn wants_in_progress(&self) -> bool {
        let mut in_progress = STATES_IN_PROGRESS.iter();
        in_progress.any(|state| self.has_state(state))
            && !matches!(self.after, Some(ListCursor::Ended(_)))
    }

    fn wants_ended(&self) -> bool {
        let in_progress = |state: &String| STATES_IN_PROGRESS.contains(&state.as_str());
        self.states.is_empty() || !self.states.iter().all(in_progress)
    }

    fn fits(&self, summary: &InstanceSummary) -> bool {
        self.has_state(&summary.state)
            && self.fits_facts(&summary.id, &summary.version, summary.started_ms)
    }

    fn fits_facts(&self, id: &str, version: &str, started_ms: i64) -> bool {
        let begins = |text: &str, begin: &Option<String>| {
            begin
                .as_ref()
                .is_none_or(|begin| text.starts_with(&**begin))
        };
        begins(id, &self.id)
            && begins(version, &self.version)
            && self.from_ms.is_none_or(|from| started_ms >= from)
            && self.until_ms.is_none_or(|until| started_ms < until)
    }

    fn fits_instance(&self, instance: &Instance) -> bool {
        // The text of a version is made only if it is asked for.
        let version = match self.version {
            Some(_) => instance.version.to_string(),
            None => String::new(),
        };
        // The instance with the id itself is first on the first page.
        self.id.as_deref() != Some(&*instance.id)
            && self.has_state(instance.phase.name())
            && self.fits_facts(&instance.id, &version, instance.started_ms)
    }

    /// Up to `limit` instances in progress that match, and one more if there are more; the newest first.
    pub(super) fn select<'i>(
        &self,
        instances: impl Iterator<Item = &'i Instance>,
    ) -> Vec<InstanceSummary> {
        let newest =
            |a: &&Instance, b: &&Instance| (b.started_ms, &b.id).cmp(&(a.started_ms, &a.id));
        let is_after = |instance: &Instance| match &self.after {
            Some(ListCursor::InProgress { started_ms, id }) => {
                (instance.started_ms, &*instance.id) < (*started_ms, id.as_str())
            }
            Some(ListCursor::Ended(_)) => false,
            None => true,
        };
        let ended = |instance: &Instance| matches!(instance.phase, Phase::Ended(_));
        let mut found: Vec<&Instance> = instances
            .filter(|instance| {
                !ended(instance) && is_after(instance) && self.fits_instance(instance)
            })
            .collect();
        // Of a hundred thousand, only those of the page are sorted.
        if found.len() > self.limit + 1 {
            found.select_nth_unstable_by(self.limit, newest);
            found.truncate(self.limit + 1);
        }
        found.sort_by(newest);
        found.into_iter().map(InstanceSummary::from).collect()
    }
}

impl From<&Instance> for InstanceSummary {
    fn from(instance: &Instance) -> InstanceSummary {
        let name = |step: usize| instance.definition.steps[step].name.clone();
        let cause = instance.cause.as_ref();
        let task = instance.tasks().next().map(|task| task.step);
        let step = task.or(cause.and_then(|cause| cause.step));
        InstanceSummary {
            id: instance.id.to_string(),
            version: instance.version.to_string(),
            state: instance.phase.name().to_owned(),
            started_ms: instance.started_ms,
            changed_ms: instance.changed_ms,
            step: step.map(|step| name(usize::from(step))),
            reason: cause.map(|cause| cause.reason.clone()),
        }
    }
}

impl From<View> for InstanceSummary {
    fn from(view: View) -> InstanceSummary {
        InstanceSummary {
            id: view.id,
            version: view.version,
            state: view.state,
            started_ms: view.started_ms,
            changed_ms: view.changed_ms,
            step: view.blame,
            reason: view.reason,
        }
    }
}

/// Makes a page of the instances in progress, given by each shard, and of the histories.
pub(super) async fn page(
    filter: &ListFilter,
    exact: Option<View>,
    mut in_progress: Vec<InstanceSummary>,
    histories: &[Arc<History>],
) -> Result<InstancePage, JournalError> {
    let mut page = InstancePage::default();
    let exact = exact.map(InstanceSummary::from);
    page.instances
        .extend(exact.filter(|exact| filter.fits(exact)));
    in_progress.sort_by(|a, b| (b.started_ms, &b.id).cmp(&(a.started_ms, &a.id)));
    // An instance that is handed over while the list is made may be with both shards.
    in_progress.dedup_by(|a, b| a.id == b.id);
    let room = filter.limit.saturating_sub(page.instances.len()).max(1);
    let more = in_progress.len() > room;
    page.instances.extend(in_progress.into_iter().take(room));
    if more {
        page.next = page.instances.last().map(|last| ListCursor::InProgress {
            started_ms: last.started_ms,
            id: last.id.clone(),
        });
        return Ok(page);
    }
    if filter.wants_ended() {
        let offsets = match &filter.after {
            Some(ListCursor::Ended(offsets)) => offsets.as_slice(),
            _ => &[],
        };
        let mut ended = EndedInstances::new(filter, histories, offsets);
        while page.instances.len() < filter.limit {
            match ended.next().await? {
                Some(summary) => page.instances.push(summary),
                None => break,
            }
        }
        page.next = ended.cursor();
    }
    Ok(page)
}

/// The ended instances that match, the last ended first, merged over the partitions.
struct EndedInstances<'l> {
    filter: &'l ListFilter,
    partitions: Vec<BackwardReader<'l>>,
    scanned: usize,
}

/// Reads the history of a partition backwards.
struct BackwardReader<'l> {
    history: &'l History,
    /// Matching instances that were read and not taken yet, the last ended last.
    read: Vec<(Offset, InstanceSummary)>,
    /// Instances before this offset are not read yet.
    unread: Offset,
}

impl<'l> EndedInstances<'l> {
    fn new(filter: &'l ListFilter, histories: &'l [Arc<History>], before: &[Offset]) -> Self {
        let reader = |(at, history): (usize, &'l Arc<History>)| BackwardReader {
            history,
            read: Vec::new(),
            unread: match before.get(at) {
                Some(before) => (*before).min(history.end()),
                None => history.end(),
            },
        };
        EndedInstances {
            filter,
            partitions: histories.iter().enumerate().map(reader).collect(),
            scanned: 0,
        }
    }

    /// `None` at the end, and when enough was read for one page.
    async fn next(&mut self) -> Result<Option<InstanceSummary>, JournalError> {
        for reader in &mut self.partitions {
            while reader.read.is_empty() && !reader.is_at_end() {
                if self.scanned >= SCAN_MAX {
                    return Ok(None);
                }
                self.scanned += reader.read_window(self.filter).await?;
            }
        }
        let last_ended = |reader: &&mut BackwardReader<'_>| {
            reader.read.last().map(|(_, summary)| summary.changed_ms)
        };
        let latest = self.partitions.iter_mut().max_by_key(last_ended);
        let taken = latest.and_then(|reader| reader.read.pop());
        Ok(taken.map(|(_, summary)| summary))
    }

    /// Where the next page continues; `None` at the end.
    fn cursor(&self) -> Option<ListCursor> {
        let at_end = |reader: &BackwardReader<'_>| reader.read.is_empty() && reader.is_at_end();
        if self.partitions.iter().all(at_end) {
            return None;
        }
        let offset = |reader: &BackwardReader<'_>| match reader.read.last() {
            Some((offset, _)) => Offset(offset.0 + 1),
            None => reader.unread,
        };
        Some(ListCursor::Ended(
            self.partitions.iter().map(offset).collect(),
        ))
    }
}

impl BackwardReader<'_> {
    fn is_at_end(&self) -> bool {
        self.unread <= self.history.start()
    }

    /// Reads the window before the ones read so far. Returns the number of its records.
    async fn read_window(&mut self, filter: &ListFilter) -> Result<usize, JournalError> {
        let length = filter.limit.clamp(WINDOW_MIN, WINDOW_MAX) as i64;
        let begin = Offset(self.unread.0.saturating_sub(length)).max(self.history.start());
        let range = begin..self.unread;
        self.unread = begin;
        let instances = self.history.range(range).await?;
        let count = instances.len();
        // Instances that ended before this time started before it, too.
        let first_ended = instances.first().map(|(_, instance)| instance.changed_ms);
        if filter.from_ms.is_some_and(|from| first_ended < Some(from)) && count > 0 {
            self.unread = self.history.start();
        }
        let matching = instances
            .iter()
            .filter(|(_, instance)| filter.fits_instance(instance));
        self.read = matching
            .map(|(offset, instance)| (*offset, InstanceSummary::from(instance)))
            .collect();
        // A window without readable records still counts, or a damaged history would never end a page.
        Ok(count.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::End;

    #[test]
    fn the_states_are_those_of_the_machine() {
        let in_progress = [
            Phase::Running,
            Phase::Failing,
            Phase::Undoing,
            Phase::Parked,
        ];
        assert_eq!(in_progress.map(Phase::name), STATES_IN_PROGRESS);
        let ended = End::ALL.map(|end| Phase::Ended(end).name());
        assert_eq!(ended, STATES[4..]);
    }

    #[test]
    fn a_cursor_reads_back_from_its_text() {
        let cursors = [
            ListCursor::InProgress {
                started_ms: -5,
                id: "AB 1, 10:04.5".into(),
            },
            ListCursor::Ended(vec![Offset(0), Offset(71)]),
        ];
        for cursor in cursors {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for wrong in ["", "r", "r.5", "e.", "e.1.x", "x.1"] {
            assert!(wrong.parse::<ListCursor>().is_err(), "{wrong}");
        }
    }
}
