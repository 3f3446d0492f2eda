//! Requests of clients: tokens and the properties of hubs.

use bytes::Bytes;
use highwater_amqp::{AmqpError, Outcome, Value, condition};
use highwater_env::MemoryShare;

use super::{Completion, DeliveryRef, Dispatcher, PendingRequest};
use crate::amqp::credentials::{claimed_name, verify_token};
use crate::amqp::error::unauthorized;
use crate::amqp::links::{Link, RequestNode, reply_link};
use crate::amqp::management;
use crate::amqp::request::{Reply, Request};

/// Tokens that are being verified.
const VERIFYING_MAX: usize = 32;

impl Dispatcher {
    pub(super) fn request(&mut self, delivery: DeliveryRef, node: RequestNode, payload: &Bytes) {
        let request = match Request::parse(payload) {
            Ok(request) => request,
            Err(error) => return self.settlements.push(delivery, Outcome::Rejected(error)),
        };
        let pending = PendingRequest {
            delivery,
            node,
            request,
        };
        if let RequestNode::Queue(entity) = &pending.node {
            let entity = entity.clone();
            return self.queue_request(pending, entity, payload.len());
        }
        match self.token_of(&pending) {
            Some((token, audience)) => self.verify(pending, token, audience),
            None => self.answer(pending, None),
        }
    }

    /// The token that must be verified before a request is answered, and the address that it is put for.
    fn token_of(&self, pending: &PendingRequest) -> Option<(String, String)> {
        if self.credentials.is_trusted() {
            return None;
        }
        let request = &pending.request;
        let name = request.text("name").unwrap_or_default();
        match pending.node {
            RequestNode::Cbs if request.text("operation") == Some("put-token") => {
                let token = request.body.as_text().unwrap_or_default();
                Some((token.to_owned(), name.to_owned()))
            }
            RequestNode::Cbs | RequestNode::Queue(_) => None,
            // Java proves itself here, and puts no token before.
            RequestNode::Management => {
                let token = request.text("security_token")?;
                Some((token.to_owned(), format!("{name}/$management")))
            }
        }
    }

    fn verify(&mut self, pending: PendingRequest, token: String, audience: String) {
        if self.verifying >= VERIFYING_MAX {
            let text = "The connection puts too many tokens at once.";
            let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
            return self.machine.close(Some(error));
        }
        self.verifying += 1;
        let (broker, from) = (self.broker.clone(), self.from);
        self.push(async move {
            let (keys, tokens) = (broker.keys.clone(), broker.tokens.clone());
            let now_ms = broker.clock.unix_millis();
            let who = claimed_name(&token);
            let result = verify_token(keys, tokens, token, audience, now_ms).await;
            if result.is_err() {
                tokio::time::sleep(broker.refuse_login(&who, from)).await;
            }
            Completion::Token {
                pending: Box::new(pending),
                result,
            }
        });
    }

    /// Answers a request. `refused` is the reason why its token is not valid.
    pub(super) fn answer(&mut self, pending: PendingRequest, refused: Option<String>) {
        let request = &pending.request;
        let operation = request.text("operation").unwrap_or_default();
        let reply = match (&pending.node, refused) {
            (RequestNode::Cbs, Some(reason)) => Reply::error(unauthorized(reason)),
            (RequestNode::Cbs, None) if operation == "put-token" => Reply::ok(202, Value::Null),
            (RequestNode::Cbs, None) => {
                let text = format!("The operation '{operation}' is not supported.");
                Reply::error(AmqpError::new(condition::NOT_IMPLEMENTED, text))
            }
            (RequestNode::Management | RequestNode::Queue(_), _) => {
                management::reply(&self.broker, &self.credentials, request)
            }
        };
        self.reply(pending, reply, MemoryShare::default());
    }

    /// Sends a reply, whose memory is `share`.
    pub(super) fn reply(&mut self, pending: PendingRequest, reply: Reply, share: MemoryShare) {
        let request = &pending.request;
        let message = request.reply(&reply);
        let link = reply_link(&self.links, &pending.node, request.reply_to.as_deref());
        self.settlements.push(pending.delivery, Outcome::Accepted);
        let Some(link) = link else {
            return;
        };
        if let Some(Link::Replies(replies)) = self.links.get_mut(&link) {
            replies.ready.push_back((message, share));
            if replies.is_overrun() {
                let text = "The client does not take its replies.";
                let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
                return self.machine.close(Some(error));
            }
        }
        self.feed(link);
    }
}
