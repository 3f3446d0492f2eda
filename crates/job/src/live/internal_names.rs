//! The names of what a job keeps on a cluster and in a store, made of the names of job and input.
//!
//! On a cluster that the job file names, topics and groups begin with `_highwater-`. Where the log of the node is the
//! cluster, topics are internal hubs of the node, whose names begin with the prefix of the node.

use highwater_connect::ClusterRef;

use crate::config::KafkaInput;

/// Names of topics are at most 249 characters long.
const NAME_MAX: usize = 200;

/// The prefix of a node has up to 100 of them.
const NODE_NAME_MAX: usize = 120;

/// A topic of the job on the cluster of an input.
pub(super) fn internal_topic(kafka: &KafkaInput, kind: &str, parts: &[&str]) -> String {
    match kafka.cluster {
        ClusterRef::OfNode => made_name(&format!("__{kind}"), parts, NODE_NAME_MAX),
        ClusterRef::Named(_) => internal_name(&format!("_highwater-{kind}"), parts),
    }
}

/// A name made of parts, with a checksum where that would be no name or ambiguous.
pub(super) fn internal_name(prefix: &str, parts: &[&str]) -> String {
    made_name(prefix, parts, NAME_MAX)
}

fn made_name(prefix: &str, parts: &[&str], length_max: usize) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let whole = format!("{prefix}.{}", parts.join("."));
    let mut name: String = whole.chars().filter(|c| plain(*c)).collect();
    let all_but_last = &parts[..parts.len().saturating_sub(1)];
    let is_ambiguous = all_but_last.iter().any(|part| part.contains('.'));
    if is_ambiguous || name.len() != whole.len() || name.len() > length_max {
        name.truncate(length_max);
        let sum = crc32c::crc32c(parts.join("\0").as_bytes());
        name.push_str(&format!(".{sum:08x}"));
    }
    name
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use highwater_connect::ClusterSettings;
    use highwater_log::HubName;

    use super::*;
    use crate::config::ArrivalTime;

    fn input(cluster: ClusterRef) -> KafkaInput {
        KafkaInput {
            cluster,
            arrival: ArrivalTime::LogAppend,
            transactions: true,
            journal: None,
            clock_margin: Duration::ZERO,
        }
    }

    fn check(input: &KafkaInput, plain: &str, length_max: usize) {
        let name = |job: &str, of: &str| internal_topic(input, "time", &[job, of, "t"]);
        assert_eq!(name("j", "in"), plain);
        let long = "x".repeat(300);
        let names = [
            name("a b", "in"),
            name("ab", "in"),
            name("a", "b in"),
            name("a.b", "c"),
            name("a", "b.c"),
            name(&long, "in"),
        ];
        for (at, name) in names.iter().enumerate() {
            assert!(HubName::new(name).is_ok(), "{name}");
            assert!(!names[..at].contains(name), "{name}");
            assert!(name.len() <= length_max, "{name}");
        }
    }

    #[test]
    fn a_name_is_that_of_a_topic_and_tells_jobs_apart() {
        let named = ClusterRef::Named(ClusterSettings::new(Vec::new()));
        check(&input(named), "_highwater-time.j.in.t", 249);
        // With the prefix of a node and `_highwater.` in place of the underscores.
        check(&input(ClusterRef::OfNode), "__time.j.in.t", 249 - 100 - 9);
    }
}
