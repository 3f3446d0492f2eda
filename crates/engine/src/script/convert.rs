//! Values to JavaScript and back.
//!
//! A bigint beyond 2^53 loses digits, a datetime is truncated to milliseconds. In the other direction whole numbers become
//! bigint, and values without a SAQL type (NaN, symbols, functions, Map ..) are errors.

use std::sync::Arc;

use highwater_time::Instant;
use rquickjs::{Array, Ctx, Function, Object, Type, Value as Js};

use super::interpreter::MEMORY_BYTES_MAX;
use crate::value::{Record, Value, ValueRef};

/// The maximum nesting of a result; a cyclic one has no end.
const DEPTH_MAX: usize = 64;
/// The maximum size of a result. An array that contains another one twice is small in JavaScript and large as a value.
const RESULT_BYTES_MAX: usize = MEMORY_BYTES_MAX;
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
    let mut converter = Converter {
        dates,
        bytes: 0,
        depth: 0,
    };
    converter.value(value)
}

/// Converts one result.
struct Converter<'d, 'js> {
    dates: &'d Dates<'js>,
    /// The size of the values so far.
    bytes: usize,
    depth: usize,
}

impl<'js> Converter<'_, 'js> {
    fn charge(&mut self, bytes: usize) -> Result<(), ConvertError> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes <= RESULT_BYTES_MAX {
            true => Ok(()),
            false => error(format!(
                "the result is larger than {} MB",
                RESULT_BYTES_MAX >> 20
            )),
        }
    }

    fn value(&mut self, value: &Js<'js>) -> Result<Value, ConvertError> {
        if self.depth > DEPTH_MAX {
            return error(format!("the result nests deeper than {DEPTH_MAX} levels"));
        }
        self.charge(size_of::<Value>())?;
        self.depth += 1;
        let converted = self.content(value);
        self.depth -= 1;
        converted
    }

    fn content(&mut self, value: &Js<'js>) -> Result<Value, ConvertError> {
        match value.type_of() {
            Type::Undefined | Type::Null | Type::Uninitialized => Ok(Value::Null),
            Type::Bool => Ok(Value::Bit(value.as_bool().unwrap_or_default())),
            Type::Int => Ok(Value::Int(value.as_int().unwrap_or_default().into())),
            Type::Float => number(value.as_number().unwrap_or(f64::NAN)),
            Type::String => match value.as_string().map(|text| text.to_string()) {
                Some(Ok(text)) => {
                    self.charge(text.len())?;
                    Ok(Value::text(&text))
                }
                _ => error("the result holds text that is not valid Unicode"),
            },
            Type::Array => {
                let items = value
                    .as_array()
                    .into_iter()
                    .flat_map(|a| a.iter::<Js<'js>>());
                let items: Result<Vec<Value>, ConvertError> =
                    items.map(|item| self.value(&item?)).collect();
                Ok(Value::Array(items?.into()))
            }
            Type::Object => {
                let time: Js<'js> = self.dates.time.call((value.clone(),))?;
                match (time.as_number(), value.as_object()) {
                    (Some(millis), _) => date(millis),
                    (None, Some(object)) => self.record(object),
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

    fn record(&mut self, object: &Object<'js>) -> Result<Value, ConvertError> {
        let mut fields: Vec<(Arc<str>, Value)> = Vec::new();
        for property in object.props::<String, Js<'js>>() {
            let (name, value) = property?;
            self.charge(name.len())?;
            fields.push((name.into(), self.value(&value)?));
        }
        Ok(Value::Record(Arc::new(Record::from_fields(fields))))
    }
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
