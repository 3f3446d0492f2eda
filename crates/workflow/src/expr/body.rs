//! Request bodies: a text template, or a JSON document whose strings are templates.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ExprError, MissingValue, Path, Scope, Template};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    Text(Template),
    Json(Shape),
}

/// A JSON document with templates in place of strings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    Plain(Value),
    Hole(Template),
    List(Vec<Shape>),
    Object(Vec<(String, Shape)>),
}

impl Body {
    pub fn render(&self, scope: &Scope<'_>) -> Result<Vec<u8>, MissingValue> {
        match self {
            Body::Text(template) => template.text(scope).map(String::into_bytes),
            Body::Json(shape) => Ok(shape.render(scope)?.to_string().into_bytes()),
        }
    }

    /// A document whose strings are templates.
    pub(crate) fn from_json(value: &Value) -> Result<Body, ExprError> {
        Shape::of(value).map(Body::Json)
    }

    pub fn content_type(&self) -> &'static str {
        match self {
            Body::Text(_) => "text/plain; charset=utf-8",
            Body::Json(_) => "application/json",
        }
    }

    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        match self {
            Body::Text(template) => paths.extend(template.paths()),
            Body::Json(shape) => shape.gather(&mut paths),
        }
        paths
    }
}

impl Shape {
    fn of(value: &Value) -> Result<Shape, ExprError> {
        Ok(match value {
            Value::String(text) if text.contains("{{") => Shape::Hole(Template::parse(text)?),
            Value::Array(items) => {
                Shape::List(items.iter().map(Shape::of).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), Shape::of(value)?)));
                Shape::Object(fields.collect::<Result<_, ExprError>>()?)
            }
            plain => Shape::Plain(plain.clone()),
        })
    }

    fn render(&self, scope: &Scope<'_>) -> Result<Value, MissingValue> {
        match self {
            Shape::Plain(value) => Ok(value.clone()),
            Shape::Hole(template) => template.value(scope),
            Shape::List(items) => items.iter().map(|item| item.render(scope)).collect(),
            Shape::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, shape)| Ok((name.clone(), shape.render(scope)?)));
                fields.collect::<Result<Map<_, _>, _>>().map(Value::Object)
            }
        }
    }

    fn gather<'s>(&'s self, paths: &mut Vec<&'s Path>) {
        match self {
            Shape::Plain(_) => {}
            Shape::Hole(template) => paths.extend(template.paths()),
            Shape::List(items) => items.iter().for_each(|item| item.gather(paths)),
            Shape::Object(fields) => fields.iter().for_each(|(_, shape)| shape.gather(paths)),
        }
    }
}
