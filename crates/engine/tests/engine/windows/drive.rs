//! Runs a query's pipelines by hand, an item at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use highwater_engine::{Chunk, Column, ColumnBuilder, Item, PhysicalPlan, Scripts, Value};
use highwater_query::plan::{Input, Plan, Read};
use highwater_query::{Catalog, compile};
use highwater_time::{Instant, TICKS_PER_SECOND};

use crate::running::Running;
use crate::windows::oracle::{Row, show};
use crate::windows::query::{Event, Query, from_origin, instant, ticks};

/// The next item of one partition.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Rows(Vec<Event>),
    Watermark(Instant),
}

/// Numbers drawn beforehand, so that a failure shrinks to the simplest way of doing things: 0 stands for it everywhere.
pub(crate) struct Choices<'a> {
    drawn: &'a [u8],
    at: usize,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(drawn: &'a [u8]) -> Choices<'a> {
        Choices { drawn, at: 0 }
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.at += 1;
        let drawn = self
            .drawn
            .get((self.at - 1) % self.drawn.len().max(1))
            .copied()
            .unwrap_or(0);
        usize::from(drawn) % limit
    }
}

/// Cuts each partition's events into chunks, with legal watermarks between them: none goes back, and none is later than
/// an event that follows.
pub(crate) fn cut(partitions: usize, events: &[Event], choices: &[u8]) -> Vec<Vec<Step>> {
    let mut choices = Choices::new(choices);
    (0..partitions)
        .map(|partition| {
            let own: Vec<&Event> = events.iter().filter(|e| e.partition == partition).collect();
            cut_one(&own, &mut choices)
        })
        .collect()
}

fn cut_one(events: &[&Event], choices: &mut Choices<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut sent, mut reached) = (0, ticks(-20));
    loop {
        if choices.below(3) > 0 {
            let next = events.get(sent).map_or(ticks(90), |e| ticks(e.second));
            let quarters = choices.below(5) as i64;
            reached = reached.max(next - (next - reached) / 4 * quarters);
            steps.push(Step::Watermark(Instant::from_ticks(reached)));
        }
        let left = events.len() - sent;
        if left == 0 {
            break;
        }
        let count = left - choices.below(left);
        steps.push(Step::Rows(
            events[sent..sent + count]
                .iter()
                .map(|e| (*e).clone())
                .collect(),
        ));
        sent += count;
    }
    steps.push(Step::Watermark(Instant::AFTER_ALL));
    steps
}

/// One order in which the partitions' steps may happen.
pub(crate) fn interleave(lists: Vec<Vec<Step>>, choices: &[u8]) -> Vec<(usize, Step)> {
    let mut choices = Choices::new(choices);
    let mut lists: Vec<(usize, VecDeque<Step>)> =
        lists.into_iter().map(VecDeque::from).enumerate().collect();
    let mut steps = Vec::new();
    while !lists.is_empty() {
        let pick = choices.below(lists.len());
        let (partition, list) = &mut lists[pick];
        match list.pop_front() {
            Some(step) => steps.push((*partition, step)),
            None => drop(lists.remove(pick)),
        }
    }
    steps
}

pub(crate) struct Drive {
    running: Running,
    pub dynamic: bool,
    /// Every row in the order of emission.
    pub rows: Vec<Row>,
    reached: Vec<Instant>,
}

impl Drive {
    pub(crate) fn new(query: &Query, partitions: usize) -> Drive {
        let catalog = Catalog {
            ignore_case: query.ignore_case,
            ..Catalog::streams(["input"])
        };
        Drive::over(&query.sql(), &catalog, None, partitions)
    }

    pub(crate) fn of(sql: &str, scripts: Option<Arc<Scripts>>, partitions: usize) -> Drive {
        Drive::over(sql, &Catalog::streams(["input"]), scripts, partitions)
    }

