//! AnomalyDetection_SpikeAndDip and AnomalyDetection_ChangePoint.
//!
//! Both learn from the last `history` values of a key within the limit and score each new value against them before
//! learning it too. The result is a record `{IsAnomaly: 0 or 1, Score: float}`; it is NULL if the value is NULL or WHEN
//! does not hold. Nothing is random, and a model without values for the limit starts over.
//!
//! **SpikeAndDip** estimates how likely a value at least as extreme is, by adaptive kernel density estimation: each
//! value x_j of the history carries a normal distribution around itself whose standard deviation s is that of the
//! history (of n values, population form; 1 for a single value, never below 1e-6). The tail above the new value x is
//!
//! ```text
//! p(x) = 1/n * sum over j of erfc((x - x_j) / (sqrt(2) * s)) / 2
//! ```
//!
//! Score is p for `spikes`, 1 - p for `dips`, and the smaller of the two for `spikesanddips`; without history it is 1.
//! It is an anomaly when Score < 1 - confidence/100 and the history holds at least 10 values (or all it may hold).
//!
//! **ChangePoint** bets against the claim that values come from one unchanging distribution. The rank of a value within
//! the history gives two p-values, for being large and for being small (ties count half):
//!
//! ```text
//! p_up   = (number of x_j > x + (number of x_j = x) / 2 + 1) / (n + 1)
//! p_down = (number of x_j < x + (number of x_j = x) / 2 + 1) / (n + 1)
//! ```
//!
//! Each side has a power martingale with the bet g(p) = 1/2 * max(p, 0.05)^(-1/2), which multiplies the stake by at
//! most 2.24 per value, and never falls below 1 before a bet: M = max(1, M) * g(p). Score is the mean of the two sides;
//! 0 without history. The claim holds up to `history / (1 - confidence/100)`; a Score from there on is a change point,
//! so in a steady stream fewer than (100 - confidence)% of stretches of `history` values are expected to raise a false
//! one. While a martingale stands above 1 something may be changing: values then wait, at most `history` of them, and
//! are learned when both have come back to 1. A change point starts the model anew with what was waiting, the new
//! level. A change thus takes some values to show (9 of them for a history of 20 at 95%), and a lone spike is never
//! one.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use highwater_query::plan::Expr;

use highwater_codec::{DecodeError, Reader, Writer};

use super::{CallInput, KeyedCall, RowInput, expire};
use crate::chunk::Chunk;
use crate::column::{Column, ColumnBuilder};
use crate::eval::{self, Faults};
use crate::value::{Record, Value, ValueRef};

/// An argument that must be a number: text is read as one.
pub(super) fn numbers(of: &Expr, chunk: &Chunk, faults: &mut Faults) -> Column {
    let column = eval::evaluate(of, chunk, faults);
    if matches!(column, Column::Null(_) | Column::Int(_) | Column::Float(_)) {
        return column;
    }
    let mut builder = ColumnBuilder::with_capacity(column.len());
    for row in 0..column.len() {
        let value = column.get(row);
        let number = match value {
            ValueRef::Null => Ok(value),
            value => eval::to_number(value),
        };
        match number {
            Ok(number) => builder.push(number),
            Err(reason) => {
                builder.push_null();
                faults.add(row, of.span, reason);
            }
        }
    }
    builder.finish()
}

fn float(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Bit(b) => Some(f64::from(u8::from(b))),
        ValueRef::Int(i) => Some(i as f64),
        ValueRef::Float(f) => Some(f),
        _ => None,
    }
}

fn verdict(anomaly: bool, score: f64) -> Value {
    static NAMES: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| ["IsAnomaly".into(), "Score".into()]);
    let [is_anomaly, name] = &*NAMES;
    let mut record = Record::with_capacity(2);
    record.set(is_anomaly.clone(), Value::Int(anomaly.into()));
    record.set(name.clone(), Value::Float(score));
    Value::Record(Arc::new(record))
}

/// The significance level of an anomaly.
fn significance(confidence: ValueRef<'_>) -> Result<f64, String> {
    match float(confidence) {
        Some(confidence) if (1.0..=100.0).contains(&confidence) => Ok(1.0 - confidence / 100.0),
        _ => Err("the confidence of anomaly detection must lie between 1 and 100".into()),
    }
}

/// The values that a model has learned, in order.
#[derive(Default)]
pub(super) struct History(VecDeque<(i64, f64)>);

