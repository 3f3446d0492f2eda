//! Prints the expressions of a plan as SAQL.

use highwater_time::{
    Duration, TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MILLI, TICKS_PER_MINUTE, TICKS_PER_SECOND,
};

use crate::parser::is_reserved;
use crate::plan::{
    Aggregate, AggregateFunction, Analytic, AnalyticCall, BinaryOp, CompareOp, Expr, ExprKind,
    Item, Literal, MatchNode, MatchRef, Name, OrderKey, Pattern, Pick, Pred, PredKind, Read,
    UnaryOp, Window, WindowNode,
};

/// The precedence of an operator; a looser one inside a tighter one needs parentheses.
const SUM: u8 = 1;
const PRODUCT: u8 = 2;
const UNARY: u8 = 3;

pub(crate) fn expr(e: &Expr, columns: &[String]) -> String {
    value(e, columns, 0)
}

fn value(e: &Expr, columns: &[String], outer: u8) -> String {
    let (text, level) = match &e.kind {
        ExprKind::Column(column) => return columns[*column].clone(),
        ExprKind::Literal(literal) => return self::literal(literal),
        ExprKind::Timestamp => return "System.Timestamp()".to_string(),
        ExprKind::Field { of, name } => {
            return format!("{}.{}", value(of, columns, UNARY + 1), self::name(name));
        }
        ExprKind::Unary { op, of } => {
            let sign = match op {
                UnaryOp::Plus => "+",
                UnaryOp::Minus => "-",
                UnaryOp::BitNot => "~",
            };
            // Two consecutive minus signs would start a comment.
            (format!("{sign}{}", value(of, columns, UNARY + 1)), UNARY)
        }
        ExprKind::Binary { op, left, right } => {
            let (sign, level) = binary(*op);
            let (left, right) = (
                value(left, columns, level),
                value(right, columns, level + 1),
            );
            (format!("{left} {sign} {right}"), level)
        }
        ExprKind::Case {
            branches,
            otherwise,
        } => {
            let mut text = "CASE".to_string();
            for (when, then) in branches {
                text += &format!(" WHEN {} THEN {}", pred(when, columns), expr(then, columns));
            }
            return format!("{text} ELSE {} END", expr(otherwise, columns));
        }
        ExprKind::Cast { of, to, lenient } => {
            let cast = if *lenient { "TRY_CAST" } else { "CAST" };
            return format!("{cast}({} AS {})", expr(of, columns), to.name());
        }
        ExprKind::Coalesce(all) => return format!("COALESCE({})", list(all, columns)),
        ExprKind::Call {
            function,
            part,
            args,
        } => {
            let part = part
                .map(|part| format!("{}, ", part.name()))
                .unwrap_or_default();
            return format!("{}({part}{})", function.name(), list(args, columns));
        }
        // The plan says once that case is ignored.
        ExprKind::Fold(of) => return value(of, columns, outer),
        ExprKind::User { name, args } => return format!("udf.{name}({})", list(args, columns)),
        ExprKind::Record(items) => {
            let part = |item: &Item| match &item.name {
                Name::Field(name) => format!("{}: {}", self::name(name), expr(&item.expr, columns)),
                Name::Spread | Name::Hidden(_) => spread(expr(&item.expr, columns)),
            };
            return format!("{{{}}}", join(items.iter().map(part)));
        }
    };
    if level < outer {
        format!("({text})")
    } else {
        text
    }
}

/// All fields of a record; a column made by a `*` already has that name.
pub(crate) fn spread(record: String) -> String {
    match record == "*" || record.ends_with(".*") {
        true => record,
        false => format!("{record}.*"),
    }
}

pub(crate) fn list(all: &[Expr], columns: &[String]) -> String {
    join(all.iter().map(|e| expr(e, columns)))
}

/// `a, b, c`
pub(crate) fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn binary(op: BinaryOp) -> (&'static str, u8) {
    match op {
        BinaryOp::Add => ("+", SUM),
        BinaryOp::Subtract => ("-", SUM),
        BinaryOp::BitAnd => ("&", SUM),
        BinaryOp::BitOr => ("|", SUM),
        BinaryOp::BitXor => ("^", SUM),
        BinaryOp::Multiply => ("*", PRODUCT),
        BinaryOp::Divide => ("/", PRODUCT),
        BinaryOp::Modulo => ("%", PRODUCT),
    }
}

