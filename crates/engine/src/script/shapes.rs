//! The shapes of records in an interpreter.
//!
//! QuickJS forgets the shape of objects (the names of their properties and where they are) with the last object that
//! has it. Calls get and return one record at a time, so every record would build its shape anew, name by name. An
//! interpreter therefore keeps empty objects of the shapes that it has seen.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rquickjs::{Ctx, Object, Persistent, Value as Js};

/// How many shapes are kept.
const SHAPES_MAX: usize = 32;
/// The largest shape that is kept, in names and in bytes of all names.
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Shapes {
    known: RefCell<Vec<Shape>>,
    /// The shape that was found last.
    last: Cell<usize>,
}

struct Shape {
    names: Box<[Arc<str>]>,
    /// One with the first name, one with the first two, and so on: a record passes through their shapes as it is made.
    _objects: Vec<Persistent<Object<'static>>>,
}

impl Shapes {
    pub(super) fn keep<'n>(
        &self,
        ctx: &Ctx<'_>,
        names: impl ExactSizeIterator<Item = &'n Arc<str>> + Clone,
    ) -> rquickjs::Result<()> {
        let known = &mut *self.known.borrow_mut();
        let is_same = |shape: &Shape| {
            shape.names.len() == names.len()
                && (shape.names.iter().zip(names.clone())).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
        };
        if known.get(self.last.get()).is_some_and(is_same) {
            return Ok(());
        }
        if let Some(index) = known.iter().position(is_same) {
            self.last.set(index);
            return Ok(());
        }
        let bytes = || names.clone().map(|name| name.len()).sum::<usize>();
        if known.len() < SHAPES_MAX && names.len() <= NAMES_MAX && bytes() <= NAME_BYTES_MAX {
            self.last.set(known.len());
            known.push(Shape::new(ctx, names)?);
        }
        Ok(())
    }
}

impl Shape {
    fn new<'n>(
        ctx: &Ctx<'_>,
        names: impl ExactSizeIterator<Item = &'n Arc<str>> + Clone,
    ) -> rquickjs::Result<Shape> {
        let object = |count: usize| {
            let object = Object::new(ctx.clone())?;
            for name in names.clone().take(count) {
                object.set(&**name, Js::new_null(ctx.clone()))?;
            }
            Ok(Persistent::save(ctx, object))
        };
        let objects: rquickjs::Result<Vec<_>> = (1..=names.len()).map(object).collect();
        Ok(Shape {
            names: names.clone().cloned().collect(),
            _objects: objects?,
        })
    }
}
