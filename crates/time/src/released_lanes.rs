//! What [`Substreams`](crate::Substreams) releases: events and watermarks in one sequence.
//!
//! The sequence can be cut where the floor passes a time. The cut depends on the input events alone: what an event
//! appends is never divided.

use highwater_codec::{DecodeError, Reader, Writer};

use crate::{Instant, snapshot};

/// A list of keys that grows: key `i` ends at `ends[i]`, where the next begins.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    #[inline]
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Removes the first `count` keys and returns them.
    fn split_front(&mut self, count: usize) -> KeyList {
        let bytes = count.checked_sub(1).map_or(0, |last| self.ends[last]);
        let (later_ends, later_bytes) = (self.ends.split_off(count), self.bytes.split_off(bytes));
        let front = KeyList {
            bytes: std::mem::replace(&mut self.bytes, later_bytes),
            ends: std::mem::replace(&mut self.ends, later_ends),
        };
        self.ends.iter_mut().for_each(|end| *end -= bytes);
        front
    }

    /// The keys `from..to`.
    pub fn range(&self, from: usize, to: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = from.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.ends[from..to].iter().map(move |&end| {
            let key = &self.bytes[start..end];
            start = end;
            key
        })
    }
}

/// The watermark of a lane, or of all lanes, and its position among the released events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneWatermark {
    /// The index in [`ReleasedLaneEvents::rows`] of the first event after this watermark.
    pub before_row: usize,
    /// `None` for all lanes: the watermark of every lane is now `watermark` or later.
    pub lane: Option<u32>,
    pub watermark: Instant,
}

/// A rise of the floor, and the values appended before the input event that caused it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FloorRise {
    /// The number of events before it.
    pub row: usize,
    /// The number of watermarks before it.
    pub watermark: usize,
    pub floor: Instant,
}

/// Events that their watermark has reached, and the watermarks between them. The events of one lane
/// are sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReleasedLaneEvents {
    pub rows: Vec<u64>,
    pub times: Vec<Instant>,
    pub lanes: Vec<u32>,
    pub watermarks: Vec<LaneWatermark>,
    /// The keys of the events. `None` unless the caller sets a list.
    pub keys: Option<KeyList>,
    /// The rises of the floor. `None` unless the caller sets a list.
    pub floor_rises: Option<Vec<FloorRise>>,
}

impl ReleasedLaneEvents {
    pub fn clear(&mut self) {
        self.rows.clear();
        self.times.clear();
        self.lanes.clear();
        self.watermarks.clear();
        if let Some(keys) = &mut self.keys {
            keys.clear();
        }
        if let Some(rises) = &mut self.floor_rises {
            rises.clear();
        }
    }

    /// Removes and returns the values appended before the floor rose to `floor` or beyond: all of them if the floor has
    /// not reached it. Without a list of rises that is not known.
    #[must_use]
    pub fn take_before(&mut self, floor: Instant) -> ReleasedLaneEvents {
        let Some(rises) = &mut self.floor_rises else {
            return std::mem::take(self);
        };
        let count = rises.partition_point(|rise| rise.floor < floor);
        let Some(cut) = rises.get(count).copied() else {
            let empty = ReleasedLaneEvents {
                keys: self.keys.as_ref().map(|_| KeyList::default()),
                floor_rises: Some(Vec::new()),
                ..ReleasedLaneEvents::default()
            };
            return std::mem::replace(self, empty);
        };
        let later_rises = rises.split_off(count);
        let before = ReleasedLaneEvents {
            rows: split_front(&mut self.rows, cut.row),
            times: split_front(&mut self.times, cut.row),
            lanes: split_front(&mut self.lanes, cut.row),
            watermarks: split_front(&mut self.watermarks, cut.watermark),
            keys: self.keys.as_mut().map(|keys| keys.split_front(cut.row)),
            floor_rises: self.floor_rises.replace(later_rises),
        };
        let rises = self.floor_rises.iter_mut().flatten();
        rises.for_each(|rise| {
            rise.row -= cut.row;
            rise.watermark -= cut.watermark;
        });
        let watermarks = self.watermarks.iter_mut();
        watermarks.for_each(|mark| mark.before_row -= cut.row);
        before
    }

