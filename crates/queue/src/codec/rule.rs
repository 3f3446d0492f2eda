//! The fields of rules: expressions are stored as their texts, and parsed when they are read.

use highwater_codec::{DecodeError, Writer};

use super::field::{Field, FieldReader, Read};
use crate::filter::{SqlAction, SqlFilter, SystemProperty};

impl Field for SqlFilter {
    fn write(&self, out: &mut Vec<u8>) {
        out.text_var(self.text());
    }

    fn read(from: &mut FieldReader<'_>) -> Read<SqlFilter> {
        let parsed = SqlFilter::parse(from.text_var()?);
        parsed.map_err(|_| DecodeError::Invalid("the filter of a rule is no expression"))
    }
}

impl Field for SqlAction {
    fn write(&self, out: &mut Vec<u8>) {
        out.text_var(self.text());
    }

    fn read(from: &mut FieldReader<'_>) -> Read<SqlAction> {
        let parsed = SqlAction::parse(from.text_var()?);
        parsed.map_err(|_| DecodeError::Invalid("the action of a rule has no statements"))
    }
}

impl Field for SystemProperty {
    fn write(&self, out: &mut Vec<u8>) {
        out.text_var(self.name());
    }

    fn read(from: &mut FieldReader<'_>) -> Read<SystemProperty> {
        let property = SystemProperty::of_name(from.text_var()?);
        property.ok_or(DecodeError::Invalid("a rule has an unknown property"))
    }
}

impl Field for f64 {
    fn write(&self, out: &mut Vec<u8>) {
        out.i64_be(self.to_bits() as i64);
    }

    fn read(from: &mut FieldReader<'_>) -> Read<f64> {
        Ok(f64::from_bits(from.i64_be()? as u64))
    }
}