    fn over(
        sql: &str,
        catalog: &Catalog,
        scripts: Option<Arc<Scripts>>,
        partitions: usize,
    ) -> Drive {
        let compiled = compile(sql, catalog);
        let compiled = compiled.unwrap_or_else(|errors| panic!("{sql}: {errors:?}"));
        let mut physical = PhysicalPlan::new(Arc::new(compiled.plan)).expect("the query can run");
        if let Some(scripts) = scripts {
            physical = physical.with_scripts(scripts);
        }
        Drive {
            running: Running::new(Arc::new(physical), &[partitions]),
            reached: vec![Instant::BEFORE_ALL; partitions],
            rows: Vec::new(),
            dynamic: false,
        }
    }

    pub(crate) fn input(&self) -> &Input {
        &self.plan().inputs[0]
    }

    pub(crate) fn plan(&self) -> &Plan {
        self.running.plan()
    }

    pub(crate) fn step(&mut self, partition: usize, step: &Step) {
        match step {
            Step::Rows(events) => {
                let chunk = self.chunk(events);
                self.push(partition, Item::Rows(chunk));
            }
            Step::Watermark(watermark) => {
                self.reached[partition] = self.reached[partition].max(*watermark);
                self.push(partition, Item::Watermark(*watermark));
            }
        }
    }

    pub(crate) fn push(&mut self, partition: usize, item: Item) {
        for item in self.running.push(0, partition, item) {
            if let Item::Rows(chunk) = item {
                self.take(&chunk);
            }
        }
        let errors = self.running.errors();
        assert_eq!(errors.count, 0, "{errors:?}");
    }

    fn take(&mut self, chunk: &Chunk) {
        let reached = self
            .reached
            .iter()
            .min()
            .copied()
            .unwrap_or(Instant::AFTER_ALL);
        for row in 0..chunk.rows() {
            // a window may be shown only when no event can enter it any more. Substreams have clocks of their
            // own.
            let whole = chunk.lanes.is_some() || chunk.time(row) < reached;
            assert!(
                whole,
                "a row at {} came at watermark {reached}",
                chunk.time(row)
            );
            let second = chunk.times[row] / TICKS_PER_SECOND - from_origin(0);
            assert_eq!(
                ticks(second),
                chunk.times[row],
                "all windows end at whole seconds"
            );
            let values = chunk
                .columns
                .iter()
                .map(|column| show(&column.get(row).to_value()));
            self.rows.push((second, values.collect()));
        }
    }

    /// The events as the source would deliver them.
    pub(crate) fn chunk(&self, events: &[Event]) -> Chunk {
        let columns = self.input().reads.iter().map(|read| {
            let column = column(read, events);
            if self.dynamic {
                column.to_dynamic()
            } else {
                column
            }
        });
        let columns = columns.collect();
        Chunk::new(events.iter().map(|e| ticks(e.second)).collect(), columns)
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        self.running.snapshot()
    }

    pub(crate) fn restart(&mut self) {
        self.running.restart();
    }
}

fn column(read: &Read, events: &[Event]) -> Column {
    let mut builder = ColumnBuilder::with_capacity(events.len());
    for event in events {
        let value = match read {
            Read::Path(path) | Read::TimePath(path) => match path[0].as_str() {
                "k" => event.k.clone(),
                "j" => event.j.clone(),
                "v" => event.v.clone(),
                "t" => Value::Time(instant(event.second)),
                // Events have no such field, so the source's own column counts.
                "PartitionId" => Value::Null,
                other => panic!("no such field: {other}"),
            },
            Read::Partition => Value::Int(event.partition as i64),
            other => panic!("not in any query here: {other:?}"),
        };
        builder.push_owned(value);
    }
    builder.finish()
}

pub(crate) fn run(query: &Query, partitions: usize, steps: &[(usize, Step)]) -> Vec<Row> {
    let mut drive = Drive::new(query, partitions);
    steps
        .iter()
        .for_each(|(partition, step)| drive.step(*partition, step));
    drive.rows
}
