//! Where each step of a plan runs: on every partition by itself, or once for all.
//!
//! A partition runs what looks at one row at a time, fills its own panes, and keeps to itself what the query keeps apart
//! (PARTITION BY PartitionId, substreams). Everything that combines partitions runs in one shared pipeline, whose
//! entrances merge rows by time or join panes. The cut depends on the plan alone, never on how many threads there are, so
//! neither do the results.

use std::sync::Arc;

use highwater_query::lookback;
use highwater_query::plan::{
    AnalyticNode, Expr, ExprKind, Input, Key, LookupNode, MatchNode, Node, NodeId, Plan, Read,
    Window, WindowNode,
};

use crate::ops::having;
use crate::ops::{
    Analytics, Apply, DataErrors, Filter, GroupSpec, Join, KeySessions, Lookup, LookupTable,
    Matcher, Meeting, Member, Merge, Named, Operator, PaneFill, PaneGrid, PaneJoin, PaneWindow,
    Project, ReferenceTable, SessionRule, Sessions, Sliding, Windowed,
};
use crate::pipeline::{Pipeline, Stage, Target};
use crate::script::Scripts;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PhysicalError {
    #[error("streams with TIMESTAMP BY .. OVER meet only streams that have it too")]
    SubstreamsMixed,
    #[error(
        "over several partitions, TIMESTAMP BY .. OVER needs PARTITION BY PartitionId on the source and PartitionId \
         among the OVER columns"
    )]
    SubstreamsCombined,
}

/// A plan laid out for execution.
#[derive(Debug)]
pub struct Physical {
    plan: Arc<Plan>,
    places: Vec<Place>,
    /// Per node, whether its rows have lanes.
    lanes: Vec<bool>,
    /// Per input, what its partitions hand to the shared pipeline, in order.
    exits: Vec<Vec<Exit>>,
    scripts: Option<Arc<Scripts>>,
    /// Per node, the table of a lookup.
    tables: Vec<Option<Arc<LookupTable>>>,
    reference_errors: DataErrors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On each partition of this input.
    Partition(usize),
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// The rows of a node.
    Rows(NodeId),
    /// The rows of a node with their lanes, which meet others in the shared pipeline; partitions stay apart until then.
    Apart(NodeId),
    /// The panes of a window node that is joined in the shared pipeline.
    Panes(NodeId),
}

/// The shared pipeline and where partitions enter it.
pub struct Shared {
    pub pipeline: Pipeline,
    /// `entries[input][exit][partition]`
    entries: Vec<Vec<Vec<Target>>>,
    /// Per input, whether its partitions meet one by one, each with an operator of its own.
    apart: Vec<bool>,
}

impl Shared {
    /// Takes another partition of an input, behind the others, which begins where all of them have passed. `false` where
    /// the query keeps partitions apart, and its shape depends on their number.
    pub fn grow(&mut self, input: usize) -> bool {
        if self.apart[input] {
            return false;
        }
        for ports in &mut self.entries[input] {
            let Some(&Target::Stage { stage, .. }) = ports.first() else {
                return false;
            };
            if !self.pipeline.add_port(stage) {
                return false;
            }
            let port = ports.len();
            ports.push(Target::Stage { stage, port });
        }
        true
    }

    pub fn entry(&self, input: usize, exit: usize, partition: usize) -> Target {
        self.entries[input][exit][partition]
    }
}

fn are_apart(exits: &[Exit]) -> bool {
    exits.iter().any(|exit| matches!(exit, Exit::Apart(_)))
}

impl Physical {
    /// Whether a job that runs can take more partitions of that input.
    pub fn can_grow(&self, input: usize) -> bool {
        !are_apart(&self.exits[input])
    }

    /// Lays out a plan. If it reads reference data, it can be looked at but not run.
    pub fn new(plan: Arc<Plan>) -> Result<Physical, PhysicalError> {
        let lanes = lanes(&plan)?;
        let mut places: Vec<Place> = Vec::with_capacity(plan.nodes.len());
        for node in &plan.nodes {
            places.push(place(&places, &lanes, node));
        }
        let exits = (0..plan.inputs.len())
            .map(|input| exits(&plan, &places, &lanes, input))
            .collect();
        Ok(Physical {
            plan,
            places,
            lanes,
            exits,
            scripts: None,
            tables: Vec::new(),
            reference_errors: DataErrors::default(),
        })
    }

