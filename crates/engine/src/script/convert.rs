//! Values to JavaScript and back.
//!
//! A bigint beyond 2^53 loses digits, a datetime is truncated to milliseconds. In the other direction whole numbers become
//! bigint, and values without a SAQL type (NaN, symbols, functions, Map ..) are errors.

use std::sync::Arc;

use highwater_time::Instant;
use rquickjs::{Array, Ctx, Function, Object, Type, Value as Js};

use crate::value::{Record, Value, ValueRef};

/// The maximum nesting of a result; a cyclic one has no end.
const DEPTH_MAX: usize = 64;
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

/// The date functions of the prelude.
pub(super) struct Dates<'js> {
    pub make: Function<'js>,
    pub time: Function<'js>,
}

pub(super) fn to_js<'js>(
    ctx: &Ctx<'js>,
    dates: &Dates<'js>,
    value: ValueRef<'_>,
) -> rquickjs::Result<Js<'js>> {
    Ok(match value {
        ValueRef::Null => Js::new_null(ctx.clone()),
        ValueRef::Bit(b) => Js::new_bool(ctx.clone(), b),
        ValueRef::Int(i) => match i32::try_from(i) {
            Ok(i) => Js::new_int(ctx.clone(), i),
            Err(_) => Js::new_float(ctx.clone(), i as f64),
        },
        ValueRef::Float(f) => Js::new_float(ctx.clone(), f),
        ValueRef::Text(text) => rquickjs::String::from_str(ctx.clone(), text)?.into_value(),
        ValueRef::Time(time) => dates.make.call((time.to_unix_millis() as f64,))?,
        ValueRef::Record(record) => {
            let object = Object::new(ctx.clone())?;
            for (name, value) in record.iter() {
                object.set(&**name, to_js(ctx, dates, value.view())?)?;
            }
            object.into_value()
        }
        ValueRef::Array(items) => {
            let array = Array::new(ctx.clone())?;
            for (index, item) in items.iter().enumerate() {
                array.set(index, to_js(ctx, dates, item.view())?)?;
            }
            array.into_value()
        }
    })
}

/// Why a JavaScript value cannot be converted.
pub(super) enum ConvertError {
    /// JavaScript threw while it was read.
    Threw(rquickjs::Error),
    Unsupported(String),
}

impl From<rquickjs::Error> for ConvertError {
    fn from(error: rquickjs::Error) -> ConvertError {
        ConvertError::Threw(error)
    }
}

fn error<T>(what: impl Into<String>) -> Result<T, ConvertError> {
    Err(ConvertError::Unsupported(what.into()))
}

pub(super) fn from_js<'js>(dates: &Dates<'js>, value: &Js<'js>) -> Result<Value, ConvertError> {
    from_js_at(dates, value, 0)
}

fn from_js_at<'js>(
    dates: &Dates<'js>,
    value: &Js<'js>,
    depth: usize,
) -> Result<Value, ConvertError> {
    if depth > DEPTH_MAX {
        return error(format!("the result nests deeper than {DEPTH_MAX} levels"));
    }
    match value.type_of() {
        Type::Undefined | Type::Null | Type::Uninitialized => Ok(Value::Null),
        Type::Bool => Ok(Value::Bit(value.as_bool().unwrap_or_default())),
        Type::Int => Ok(Value::Int(value.as_int().unwrap_or_default().into())),
        Type::Float => number(value.as_number().unwrap_or(f64::NAN)),
        Type::String => match value.as_string().map(|text| text.to_string()) {
            Some(Ok(text)) => Ok(Value::text(&text)),
            _ => error("the result holds text that is not valid Unicode"),
        },
        Type::Array => {
            let items = value
                .as_array()
                .into_iter()
                .flat_map(|a| a.iter::<Js<'js>>());
            let items: Result<Vec<Value>, ConvertError> = items
                .map(|item| from_js_at(dates, &item?, depth + 1))
                .collect();
            Ok(Value::Array(items?.into()))
        }
        Type::Object => {
            let time: Js<'js> = dates.time.call((value.clone(),))?;
            match (time.as_number(), value.as_object()) {
                (Some(millis), _) => date(millis),
                (None, Some(object)) => record(dates, object, depth),
                (None, None) => error("the result is of no type that SAQL has"),
            }
        }
        Type::BigInt => error("the result is a BigInt; return a Number or a String"),
        Type::Symbol => error("the result is a Symbol"),
        Type::Constructor | Type::Function => error("the result is a function"),
        Type::Promise => error("the result is a Promise; functions cannot wait"),
        Type::Exception => error("the result is an Error; throw it instead"),
        _ => error("the result is of no type that SAQL has"),
    }
}

fn record<'js>(
    dates: &Dates<'js>,
    object: &Object<'js>,
    depth: usize,
) -> Result<Value, ConvertError> {
    let mut fields: Vec<(Arc<str>, Value)> = Vec::new();
    for property in object.props::<String, Js<'js>>() {
        let (name, value) = property?;
        fields.push((name.into(), from_js_at(dates, &value, depth + 1)?));
    }
    Ok(Value::Record(Arc::new(Record::from_fields(fields))))
}

fn number(number: f64) -> Result<Value, ConvertError> {
    if !number.is_finite() {
        return error(format!("the result is {number}, which is no float in SAQL"));
    }
    if number.trunc() == number && (-TWO_POW_63..TWO_POW_63).contains(&number) {
        return Ok(Value::Int(number as i64));
    }
    Ok(Value::Float(number))
}

fn date(millis: f64) -> Result<Value, ConvertError> {
    let range = Instant::CALENDAR_START.to_unix_millis() as f64
        ..=Instant::CALENDAR_END.to_unix_millis() as f64;
    if !range.contains(&millis) {
        return error("the result is a Date that is invalid or outside the years 1 to 9999");
    }
    Ok(Value::Time(Instant::from_unix_millis(millis as i64)))
}
