//! Values to JavaScript and back.
//!
//! A bigint beyond 2^53 loses digits, a datetime is truncated to milliseconds. In the other direction whole numbers
//! become bigint, and values without a SAQL type (NaN, symbols, functions, Map ..) are errors.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use highwater_time::Instant;
use rquickjs::{Array, Atom, Ctx, Function, Object, Type, Value as Js};

use super::interpreter::MEMORY_BYTES_MAX;
use super::shapes::Shapes;
use crate::value::{Record, Value, ValueRef};

/// The maximum nesting of a result; a cyclic one has no end.
const DEPTH_MAX: usize = 64;
/// The maximum size of a result. An array that contains another one twice is small in JavaScript and large as a value.
const RESULT_BYTES_MAX: usize = MEMORY_BYTES_MAX;
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

/// How many names of fields are remembered.
const NAMES_MAX: usize = 64;

/// The context of a chunk's conversions: functions of the prelude, the shapes of records, and the names of their
/// fields.
pub(super) struct Conversion<'e, 'js> {
    pub ctx: Ctx<'js>,
    pub make_date: Function<'js>,
    pub time_of: Function<'js>,
    /// The prototype of plain objects.
    pub plain: Object<'js>,
    pub shapes: &'e Shapes,
    pub names: FieldNames<'js>,
}

/// The names of fields so far, as both sides have them.
#[derive(Default)]
pub(super) struct FieldNames<'js> {
    known: RefCell<Vec<(Atom<'js>, Arc<str>)>>,
    /// The index of the name that is likely to come next.
    next: Cell<usize>,
}

impl<'js> FieldNames<'js> {
    fn atom(&self, ctx: &Ctx<'js>, name: &Arc<str>) -> rquickjs::Result<Atom<'js>> {
        let found = self.find(|(_, known)| Arc::ptr_eq(known, name) || known == name);
        if let Some((atom, _)) = found {
            return Ok(atom);
        }
        let atom = Atom::from_str(ctx.clone(), name)?;
        self.add(&atom, name);
        Ok(atom)
    }

    fn name(&self, atom: &Atom<'js>) -> rquickjs::Result<Arc<str>> {
        if let Some((_, name)) = self.find(|(known, _)| known == atom) {
            return Ok(name);
        }
        let name: Arc<str> = atom.to_string()?.into();
        self.add(atom, &name);
        Ok(name)
    }

    fn find(
        &self,
        is_it: impl Fn(&(Atom<'js>, Arc<str>)) -> bool,
    ) -> Option<(Atom<'js>, Arc<str>)> {
        let known = self.known.borrow();
        let next = self.next.get();
        let index = match known.get(next).is_some_and(&is_it) {
            true => next,
            false => known.iter().position(is_it)?,
        };
        self.next.set((index + 1) % known.len());
        Some(known[index].clone())
    }

    fn add(&self, atom: &Atom<'js>, name: &Arc<str>) {
        let known = &mut *self.known.borrow_mut();
        if known.len() < NAMES_MAX {
            known.push((atom.clone(), name.clone()));
        }
    }
}

impl<'js> Conversion<'_, 'js> {
    pub(super) fn to_js(&self, value: ValueRef<'_>) -> rquickjs::Result<Js<'js>> {
        let ctx = &self.ctx;
        Ok(match value {
            ValueRef::Null => Js::new_null(ctx.clone()),
            ValueRef::Bit(b) => Js::new_bool(ctx.clone(), b),
            ValueRef::Int(i) => match i32::try_from(i) {
                Ok(i) => Js::new_int(ctx.clone(), i),
                Err(_) => Js::new_float(ctx.clone(), i as f64),
            },
            ValueRef::Float(f) => Js::new_float(ctx.clone(), f),
            ValueRef::Text(text) => rquickjs::String::from_str(ctx.clone(), text)?.into_value(),
            ValueRef::Time(time) => self.make_date.call((time.to_unix_millis() as f64,))?,
            ValueRef::Record(record) => {
                self.shapes.keep(ctx, record.iter().map(|(name, _)| name))?;
                let object = Object::new(ctx.clone())?;
                for (name, value) in record.iter() {
                    object.set(self.names.atom(ctx, name)?, self.to_js(value.view())?)?;
                }
                object.into_value()
            }
            ValueRef::Array(items) => {
                let array = Array::new(ctx.clone())?;
                for (index, item) in items.iter().enumerate() {
                    array.set(index, self.to_js(item.view())?)?;
                }
                array.into_value()
            }
        })
    }

    pub(super) fn read_js(&self, value: &Js<'js>) -> Result<Value, ConvertError> {
        let mut converter = Converter {
            conversion: self,
            bytes: 0,
            depth: 0,
        };
        converter.value(value)
    }
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

/// Converts one result.
struct Converter<'c, 'e, 'js> {
    conversion: &'c Conversion<'e, 'js>,
    /// The size of the values so far.
    bytes: usize,
    depth: usize,
}

impl<'js> Converter<'_, '_, 'js> {
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
            Type::Array => match value.as_array() {
                Some(array) => self.array(array),
                None => error("the result is of no type that SAQL has"),
            },
            Type::Object => match value.as_object() {
                Some(object) => self.object(object),
                None => error("the result is of no type that SAQL has"),
            },
            Type::BigInt => error("the result is a BigInt; return a Number or a String"),
            Type::Symbol => error("the result is a Symbol"),
            Type::Constructor | Type::Function => error("the result is a function"),
            Type::Promise => error("the result is a Promise; functions cannot wait"),
            Type::Exception => error("the result is an Error; throw it instead"),
            _ => error("the result is of no type that SAQL has"),
        }
    }

    fn array(&mut self, array: &Array<'js>) -> Result<Value, ConvertError> {
        let items: Result<Vec<Value>, ConvertError> = (0..array.len())
            .map(|index| self.value(&array.get(index)?))
            .collect();
        Ok(Value::Array(items?.into()))
    }

    /// A record, or the time of a Date.
    fn object(&mut self, object: &Object<'js>) -> Result<Value, ConvertError> {
        // No Date is a plain object.
        if object.get_prototype().as_ref() != Some(&self.conversion.plain) {
            let time: Js<'js> = self.conversion.time_of.call((object.clone(),))?;
            if let Some(millis) = time.as_number() {
                return date(millis);
            }
        }
        let mut fields: Vec<(Arc<str>, Value)> = Vec::new();
        for property in object.props::<Atom<'js>, Js<'js>>() {
            let (atom, value) = property?;
            let name = self.conversion.names.name(&atom)?;
            self.charge(name.len())?;
            fields.push((name, self.value(&value)?));
        }
        let Conversion { ctx, shapes, .. } = self.conversion;
        shapes.keep(ctx, fields.iter().map(|(name, _)| name))?;
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
