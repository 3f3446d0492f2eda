//! The API described: one table of operations, from which the OpenAPI document, the page at `/api/docs` and the list of
//! known paths are made, so that none of the three can lag behind the others.
//!
//! A part of the API adds its operations beside the others in [`AREAS`] and its types to a file of schemas.

mod hubs;
mod jobs;
mod node;
mod page;
mod processing;
mod queues;
mod workflows;

use std::sync::OnceLock;

use hyper::Method;
use serde_json::{Map, Value, json};

pub use page::page;

/// One thing that can be asked for.
pub struct Operation {
    pub method: &'static str,
    /// With its variables in braces.
    pub path: &'static str,
    pub about: &'static str,
    pub needs: Needs,
    pub parameters: &'static [Parameter],
    pub body: Option<Body>,
    /// The answer when all is well; everything else is an error.
    pub answer: Answer,
}

/// Which right a key must have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Send,
    Listen,
    Manage,
}

/// Of the query or the head.
pub struct Parameter {
    pub place: &'static str,
    pub name: &'static str,
    pub about: &'static str,
    /// A JSON schema.
    pub schema: &'static str,
}

pub struct Body {
    /// Whether it may not be left out.
    pub required: bool,
    pub types: &'static [&'static str],
    /// A JSON schema.
    pub schema: &'static str,
}

pub struct Answer {
    pub status: u16,
    pub about: &'static str,
    /// Content type and JSON schema.
    pub content: Option<(&'static str, &'static str)>,
}

/// Operations that belong together, and the types they name.
struct Area {
    name: &'static str,
    operations: &'static [Operation],
    schemas: &'static str,
}

const AREAS: &[Area] = &[
    Area {
        name: "Events",
        operations: hubs::EVENTS,
        schemas: hubs::SCHEMAS,
    },
    Area {
        name: "Hubs",
        operations: hubs::HUBS,
        schemas: "{}",
    },
    Area {
        name: "Groups",
        operations: hubs::GROUPS,
        schemas: "{}",
    },
    Area {
        name: "Jobs",
        operations: jobs::JOBS,
        schemas: jobs::SCHEMAS,
    },
    Area {
        name: "Workflows",
        operations: workflows::WORKFLOWS,
        schemas: workflows::SCHEMAS,
    },
    Area {
        name: "Messages",
        operations: queues::MESSAGES,
        schemas: queues::SCHEMAS,
    },
    Area {
        name: "Queues",
        operations: queues::QUEUES,
        schemas: "{}",
    },
    Area {
        name: "Processors",
        operations: processing::PROCESSING,
        schemas: "{}",
    },
    Area {
        name: "Node",
        operations: node::NODE,
        schemas: node::SCHEMAS,
    },
];

/// Whether a path is one of ours, whatever the method.
pub fn is_known(parts: &[&str]) -> bool {
    operations().any(|(_, operation)| matches(operation.path, parts))
}

/// Whether there is something for this method at a path.
pub fn takes(method: &Method, parts: &[&str]) -> bool {
    let mut all = operations();
    all.any(|(_, operation)| operation.method == method.as_str() && matches(operation.path, parts))
}

fn operations() -> impl Iterator<Item = (&'static Area, &'static Operation)> {
    let each = |area: &'static Area| area.operations.iter().map(move |o| (area, o));
    AREAS.iter().flat_map(each)
}

fn matches(path: &str, parts: &[&str]) -> bool {
    let wanted = path.trim_start_matches('/').split('/');
    let fits = |(wanted, part): (&str, &&str)| wanted.starts_with('{') || wanted == *part;
    wanted.clone().count() == parts.len() && wanted.zip(parts).all(fits)
}

/// The OpenAPI document, as it is served.
pub fn document() -> &'static [u8] {
    static DOCUMENT: OnceLock<Vec<u8>> = OnceLock::new();
    DOCUMENT.get_or_init(|| serde_json::to_vec(&describe()).unwrap_or_default())
}

fn describe() -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for (area, operation) in operations() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.to_lowercase()] = operation.describe(area.name);
    }
    for area in AREAS {
        if let Value::Object(of_area) = schema(area.schemas) {
            schemas.extend(of_area);
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
            "summary": self.about,
            "operationId": self.id(),
            "parameters": self.parameters(),
            "responses": {
                self.answer.status.to_string(): self.answer.describe(),
                "default": {
                    "description": "It was not done; the body says why, and how to mend it.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        });
        if let Some(body) = &self.body {
            described["requestBody"] = body.describe();
        }
        if let Some(right) = self.needs.right() {
            described["description"] = format!("Needs the right to {right}.").into();
            described["security"] = json!([{"basic": []}, {"bearer": []}]);
        }
        described
    }

    /// `get_api_hubs_hub`, which stays the same as long as method and path do.
    fn id(&self) -> String {
        let plain = |c: char| if c.is_alphanumeric() { c } else { '_' };
        let path = self.path.replace(['{', '}'], "");
        let id: String = path.chars().map(plain).collect();
        format!("{}{id}", self.method.to_lowercase())
    }

    fn parameters(&self) -> Vec<Value> {
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
                "name": parameter.name, "in": parameter.place,
                "description": parameter.about, "schema": schema(parameter.schema),
            })
        });
        names.chain(others).collect()
    }
}

impl Needs {
    fn right(self) -> Option<&'static str> {
        match self {
            Needs::Nothing => None,
            Needs::Send => Some("send"),
            Needs::Listen => Some("listen"),
            Needs::Manage => Some("manage"),
        }
    }
}

impl Body {
    fn describe(&self) -> Value {
        let each = |kind: &&str| (kind.to_string(), json!({"schema": schema(self.schema)}));
        let content: Map<String, Value> = self.types.iter().map(each).collect();
        json!({"required": self.required, "content": content})
    }
}

impl Answer {
    fn describe(&self) -> Value {
        let mut described = json!({"description": self.about});
        if let Some((kind, text)) = self.content {
            described["content"] = json!({kind: {"schema": schema(text)}});
        }
        described
    }
}

/// Texts of ours; the tests read every one of them.
fn schema(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_can_be_read_and_every_name_in_it_is_there() {
        let texts = operations().flat_map(|(area, operation)| {
            let parameters = operation.parameters.iter().map(|p| p.schema);
            let body = operation.body.as_ref().map(|body| body.schema);
            let answer = operation.answer.content.map(|(_, schema)| schema);
            parameters.chain(body).chain(answer).chain([area.schemas])
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
        let types = |area: &Area| {
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

    #[test]
    fn variables_of_a_path_fit_anything_else_fits_itself() {
        assert!(is_known(&["api", "hubs"]));
        assert!(is_known(&["hubs", "x", "partitions", "7", "messages"]));
        assert!(!is_known(&["api", "hubs", "x", "y"]));
        assert!(!is_known(&["nothing"]));
    }
}
