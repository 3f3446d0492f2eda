//! The rules once more, a row at a time and as plainly as possible. Slow, and sharing no arithmetic, comparison
//! or cast with the code under test. `None` means that the row fails.

use std::cmp::Ordering;
use std::sync::Arc;

use highwater_query::plan::{
    BinaryOp, CompareOp, Expr, ExprKind, Literal, Pred, PredKind, Type, UnaryOp,
};
use highwater_time::Instant;

use crate::chunk::Chunk;
use crate::eval::like::Pattern;
use crate::eval::write_text;
use crate::value::{Record, Value};

pub(crate) fn value(expr: &Expr, chunk: &Chunk, row: usize) -> Option<Value> {
    Some(match &expr.kind {
        ExprKind::Call { .. } | ExprKind::User { .. } | ExprKind::Record(_) => {
            unreachable!("the oracle knows operators only")
        }
        ExprKind::Fold(of) => fold(&value(of, chunk, row)?),
        ExprKind::Column(column) => chunk.columns[*column].get(row).to_value(),
        ExprKind::Literal(Literal::Null) => Value::Null,
        ExprKind::Literal(Literal::Int(i)) => Value::Int(*i),
        ExprKind::Literal(Literal::Float(f)) => Value::Float(*f),
        ExprKind::Literal(Literal::Text(t)) => Value::text(t),
        ExprKind::Timestamp => Value::Time(chunk.time(row)),
        ExprKind::Field { of, name } => match value(of, chunk, row)? {
            Value::Record(record) => record.get(name).cloned().unwrap_or_default(),
            _ => Value::Null,
        },
        ExprKind::Unary { op, of } => unary(*op, value(of, chunk, row)?)?,
        ExprKind::Binary { op, left, right } => {
            binary(*op, &value(left, chunk, row)?, &value(right, chunk, row)?)?
        }
        ExprKind::Case {
            branches,
            otherwise,
        } => {
            let mut taken = &**otherwise;
            for (condition, branch) in branches {
                if holds(condition, chunk, row)? {
                    taken = branch;
                    break;
                }
            }
            match (value(taken, chunk, row)?, rank(expr)) {
                (Value::Bit(b), 2) => Value::Int(b.into()),
                (Value::Bit(b), 3) => Value::Float(b as i64 as f64),
                (Value::Int(i), 3) => Value::Float(i as f64),
                (other, _) => other,
            }
        }
        ExprKind::Cast { of, to, lenient } => {
            let of = value(of, chunk, row)?;
            match cast(&of, *to) {
                None if *lenient => Value::Null,
                result => result?,
            }
        }
        ExprKind::Coalesce(args) => {
            for arg in args {
                let value = value(arg, chunk, row)?;
                if !value.is_null() {
                    return Some(value);
                }
            }
            Value::Null
        }
    })
}

fn fold(value: &Value) -> Value {
    let upper = |c: char| match c.to_uppercase().collect::<Vec<char>>()[..] {
        [one] => one,
        _ => c,
    };
    match value {
        Value::Text(text) => Value::text(&text.chars().map(upper).collect::<String>()),
        Value::Array(items) => Value::Array(items.iter().map(fold).collect()),
        Value::Record(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), fold(value)));
            Value::Record(Arc::new(Record::from_fields(fields.collect())))
        }
        other => other.clone(),
    }
}

/// 1 bit, 2 bigint, 3 float; 0 if the text does not tell.
fn rank(expr: &Expr) -> u8 {
    match &expr.kind {
        ExprKind::Literal(Literal::Int(_)) => 2,
        ExprKind::Literal(Literal::Float(_)) => 3,
        ExprKind::Cast { to: Type::Bit, .. } => 1,
        ExprKind::Cast {
            to: Type::Bigint, ..
        } => 2,
        ExprKind::Cast {
            to: Type::Float, ..
        } => 3,
        ExprKind::Unary {
            op: UnaryOp::BitNot,
            of,
        } => rank(of),
        ExprKind::Unary { of, .. } => rank(of).max(2),
        ExprKind::Binary {
            op: BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor,
            left,
            right,
        } => rank(left).max(rank(right)),
        ExprKind::Binary { left, right, .. } => rank(left).max(rank(right)).max(2),
        ExprKind::Case {
            branches,
            otherwise,
        } => branches
            .iter()
            .map(|(_, branch)| rank(branch))
            .fold(rank(otherwise), u8::max),
        ExprKind::Fold(of) => rank(of),
        ExprKind::Coalesce(args) => args.iter().map(rank).min().unwrap_or(0),
        _ => 0,
    }
}

fn unary(op: UnaryOp, of: Value) -> Option<Value> {
    match (op, of) {
        (_, Value::Null) => Some(Value::Null),
        (UnaryOp::BitNot, Value::Bit(b)) => Some(Value::Bit(!b)),
        (UnaryOp::BitNot, Value::Int(i)) => Some(Value::Int(-1 - i)),
        (UnaryOp::BitNot, _) => None,
        (UnaryOp::Plus, Value::Float(f)) => Some(Value::Float(f)),
        (UnaryOp::Minus, Value::Float(f)) => Some(Value::Float(-f)),
        (UnaryOp::Plus, Value::Text(t)) => spelled(&t).map(Value::Float),
        (UnaryOp::Minus, Value::Text(t)) => spelled(&t).map(|f| Value::Float(-f)),
        (UnaryOp::Plus, other) => whole(&other).map(|i| Value::Int(i as i64)),
        (UnaryOp::Minus, other) => i64::try_from(-whole(&other)?).ok().map(Value::Int),
    }
}