impl History {
    fn leave(&mut self, floor: i64) {
        expire(&mut self.0, floor, |(time, _)| *time);
    }

    /// Learns a value and returns the one that no longer fits.
    fn learn(&mut self, value: (i64, f64), most: usize) -> Option<(i64, f64)> {
        self.0.push_back(value);
        if self.0.len() > most {
            return self.0.pop_front();
        }
        None
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|&(_, value)| value)
    }

    fn snapshot(&self, out: &mut Vec<u8>) {
        out.count(self.0.len());
        for &(time, value) in &self.0 {
            out.i64(time);
            out.f64(value);
        }
    }

    fn restore(from: &mut Reader<'_>) -> Result<History, DecodeError> {
        let values = (0..from.count()?).map(|_| Ok((from.i64()?, from.f64()?)));
        values.collect::<Result<_, _>>().map(History)
    }
}

/// How much a model learns from.
pub(super) struct Limits {
    duration: i64,
    values: usize,
}

impl Limits {
    pub(super) fn new(duration: i64, values: usize) -> Limits {
        let values = values.max(1);
        Limits { duration, values }
    }

    /// The time up to which values are forgotten.
    fn floor(&self, time: i64) -> i64 {
        time.saturating_sub(self.duration)
    }
}

pub(super) struct SpikeAndDip(pub Limits);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Spikes,
    Dips,
    Both,
}

impl Mode {
    fn of(value: ValueRef<'_>) -> Result<Mode, String> {
        match value {
            ValueRef::Text(text) if text.eq_ignore_ascii_case("spikes") => Ok(Mode::Spikes),
            ValueRef::Text(text) if text.eq_ignore_ascii_case("dips") => Ok(Mode::Dips),
            ValueRef::Text(text) if text.eq_ignore_ascii_case("spikesanddips") => Ok(Mode::Both),
            _ => Err(
                "the mode of anomaly detection must be 'spikes', 'dips' or 'spikesanddips'".into(),
            ),
        }
    }
}

/// With fewer values nothing is an anomaly.
const LEARNED_MIN: usize = 10;
const BANDWIDTH_MIN: f64 = 1e-6;

/// The estimated probability of a value above `value`.
fn tail_above(value: f64, history: &History) -> f64 {
    let n = history.0.len() as f64;
    let bandwidth = match history.0.len() {
        1 => 1.0,
        _ => {
            let mean = history.values().sum::<f64>() / n;
            let squares: f64 = history.values().map(|x| (x - mean) * (x - mean)).sum();
            (squares / n).sqrt()
        }
    };
    let scale = std::f64::consts::SQRT_2 * bandwidth.max(BANDWIDTH_MIN);
    let tails = history.values().map(|x| erfc((value - x) / scale));
    let tail = tails.sum::<f64>() / (2.0 * n);
    // Values near the largest float overflow here; they carry no information then.
    if tail.is_nan() { 0.5 } else { tail }
}

