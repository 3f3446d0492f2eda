//! The requested paths of an event, and the layout of the lines so far.
//!
//! The requested paths form a tree. Each node remembers the keys of its object and, per key, the exact bytes between
//! its value and the next one: comma, blanks, name, colon. Lines of one stream nearly always repeat them, so reading a
//! key is one comparison, and an unexpected key is looked up once and becomes the next prediction. Predictions affect
//! speed only: one that matches is the same bytes at the same position, so it means the same.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use highwater_engine::eq_ignore_case;

use super::Field;
use super::scan::{load8, load16};
use super::text::unescape;

/// The key before the first one.
pub(crate) const START: usize = 0;
/// A key that is not remembered; its entry describes the last such key.
pub(crate) const STRANGER: usize = 1;
/// The object has ended.
pub(crate) const END: usize = usize::MAX;

/// Objects used as maps have endless keys; no more are remembered.
const KEYS_MAX: usize = 1024;
const KEY_BYTES_MAX: usize = 256;
const EXPECTED_BYTES_MAX: usize = 32;

/// The tree of requested paths in preorder: the nodes below one follow it directly, up to its `end`.
#[derive(Debug)]
pub(crate) struct Shape {
    pub nodes: Vec<Node>,
    /// The last node, for objects in arrays: nothing inside is requested.
    pub inside_arrays: usize,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// Its value is requested, not only something inside it.
    pub wanted: bool,
    /// One past the last node below.
    pub end: usize,
    pub children: Vec<(String, usize)>,
    pub keys: Vec<Key>,
    index: HashMap<Box<[u8]>, usize, FixedState>,
    overflowed: bool,
}

/// A key of the object at a node, and the predicted bytes after its value.
#[derive(Debug)]
pub(crate) struct Key {
    pub predicted: PredictedBytes,
    /// The key that `predicted` leads to, or [`END`], and how to handle its value.
    pub next: usize,
    pub next_action: KeyAction,
    pub action: KeyAction,
    /// Every node that the key matches.
    pub targets: Vec<Target>,
    pub name: Box<str>,
}

/// How to handle the value of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyAction {
    Skip,
    Take(Target),
    /// Names that differ only in case can both be requested, and one key may match both.
    TakeMany,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub node: u32,
    /// The key equals the requested name, not only ignoring case.
    pub exact: bool,
}

/// Up to 32 bytes, compared as words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredictedBytes {
    len: usize,
    words: [u64; 4],
    masks: [u64; 4],
}

impl PredictedBytes {
    /// Matches nothing: no UTF-8 text holds the byte 0xff.
    const NOTHING: PredictedBytes = PredictedBytes {
        len: 1,
        words: [0xff, 0, 0, 0],
        masks: [0xff, 0, 0, 0],
    };

    fn new(text: &[u8]) -> PredictedBytes {
        let mask = |word: usize| match text.len().saturating_sub(8 * word) {
            0 => 0,
            8.. => u64::MAX,
            used => u64::MAX >> (64 - 8 * used),
        };
        let masks = [mask(0), mask(1), mask(2), mask(3)];
        let word = |i: usize| load8(text, 8 * i) & masks[i];
        PredictedBytes {
            len: text.len(),
            words: [word(0), word(1), word(2), word(3)],
            masks,
        }
    }

    /// The position after the expected bytes, if they are at `at`.
    #[inline(always)]
    pub(super) fn after(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let differs = |at, i: usize| {
            let (first, second) = load16(bytes, at);
            (first & self.masks[i] ^ self.words[i])
                | (second & self.masks[i + 1] ^ self.words[i + 1])
        };
        let same = differs(at, 0) == 0 && (self.len <= 16 || differs(at + 16, 2) == 0);
        same.then_some(at + self.len)
    }
}

impl Key {
    fn new(name: &str, targets: Vec<Target>) -> Key {
        let action = match targets[..] {
            [] => KeyAction::Skip,
            [target] => KeyAction::Take(target),
            _ => KeyAction::TakeMany,
        };
        let (predicted, next, next_action) = (PredictedBytes::NOTHING, END, KeyAction::Skip);
        Key {
            predicted,
            next,
            next_action,
            action,
            targets,
            name: name.into(),
        }
    }
}

impl Shape {
    /// The tree of the fields' paths, and the node of each field.
    pub(super) fn new(fields: &[Field]) -> (Shape, Vec<usize>) {
        let mut shape = Shape {
            nodes: Vec::new(),
            inside_arrays: 0,
        };
        let paths: Vec<&[String]> = fields.iter().map(Field::path).collect();
        shape.grow(&paths, 0);
        shape.inside_arrays = shape.grow(&[], 0);
        let nodes = paths.iter().map(|path| shape.wanted_at(path)).collect();
        (shape, nodes)
    }

