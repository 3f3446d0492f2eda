//! Pushes HAVING down into the window.
//!
//! HAVING is a filter after the window. If it reads aggregates alone, the window need not write the keys and other
//! aggregates of the groups that do not pass; if few groups pass, that is most of the work. The filter itself stays in the
//! plan.

use highwater_query::plan::{Expr, ExprKind, Node, NodeId, Plan, Pred, PredKind};

/// A filter over the columns of a window: its keys, then its aggregates.
#[derive(Clone, Debug)]
pub(crate) struct Having {
    pub keep: Pred,
    /// Which of the aggregates it reads.
    pub reads: Vec<bool>,
}

/// The filter through which all nodes read this one, if it reads aggregates alone.
pub(crate) fn of(plan: &Plan, window: NodeId, keys: usize, aggregates: usize) -> Option<Having> {
    let mut readers = plan.nodes.iter().filter(|n| n.below().contains(&window));
    let (Some(Node::Filter { keep, .. }), None) = (readers.next(), readers.next()) else {
        return None;
    };
    let shown = plan.outputs.iter().any(|output| output.from == window);
    let reads = |at: usize| !pred_reads(keep, &|column| column != keys + at);
    (!shown && pred_reads(keep, &|column| column >= keys)).then(|| Having {
        keep: keep.clone(),
        reads: (0..aggregates).map(reads).collect(),
    })
}

/// Whether `allowed` holds for every column that the condition reads.
fn pred_reads(pred: &Pred, allowed: &dyn Fn(usize) -> bool) -> bool {
    let reads = |expr: &Expr| expr_reads(expr, allowed);
    match &pred.kind {
        PredKind::And(left, right) | PredKind::Or(left, right) => {
            pred_reads(left, allowed) && pred_reads(right, allowed)
        }
        PredKind::Not(of) => pred_reads(of, allowed),
        PredKind::Compare { left, right, .. } => reads(left) && reads(right),
        PredKind::Like { of, pattern, .. } => reads(of) && reads(pattern),
        PredKind::In { of, list, .. } => reads(of) && list.iter().all(reads),
        PredKind::Between { of, low, high, .. } => reads(of) && reads(low) && reads(high),
        PredKind::IsNull { of, .. } => reads(of),
    }
}

fn expr_reads(expr: &Expr, allowed: &dyn Fn(usize) -> bool) -> bool {
    let reads = |expr: &Expr| expr_reads(expr, allowed);
    match &expr.kind {
        ExprKind::Column(column) => allowed(*column),
        ExprKind::Literal(_) | ExprKind::Timestamp => true,
        ExprKind::Field { of, .. }
        | ExprKind::Unary { of, .. }
        | ExprKind::Cast { of, .. }
        | ExprKind::Fold(of) => reads(of),
        ExprKind::Binary { left, right, .. } => reads(left) && reads(right),
        ExprKind::Case {
            branches,
            otherwise,
        } => {
            let mut branches = branches.iter();
            reads(otherwise)
                && branches.all(|(when, then)| pred_reads(when, allowed) && reads(then))
        }
        ExprKind::Coalesce(args) | ExprKind::Call { args, .. } => args.iter().all(reads),
        // The result of a script may depend on the number of calls.
        ExprKind::User { .. } => false,
        ExprKind::Record(items) => items.iter().all(|item| reads(&item.expr)),
    }
}
