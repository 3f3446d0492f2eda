//! The bound query: the contract between binder and engine.
//!
//! A plan is a list of nodes in topological order (a node reads only nodes before it). Every name is resolved to a
//! column position, aliases and steps are gone, and expressions that may fail at run time keep their span. Columns have
//! no static type: values carry types, and the engine selects the kernel chunk by chunk.
//!
//! The state of live jobs is tied to the `Debug` text of their plan, so renaming a type, variant or field here makes
//! every checkpoint unusable.

use std::fmt;

use highwater_time::Duration;

use crate::functions::{DatePart, Function};
use crate::span::Span;

#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub inputs: Vec<Input>,
    /// Tables that lookups read.
    pub references: Vec<Reference>,
    pub nodes: Vec<Node>,
    pub outputs: Vec<Output>,
    /// Keys that differ only in case are one group; other comparisons are folded in place.
    pub ignore_case: bool,
}

impl Plan {
    /// The names of the columns of a node that ends a statement: a projection, a union or a match, filtered or not.
    pub fn column_names(&self, node: NodeId) -> Vec<Name> {
        match &self.nodes[node.0] {
            Node::Filter { from, .. } => self.column_names(*from),
            Node::Project { items, .. } => items.iter().map(|item| item.name.clone()).collect(),
            Node::Union { names, .. } => names.clone(),
            Node::Match(node) => {
                let keys = node.partition.iter();
                keys.map(|key| Name::Field(key.name.clone()))
                    .chain(node.measures.iter().map(|measure| measure.name.clone()))
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Index into [`Plan::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// One physical stream, read once however often the query names it (one input, one timeline).
#[derive(Clone, Debug)]
pub struct Input {
    pub name: String,
    /// The columns of the source's chunks, in order.
    pub reads: Vec<Read>,
    /// Which of them are used after ordering.
    pub carried: Vec<bool>,
    /// TIMESTAMP BY, over `reads`; `None` means arrival time.
    pub timestamp: Option<Expr>,
    /// TIMESTAMP BY .. OVER keys, over `reads`; empty means one timeline for the partition.
    pub substream: Vec<Expr>,
    /// CREATE TABLE: an event that does not conform is a data error.
    pub schema: Option<Vec<(String, Type)>>,
    pub span: Span,
}

/// Reference data: a table without time, read by [`Node::Lookup`].
#[derive(Clone, Debug)]
pub struct Reference {
    pub name: String,
    /// The columns of the table, in order.
    pub reads: Vec<Read>,
    pub schema: Option<Vec<(String, Type)>>,
    /// Steps that only project or filter the table, in order, before it is joined: each is over the columns of the
    /// previous one.
    pub steps: Vec<ReferenceStep>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ReferenceStep {
    Filter(Pred),
    Project(Vec<Item>),
}

/// A column that a source must deliver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    /// The value at a path of field names, from the top of the event.
    Path(Vec<String>),
    /// The value at a path as a time: ISO text becomes a datetime, anything else stays as it is.
    TimePath(Vec<String>),
    /// The whole event as one record, fields in the order of the event.
    Whole,
    /// When the event arrived (`EventEnqueuedUtcTime`).
    Arrival,
    /// The partition that it was read from (`PartitionId`).
    Partition,
    /// The name of the file it was read from (`BlobName`).
    FileName,
    /// When that file was last written (`BlobLastModifiedUtcTime`).
    FileTime,
    /// GetMetadataPropertyValue(input, path): a property that only the adapter knows; NULL if it does not.
    Metadata(Vec<String>),
}

#[derive(Clone, Debug)]
pub enum Node {
    /// The ordered events of `Plan::inputs[input]`; columns are the input's `reads`.
    Source { input: usize },
    /// Rows of `from` for which `keep` is true; columns unchanged.
    Filter { from: NodeId, keep: Pred },
    /// One column per item.
    Project { from: NodeId, items: Vec<Item> },
    /// Grouping by a window and keys; columns are the keys, then the aggregates. Row time is the window's end.
    Window(WindowNode),
    /// Pairs of rows of two streams that lie close in time.
    Join(JoinNode),
    /// Rows joined to reference data.
    Lookup(LookupNode),
    /// CROSS or OUTER APPLY: one row per element.
    Apply {
        from: NodeId,
        of: Expr,
        each: Each,
        outer: bool,
        columns: Vec<ApplyColumn>,
    },
    /// Analytic functions. Rows are never dropped.
    Analytic(AnalyticNode),
    /// MATCH_RECOGNIZE: columns are the partition keys, then the measures.
    Match(MatchNode),
    /// Rows of all branches in time order; ties in branch order. Column `i` of branch `b` is `from[b].1[i]` of the node
    /// `from[b].0`.
    Union {
        from: Vec<(NodeId, Vec<usize>)>,
        names: Vec<Name>,
    },
}

impl Node {
    /// The nodes that this one reads.
    pub fn below(&self) -> Vec<NodeId> {
        match self {
            Node::Source { .. } => Vec::new(),
            Node::Filter { from, .. } | Node::Project { from, .. } => vec![*from],
            Node::Window(window) => vec![window.from],
            Node::Join(join) => vec![join.left, join.right],
            Node::Lookup(lookup) => vec![lookup.from],
            Node::Apply { from, .. } => vec![*from],
            Node::Analytic(analytic) => vec![analytic.from],
            Node::Match(node) => vec![node.from],
            Node::Union { from, .. } => from.iter().map(|(from, _)| *from).collect(),
        }
    }

    /// See [`Node::below`].
    pub fn below_mut(&mut self) -> Vec<&mut NodeId> {
        match self {
            Node::Source { .. } => Vec::new(),
            Node::Filter { from, .. } | Node::Project { from, .. } => vec![from],
            Node::Window(window) => vec![&mut window.from],
            Node::Join(join) => vec![&mut join.left, &mut join.right],
            Node::Lookup(lookup) => vec![&mut lookup.from],
            Node::Apply { from, .. } => vec![from],
            Node::Analytic(analytic) => vec![&mut analytic.from],
            Node::Match(node) => vec![&mut node.from],
            Node::Union { from, .. } => from.iter_mut().map(|(from, _)| from).collect(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct WindowNode {
    pub from: NodeId,
    pub window: Window,
    pub keys: Vec<Key>,
    pub aggregates: Vec<Aggregate>,
    /// PARTITION BY PartitionId: partitions aggregate and advance separately.
    pub by_partition: bool,
    pub span: Span,
}

/// The side of a join that a column comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// The row's time is the later of the two; an unmatched row of a LEFT JOIN has NULLs on the right and the last time at
/// which a match could have come.
#[derive(Clone, Debug)]
pub struct JoinNode {
    pub left: NodeId,
    pub right: NodeId,
    /// The columns of the result.
    pub columns: Vec<(Side, usize)>,
    pub outer: bool,
    /// `low <= time(right) - time(left) <= high`, over the times of the rows: how long state is kept. Follows from
    /// `bounds`.
    pub low: Duration,
    pub high: Duration,
    /// The exact conditions on times, all of which must hold.
    pub bounds: Vec<TimeBound>,
    /// Equalities, hashed: left over the columns of `left`, right over those of `right`. NULL matches nothing, and so
    /// does text that cannot be converted to the type of the other side.
    pub keys: Vec<(Expr, Expr)>,
    /// Other conditions, over the joined columns.
    pub residual: Option<Pred>,
    pub by_partition: bool,
    pub span: Span,
}

/// `low <= time(right) - <left column> <= high`, where the column holds the time of one of the sources on the left.
#[derive(Clone, Debug)]
pub struct TimeBound {
    /// `None`: the time of the left row itself.
    pub left_column: Option<usize>,
    pub low: Option<Duration>,
    pub high: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct LookupNode {
    pub from: NodeId,
    pub reference: usize,
    /// The columns of the result: left ones of `from`, right ones of the reference.
    pub columns: Vec<(Side, usize)>,
    pub outer: bool,
    /// Equalities, hashed: left over `from`, right over the columns of the reference. See [`JoinNode::keys`].
    pub keys: Vec<(Expr, Expr)>,
    /// Other conditions, over the joined columns.
    pub residual: Option<Pred>,
    pub span: Span,
}

/// A column of APPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyColumn {
    /// Of the row that is applied to.
    Carried(usize),
    /// The record of the element.
    Element,
}

/// A column of an analytic node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnalyticColumn {
    /// Of the row itself.
    Carried(usize),
    /// The value of a call.
    Call(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// GetArrayElements: records of ArrayIndex and ArrayValue.
    Element,
    /// GetRecordProperties: records of PropertyName and PropertyValue.
    Property,
}

/// All calls see every row of `from`, in time order.
#[derive(Clone, Debug)]
pub struct AnalyticNode {
    pub from: NodeId,
    pub calls: Vec<AnalyticCall>,
    pub columns: Vec<AnalyticColumn>,
    /// PARTITION BY PartitionId: partitions are computed separately.
    pub by_partition: bool,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct AnalyticCall {
    pub function: Analytic,
    pub partition: Vec<Expr>,
    /// LIMIT DURATION: candidates lie in (t - limit, t].
    pub limit: Duration,
    pub when: Option<Pred>,
    pub span: Span,
}

impl PartialEq for AnalyticCall {
    fn eq(&self, other: &AnalyticCall) -> bool {
        (&self.function, self.limit) == (&other.function, other.limit)
            && (&self.partition, &self.when) == (&other.partition, &other.when)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Analytic {
    /// The `offset`-th candidate before the row; `default` if there are fewer.
    Lag {
        of: Expr,
        offset: usize,
        default: Option<Expr>,
    },
    /// The latest candidate up to and including the row.
    Last { of: Expr, default: Option<Expr> },
    /// 1 for the first row in its aligned interval of the length `limit`.
    IsFirst,
    /// An aggregate over the candidates, the row included.
    Aggregate(Aggregate),
    SpikeAndDip {
        of: Expr,
        confidence: Expr,
        history: usize,
        mode: Expr,
    },
    ChangePoint {
        of: Expr,
        confidence: Expr,
        history: usize,
    },
}

impl Analytic {
    /// The expressions of its arguments.
    pub(crate) fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Analytic::Lag { of, default, .. } | Analytic::Last { of, default } => {
                [of].into_iter().chain(default).collect()
            }
            Analytic::IsFirst => Vec::new(),
            Analytic::Aggregate(aggregate) => aggregate.exprs_mut().collect(),
            Analytic::SpikeAndDip {
                of,
                confidence,
                mode,
                ..
            } => vec![of, confidence, mode],
            Analytic::ChangePoint { of, confidence, .. } => vec![of, confidence],
        }
    }
}

#[derive(Clone, Debug)]
pub struct MatchNode {
    pub from: NodeId,
    /// A match spans less than this.
    pub limit: Duration,
    pub partition: Vec<Key>,
    pub pattern: Pattern,
    /// Names of the pattern variables; [`Pattern::Variable`] and [`MatchRef`] index them.
    pub variables: Vec<String>,
    /// The condition of each variable, over `refs`. `None`: always true.
    pub defines: Vec<Option<Pred>>,
    /// Over `refs`.
    pub measures: Vec<Item>,
    /// The references of DEFINE and MEASURES: column `i` of their expressions is `refs[i]`.
    pub refs: Vec<MatchRef>,
    pub by_partition: bool,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    Variable(usize),
    /// `.`
    Any,
    Sequence(Vec<Pattern>),
    /// The left one is preferred.
    Either(Vec<Pattern>),
    Repeat {
        of: Box<Pattern>,
        at_least_one: bool,
        at_most_one: bool,
    },
}

#[derive(Clone, PartialEq)]
pub enum MatchRef {
    /// The value of an expression over the columns of `from`, in events matched by the variable so far.
    Picked {
        variable: usize,
        pick: Pick,
        of: Expr,
        /// Text compares as text, because the query cast it so.
        as_text: bool,
    },
    /// Classifier(): the names of the matched variables, one per event.
    Classifier,
    /// The values of an expression over the columns of `from` in all events of the match, in order, as an array. Only
    /// measures read it, and only those that find the events of a row.
    Collected { of: Expr },
}

/// `as_text` follows from the casts of the plan, so its text does without it, as in versions before.
impl fmt::Debug for MatchRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchRef::Picked {
                variable, pick, of, ..
            } => f
                .debug_struct("Picked")
                .field("variable", variable)
                .field("pick", pick)
                .field("of", of)
                .finish(),
            MatchRef::Classifier => f.write_str("Classifier"),
            MatchRef::Collected { of } => f.debug_struct("Collected").field("of", of).finish(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The event under test.
    Current,
    First,
    Last,
    Min,
    Max,
}

#[derive(Clone, Debug)]
pub struct Key {
    pub name: String,
    pub expr: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub name: Name,
    pub expr: Expr,
}

/// How a column is named in a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Under this name.
    Field(String),
    /// Made of a `*` over an open record: its fields become columns, except those already named to the left.
    Spread,
    /// Passed on for a later step; never written to an output.
    Hidden(String),
}

/// A window definition; sizes are positive and at most 7 days. Intervals are (start, end].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    Tumbling {
        size: Duration,
        offset: Duration,
    },
    Hopping {
        size: Duration,
        hop: Duration,
        offset: Duration,
    },
    Sliding {
        size: Duration,
    },
    /// `over`: indexes of the node's keys with sessions of their own; `None`: one session for all events.
    Session {
        timeout: Duration,
        max: Duration,
        over: Option<Vec<usize>>,
    },
    Snapshot,
}

#[derive(Clone)]
pub struct Aggregate {
    pub function: AggregateFunction,
    /// `None` only for COUNT(*), which counts rows.
    pub argument: Option<Expr>,
    /// ORDER BY inside OVER, for ranking aggregates.
    pub order: Vec<OrderKey>,
    /// MIN/MAX over text compares as text only where the query cast it so; otherwise text is parsed: a number, a
    /// datetime or else text.
    pub as_text: bool,
    /// The job's `strict_types`: text that MIN, MAX or an order key takes must be a number (an order key: or a
    /// datetime).
    pub strict_types: bool,
    pub span: Span,
}

/// Without `strict_types` the text of a plan is that of versions that did not have the setting.
impl fmt::Debug for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Aggregate");
        shown
            .field("function", &self.function)
            .field("argument", &self.argument)
            .field("order", &self.order)
            .field("as_text", &self.as_text);
        if self.strict_types {
            shown.field("strict_types", &self.strict_types);
        }
        shown.field("span", &self.span).finish()
    }
}

impl Aggregate {
    /// The argument and the keys of ORDER BY.
    pub(crate) fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let order = self.order.iter_mut().map(|key| &mut key.expr);
        self.argument.iter_mut().chain(order)
    }
}

impl PartialEq for Aggregate {
    fn eq(&self, other: &Aggregate) -> bool {
        (&self.function, self.as_text) == (&other.function, other.as_text)
            && (&self.argument, &self.order) == (&other.argument, &other.order)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum AggregateFunction {
    Count,
    CountDistinct,
    Sum,
    Avg,
    Min,
    Max,
    /// Sample, n - 1.
    StDev,
    /// Population, n.
    StDevP,
    Var,
    VarP,
    /// The argument is the sort key; `order` has the direction.
    PercentileCont(f64),
    PercentileDisc(f64),
    /// Without argument: whole events.
    Collect,
    CollectTop(usize),
    TopOne,
    /// uda.name
    User(String),
}

#[derive(Clone, PartialEq)]
pub struct OrderKey {
    pub expr: Expr,
    pub descending: bool,
    /// Text compares as text, because the query cast it so.
    pub as_text: bool,
}

/// `as_text` follows from the casts of the plan, so its text does without it, as in versions before.
impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderKey")
            .field("expr", &self.expr)
            .field("descending", &self.descending)
            .finish()
    }
}

#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub from: NodeId,
}

/// A scalar expression over the columns of the node it belongs to.
#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

impl Expr {
    pub fn new(kind: ExprKind, span: Span) -> Expr {
        Expr { kind, span }
    }

    pub fn column(column: usize, span: Span) -> Expr {
        Expr::new(ExprKind::Column(column), span)
    }
}

/// Expressions are equal wherever they are in the text; so are conditions, aggregates and analytic calls.
impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        self.kind == other.kind
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    Column(usize),
    Literal(Literal),
    /// System.Timestamp(): the time of the row.
    Timestamp,
    /// A field of a record; NULL if there is no such field or `of` is not a record.
    Field {
        of: Box<Expr>,
        name: String,
    },
    Unary {
        op: UnaryOp,
        of: Box<Expr>,
    },
    Binary {
        op: BinaryOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// The first branch whose condition is true; other branches are not evaluated.
    Case {
        branches: Vec<(Pred, Expr)>,
        otherwise: Box<Expr>,
    },
    /// `lenient` is TRY_CAST: failure gives NULL instead of an error.
    Cast {
        of: Box<Expr>,
        to: Type,
        lenient: bool,
    },
    /// The first argument that is not NULL.
    Coalesce(Vec<Expr>),
    /// A built-in function; see [`crate::functions`].
    Call {
        function: Function,
        /// For the functions that take a datepart first.
        part: Option<DatePart>,
        args: Vec<Expr>,
    },
    /// udf.name(..)
    User {
        name: String,
        args: Vec<Expr>,
    },
    /// Text folded to upper case for comparisons that ignore case, also inside records and arrays. Other values are
    /// unchanged.
    Fold(Box<Expr>),
    /// A record built like the row of an output, such as the row of a step.
    Record(Vec<Item>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Int(i64),
    Float(f64),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Bigint,
    Float,
    Text,
    Datetime,
    Bit,
    Record,
    Array,
}

impl Type {
    /// The name in SAQL.
    pub fn name(self) -> &'static str {
        match self {
            Type::Bigint => "bigint",
            Type::Float => "float",
            Type::Text => "nvarchar(max)",
            Type::Datetime => "datetime",
            Type::Bit => "bit",
            Type::Record => "record",
            Type::Array => "array",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    Plus,
    Minus,
    BitNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    BitAnd,
    BitOr,
    BitXor,
}

/// A condition. Two-valued: a comparison with NULL is false, and NOT makes it true.
#[derive(Clone, Debug)]
pub struct Pred {
    pub kind: PredKind,
    pub span: Span,
}

impl PartialEq for Pred {
    fn eq(&self, other: &Pred) -> bool {
        self.kind == other.kind
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum PredKind {
    And(Box<Pred>, Box<Pred>),
    Or(Box<Pred>, Box<Pred>),
    Not(Box<Pred>),
    Compare {
        op: CompareOp,
        left: Expr,
        right: Expr,
    },
    /// `negated` forms are false for a NULL operand, like `!=`.
    Like {
        of: Expr,
        pattern: Expr,
        negated: bool,
    },
    In {
        of: Expr,
        list: Vec<Expr>,
        negated: bool,
    },
    Between {
        of: Expr,
        low: Expr,
        high: Expr,
        negated: bool,
    },
    IsNull {
        of: Expr,
        negated: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}