    /// Adds the node that all `paths` share down to `depth`, and the nodes below it.
    fn grow(&mut self, paths: &[&[String]], depth: usize) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node::new());
        let mut names: Vec<&String> = Vec::new();
        for name in paths.iter().filter_map(|path| path.get(depth)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for name in names {
            let inside: Vec<&[String]> = paths
                .iter()
                .copied()
                .filter(|path| path.get(depth) == Some(name))
                .collect();
            let child = self.grow(&inside, depth + 1);
            self.nodes[node].children.push((name.clone(), child));
        }
        self.nodes[node].end = self.nodes.len();
        node
    }

    fn wanted_at(&mut self, path: &[String]) -> usize {
        let node = path.iter().fold(0, |node, name| {
            let child = self.nodes[node]
                .children
                .iter()
                .find(|(known, _)| known == name);
            child.expect("every path was grown").1
        });
        self.nodes[node].wanted = true;
        node
    }

    /// Forgets the keys of objects that had too many, so that a changed stream can be learned again.
    pub(super) fn refresh(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.overflowed) {
            let children = std::mem::take(&mut node.children);
            *node = Node {
                wanted: node.wanted,
                end: node.end,
                children,
                ..Node::new()
            };
        }
    }
}

impl Node {
    fn new() -> Node {
        let nameless = || Key::new("", Vec::new());
        Node {
            wanted: false,
            end: 0,
            children: Vec::new(),
            keys: vec![nameless(), nameless()],
            index: HashMap::default(),
            overflowed: false,
        }
    }

    /// The entry of the key spelled `raw`, created if it is new.
    pub(super) fn key(&mut self, raw: &str, escaped: bool) -> usize {
        if let Some(&known) = self.index.get(raw.as_bytes()) {
            return known;
        }
        let mut name = String::new();
        if escaped {
            unescape(raw, &mut name);
        } else {
            name.push_str(raw);
        }
        let key = Key::new(&name, self.targets(&name));
        if raw.len() > KEY_BYTES_MAX || self.keys.len() >= KEYS_MAX {
            self.overflowed = true;
            self.keys[STRANGER] = key;
            return STRANGER;
        }
        self.keys.push(key);
        self.index
            .insert(raw.as_bytes().into(), self.keys.len() - 1);
        self.keys.len() - 1
    }

    /// From now on predicts `between` after the value of `key`, leading to `next`.
    pub(super) fn learn(&mut self, key: usize, between: &[u8], next: usize) {
        if key == STRANGER || next == STRANGER || between.len() > EXPECTED_BYTES_MAX {
            return;
        }
        let next_action = self.action(next);
        let key = &mut self.keys[key];
        (key.predicted, key.next, key.next_action) =
            (PredictedBytes::new(between), next, next_action);
    }

    /// How to handle the value of a key; nothing after the end.
    pub(super) fn action(&self, key: usize) -> KeyAction {
        self.keys.get(key).map_or(KeyAction::Skip, |key| key.action)
    }

    fn targets(&self, name: &str) -> Vec<Target> {
        let alike = |(wanted, node): &(String, usize)| {
            let exact = wanted == name;
            let target = Target {
                node: *node as u32,
                exact,
            };
            (exact || eq_ignore_case(wanted, name)).then_some(target)
        };
        self.children.iter().filter_map(alike).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(names: &[&str]) -> Field {
        Field::Path(names.iter().map(|name| name.to_string()).collect())
    }

    #[test]
    fn paths_share_nodes_and_children_follow_their_parent() {
        let fields = [
            path(&["a", "b"]),
            path(&["c"]),
            path(&["a"]),
            path(&["a", "b"]),
        ];
        let (shape, nodes) = Shape::new(&fields);
        assert_eq!(nodes, [2, 3, 1, 2]);
        assert_eq!(
            shape.nodes.iter().map(|node| node.end).collect::<Vec<_>>(),
            [4, 3, 3, 4, 5]
        );
        assert_eq!(
            shape
                .nodes
                .iter()
                .map(|node| node.wanted)
                .collect::<Vec<_>>(),
            [false, true, true, true, false]
        );
    }

    #[test]
    fn an_expectation_matches_its_own_bytes_and_no_others() {
        for len in 1..=32 {
            let text: Vec<u8> = (0..len).map(|i| b'a' + i as u8 % 26).collect();
            let expect = PredictedBytes::new(&text);
            assert_eq!(expect.after(&text, 0), Some(len));
            let mut longer = text.clone();
            longer.extend_from_slice(b"0123456789012345678901234567890123456789");
            assert_eq!(expect.after(&longer, 0), Some(len));
            for i in 0..len {
                let mut wrong = longer.clone();
                wrong[i] ^= 1;
                assert_eq!(expect.after(&wrong, 0), None, "{len} {i}");
            }
        }
    }

    #[test]
    fn objects_with_endless_keys_do_not_fill_the_memory() {
        let (mut shape, _) = Shape::new(&[path(&["a"])]);
        for i in 0..5000 {
            shape.nodes[0].key(&format!("k{i}"), false);
        }
        assert_eq!(shape.nodes[0].key("A", false), STRANGER);
        assert!(matches!(
            shape.nodes[0].action(STRANGER),
            KeyAction::Take(_)
        ));
        assert!(shape.nodes[0].keys.len() <= KEYS_MAX);
        shape.refresh();
        assert_ne!(shape.nodes[0].key("A", false), STRANGER);
    }
}
