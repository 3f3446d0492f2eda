//! What several instances of a job do in parallel, and what meets in one place.

use serde::Serialize;

use crate::live::sharing_refusal;
use crate::load::Job;
use crate::plan_steps::{JobPart, plan_steps};

/// How the steps of a job are spread over instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobSpread {
    /// Why instances cannot share the job, if they cannot.
    pub refusal: Option<String>,
    /// Steps that each partition of the inputs has by itself.
    pub spread: Vec<String>,
    /// Steps that one instance has, the combiner.
    pub combined: Vec<String>,
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
        lines.push("  in one place, the combiner, which another instance takes over:".into());
        lines.extend(self.combined.iter().map(|step| format!("    {step}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JobFile;

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
        let refused = spread(window, "hub = \"a\"");
        assert!(refused.refusal.is_some());
        assert!(refused.lines(3)[1].contains("is no Kafka topic"));
    }
}
