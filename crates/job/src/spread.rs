//! Which steps of a job run on every instance, and which in a combiner.

use serde::Serialize;

use crate::key_spread::{combiners, key_routes};
use crate::live::sharing_refusal;
use crate::load::Job;
use crate::plan_steps::{JobPart, plan_steps};

/// How the steps of a job are spread over instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobSpread {
    /// Why instances cannot share the job, if they cannot.
    pub refusal: Option<String>,
    /// Steps that run for each partition of the inputs.
    pub spread: Vec<String>,
    /// Steps of the combiner, or of several combiners that share the keys of the outputs.
    pub combined: Vec<String>,
    /// How many combiners there are.
    pub combiners: usize,
    /// Why several combiners could not share the job by key, if they could not.
    pub one_place: Option<String>,
}

impl JobSpread {
    pub fn of(job: &Job) -> JobSpread {
        let (mut spread, mut combined) = (Vec::new(), Vec::new());
        for step in plan_steps(job) {
            let node = match step.part {
                JobPart::Node(node) => Some(highwater_query::plan::NodeId(node)),
                _ => None,
            };
            if node.is_some_and(|node| job.physical.fills_panes(node)) {
                spread.push(format!("{}: the panes of each partition", step.label));
                combined.push(format!("{}: panes of all partitions joined", step.label));
                continue;
            }
            let is_spread = match step.part {
                JobPart::Source(_) | JobPart::Order(_) => true,
                JobPart::Node(_) => node.is_some_and(|node| job.physical.is_partitioned(node)),
                JobPart::Output(_) => false,
            };
            match (is_spread, step.part) {
                (true, _) => spread.push(step.label),
                (false, JobPart::Output(_)) => combined.push(format!("output {}", step.label)),
                (false, _) => combined.push(step.label),
            }
        }
        JobSpread {
            refusal: sharing_refusal(job),
            spread,
            combined,
            combiners: combiners(job),
            one_place: key_routes(job).err(),
        }
    }