/// A bit or bigint.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Bit(b) => Some(i128::from(*b)),
        Value::Int(i) => Some(i128::from(*i)),
        _ => None,
    }
}

fn spelled(text: &str) -> Option<f64> {
    let wordy = text.chars().any(|c| c.is_alphabetic() && !"eE".contains(c));
    text.trim()
        .parse::<f64>()
        .ok()
        .filter(|f| !wordy && f.is_finite())
}

pub(crate) fn binary(op: BinaryOp, a: &Value, b: &Value) -> Option<Value> {
    if a.is_null() || b.is_null() {
        return Some(Value::Null);
    }
    if let (BinaryOp::Add, Value::Text(a), Value::Text(b)) = (op, a, b) {
        return Some(Value::text(&format!("{a}{b}")));
    }
    if let (Some(x), Some(y)) = (whole(a), whole(b)) {
        let result = match op {
            BinaryOp::Add => x + y,
            BinaryOp::Subtract => x - y,
            BinaryOp::Multiply => x * y,
            BinaryOp::Divide if y == 0 => return None,
            BinaryOp::Divide => x / y,
            BinaryOp::Modulo if y == 0 => return None,
            BinaryOp::Modulo => x % y,
            BinaryOp::BitAnd => x & y,
            BinaryOp::BitOr => x | y,
            BinaryOp::BitXor => x ^ y,
        };
        let bits = matches!(op, BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor);
        return match (a, b) {
            (Value::Bit(_), Value::Bit(_)) if bits => Some(Value::Bit(result == 1)),
            _ => i64::try_from(result).ok().map(Value::Int),
        };
    }
    let float = |value: &Value| match value {
        Value::Float(f) => Some(*f),
        Value::Text(t) => spelled(t),
        other => whole(other).map(|i| i as f64),
    };
    let (x, y) = (float(a)?, float(b)?);
    let result = match op {
        BinaryOp::Add => x + y,
        BinaryOp::Subtract => x - y,
        BinaryOp::Multiply => x * y,
        BinaryOp::Divide => x / y,
        BinaryOp::Modulo => x % y,
        _ => return None,
    };
    result.is_finite().then_some(Value::Float(result))
}

/// A number as its whole part, then the rest; both exact, and both with the sign of the number.
fn split(value: &Value) -> Option<(i128, f64)> {
    match value {
        // Beyond any bigint the rest alone decides.
        Value::Float(f) if f.abs() > 1e30 => {
            Some((if *f > 0.0 { i128::MAX } else { i128::MIN }, *f))
        }
        Value::Float(f) => Some((f.trunc() as i128, f.fract())),
        other => whole(other).map(|i| (i, 0.0)),
    }
}

/// `Some(None)` where NULL is involved.
pub(crate) fn order(a: &Value, b: &Value) -> Option<Option<Ordering>> {
    let numeric = |value: &Value| matches!(value, Value::Bit(_) | Value::Int(_) | Value::Float(_));
    let number = |text: &str, other: &Value| match (text.trim().to_lowercase().as_str(), other) {
        ("true", Value::Bit(_)) => Some(Value::Int(1)),
        ("false", Value::Bit(_)) => Some(Value::Int(0)),
        (word, _) => match word.parse() {
            Ok(int) => Some(Value::Int(int)),
            Err(_) => spelled(text).map(Value::Float),
        },
    };
    let instant = |text: &str| Instant::parse_iso(text.as_bytes()).map(Value::Time);
    Some(Some(match (a, b) {
        (Value::Null, _) | (_, Value::Null) => return Some(None),
        (Value::Text(a), Value::Text(b)) => a.chars().cmp(b.chars()),
        (Value::Time(a), Value::Time(b)) => a.ticks().cmp(&b.ticks()),
        (Value::Text(t), Value::Time(_)) => return order(&instant(t)?, b),
        (Value::Time(_), Value::Text(t)) => return order(a, &instant(t)?),
        (Value::Text(t), other) if numeric(other) => return order(&number(t, other)?, b),
        (other, Value::Text(t)) if numeric(other) => return order(a, &number(t, other)?),
        _ => split(a)?.partial_cmp(&split(b)?)?,
    }))
}

pub(crate) fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && (0..a.len()).all(|i| alike(&a[i], &b[i]))
        }
        (Value::Record(a), Value::Record(b)) => {
            let sorted = |record: &crate::value::Record| {
                let mut fields: Vec<_> = record
                    .iter()
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect();
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                fields
            };
            let (a, b) = (sorted(a), sorted(b));
            a.len() == b.len()
                && a.iter()
                    .zip(&b)
                    .all(|(a, b)| a.0 == b.0 && alike(&a.1, &b.1))
        }
        (Value::Text(_), Value::Text(_)) => order(a, b) == Some(Some(Ordering::Equal)),
        (Value::Text(_), _) | (_, Value::Text(_)) => false,
        _ => order(a, b) == Some(Some(Ordering::Equal)),
    }
}

