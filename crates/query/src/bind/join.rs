//! Joins cannot run yet; what the language forbids about them is told first.
//!
//! Between streams, ON must bound the distance in time on both sides, or every event would have to
//! be kept for ever. Bounds are `DATEDIFF(unit, a, b)` conditions among the top-level ANDs, where
//! `a` and `b` are sources. They combine: if a bounds b and b bounds c, then a bounds c.

use highwater_time::TICKS_PER_DAY;

use super::from::Named;
use super::units::{constant, unit};
use super::{Binder, Bound};
use crate::Span;
use crate::ast::{self, CompareOp, Expr, ExprKind, FromPart, SelectItem, Source, SourceOf};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::Reported;

/// Sources of one FROM clause; more are refused.
const SOURCES_MAX: usize = 16;
const DISTANCE_MAX: f64 = 7.0 * TICKS_PER_DAY as f64;

/// `farthest[a][b]`: the most by which the time of `b` can exceed that of `a`.
struct Bounds {
    names: Vec<String>,
    reference: Vec<bool>,
    farthest: Vec<Vec<f64>>,
}

impl<'a> Binder<'a> {
    /// Always fails; with the reason that the language gives, if there is one.
    pub(super) fn joins(&mut self, select: &ast::Select, from: &ast::From) -> Reported {
        match self.check_joins(select, from) {
            Ok(()) => Reported,
            Err(reported) => reported,
        }
    }

    fn check_joins(&mut self, select: &ast::Select, from: &ast::From) -> Bound<()> {
        let joins = from
            .rest
            .iter()
            .any(|part| matches!(part, FromPart::Join(_)));
        let star = select.items.iter().find_map(|item| match item {
            SelectItem::Star { path, span } if path.is_empty() => Some(*span),
            _ => None,
        });
        if let (true, Some(span)) = (joins, star) {
            let error = Diagnostic::error(code::STAR, span, "SELECT * cannot be used with JOIN");
            return Err(self.report(error.help("name the columns, or take one side: a.*")));
        }
        let mut bounds = Bounds {
            names: Vec::new(),
            reference: Vec::new(),
            farthest: Vec::new(),
        };
        self.check_sources(from, &mut bounds)?;
        let part = from.rest.first().ok_or(Reported)?;
        match part {
            FromPart::Join(join) => Err(self.unsupported("JOIN", join.span)),
            FromPart::Apply { span } => Err(self.unsupported("APPLY", *span)),
        }
    }

    fn check_sources(&mut self, from: &ast::From, bounds: &mut Bounds) -> Bound<()> {
        let reference = self.joined_source(&from.first, bounds)?;
        if reference {
            let message = "reference data stands on the right of a JOIN";
            let error = Diagnostic::error(code::REFERENCE, from.first.span, message);
            return Err(self.report(error.help("put the stream first")));
        }
        for part in &from.rest {
            let FromPart::Join(join) = part else {
                continue;
            };
            let reference = self.joined_source(&join.source, bounds)?;
            self.add_bounds(&join.on, bounds)?;
            if !reference {
                self.check_bounded(&join.source, bounds)?;
            }
        }
        Ok(())
    }

    /// Is it reference data?
    fn joined_source(&mut self, source: &Source, bounds: &mut Bounds) -> Bound<bool> {
        let mut reference = false;
        let name = match &source.of {
            SourceOf::Nested(inner) => {
                self.check_sources(inner, bounds)?;
                return Ok(false);
            }
            SourceOf::Query(_) => None,
            SourceOf::Name(name) => {
                reference = matches!(self.named(name)?, Named::Reference(_));
                Some(name)
            }
        };
        if let (true, Some(by)) = (reference, &source.timestamp) {
            let message = "reference data has no timestamps";
            return Err(self.report(Diagnostic::error(code::REFERENCE, by.span, message)));
        }
        if bounds.names.len() >= SOURCES_MAX {
            let message = format!("a FROM clause has at most {SOURCES_MAX} sources");
            return Err(self.report(Diagnostic::error(code::LIMIT, source.span, message)));
        }
        let name = source
            .alias
            .as_ref()
            .or(name)
            .map_or(String::new(), |name| name.name.clone());
        bounds.add(name, reference);
        Ok(reference)
    }