    /// Lines for a reader, for this many instances.
    pub fn lines(&self, instances: usize) -> Vec<String> {
        let mut lines = vec![format!("on {instances} instances:")];
        if let Some(refusal) = &self.refusal {
            lines.push(format!("  refused: {refusal}"));
            return lines;
        }
        let share = match instances {
            0 | 1 => "all partitions are on the one instance".to_owned(),
            more => format!("each instance has about 1/{more} of them"),
        };
        lines.push(format!(
            "  spread over the partitions of the inputs, {share}:"
        ));
        lines.extend(self.spread.iter().map(|step| format!("    {step}")));
        lines.push(match self.combiners {
            1 => "  in one place, the combiner, which another instance takes over:".into(),
            several => format!(
                "  spread over {several} combiners by the key of each output, with a producer each:"
            ),
        });
        lines.extend(self.combined.iter().map(|step| format!("    {step}")));
        match &self.one_place {
            _ if self.combiners > 1 => {}
            Some(reason) => lines.push(format!("  it stays in one place: {reason}")),
            None => lines.push(
                "  it can be spread by the key of each output: `state.combiners` says over how many combiners".into(),
            ),
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ArrivalTime, JobFile};

    fn spread(sql: &str, input: &str) -> JobSpread {
        let text = format!("sql = \"{sql}\"\n[inputs.a]\n{input}\n");
        JobSpread::of(&Job::new(JobFile::parse(&text, "job.toml").unwrap()).unwrap())
    }

    // proves X1
    #[test]
    fn what_stays_on_a_partition_is_told_from_what_meets() {
        let topic = "type = \"kafka\"\nservers = [\"b:1\"]\ntopic = \"a\"";
        let window =
            "SELECT COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY TumblingWindow(minute, 1)";
        let found = spread(window, topic);
        assert_eq!(found.refusal, None);
        let has = |steps: &[String], text: &str| steps.iter().any(|step| step.contains(text));
        assert!(has(&found.spread, "panes of each partition"), "{found:?}");
        assert!(has(&found.combined, "panes of all partitions"), "{found:?}");
        assert!(has(&found.combined, "output x"), "{found:?}");
        let apart = "SELECT PartitionId, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t PARTITION BY PartitionId \
                     GROUP BY PartitionId, TumblingWindow(minute, 1)";
        let found = spread(apart, topic);
        assert!(!has(&found.combined, "window"), "{found:?}");
        assert_eq!(found.combined, ["output x"]);
        assert!(found.one_place.unwrap().contains("has no `key`"));
        let refused = spread(window, "hub = \"a\"");
        assert!(refused.refusal.is_some());
        assert!(refused.lines(3)[1].contains("is no Kafka topic"));
    }

    // proves X1
    #[test]
    fn hubs_over_a_cluster_are_shared_as_topics_are() {
        let text = "sql = \"SELECT Device, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t \
                    GROUP BY Device, TumblingWindow(minute, 1)\"\n[inputs.a]\nhub = \"a\"\n\
                    [outputs.x]\ntype = \"hub\"\nhub = \"x\"\nkey = \"Device\"\n\
                    [state]\npath = \"s\"\nshared = true\ncombiners = 2\n";
        let spread = |transactions: Option<bool>| {
            let mut file = JobFile::parse(text, "job.toml").unwrap();
            if let Some(transactions) = transactions {
                file.over_cluster(transactions, |_| ArrivalTime::LogAppend);
            }
            JobSpread::of(&Job::new(file).unwrap())
        };
        let shared = spread(Some(true));
        assert_eq!((shared.refusal, shared.combiners), (None, 2));
        let refused = |transactions| spread(transactions).refusal.unwrap();
        assert!(refused(Some(false)).contains("without transactions"));
        assert!(refused(None).contains("a node whose log is a cluster"));
    }

    fn keyed(sql: &str, lines: &str) -> JobSpread {
        let topic = |kind: &str, name: &str, more: &str| {
            format!(
                "[{kind}.{name}]\ntype = \"kafka\"\nservers = [\"b:1\"]\ntopic = \"{name}\"\n{more}"
            )
        };
        let text = format!(
            "sql = \"{sql}\"\n{}{}{}[state]\npath = \"s\"\nshared = true\n{lines}",
            topic("inputs", "a", ""),
            topic("inputs", "b", ""),
            topic("outputs", "x", "key = \"k\"\n"),
        );
        JobSpread::of(&Job::new(JobFile::parse(&text, "job.toml").unwrap()).unwrap())
    }

    // proves X1
    #[test]
    fn a_join_is_spread_by_keys_of_one_type() {
        let typed = "WITH c AS (SELECT CAST(k AS bigint) AS k FROM a), d AS (SELECT CAST(k AS bigint) AS k FROM b) \
                     SELECT d.k AS k INTO x FROM c JOIN d ON c.k = d.k AND DATEDIFF(second, c, d) BETWEEN 0 AND 3";
        let declared = "CREATE TABLE a (k nvarchar(max)); CREATE TABLE b (k nvarchar(max)); \
                        SELECT a.k AS k INTO x FROM a JOIN b ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 3";
        for sql in [typed, declared] {
            let found = keyed(sql, "combiners = 3\n");
            assert_eq!(found.refusal, None, "{sql}");
        }
    }

    // proves X1
    #[test]
    fn what_keys_keep_apart_is_spread_and_the_rest_says_why_not() {
        let counts = "SELECT k, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 1)";
        let found = keyed(counts, "combiners = 3\n");
        assert_eq!((found.refusal.clone(), found.combiners), (None, 3));
        let lines = found.lines(2).join("\n");
        assert!(lines.contains("spread over 3 combiners"), "{lines}");
        assert!(!lines.contains("in one place"), "{lines}");
        let one = keyed(counts, "").lines(2).join("\n");
        assert!(
            one.contains("in one place") && one.contains("`state.combiners`"),
            "{one}"
        );
        let dead = "[errors]\non_error = \"dead_letter\"\ndead_letter = \"d\"\n[outputs.d]\ntype = \"kafka\"\n\
                    servers = [\"b:1\"]\ntopic = \"d\"\n";
        for (sql, lines, reason) in [
            (counts, dead, "dead letters"),
            (
                "SELECT k + 1 AS n INTO x FROM a",
                "",
                "does not name the key `k`",
            ),
            ("SELECT * INTO x FROM a", "", "before any `*`"),
            (
                "SELECT COUNT(*) AS k INTO x FROM a GROUP BY v, TumblingWindow(minute, 1)",
                "",
                "no key of GROUP BY",
            ),
            (
                "SELECT k, LAG(v) OVER (LIMIT DURATION(minute, 1)) AS v INTO x FROM a",
                "",
                "PARTITION BY lacks the key",
            ),
            (
                "SELECT k, COUNT(*) AS n INTO x FROM a GROUP BY k, SessionWindow(minute, 1, 5)",
                "",
                "events of all keys",
            ),
            (
                "SELECT a.k AS k INTO x FROM a JOIN b ON a.k = b.k AND DATEDIFF(second, a, b) BETWEEN 0 AND 3",
                "",
                "CAST the keys of both sides",
            ),
            (
                "WITH c AS (SELECT CAST(k AS bigint) AS k, v FROM a), d AS (SELECT CAST(k AS bigint) AS k, v FROM b) \
                 SELECT d.k AS k INTO x FROM c LEFT JOIN d ON c.k = d.k AND DATEDIFF(second, c, d) BETWEEN 0 AND 3",
                "",
                "LEFT JOIN finds no match",
            ),
            (
                "WITH c AS (SELECT CAST(k AS bigint) AS k, v FROM a), d AS (SELECT CAST(k AS nvarchar(max)) AS k, v FROM b) \
                 SELECT c.k AS k INTO x FROM c JOIN d ON c.k = d.k AND DATEDIFF(second, c, d) BETWEEN 0 AND 3",
                "",
                "CAST the keys of both sides",
            ),
            (
                "WITH c AS (SELECT CAST(k AS bigint) AS k, v FROM a), d AS (SELECT CAST(k AS bigint) AS k, v FROM b) \
                 SELECT c.k AS k INTO x FROM c JOIN d ON c.v = d.v AND DATEDIFF(second, c, d) BETWEEN 0 AND 3",
                "",
                "no key of the JOIN",
            ),
        ] {
            let found = keyed(sql, &format!("combiners = 3\n{lines}"));
            let refusal = found.refusal.unwrap_or_default();
            assert!(
                refusal.contains("3 combiners cannot share it") && refusal.contains(reason),
                "{sql}: {refusal}"
            );
        }
    }
}
