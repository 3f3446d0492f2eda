//! Session windows: events that follow each other closely, cut at a largest duration.
//!
//! A session closes `timeout` after its last event, or at the first multiple of `max` that is at least `max` after its
//! start, whichever comes first. After a cut the next session starts at the cut, if an event comes while the old one
//! would still have been open; otherwise nothing is left of it. Without OVER all events of a lane share one session and
//! only the rows are split by the group keys.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashTable;
use highwater_time::{Duration, Instant};

use super::WindowEntry;
use super::agenda::Agenda;
use super::groups::{Encoded, GroupSpec, Groups, Prepared};
use super::lanes::{LaneWindow, Notes, RowsOut};
use crate::codec::{Reader, RestoreError, Writer};

pub(crate) struct Sessions {
    spec: Arc<GroupSpec>,
    rule: Rule,
    /// Which keys have sessions of their own.
    over: Vec<usize>,
    table: HashTable<u32>,
    open: Vec<Option<Open>>,
    free: Vec<u32>,
    due: Agenda<Vec<Due>>,
    born: u64,
    slots: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Rule {
    timeout: Duration,
    max: Duration,
}

struct Open {
    lane: u32,
    hash: u64,
    key: Box<[u8]>,
    window: Building,
    last: i64,
    /// When [`Due::Check`] looks at this session next.
    check: i64,
}

/// What a session has gathered so far.
struct Building {
    /// Sessions of one instant come out in the order in which they began; what is left of one after a cut keeps its
    /// place.
    born: u64,
    start: i64,
    groups: Groups,
    origins: Vec<u64>,
}

enum Due {
    /// See whether an open session has come to its end.
    Check(u32),
    /// A session that ended at this instant, found out when a later row came.
    Closed(Box<Building>),
}

impl Rule {
    /// When a session closes if no further event comes, and whether by the largest duration.
    fn close(&self, start: i64, last: i64) -> (i64, bool) {
        let timeout = last.saturating_add(self.timeout.ticks());
        let cut = Instant::from_ticks(start.saturating_add(self.max.ticks()))
            .ceil_to(self.max, Duration::ZERO)
            .ticks();
        if cut <= timeout {
            (cut, true)
        } else {
            (timeout, false)
        }
    }
}

impl Sessions {
    pub fn new(
        spec: Arc<GroupSpec>,
        timeout: Duration,
        max: Duration,
        over: Option<Vec<usize>>,
    ) -> Sessions {
        Sessions {
            spec,
            rule: Rule { timeout, max },
            over: over.unwrap_or_default(),
            table: HashTable::new(),
            open: Vec::new(),
            free: Vec::new(),
            due: Agenda::default(),
            born: 0,
            slots: Vec::new(),
        }
    }

    fn find(&self, lane: u32, hash: u64, key: &[u8]) -> Option<u32> {
        let same = |&slot: &u32| {
            self.open[slot as usize]
                .as_ref()
                .is_some_and(|s| s.lane == lane && &*s.key == key)
        };
        self.table.find(hash, same).copied()
    }

    /// The open session that an event at `time` belongs to, after closing what ended before it.
    fn session_at(&mut self, lane: u32, hash: u64, key: &[u8], time: i64) -> u32 {
        if let Some(slot) = self.find(lane, hash, key) {
            while let Some((end, closed)) = self.close_before(slot, time) {
                if closed.groups.len() > 0 {
                    self.due
                        .at(lane, end, Vec::new)
                        .push(Due::Closed(Box::new(closed)));
                }
            }
            if self.open[slot as usize].is_some() {
                return slot;
            }
        }
        self.born += 1;
        let groups = Groups::new(&self.spec);
        let window = Building {
            born: self.born,
            start: time,
            groups,
            origins: Vec::new(),
        };
        let (check, _) = self.rule.close(time, time);
        let slot = self.insert(Open {
            lane,
            hash,
            key: key.into(),
            window,
            last: time,
            check,
        });
        self.due.at(lane, check, Vec::new).push(Due::Check(slot));
        slot
    }

    /// Ends the session if it closes before `time`. One that is cut goes on, empty, from the cut.
    fn close_before(&mut self, slot: u32, time: i64) -> Option<(i64, Building)> {
        let session = self.open[slot as usize].as_ref()?;
        let (end, cut) = self.rule.close(session.window.start, session.last);
        if end >= time {
            return None;
        }
        if cut {
            let (born, groups) = (session.window.born, Groups::new(&self.spec));
            let next = Building {
                born,
                start: end,
                groups,
                origins: Vec::new(),
            };
            let session = self.open[slot as usize].as_mut()?;
            return Some((end, std::mem::replace(&mut session.window, next)));
        }
        self.remove(slot).map(|session| (end, session.window))
    }