    /// Lays out a plan that looks up reference data: one table for each of [`Plan::references`].
    pub fn with_references(
        plan: Arc<Plan>,
        references: &[Arc<ReferenceTable>],
    ) -> Result<Physical, PhysicalError> {
        let mut physical = Physical::new(plan)?;
        let mut errors = DataErrors::default();
        let tables: Vec<ReferenceTable> = physical
            .plan
            .references
            .iter()
            .zip(references)
            .map(|(plan, table)| table.after_steps(plan, &mut errors))
            .collect();
        physical.tables = physical
            .plan
            .nodes
            .iter()
            .map(|node| match node {
                Node::Lookup(lookup) => {
                    let table = &tables[lookup.reference];
                    Some(Arc::new(LookupTable::new(table, lookup, &mut errors)))
                }
                _ => None,
            })
            .collect();
        physical.reference_errors = errors;
        Ok(physical)
    }

    /// Rows of reference data that an expression failed on.
    pub fn reference_errors(&self) -> &DataErrors {
        &self.reference_errors
    }

    /// With the JavaScript functions that the query may call.
    pub fn with_scripts(mut self, scripts: Arc<Scripts>) -> Physical {
        self.scripts = Some(scripts);
        self
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether `input` may have several partitions: their substreams are never combined, so each key must belong to one.
    pub fn check_partitions(&self, input: usize, several: bool) -> Result<(), PhysicalError> {
        let Input {
            reads, substream, ..
        } = &self.plan.inputs[input];
        if substream.is_empty() || !several {
            return Ok(());
        }
        let is_partition = |expr: &Expr| match &expr.kind {
            ExprKind::Column(column) => reads[*column] == Read::Partition,
            _ => false,
        };
        let by_partition = |expr: &Expr| match &expr.unfolded().kind {
            ExprKind::Coalesce(all) => all.iter().any(is_partition),
            _ => is_partition(expr.unfolded()),
        };
        let combines = |node: &Node| {
            matches!(node, Node::Window(window) if !window.by_partition
                && self.places[window.from.0] == Place::Partition(input))
        };
        if !substream.iter().any(by_partition) || self.plan.nodes.iter().any(combines) {
            return Err(PhysicalError::SubstreamsCombined);
        }
        Ok(())
    }

    /// Whether the node runs on each partition by itself.
    pub fn is_partitioned(&self, node: NodeId) -> bool {
        matches!(self.places[node.0], Place::Partition(_))
    }

    /// What one partition of `input` runs. Rows enter at [`Physical::LOCAL_ENTRY`]; exit `i` leads to
    /// `Shared::entry(input, i, partition)`.
    pub fn local(&self, input: usize) -> Pipeline {
        let mut graph = Graph::new(self.plan.nodes.len());
        for (index, node) in self.plan.nodes.iter().enumerate() {
            let id = NodeId(index);
            let here = self.places[index] == Place::Partition(input);
            let fills = self.exits[input].contains(&Exit::Panes(id));
            match node {
                Node::Source { .. } if here => {
                    graph.stage_of[index] = Some(graph.add(self.source(input), []));
                }
                Node::Window(window) if fills => {
                    let stage = graph.add(pane_fill(&self.plan, window), [window.from]);
                    graph.exit(stage, self.exit_number(input, Exit::Panes(id)));
                }
                _ if here => {
                    graph.stage_of[index] = Some(self.add_node(&mut graph, index));
                }
                _ => {}
            }
        }
        for (number, exit) in self.exits[input].iter().enumerate() {
            if let Exit::Rows(node) | Exit::Apart(node) = exit
                && let Some(stage) = graph.stage_of[node.0]
            {
                graph.exit(stage, number);
            }
        }
        Pipeline::new(graph.stages).with_scripts(self.scripts.clone())
    }

    pub const LOCAL_ENTRY: Target = Target::Stage { stage: 0, port: 0 };

    /// The shared pipeline for that many partitions of each input. Exit `i` is `plan.outputs[i]`.
    pub fn shared(&self, partitions: &[usize]) -> Shared {
        let mut graph = Graph::new(self.plan.nodes.len());
        let mut entries = Vec::new();
        for (input, exits) in self.exits.iter().enumerate() {
            let ports = partitions[input];
            let mut input_entries = Vec::new();
            for exit in exits {
                if let Exit::Apart(node) = *exit {
                    let stages: Vec<usize> = (0..ports)
                        .map(|_| graph.add(Box::new(Merge::new(1)), []))
                        .collect();
                    let entries = stages.iter().map(|&stage| Target::Stage { stage, port: 0 });
                    input_entries.push(entries.collect());
                    graph.apart[node.0] = stages;
                    continue;
                }
                let (operator, node): (Box<dyn Operator>, NodeId) = match *exit {
                    Exit::Panes(node) => (self.pane_join(node, ports), node),
                    Exit::Rows(node) | Exit::Apart(node) => (Box::new(Merge::new(ports)), node),
                };
                let stage = graph.add(operator, []);
                graph.stage_of[node.0] = Some(stage);
                input_entries.push(
                    (0..ports)
                        .map(|port| Target::Stage { stage, port })
                        .collect(),
                );
            }
            entries.push(input_entries);
        }
        for index in 0..self.plan.nodes.len() {
            if self.places[index] == Place::Shared && graph.stage_of[index].is_none() {
                graph.stage_of[index] = Some(self.add_node(&mut graph, index));
            }
        }
        for (number, output) in self.plan.outputs.iter().enumerate() {
            if let Some(stage) = graph.stage_of[output.from.0] {
                graph.exit(stage, number);
            }
        }
        Shared {
            pipeline: Pipeline::new(graph.stages).with_scripts(self.scripts.clone()),
            entries,
            apart: self.exits.iter().map(|exits| are_apart(exits)).collect(),
        }
    }

    fn exit_number(&self, input: usize, exit: Exit) -> usize {
        self.exits[input]
            .iter()
            .position(|other| *other == exit)
            .unwrap_or_default()
    }

    fn pane_join(&self, node: NodeId, partitions: usize) -> Box<dyn Operator> {
        match &self.plan.nodes[node.0] {
            Node::Window(window) => match PaneGrid::of(&window.window) {
                Some(grid) => Box::new(PaneJoin::new(spec(&self.plan, window), grid, partitions)),
                None => unreachable!("only windows on a grid have panes"),
            },
            _ => unreachable!("only windows have panes"),
        }
    }

    fn add_node(&self, graph: &mut Graph, index: usize) -> usize {
        match &self.plan.nodes[index] {
            Node::Source { .. } => unreachable!("sources run on partitions"),
            Node::Filter { from, keep } => {
                graph.add(Box::new(Filter { keep: keep.clone() }), [*from])
            }
            Node::Project { from, items } => graph.add(Box::new(Project::new(items)), [*from]),
            Node::Window(window) => graph.add(window_operator(&self.plan, window), [window.from]),
            Node::Join(join) if self.lanes[index] => {
                let (node, width) = (join.clone(), join.columns.len());
                let make = move || Box::new(Join::new(&node)) as Box<dyn Member>;
                self.add_meeting(graph, &[join.left, join.right], width, make)
            }
            Node::Join(join) => graph.add(Box::new(Join::new(join)), [join.left, join.right]),
            Node::Lookup(lookup) => match self.tables.get(index) {
                Some(Some(table)) => {
                    graph.add(Box::new(Lookup::new(lookup, table.clone())), [lookup.from])
                }
                _ => unreachable!("a plan with lookups is run with its reference data"),
            },
            Node::Apply {
                from,
                of,
                each,
                outer,
                columns,
            } => {
                let apply = Apply::new(of.clone(), *each, *outer, columns.clone());
                graph.add(Box::new(apply), [*from])
            }
            Node::Analytic(analytic) => {
                graph.add(Box::new(Analytics::new(analytic)), [analytic.from])
            }
            Node::Match(node) => graph.add(
                Box::new(Matcher::new(node, self.plan.ignore_case)),
                [node.from],
            ),
            Node::Union { from, names } => {
                let mappings: Vec<_> = from.iter().map(|(_, map)| Some(map.clone())).collect();
                let merge = move || Merge::mapped(mappings.iter().cloned());
                let from: Vec<NodeId> = from.iter().map(|(node, _)| *node).collect();
                match self.lanes[index] {
                    true => self.add_meeting(graph, &from, names.len(), move || Box::new(merge())),
                    false => graph.add(Box::new(merge()), from),
                }
            }
        }
    }

    /// Adds what does for each key what `make` makes an operator for.
    fn add_meeting(
        &self,
        graph: &mut Graph,
        from: &[NodeId],
        width: usize,
        make: impl Fn() -> Box<dyn Member> + Send + 'static,
    ) -> usize {
        let (mut stages, mut sides) = (Vec::new(), Vec::new());
        for (side, node) in from.iter().enumerate() {
            let here = match &graph.apart[node.0][..] {
                [] => graph.stage_of[node.0].as_slice().to_vec(),
                apart => apart.to_vec(),
            };
            sides.extend(here.iter().map(|_| side));
            stages.extend(here);
        }
        let linger = lookback(&self.plan).ticks();
        let meeting = Meeting::new(&sides, width, linger, make);
        graph.add_behind(Box::new(meeting), &stages)
    }

    /// What the events of an input enter by.
    fn source(&self, input: usize) -> Box<dyn Operator> {
        let mut nodes = self.plan.nodes.iter().zip(&self.lanes);
        match nodes.any(|(node, lanes)| *lanes && meets(node)) {
            true => Box::new(Named::new(&self.plan.inputs[input].substream)),
            false => Box::new(Merge::new(1)),
        }
    }
}

/// Whether rows of several nodes come together in this one.
fn meets(node: &Node) -> bool {
    matches!(node, Node::Join(_) | Node::Union { .. })
}

/// Which nodes have rows with lanes: those over inputs with substreams.
fn lanes(plan: &Plan) -> Result<Vec<bool>, PhysicalError> {
    let mut lanes: Vec<bool> = Vec::with_capacity(plan.nodes.len());
    for node in &plan.nodes {
        let below: Vec<bool> = node.below().iter().map(|node| lanes[node.0]).collect();
        let any = below.contains(&true);
        if any && below.contains(&false) {
            return Err(PhysicalError::SubstreamsMixed);
        }
        lanes.push(match node {
            Node::Source { input } => !plan.inputs[*input].substream.is_empty(),
            _ => any,
        });
    }
    Ok(lanes)
}

fn place(places: &[Place], lanes: &[bool], node: &Node) -> Place {
    // What has lanes stays on the partition, because a key belongs to one.
    let apart = |from: NodeId, by_partition: bool| match lanes[from.0] || by_partition {
        true => places[from.0],
        false => Place::Shared,
    };
    match node {
        Node::Source { input } => Place::Partition(*input),
        Node::Filter { from, .. } | Node::Project { from, .. } => places[from.0],
        Node::Window(window) => apart(window.from, window.by_partition),
        Node::Join(join) if places[join.left.0] == places[join.right.0] => {
            apart(join.left, join.by_partition)
        }
        Node::Join(_) => Place::Shared,
        Node::Analytic(AnalyticNode {
            from, by_partition, ..
        })
        | Node::Match(MatchNode {
            from, by_partition, ..
        }) => apart(*from, *by_partition),
        Node::Lookup(LookupNode { from, .. }) | Node::Apply { from, .. } => places[from.0],
        Node::Union { from, .. } => {
            let mut branches = from.iter().map(|(node, _)| *node);
            match branches.next() {
                Some(first) if branches.all(|node| places[node.0] == places[first.0]) => {
                    apart(first, false)
                }
                _ => Place::Shared,
            }
        }
    }
}

/// What the partitions of `input` hand over: rows that a shared node or an output reads, panes that are joined.
fn exits(plan: &Plan, places: &[Place], lanes: &[bool], input: usize) -> Vec<Exit> {
    let here = |node: NodeId| places[node.0] == Place::Partition(input);
    let mut exits = Vec::new();
    let mut add = |exit| {
        if !exits.contains(&exit) {
            exits.push(exit);
        }
    };
    for (index, node) in plan.nodes.iter().enumerate() {
        if places[index] != Place::Shared {
            continue;
        }
        match node {
            Node::Window(window) if here(window.from) => {
                add(match PaneGrid::of(&window.window) {
                    Some(_) => Exit::Panes(NodeId(index)),
                    None => Exit::Rows(window.from),
                });
            }
            other => {
                let below = other.below().into_iter().filter(|below| here(*below));
                below.for_each(|below| {
                    add(match lanes[index] {
                        true => Exit::Apart(below),
                        false => Exit::Rows(below),
                    });
                });
            }
        }
    }
    plan.outputs
        .iter()
        .filter(|output| here(output.from))
        .for_each(|o| add(Exit::Rows(o.from)));
    exits
}

fn spec(plan: &Plan, window: &WindowNode) -> Arc<GroupSpec> {
    let is_it = |node: &Node| matches!(node, Node::Window(other) if std::ptr::eq(other, window));
    let node = plan.nodes.iter().position(is_it).map(NodeId);
    Arc::new(GroupSpec {
        having: node
            .and_then(|node| having::of(plan, node, window.keys.len(), window.aggregates.len())),
        keys: window.keys.iter().map(|key| key.expr.clone()).collect(),
        aggregates: window.aggregates.clone(),
        lane_tells_group: lane_tells_group(plan, window),
        ignore_case: plan.ignore_case,
    })
}

/// Whether the rows of a substream are all of one group: the query groups by nothing but what TIMESTAMP BY is OVER.
fn lane_tells_group(plan: &Plan, window: &WindowNode) -> bool {
    let mut from = window.from;
    let input = loop {
        match &plan.nodes[from.0] {
            Node::Source { input } => break &plan.inputs[*input],
            Node::Filter { from: below, .. } => from = *below,
            _ => return false,
        }
    };
    let column = |expr: &Expr| match expr.kind {
        ExprKind::Column(column) => Some(column),
        _ => None,
    };
    let over: Vec<usize> = input.substream.iter().filter_map(column).collect();
    let told = |key: &Key| column(&key.expr).is_some_and(|column| over.contains(&column));
    !input.substream.is_empty() && window.keys.iter().all(told)
}

fn pane_fill(plan: &Plan, window: &WindowNode) -> Box<dyn Operator> {
    match PaneGrid::of(&window.window) {
        Some(grid) => Box::new(PaneFill::new(spec(plan, window), grid)),
        None => unreachable!("only windows on a grid have panes"),
    }
}

fn window_operator(plan: &Plan, node: &WindowNode) -> Box<dyn Operator> {
    let spec = spec(plan, node);
    if let Some(grid) = PaneGrid::of(&node.window) {
        return Box::new(PaneWindow::new(spec, grid));
    }
    match &node.window {
        Window::Session { timeout, max, over } => {
            let rule = SessionRule {
                timeout: *timeout,
                max: *max,
            };
            let over = over.clone().unwrap_or_default();
            let one_clock = plan.inputs.iter().all(|input| input.substream.is_empty());
            let one_group = over.iter().copied().eq(0..spec.keys.len()) && !over.is_empty();
            match one_clock && one_group {
                true => Box::new(Windowed::new(KeySessions::new(spec, rule))),
                false => Box::new(Windowed::new(Sessions::new(spec, rule, over))),
            }
        }
        Window::Sliding { size } => Box::new(Windowed::new(Sliding::new(spec, *size))),
        _ => unreachable!("the other windows lie on a grid"),
    }
}

/// A pipeline being wired.
struct Graph {
    stages: Vec<Stage>,
    stage_of: Vec<Option<usize>>,
    /// Per node, the stages of its partitions, where they are kept apart.
    apart: Vec<Vec<usize>>,
}

impl Graph {
    fn new(nodes: usize) -> Graph {
        Graph {
            stages: Vec::new(),
            stage_of: vec![None; nodes],
            apart: vec![Vec::new(); nodes],
        }
    }

    /// Adds an operator that reads the given nodes, one port each.
    fn add(
        &mut self,
        operator: Box<dyn Operator>,
        from: impl IntoIterator<Item = NodeId>,
    ) -> usize {
        let from = from.into_iter().filter_map(|node| self.stage_of[node.0]);
        let from: Vec<usize> = from.collect();
        self.add_behind(operator, &from)
    }

    /// Adds an operator that reads the given stages, one port each.
    fn add_behind(&mut self, operator: Box<dyn Operator>, from: &[usize]) -> usize {
        let stage = self.stages.len();
        for (port, source) in from.iter().enumerate() {
            let targets = &mut self.stages[*source].targets;
            targets.push(Target::Stage { stage, port });
        }
        self.stages.push(Stage {
            operator,
            targets: Vec::new(),
        });
        stage
    }

    fn exit(&mut self, stage: usize, exit: usize) {
        self.stages[stage].targets.push(Target::Exit(exit));
    }
}
