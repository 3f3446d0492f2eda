//! One key of a meeting: how far it has come in each stream, and the operator that works for it.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::Instant;

use super::{Make, Member};
use crate::chunk::Chunk;
use crate::ops::{Context, Item};

pub(super) struct Lane {
    pub key: Arc<[u8]>,
    /// The clock of the key on each side, where that is ahead of the floor.
    pub clocks: Vec<i64>,
    /// The clock that those after us have been told of.
    pub shown: i64,
    /// How many lanes of the streams stand for this key.
    pub named: u32,
    /// When it must be looked at again, as noted.
    pub wakes: Option<i64>,
    /// The latest time of its rows.
    latest: i64,
    /// Made when there are rows, dropped when it holds nothing.
    member: Option<Box<dyn Member>>,
}

impl Lane {
    pub fn new(key: Arc<[u8]>, sides: usize) -> Lane {
        Lane {
            key,
            clocks: vec![i64::MIN; sides],
            shown: i64::MIN,
            named: 0,
            wakes: None,
            latest: i64::MIN,
            member: None,
        }
    }

    /// How far the key has come in all streams.
    pub fn stands(&self, floors: &[i64]) -> i64 {
        let sides = self.clocks.iter().zip(floors);
        sides
            .map(|(clock, floor)| *clock.max(floor))
            .min()
            .unwrap_or(i64::MIN)
    }

    pub fn rows(
        &mut self,
        side: usize,
        rows: Chunk,
        make: &Make,
        floors: &[i64],
        context: &mut Context<'_>,
    ) {
        self.latest = rows.times.iter().copied().fold(self.latest, i64::max);
        if self.member.is_none() {
            self.member = Some(make());
            self.tell(floors, &mut |_| {}, context);
        }
        self.give(side, Item::Rows(rows), &mut |_| {}, context);
    }

    /// Emits what is complete now.
    pub fn advance(
        &mut self,
        floors: &[i64],
        mut emit: impl FnMut(Chunk),
        context: &mut Context<'_>,
    ) {
        self.tell(floors, &mut emit, context);
        if self.member.as_ref().is_some_and(|m| m.wakes().is_none()) {
            self.member = None;
        }
    }

    /// Tells the member how far the key has come in each stream.
    fn tell(&mut self, floors: &[i64], emit: &mut impl FnMut(Chunk), context: &mut Context<'_>) {
        for (side, floor) in floors.iter().enumerate() {
            let watermark = Instant::from_ticks(self.clocks[side].max(*floor));
            self.give(side, Item::Watermark(watermark), emit, context);
        }
    }

    fn give(
        &mut self,
        side: usize,
        item: Item,
        emit: &mut impl FnMut(Chunk),
        context: &mut Context<'_>,
    ) {
        let Some(member) = &mut self.member else {
            return;
        };
        let mut emitted = Vec::new();
        let mut inner = Context {
            out: &mut emitted,
            errors: context.errors,
            trace: context.trace.as_deref_mut(),
        };
        member.push(side, item, &mut inner);
        for item in emitted {
            if let Item::Rows(rows) = item {
                emit(rows);
            }
        }
    }

    /// The time that must have passed before there is something to do: for the member, or for the lane itself once no
    /// stream has it any more.
    pub fn wakes(&self, linger: i64) -> Option<i64> {
        let member = self.member.as_ref().and_then(|member| member.wakes());
        let gone = || (self.named == 0).then(|| self.latest.saturating_add(linger));
        member.or_else(gone)
    }

    pub fn is_done(&self, linger: i64, floor: i64) -> bool {
        self.named == 0 && self.member.is_none() && self.latest.saturating_add(linger) < floor
    }

    pub fn snapshot(&self, out: &mut Vec<u8>) {
        out.blob(&self.key);
        self.clocks.iter().for_each(|clock| out.i64(*clock));
        out.i64(self.shown);
        out.i64(self.latest);
        out.u32(self.named);
        out.u8(self.member.is_some().into());
        if let Some(member) = &self.member {
            let mut state = Vec::new();
            member.snapshot(&mut state);
            out.blob(&state);
        }
    }

    pub fn restore(sides: usize, make: &Make, from: &mut Reader<'_>) -> Result<Lane, DecodeError> {
        let mut lane = Lane::new(from.blob()?.into(), sides);
        for clock in &mut lane.clocks {
            *clock = from.i64()?;
        }
        lane.shown = from.i64()?;
        lane.latest = from.i64()?;
        lane.named = from.u32()?;
        if from.u8()? != 0 {
            let mut state = Reader::new(from.blob()?);
            let mut member = make();
            member.restore(&mut state)?;
            if !state.is_done() {
                return Err(DecodeError::Invalid("an operator left bytes unread"));
            }
            lane.member = Some(member);
        }
        Ok(lane)
    }
}
