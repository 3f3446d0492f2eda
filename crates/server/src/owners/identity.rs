//! The identity of a node in a cluster.

use std::io;
use std::path::Path;

use highwater_env::disk;
use highwater_flow::NodeInfo;

use super::PeerSettings;
use crate::tls::random_bytes;

/// In the data folder.
const FILE: &str = "node-id";

/// The id of the node in the group, which a restart keeps: drawn once for a data folder.
pub(crate) fn instance_id(data: &Path) -> io::Result<String> {
    let path = data.join(FILE);
    match disk::read_to_string(&path) {
        Ok(text) if is_id(text.trim()) => Ok(text.trim().to_owned()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{} does not have the id of a node: remove it",
                path.display()
            ),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id: [u8; 16] = random_bytes()?;
            let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            disk::write_private(&path, id.as_bytes())?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The node as it tells the others; `listener` is the address of its HTTP listener.
pub(crate) fn node_info(
    settings: &PeerSettings,
    listener: Option<&str>,
    instance: &str,
) -> NodeInfo {
    let reachable = |url: &&str| !url.contains("//0.0.0.0:") && !url.contains("//[::]:");
    let listener = listener.filter(reachable);
    let url = settings
        .advertise
        .as_deref()
        .or(listener)
        .unwrap_or_default();
    let host = url.split_once("://").map(|(_, host)| host);
    let name = settings.name.as_deref().or(host);
    NodeInfo {
        name: name.unwrap_or(instance).to_owned(),
        url: url.trim_end_matches('/').to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(advertise: Option<&str>) -> PeerSettings {
        PeerSettings {
            name: None,
            advertise: advertise.map(str::to_owned),
            ca: None,
            session: std::time::Duration::from_secs(10),
            insecure: false,
        }
    }

    // proves X1
    #[test]
    fn an_id_is_drawn_once_for_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = instance_id(folder.path()).unwrap();
        assert_eq!(instance_id(folder.path()).unwrap(), first);
        disk::write_private(folder.path().join(FILE), b"node 1").unwrap();
        assert!(instance_id(folder.path()).is_err());
    }

    #[test]
    fn an_address_of_all_interfaces_is_not_told_to_others() {
        let info = |advertise, listener| node_info(&settings(advertise), Some(listener), "id");
        assert_eq!(info(None, "http://0.0.0.0:8080").url, "");
        assert_eq!(info(None, "http://0.0.0.0:8080").name, "id");
        let told = info(None, "http://10.0.0.1:8080");
        assert_eq!(
            (told.url.as_str(), told.name.as_str()),
            ("http://10.0.0.1:8080", "10.0.0.1:8080")
        );
        assert_eq!(
            info(Some("https://a/"), "http://0.0.0.0:1").url,
            "https://a"
        );
    }
}
