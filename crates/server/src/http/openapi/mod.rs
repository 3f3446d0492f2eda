//! The OpenAPI document and its page, made of the table of operations.

mod page;

use std::sync::OnceLock;

use hyper::Method;
use serde_json::{Map, Value, json};

use super::operations::{AREAS, Access, Operation, RequestBody, Response, operations};

pub(super) use page::page;

/// The OpenAPI document, as it is served.
pub(super) fn document() -> &'static [u8] {
    static DOCUMENT: OnceLock<Vec<u8>> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::to_vec(&describe()).unwrap_or_default())
}

fn describe() -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for (area, operation) in operations() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = operation.describe(area.name);
    }
    for area in AREAS {
        if let Value::Object(types) = schema(area.schemas) {
            schemas.extend(types);
        }
    }
    let tags: Vec<Value> = AREAS.iter().map(|a| json!({"name": a.name})).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Highwater",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Events in and out, hubs, queues, and the node itself.",
        },
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer", "description": "name:secret"},
            },
        },
    })
}

impl Operation {
    fn describe(&self, area: &str) -> Value {
        let mut described = json!({
            "tags": [area],
            "summary": self.summary,
            "operationId": self.id(),
            "parameters": self.all_parameters(),
            "responses": {
                self.response.status.to_string(): self.response.describe(),
                "default": {
                    "description": "An error; the body has the reason and a hint.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        });
        if let Some(body) = &self.body {
            described["requestBody"] = body.describe();
        }
        if self.is_atom {
            self.describe_atom(&mut described["responses"]);
        }
        if let Access::Key(right, scope) = self.access {
            let (right, over) = (right.name(), scope.describe());
            described["description"] = format!("Needs the right to {right} {over}.").into();
            described["security"] = json!([{"basic": []}, {"bearer": []}]);
            described["x-right"] = right.into();
            described["x-scope"] = scope.name().into();
        }
        described
    }

    /// Errors are in XML for clients that name an `api-version`, and what is put may be new.
    fn describe_atom(&self, responses: &mut Value) {
        let text = json!({"schema": {"type": "string"}});
        responses["default"]["content"]["application/xml"] = text;
        if self.method == Method::PUT {
            responses["201"] = self.response.describe();
        }
    }

    /// `get_api_hubs_hub`, which stays the same as long as method and path do.
    fn id(&self) -> String {
        let plain = |c: char| if c.is_alphanumeric() { c } else { '_' };
        let path = self.path.replace(['{', '}'], "");
        let id: String = path.chars().map(plain).collect();
        format!("{}{id}", self.method.as_str().to_lowercase())
    }

    fn all_parameters(&self) -> Vec<Value> {
        let names = self.path.split('/').filter_map(|part| {
            let name = part.strip_prefix('{')?.strip_suffix('}')?;
            let schema = match name {
                "partition" => json!({"type": "integer", "minimum": 0}),
                "hub" => json!({"type": "string", "minLength": 1, "examples": ["h"]}),
                _ => json!({"type": "string", "minLength": 1}),
            };
            Some(json!({"name": name, "in": "path", "required": true, "schema": schema}))
        });
        let others = self.parameters.iter().map(|parameter| {
            json!({
                "name": parameter.name, "in": parameter.location,
                "description": parameter.description, "schema": schema(parameter.schema),
            })
        });
        names.chain(others).collect()
    }
}

impl RequestBody {
    fn describe(&self) -> Value {
        let each = |kind: &&str| (kind.to_string(), json!({"schema": schema(self.schema)}));
        let content: Map<String, Value> = self.content_types.iter().map(each).collect();
        json!({"required": self.required, "content": content})
    }
}

impl Response {
    fn describe(&self) -> Value {
        let mut described = json!({"description": self.description});
        if let Some(content) = self.content {
            let described_schema = json!({"schema": schema(content.schema)});
            described["content"] = json!({content.content_type: described_schema});
        }
        described
    }
}

/// A schema of the table. The tests parse every one of them.
fn schema(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_parses_and_its_references_resolve() {
        let texts = operations().flat_map(|(area, operation)| {
            let parameters = operation.parameters.iter().map(|p| p.schema);
            let body = operation.body.as_ref().map(|body| body.schema);
            let response = operation.response.content.map(|content| content.schema);
            parameters.chain(body).chain(response).chain([area.schemas])
        });
        for text in texts {
            serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        }
        let document = describe();
        let text = document.to_string();
        for name in text.split("#/components/schemas/").skip(1) {
            let name = name.split('"').next().unwrap();
            assert!(
                document["components"]["schemas"][name].is_object(),
                "{name}"
            );
        }
    }

    #[test]
    fn no_two_areas_use_one_name_for_their_types() {
        let types = |area: &super::super::operations::Area| {
            schema(area.schemas)
                .as_object()
                .map_or(0, |types| types.len())
        };
        let all: usize = AREAS.iter().map(types).sum();
        let together = describe();
        assert_eq!(
            together["components"]["schemas"].as_object().unwrap().len(),
            all
        );
    }

    #[test]
    fn no_operation_is_described_twice() {
        let mut ids: Vec<String> = operations().map(|(_, o)| o.id()).collect();
        ids.sort();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }
}
