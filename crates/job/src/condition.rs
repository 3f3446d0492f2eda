//! A condition alone, such as `TollId = 3 AND Toll > 5`, that chooses among events outside of a job.
//!
//! It is bound as the WHERE of a query over any event, so it means what it means in a query. Conditions come from
//! outside: text that is more than a condition is refused, and [`EventCondition::holds`] bounds the texts it makes.

use highwater_connect::json::Field;
use highwater_connect::{SourceOptions, ValueDecoder};
use highwater_engine::Chunk;
use highwater_engine::eval::{self, Faults};
use highwater_query::plan::{Node, Plan, Pred, Read};
use highwater_query::{Catalog, Diagnostic, Span, code, compile};
use highwater_time::Instant;

use crate::load::{LoadError, render};

const BEFORE: &str = "SELECT 1 AS one FROM event WHERE ";

/// A compiled condition over events.
#[derive(Clone, Debug)]
pub struct EventCondition {
    fields: Vec<Field>,
    keep: Pred,
}

impl EventCondition {
    /// `name` stands for the text in messages, such as the name of an option.
    pub fn compile(text: &str, name: &str) -> Result<EventCondition, LoadError> {
        let query = format!("{BEFORE}{text}");
        let failed = |diagnostics: Vec<Diagnostic>| LoadError::Query {
            rendered: render(&diagnostics, text, name),
            name: name.to_owned(),
            text: text.to_owned(),
            diagnostics,
        };
        let compiled = compile(&query, &Catalog::open()).map_err(|diagnostics| {
            let within = diagnostics.into_iter().map(|mut diagnostic| {
                diagnostic.span = within_text(diagnostic.span, text.len());
                diagnostic
            });
            failed(within.collect())
        })?;
        let not_alone = || {
            let everything = Span::new(0, text.len());
            let message = "this is not a condition over the fields of single events";
            failed(vec![Diagnostic::error(code::SYNTAX, everything, message)])
        };
        EventCondition::of_plan(compiled.plan).ok_or_else(not_alone)
    }

    /// `None` unless the plan filters one input and does nothing else.
    fn of_plan(plan: Plan) -> Option<EventCondition> {
        let Plan { inputs, nodes, .. } = plan;
        let keep = match &nodes[..] {
            [
                Node::Source { .. },
                Node::Filter { keep, .. },
                Node::Project { .. },
            ] => keep.clone(),
            _ => return None,
        };
        let [input] = <[_; 1]>::try_from(inputs).ok()?;
        let fields = input.reads.iter().map(|read| match read {
            Read::Path(path) => Field::Path(path.clone()),
            Read::TimePath(path) => Field::Time(path.clone()),
            _ => Field::Whole,
        });
        Some(EventCondition {
            fields: fields.collect(),
            keep,
        })
    }

    /// The columns that [`test`](EventCondition::test) takes.
    pub(crate) fn fields(&self) -> Vec<Field> {
        self.fields.clone()
    }

    /// The rows of a chunk for which the condition holds.
    pub(crate) fn test(&self, chunk: &Chunk) -> Vec<usize> {
        let mask = eval::test(&self.keep, chunk, &mut Faults::new(chunk.rows()));
        mask.set_indices().collect()
    }

    /// Whether the condition holds for each of a few JSON events; false for a value that is no JSON object.
    /// `System.Timestamp()` is the time given with the event.
    pub fn holds(&self, events: &[(&[u8], Instant)]) -> Vec<bool> {
        let mut holds = vec![false; events.len()];
        let options = SourceOptions::of(self.fields.clone());
        let Some(mut decoder) = ValueDecoder::new(options) else {
            return holds;
        };
        for (number, (value, _)) in events.iter().enumerate() {
            decoder.push(value, number as u64);
        }
        let decoded = decoder.finish();
        let numbers = &decoded.lines;
        let times = numbers.iter().map(|number| events[*number as usize].1);
        let times: Vec<i64> = times.map(Instant::ticks).collect();
        let chunk = Chunk::new(times.into(), decoded.columns);
        let mask = eval::test_limited(&self.keep, &chunk, &mut Faults::new(chunk.rows()));
        for row in mask.set_indices() {
            holds[numbers[row] as usize] = true;
        }
        holds
    }
}

/// A span of the query as one of the condition.
fn within_text(span: Span, length: usize) -> Span {
    let shift = |at: u32| (at as usize).saturating_sub(BEFORE.len()).min(length);
    Span::new(shift(span.start), shift(span.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(condition: &str, events: &[&str]) -> Vec<bool> {
        let time = Instant::from_unix_millis(0);
        let events: Vec<_> = events
            .iter()
            .map(|event| (event.as_bytes(), time))
            .collect();
        EventCondition::compile(condition, "condition")
            .unwrap()
            .holds(&events)
    }

    #[test]
    fn a_condition_chooses_events_and_never_values_that_are_no_objects() {
        let events = [
            r#"{"a":1}"#,
            r#"{"a":7,"b":{"c":"x"}}"#,
            "no json",
            "",
            r#"[{"a":9}]"#,
        ];
        assert_eq!(holds("a > 5", &events), [false, true, false, false, true]);
        assert_eq!(
            holds("b.c = 'x' OR a = 1", &events),
            [true, true, false, false, false]
        );
    }

    #[test]
    fn text_that_is_more_than_a_condition_is_refused_at_its_place() {
        for wrong in [
            "a >",
            "a > 1 GROUP BY a, TumblingWindow(second, 1)",
            "LAG(a) OVER (LIMIT DURATION(second, 9)) = 1",
            "a = 1 UNION SELECT b FROM other WHERE c = 1",
            "a = 1; SELECT 2 AS two INTO x FROM other",
            "",
        ] {
            let error = EventCondition::compile(wrong, "condition").unwrap_err();
            let LoadError::Query { diagnostics, .. } = error else {
                panic!("{wrong}: {error}");
            };
            let end = diagnostics[0].span.end as usize;
            assert!(end <= wrong.len(), "{wrong}: {diagnostics:?}");
        }
    }

    #[test]
    fn a_condition_that_makes_long_texts_is_bounded() {
        let long = "LEN(REPLICATE(a, 100000)) > 0";
        assert_eq!(holds(long, &[r#"{"a":"x"}"#]), [false]);
        assert_eq!(holds("LEN(REPLICATE(a, 9)) > 0", &[r#"{"a":"x"}"#]), [true]);
    }
}