    fn insert(&mut self, session: Open) -> u32 {
        let hash = session.hash;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.open[slot as usize] = Some(session);
                slot
            }
            None => {
                self.open.push(Some(session));
                (self.open.len() - 1) as u32
            }
        };
        let open = &self.open;
        self.table.insert_unique(hash, slot, |&slot| {
            open[slot as usize]
                .as_ref()
                .map_or(0, |session| session.hash)
        });
        slot
    }

    fn remove(&mut self, slot: u32) -> Option<Open> {
        let session = self.open[slot as usize].take()?;
        if let Ok(entry) = self.table.find_entry(session.hash, |&other| other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        Some(session)
    }

    /// What a check at `due` closes; an open session is looked at again when it may close.
    fn check(&mut self, slot: u32, due: i64) -> Option<Building> {
        let session = self.open[slot as usize].as_ref()?;
        if session.check != due {
            return None; // the place was taken by a later session, which has a check of its own
        }
        let lane = session.lane;
        let closed = self
            .close_before(slot, due.saturating_add(1))
            .map(|(_, closed)| closed);
        if let Some(session) = &mut self.open[slot as usize] {
            session.check = self.rule.close(session.window.start, session.last).0;
            self.due
                .at(lane, session.check, Vec::new)
                .push(Due::Check(slot));
        }
        closed
    }
}

impl LaneWindow for Sessions {
    fn spec(&self) -> &GroupSpec {
        &self.spec
    }

    fn rows(&mut self, input: &Prepared, lane: u32, rows: Range<usize>, notes: &mut Notes<'_>) {
        let over = Encoded::new(
            self.over.iter().map(|&key| &input.keys[key]),
            input.chunk.rows(),
        );
        for row in rows {
            let time = input.chunk.times[row];
            let slot = self.session_at(lane, over.hash(row), over.key(row), time);
            let Some(session) = &mut self.open[slot as usize] else {
                continue;
            };
            session.last = time;
            let groups = &mut session.window.groups;
            groups.add(
                &self.spec,
                input,
                row..row + 1,
                &mut self.slots,
                notes.errors,
            );
            if let (true, Some(origins)) = (notes.tracing(), &input.chunk.origins) {
                session.window.origins.push(origins[row]);
            }
        }
    }

    fn advance(
        &mut self,
        lane: Option<u32>,
        watermark: Instant,
        out: &mut RowsOut,
        notes: &mut Notes<'_>,
    ) {
        while let Some((lane, end, due)) = self.due.pop(lane, watermark) {
            let mut closed: Vec<Building> = Vec::new();
            for due in due {
                match due {
                    Due::Closed(window) => closed.push(*window),
                    Due::Check(slot) => closed.extend(self.check(slot, end)),
                }
            }
            closed.sort_unstable_by_key(|window| window.born);
            out.lane = lane;
            for window in closed {
                window.groups.emit(&self.spec, end, out, notes.errors);
                if let Some(trace) = &mut notes.trace {
                    trace.extend(window.origins.iter().map(|&origin| WindowEntry {
                        origin,
                        start: Instant::from_ticks(window.start),
                        end: Instant::from_ticks(end),
                    }));
                }
            }
        }
    }

    fn snapshot(&self, out: &mut Writer) {
        out.u64(self.born);
        out.count(self.open.len());
        for session in &self.open {
            out.u8(session.is_some().into());
            let Some(session) = session else { continue };
            out.u32(session.lane);
            out.u64(session.hash);
            out.blob(&session.key);
            session.window.snapshot(out);
            out.i64(session.last);
            out.i64(session.check);
        }
        out.count(self.free.len());
        self.free.iter().for_each(|&slot| out.u32(slot));
        self.due.snapshot(out, |dues, out| {
            out.count(dues.len());
            for due in dues {
                match due {
                    Due::Check(slot) => {
                        out.u8(0);
                        out.u32(*slot);
                    }
                    Due::Closed(window) => {
                        out.u8(1);
                        window.snapshot(out);
                    }
                }
            }
        });
    }

    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), RestoreError> {
        let over = Some(std::mem::take(&mut self.over));
        let mut fresh = Sessions::new(self.spec.clone(), self.rule.timeout, self.rule.max, over);
        fresh.born = from.u64()?;
        let places = from.count()?;
        for _ in 0..places {
            if from.u8()? == 0 {
                fresh.open.push(None);
                continue;
            }
            let (lane, hash, key) = (from.u32()?, from.u64()?, from.blob()?.into());
            let window = Building::restore(&self.spec, from)?;
            let (last, check) = (from.i64()?, from.i64()?);
            fresh.insert(Open {
                lane,
                hash,
                key,
                window,
                last,
                check,
            });
        }
        let known = |slot: u32| {
            if (slot as usize) < places {
                Ok(slot)
            } else {
                Err(RestoreError("an unknown session"))
            }
        };
        for _ in 0..from.count()? {
            fresh.free.push(known(from.u32()?)?);
        }
        fresh.due = Agenda::restore(from, |from| {
            (0..from.count()?)
                .map(|_| match from.u8()? {
                    0 => Ok(Due::Check(known(from.u32()?)?)),
                    _ => Ok(Due::Closed(Box::new(Building::restore(&self.spec, from)?))),
                })
                .collect()
        })?;
        *self = fresh;
        Ok(())
    }
}

impl Building {
    fn snapshot(&self, out: &mut Writer) {
        out.u64(self.born);
        out.i64(self.start);
        self.groups.snapshot(out);
    }

    fn restore(spec: &GroupSpec, from: &mut Reader<'_>) -> Result<Building, RestoreError> {
        Ok(Building {
            born: from.u64()?,
            start: from.i64()?,
            groups: Groups::restore(spec, from)?,
            origins: Vec::new(),
        })
    }
}
