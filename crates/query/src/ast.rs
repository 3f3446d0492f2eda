//! The syntax tree: names unresolved, every clause of the language present.
//!
//! Conditions and values share one expression type, because only the binder can report well that one is used in place
//! of the other. Chains of AND and OR are flat, so that a list of a thousand alternatives is not a tree of a thousand
//! levels; the parser limits all other nesting.

use crate::Span;
pub(crate) use crate::plan::{BinaryOp, CompareOp, Each, Type, UnaryOp};

#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub tables: Vec<CreateTable>,
    pub steps: Vec<Step>,
    pub statements: Vec<Query>,
}

#[derive(Clone, Debug)]
pub(crate) struct CreateTable {
    pub name: Ident,
    pub columns: Vec<(Ident, Type)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub name: Ident,
    pub query: Query,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ident {
    pub name: String,
    pub quote: Quote,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quote {
    Bare,
    Bracket,
    Double,
    /// An alias written as a text literal.
    Text,
}

impl Ident {
    pub(crate) fn is(&self, other: &str) -> bool {
        same_name(&self.name, other)
    }
}

/// Names of the language, of inputs, steps and outputs ignore case.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
        || (!a.is_ascii()
            && a.chars()
                .flat_map(char::to_lowercase)
                .eq(b.chars().flat_map(char::to_lowercase)))
}

#[derive(Clone, Debug)]
pub(crate) enum Query {
    Select(Box<Select>),
    Union { branches: Vec<Query>, span: Span },
}

impl Query {
    pub(crate) fn span(&self) -> Span {
        match self {
            Query::Select(select) => select.span,
            Query::Union { span, .. } => *span,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub items: Vec<SelectItem>,
    pub into: Option<Ident>,
    pub from: From,
    pub filter: Option<Expr>,
    pub group: Option<Group>,
    pub having: Option<Expr>,
    /// From SELECT to the end of the select list.
    pub head: Span,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub items: Vec<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum SelectItem {
    /// `*` or `path.*`.
    Star {
        path: Vec<Ident>,
        span: Span,
    },
    Expr {
        expr: Expr,
        alias: Option<Ident>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct From {
    pub first: Source,
    pub rest: Vec<FromPart>,
    pub pattern: Option<Box<MatchRecognize>>,
}

#[derive(Clone, Debug)]
pub(crate) enum FromPart {
    Join(Box<Join>),
    Apply(Box<Apply>),
}

/// CROSS or OUTER APPLY.
#[derive(Clone, Debug)]
pub(crate) struct Apply {
    pub each: Each,
    pub of: Expr,
    pub outer: bool,
    pub alias: Ident,
}

#[derive(Clone, Debug)]
pub(crate) struct Join {
    pub source: Source,
    /// `None` only for CROSS JOIN.
    pub on: Option<Expr>,
    pub cross: bool,
    pub outer: bool,
    /// The words JOIN, LEFT JOIN, ..
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub of: SourceExpr,
    pub alias: Option<Ident>,
    pub timestamp: Option<TimestampBy>,
    pub partition: Option<PartitionBy>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum SourceExpr {
    Name(Ident),
    Query(Box<Query>),
    /// A FROM clause in parentheses.
    Nested(Box<From>),
}

#[derive(Clone, Debug)]
pub(crate) struct TimestampBy {
    pub expr: Expr,
    pub over: Vec<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct PartitionBy {
    pub keys: Vec<Expr>,
    pub count: Option<u64>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub span: Span,
    /// The depth of this tree, itself included.
    pub depth: u16,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Null,
    Int(i64),
    Float(f64),
    Text(String),
    Path(Vec<Ident>),
    Field {
        of: Box<Expr>,
        name: Ident,
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
    Case {
        operand: Option<Box<Expr>>,
        branches: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    Cast {
        of: Box<Expr>,
        to: Type,
        lenient: bool,
    },
    Call(Box<Call>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Compare {
        op: CompareOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Like {
        of: Box<Expr>,
        pattern: Box<Expr>,
        negated: bool,
    },
    In {
        of: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    Between {
        of: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
    },
    IsNull {
        of: Box<Expr>,
        negated: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// `udf`, `uda`, `System`, or another prefix written by mistake.
    pub prefix: Vec<Ident>,
    pub name: Ident,
    pub distinct: Option<Span>,
    /// The first argument is `*`.
    pub star: bool,
    pub args: Vec<Expr>,
    pub over: Option<Over>,
}

#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub partition: Vec<Expr>,
    pub order: Vec<Order>,
    pub limit: Option<(Ident, Box<Expr>)>,
    pub when: Option<Box<Expr>>,
    pub span: Span,
}

/// A key of ORDER BY.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub of: Expr,
    pub descending: bool,
}

/// MATCH_RECOGNIZE (..), its clauses in the order of the text.
#[derive(Clone, Debug)]
pub(crate) struct MatchRecognize {
    pub limit: (Ident, Box<Expr>),
    pub partition: Vec<Expr>,
    pub measures: Vec<(Expr, Ident)>,
    pub pattern: Pattern,
    pub defines: Vec<(Ident, Expr)>,
    /// The word MATCH_RECOGNIZE.
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    Variable(Ident),
    /// `.`
    Any,
    Sequence(Vec<Pattern>),
    Either(Vec<Pattern>),
    Repeat(Box<Pattern>, Repeat),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// `*`
    Any,
    /// `+`
    AtLeastOnce,
    /// `?`
    AtMostOnce,
    /// `{least}`, `{least,}`, `{least,most}` or `{,most}`
    Counted { least: usize, most: Option<usize> },
}

impl Expr {
    pub(crate) fn new(kind: ExprKind, span: Span) -> Expr {
        let mut expr = Expr {
            kind,
            span,
            depth: 0,
        };
        let mut below = match &expr.kind {
            // Each name after the first reads a field of the value before it.
            ExprKind::Path(path) => u16::try_from(path.len().saturating_sub(1)).unwrap_or(u16::MAX),
            _ => 0,
        };
        expr.each_child(&mut |child| below = below.max(child.depth));
        expr.depth = below.saturating_add(1);
        expr
    }

    pub(crate) fn each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        use ExprKind::*;
        match &self.kind {
            Null | Int(_) | Float(_) | Text(_) | Path(_) => {}
            Field { of, .. } | Unary { of, .. } | Cast { of, .. } | Not(of) | IsNull { of, .. } => {
                visit(of)
            }
            Binary { left, right, .. } | Compare { left, right, .. } => {
                visit(left);
                visit(right);
            }
            Case {
                operand,
                branches,
                otherwise,
            } => {
                operand.iter().for_each(|operand| visit(operand));
                branches.iter().for_each(|(when, then)| {
                    visit(when);
                    visit(then);
                });
                visit(otherwise);
            }
            Call(call) => call.each_child(visit),
            And(all) | Or(all) => all.iter().for_each(visit),
            Like { of, pattern, .. } => {
                visit(of);
                visit(pattern);
            }
            In { of, list, .. } => {
                visit(of);
                list.iter().for_each(visit);
            }
            Between { of, low, high, .. } => {
                visit(of);
                visit(low);
                visit(high);
            }
        }
    }

    /// This expression and all of its parts, outermost first.
    pub(crate) fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        self.each_child(&mut |child| child.walk(visit));
    }

    pub(crate) fn any(&self, mut wanted: impl FnMut(&Expr) -> bool) -> bool {
        let mut found = false;
        self.walk(&mut |expr| found |= wanted(expr));
        found
    }
}

impl Call {
    fn each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        self.args.iter().for_each(&mut *visit);
        if let Some(over) = &self.over {
            let order = over.order.iter().map(|order| &order.of);
            over.partition.iter().chain(order).for_each(&mut *visit);
            over.limit.iter().for_each(|(_, size)| visit(size));
            over.when.iter().for_each(|when| visit(when));
        }
    }
}
