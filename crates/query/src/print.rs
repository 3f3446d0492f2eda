//! Expressions of a plan as SAQL again, for people who want to see what will run.

use highwater_time::{
    Duration, TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MILLI, TICKS_PER_MINUTE, TICKS_PER_SECOND,
};

use crate::parser::is_reserved;
use crate::plan::{
    Aggregate, AggregateFunction, BinaryOp, CompareOp, Expr, ExprKind, Literal, Pred, PredKind,
    Read, Type, UnaryOp, Window, WindowNode,
};

/// How tightly an operator binds; a looser one inside a tighter one needs parentheses.
const SUM: u8 = 1;
const PRODUCT: u8 = 2;
const UNARY: u8 = 3;

pub fn expr(e: &Expr, columns: &[String]) -> String {
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
            // Two minus signs in a row would start a comment.
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
            return format!("{cast}({} AS {})", expr(of, columns), type_name(*to));
        }
        ExprKind::Coalesce(all) => return format!("COALESCE({})", list(all, columns)),
    };
    if level < outer {
        format!("({text})")
    } else {
        text
    }
}

fn list(all: &[Expr], columns: &[String]) -> String {
    all.iter()
        .map(|e| expr(e, columns))
        .collect::<Vec<_>>()
        .join(", ")
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

pub fn type_name(of: Type) -> &'static str {
    match of {
        Type::Bigint => "bigint",
        Type::Float => "float",
        Type::Text => "nvarchar(max)",
        Type::Datetime => "datetime",
        Type::Bit => "bit",
        Type::Record => "record",
        Type::Array => "array",
    }
}

pub fn pred(p: &Pred, columns: &[String]) -> String {
    let not = |negated: &bool| if *negated { "NOT " } else { "" };
    let e = |e: &Expr| expr(e, columns);
    match &p.kind {
        PredKind::And(left, right) => {
            format!("{} AND {}", tight(left, columns), tight(right, columns))
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
fn tight(p: &Pred, columns: &[String]) -> String {
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

pub fn aggregate(of: &Aggregate, columns: &[String]) -> String {
    let function = match of.function {
        AggregateFunction::Count => "COUNT",
        AggregateFunction::Sum => "SUM",
        AggregateFunction::Avg => "AVG",
        AggregateFunction::Min => "MIN",
        AggregateFunction::Max => "MAX",
    };
    let argument = of
        .argument
        .as_ref()
        .map_or("*".to_string(), |argument| expr(argument, columns));
    format!(
        "{function}({argument}){}",
        if of.as_text { " as text" } else { "" }
    )
}

pub fn read(read: &Read) -> String {
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
    }
}

/// In brackets where the bare name would not be read back as one.
pub fn name(name: &str) -> String {
    let start = name.starts_with(|c: char| c == '_' || c.is_alphabetic());
    let bare = start && !is_reserved(name);
    if bare && name.chars().all(|c| c == '_' || c.is_alphanumeric()) {
        return name.to_string();
    }
    format!("[{}]", name.replace(']', "]]"))
}

pub fn window(node: &WindowNode) -> String {
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
            let keys: Vec<String> = over.iter().map(|key| name(&node.keys[*key].name)).collect();
            format!("{session} OVER (PARTITION BY {})", keys.join(", "))
        }
        Window::Snapshot => "System.Timestamp()".to_string(),
    }
}

/// `unit, n` in the largest unit that divides it.
pub fn duration(of: Duration) -> String {
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
pub fn spoken(of: Duration) -> String {
    let written = duration(of);
    match written.split_once(", ") {
        Some((unit, "1")) => format!("1 {unit}"),
        Some((unit, count)) => format!("{count} {unit}s"),
        None => written,
    }
}