fn literal(literal: &Literal) -> String {
    match literal {
        Literal::Null => "NULL".to_string(),
        Literal::Int(value) => value.to_string(),
        Literal::Float(value) => format!("{value:?}"),
        Literal::Text(text) => format!("'{}'", text.replace('\'', "''")),
    }
}

pub(crate) fn pred(p: &Pred, columns: &[String]) -> String {
    let not = |negated: &bool| if *negated { "NOT " } else { "" };
    let e = |e: &Expr| expr(e, columns);
    match &p.kind {
        PredKind::And(left, right) => {
            format!(
                "{} AND {}",
                and_operand(left, columns),
                and_operand(right, columns)
            )
        }
        PredKind::Or(left, right) => format!("{} OR {}", pred(left, columns), pred(right, columns)),
        PredKind::Not(of) => match of.kind {
            PredKind::And(..) | PredKind::Or(..) => format!("NOT ({})", pred(of, columns)),
            _ => format!("NOT {}", pred(of, columns)),
        },
        PredKind::Compare { op, left, right } => {
            format!("{} {} {}", e(left), compare(*op), e(right))
        }
        PredKind::Like {
            of,
            pattern,
            negated,
        } => format!("{} {}LIKE {}", e(of), not(negated), e(pattern)),
        PredKind::In {
            of,
            list: all,
            negated,
        } => {
            format!("{} {}IN ({})", e(of), not(negated), list(all, columns))
        }
        PredKind::Between {
            of,
            low,
            high,
            negated,
        } => {
            format!(
                "{} {}BETWEEN {} AND {}",
                e(of),
                not(negated),
                e(low),
                e(high)
            )
        }
        PredKind::IsNull { of, negated } => format!("{} IS {}NULL", e(of), not(negated)),
    }
}

/// An operand of AND.
fn and_operand(p: &Pred, columns: &[String]) -> String {
    match p.kind {
        PredKind::Or(..) => format!("({})", pred(p, columns)),
        _ => pred(p, columns),
    }
}

