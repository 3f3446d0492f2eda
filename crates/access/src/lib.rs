//! Keys, rights and the one rule that decides whether a client may do something.
//!
//! Every listener (HTTP, Kafka) authenticates its clients in its own protocol and gets a [`Principal`]. What the
//! principal may do is decided here, by [`Key::may`], so that a right means the same on every listener. Rules that
//! deny, and rules for everybody, are part of that decision.

mod access_rule;
mod audit;
mod certificate;
mod grant;
mod key;
mod login_delays;
mod names;
mod percent;
mod principal;
mod quota;
mod resource;
mod right;
pub mod sas;
mod scram;
mod scram_client;
mod secret;
mod token;

pub use access_rule::{AccessEffect, AccessKind, AccessRule, EVERYBODY, EverybodyRules};
pub use audit::{AuditEvent, AuditLog, NoAudit, RefusalLog};
pub use certificate::ClientCertificate;
pub use grant::{Grant, GrantKind};
pub use key::{Key, KeyScope, Keys, NameLists};
pub use login_delays::client_network;
pub use names::NamePatterns;
pub use percent::{percent_decode, percent_encode};
pub use principal::Principal;
pub use quota::{ConnectionPermit, Limiter, Quota, Usage};
pub use resource::Resource;
pub use right::{Right, Rights};
pub use scram::{ScramHash, ScramVerifier};
pub use scram_client::{ScramClient, ScramProof};
pub use secret::{KeySecret, SECRET_LEN_MIN};
pub use token::{SigningKeys, TokenError, TokenPolicy, VerifiedToken};
