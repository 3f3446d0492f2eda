//! Decides where each step of a plan runs: on every partition, or once in the shared pipeline.
//!
//! A partition runs the steps on single rows, fills its own panes, and runs the steps that the query keeps apart
//! (PARTITION BY PartitionId, substreams). Steps that combine partitions run in one shared pipeline, whose entries
//! merge rows by time or join panes. The split depends on the plan alone and not on the number of threads, so results
//! do not either.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use highwater_query::lookback;
use highwater_query::plan::{
    AnalyticNode, Expr, ExprKind, Input, Key, LookupNode, MatchNode, Node, NodeId, Plan, Read,
    Window, WindowNode,
};

use crate::item_codec::ItemReader;
use crate::ops::having;
use crate::ops::{
    Analytics, Apply, DataErrors, Filter, GroupSpec, Join, KeyOperator, KeySessions, LaneNamer,
    Lookup, LookupTable, Matcher, Merge, Operator, PaneFill, PaneGrid, PaneJoin, PaneWindow,
    Project, ReferenceTable, SessionRule, Sessions, Sliding, SubstreamJoin, WindowOperator,
};
use crate::pipeline::{Pipeline, Stage, Target};
use crate::script::Scripts;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PhysicalPlanError {
    #[error("streams with TIMESTAMP BY .. OVER meet only streams that have it too")]
    SubstreamsMixed,
    #[error(
        "over several partitions, TIMESTAMP BY .. OVER needs PARTITION BY PartitionId on the source and PartitionId \
         among the OVER columns"
    )]
    SubstreamsCombined,
}

/// A plan with the placement of its steps.
#[derive(Clone, Debug)]
pub struct PhysicalPlan {
    plan: Arc<Plan>,
    placements: Vec<Placement>,
    /// Per node, whether its rows have lanes.
    lanes: Vec<bool>,
    /// Per input, the exits of its partitions to the shared pipeline, in order.
    pub(crate) exits: Vec<Vec<Exit>>,
    scripts: Option<Arc<Scripts>>,
    /// Per node, the table of a lookup.
    tables: Vec<Option<Arc<LookupTable>>>,
    reference_errors: DataErrors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On each partition of this input.
    Partition(usize),
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The rows of a node.
    Rows(NodeId),
    /// The rows of a node with their lanes; each partition enters a substream join separately.
    PerPartition(NodeId),
    /// The panes of a window node that is joined in the shared pipeline.
    Panes(NodeId),
}

/// The shared pipeline and the entries of the partitions.
pub struct SharedPipeline {
    pub pipeline: Pipeline,
    /// `entries[input][exit][partition]`
    entries: Vec<Vec<Vec<Target>>>,
    /// Per input, whether each partition has an entry operator of its own.
    per_partition: Vec<bool>,
}