fn compare(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "=",
        CompareOp::Ne => "<>",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

pub(crate) fn aggregate(of: &Aggregate, columns: &[String]) -> String {
    let order = match of.order.is_empty() {
        true => String::new(),
        false => format!(" OVER ({})", order_by(&of.order, columns)),
    };
    format!("{}{order}", aggregate_call(of, columns))
}

/// Without its OVER.
fn aggregate_call(of: &Aggregate, columns: &[String]) -> String {
    let function = match &of.function {
        AggregateFunction::Count | AggregateFunction::CountDistinct => "COUNT",
        AggregateFunction::Sum => "SUM",
        AggregateFunction::Avg => "AVG",
        AggregateFunction::Min => "MIN",
        AggregateFunction::Max => "MAX",
        AggregateFunction::StDev => "STDEV",
        AggregateFunction::StDevP => "STDEVP",
        AggregateFunction::Var => "VAR",
        AggregateFunction::VarP => "VARP",
        AggregateFunction::PercentileCont(at) => return format!("PERCENTILE_CONT({at:?})"),
        AggregateFunction::PercentileDisc(at) => return format!("PERCENTILE_DISC({at:?})"),
        AggregateFunction::Collect => "Collect",
        AggregateFunction::CollectTop(_) => "CollectTop",
        AggregateFunction::TopOne => "TopOne",
        AggregateFunction::User(name) => &format!("uda.{name}"),
    };
    let before = match of.function {
        AggregateFunction::CountDistinct => "DISTINCT ".to_string(),
        AggregateFunction::CollectTop(count) => format!("{count}, "),
        _ => String::new(),
    };
    let argument = of
        .argument
        .as_ref()
        .map_or("*".to_string(), |argument| expr(argument, columns));
    let text = if of.as_text { " as text" } else { "" };
    format!("{function}({before}{argument}){text}")
}

fn order_by(order: &[OrderKey], columns: &[String]) -> String {
    let keys = order.iter().map(|key| {
        let direction = if key.descending { " DESC" } else { "" };
        format!("{}{direction}", expr(&key.expr, columns))
    });
    format!("ORDER BY {}", join(keys))
}

pub(crate) fn read(read: &Read) -> String {
    match read {
        Read::Path(path) | Read::TimePath(path) => path
            .iter()
            .map(|part| name(part))
            .collect::<Vec<_>>()
            .join("."),
        Read::Whole => "*".to_string(),
        Read::Arrival => "arrival".to_string(),
        Read::Partition => "partition".to_string(),
        Read::FileName => "file name".to_string(),
        Read::FileTime => "file time".to_string(),
        Read::Metadata(path) => format!("metadata {}", path.join(".")),
    }
}

/// In brackets if the bare name would not be parsed as a name.
pub(crate) fn name(name: &str) -> String {
    let start = name.starts_with(|c: char| c == '_' || c.is_alphabetic());
    let bare = start && !is_reserved(name);
    if bare && name.chars().all(|c| c == '_' || c.is_alphanumeric()) {
        return name.to_string();
    }
    format!("[{}]", name.replace(']', "]]"))
}

pub(crate) fn window(node: &WindowNode) -> String {
    let with_offset = |offset: &Duration| match offset.ticks() {
        0 => String::new(),
        _ => format!(", Offset({})", duration(*offset)),
    };
    match &node.window {
        Window::Tumbling { size, offset } => {
            format!(
                "TumblingWindow(Duration({}){})",
                duration(*size),
                with_offset(offset)
            )
        }
        Window::Hopping { size, hop, offset } => {
            let (size, hop) = (duration(*size), duration(*hop));
            format!(
                "HoppingWindow(Duration({size}), Hop({hop}){})",
                with_offset(offset)
            )
        }
        Window::Sliding { size } => format!("SlidingWindow(Duration({}))", duration(*size)),
        Window::Session { timeout, max, over } => {
            let (timeout, max) = (duration(*timeout), duration(*max));
            let session = format!("SessionWindow(Timeout({timeout}), MaxDuration({max}))");
            let Some(over) = over else { return session };
            let keys = over.iter().map(|key| name(&node.keys[*key].name));
            format!("{session} OVER (PARTITION BY {})", join(keys))
        }
        Window::Snapshot => "System.Timestamp()".to_string(),
    }
}

/// `unit, n` in the largest unit that divides it.
pub(crate) fn duration(of: Duration) -> String {
    let units = [
        ("day", TICKS_PER_DAY),
        ("hour", TICKS_PER_HOUR),
        ("minute", TICKS_PER_MINUTE),
        ("second", TICKS_PER_SECOND),
        ("millisecond", TICKS_PER_MILLI),
    ];
    let ticks = of.ticks();
    match units
        .into_iter()
        .find(|(_, unit)| ticks % unit == 0 && ticks != 0)
    {
        Some((name, unit)) => format!("{name}, {}", ticks / unit),
        None => format!("microsecond, {}", ticks as f64 / 10.0),
    }
}

/// `10 seconds`
pub(crate) fn duration_in_words(of: Duration) -> String {
    let written = duration(of);
    match written.split_once(", ") {
        Some((unit, "1")) => format!("1 {unit}"),
        Some((unit, count)) => format!("{count} {unit}s"),
        None => written,
    }
}

/// A duration that may be negative.
pub(crate) fn signed(of: Duration) -> String {
    match of.ticks() {
        0 => "0".to_string(),
        ticks if ticks < 0 => format!("-{}", duration_in_words(Duration::from_ticks(-ticks))),
        _ => duration_in_words(of),
    }
}

pub(crate) fn analytic(call: &AnalyticCall, columns: &[String]) -> String {
    let e = |of: &Expr| expr(of, columns);
    let or = |default: &Option<Expr>| match default {
        Some(default) => format!(", {}", e(default)),
        None => String::new(),
    };
    let mut over = Vec::new();
    if !call.partition.is_empty() {
        over.push(format!("PARTITION BY {}", list(&call.partition, columns)));
    }
    let function = match &call.function {
        Analytic::Lag {
            of,
            offset,
            default,
        } => format!("LAG({}, {offset}{})", e(of), or(default)),
        Analytic::Last { of, default } => format!("LAST({}{})", e(of), or(default)),
        Analytic::IsFirst => format!("ISFIRST({})", duration(call.limit)),
        Analytic::Aggregate(of) => {
            if !of.order.is_empty() {
                over.push(order_by(&of.order, columns));
            }
            aggregate_call(of, columns)
        }
        Analytic::SpikeAndDip {
            of,
            confidence,
            history,
            mode,
        } => {
            let (of, confidence, mode) = (e(of), e(confidence), e(mode));
            format!("AnomalyDetection_SpikeAndDip({of}, {confidence}, {history}, {mode})")
        }
        Analytic::ChangePoint {
            of,
            confidence,
            history,
        } => {
            let (of, confidence) = (e(of), e(confidence));
            format!("AnomalyDetection_ChangePoint({of}, {confidence}, {history})")
        }
    };
    if !matches!(call.function, Analytic::IsFirst) {
        over.push(format!("LIMIT DURATION({})", duration(call.limit)));
    }
    if let Some(when) = &call.when {
        over.push(format!("WHEN {}", pred(when, columns)));
    }
    match over.is_empty() {
        true => function,
        false => format!("{function} OVER ({})", over.join(" ")),
    }
}

/// The pattern and the measures of a MATCH_RECOGNIZE.
pub(crate) fn matching(node: &MatchNode, below: &[String]) -> String {
    let mut text = format!("match {}", pattern(&node.pattern, &node.variables));
    text += &format!(" within {}", duration_in_words(node.limit));
    if !node.partition.is_empty() {
        let keys = node.partition.iter().map(|key| expr(&key.expr, below));
        text += &format!(" by {}", join(keys));
    }
    let refs = match_refs(node, below);
    for (variable, define) in node.variables.iter().zip(&node.defines) {
        if let Some(define) = define {
            text += &format!(", {variable}: {}", pred(define, &refs));
        }
    }
    text
}

/// The values of a match, with their references.
pub(crate) fn measures(node: &MatchNode, below: &[String]) -> Vec<String> {
    let refs = match_refs(node, below);
    let measures = node.measures.iter();
    measures.map(|measure| expr(&measure.expr, &refs)).collect()
}

fn match_refs(node: &MatchNode, below: &[String]) -> Vec<String> {
    let refs = node.refs.iter();
    refs.map(|of| match_ref(of, &node.variables, below))
        .collect()
}

fn match_ref(of: &MatchRef, variables: &[String], columns: &[String]) -> String {
    let (variable, pick, of) = match of {
        MatchRef::Picked {
            variable, pick, of, ..
        } => (variable, pick, of),
        MatchRef::Classifier => return "Classifier()".to_string(),
        MatchRef::Collected { of } => return format!("Collect({})", expr(of, columns)),
    };
    let of = format!("{}.{}", variables[*variable], expr(of, columns));
    match pick {
        Pick::Current => of,
        Pick::First => format!("First({of})"),
        Pick::Last => format!("Last({of})"),
        Pick::Min => format!("Min({of})"),
        Pick::Max => format!("Max({of})"),
    }
}

pub(crate) fn pattern(of: &Pattern, variables: &[String]) -> String {
    let all = |parts: &[Pattern], between: &str| {
        let parts: Vec<String> = parts.iter().map(|part| pattern(part, variables)).collect();
        parts.join(between)
    };
    match of {
        Pattern::Variable(variable) => variables[*variable].clone(),
        Pattern::Any => ".".to_string(),
        Pattern::Sequence(parts) => format!("({})", all(parts, " ")),
        Pattern::Either(parts) => format!("({})", all(parts, " | ")),
        Pattern::Repeat {
            of,
            at_least_one,
            at_most_one,
        } => {
            let sign = match (at_least_one, at_most_one) {
                (true, _) => "+",
                (false, true) => "?",
                (false, false) => "*",
            };
            format!("{}{sign}", pattern(of, variables))
        }
    }
}
