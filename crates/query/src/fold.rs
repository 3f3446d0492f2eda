//! Text comparisons that ignore case, as a rewrite of a complete plan.
//!
//! Operands that are compared and never shown are folded to upper case first ([`ExprKind::Fold`]), so comparisons need
//! no change. The keys of GROUP BY and MATCH_RECOGNIZE are compared *and* shown: they stay as they are, and
//! [`Plan::ignore_case`] tells the operators.
//!
//! [`upper`] maps a character to one character, so positions stay the same. It is upper and not lower case because the
//! `T` and `Z` of a date and the `E` of a number are upper case, and the text may yet be parsed as one.

use crate::functions::Function;
use crate::plan::{
    Aggregate, AggregateFunction, Analytic, AnalyticCall, Expr, ExprKind, Literal, MatchRef, Node,
    Plan, Pred, PredKind, ReferenceStep,
};

/// The upper case of a character in the invariant culture. A letter whose other case is several letters stays as it is
/// (`ß`), and so do the dotless i of Turkish and the long s, whose case depends on the language.
pub fn upper(c: char) -> char {
    const DOTLESS_I: char = '\u{131}';
    const LONG_S: char = '\u{17f}';
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut other = c.to_uppercase();
    match (c, other.next(), other.next()) {
        (DOTLESS_I | LONG_S, ..) => c,
        (_, Some(other), None) => other,
        _ => c,
    }
}

/// Makes a plan ignore case in text comparisons.
pub(crate) fn ignore_case(plan: &mut Plan) {
    plan.ignore_case = true;
    for input in &mut plan.inputs {
        input.timestamp.iter_mut().for_each(fold_operands);
        input.substream.iter_mut().for_each(key);
    }
    let references = plan.references.iter_mut();
    for step in references.flat_map(|reference| &mut reference.steps) {
        match step {
            ReferenceStep::Filter(keep) => condition(keep),
            ReferenceStep::Project(items) => {
                items
                    .iter_mut()
                    .for_each(|item| fold_operands(&mut item.expr));
            }
        }
    }
    plan.nodes.iter_mut().for_each(node);
}

fn node(node: &mut Node) {
    match node {
        Node::Source { .. } | Node::Union { .. } => {}
        Node::Filter { keep, .. } => condition(keep),
        Node::Project { items, .. } => items
            .iter_mut()
            .for_each(|item| fold_operands(&mut item.expr)),
        Node::Window(window) => {
            let keys = window.keys.iter_mut();
            keys.for_each(|key| fold_operands(&mut key.expr));
            window.aggregates.iter_mut().for_each(aggregate);
        }
        Node::Join(join) => {
            join.keys.iter_mut().for_each(pair);
            join.residual.iter_mut().for_each(condition);
        }
        Node::Lookup(lookup) => {
            lookup.keys.iter_mut().for_each(pair);
            lookup.residual.iter_mut().for_each(condition);
        }
        Node::Apply { of, .. } => fold_operands(of),
        Node::Analytic(analytic) => analytic.calls.iter_mut().for_each(call),
        Node::Match(node) => {
            let keys = node.partition.iter_mut();
            keys.for_each(|key| fold_operands(&mut key.expr));
            node.defines.iter_mut().flatten().for_each(condition);
            let measures = node.measures.iter_mut();
            measures.for_each(|item| fold_operands(&mut item.expr));
            for of in &mut node.refs {
                if let MatchRef::Picked { of, .. } | MatchRef::Collected { of } = of {
                    fold_operands(of);
                }
            }
        }
    }
}

fn pair((left, right): &mut (Expr, Expr)) {
    key(left);
    key(right);
}

/// A key that is only compared.
fn key(expr: &mut Expr) {
    fold_operands(expr);
    fold(expr);
}

fn aggregate(aggregate: &mut Aggregate) {
    aggregate.exprs_mut().for_each(fold_operands);
    if aggregate.function == AggregateFunction::CountDistinct {
        aggregate.argument.iter_mut().for_each(fold);
    }
}

fn call(call: &mut AnalyticCall) {
    call.partition.iter_mut().for_each(key);
    call.when.iter_mut().for_each(condition);
    match &mut call.function {
        Analytic::Aggregate(of) => aggregate(of),
        other => other.exprs_mut().into_iter().for_each(fold_operands),
    }
}

/// Folds the comparisons inside an expression.
fn fold_operands(expr: &mut Expr) {
    expr.visit_mut(comparing);
}

fn condition(pred: &mut Pred) {
    pred.visit_mut(comparing);
    fold_comparison(pred);
}

fn comparing(expr: &mut Expr) {
    match &mut expr.kind {
        ExprKind::Case { branches, .. } => {
            branches
                .iter_mut()
                .for_each(|(when, _)| fold_comparison(when));
        }
        ExprKind::Call {
            function: Function::CharIndex | Function::PatIndex,
            args,
            ..
        } => args.iter_mut().take(2).for_each(fold),
        ExprKind::Call {
            function: Function::Replace,
            args,
            ..
        } => {
            // The result keeps the original text, so only the pattern can be folded here.
            let mut sought = args[1].clone();
            fold(&mut sought);
            args.push(sought);
        }
        _ => {}
    }
}

/// The operands of a condition.
fn fold_comparison(pred: &mut Pred) {
    match &mut pred.kind {
        PredKind::And(left, right) | PredKind::Or(left, right) => {
            fold_comparison(left);
            fold_comparison(right);
        }
        PredKind::Not(of) => fold_comparison(of),
        PredKind::Compare { left, right, .. } => [left, right].into_iter().for_each(fold),
        PredKind::Like { of, pattern, .. } => [of, pattern].into_iter().for_each(fold),
        PredKind::In { of, list, .. } => {
            fold(of);
            list.iter_mut().for_each(fold);
        }
        PredKind::Between { of, low, high, .. } => [of, low, high].into_iter().for_each(fold),
        PredKind::IsNull { .. } => {}
    }
}

fn fold(expr: &mut Expr) {
    match &mut expr.kind {
        ExprKind::Literal(Literal::Text(text)) => *text = text.chars().map(upper).collect(),
        ExprKind::Literal(_) | ExprKind::Timestamp | ExprKind::Fold(_) => {}
        _ => {
            let of = Box::new(expr.clone());
            expr.kind = ExprKind::Fold(of);
        }
    }
}

impl Expr {
    /// The expression before folding, as it is displayed.
    pub fn unfolded(&self) -> &Expr {
        match &self.kind {
            ExprKind::Fold(of) => of,
            _ => self,
        }
    }
}
