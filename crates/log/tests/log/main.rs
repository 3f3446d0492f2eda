//! Record batches against an oracle, and batches that other clients wrote.

mod oracle;
mod other_clients;
