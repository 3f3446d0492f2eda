//! The bound query: what a binder promises and an engine executes.
//!
//! A plan is a list of nodes in topological order (a node reads only nodes before it). Every name has been resolved to
//! a column position, every alias and step is gone, and what may fail at run time keeps its place in the text. Columns
//! have no static type: values carry types, and the engine picks the kernel chunk by chunk.

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
    /// Keys that differ only in case are one group; whatever else is compared is folded where it stands.
    pub ignore_case: bool,
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
    /// Which of them are looked at after the events have been put in order.
    pub carried: Vec<bool>,
    /// TIMESTAMP BY, over `reads`; `None` means arrival time.
    pub timestamp: Option<Expr>,
    /// TIMESTAMP BY .. OVER keys, over `reads`; empty means one timeline for the partition.
    pub substream: Vec<Expr>,
    /// CREATE TABLE: an event that does not fit is a data error.
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
    /// Steps that only project or filter the table, in order, before it is joined: each is over the columns that the
    /// one before it made.
    pub steps: Vec<ReferenceStep>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum ReferenceStep {
    Filter(Pred),
    Project(Vec<Item>),
}

/// What a source must deliver as one column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    /// The value at a path of field names, from the top of the event.
    Path(Vec<String>),
    /// The same, wanted as a point in time: ISO text becomes a datetime, anything else stays what it is.
    TimePath(Vec<String>),
    /// The whole event as one record, fields in the order they stand in the event.
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
}

#[derive(Clone, Debug)]
pub struct WindowNode {
    pub from: NodeId,
    pub window: Window,
    pub keys: Vec<Key>,
    pub aggregates: Vec<Aggregate>,
    /// PARTITION BY PartitionId: partitions aggregate and advance apart from each other.
    pub by_partition: bool,
    pub span: Span,
}

/// Which side of a join a column comes from.
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
    /// Equalities, hashed: left over the columns of `left`, right over those of `right`. NULL matches nothing.
    pub keys: Vec<(Expr, Expr)>,
    /// What else must hold, over the joined columns.
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
    /// Equalities, hashed by type-sensitive key: left over `from`, right over the columns of the reference.
    pub keys: Vec<(Expr, Expr)>,
    /// What else must hold, over the joined columns.
    pub residual: Option<Pred>,
    pub span: Span,
}

/// A column of APPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyColumn {
    /// Of the row that is applied to.
    Carried(usize),
    /// The record that stands for the element.
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
    /// PARTITION BY PartitionId: partitions are looked at apart from each other.
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

#[derive(Clone, Debug)]
pub enum Analytic {
    /// The `offset`-th candidate before the row; `default` where there are not that many.
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

#[derive(Clone, Debug)]
pub struct MatchNode {
    pub from: NodeId,
    /// A match spans less than this.
    pub limit: Duration,
    pub partition: Vec<Key>,
    pub pattern: Pattern,
    /// Names of the pattern variables; [`Pattern::Variable`] and [`MatchRef`] index them.
    pub variables: Vec<String>,
    /// Per variable what must hold; over `refs`. `None`: always.
    pub defines: Vec<Option<Pred>>,
    /// Over `refs`.
    pub measures: Vec<Item>,
    /// What DEFINE and MEASURES look at: column `i` of their expressions is `refs[i]`.
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

#[derive(Clone, Debug, PartialEq)]
pub enum MatchRef {
    /// The value of an expression over the columns of `from`, in events matched by the variable so far.
    Picked {
        variable: usize,
        pick: Pick,
        of: Expr,
    },
    /// Classifier(): the names of the matched variables, one per event.
    Classifier,
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

/// How a column shows up in a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Under this name.
    Field(String),
    /// Made of a `*` over an open record: its fields become columns, except those already named to the left.
    Spread,
    /// Carried along for a later step; never written to an output.
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
    /// `over`: indexes into the node's keys that have sessions of their own; `None`: one session for all events.
    Session {
        timeout: Duration,
        max: Duration,
        over: Option<Vec<usize>>,
    },
    Snapshot,
}

#[derive(Clone, Debug)]
pub struct Aggregate {
    pub function: AggregateFunction,
    /// `None` only for COUNT(*), which counts rows.
    pub argument: Option<Expr>,
    /// ORDER BY inside OVER, for those that rank.
    pub order: Vec<OrderKey>,
    /// MIN/MAX over text compares as text only where the query cast it so; otherwise text is read as a number.
    pub as_text: bool,
    pub span: Span,
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
    /// The argument is what is ordered by; `order` says which way.
    PercentileCont(f64),
    PercentileDisc(f64),
    /// Without argument: whole events.
    Collect,
    CollectTop(usize),
    TopOne,
    /// uda.name
    User(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct OrderKey {
    pub expr: Expr,
    pub descending: bool,
}

#[derive(Clone, Debug)]
pub struct Output {
    pub name: String,
    pub from: NodeId,
}

/// A scalar expression over the columns of the node it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    Column(usize),
    Literal(Literal),
    /// System.Timestamp(): the time of the row.
    Timestamp,
    /// A field of a record; NULL when there is no such field or `of` is no record.
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
    /// The first branch whose condition holds; branches not taken are not evaluated.
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
    /// Text as it is compared where case does not count: in upper case, also inside records and arrays. Anything else as
    /// it is.
    Fold(Box<Expr>),
    /// A record put together like the row of an output, such as the row of a step.
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

/// A condition. Two-valued: a comparison with NULL is false, and NOT turns that into true.
#[derive(Clone, Debug, PartialEq)]
pub struct Pred {
    pub kind: PredKind,
    pub span: Span,
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
    /// `negated` forms are false on a NULL operand, like `!=`.
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
