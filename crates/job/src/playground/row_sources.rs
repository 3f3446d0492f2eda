//! Which events a row of the playground came from.
//!
//! The plan is run a second time with hidden columns that carry the numbers of events: a projection passes them on, a
//! window collects them, a join has those of both sides. So rows and their order are those of the first run, and the
//! engine knows nothing of it but that a pattern (MATCH_RECOGNIZE) can list a value of each of its events.

use std::collections::BTreeSet;

use highwater_engine::ValueRef;
use highwater_query::Span;
use highwater_query::plan::{
    Aggregate, AggregateFunction, Analytic, AnalyticCall, AnalyticColumn, AnalyticNode,
    ApplyColumn, BinaryOp, Expr, ExprKind, Item, Literal, MatchNode, MatchRef, Name, Node, NodeId,
    Plan, Read, Side,
};

/// How many sources of a row are listed.
const SOURCES_MAX: usize = 100;

/// The events that a row came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowSources {
    /// The first of them: input of the plan and index among its events.
    pub events: Vec<(usize, usize)>,
    /// How many there are.
    pub count: usize,
}

impl RowSources {
    /// From the hidden columns of a row, flattened; `first` has the number of the first event of each input.
    pub(super) fn of_row<'a>(
        values: impl Iterator<Item = ValueRef<'a>>,
        first: &[usize],
    ) -> RowSources {
        let mut numbers = BTreeSet::new();
        values.for_each(|value| flatten(value, &mut numbers));
        let events = numbers.iter().take(SOURCES_MAX).map(|&number| {
            let input = first.partition_point(|&first| first <= number) - 1;
            (input, number - first[input])
        });
        RowSources {
            events: events.collect(),
            count: numbers.len(),
        }
    }
}

/// A window over windows collects lists of lists.
fn flatten(value: ValueRef<'_>, numbers: &mut BTreeSet<usize>) {
    match value {
        ValueRef::Int(number) => numbers.extend(usize::try_from(number)),
        ValueRef::Array(values) => values
            .iter()
            .for_each(|value| flatten(value.view(), numbers)),
        _ => {}
    }
}

/// A plan whose nodes have columns with the numbers of events.
pub(super) struct NumberedPlan {
    pub plan: Plan,
    /// The columns with numbers, per output; none if they are unknown.
    pub columns: Vec<Vec<usize>>,
}

impl NumberedPlan {
    /// The number of an event is its index among those of its input, plus the input's entry in `first`.
    pub(super) fn new(plan: &Plan, first: &[usize]) -> NumberedPlan {
        let mut numbering = Numbering {
            plan: Plan {
                nodes: Vec::new(),
                ..plan.clone()
            },
            nodes: Vec::new(),
        };
        for node in &plan.nodes {
            let mut node = node.clone();
            let below = node.below();
            let below: Vec<NumberedNode> = below.iter().map(|of| numbering.numbered(*of)).collect();
            let numbered = match node {
                Node::Source { input } => numbering.add_source(input, first[input]),
                _ => {
                    for (of, numbered) in node.below_mut().into_iter().zip(&below) {
                        *of = numbered.node;
                    }
                    let columns = add_columns(&mut node, &below);
                    numbering.add(node, columns)
                }
            };
            numbering.nodes.push(numbered);
        }
        let (mut plan, nodes) = (numbering.plan, numbering.nodes);
        for output in &mut plan.outputs {
            output.from = nodes[output.from.0].node;
        }
        let outputs = plan.outputs.iter().map(|output| output.from);
        let columns = outputs.map(|from| {
            let mut nodes = nodes.iter();
            let numbered = nodes.find(|numbered| numbered.node == from);
            numbered.map_or(Vec::new(), |numbered| numbered.columns.clone())
        });
        NumberedPlan {
            columns: columns.collect(),
            plan,
        }
    }
}

/// Where a node of the first plan is in the numbered one.
#[derive(Clone, Debug)]
struct NumberedNode {
    node: NodeId,
    /// The columns with numbers.
    columns: Vec<usize>,
}

struct Numbering {
    plan: Plan,
    /// Per node of the first plan.
    nodes: Vec<NumberedNode>,
}

impl Numbering {
    fn numbered(&self, node: NodeId) -> NumberedNode {
        self.nodes[node.0].clone()
    }

    fn add(&mut self, node: Node, columns: Vec<usize>) -> NumberedNode {
        self.plan.nodes.push(node);
        NumberedNode {
            node: NodeId(self.plan.nodes.len() - 1),
            columns,
        }
    }

    /// The source, and a projection that adds the number after its columns.
    fn add_source(&mut self, input: usize, first: usize) -> NumberedNode {
        let of = &mut self.plan.inputs[input];
        let (span, width) = (of.span, of.reads.len());
        // The sequence number of an event in the playground is its index.
        let path = ["EventHub", "SequenceNumber"].map(str::to_owned);
        of.reads.push(Read::Metadata(path.to_vec()));
        of.carried.push(true);
        let number = ExprKind::Binary {
            op: BinaryOp::Add,
            left: Box::new(Expr::column(width, span)),
            right: Box::new(Expr::new(
                ExprKind::Literal(Literal::Int(first as i64)),
                span,
            )),
        };
        let passed = (0..width).map(|column| hidden(Expr::column(column, span)));
        let items = passed.chain([hidden(Expr::new(number, span))]).collect();
        let source = self.add(Node::Source { input }, Vec::new());
        let from = source.node;
        self.add(Node::Project { from, items }, vec![width])
    }
}

