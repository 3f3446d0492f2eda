//! The types that a query gives to columns: by CAST and CREATE TABLE. Other values are as dynamic as JSON.

use highwater_query::plan::{
    AnalyticColumn, ApplyColumn, Expr, ExprKind, Node, NodeId, Plan, Read, Side, Type,
};

/// The type of all values of a column that are not NULL, as far as the query says.
pub(crate) fn column_type(plan: &Plan, node: NodeId, column: usize) -> Option<Type> {
    match &plan.nodes[node.0] {
        Node::Source { input } => {
            let input = &plan.inputs[*input];
            match &input.reads[column] {
                Read::Partition => Some(Type::Bigint),
                Read::Path(path) => {
                    let mut declared = input.schema.iter().flatten();
                    let is_it = |(name, _): &&(String, Type)| path.as_slice() == [name.as_str()];
                    declared.find(is_it).map(|(_, of)| *of)
                }
                _ => None,
            }
        }
        Node::Filter { from, .. } => column_type(plan, *from, column),
        Node::Project { from, items } => expr_type(plan, *from, &items[column].expr),
        Node::Window(window) => {
            let key = window.keys.get(column)?;
            expr_type(plan, window.from, &key.expr)
        }
        Node::Join(join) => match join.columns[column] {
            (Side::Left, below) => column_type(plan, join.left, below),
            (Side::Right, below) => column_type(plan, join.right, below),
        },
        Node::Lookup(lookup) => match lookup.columns[column] {
            (Side::Left, below) => column_type(plan, lookup.from, below),
            (Side::Right, _) => None,
        },
        Node::Apply { from, columns, .. } => match columns[column] {
            ApplyColumn::Carried(below) => column_type(plan, *from, below),
            ApplyColumn::Element => None,
        },
        Node::Analytic(analytic) => match analytic.columns[column] {
            AnalyticColumn::Carried(below) => column_type(plan, analytic.from, below),
            _ => None,
        },
        Node::Match(_) => None,
        Node::Union { from, .. } => {
            let mut types = from
                .iter()
                .map(|(below, columns)| column_type(plan, *below, columns[column]));
            let first = types.next()??;
            types.all(|other| other == Some(first)).then_some(first)
        }
    }
}

/// The type of an expression over the columns of a node.
fn expr_type(plan: &Plan, from: NodeId, expr: &Expr) -> Option<Type> {
    match &expr.kind {
        ExprKind::Cast { to, .. } => Some(*to),
        ExprKind::Column(column) => column_type(plan, from, *column),
        _ => None,
    }
}
