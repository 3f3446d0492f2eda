//! Resolves names to columns, over sources without a schema.
//!
//! Over an input every name is a column: reading it makes the source deliver it. Over a step a name is one of its
//! columns, or else goes through its `*` down to the source of the star; each node on the way passes the column on
//! under a hidden name.

use highwater_spelling::nearest;

use super::clock::carried;
use super::reference::table_of;
use super::scope::{ResolvedPath, Scope, Source, SourceKind};
use super::{BindResult, Binder, InputState};
use crate::Span;
use crate::ast::{Ident, same_name};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::ErrorReported;
use crate::plan::{
    AggregateFunction, AnalyticColumn, ApplyColumn, Expr, ExprKind, Input, Item, Name, Node,
    NodeId, Read, Side, Type,
};

/// Metadata columns of a source; a field of that name in the event wins.
static METADATA: [(&[&str], Read); 5] = [
    (&["EventEnqueuedUtcTime"], Read::Arrival),
    (&["IoTHub", "EnqueuedTime"], Read::Arrival),
    (&["PartitionId"], Read::Partition),
    (&["BlobName"], Read::FileName),
    (&["BlobLastModifiedUtcTime"], Read::FileTime),
];

impl Binder<'_> {
    /// The input of this name, which is read from now on; the catalog has the name.
    pub(super) fn input(&mut self, name: &str, span: Span) -> usize {
        if let Some(known) = self.plan.inputs.iter().position(|input| input.name == name) {
            return known;
        }
        let input = self.plan.inputs.len();
        self.plan.inputs.push(Input {
            name: name.to_string(),
            reads: Vec::new(),
            carried: Vec::new(),
            timestamp: None,
            substream: Vec::new(),
            schema: self.schema(name),
            span,
        });
        let node = self.push(Node::Source { input });
        self.inputs.push(InputState {
            node,
            clock: None,
            reference: self
                .catalog
                .input(name)
                .is_some_and(|input| input.reference),
        });
        input
    }

    pub(super) fn read(&mut self, input: usize, read: Read) -> usize {
        let reads = &mut self.plan.inputs[input].reads;
        reads
            .iter()
            .position(|known| *known == read)
            .unwrap_or_else(|| {
                reads.push(read);
                reads.len() - 1
            })
    }

    /// The column that reads the same field as a time, if `column` of `node` reads a field of a stream.
    pub(super) fn read_as_time(&mut self, node: NodeId, column: usize) -> Option<usize> {
        match &self.plan.nodes[node.0] {
            Node::Filter { from, .. } => self.read_as_time(*from, column),
            Node::Source { input } if !self.inputs[*input].reference => {
                let input = *input;
                match self.plan.inputs[input].reads.get(column)? {
                    Read::Path(path) => {
                        let path = path.clone();
                        Some(self.read(input, Read::TimePath(path)))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A path of field names from the top of an event.
    pub(super) fn read_path(&mut self, input: usize, path: &[String], span: Span) -> Expr {
        let column = |index| Expr::column(index, span);
        let declared = self.plan.inputs[input].schema.is_some();
        let meta = metadata(path).filter(|_| !self.inputs[input].reference);
        if let (Some(meta), true) = (meta, declared && !self.declares(input, &path[0])) {
            return column(self.read(input, meta.clone()));
        }
        let field = column(self.read(input, Read::Path(path.to_vec())));
        let Some(meta) = meta.filter(|_| !declared) else {
            return field;
        };
        let meta = column(self.read(input, meta.clone()));
        Expr::new(ExprKind::Coalesce(vec![field, meta]), span)
    }

    /// The path inside the events of an input, which must be declared if the input is.
    pub(super) fn event_path(&mut self, input: usize, path: &[Ident]) -> BindResult<Vec<String>> {
        let mut names: Vec<String> = path.iter().map(|ident| ident.name.clone()).collect();
        let Some((schema, first)) = self.declared(input).zip(path.first()) else {
            return Ok(names);
        };
        match find(&schema, &first.name).and_then(|index| field_name(&schema[index])) {
            Some(declared) => names[0] = declared.to_string(),
            None if metadata(&names).is_some() && !self.inputs[input].reference => {}
            None => return Err(self.unknown_column(first, &schema)),
        }
        Ok(names)
    }

    /// The columns that CREATE TABLE declares for an input.
    fn declared(&self, input: usize) -> Option<Vec<Name>> {
        let schema = self.plan.inputs[input].schema.as_ref()?;
        let names = schema.iter().map(|(name, _)| Name::Field(name.clone()));
        Some(names.collect())
    }

    fn declares(&self, input: usize, name: &str) -> bool {
        self.declared(input)
            .is_some_and(|schema| find(&schema, name).is_some())
    }

    /// Resolves a path over the columns of `node`, without the name of the source.
    pub(super) fn column(&mut self, node: NodeId, path: &[Ident], span: Span) -> BindResult<Expr> {
        let names: Vec<String> = path.iter().map(|ident| ident.name.clone()).collect();
        let Some(first) = path.first() else {
            return Err(ErrorReported);
        };
        let below = match &self.plan.nodes[node.0] {
            Node::Filter { from, .. } => Some(*from),
            _ => None,
        };
        if let Some(from) = below {
            return self.column(from, path, span);
        }
        if let Node::Source { input } = self.plan.nodes[node.0] {
            let path = self.event_path(input, path)?;
            return Ok(self.read_path(input, &path, span));
        }
        let columns = self.plan.column_names(node);
        if let Some(index) = find(&columns, &first.name) {
            let column = Expr::column(index, span);
            return Ok(fields(column, &names[1..]));
        }
        let spreads: Vec<usize> = (0..columns.len())
            .filter(|index| columns[*index] == Name::Spread)
            .collect();
        let mut found: Vec<Expr> = spreads
            .into_iter()
            .map(|index| self.through(node, index, &names, span))
            .collect();
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(last), false) => {
                found.push(last);
                Ok(Expr::new(ExprKind::Coalesce(found), span))
            }
            (None, _) => match self.traveling_partition(node, path, span) {
                Some(partition) => Ok(partition),
                None => Err(self.unknown_column(first, &columns)),
            },
        }
    }

    fn unknown_column(&mut self, name: &Ident, columns: &[Name]) -> ErrorReported {
        let known: Vec<&str> = columns.iter().filter_map(field_name).collect();
        self.report(unknown_column(name, &known))
    }

    /// The field at `path` of the record in column `index` of `node`, over `node`'s columns.
    fn through(&mut self, node: NodeId, index: usize, path: &[String], span: Span) -> Expr {
        let key = (node, index, path.to_vec());
        if let Some(known) = self.through.get(&key) {
            return Expr::new(known.kind.clone(), span);
        }
        let column = Expr::column(index, span);
        let found = match self.plan.nodes[node.0].clone() {
            Node::Source { input } => match self.plan.inputs[input].reads[index].clone() {
                Read::Whole => self.read_path(input, path, span),
                Read::Path(mut start) => {
                    start.extend_from_slice(path);
                    self.read_path(input, &start, span)
                }
                _ => fields(column, path),
            },
            Node::Filter { from, .. } => self.through(from, index, path, span),
            Node::Project { from, items } => match &items[index] {
                // A column passed on for a join may be a star further down.
                Item {
                    name: Name::Spread | Name::Hidden(_),
                    expr,
                } => {
                    let inner = match expr.kind {
                        ExprKind::Column(below) => self.through(from, below, path, span),
                        _ => fields(expr.clone(), path),
                    };
                    self.append(node, path, inner)
                }
                _ => fields(column, path),
            },
            Node::Union { from, names } if names[index] == Name::Spread => {
                self.through_union(node, &from, index, path, span)
            }
            other => match carried_or_looked_up(&other, index) {
                Some((below, inner)) => {
                    let found = self.through(below, inner, path, span);
                    self.rewrite_over_parent(node, below, path, found)
                }
                None => fields(column, path),
            },
        };
        self.through.insert(key, found.clone());
        found
    }

    /// Resolves a path over the node of the scope.
    pub(super) fn source_column(
        &mut self,
        scope: &Scope,
        at: ResolvedPath,
        span: Span,
    ) -> BindResult<Expr> {
        let source = &scope.sources[at.source];
        let names = || at.rest.iter().map(|ident| ident.name.clone());
        let label: Vec<String> = source.qualifier.iter().cloned().chain(names()).collect();
        match source.of {
            SourceKind::Element { column, .. } => {
                let element =
                    self.rewrite_over_scope(source, &label[..1], Expr::column(column, span));
                Ok(fields(element, &names().collect::<Vec<_>>()))
            }
            SourceKind::Rows { node, .. } => {
                let found = match at.rest {
                    [] => self.whole(node, span),
                    path => self.column(node, path, span)?,
                };
                Ok(self.rewrite_over_scope(source, &label, found))
            }
        }
    }

    /// `source.*` over the node of the scope.
    pub(super) fn source_star(&mut self, scope: &Scope, source: usize, span: Span) -> Vec<Item> {
        let source = &scope.sources[source];
        let qualifier = source.qualifier.clone().unwrap_or_default();
        let items = match source.of {
            SourceKind::Rows { node, .. } => self.star(node, span),
            SourceKind::Element { column, .. } => vec![Item {
                name: Name::Field(qualifier.clone()),
                expr: Expr::column(column, span),
            }],
        };
        let raise = |Item { name, expr }: Item| {
            let label = [
                qualifier.clone(),
                field_name(&name).unwrap_or("*").to_string(),
            ];
            let expr = self.rewrite_over_scope(source, &label, expr);
            Item { name, expr }
        };
        items.into_iter().map(raise).collect()
    }

    /// The whole event or row as a record.
    fn whole(&mut self, node: NodeId, span: Span) -> Expr {
        let star = self.star(node, span);
        if let [only] = star.as_slice()
            && only.name == Name::Spread
        {
            return only.expr.clone();
        }
        Expr::new(ExprKind::Record(star), span)
    }

    /// Rewrites an expression over the source as one over the node of its scope.
    pub(super) fn rewrite_over_scope(
        &mut self,
        source: &Source,
        label: &[String],
        expr: Expr,
    ) -> Expr {
        let (SourceKind::Rows {
            node: mut below, ..
        }
        | SourceKind::Element {
            node: mut below, ..
        }) = source.of;
        let mut expr = expr;
        for node in &source.above {
            expr = self.rewrite_over_parent(*node, below, label, expr);
            below = *node;
        }
        expr
    }

    /// Rewrites an expression over `below` as one over `node`, which reads it: a projection computes it, other nodes
    /// pass its columns on.
    pub(super) fn rewrite_over_parent(
        &mut self,
        node: NodeId,
        below: NodeId,
        label: &[String],
        mut expr: Expr,
    ) -> Expr {
        if matches!(self.plan.nodes[node.0], Node::Project { .. }) {
            return self.append(node, label, expr);
        }
        expr.visit_mut(|e| {
            if let ExprKind::Column(column) = &mut e.kind {
                *column = self.pass_through_column(node, below, *column);
            }
        });
        expr
    }

    /// Whether the column holds whole events of an input.
    pub(super) fn is_whole_event(&self, node: NodeId, column: usize) -> bool {
        match &self.plan.nodes[node.0] {
            Node::Source { input } => self.plan.inputs[*input].reads[column] == Read::Whole,
            other => carried(other, column)
                .is_some_and(|(below, column)| self.is_whole_event(below, column)),
        }
    }

    /// The known columns of a node.
    pub(super) fn visible(&self, node: NodeId) -> Vec<Name> {
        match self.plan.nodes[node.0] {
            Node::Source { input } => self.declared(input).unwrap_or(vec![Name::Spread]),
            _ => {
                let names = self.plan.column_names(node).into_iter();
                names
                    .filter(|name| !matches!(name, Name::Hidden(_)))
                    .collect()
            }
        }
    }

    /// The position in `node` of column `column` of `below`, which it reads; added if necessary.
    pub(super) fn pass_through_column(
        &mut self,
        node: NodeId,
        below: NodeId,
        column: usize,
    ) -> usize {
        fn position_of<T: PartialEq>(columns: &mut Vec<T>, wanted: T) -> usize {
            columns
                .iter()
                .position(|known| *known == wanted)
                .unwrap_or_else(|| {
                    columns.push(wanted);
                    columns.len() - 1
                })
        }
        match &mut self.plan.nodes[node.0] {
            Node::Join(join) if join.left == below => {
                position_of(&mut join.columns, (Side::Left, column))
            }
            Node::Join(join) => position_of(&mut join.columns, (Side::Right, column)),
            Node::Lookup(lookup) if lookup.from == below => {
                position_of(&mut lookup.columns, (Side::Left, column))
            }
            Node::Lookup(lookup) => position_of(&mut lookup.columns, (Side::Right, column)),
            Node::Apply { columns, .. } => position_of(columns, ApplyColumn::Carried(column)),
            Node::Analytic(analytic) => {
                position_of(&mut analytic.columns, AnalyticColumn::Carried(column))
            }
            _ => column,
        }
    }

    fn through_union(
        &mut self,
        node: NodeId,
        branches: &[(NodeId, Vec<usize>)],
        index: usize,
        path: &[String],
        span: Span,
    ) -> Expr {
        let mut columns = Vec::new();
        for (branch, map) in branches {
            let found = self.through(*branch, map[index], path, span);
            columns.push(self.as_column(*branch, path, found));
        }
        let Node::Union { from, names } = &mut self.plan.nodes[node.0] else {
            return fields(Expr::column(index, span), path);
        };
        for ((_, map), column) in from.iter_mut().zip(columns) {
            map.push(column);
        }
        names.push(Name::Hidden(path.join(".")));
        Expr::column(names.len() - 1, span)
    }

    /// The position of an expression over the columns of a branch, which is a projection or a union.
    pub(super) fn as_column(&mut self, node: NodeId, path: &[String], expr: Expr) -> usize {
        match expr.kind {
            ExprKind::Column(index) => index,
            _ => match self.append(node, path, expr).kind {
                ExprKind::Column(index) => index,
                other => unreachable!("only projections spread a computed record, not {other:?}"),
            },
        }
    }

    /// Adds `expr`, over the input of `node`, as a hidden column of a projection.
    pub(super) fn append(&mut self, node: NodeId, path: &[String], expr: Expr) -> Expr {
        let span = expr.span;
        let Node::Project { items, .. } = &mut self.plan.nodes[node.0] else {
            return expr;
        };
        let known = items
            .iter()
            .position(|item| matches!(item.name, Name::Hidden(_)) && item.expr == expr);
        let index = known.unwrap_or_else(|| {
            items.push(Item {
                name: Name::Hidden(path.join(".")),
                expr,
            });
            items.len() - 1
        });
        Expr::column(index, span)
    }

    /// The columns of `*` over a node.
    pub(super) fn star(&mut self, node: NodeId, span: Span) -> Vec<Item> {
        let column = |index| Expr::column(index, span);
        match self.plan.nodes[node.0] {
            Node::Source { input } if self.plan.inputs[input].schema.is_some() => {
                let names = self.declared(input).unwrap_or_default();
                let mut item = |name: Name| {
                    let path = field_name(&name).into_iter().map(str::to_string).collect();
                    let expr = column(self.read(input, Read::Path(path)));
                    Item { name, expr }
                };
                names.into_iter().map(&mut item).collect()
            }
            Node::Source { input } => {
                let whole = self.read(input, Read::Whole);
                vec![Item {
                    name: Name::Spread,
                    expr: column(whole),
                }]
            }
            Node::Filter { from, .. } => self.star(from, span),
            _ => {
                let names = self.plan.column_names(node).into_iter().enumerate();
                let visible = names.filter(|(_, name)| !matches!(name, Name::Hidden(_)));
                visible
                    .map(|(index, name)| Item {
                        name,
                        expr: column(index),
                    })
                    .collect()
            }
        }
    }

    /// Whether the query cast this value to text. Follows steps, but not expressions over the cast.
    pub(super) fn is_text(&self, node: NodeId, expr: &Expr) -> bool {
        let index = match &expr.kind {
            ExprKind::Cast { to, .. } => return *to == Type::Text,
            ExprKind::Column(index) => *index,
            _ => return false,
        };
        match &self.plan.nodes[node.0] {
            Node::Source { .. } => false,
            Node::Filter { from, .. } => self.is_text(*from, expr),
            Node::Project { from, items } => self.is_text(*from, &items[index].expr),
            Node::Window(window) => match window.keys.get(index) {
                Some(key) => self.is_text(window.from, &key.expr),
                None => {
                    let aggregate = &window.aggregates[index - window.keys.len()];
                    let keeps = matches!(
                        aggregate.function,
                        AggregateFunction::Min | AggregateFunction::Max
                    );
                    keeps && aggregate.as_text
                }
            },
            Node::Union { from, .. } => from.iter().all(|(branch, map)| {
                let column = Expr::column(map[index], expr.span);
                self.is_text(*branch, &column)
            }),
            other => carried_or_looked_up(other, index).is_some_and(|(below, index)| {
                let column = Expr::column(index, expr.span);
                self.is_text(below, &column)
            }),
        }
    }
}

/// The source of a column that a node passes on or takes from reference data.
fn carried_or_looked_up(node: &Node, column: usize) -> Option<(NodeId, usize)> {
    let looked_up = match node {
        Node::Lookup(lookup) => match lookup.columns[column] {
            (Side::Right, below) => Some((table_of(lookup), below)),
            (Side::Left, _) => None,
        },
        _ => None,
    };
    looked_up.or_else(|| carried(node, column))
}

pub(super) fn unknown_column(name: &Ident, known: &[&str]) -> Diagnostic {
    let help = match nearest(&name.name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the columns are {}", super::list(known.iter().copied())),
    };
    let message = format!("there is no column `{}`", name.name);
    Diagnostic::error(code::UNKNOWN_COLUMN, name.span, message).help(help)
}

fn metadata(path: &[String]) -> Option<&'static Read> {
    let named = |names: &[&str]| {
        names.len() == path.len() && names.iter().zip(path).all(|(name, p)| same_name(name, p))
    };
    METADATA
        .iter()
        .find(|(names, _)| named(names))
        .map(|(_, read)| read)
}

pub(super) fn is_metadata(path: &[String]) -> bool {
    metadata(path).is_some()
}

/// The exact name, or else the only one that is equal ignoring case.
pub(super) fn find(columns: &[Name], name: &str) -> Option<usize> {
    let position = |wanted: &dyn Fn(&str) -> bool| {
        let mut hits = (0..columns.len()).filter(|i| field_name(&columns[*i]).is_some_and(wanted));
        (hits.next(), hits.next())
    };
    match position(&|field| field == name) {
        (Some(exact), _) => Some(exact),
        _ => match position(&|field| same_name(field, name)) {
            (Some(only), None) => Some(only),
            _ => None,
        },
    }
}

pub(super) fn field_name(name: &Name) -> Option<&str> {
    match name {
        Name::Field(field) => Some(field),
        _ => None,
    }
}

/// `of.a.b.c`
pub(super) fn fields(of: Expr, path: &[String]) -> Expr {
    path.iter().fold(of, |of, name| {
        let span = of.span;
        let kind = ExprKind::Field {
            of: Box::new(of),
            name: name.clone(),
        };
        Expr { kind, span }
    })
}
