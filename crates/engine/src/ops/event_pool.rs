//! The events of all groups of a sliding window, in one list of slots.
//!
//! The events of a group are linked. Free slots are reused first in, first out: events enter and leave in time order,
//! so neighbours in time are neighbours in memory, whatever their groups.

use std::collections::VecDeque;

use crate::value::Value;

/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct EventPool {
    /// How many arguments an event has; some aggregates need none.
    width: usize,
    nodes: Vec<Node>,
    /// Those of node `n` begin at `n` times the width.
    arguments: Vec<Value>,
    free: VecDeque<u32>,
}

#[derive(Debug)]
struct Node {
    time: i64,
    /// Boxed, because few events have them: a node stays small.
    display_keys: Option<Box<DisplayKeys>>,
    next: u32,
}

/// The keys of an event whose representation differs from that of the previous one.
#[derive(Debug)]
struct DisplayKeys(Vec<Value>);

/// The events of a group, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventList {
    first: u32,
    last: u32,
    /// The first event that has not entered the window.
    outside: u32,
    count: u32,
}

impl Default for EventList {
    fn default() -> EventList {
        EventList {
            first: NONE,
            last: NONE,
            outside: NONE,
            count: 0,
        }
    }
}

impl EventList {
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// An event in its slot.
pub(super) struct PooledEvent<'a> {
    pub time: i64,
    pub arguments: &'a [Value],
    pub display_keys: Option<&'a Vec<Value>>,
}

impl EventPool {
    /// The size of an event without its arguments.
    pub(super) const EVENT_BYTES: usize = size_of::<Node>();

    pub(super) fn new(width: usize) -> EventPool {
        EventPool {
            width,
            nodes: Vec::new(),
            arguments: Vec::new(),
            free: VecDeque::new(),
        }
    }

    /// Appends an event to a list.
    pub(super) fn push(
        &mut self,
        list: &mut EventList,
        time: i64,
        display_keys: Option<Vec<Value>>,
        arguments: impl Iterator<Item = Value>,
    ) {
        let node = Node {
            time,
            display_keys: display_keys.map(|keys| Box::new(DisplayKeys(keys))),
            next: NONE,
        };
        let place = match self.free.pop_front() {
            Some(place) => {
                self.nodes[place as usize] = node;
                let first = place as usize * self.width;
                let old = &mut self.arguments[first..first + self.width];
                old.iter_mut()
                    .zip(arguments)
                    .for_each(|(old, new)| *old = new);
                place
            }
            None => {
                self.nodes.push(node);
                self.arguments.extend(arguments.take(self.width));
                self.arguments
                    .resize(self.nodes.len() * self.width, Value::Null);
                (self.nodes.len() - 1) as u32
            }
        };
        match list.last {
            NONE => list.first = place,
            last => self.nodes[last as usize].next = place,
        }
        list.last = place;
        if list.outside == NONE {
            list.outside = place;
        }
        list.count += 1;
    }

    /// The first event that has not entered.
    #[inline]
    pub(super) fn next_to_enter(&self, list: &EventList) -> Option<PooledEvent<'_>> {
        self.get(list.outside)
    }

    /// Marks that event as entered.
    #[inline]
    pub(super) fn enter(&mut self, list: &mut EventList) {
        if let Some(node) = self.nodes.get(list.outside as usize) {
            list.outside = node.next;
        }
    }

    #[inline]
    pub(super) fn first(&self, list: &EventList) -> Option<PooledEvent<'_>> {
        self.get(list.first)
    }

    /// Removes the first event, which has entered.
    pub(super) fn pop_first(&mut self, list: &mut EventList) {
        let place = list.first;
        let Some(node) = self.nodes.get_mut(place as usize) else {
            return;
        };
        list.first = node.next;
        node.display_keys = None;
        if list.first == NONE {
            list.last = NONE;
        }
        list.count -= 1;
        let first = place as usize * self.width;
        for argument in &mut self.arguments[first..first + self.width] {
            *argument = Value::Null;
        }
        self.free.push_back(place);
    }

    /// The keys of the first event, if they differ from those of the one before.
    pub(super) fn take_display_keys(&mut self, list: &EventList) -> Option<Vec<Value>> {
        let node = self.nodes.get_mut(list.first as usize)?;
        node.display_keys.take().map(|keys| keys.0)
    }

    /// The events of a list in order.
    pub(super) fn iter(&self, list: &EventList) -> impl Iterator<Item = PooledEvent<'_>> {
        let mut place = list.first;
        std::iter::from_fn(move || {
            let event = self.get(place)?;
            place = self.nodes[place as usize].next;
            Some(event)
        })
    }

    #[inline]
    fn get(&self, place: u32) -> Option<PooledEvent<'_>> {
        let node = self.nodes.get(place as usize)?;
        let first = place as usize * self.width;
        Some(PooledEvent {
            time: node.time,
            arguments: &self.arguments[first..first + self.width],
            display_keys: node.display_keys.as_deref().map(|keys| &keys.0),
        })
    }
}
