//! Starts whole nodes on a disk.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use highwater_env::{Clock, disk};
use highwater_server::config::Sources;
use highwater_server::node::Node;

/// A node with its data in `folder/data`, HTTP on any port, and no Kafka listener.
pub(crate) async fn start(folder: &Path, settings: &str, clock: Arc<dyn Clock>) -> Node {
    let file = folder.join("highwater.toml");
    write(&file, settings);
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sources = Sources {
        file: Some(file),
        flags: vec![
            flag("data", &folder.join("data").display().to_string()),
            flag("http.listen", "127.0.0.1:0"),
            flag("kafka.listen", "off"),
            flag("amqp.listen", "off"),
        ],
        ..Sources::default()
    };
    let loaded = sources.load().unwrap_or_else(|error| panic!("{error}"));
    Node::start(loaded.config, clock).await.unwrap()
}

pub(crate) fn write(path: &Path, text: &str) {
    let mut file = disk::create_atomic(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.commit().unwrap();
}
