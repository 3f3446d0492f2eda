//! One key of a substream join: its watermark in each stream, and its operator.

use std::sync::Arc;

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_time::Instant;

use super::{KeyOperator, MakeOperator};
use crate::chunk::Chunk;
use crate::ops::{Context, Item};

pub(super) struct Lane {
    pub key: Arc<[u8]>,
    /// The watermark of the key on each side, if it is ahead of the floor.
    pub watermarks: Vec<i64>,
    /// The last emitted watermark.
    pub emitted_watermark: i64,
    /// The number of stream lanes that have this key.
    pub stream_lanes: u32,
    /// When it must be visited, as scheduled.
    pub next_due: Option<i64>,
    /// The latest time of its rows.
    latest: i64,
    /// Created for the first row, dropped when it has no state.
    operator: Option<Box<dyn KeyOperator>>,
}

impl Lane {
    pub(super) fn new(key: Arc<[u8]>, sides: usize) -> Lane {
        Lane {
            key,
            watermarks: vec![i64::MIN; sides],
            emitted_watermark: i64::MIN,
            stream_lanes: 0,
            next_due: None,
            latest: i64::MIN,
            operator: None,
        }
    }

    /// The minimum watermark over the sides.
    pub(super) fn watermark(&self, floors: &[i64]) -> i64 {
        let sides = self.watermarks.iter().zip(floors);
        sides
            .map(|(clock, floor)| *clock.max(floor))
            .min()
            .unwrap_or(i64::MIN)
    }

    pub(super) fn rows(
        &mut self,
        side: usize,
        rows: Chunk,
        make: &MakeOperator,
        floors: &[i64],
        context: &mut Context<'_>,
    ) {
        self.latest = rows.times.iter().copied().fold(self.latest, i64::max);
        if self.operator.is_none() {
            self.operator = Some(make());
            self.push_watermarks(floors, &mut |_| {}, context);
        }
        self.push(side, Item::Rows(rows), &mut |_| {}, context);
    }

    /// Emits the results that the watermarks complete.
    pub(super) fn advance(
        &mut self,
        floors: &[i64],
        mut emit: impl FnMut(Chunk),
        context: &mut Context<'_>,
    ) {
        self.push_watermarks(floors, &mut emit, context);
        if self
            .operator
            .as_ref()
            .is_some_and(|m| m.next_due().is_none())
        {
            self.operator = None;
        }
    }

    /// Pushes the watermark of each side to the operator.
    fn push_watermarks(
        &mut self,
        floors: &[i64],
        emit: &mut impl FnMut(Chunk),
        context: &mut Context<'_>,
    ) {
        for (side, floor) in floors.iter().enumerate() {
            let watermark = Instant::from_ticks(self.watermarks[side].max(*floor));
            self.push(side, Item::Watermark(watermark), emit, context);
        }
    }

    fn push(
        &mut self,
        side: usize,
        item: Item,
        emit: &mut impl FnMut(Chunk),
        context: &mut Context<'_>,
    ) {
        let Some(operator) = &mut self.operator else {
            return;
        };
        let mut emitted = Vec::new();
        let mut inner = Context {
            out: &mut emitted,
            errors: context.errors,
            budget: context.budget,
            trace: context.trace.as_deref_mut(),
        };
        operator.push(side, item, &mut inner);
        for item in emitted {
            if let Item::Rows(rows) = item {
                emit(rows);
            }
        }
    }

    /// The time that must have passed before there is something to do: for the operator, or for the lane itself once no
    /// stream has it any more.
    pub(super) fn next_due(&self, retention: i64) -> Option<i64> {
        let operator = self
            .operator
            .as_ref()
            .and_then(|operator| operator.next_due());
        let gone = || (self.stream_lanes == 0).then(|| self.latest.saturating_add(retention));
        operator.or_else(gone)
    }

    pub(super) fn is_finished(&self, retention: i64, floor: i64) -> bool {
        self.stream_lanes == 0
            && self.operator.is_none()
            && self.latest.saturating_add(retention) < floor
    }

    pub(super) fn state_bytes(&self) -> usize {
        let operator = self.operator.as_ref();
        size_of::<Lane>() + self.key.len() + operator.map_or(0, |of| of.state_bytes())
    }

    pub(super) fn snapshot(&self, out: &mut Vec<u8>) {
        out.blob(&self.key);
        self.watermarks.iter().for_each(|clock| out.i64(*clock));
        out.i64(self.emitted_watermark);
        out.i64(self.latest);
        out.u32(self.stream_lanes);
        out.u8(self.operator.is_some().into());
        if let Some(operator) = &self.operator {
            let mut state = Vec::new();
            operator.snapshot(&mut state);
            out.blob(&state);
        }
    }

    pub(super) fn restore(
        sides: usize,
        make: &MakeOperator,
        from: &mut Reader<'_>,
    ) -> Result<Lane, DecodeError> {
        let mut lane = Lane::new(from.blob()?.into(), sides);
        for clock in &mut lane.watermarks {
            *clock = from.i64()?;
        }
        lane.emitted_watermark = from.i64()?;
        lane.latest = from.i64()?;
        lane.stream_lanes = from.u32()?;
        if from.u8()? != 0 {
            let mut state = Reader::new(from.blob()?);
            let mut operator = make();
            operator.restore(&mut state)?;
            if !state.is_done() {
                return Err(DecodeError::Invalid("an operator left bytes unread"));
            }
            lane.operator = Some(operator);
        }
        Ok(lane)
    }
}