    /// Appends the state: values appended and not taken.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.rows.len());
        for (row, (time, lane)) in self.rows.iter().zip(self.times.iter().zip(&self.lanes)) {
            out.u64(*row);
            snapshot::write_instant(out, *time);
            out.u64((*lane).into());
        }
        out.u8(self.keys.is_some().into());
        let keys = self.keys.as_ref();
        for key in keys.iter().flat_map(|keys| keys.range(0, keys.ends.len())) {
            out.blob(key);
        }
        out.count(self.watermarks.len());
        for mark in &self.watermarks {
            out.u64(mark.before_row as u64);
            out.u64(mark.lane.map_or(0, |lane| u64::from(lane) + 1));
            snapshot::write_instant(out, mark.watermark);
        }
        let rises = self.floor_rises.as_deref().unwrap_or_default();
        out.count(rises.len());
        for rise in rises {
            out.u64(rise.row as u64);
            out.u64(rise.watermark as u64);
            snapshot::write_instant(out, rise.floor);
        }
    }

    /// Reads the bytes of [`ReleasedLaneEvents::snapshot`] and leaves `from` after them.
    pub fn restore(from: &mut Reader<'_>) -> Result<ReleasedLaneEvents, DecodeError> {
        let number = |number: u64| {
            u32::try_from(number).map_err(|_| DecodeError::Invalid("a lane has no such number"))
        };
        let position = |number: u64| {
            usize::try_from(number).map_err(|_| DecodeError::Invalid("a position is too large"))
        };
        let mut restored = ReleasedLaneEvents::default();
        for _ in 0..from.count()? {
            restored.rows.push(from.u64()?);
            restored.times.push(snapshot::read_instant(from)?);
            restored.lanes.push(number(from.u64()?)?);
        }
        if from.u8()? != 0 {
            let mut keys = KeyList::default();
            for _ in 0..restored.rows.len() {
                keys.push(from.blob()?);
            }
            restored.keys = Some(keys);
        }
        let mut before = 0;
        for _ in 0..from.count()? {
            let before_row = position(from.u64()?)?;
            if before_row < before || before_row > restored.rows.len() {
                return Err(DecodeError::Invalid("watermarks are not in order"));
            }
            before = before_row;
            let lane = from.u64()?.checked_sub(1).map(number).transpose()?;
            restored.watermarks.push(LaneWatermark {
                before_row,
                lane,
                watermark: snapshot::read_instant(from)?,
            });
        }
        let mut rises: Vec<FloorRise> = Vec::new();
        for _ in 0..from.count()? {
            let rise = FloorRise {
                row: position(from.u64()?)?,
                watermark: position(from.u64()?)?,
                floor: snapshot::read_instant(from)?,
            };
            let in_order = rises.last().is_none_or(|last| {
                last.row <= rise.row && last.watermark <= rise.watermark && last.floor < rise.floor
            });
            let (rows, watermarks) = (restored.rows.len(), restored.watermarks.len());
            if !in_order || rise.row > rows || rise.watermark > watermarks {
                return Err(DecodeError::Invalid("rises of the floor are not in order"));
            }
            rises.push(rise);
        }
        restored.floor_rises = Some(rises);
        Ok(restored)
    }

    /// The position before the next input event.
    #[inline]
    pub(crate) fn position(&self) -> SequencePosition {
        SequencePosition {
            row: self.rows.len(),
            watermark: self.watermarks.len(),
        }
    }

    /// The floor has risen because of the input event at `before`.
    pub(crate) fn push_floor_rise(&mut self, before: SequencePosition, floor: Instant) {
        if let Some(rises) = &mut self.floor_rises {
            rises.push(FloorRise {
                row: before.row,
                watermark: before.watermark,
                floor,
            });
        }
    }

    #[inline]
    pub(crate) fn push_event(&mut self, lane: u32, key: &[u8], time: Instant, row: u64) {
        self.rows.push(row);
        self.times.push(time);
        self.lanes.push(lane);
        if let Some(keys) = &mut self.keys {
            keys.push(key);
        }
    }

    pub(crate) fn push_watermark(&mut self, lane: Option<u32>, watermark: Instant) {
        self.watermarks.push(LaneWatermark {
            before_row: self.rows.len(),
            lane,
            watermark,
        });
    }
}

