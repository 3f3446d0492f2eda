//! Keys.

use super::{
    Access, Area, Operation, Scope, answer, delete, empty, get, handler, json, object, post,
};
use crate::http::keys;
use highwater_access::Right;

pub(super) const AREA: Area = Area {
    name: "Keys",
    operations: OPERATIONS,
    schemas: "{}",
};

const MANAGE: Access = Access::Key(Right::Manage, Scope::Node);

const SECRET: &str = r#"{"type":"object","required":["name","secret"],"properties":{
    "name":{"type":"string"},"secret":{"type":"string","description":"shown once"}}}"#;

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    get("/api/keys", "List the keys", MANAGE, handler!(keys::list))
        .answers(object("Each key with its rights, without secrets.")),
    post("/api/keys", "Add a key", MANAGE, handler!(keys::add))
        .takes(json(r#"{"type":"object","required":["name","rights"],"additionalProperties":false,"properties":{
            "name":{"type":"string"},
            "rights":{"type":"array","items":{"enum":["send","listen","manage","deploy"]}},
            "hubs":{"type":"array","items":{"type":"string"},"description":"names and prefixes (app-*); unset: no limit"},
            "groups":{"type":"array","items":{"type":"string"}},
            "transactional_ids":{"type":"array","items":{"type":"string"}},
            "deployments":{"type":"array","items":{"type":"string"}},
            "certificates":{"type":"array","items":{"type":"string"}},
            "sas":{"type":"boolean","description":"the node stores the secret itself, which signatures need"},
            "expires_in":{"type":"string","examples":["90d"]},
            "quota":{"type":"object"}}}"#))
        .answers(answer(201, "The key is durable.", SECRET)),
    post("/api/keys/{key}/rotate",
        "Give a key a new secret; the previous one stays valid unless the body says otherwise", MANAGE,
        handler!(keys::rotate))
        .takes(json(r#"{"type":"object","additionalProperties":false,"properties":{"keep_previous":{"type":"boolean"}}}"#))
        .answers(answer(200, "The new secret.", SECRET)),
    delete("/api/keys/{key}", "Revoke a key; it is refused from the next request on", MANAGE, handler!(keys::revoke))
        .answers(empty(204, "The key is revoked.")),
];
