//! The schema in an Avro file, as far as events can be built from it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

/// Schemas may refer to each other by name, so records are in a list and referenced by index.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    pub records: Vec<Vec<(Arc<str>, Schema)>>,
    named: HashMap<String, Schema>,
}

#[derive(Clone, Debug)]
pub(crate) enum Schema {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum(Arc<[Arc<str>]>),
    Array(Arc<Schema>),
    Union(Arc<[Schema]>),
    /// An index into [`Schemas::records`].
    Record(usize),
    /// Days since 1970.
    Date,
    /// Since 1970, in units of this many nanoseconds.
    Timestamp(i128),
    /// The number of digits after the decimal point; stored as bytes or fixed.
    Decimal(u32, Option<usize>),
}

impl Schemas {
    /// Parses the schema of a file, which must be a record. The error names the unsupported part.
    pub(super) fn parse(text: &[u8]) -> Result<(Schemas, usize), String> {
        let json: Json = serde_json::from_slice(text)
            .map_err(|error| format!("its schema is not valid JSON: {error}"))?;
        let mut schemas = Schemas::default();
        match schemas.schema(&json, "", "the event")? {
            Schema::Record(root) => Ok((schemas, root)),
            _ => Err("its schema is not a record, so its values are not events".into()),
        }
    }

    fn schema(&mut self, json: &Json, namespace: &str, place: &str) -> Result<Schema, String> {
        match json {
            Json::String(name) => self.by_name(name, namespace),
            Json::Array(branches) => {
                let branches = branches.iter().map(|b| self.schema(b, namespace, place));
                Ok(Schema::Union(branches.collect::<Result<_, _>>()?))
            }
            Json::Object(object) => self.object(object, namespace, place),
            _ => Err(format!(
                "the schema of {place} is neither a name nor an object"
            )),
        }
    }

    fn by_name(&self, name: &str, namespace: &str) -> Result<Schema, String> {
        Ok(match name {
            "null" => Schema::Null,
            "boolean" => Schema::Boolean,
            "int" => Schema::Int,
            "long" => Schema::Long,
            "float" => Schema::Float,
            "double" => Schema::Double,
            "bytes" => Schema::Bytes,
            "string" => Schema::String,
            _ => {
                let full = full_name(name, namespace);
                let found = self.named.get(&full).or_else(|| self.named.get(name));
                let found = found.ok_or_else(|| format!("its schema lacks the type {full:?}"))?;
                found.clone()
            }
        })
    }

    fn object(
        &mut self,
        object: &Map<String, Json>,
        namespace: &str,
        place: &str,
    ) -> Result<Schema, String> {
        let kind = match object.get("type") {
            Some(Json::String(kind)) => &kind[..],
            Some(nested) => return self.schema(nested, namespace, place),
            None => return Err(format!("the schema of {place} has no type")),
        };
        let logical = object.get("logicalType").and_then(Json::as_str);
        match kind {
            "record" | "error" => self.record(object, namespace, place),
            "array" => {
                let items = object.get("items").unwrap_or(&Json::Null);
                let items = self.schema(items, namespace, place)?;
                Ok(Schema::Array(items.into()))
            }
            "map" => Err(format!(
                "{place} is an Avro map, and events cannot hold maps; write it as a record, or as an \
                 array of records with a key and a value"
            )),
            "enum" => {
                let symbols = object.get("symbols").and_then(Json::as_array);
                let symbols = symbols.into_iter().flatten().filter_map(Json::as_str);
                let schema = Schema::Enum(symbols.map(Arc::from).collect());
                self.define(object, namespace, schema)
            }
            "fixed" => {
                let size = object.get("size").and_then(Json::as_u64);
                let size = size.ok_or_else(|| format!("the schema of {place} has no size"))?;
                let size = usize::try_from(size).map_err(|_| format!("{place} is too large"))?;
                let schema = match logical {
                    Some("decimal") => Schema::Decimal(scale(object), Some(size)),
                    _ => Schema::Fixed(size),
                };
                self.define(object, namespace, schema)
            }
            plain => {
                let plain = self.by_name(plain, namespace)?;
                Ok(with_logical_type(plain, logical, object))
            }
        }
    }

    fn record(
        &mut self,
        object: &Map<String, Json>,
        namespace: &str,
        place: &str,
    ) -> Result<Schema, String> {
        let number = self.records.len();
        self.records.push(Vec::new());
        let schema = self.define(object, namespace, Schema::Record(number))?;
        let own = match object.get("namespace").and_then(Json::as_str) {
            Some(own) => own.to_owned(),
            None => {
                let name = object
                    .get("name")
                    .and_then(Json::as_str)
                    .unwrap_or_default();
                match name.rsplit_once('.') {
                    Some((space, _)) => space.to_owned(),
                    None => namespace.to_owned(),
                }
            }
        };
        let fields = object.get("fields").and_then(Json::as_array);
        let fields = fields.ok_or_else(|| format!("the schema of {place} has no fields"))?;
        for field in fields {
            let name = field.get("name").and_then(Json::as_str);
            let name = name.ok_or_else(|| format!("a field of {place} has no name"))?;
            let kind = field.get("type").unwrap_or(&Json::Null);
            let kind = self.schema(kind, &own, name)?;
            self.records[number].push((name.into(), kind));
        }
        Ok(schema)
    }

    /// Registers a schema under its name.
    fn define(
        &mut self,
        object: &Map<String, Json>,
        namespace: &str,
        schema: Schema,
    ) -> Result<Schema, String> {
        let name = object
            .get("name")
            .and_then(Json::as_str)
            .unwrap_or_default();
        let space = object.get("namespace").and_then(Json::as_str);
        let full = full_name(name, space.unwrap_or(namespace));
        self.named.entry(full).or_insert_with(|| schema.clone());
        Ok(schema)
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}.{name}")
    }
}

fn scale(object: &Map<String, Json>) -> u32 {
    let scale = object.get("scale").and_then(Json::as_u64);
    scale.and_then(|s| u32::try_from(s).ok()).unwrap_or(0)
}

fn with_logical_type(plain: Schema, logical: Option<&str>, object: &Map<String, Json>) -> Schema {
    match (plain, logical.unwrap_or_default()) {
        (Schema::Int, "date") => Schema::Date,
        (Schema::Long, "timestamp-millis" | "local-timestamp-millis") => {
            Schema::Timestamp(1_000_000)
        }
        (Schema::Long, "timestamp-micros" | "local-timestamp-micros") => Schema::Timestamp(1_000),
        (Schema::Long, "timestamp-nanos" | "local-timestamp-nanos") => Schema::Timestamp(1),
        (Schema::Bytes, "decimal") => Schema::Decimal(scale(object), None),
        (plain, _) => plain,
    }
}