/// The complementary error function, with a relative error below 1.2e-7 (Chebyshev fit, Numerical Recipes 6.2).
fn erfc(x: f64) -> f64 {
    const FIT: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let z = x.abs();
    let t = 1.0 / (1.0 + 0.5 * z);
    let fit = FIT.iter().rev().fold(0.0, |sum, term| sum * t + term);
    let tail = t * (fit - z * z).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

impl KeyedCall for SpikeAndDip {
    type State = History;

    fn row(
        &self,
        model: &mut History,
        at: RowInput,
        input: &CallInput<'_>,
        out: &mut ColumnBuilder,
    ) -> Result<(), String> {
        let [of, confidence, mode] = input.arguments else {
            unreachable!("it has three arguments");
        };
        model.leave(self.0.floor(at.time));
        let Some(value) = float(of.get(at.row)).filter(|_| at.passes) else {
            out.push_null();
            return Ok(());
        };
        let settings = significance(confidence.get(at.row))
            .and_then(|significance| Ok((significance, Mode::of(mode.get(at.row))?)));
        let result = settings.map(|(significance, mode)| {
            if model.0.is_empty() {
                return verdict(false, 1.0);
            }
            let above = tail_above(value, model);
            let score = match mode {
                Mode::Spikes => above,
                Mode::Dips => 1.0 - above,
                Mode::Both => above.min(1.0 - above),
            };
            let learned = model.0.len() >= LEARNED_MIN.min(self.0.values);
            verdict(learned && score < significance, score)
        });
        model.learn((at.time, value), self.0.values);
        out.push_owned(result?);
        Ok(())
    }

    fn list_bytes(model: &History) -> usize {
        model.0.len() * size_of::<(i64, f64)>()
    }

    fn snapshot(&self, model: &History, out: &mut Vec<u8>) {
        model.snapshot(out);
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<History, DecodeError> {
        History::restore(from)
    }
}

pub(super) struct ChangePoint(pub Limits);

#[derive(Default)]
pub(super) struct ChangeModel {
    learned: History,
    /// The values since a change may have begun.
    waiting: History,
    up: f64,
    down: f64,
}

const BET_POWER: f64 = 0.5;
/// Lower p-values do not count for more, so that a few spikes do not look like a new level.
const BET_P_MIN: f64 = 0.05;

fn bet(stake: f64, p: f64) -> f64 {
    // Far beyond any threshold, and far from overflow.
    const STAKE_MAX: f64 = 1e300;
    let gain = BET_POWER * p.max(BET_P_MIN).powf(BET_POWER - 1.0);
    (stake.max(1.0) * gain).min(STAKE_MAX)
}

impl ChangeModel {
    fn leave(&mut self, floor: i64) {
        self.learned.leave(floor);
        self.waiting.leave(floor);
        if self.learned.0.is_empty() && self.waiting.0.is_empty() {
            (self.up, self.down) = (0.0, 0.0);
        }
    }

    /// The score of a value.
    fn score(&mut self, value: f64) -> f64 {
        if self.learned.0.is_empty() {
            return 0.0;
        }
        let (mut above, mut below) = (0_u64, 0_u64);
        for x in self.learned.values() {
            above += u64::from(x > value);
            below += u64::from(x < value);
        }
        let n = self.learned.0.len() as f64;
        let ties = n - (above + below) as f64;
        let p = |beyond: u64| (beyond as f64 + ties / 2.0 + 1.0) / (n + 1.0);
        self.up = bet(self.up, p(above));
        self.down = bet(self.down, p(below));
        (self.up + self.down) / 2.0
    }

    fn learn(&mut self, value: (i64, f64), history: usize) {
        if self.up <= 1.0 && self.down <= 1.0 {
            let waiting = std::mem::take(&mut self.waiting);
            for value in waiting.0.into_iter().chain([value]) {
                self.learned.learn(value, history);
            }
        } else if let Some(oldest) = self.waiting.learn(value, history) {
            self.learned.learn(oldest, history);
        }
    }

    fn start_anew(&mut self) {
        self.learned = std::mem::take(&mut self.waiting);
        (self.up, self.down) = (0.0, 0.0);
    }
}

impl KeyedCall for ChangePoint {
    type State = ChangeModel;

    fn row(
        &self,
        model: &mut ChangeModel,
        at: RowInput,
        input: &CallInput<'_>,
        out: &mut ColumnBuilder,
    ) -> Result<(), String> {
        let [of, confidence] = input.arguments else {
            unreachable!("it has two arguments");
        };
        model.leave(self.0.floor(at.time));
        let Some(value) = float(of.get(at.row)).filter(|_| at.passes) else {
            out.push_null();
            return Ok(());
        };
        let score = model.score(value);
        model.learn((at.time, value), self.0.values);
        let changed = score * significance(confidence.get(at.row))? >= self.0.values as f64;
        out.push_owned(verdict(changed, score));
        if changed {
            model.start_anew();
        }
        Ok(())
    }

    fn list_bytes(model: &ChangeModel) -> usize {
        (model.learned.0.len() + model.waiting.0.len()) * size_of::<(i64, f64)>()
    }

    fn snapshot(&self, model: &ChangeModel, out: &mut Vec<u8>) {
        model.learned.snapshot(out);
        model.waiting.snapshot(out);
        out.f64(model.up);
        out.f64(model.down);
    }

    fn restore(&self, from: &mut Reader<'_>) -> Result<ChangeModel, DecodeError> {
        Ok(ChangeModel {
            learned: History::restore(from)?,
            waiting: History::restore(from)?,
            up: from.f64()?,
            down: from.f64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S1
    #[test]
    fn erfc_is_close() {
        for (x, expected) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (5.0, 1.537_459_794_428_035e-12),
        ] {
            assert!((erfc(x) - expected).abs() <= 1.2e-7 * expected, "{x}");
            assert!((erfc(-x) - (2.0 - expected)).abs() <= 2.4e-7, "{x}");
        }
    }
}