/// Removes the first `count` values and returns them.
fn split_front<T>(values: &mut Vec<T>, count: usize) -> Vec<T> {
    let later = values.split_off(count);
    std::mem::replace(values, later)
}

/// A position among released events and their watermarks.
#[derive(Clone, Copy)]
pub(crate) struct SequencePosition {
    row: usize,
    watermark: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrivals, Duration, EventBatch, EventKeys, Substreams, TimePolicy};

    fn at(seconds: i64) -> Instant {
        Instant::from_unix_millis(seconds * 1000)
    }

    /// Events of three keys that arrive a second apart, with a floor four seconds behind.
    fn released() -> ReleasedLaneEvents {
        let policy = TimePolicy {
            late_arrival: Duration::from_secs(4),
            ..TimePolicy::default()
        };
        let mut substreams = Substreams::new(policy, Duration::ZERO);
        let mut out = ReleasedLaneEvents {
            keys: Some(KeyList::default()),
            floor_rises: Some(Vec::new()),
            ..ReleasedLaneEvents::default()
        };
        for (row, second) in (10..30).enumerate() {
            let key = [b'a' + row as u8 % 3];
            let events = EventBatch {
                first_row: row as u64,
                times: &[at(second - row as i64 % 4)],
                arrivals: Arrivals::Each(&[at(second)]),
            };
            let keys = EventKeys {
                offsets: &[0, 1],
                bytes: &key,
            };
            substreams.push(events, &keys, &mut out, &mut ());
        }
        substreams.end(&mut out);
        out
    }

    /// Appends `part` to `whole`, as if it had never been cut off.
    fn append(whole: &mut ReleasedLaneEvents, part: ReleasedLaneEvents) {
        let rows = whole.rows.len();
        let marks = part.watermarks.into_iter().map(|mark| LaneWatermark {
            before_row: mark.before_row + rows,
            ..mark
        });
        whole.watermarks.extend(marks);
        let keys = part.keys.unwrap_or_default();
        for key in keys.range(0, part.rows.len()) {
            whole.keys.get_or_insert_default().push(key);
        }
        whole.rows.extend(part.rows);
        whole.times.extend(part.times);
        whole.lanes.extend(part.lanes);
    }

    // proves E1
    #[test]
    fn parts_before_a_floor_make_up_the_whole_and_hold_what_arrived_before() {
        let mut left = released();
        let mut whole = ReleasedLaneEvents::default();
        for second in [12, 12, 17, 25] {
            let part = left.take_before(at(second));
            let rows = whole.rows.len() + part.rows.len();
            // The event that arrives four seconds after the floor raises it.
            assert_eq!(rows, (second + 4 - 10) as usize, "{second}");
            append(&mut whole, part);
            let mut state = Vec::new();
            left.snapshot(&mut state);
            let mut from = Reader::new(&state);
            assert_eq!(ReleasedLaneEvents::restore(&mut from), Ok(left.clone()));
            assert!(from.is_done());
        }
        let rest = left.take_before(Instant::AFTER_ALL);
        append(&mut whole, rest);
        let end = std::mem::take(&mut left);
        assert!(end.rows.is_empty() && end.watermarks.len() == 1, "the end");
        append(&mut whole, end);
        let expected = ReleasedLaneEvents {
            floor_rises: None,
            ..released()
        };
        assert_eq!(whole, expected);
    }

    #[test]
    fn bytes_that_say_nonsense_are_refused() {
        let mut state = Vec::new();
        released().snapshot(&mut state);
        for len in 0..state.len() {
            let cut = ReleasedLaneEvents::restore(&mut Reader::new(&state[..len]));
            assert!(cut.is_err(), "{len} bytes");
        }
    }
}
