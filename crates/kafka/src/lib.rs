//! The Kafka wire protocol in front of any log.
