//! Pushes HAVING down into the window.
//!
//! HAVING is a filter after the window. If it reads aggregates alone, the window need not write the keys and other
//! aggregates of the groups that do not pass; if few groups pass, that is most of the work. The filter itself stays in
//! the plan.

use highwater_query::plan::{ExprKind, Node, NodeId, Plan, Pred};

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
    let reads = |at: usize| !reads_only(keep, |column| column != keys + at);
    (!shown && reads_only(keep, |column| column >= keys)).then(|| Having {
        keep: keep.clone(),
        reads: (0..aggregates).map(reads).collect(),
    })
}

/// Whether `allowed` holds for every column that the condition reads. The result of a script may depend on the number
/// of calls, so a condition with a script never does.
fn reads_only(pred: &Pred, allowed: impl Fn(usize) -> bool) -> bool {
    let mut only = true;
    pred.visit(|expr| match expr.kind {
        ExprKind::Column(column) => only &= allowed(column),
        ExprKind::User { .. } => only = false,
        _ => {}
    });
    only
}
