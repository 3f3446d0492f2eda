//! Answers with rows of JSON that take their bytes from the budget of answers before they are written.
//!
//! A list of hubs or groups has as many rows as the node has hubs or groups, so its size is not known before. Rows are
//! made one at a time, and the buffer takes from the budget before it grows: the memory of all large lists is counted,
//! and a list that does not fit is refused.

use std::io::{self, Write};

use highwater_env::{BudgetExhausted, MemoryBudget, MemoryShare};
use hyper::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::error::{Code, Error};
use super::reply::{self, Payload, Reply};

/// The buffer grows by a quarter, and at least by this.
const STEP_BYTES: usize = 16 << 10;

/// A JSON object that is written field by field.
pub(super) struct JsonAnswer {
    buffer: MeteredBuffer,
    /// The next field or row is not the first of its object or array.
    needs_comma: bool,
}

impl JsonAnswer {
    pub(super) fn new(budget: &MemoryBudget) -> Result<JsonAnswer, Error> {
        let mut answer = JsonAnswer {
            buffer: MeteredBuffer::new(budget),
            needs_comma: false,
        };
        answer.write(b"{")?;
        Ok(answer)
    }

    /// Writes the fields of an object.
    pub(super) fn fields(&mut self, object: &Value) -> Result<(), Error> {
        for (name, value) in object.as_object().into_iter().flatten() {
            self.name(name)?;
            self.value(value)?;
        }
        Ok(())
    }

    /// Writes a field that is an array.
    pub(super) fn rows<T: Serialize>(
        &mut self,
        name: &str,
        rows: impl IntoIterator<Item = T>,
    ) -> Result<(), Error> {
        self.begin_rows(name)?;
        for row in rows {
            self.row(&row)?;
        }
        self.end_rows()
    }

    /// Begins a field that is an array, whose rows follow.
    pub(super) fn begin_rows(&mut self, name: &str) -> Result<(), Error> {
        self.name(name)?;
        self.needs_comma = false;
        self.write(b"[")
    }

    pub(super) fn row(&mut self, row: &impl Serialize) -> Result<(), Error> {
        self.comma()?;
        self.value(row)
    }

    pub(super) fn end_rows(&mut self) -> Result<(), Error> {
        self.needs_comma = true;
        self.write(b"]")
    }

    pub(super) fn finish(mut self) -> Result<Reply, Error> {
        self.write(b"}")?;
        let payload = self.buffer.into_payload();
        Ok(reply::typed(StatusCode::OK, reply::JSON, payload))
    }

    fn name(&mut self, name: &str) -> Result<(), Error> {
        self.comma()?;
        self.value(name)?;
        self.write(b":")
    }

    fn comma(&mut self) -> Result<(), Error> {
        match std::mem::replace(&mut self.needs_comma, true) {
            true => self.write(b","),
            false => Ok(()),
        }
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let written = serde_json::to_writer(&mut self.buffer, value);
        written.map_err(|error| self.buffer.failure(&error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.buffer.append(bytes)
    }
}

/// Bytes whose capacity is taken from a budget before it is allocated.
pub(super) struct MeteredBuffer {
    bytes: Vec<u8>,
    share: MemoryShare,
    budget: MemoryBudget,
    refused: Option<BudgetExhausted>,
}

impl MeteredBuffer {
    pub(super) fn new(budget: &MemoryBudget) -> MeteredBuffer {
        MeteredBuffer {
            bytes: Vec::new(),
            share: MemoryShare::default(),
            budget: budget.clone(),
            refused: None,
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.write_all(bytes);
        written.map_err(|error| self.failure(&error))
    }

    pub(super) fn into_payload(self) -> Payload {
        Payload::whole(self.bytes).holding(self.share)
    }

    fn grow(&mut self, needed: usize) -> Result<(), BudgetExhausted> {
        let held = self.share.bytes();
        let more = (needed - held).max(held / 4).max(STEP_BYTES);
        self.share.add(self.budget.try_take(more)?);
        self.bytes.reserve_exact(held + more - self.bytes.len());
        Ok(())
    }

    fn failure(&self, error: &impl ToString) -> Error {
        match self.refused {
            Some(exhausted) => exhausted.into(),
            None => Error::new(Code::Internal, error.to_string(), ""),
        }
    }
}

impl Write for MeteredBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let needed = self.bytes.len() + bytes.len();
        if needed > self.share.bytes()
            && let Err(exhausted) = self.grow(needed)
        {
            self.refused = Some(exhausted);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_the_json_of_its_fields_and_rows() {
        let budget = MemoryBudget::new(1 << 20);
        let mut answer = JsonAnswer::new(&budget).unwrap();
        answer.fields(&json!({"name": "a\"b", "count": 2})).unwrap();
        answer.rows("rows", [json!({"n": 1}), json!(null)]).unwrap();
        answer.rows("none", [0; 0]).unwrap();
        let read: Value = serde_json::from_slice(&answer.buffer.bytes).unwrap_or_default();
        assert_eq!(read, Value::Null, "the object is open");
        answer.write(b"}").unwrap();
        let read: Value = serde_json::from_slice(&answer.buffer.bytes).unwrap();
        let expected = json!({"name": "a\"b", "count": 2, "rows": [{"n": 1}, null], "none": []});
        assert_eq!(read, expected);
    }

    // proves G2
    #[test]
    fn bytes_are_taken_before_they_are_allocated_and_released_with_the_answer() {
        let budget = MemoryBudget::new(100 << 10);
        let mut answer = JsonAnswer::new(&budget).unwrap();
        let row = "x".repeat(1000);
        let mut made = 0;
        let rows = std::iter::repeat_with(|| {
            made += 1;
            &row
        });
        let refused = answer.rows("rows", rows).unwrap_err();
        assert_eq!(refused.code, Code::Full);
        assert!((60..104).contains(&made), "{made} rows were made");
        assert!(answer.buffer.bytes.capacity() <= budget.taken());
        assert!(budget.taken() <= 100 << 10);
        drop(answer);
        assert_eq!(budget.taken(), 0);
    }
}