fn hidden(expr: Expr) -> Item {
    Item {
        name: Name::Hidden(String::new()),
        expr,
    }
}

/// Adds columns with the numbers of the nodes below, after all others, and returns them.
fn add_columns(node: &mut Node, below: &[NumberedNode]) -> Vec<usize> {
    let numbers = |node: &NumberedNode| node.columns.clone().into_iter();
    match node {
        Node::Source { .. } => Vec::new(),
        Node::Filter { .. } => below[0].columns.clone(),
        Node::Project { items, .. } => {
            let span = items.first().map_or(Span::default(), |item| item.expr.span);
            append(
                items,
                numbers(&below[0]).map(|of| hidden(Expr::column(of, span))),
            )
        }
        Node::Window(window) => {
            let (keys, span) = (window.keys.len(), window.span);
            let added = append(
                &mut window.aggregates,
                numbers(&below[0]).map(|of| collect(of, span)),
            );
            added.into_iter().map(|of| keys + of).collect()
        }
        Node::Join(join) => {
            let left = numbers(&below[0]).map(|of| (Side::Left, of));
            let right = numbers(&below[1]).map(|of| (Side::Right, of));
            match below.iter().any(|numbered| numbered.columns.is_empty()) {
                true => Vec::new(),
                false => append(&mut join.columns, left.chain(right)),
            }
        }
        Node::Lookup(lookup) => append(
            &mut lookup.columns,
            numbers(&below[0]).map(|of| (Side::Left, of)),
        ),
        Node::Apply { columns, .. } => {
            append(columns, numbers(&below[0]).map(ApplyColumn::Carried))
        }
        Node::Analytic(analytic) => add_analytic_columns(analytic, &below[0].columns),
        Node::Match(node) => add_measures(node, &below[0].columns),
        Node::Union { from, names } => add_union_columns(from, names, below),
    }
}

/// Appends to a list and returns the indexes of what was added.
fn append<T>(list: &mut Vec<T>, added: impl Iterator<Item = T>) -> Vec<usize> {
    let before = list.len();
    list.extend(added);
    (before..list.len()).collect()
}

fn collect(column: usize, span: Span) -> Aggregate {
    Aggregate {
        function: AggregateFunction::Collect,
        argument: Some(Expr::column(column, span)),
        order: Vec::new(),
        as_text: false,
        strict_types: false,
        span,
    }
}

/// The row's own event, and those that LAG, LAST and aggregates look back at. Anomaly detection looks back at the
/// history of a score, which is not listed.
fn add_analytic_columns(analytic: &mut AnalyticNode, numbers: &[usize]) -> Vec<usize> {
    let own = numbers.iter().map(|&of| AnalyticColumn::Carried(of));
    let mut columns = append(&mut analytic.columns, own);
    let mut calls = Vec::new();
    for call in &analytic.calls {
        for &column in numbers {
            let of = Expr::column(column, call.span);
            let function = match &call.function {
                Analytic::Lag { offset, .. } => Analytic::Lag {
                    of,
                    offset: *offset,
                    default: None,
                },
                Analytic::Last { .. } => Analytic::Last { of, default: None },
                Analytic::Aggregate(_) => Analytic::Aggregate(collect(column, call.span)),
                Analytic::IsFirst | Analytic::SpikeAndDip { .. } | Analytic::ChangePoint { .. } => {
                    continue;
                }
            };
            calls.push(AnalyticCall {
                function,
                ..call.clone()
            });
        }
    }
    let calls = append(&mut analytic.calls, calls.into_iter());
    let called = calls.into_iter().map(AnalyticColumn::Call);
    columns.extend(append(&mut analytic.columns, called));
    columns
}

/// The numbers of all events of a match.
fn add_measures(node: &mut MatchNode, numbers: &[usize]) -> Vec<usize> {
    let (keys, span) = (node.partition.len(), node.span);
    let collected = numbers.iter().map(|&of| MatchRef::Collected {
        of: Expr::column(of, span),
    });
    let refs = append(&mut node.refs, collected);
    let measures = refs.into_iter().map(|of| hidden(Expr::column(of, span)));
    let added = append(&mut node.measures, measures);
    added.into_iter().map(|of| keys + of).collect()
}

/// All branches get the same number of columns: shorter ones repeat their first.
fn add_union_columns(
    from: &mut [(NodeId, Vec<usize>)],
    names: &mut Vec<Name>,
    below: &[NumberedNode],
) -> Vec<usize> {
    if below.iter().any(|numbered| numbered.columns.is_empty()) {
        return Vec::new();
    }
    let most = below.iter().map(|numbered| numbered.columns.len()).max();
    let most = most.unwrap_or(0);
    for ((_, columns), numbered) in from.iter_mut().zip(below) {
        let padding = std::iter::repeat(numbered.columns[0]);
        columns.extend(numbered.columns.iter().copied().chain(padding).take(most));
    }
    let added = std::iter::repeat_with(|| Name::Hidden(String::new()));
    append(names, added.take(most))
}