impl SharedPipeline {
    /// Adds a partition to an input, starting at the combined watermark. `false` if the shape of the pipeline depends
    /// on the number of partitions.
    pub fn grow(&mut self, input: usize) -> bool {
        if self.per_partition[input] {
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

fn are_per_partition(exits: &[Exit]) -> bool {
    exits
        .iter()
        .any(|exit| matches!(exit, Exit::PerPartition(_)))
}

impl PhysicalPlan {
    /// Whether a running job can take more partitions of that input.
    pub fn can_grow(&self, input: usize) -> bool {
        !are_per_partition(&self.exits[input])
    }

    /// Places the steps of a plan. A plan with reference data can be inspected but not run.
    pub fn new(plan: Arc<Plan>) -> Result<PhysicalPlan, PhysicalPlanError> {
        let lanes = lanes(&plan)?;
        let mut placements: Vec<Placement> = Vec::with_capacity(plan.nodes.len());
        for node in &plan.nodes {
            placements.push(placement(&placements, &lanes, node));
        }
        let exits = (0..plan.inputs.len())
            .map(|input| exits(&plan, &placements, &lanes, input))
            .collect();
        Ok(PhysicalPlan {
            plan,
            placements,
            lanes,
            exits,
            scripts: None,
            tables: Vec::new(),
            reference_errors: DataErrors::default(),
        })
    }

    /// Places the steps of a plan with reference data: one table for each of [`Plan::references`].
    pub fn with_references(
        plan: Arc<Plan>,
        references: &[Arc<ReferenceTable>],
    ) -> Result<PhysicalPlan, PhysicalPlanError> {
        let mut physical = PhysicalPlan::new(plan)?;
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

    /// Places the steps of `plan`, which are `nodes` of this plan, with the reference data and functions of this one.
    pub fn part(
        &self,
        plan: Arc<Plan>,
        nodes: &[NodeId],
    ) -> Result<PhysicalPlan, PhysicalPlanError> {
        let mut part = PhysicalPlan::new(plan)?;
        if !self.tables.is_empty() {
            let tables = nodes.iter().map(|node| self.tables[node.0].clone());
            part.tables = tables.collect();
        }
        part.scripts = self.scripts.clone();
        Ok(part)
    }

    /// Rows of reference data on which an expression failed.
    pub fn reference_errors(&self) -> &DataErrors {
        &self.reference_errors
    }

    /// Sets the JavaScript functions that the query may call.
    pub fn with_scripts(mut self, scripts: Arc<Scripts>) -> PhysicalPlan {
        self.scripts = Some(scripts);
        self
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Checks whether `input` may have several partitions: their substreams are never combined, so each key must belong
    /// to one partition.
    pub fn check_partitions(&self, input: usize, several: bool) -> Result<(), PhysicalPlanError> {
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
                && self.placements[window.from.0] == Placement::Partition(input))
        };
        if !substream.iter().any(by_partition) || self.plan.nodes.iter().any(combines) {
            return Err(PhysicalPlanError::SubstreamsCombined);
        }
        Ok(())
    }

    pub(crate) fn placement(&self, node: NodeId) -> Placement {
        self.placements[node.0]
    }

    /// Whether the rows of the node have lanes.
    pub(crate) fn has_lanes(&self, node: NodeId) -> bool {
        self.lanes[node.0]
    }

    /// Whether the node runs on each partition.
    pub fn is_partitioned(&self, node: NodeId) -> bool {
        matches!(self.placements[node.0], Placement::Partition(_))
    }

    /// Whether partitions fill panes for the node, which is joined in the shared pipeline.
    pub fn fills_panes(&self, node: NodeId) -> bool {
        let mut exits = self.exits.iter().flatten();
        exits.any(|exit| *exit == Exit::Panes(node))
    }

    /// The pipeline of one partition of `input`. Rows enter at [`PhysicalPlan::LOCAL_ENTRY`]; exit `i` leads to
    /// `SharedPipeline::entry(input, i, partition)`.
    pub fn local(&self, input: usize) -> Pipeline {
        let mut graph = Graph::new(self.plan.nodes.len());
        for (index, node) in self.plan.nodes.iter().enumerate() {
            let id = NodeId(index);
            let here = self.placements[index] == Placement::Partition(input);
            let fills = self.exits[input].contains(&Exit::Panes(id));
            match node {
                Node::Source { .. } if here => {
                    let stage = graph.add(self.source(input), []);
                    graph.stage_of[index] = Some(graph.runs(stage, index));
                }
                Node::Window(window) if fills => {
                    let stage = graph.add(pane_fill(&self.plan, window), [window.from]);
                    graph.stages[stage].node = index;
                    graph.exit(stage, self.exit_number(input, Exit::Panes(id)));
                }
                _ if here => {
                    let stage = self.add_node(&mut graph, index);
                    graph.stage_of[index] = Some(graph.runs(stage, index));
                }
                _ => {}
            }
        }
        for (number, exit) in self.exits[input].iter().enumerate() {
            if let Exit::Rows(node) | Exit::PerPartition(node) = exit
                && let Some(stage) = graph.stage_of[node.0]
            {
                graph.exit(stage, number);
            }
        }
        Pipeline::new(graph.stages).with_scripts(self.scripts.clone())
    }

    pub const LOCAL_ENTRY: Target = Target::Stage { stage: 0, port: 0 };

    /// The shared pipeline for the given number of partitions of each input. Exit `i` is `plan.outputs[i]`.
    pub fn shared(&self, partitions: &[usize]) -> SharedPipeline {
        let mut graph = Graph::new(self.plan.nodes.len());
        let mut entries = Vec::new();
        for (input, exits) in self.exits.iter().enumerate() {
            let ports = partitions[input];
            let mut input_entries = Vec::new();
            for exit in exits {
                if let Exit::PerPartition(node) = *exit {
                    let stages: Vec<usize> = (0..ports)
                        .map(|_| graph.add(Box::new(Merge::new(1)), []))
                        .collect();
                    for stage in &stages {
                        graph.stages[*stage].node = node.0;
                    }
                    let entries = stages.iter().map(|&stage| Target::Stage { stage, port: 0 });
                    input_entries.push(entries.collect());
                    graph.per_partition[node.0] = stages;
                    continue;
                }
                let (operator, node): (Box<dyn Operator>, NodeId) = match *exit {
                    Exit::Panes(node) => (self.pane_join(node, ports), node),
                    Exit::Rows(node) | Exit::PerPartition(node) => {
                        (Box::new(Merge::new(ports)), node)
                    }
                };
                let stage = graph.add(operator, []);
                graph.stages[stage].node = node.0;
                // The rows of a partition are counted there, those of joined panes here.
                graph.stages[stage].is_last_of_node = matches!(exit, Exit::Panes(_));
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
            if self.placements[index] == Placement::Shared && graph.stage_of[index].is_none() {
                let stage = self.add_node(&mut graph, index);
                graph.stage_of[index] = Some(graph.runs(stage, index));
            }
        }
        for (number, output) in self.plan.outputs.iter().enumerate() {
            if let Some(stage) = graph.stage_of[output.from.0] {
                graph.exit(stage, number);
            }
        }
        SharedPipeline {
            pipeline: Pipeline::new(graph.stages).with_scripts(self.scripts.clone()),
            entries,
            per_partition: self
                .exits
                .iter()
                .map(|exits| are_per_partition(exits))
                .collect(),
        }
    }

    /// Reads items that left partitions in another process.
    pub fn item_reader(&self) -> ItemReader {
        let panes = |exit: &Exit| match exit {
            Exit::Panes(node) => match &self.plan.nodes[node.0] {
                Node::Window(window) => Some(spec(&self.plan, window)),
                _ => None,
            },
            Exit::Rows(_) | Exit::PerPartition(_) => None,
        };
        let exits = self.exits.iter();
        ItemReader::new(
            exits
                .map(|exits| exits.iter().map(panes).collect())
                .collect(),
        )
    }

    pub(crate) fn exit_number(&self, input: usize, exit: Exit) -> usize {
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
                let make = move || Box::new(Join::new(&node)) as Box<dyn KeyOperator>;
                self.add_substream_join(graph, &[join.left, join.right], width, make)
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
                    true => self
                        .add_substream_join(graph, &from, names.len(), move || Box::new(merge())),
                    false => graph.add(Box::new(merge()), from),
                }
            }
        }
    }

    /// Adds a substream join that runs an operator of `make` for each key.
    fn add_substream_join(
        &self,
        graph: &mut Graph,
        from: &[NodeId],
        width: usize,
        make: impl Fn() -> Box<dyn KeyOperator> + Send + 'static,
    ) -> usize {
        let (mut stages, mut sides) = (Vec::new(), Vec::new());
        for (side, node) in from.iter().enumerate() {
            let here = match &graph.per_partition[node.0][..] {
                [] => graph.stage_of[node.0].as_slice().to_vec(),
                apart => apart.to_vec(),
            };
            sides.extend(here.iter().map(|_| side));
            stages.extend(here);
        }
        let retention = lookback(&self.plan).ticks();
        let join = SubstreamJoin::new(&sides, width, retention, make);
        graph.add_behind(Box::new(join), &stages)
    }

    /// The source operator of an input.
    fn source(&self, input: usize) -> Box<dyn Operator> {
        let mut nodes = self.plan.nodes.iter().zip(&self.lanes);
        match nodes.any(|(node, lanes)| *lanes && combines_nodes(node)) {
            true => Box::new(LaneNamer::new(&self.plan.inputs[input].substream)),
            false => Box::new(Merge::new(1)),
        }
    }
}

/// Whether the node combines the rows of several nodes.
fn combines_nodes(node: &Node) -> bool {
    matches!(node, Node::Join(_) | Node::Union { .. })
}

/// The nodes whose rows have lanes: those over inputs with substreams.
fn lanes(plan: &Plan) -> Result<Vec<bool>, PhysicalPlanError> {
    let mut lanes: Vec<bool> = Vec::with_capacity(plan.nodes.len());
    for node in &plan.nodes {
        let below: Vec<bool> = node.below().iter().map(|node| lanes[node.0]).collect();
        let any = below.contains(&true);
        if any && below.contains(&false) {
            return Err(PhysicalPlanError::SubstreamsMixed);
        }
        lanes.push(match node {
            Node::Source { input } => !plan.inputs[*input].substream.is_empty(),
            _ => any,
        });
    }
    Ok(lanes)
}

fn placement(placements: &[Placement], lanes: &[bool], node: &Node) -> Placement {
    // Steps with lanes stay on the partition, because a key belongs to one.
    let apart = |from: NodeId, by_partition: bool| match lanes[from.0] || by_partition {
        true => placements[from.0],
        false => Placement::Shared,
    };
    match node {
        Node::Source { input } => Placement::Partition(*input),
        Node::Filter { from, .. } | Node::Project { from, .. } => placements[from.0],
        Node::Window(window) => apart(window.from, window.by_partition),
        Node::Join(join) if placements[join.left.0] == placements[join.right.0] => {
            apart(join.left, join.by_partition)
        }
        Node::Join(_) => Placement::Shared,
        Node::Analytic(AnalyticNode {
            from, by_partition, ..
        })
        | Node::Match(MatchNode {
            from, by_partition, ..
        }) => apart(*from, *by_partition),
        Node::Lookup(LookupNode { from, .. }) | Node::Apply { from, .. } => placements[from.0],
        Node::Union { from, .. } => {
            let mut branches = from.iter().map(|(node, _)| *node);
            match branches.next() {
                Some(first) if branches.all(|node| placements[node.0] == placements[first.0]) => {
                    apart(first, false)
                }
                _ => Placement::Shared,
            }
        }
    }
}

/// The exits of the partitions of `input`: rows that a shared node or an output reads, and panes that are joined.
fn exits(plan: &Plan, placements: &[Placement], lanes: &[bool], input: usize) -> Vec<Exit> {
    let here = |node: NodeId| placements[node.0] == Placement::Partition(input);
    let mut exits = Vec::new();
    let mut add = |exit| {
        if !exits.contains(&exit) {
            exits.push(exit);
        }
    };
    for (index, node) in plan.nodes.iter().enumerate() {
        if placements[index] != Placement::Shared {
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
                        true => Exit::PerPartition(below),
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
        lane_determines_group: lane_determines_group(plan, window),
        ignore_case: plan.ignore_case,
    })
}

/// Whether all rows of a substream are in one group: GROUP BY names only columns of TIMESTAMP BY .. OVER.
fn lane_determines_group(plan: &Plan, window: &WindowNode) -> bool {
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
    let is_substream_key =
        |key: &Key| column(&key.expr).is_some_and(|column| over.contains(&column));
    !input.substream.is_empty() && window.keys.iter().all(is_substream_key)
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
                true => Box::new(WindowOperator::new(KeySessions::new(spec, rule))),
                false => Box::new(WindowOperator::new(Sessions::new(spec, rule, over))),
            }
        }
        Window::Sliding { size } => Box::new(WindowOperator::new(Sliding::new(spec, *size))),
        _ => unreachable!("the other windows lie on a grid"),
    }
}

/// A pipeline under construction.
struct Graph {
    stages: Vec<Stage>,
    stage_of: Vec<Option<usize>>,
    /// Per node, the stages of its partitions, if each has its own.
    per_partition: Vec<Vec<usize>>,
}

impl Graph {
    fn new(nodes: usize) -> Graph {
        Graph {
            stages: Vec::new(),
            stage_of: vec![None; nodes],
            per_partition: vec![Vec::new(); nodes],
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
            node: usize::MAX,
            is_last_of_node: false,
            state_bytes: AtomicU64::new(0),
        });
        stage
    }

    /// The stage runs the whole node.
    fn runs(&mut self, stage: usize, node: usize) -> usize {
        self.stages[stage].node = node;
        self.stages[stage].is_last_of_node = true;
        stage
    }

    fn exit(&mut self, stage: usize, exit: usize) {
        self.stages[stage].targets.push(Target::Exit(exit));
    }
}
