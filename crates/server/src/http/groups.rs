//! Consumer groups: listed, described with their lag, deleted.

use std::sync::Arc;

use highwater_access::{Resource, Right};
use highwater_log::{GroupCoordinator, GroupError, GroupInfo, OffsetAndMetadata, TopicPartition};
use hyper::StatusCode;
use serde_json::{Value, json};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::Error;
use super::read::ISOLATION;
use super::reply::{self, Reply};
use crate::text::percent_decode;

pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let groups = match &request.app.backend()?.groups {
        Some(groups) => groups.list().await,
        None => Vec::new(),
    };
    let visible = |group: &&GroupInfo| {
        let resource = Resource::Group(&group.group);
        request.caller.may(Right::Listen, resource)
    };
    let groups: Vec<Value> = groups.iter().filter(visible).map(facts).collect();
    Ok(reply::json(StatusCode::OK, &json!({"groups": groups})))
}

/// A group with its stored positions and their lag.
pub(super) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let app = request.app;
    let [name] = request.variables();
    let name = percent_decode(name);
    let groups = groups(app)?;
    let info = groups.describe(name.to_string()).await;
    let info = info.ok_or(GroupError::NotFound)?;
    let stored = groups.fetch_offsets(name.into_owned(), None, false).await?;
    let log = app.log()?;
    let position = |(of, stored): (TopicPartition, Option<OffsetAndMetadata>)| {
        let offset = stored?.offset;
        let hub = Resource::Hub(of.hub.as_str());
        if !request.caller.may(Right::Listen, hub) {
            return None;
        }
        let end = log
            .partition(of.hub.as_str(), of.partition)
            .map(|partition| partition.bounds().visible(ISOLATION));
        Some(json!({
            "hub": of.hub.as_str(), "partition": of.partition, "offset": offset.0,
            "end": end.map(|end| end.0), "lag": end.map(|end| (end.0 - offset.0).max(0)),
        }))
    };
    let positions: Vec<Value> = stored.into_iter().filter_map(position).collect();
    let mut facts = facts(&info);
    facts["positions"] = positions.into();
    Ok(reply::json(StatusCode::OK, &facts))
}

/// Deletes a group without members, and its positions.
pub(super) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let name = percent_decode(name).into_owned();
    groups(request.app)?.delete(name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// The groups of the log; a log without groups has none.
fn groups(app: &App) -> Result<&Arc<dyn GroupCoordinator>, GroupError> {
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
