//! A whole node over HTTP.

mod amqp;
mod amqp_rights;
mod client_certificates;
mod cluster;
mod cluster_jobs;
mod cluster_settings;
mod event_hubs;
mod formats;
mod http;
mod jobs;
mod kafka_jobs;
mod keys;
mod node;
mod owners;
mod playground;
mod processing;
mod service_bus;
mod service_bus_topics;
mod service_bus_transactions;
mod telemetry;
mod websocket;
mod whole_node;
