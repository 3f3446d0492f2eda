//! A small HTTP server for services: complete bodies in, complete responses out, with fault injection between.
//!
//! The public API handles tens of thousands of small requests a second, so the path from socket to service is as short
//! as HTTP/1.1 allows: a request is parsed in place in the connection's buffer (`parse`), and a response is one write
//! (`connection`). [`ServiceServer`] listens.

mod answer;
mod connection;
mod parse;
mod server;

pub use self::answer::Answer;
pub use self::parse::Request;
pub use self::server::ServiceServer;

/// Answers requests.
pub trait Service: Send + Sync + 'static {
    fn answer(&self, request: Request<'_>) -> impl Future<Output = Answer> + Send;
}
