//! Queues and topics, which share their names, and the namespace that they are in.

use std::sync::Arc;

use highwater_access::{Resource, Right};
use highwater_queue::{Queue, Settings, Topic};
use hyper::StatusCode;

use super::answer::{Entry, Feed, Page};
use super::description::{self, Described};
use super::xml::{Element, push_element};
use super::{PAGE, find_named, is_update, read_description, time};
use crate::http::app::App;
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::queues::admin::check_forwarding;
use crate::http::queues::queues;
use crate::http::reply::{self, Reply};
use crate::http::topics::topics;
use crate::text::percent_decode;

/// A queue or a topic: they share one space of names.
enum Entity {
    Queue(Queue),
    Topic(Arc<Topic>),
}

impl Entity {
    fn find(app: &App, name: &str) -> Result<Option<Entity>, Error> {
        let queues = queues(app)?.list().into_iter().map(Entity::Queue);
        let topics = topics(app)?.list().into_iter().map(Entity::Topic);
        Ok(find_named(
            queues.chain(topics).collect(),
            name,
            Entity::name,
        ))
    }

    fn name(&self) -> &str {
        match self {
            Entity::Queue(queue) => queue.name(),
            Entity::Topic(topic) => topic.name(),
        }
    }

    fn kind(&self) -> Described {
        match self {
            Entity::Queue(_) => Described::Queue,
            Entity::Topic(_) => Described::Topic,
        }
    }
}

/// The queue or topic in the path, over which the caller has the right of the operation.
fn entity(request: &ApiRequest<'_>) -> Result<Entity, Error> {
    let [name] = request.variables();
    let name = percent_decode(name);
    let found = Entity::find(request.app, &name)?;
    let found = found.ok_or_else(|| unknown(&name))?;
    request.authorise(Resource::Queue(found.name()))?;
    Ok(found)
}

fn unknown(name: &str) -> Error {
    let name: String = name.chars().take(200).collect();
    let message = format!("there is no queue or topic `{name}`");
    Error::not_found(message, "docs/http.md lists the paths of the API")
}

pub(in crate::http) async fn describe(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let entity = entity(&request)?;
    reply(&request, StatusCode::OK, &entity).await
}

/// Creates a queue or topic, or changes it.
pub(in crate::http) async fn put(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let names = [Described::Queue.element(), Described::Topic.element()];
    let described = read_description(&mut request, &names).await?;
    match is_update(&request) {
        true => change(&request, &described).await,
        false => create(&request, &described).await,
    }
}

async fn create(request: &ApiRequest<'_>, described: &Element) -> Result<Reply, Error> {
    let [name] = request.variables();
    let name = percent_decode(name);
    request.authorise(Resource::Queue(&name))?;
    let app = request.app;
    app.check_entity_name(&name)?;
    let settings = description::settings(described, Settings::default())?;
    check_forwarding(request, &Settings::default(), &settings)?;
    request.charge_partitions(1)?;
    let _naming = app.entity_names.lock().await;
    app.check_entity_is_new(&name)?;
    match described.name == Described::Topic.element() {
        true => topics(app)?.create_topic(&name, settings).await?,
        false => drop(queues(app)?.create(&name, settings).await?),
    }
    let created = Entity::find(app, &name)?.ok_or_else(|| unknown(&name))?;
    reply(request, StatusCode::CREATED, &created).await
}

async fn change(request: &ApiRequest<'_>, described: &Element) -> Result<Reply, Error> {
    let entity = entity(request)?;
    if described.name != entity.kind().element() {
        let message = format!("`{}` has a {}", entity.name(), entity.kind().element());
        return Err(Error::bad(message, PAGE));
    }
    match &entity {
        Entity::Queue(queue) => {
            let now = queue.stats().await?.settings;
            let settings = description::settings(described, now.clone())?;
            check_forwarding(request, &now, &settings)?;
            queues(request.app)?.change(queue.name(), settings).await?;
        }
        Entity::Topic(topic) => {
            let now = topic.queue().stats().await?.settings;
            let settings = description::settings(described, now)?;
            let topics = topics(request.app)?;
            topics.change_topic(topic.name(), settings).await?;
        }
    }
    reply(request, StatusCode::OK, &entity).await
}

pub(in crate::http) async fn delete(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let entity = entity(&request)?;
    match &entity {
        Entity::Queue(queue) => queues(request.app)?.delete(queue.name()).await?,
        Entity::Topic(topic) => topics(request.app)?.delete_topic(topic.name()).await?,
    }
    Ok(reply::empty(StatusCode::OK))
}

/// The queues, or the topics, that the caller may manage.
pub(in crate::http) async fn list(request: ApiRequest<'_>, of: Described) -> Result<Reply, Error> {
    let app = request.app;
    let entities: Vec<Entity> = match of {
        Described::Topic => topics(app)?.list().into_iter().map(Entity::Topic).collect(),
        _ => queues(app)?.list().into_iter().map(Entity::Queue).collect(),
    };
    let may = |entity: &Entity| {
        request
            .caller
            .may(Right::Manage, Resource::Queue(entity.name()))
    };
    let entities: Vec<Entity> = entities.into_iter().filter(may).collect();
    let path = match of {
        Described::Topic => "$Resources/Topics",
        _ => "$Resources/Queues",
    };
    let page = Page::of(request.query())?;
    let mut feed = Feed::begin(&request, path, page, entities.len())?;
    for entity in page.of_items(&entities) {
        feed.push(&entry(app, entity).await?)?;
    }
    feed.finish()
}

async fn reply(
    request: &ApiRequest<'_>,
    status: StatusCode,
    entity: &Entity,
) -> Result<Reply, Error> {
    Ok(entry(request.app, entity).await?.reply(request, status))
}

async fn entry(app: &App, entity: &Entity) -> Result<Entry, Error> {
    let (queue, created_ms, subscriptions) = match entity {
        Entity::Queue(queue) => (queue, queues(app)?.created_ms(queue.name()), 0),
        Entity::Topic(topic) => {
            let created_ms = topics(app)?.topic_created_ms(topic.name());
            (topic.queue(), created_ms, topic.subscriptions().len())
        }
    };
    let created = time(created_ms);
    Ok(Entry {
        path: entity.name().to_owned(),
        title: entity.name().to_owned(),
        content: description::write(entity.kind(), queue, &created, subscriptions).await?,
        created,
    })
}

/// The properties of the node as a namespace.
pub(in crate::http) async fn namespace(request: ApiRequest<'_>) -> Result<Reply, Error> {
    // The oldest hub is as old as the node.
    let hubs = request.app.log()?.hubs();
    let created = time(hubs.iter().map(|hub| hub.created_ms).min());
    let mut content = String::from(
        "<NamespaceInfo xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
         xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">",
    );
    push_element(&mut content, "CreatedTime", &created);
    push_element(&mut content, "MessagingSKU", "Standard");
    push_element(&mut content, "ModifiedTime", &created);
    push_element(&mut content, "Name", "highwater");
    push_element(&mut content, "NamespaceType", "Messaging");
    content.push_str("</NamespaceInfo>");
    let entry = Entry {
        path: "$namespaceinfo".to_owned(),
        title: "highwater".to_owned(),
        created,
        content,
    };
    Ok(entry.reply(&request, StatusCode::OK))
}
