//! The bound query: what a binder promises and an engine executes.
//!
//! A plan is a list of nodes in topological order (a node reads only nodes before it). Every name has been resolved to
//! a column position, every alias and step is gone, and what may fail at run time keeps its place in the text. Columns
//! have no static type: values carry types, and the engine picks the kernel chunk by chunk.

use highwater_time::Duration;

use crate::span::Span;

#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub inputs: Vec<Input>,
    pub nodes: Vec<Node>,
    pub outputs: Vec<Output>,
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
    /// TIMESTAMP BY, over `reads`; `None` means arrival time.
    pub timestamp: Option<Expr>,
    /// TIMESTAMP BY .. OVER keys, over `reads`; empty means one timeline for the partition.
    pub substream: Vec<Expr>,
    pub span: Span,
}

/// What a source must deliver as one column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    /// The value at a path of field names, from the top of the event.
    Path(Vec<String>),
    /// The same, wanted as a point in time only: ISO text becomes a datetime, anything else NULL.
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

#[derive(Clone, Debug)]
pub struct Key {
    pub name: String,
    pub expr: Expr,
}

#[derive(Clone, Debug)]
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
    /// MIN/MAX over text compares as text only where the query cast it so; otherwise text is read as a number.
    pub as_text: bool,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateFunction {
    Count,
    Sum,
    Avg,
    Min,
    Max,
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
