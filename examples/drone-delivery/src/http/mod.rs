//! A small HTTP server for services: whole bodies in, whole answers out, and the chaos switch between.
//!
//! The public API takes one small request after the other, tens of thousands a second, so what stands between socket and
//! service is as little as HTTP/1.1 allows: a request is looked at where it lies in its connection's buffer (`parse`),
//! and an answer is one write (`connection`). [`Door`] is what listens.

mod answer;
mod connection;
mod door;
mod parse;

pub use self::answer::Answer;
pub use self::door::Door;
pub use self::parse::Request;

/// What answers requests.
pub trait Service: Send + Sync + 'static {
    fn answer(&self, request: Request<'_>) -> impl Future<Output = Answer> + Send;
}
