//! Equality of parts of a query: a select item and the group key that it repeats.

use super::scope::{Scope, is_timestamp};
use crate::ast::{Call, Expr, ExprKind, Ident, Over, same_name};
use crate::functions::DatePart;

/// Compares expressions, not their positions: qualified and bare names are equal, and so are names that differ in case,
/// unless `exact`.
pub(super) fn same(scope: &Scope, exact: bool, a: &Expr, b: &Expr) -> bool {
    if is_timestamp(a) || is_timestamp(b) {
        return is_timestamp(a) && is_timestamp(b);
    }
    if !same_node(scope, exact, a, b) {
        return false;
    }
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    a.each_child(&mut |child| of_a.push(child));
    b.each_child(&mut |child| of_b.push(child));
    let mut pairs = of_a.iter().zip(&of_b);
    of_a.len() == of_b.len() && pairs.all(|(a, b)| same(scope, exact, a, b))
}

/// Equal apart from their children.
fn same_node(scope: &Scope, exact: bool, a: &Expr, b: &Expr) -> bool {
    use ExprKind::*;
    match (&a.kind, &b.kind) {
        (Null, Null) | (And(_), And(_)) | (Or(_), Or(_)) | (Not(_), Not(_)) => true,
        (Int(a), Int(b)) => a == b,
        (Float(a), Float(b)) => a == b,
        (Text(a), Text(b)) => a == b,
        (Path(a), Path(b)) => same_column(scope, exact, a, b),
        (Field { name: a, .. }, Field { name: b, .. }) => same_ident(exact, a, b),
        (Unary { op: a, .. }, Unary { op: b, .. }) => a == b,
        (Binary { op: a, .. }, Binary { op: b, .. }) => a == b,
        (Compare { op: a, .. }, Compare { op: b, .. }) => a == b,
        (
            Cast { to, lenient, .. },
            Cast {
                to: t, lenient: l, ..
            },
        ) => to == t && lenient == l,
        (
            Case {
                operand, branches, ..
            },
            Case {
                operand: o,
                branches: b,
                ..
            },
        ) => operand.is_some() == o.is_some() && branches.len() == b.len(),
        (Like { negated: a, .. }, Like { negated: b, .. })
        | (In { negated: a, .. }, In { negated: b, .. })
        | (Between { negated: a, .. }, Between { negated: b, .. })
        | (IsNull { negated: a, .. }, IsNull { negated: b, .. }) => a == b,
        (Call(a), Call(b)) => same_call(a, b),
        _ => false,
    }
}

fn same_call(a: &Call, b: &Call) -> bool {
    let overs = match (&a.over, &b.over) {
        (Some(a), Some(b)) => same_over(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    a.name.is(&b.name.name)
        && same_path(false, &a.prefix, &b.prefix)
        && a.star == b.star
        && a.distinct.is_some() == b.distinct.is_some()
        && a.args.len() == b.args.len()
        && overs
}

fn same_over(a: &Over, b: &Over) -> bool {
    let mut order = a.order.iter().zip(&b.order);
    let unit = |over: &Over| {
        over.limit
            .as_ref()
            .map(|(unit, _)| DatePart::find(&unit.name))
    };
    a.partition.len() == b.partition.len()
        && a.order.len() == b.order.len()
        && order.all(|(a, b)| a.descending == b.descending)
        && unit(a) == unit(b)
        && a.when.is_some() == b.when.is_some()
}

/// Whether two paths refer to the same column of the same source.
pub(super) fn same_column(scope: &Scope, exact: bool, a: &[Ident], b: &[Ident]) -> bool {
    match (scope.locate(a), scope.locate(b)) {
        (Ok(a), Ok(b)) => a.source == b.source && same_path(exact, a.rest, b.rest),
        _ => same_path(exact, a, b),
    }
}

pub(super) fn same_path(exact: bool, a: &[Ident], b: &[Ident]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_ident(exact, a, b))
}

fn same_ident(exact: bool, a: &Ident, b: &Ident) -> bool {
    a.name == b.name || (!exact && same_name(&a.name, &b.name))
}
