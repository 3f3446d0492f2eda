//! The steps of a job as a diagram shows them: sources, the ordering by time, the steps of the plan, outputs.

use highwater_query::plan::{Node, NodeId};
use highwater_query::steps;

use crate::load::Job;

/// A box of the diagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStep {
    /// Unique in the job, and the same for equal plans.
    pub id: String,
    pub kind: &'static str,
    pub label: String,
    /// The ids of the steps that it reads.
    pub inputs: Vec<String>,
    /// It runs on each partition separately.
    pub is_per_partition: bool,
    pub part: JobPart,
    /// The inputs of the plan that its rows come from; its watermark is their minimum.
    pub sources: Vec<usize>,
}

/// The part of a job that a step represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPart {
    /// An input of the plan.
    Source(usize),
    /// The ordering of its events.
    Order(usize),
    /// A node of the plan.
    Node(usize),
    /// An output, by its index among the names that the query writes to.
    Output(usize),
}

/// The steps of a job, each after those that it reads.
pub fn plan_steps(job: &Job) -> Vec<JobStep> {
    let plan = &job.plan;
    let nodes = steps(plan);
    let mut all = Vec::new();
    for (input, planned) in plan.inputs.iter().enumerate() {
        let reads = |node: &Node| matches!(node, Node::Source { input: of } if *of == input);
        let source = plan.nodes.iter().position(reads);
        let label = source.map_or_else(
            || format!("source {}", planned.name),
            |node| nodes[node].label.clone(),
        );
        let step = |kind: &'static str, label, inputs, part| JobStep {
            id: format!("{kind}-{input}"),
            kind,
            label,
            inputs,
            is_per_partition: true,
            part,
            sources: vec![input],
        };
        let order = match planned.timestamp {
            Some(_) => format!("order, {} bound", job.file.time.out_of_order),
            None => "order by arrival".to_owned(),
        };
        all.push(step("source", label, Vec::new(), JobPart::Source(input)));
        let from = vec![format!("source-{input}")];
        all.push(step("order", order, from, JobPart::Order(input)));
    }
    let mut sources: Vec<Vec<usize>> = Vec::new();
    for step in nodes {
        sources.push(match &plan.nodes[step.node.0] {
            Node::Source { input } => vec![*input],
            _ => union(step.below.iter().map(|below| &sources[below.0])),
        });
        if matches!(plan.nodes[step.node.0], Node::Source { .. }) {
            continue;
        }
        all.push(JobStep {
            id: format!("step-{}", step.node.0),
            kind: step.kind,
            label: step.label,
            inputs: step.below.iter().map(|below| id_of(job, *below)).collect(),
            is_per_partition: step.is_per_partition,
            part: JobPart::Node(step.node.0),
            sources: sources[step.node.0].clone(),
        });
    }
    for (index, name) in output_names(job).into_iter().enumerate() {
        let statements = plan.outputs.iter();
        let from = statements.filter(|output| output.name.eq_ignore_ascii_case(&name));
        let from: Vec<NodeId> = from.map(|output| output.from).collect();
        all.push(JobStep {
            id: format!("output-{index}"),
            kind: "output",
            label: name,
            inputs: from.iter().map(|node| id_of(job, *node)).collect(),
            is_per_partition: false,
            part: JobPart::Output(index),
            sources: union(from.iter().map(|node| &sources[node.0])),
        });
    }
    all
}

/// The names that the query writes to, each once, in its order.
pub(crate) fn output_names(job: &Job) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for output in &job.plan.outputs {
        if !names
            .iter()
            .any(|name| name.eq_ignore_ascii_case(&output.name))
        {
            names.push(output.name.clone());
        }
    }
    names
}

fn id_of(job: &Job, node: NodeId) -> String {
    match &job.plan.nodes[node.0] {
        Node::Source { input } => format!("order-{input}"),
        _ => format!("step-{}", node.0),
    }
}

fn union<'a>(lists: impl Iterator<Item = &'a Vec<usize>>) -> Vec<usize> {
    let mut all: Vec<usize> = lists.flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JobFile;

    #[test]
    fn steps_lead_from_sources_to_outputs() {
        let job = "sql = \"SELECT COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY TumblingWindow(minute, 1) \
            SELECT l.k INTO X FROM a l TIMESTAMP BY t JOIN b r TIMESTAMP BY t ON DATEDIFF(minute, l, r) BETWEEN 0 AND 1\"\n\
            [inputs.a]\nhub = \"a\"\n[inputs.b]\nhub = \"b\"\n";
        let job = Job::new(JobFile::parse(job, "job.toml").unwrap()).unwrap();
        let steps = plan_steps(&job);
        let kinds: Vec<&str> = steps.iter().map(|step| step.kind).collect();
        assert_eq!(kinds[..4], ["source", "order", "source", "order"]);
        let output = steps.last().unwrap();
        assert_eq!((&output.id[..], &output.label[..]), ("output-0", "x"));
        assert_eq!((output.inputs.len(), &output.sources[..]), (2, &[0, 1][..]));
        let window = steps.iter().find(|step| step.kind == "window").unwrap();
        assert_eq!(
            (&window.inputs[..], &window.sources[..]),
            (&["order-0".to_owned()][..], &[0][..])
        );
        let ids: Vec<&String> = steps.iter().map(|step| &step.id).collect();
        for (index, step) in steps.iter().enumerate() {
            let known = |id: &&String| ids[..index].contains(id);
            assert!(step.inputs.iter().all(|id| known(&id)), "{step:?}");
        }
    }
}
