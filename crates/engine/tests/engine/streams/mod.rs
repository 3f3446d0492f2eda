//! Streams of random rows, and running a plan over them in a random way that must not show.

use std::sync::Arc;

use highwater_engine::{Chunk, Column, ColumnBuilder, Item, PhysicalPlan, Value, eval};
use highwater_time::Instant;

use crate::running::Running;

/// Numbers that look random and follow from a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Both ends included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    pub(crate) fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub time: i64,
    pub values: Vec<Value>,
}

/// The rows of each partition, by time.
pub(crate) type Stream = Vec<Vec<Row>>;

pub(crate) fn column(rows: &[&Row], index: usize) -> Column {
    let mut builder = ColumnBuilder::default();
    rows.iter()
        .for_each(|row| builder.push(row.values[index].view()));
    builder.finish()
}

pub(crate) fn chunk(rows: &[&Row]) -> Chunk {
    let width = rows.first().map_or(0, |row| row.values.len());
    let columns = (0..width).map(|index| column(rows, index)).collect();
    Chunk::new(rows.iter().map(|row| row.time).collect(), columns)
}

/// Rows as text: what two runs are compared by.
pub(crate) fn shown(rows: &[Row]) -> Vec<String> {
    rows.iter()
        .map(|row| {
            let values = row.values.iter().map(|value| match value {
                Value::Null => "NULL".to_string(),
                value => {
                    let mut text = String::new();
                    eval::write_text(value.view(), &mut text);
                    text
                }
            });
            format!("{}: {}", row.time, values.collect::<Vec<_>>().join("|"))
        })
        .collect()
}

/// The output.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub rows: Vec<Row>,
    pub errors: u64,
}

/// A plan being run. The random choices of a run: how rows are cut into chunks, which partition goes next, the
/// positions of watermarks, and the times of snapshot and restore.
pub(crate) struct Run<'a> {
    running: Running,
    random: &'a mut Random,
    feeds: Vec<Feed<'a>>,
    got: Got,
    watermark: i64,
}

struct Feed<'a> {
    input: usize,
    partition: usize,
    rows: &'a [Row],
    watermark: i64,
    ended: bool,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        physical: &Arc<PhysicalPlan>,
        streams: &'a [Stream],
        random: &'a mut Random,
    ) -> Run<'a> {
        let mut feeds = Vec::new();
        for (input, stream) in streams.iter().enumerate() {
            for (partition, rows) in stream.iter().enumerate() {
                feeds.push(Feed {
                    input,
                    partition,
                    rows,
                    watermark: i64::MIN,
                    ended: false,
                });
            }
        }
        let partitions: Vec<usize> = streams.iter().map(Vec::len).collect();
        Run {
            running: Running::new(physical.clone(), &partitions),
            random,
            feeds,
            got: Got::default(),
            watermark: i64::MIN,
        }
    }

    pub(crate) fn finish(mut self) -> Got {
        loop {
            let open: Vec<usize> = (0..self.feeds.len())
                .filter(|&feed| !self.feeds[feed].ended)
                .collect();
            if open.is_empty() {
                break;
            }
            let feed = open[self.random.below(open.len())];
            let item = self.item(feed);
            self.push(feed, item);
            if self.random.below(8) == 0 {
                self.running.restart();
            }
        }
        assert_eq!(
            self.watermark,
            i64::MAX,
            "the end of time arrives at the exit"
        );
        self.got.errors = self.running.errors().count;
        self.got
    }

    fn item(&mut self, feed: usize) -> Item {
        let feed = &mut self.feeds[feed];
        let next = feed.rows.first().map(|row| row.time);
        if self.random.flip() {
            let low = feed.watermark.max(990);
            let watermark = match next {
                Some(next) => self.random.between(low.min(next), next),
                None => i64::MAX,
            };
            feed.watermark = feed.watermark.max(watermark);
            feed.ended = next.is_none();
            return Item::Watermark(Instant::from_ticks(feed.watermark));
        }
        let most = feed.rows.len().min([1, 3, 100][self.random.below(3)]);
        let (now, later) = feed.rows.split_at(self.random.below(most + 1));
        feed.rows = later;
        Item::Rows(chunk(&now.iter().collect::<Vec<_>>()))
    }

    fn push(&mut self, feed: usize, item: Item) {
        if matches!(&item, Item::Rows(chunk) if chunk.rows() == 0) {
            return;
        }
        let Feed {
            input, partition, ..
        } = self.feeds[feed];
        for item in self.running.push(input, partition, item) {
            self.take(item);
        }
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Watermark(watermark) => {
                assert!(watermark.ticks() > self.watermark, "time goes on");
                self.watermark = watermark.ticks();
            }
            Item::Rows(chunk) => {
                for row in 0..chunk.rows() {
                    let time = chunk.times[row];
                    let last = self.got.rows.last().map_or(i64::MIN, |row| row.time);
                    assert!(time >= self.watermark, "nothing comes after its watermark");
                    assert!(time >= last, "results come in time order");
                    let values = chunk.columns.iter().map(|c| c.get(row).to_value());
                    self.got.rows.push(Row {
                        time,
                        values: values.collect(),
                    });
                }
            }
            Item::PartialPanes(_) => panic!("rows come out"),
        }
    }
}
