//! When two pieces of a query say the same: a select item and the group key that it repeats.

use super::scope::{Scope, is_timestamp};
use crate::ast::{Call, Expr, ExprKind, Ident, Over, same_name};
use crate::functions::DatePart;

/// Compares what is written, not where: qualified and bare names are equal, and so are spellings of
/// a name that differ in case, unless `exact`.
pub fn same(scope: &Scope, exact: bool, a: &Expr, b: &Expr) -> bool {
    use ExprKind::*;
    let eq = |a: &Expr, b: &Expr| same(scope, exact, a, b);
    let all = |a: &[Expr], b: &[Expr]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| eq(a, b));
    if is_timestamp(a) || is_timestamp(b) {
        return is_timestamp(a) && is_timestamp(b);
    }
    match (&a.kind, &b.kind) {
        (Null, Null) => true,
        (Int(a), Int(b)) => a == b,
        (Float(a), Float(b)) => a == b,
        (Text(a), Text(b)) => a == b,
        (Path(a), Path(b)) => same_column(scope, exact, a, b),
        (Field { of: a, name: n }, Field { of: b, name: m }) => eq(a, b) && same_ident(exact, n, m),
        (Unary { op: p, of: a }, Unary { op: q, of: b }) => p == q && eq(a, b),
        (
            Binary {
                op: p,
                left: a,
                right: c,
            },
            Binary {
                op: q,
                left: b,
                right: d,
            },
        ) => p == q && eq(a, b) && eq(c, d),
        (
            Compare {
                op: p,
                left: a,
                right: c,
            },
            Compare {
                op: q,
                left: b,
                right: d,
            },
        ) => p == q && eq(a, b) && eq(c, d),
        (
            Cast {
                of: a,
                to: t,
                lenient: l,
            },
            Cast {
                of: b,
                to: u,
                lenient: m,
            },
        ) => t == u && l == m && eq(a, b),
        (
            Case {
                operand: a,
                branches: c,
                otherwise: e,
            },
            Case {
                operand: b,
                branches: d,
                otherwise: f,
            },
        ) => {
            let operands = match (a, b) {
                (Some(a), Some(b)) => eq(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            let branches =
                c.len() == d.len() && c.iter().zip(d).all(|((w, t), (v, u))| eq(w, v) && eq(t, u));
            operands && branches && eq(e, f)
        }
        (And(a), And(b)) | (Or(a), Or(b)) => all(a, b),
        (Not(a), Not(b)) => eq(a, b),
        (
            Like {
                of: a,
                pattern: p,
                negated: n,
            },
            Like {
                of: b,
                pattern: q,
                negated: m,
            },
        ) => n == m && eq(a, b) && eq(p, q),
        (
            In {
                of: a,
                list: p,
                negated: n,
            },
            In {
                of: b,
                list: q,
                negated: m,
            },
        ) => n == m && eq(a, b) && all(p, q),
        (
            Between {
                of: a,
                low: p,
                high: r,
                negated: n,
            },
            Between {
                of: b,
                low: q,
                high: s,
                negated: m,
            },
        ) => n == m && eq(a, b) && eq(p, q) && eq(r, s),
        (IsNull { of: a, negated: n }, IsNull { of: b, negated: m }) => n == m && eq(a, b),
        (Call(a), Call(b)) => {
            let overs = match (&a.over, &b.over) {
                (Some(a), Some(b)) => same_over(scope, exact, a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            same_call(a, b) && overs && all(&a.args, &b.args)
        }
        _ => false,
    }
}

fn same_call(a: &Call, b: &Call) -> bool {
    a.name.is(&b.name.name)
        && same_path(false, &a.prefix, &b.prefix)
        && a.star == b.star
        && a.distinct.is_some() == b.distinct.is_some()
}

fn same_over(scope: &Scope, exact: bool, a: &Over, b: &Over) -> bool {
    let eq = |a: &Expr, b: &Expr| same(scope, exact, a, b);
    let keys = a.partition.len() == b.partition.len()
        && a.partition.iter().zip(&b.partition).all(|(a, b)| eq(a, b));
    let order = a.order.len() == b.order.len()
        && a.order
            .iter()
            .zip(&b.order)
            .all(|(a, b)| a.descending == b.descending && eq(&a.of, &b.of));
    let limits = match (&a.limit, &b.limit) {
        (Some((u, n)), Some((v, m))) => {
            DatePart::find(&u.name) == DatePart::find(&v.name) && eq(n, m)
        }
        (a, b) => a.is_none() && b.is_none(),
    };
    let whens = match (&a.when, &b.when) {
        (Some(a), Some(b)) => eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    keys && order && limits && whens
}

/// Do two paths mean the same column of the same source?
pub fn same_column(scope: &Scope, exact: bool, a: &[Ident], b: &[Ident]) -> bool {
    match (scope.locate(a), scope.locate(b)) {
        (Ok(a), Ok(b)) => a.source == b.source && same_path(exact, a.rest, b.rest),
        _ => same_path(exact, a, b),
    }
}

pub fn same_path(exact: bool, a: &[Ident], b: &[Ident]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_ident(exact, a, b))
}

fn same_ident(exact: bool, a: &Ident, b: &Ident) -> bool {
    a.name == b.name || (!exact && same_name(&a.name, &b.name))
}
