//! The member metadata and the assignment of the group.
//!
//! An assignment has the slots of all nodes, so every node knows every owner without asking.

use bytes::Bytes;
use highwater_codec::{DecodeError, Reader, Writer};

use super::slots::SlotSet;
use super::{Directory, NodeInfo, NodeSlots};

const VERSION: u8 = 1;

/// Longer names and addresses are refused, because any client that may join the group can send them.
const TEXT_LEN_MAX: usize = 1024;

/// A member's request: itself, and the slots that it has now.
pub(super) fn metadata(node: &NodeInfo, owned: &SlotSet) -> Bytes {
    let mut out = Vec::new();
    out.u8(VERSION);
    write_node(&mut out, node, owned);
    out.into()
}

pub(super) fn read_metadata(bytes: &[u8]) -> Result<NodeSlots, DecodeError> {
    let mut from = Reader::new(bytes);
    from.version(VERSION)?;
    // A newer node may add fields.
    read_node(&mut from)
}

/// The slots of all nodes; `at` is the receiver of this message.
pub(super) fn assignment(nodes: &[NodeSlots], at: usize) -> Bytes {
    let mut out = Vec::new();
    out.u8(VERSION);
    out.varint(at as u64);
    out.varint(nodes.len() as u64);
    for entry in nodes {
        write_node(&mut out, &entry.node, &entry.slots);
    }
    out.into()
}

pub(super) fn read_assignment(bytes: &[u8]) -> Result<Directory, DecodeError> {
    let mut from = Reader::new(bytes);
    from.version(VERSION)?;
    let own = from.varint_as()?;
    let count = from.count_var()?;
    let nodes = (0..count).map(|_| read_node(&mut from));
    let nodes = nodes.collect::<Result<Vec<NodeSlots>, DecodeError>>()?;
    match own < nodes.len() {
        true => Ok(Directory { nodes, own }),
        false => Err(DecodeError::Invalid(
            "the assignment does not contain this node",
        )),
    }
}

fn write_node(out: &mut Vec<u8>, node: &NodeInfo, slots: &SlotSet) {
    for text in [&node.name, &node.url, &node.version] {
        out.blob_var(text.as_bytes());
    }
    out.raw(&slots.to_bytes());
}

fn read_node(from: &mut Reader<'_>) -> Result<NodeSlots, DecodeError> {
    let mut text = || match from.text_var()? {
        text if text.len() <= TEXT_LEN_MAX => Ok(text.to_owned()),
        _ => Err(DecodeError::Invalid("a name or an address is too long")),
    };
    let node = NodeInfo {
        name: text()?,
        url: text()?,
        version: text()?,
    };
    let slots = SlotSet::from_bytes(from.array()?);
    Ok(NodeSlots { node, slots })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(name: &str) -> NodeInfo {
        NodeInfo {
            name: name.into(),
            url: format!("http://{name}:8080"),
            version: "1".into(),
        }
    }

    #[test]
    fn reading_undoes_writing() {
        let slots: SlotSet = [0, 7, 255].into_iter().collect();
        let read = read_metadata(&metadata(&node("a"), &slots)).unwrap();
        assert_eq!((read.node, read.slots), (node("a"), slots));
        let entry = |name: &str, slots: &[u16]| NodeSlots {
            node: node(name),
            slots: slots.iter().copied().collect(),
        };
        let nodes = vec![entry("a", &[1]), entry("b", &[2, 3])];
        let read = read_assignment(&assignment(&nodes, 1)).unwrap();
        assert_eq!((read.nodes, read.own), (nodes, 1));
    }

    /// What version 0.1 sends. Nodes of different versions share a group during an upgrade.
    #[test]
    fn messages_of_released_versions_are_read_and_still_sent() {
        let slots: SlotSet = [0, 9, 255].into_iter().collect();
        let mut bits = [0u8; 32];
        bits[0] = 1;
        bits[1] = 2;
        bits[31] = 128;
        let mut node_a = b"\x01a\x0dhttp://a:8080\x011".to_vec();
        node_a.extend(bits);
        let recorded = [&[1], &node_a[..]].concat();
        assert_eq!(metadata(&node("a"), &slots), recorded);
        // A later version may add fields.
        let read = read_metadata(&[&recorded[..], b"more"].concat()).unwrap();
        assert_eq!((read.node, read.slots), (node("a"), slots));
        let recorded = [&[1, 0, 1], &node_a[..]].concat();
        let entry = NodeSlots {
            node: node("a"),
            slots,
        };
        assert_eq!(assignment(std::slice::from_ref(&entry), 0), recorded);
        assert_eq!(read_assignment(&recorded).unwrap().nodes, [entry]);
        let later = [&[2], &recorded[1..]].concat();
        let refused = read_assignment(&later).unwrap_err().to_string();
        assert!(refused.contains("version 2"), "{refused}");
    }

    #[test]
    fn long_names_are_refused() {
        let long = node(&"n".repeat(TEXT_LEN_MAX + 1));
        assert!(read_metadata(&metadata(&long, &SlotSet::default())).is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_without_a_panic(bytes: Vec<u8>) {
            let _ = read_metadata(&bytes);
            let _ = read_assignment(&bytes);
        }
    }
}
