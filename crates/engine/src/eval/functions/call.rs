//! The arguments of a call: how a rule reads them, and the errors for unsuitable ones.

use highwater_query::functions::Function;
use highwater_time::Instant;

use crate::column::ColumnBuilder;
use crate::eval::fault::{EvalError, display_value};
use crate::eval::number::{Number, read_float};
use crate::eval::operand::{Datum, KernelContext};
use crate::eval::text::write_text;
use crate::value::ValueRef;

/// A rule appends one value to the column, or fails and appends none.
pub(super) type RuleResult = Result<(), EvalError>;

/// A function over the arguments of a whole chunk.
pub(super) struct Call<'a, 'b> {
    pub function: Function,
    pub args: &'a [Datum],
    pub context: &'a mut KernelContext<'b>,
}

/// The same arguments in one row. Positions count from 0 here, from 1 in messages.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    function: Function,
    args: &'a [Datum],
    row: usize,
}

impl<'a, 'b> Call<'a, 'b> {
    pub(super) fn new(
        function: Function,
        args: &'a [Datum],
        context: &'a mut KernelContext<'b>,
    ) -> Call<'a, 'b> {
        Call {
            function,
            args,
            context,
        }
    }

    /// Reborrows the call, for warnings after it ran.
    #[cfg(feature = "geo")]
    pub(super) fn reborrow(&mut self) -> Call<'_, 'b> {
        Call::new(self.function, self.args, self.context)
    }

    /// Adds a warning to these rows. The binder has warned about calls with constant arguments.
    #[cfg(feature = "geo")]
    pub(super) fn warn(&mut self, rows: &[usize], text: &'static str) {
        if !self.args.iter().all(|arg| matches!(arg, Datum::Scalar(_))) {
            rows.iter().for_each(|row| self.context.warn(*row, text));
        }
    }

    /// Applies a rule to all rows without NULL arguments; a NULL argument gives NULL.
    pub(super) fn strict(
        self,
        mut rule: impl FnMut(Row<'_>, &mut ColumnBuilder) -> Result<(), EvalError>,
    ) -> Datum {
        if self.args.iter().any(Datum::all_null) {
            return Datum::NULL;
        }
        self.each(|row, out| {
            if row.values().any(ValueRef::is_null) {
                out.push_null();
                return Ok(());
            }
            rule(row, out)
        })
    }

    /// Applies a rule to all rows, or once if all arguments are scalars.
    pub(super) fn each(
        self,
        mut rule: impl FnMut(Row<'_>, &mut ColumnBuilder) -> Result<(), EvalError>,
    ) -> Datum {
        let Call {
            function,
            args,
            context,
        } = self;
        let row = |row| Row {
            function,
            args,
            row,
        };
        if args.iter().all(|arg| matches!(arg, Datum::Scalar(_))) {
            let mut out = ColumnBuilder::with_capacity(1);
            return match rule(row(0), &mut out) {
                Ok(()) => Datum::Scalar(out.finish().get(0).to_value()),
                Err(reason) => {
                    context.fail_all(reason);
                    Datum::NULL
                }
            };
        }
        let rows = context.rows.len();
        let mut out = ColumnBuilder::with_capacity(rows);
        for at in 0..rows {
            if !context.rows.contains(at) {
                out.push_null();
                continue;
            }
            if let Err(reason) = rule(row(at), &mut out) {
                out.push_null();
                context.fail(at, reason);
            }
            debug_assert_eq!(out.len(), at + 1, "a rule leaves one value");
        }
        Datum::Column(out.finish())
    }
}

impl<'a> Row<'a> {
    pub(super) fn value(self, at: usize) -> ValueRef<'a> {
        self.args[at].get(self.row)
    }

    pub(super) fn values(self) -> impl Iterator<Item = ValueRef<'a>> {
        self.args.iter().map(move |arg| arg.get(self.row))
    }

    /// The index of the row in the chunk.
    #[cfg(feature = "geo")]
    pub(super) fn row_index(self) -> usize {
        self.row
    }

    /// The number of arguments.
    pub(super) fn len(self) -> usize {
        self.args.len()
    }

    pub(super) fn time(self, at: usize) -> Result<Instant, EvalError> {
        match self.value(at) {
            ValueRef::Time(time) => Ok(time),
            ValueRef::Text(text) => Instant::parse_iso(text.as_bytes())
                .ok_or_else(|| self.unreadable(at, "datetime", "datetime")),
            _ => Err(self.wrong_type(at, "datetime and ISO 8601 text")),
        }
    }

    /// Text becomes a float even if it is a whole number, as in arithmetic.
    pub(super) fn number(self, at: usize) -> Result<Number, EvalError> {
        let value = self.value(at);
        if let ValueRef::Text(text) = value {
            return match read_float(text) {
                Some(float) => Ok(Number::Float(float)),
                None => Err(self.unreadable(at, "number", "float")),
            };
        }
        Number::of(value)
            .ok_or_else(|| self.wrong_type(at, "bigint, float, bit and text that spells a number"))
    }

    pub(super) fn float(self, at: usize) -> Result<f64, EvalError> {
        self.number(at).map(Number::to_float)
    }

    /// A count or position: the fraction is truncated, and large values saturate.
    pub(super) fn integer(self, at: usize) -> Result<i64, EvalError> {
        Ok(match self.number(at)? {
            Number::Int(int) => int,
            Number::Float(float) => float as i64,
        })
    }

    /// A [`Row::integer`] that counts characters and must not be negative.
    pub(super) fn length(self, at: usize) -> Result<usize, EvalError> {
        let length = self.integer(at)?;
        usize::try_from(length).map_err(|_| self.wrong_value(at, "a length cannot be negative"))
    }

    /// Any value but a record or array as text; `buffer` is used for values that are not text.
    pub(super) fn text<'b>(self, at: usize, buffer: &'b mut String) -> Result<&'b str, EvalError>
    where
        'a: 'b,
    {
        match self.value(at) {
            ValueRef::Text(text) => Ok(text),
            ValueRef::Record(_) | ValueRef::Array(_) => {
                Err(self.wrong_type(at, "nvarchar(max), bigint, float, bit and datetime"))
            }
            value => {
                buffer.clear();
                write_text(value, buffer);
                Ok(buffer)
            }
        }
    }

    #[cold]
    pub(super) fn wrong_type(self, at: usize, allowed: &'static str) -> EvalError {
        EvalError::Argument {
            function: self.function.name(),
            position: self.position(at),
            found: self.value(at).type_name(),
            allowed,
        }
    }

    #[cold]
    pub(super) fn wrong_value(self, at: usize, rule: &'static str) -> EvalError {
        EvalError::ArgumentValue {
            function: self.function.name(),
            position: self.position(at),
            value: display_value(self.value(at)),
            rule,
        }
    }

    #[cold]
    fn unreadable(self, at: usize, wanted: &'static str, cast: &'static str) -> EvalError {
        EvalError::ArgumentText {
            function: self.function.name(),
            position: self.position(at),
            text: display_value(self.value(at)),
            wanted,
            cast,
        }
    }

    /// The call with these values, as in a query.
    #[cold]
    pub(super) fn expression(self) -> String {
        let args: Vec<String> = self.values().map(display_value).collect();
        format!("{}({})", self.function.name(), args.join(", "))
    }

    pub(super) fn function(self) -> &'static str {
        self.function.name()
    }

    /// The position in the query, where a datepart counts as an argument.
    fn position(self, at: usize) -> usize {
        at + 1 + usize::from(self.function.takes_part())
    }
}
