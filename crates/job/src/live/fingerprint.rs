//! The identity of a job's state as titled texts. A job continues from a checkpoint only if all of them are equal.
//!
//! Every checkpoint holds the texts, so that a job that cannot continue from it names the change.

use highwater_codec::{DecodeError, Reader, Writer};
use highwater_env::disk;
use highwater_query::explain;
use highwater_time::TimePolicy;

use super::partitions::InputPartitions;
use crate::key_spread::combiners_and_keys;
use crate::load::Job;

const PARTITIONS: &str = "list of partitions";
const EARLY: &str = "interval of early results";
const COMBINERS: &str = "number of combiners or the key of an output";

/// Titles and texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(Vec<(String, String)>);

impl Fingerprint {
    pub(super) fn of(job: &Job, partitions: &InputPartitions) -> Fingerprint {
        let reading = job.file.inputs.iter().map(|input| {
            format!(
                "{}: {:?}, {:?}\n",
                input.name, input.format, input.compression
            )
        });
        let functions = job.file.functions.iter().map(|function| {
            // The job was just loaded from these files; one that is gone counts as changed.
            let text = disk::read_to_string(&function.path).unwrap_or_default();
            format!("{} {:08x}", function.name, crc32c::crc32c(text.as_bytes()))
        });
        let parts = [
            ("query", explain(&job.plan)),
            ("plan", without_spans(&format!("{:?}", job.plan))),
            ("time policy", stored_policy(&job.file.time)),
            (
                "compatibility level",
                format!("{:?}", job.file.compatibility),
            ),
            ("format of an input", reading.collect()),
            (
                "list of functions or one of them",
                functions.collect::<Vec<_>>().join(", "),
            ),
            (PARTITIONS, partitions.description()),
            (
                "place for dead letters or late events",
                format!("{:?} {:?}", job.file.dead_letter, job.file.live.late),
            ),
        ];
        let outputs = job.file.outputs.iter();
        let early: String = outputs
            .filter_map(|output| Some(format!("{}: {:?}\n", output.name, output.early?)))
            .collect();
        // Checkpoints of jobs without early results have no such part.
        let early = (!early.is_empty()).then_some((EARLY, early));
        // Nor have those of jobs with one combiner.
        let combiners = combiners_and_keys(job).map(|text| (COMBINERS, text));
        let parts = parts.into_iter().chain(early).chain(combiners);
        Fingerprint(
            parts
                .map(|(title, text)| (title.to_owned(), text))
                .collect(),
        )
    }

    #[cfg(test)]
    pub(super) fn of_words(words: &[(&str, &str)]) -> Fingerprint {
        let words = words.iter();
        let owned = words.map(|(title, text)| ((*title).to_owned(), (*text).to_owned()));
        Fingerprint(owned.collect())
    }

    fn has(&self, part: &str) -> bool {
        self.0.iter().any(|(title, _)| title == part)
    }

    /// The description of the partitions, see [`InputPartitions::description`].
    pub(super) fn partitions(&self) -> Option<&str> {
        let mut words = self.0.iter();
        let found = words.find(|(title, _)| title == PARTITIONS);
        found.map(|(_, text)| &text[..])
    }

    /// The first difference, if there is one.
    pub(super) fn difference(&self, other: &Fingerprint) -> Option<String> {
        let pairs = self.0.iter().zip(&other.0);
        let mut changed = pairs.filter(|(old, new)| old != new);
        let (old, new) = match changed.next() {
            Some(pair) => pair,
            None if self.0.len() == other.0.len() => return None,
            None if self.has(EARLY) != other.has(EARLY) => {
                return Some("early results were turned on or off".to_owned());
            }
            None if self.has(COMBINERS) != other.has(COMBINERS) => {
                return Some("it had one combiner and has several now, or the reverse".to_owned());
            }
            None => return Some("it was saved by another version of Highwater".to_owned()),
        };
        let mut lines = old
            .1
            .lines()
            .zip(new.1.lines())
            .filter(|(old, new)| old != new);
        let detail = lines
            .next()
            .filter(|_| old.0 != "plan")
            .map(|(old, new)| format!(": \"{}\" became \"{}\"", old.trim(), new.trim()));
        Some(format!(
            "the {} is another{}",
            new.0,
            detail.unwrap_or_default()
        ))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.count(self.0.len());
        for (title, text) in &self.0 {
            out.text(title);
            out.text(text);
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Fingerprint, DecodeError> {
        let text = |from: &mut Reader<'_>| from.text().map(str::to_owned);
        let parts = (0..from.count()?).map(|_| Ok((text(from)?, text(from)?)));
        parts.collect::<Result<_, _>>().map(Fingerprint)
    }
}

/// Checkpoints of format 3 hold the policy under the name that its type had first.
fn stored_policy(policy: &TimePolicy) -> String {
    format!("{policy:?}").replacen("TimePolicy", "Policy", 1)
}

/// Positions in the text of a query do not matter to its state.
fn without_spans(plan: &str) -> String {
    const SPAN: &str = "Span {";
    let mut kept = String::with_capacity(plan.len());
    let mut rest = plan;
    while let Some(at) = rest.find(SPAN) {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[rest.find('}').map_or(rest.len(), |end| end + 1)..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_named() {
        let of = |query: &str, policy: &str| {
            Fingerprint::of_words(&[("query", query), ("plan", query), ("time policy", policy)])
        };
        let old = of("select a\n  from b", "5s");
        assert_eq!(old.difference(&old), None);
        let said = |new: Fingerprint| old.difference(&new).unwrap();
        assert_eq!(
            said(of("select a\n  from c", "5s")),
            "the query is another: \"from b\" became \"from c\""
        );
        assert_eq!(
            said(of("select a\n  from b", "9s")),
            "the time policy is another: \"5s\" became \"9s\""
        );
        assert!(said(Fingerprint::of_words(&[])).contains("another version"));
        let early = [("query", "q"), (EARLY, "out: 1s")];
        let [with, without] = [&early[..], &early[..1]].map(Fingerprint::of_words);
        let said = with.difference(&without).unwrap();
        assert_eq!(said, "early results were turned on or off");
    }

    #[test]
    fn where_something_stands_in_the_query_is_left_out() {
        let plan = "Filter { span: Span { start: 3, end: 9 }, keep: 1 } Span { start: 1, end: 2 }";
        assert_eq!(without_spans(plan), "Filter { span: , keep: 1 } ");
    }
}