    fn add_bounds(&mut self, on: &Expr, bounds: &mut Bounds) -> Bound<()> {
        let conjuncts = match &on.kind {
            ExprKind::And(all) => all.as_slice(),
            _ => std::slice::from_ref(on),
        };
        for conjunct in conjuncts {
            let found = match &conjunct.kind {
                ExprKind::Compare { op, left, right } => {
                    let straight = bounds.distance(left).zip(constant(right));
                    let swapped = bounds.distance(right).zip(constant(left));
                    let straight = straight.map(|found| (found, *op));
                    straight.or_else(|| swapped.map(|found| (found, flip(*op))))
                }
                ExprKind::Between {
                    of,
                    low,
                    high,
                    negated: false,
                } => {
                    let low = bounds
                        .distance(of)
                        .zip(constant(low))
                        .map(|found| (found, CompareOp::Ge));
                    if let Some(bound) = low {
                        self.add_bound(bound, conjunct.span, bounds)?;
                    }
                    bounds
                        .distance(of)
                        .zip(constant(high))
                        .map(|found| (found, CompareOp::Le))
                }
                _ => None,
            };
            if let Some(bound) = found {
                self.add_bound(bound, conjunct.span, bounds)?;
            }
        }
        Ok(())
    }

    fn add_bound(
        &mut self,
        bound: ((Distance, f64), CompareOp),
        span: Span,
        bounds: &mut Bounds,
    ) -> Bound<()> {
        let ((Distance { from, to, unit }, count), op) = bound;
        let ticks = count * unit as f64;
        if bounds.reference[from] || bounds.reference[to] {
            let message = "reference data has no time to measure from";
            return Err(self.report(Diagnostic::error(code::JOIN, span, message)));
        }
        if ticks.abs() > DISTANCE_MAX {
            let message = "joined events are at most 7 days apart";
            return Err(self.report(Diagnostic::error(code::JOIN, span, message)));
        }
        if matches!(op, CompareOp::Eq | CompareOp::Lt | CompareOp::Le) {
            bounds.farthest[from][to] = bounds.farthest[from][to].min(ticks);
        }
        if matches!(op, CompareOp::Eq | CompareOp::Gt | CompareOp::Ge) {
            bounds.farthest[to][from] = bounds.farthest[to][from].min(-ticks);
        }
        Ok(())
    }

    fn check_bounded(&mut self, source: &Source, bounds: &mut Bounds) -> Bound<()> {
        bounds.close();
        let new = bounds.names.len() - 1;
        let (after, before) = (bounds.farthest[0][new], bounds.farthest[new][0]);
        let problem = match (after.is_finite(), before.is_finite()) {
            (true, true) if after <= DISTANCE_MAX && before <= DISTANCE_MAX => return Ok(()),
            (true, true) => "the sources of this JOIN can be more than 7 days apart",
            (false, false) => "a JOIN of streams needs a bound in time",
            (true, false) => "this JOIN bounds how late events may be, but not how early",
            (false, true) => "this JOIN bounds how early events may be, but not how late",
        };
        let (left, right) = (&bounds.names[0], &bounds.names[new]);
        let help = format!("add to ON: DATEDIFF(second, {left}, {right}) BETWEEN 0 AND 10");
        let error = Diagnostic::error(code::JOIN, source.span, problem);
        Err(self.report(
            error
                .label("this would keep its events for ever")
                .help(help),
        ))
    }
}

/// DATEDIFF(unit, from, to) over two sources.
#[derive(Clone, Copy)]
struct Distance {
    from: usize,
    to: usize,
    unit: i64,
}

impl Bounds {
    fn add(&mut self, name: String, reference: bool) {
        self.names.push(name);
        self.reference.push(reference);
        self.farthest
            .iter_mut()
            .for_each(|row| row.push(f64::INFINITY));
        let mut row = vec![f64::INFINITY; self.names.len()];
        row[self.names.len() - 1] = 0.0;
        self.farthest.push(row);
    }

    /// Bounds follow from bounds.
    fn close(&mut self) {
        let sources = self.names.len();
        for via in 0..sources {
            for from in 0..sources {
                for to in 0..sources {
                    let way = self.farthest[from][via] + self.farthest[via][to];
                    self.farthest[from][to] = self.farthest[from][to].min(way);
                }
            }
        }
    }

    fn distance(&self, expr: &Expr) -> Option<Distance> {
        let ExprKind::Call(call) = &expr.kind else {
            return None;
        };
        let [part, from, to] = call.args.as_slice() else {
            return None;
        };
        let name = |expr: &Expr| match &expr.kind {
            ExprKind::Path(path) if path.len() == 1 => Some(path[0].name.clone()),
            _ => None,
        };
        let source = |expr: &Expr| {
            let name = name(expr)?;
            self.names
                .iter()
                .position(|known| ast::same_name(known, &name))
        };
        let week = |part: &str| {
            ["week", "wk", "ww"]
                .contains(&part)
                .then_some(7 * TICKS_PER_DAY)
        };
        let part = name(part)?.to_lowercase();
        let unit = unit(&part).or_else(|| week(&part))?;
        let datediff = call.prefix.is_empty() && call.name.is("DATEDIFF");
        datediff.then_some(Distance {
            from: source(from)?,
            to: source(to)?,
            unit,
        })
    }
}

fn flip(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
        same => same,
    }
}