pub(crate) fn compare(op: CompareOp, a: &Value, b: &Value) -> Option<bool> {
    let nested = matches!(
        (a, b),
        (Value::Record(_), Value::Record(_)) | (Value::Array(_), Value::Array(_))
    );
    if nested {
        return match op {
            CompareOp::Eq => Some(alike(a, b)),
            CompareOp::Ne => Some(!alike(a, b)),
            _ => None,
        };
    }
    let Some(order) = order(a, b)? else {
        return Some(false);
    };
    Some(match op {
        CompareOp::Eq => order == Ordering::Equal,
        CompareOp::Ne => order != Ordering::Equal,
        CompareOp::Lt => order == Ordering::Less,
        CompareOp::Le => order != Ordering::Greater,
        CompareOp::Gt => order == Ordering::Greater,
        CompareOp::Ge => order != Ordering::Less,
    })
}

pub(crate) fn cast(value: &Value, to: Type) -> Option<Value> {
    let mut text = String::new();
    write_text(value.view(), &mut text);
    Some(match (value, to) {
        (Value::Null, _) => Value::Null,
        (_, Type::Text) => Value::text(&text),
        (Value::Bit(_), Type::Bit)
        | (Value::Int(_), Type::Bigint)
        | (Value::Float(_), Type::Float)
        | (Value::Time(_), Type::Datetime)
        | (Value::Record(_), Type::Record)
        | (Value::Array(_), Type::Array) => value.clone(),
        (Value::Bit(b), Type::Bigint) => Value::Int(*b as i64),
        (Value::Bit(b), Type::Float) => Value::Float(*b as i64 as f64),
        (Value::Int(i), Type::Float) => Value::Float(*i as f64),
        (Value::Int(i), Type::Bit) => Value::Bit(*i != 0),
        (Value::Float(f), Type::Bit) => Value::Bit(*f != 0.0),
        (Value::Float(f), Type::Bigint) if f.abs() < 1e30 => {
            Value::Int(i64::try_from(f.trunc() as i128).ok()?)
        }
        (Value::Text(t), Type::Bigint) => Value::Int(t.trim().parse().ok()?),
        (Value::Text(t), Type::Float) => Value::Float(spelled(t)?),
        (Value::Text(t), Type::Datetime) => Value::Time(Instant::parse_iso(t.as_bytes())?),
        (Value::Text(t), Type::Bit) => match t.trim().to_lowercase().as_str() {
            "true" | "1" => Value::Bit(true),
            "false" | "0" => Value::Bit(false),
            _ => return None,
        },
        _ => return None,
    })
}

pub(crate) fn holds(pred: &Pred, chunk: &Chunk, row: usize) -> Option<bool> {
    Some(match &pred.kind {
        PredKind::And(left, right) => holds(left, chunk, row)? && holds(right, chunk, row)?,
        PredKind::Or(left, right) => holds(left, chunk, row)? || holds(right, chunk, row)?,
        PredKind::Not(of) => !holds(of, chunk, row)?,
        PredKind::Compare { op, left, right } => {
            compare(*op, &value(left, chunk, row)?, &value(right, chunk, row)?)?
        }
        PredKind::Like {
            of,
            pattern,
            negated,
        } => {
            let (of, pattern) = (value(of, chunk, row)?, value(pattern, chunk, row)?);
            if of.is_null() || pattern.is_null() {
                return Some(false);
            }
            let nested = |value: &Value| matches!(value, Value::Record(_) | Value::Array(_));
            if nested(&of) || nested(&pattern) {
                return None;
            }
            let (mut subject, mut wanted) = (String::new(), String::new());
            write_text(of.view(), &mut subject);
            write_text(pattern.view(), &mut wanted);
            Pattern::new(&wanted).matches(&subject) != *negated
        }
        PredKind::In { of, list, negated } => {
            let of = value(of, chunk, row)?;
            if of.is_null() {
                return Some(false);
            }
            let mut unknown = false;
            for entry in list {
                let entry = value(entry, chunk, row)?;
                unknown |= entry.is_null();
                let texts = |v: &Value| matches!(v, Value::Text(_));
                let alike = texts(&of) == texts(&entry);
                if alike && compare(CompareOp::Eq, &of, &entry) == Some(true) {
                    return Some(!negated);
                }
            }
            *negated && !unknown
        }
        PredKind::Between {
            of,
            low,
            high,
            negated,
        } => {
            let of = value(of, chunk, row)?;
            let (low, high) = (value(low, chunk, row)?, value(high, chunk, row)?);
            if of.is_null() || low.is_null() || high.is_null() {
                return Some(false);
            }
            let above = compare(CompareOp::Ge, &of, &low)?;
            let below = compare(CompareOp::Le, &of, &high)?;
            (above && below) != *negated
        }
        PredKind::IsNull { of, negated } => value(of, chunk, row)?.is_null() != *negated,
    })
}
