//! Consumer groups: how far they have come, and forgetting them.

use std::sync::Arc;

use highwater_log::{GroupError, GroupInfo, Groups, Place, StoredOffset};
use hyper::StatusCode;
use serde_json::{Value, json};

use super::app::App;
use super::error::Error;
use super::read::ISOLATION;
use super::reply::{self, Reply};

pub async fn list(app: &App) -> Result<Reply, Error> {
    let groups = match &app.backend()?.groups {
        Some(groups) => groups.list().await,
        None => Vec::new(),
    };
    let groups: Vec<Value> = groups.iter().map(facts).collect();
    Ok(reply::json(StatusCode::OK, &json!({"groups": groups})))
}

/// A group with its stored positions and how far they are behind.
pub async fn describe(app: &App, name: &str) -> Result<Reply, Error> {
    let groups = some(app)?;
    let info = groups.describe(name.to_owned()).await;
    let info = info.ok_or(GroupError::NotFound)?;
    let stored = groups.committed(name.to_owned(), None, false).await?;
    let log = app.log()?;
    let position = |(place, stored): (Place, Option<StoredOffset>)| {
        let offset = stored?.offset;
        let end = log
            .partition(place.hub.as_str(), place.partition)
            .map(|partition| partition.bounds().visible(ISOLATION));
        Some(json!({
            "hub": place.hub.as_str(), "partition": place.partition, "offset": offset.0,
            "end": end.map(|end| end.0), "lag": end.map(|end| (end.0 - offset.0).max(0)),
        }))
    };
    let positions: Vec<Value> = stored.into_iter().filter_map(position).collect();
    let mut facts = facts(&info);
    facts["positions"] = positions.into();
    Ok(reply::json(StatusCode::OK, &facts))
}

/// Removes a group that nobody is in, and its positions.
pub async fn delete(app: &App, name: &str) -> Result<Reply, Error> {
    some(app)?.delete(name.to_owned()).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// A log without groups knows none.
fn some(app: &App) -> Result<&Arc<dyn Groups>, GroupError> {
    let backend = app.backend().map_err(|_| GroupError::Loading)?;
    backend.groups.as_ref().ok_or(GroupError::NotFound)
}

fn facts(group: &GroupInfo) -> Value {
    let members: Vec<Value> = group
        .members
        .iter()
        .map(|member| {
            json!({
                "member": member.member, "instance": member.instance,
                "client": member.client_id, "host": member.client_host,
            })
        })
        .collect();
    json!({
        "group": group.group, "state": format!("{:?}", group.state),
        "protocol": group.protocol, "members": members,
    })
}
