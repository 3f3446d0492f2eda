//! The columns of a Parquet schema as trees.
//!
//! A level says how far down its path a value exists: every optional or repeated field on the way adds one to the
//! definition level, every repeated one adds one to the repetition level. The rules for lists and maps, and for files
//! that were written before there were any, are those of the format's page about logical types.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition};
use parquet::schema::types::{Type, TypePtr};

use super::leaf_type::LeafType;

/// A field with everything below it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// Its leaves, by their position among those of the column.
    pub(super) leaves: Range<usize>,
    /// The definition level of a value that is not NULL.
    pub(super) present: i16,
}

#[derive(Debug)]
pub(super) enum NodeKind {
    Leaf,
    Record(Vec<(Arc<str>, Node)>),
    List {
        items: RepeatedLevels,
        item: Box<Node>,
    },
    Map {
        entries: RepeatedLevels,
        key: Box<Node>,
        value: Box<Node>,
    },
}

/// The levels of a repeated field.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepeatedLevels {
    /// The definition level if there is at least one.
    pub(super) defined: i16,
    /// The repetition level of all but the first.
    pub(super) repeated: i16,
}

/// A root column that is read.
#[derive(Debug)]
pub(super) struct RootColumn {
    pub(super) node: Node,
    pub(super) leaf_types: Vec<LeafType>,
    /// The position of its first leaf in the file.
    pub(super) first_leaf: usize,
}

/// The levels above a field.
#[derive(Clone, Copy)]
struct Levels {
    definition: i16,
    repetition: i16,
}

impl Levels {
    fn optional(self) -> Levels {
        Levels {
            definition: self.definition + 1,
            ..self
        }
    }

    fn repeated(self) -> Levels {
        Levels {
            definition: self.definition + 1,
            repetition: self.repetition + 1,
        }
    }

    /// For the items below.
    fn of_items(self) -> RepeatedLevels {
        RepeatedLevels {
            defined: self.definition,
            repeated: self.repetition,
        }
    }
}

impl RootColumn {
    pub(super) fn of(field: &TypePtr, first_leaf: usize) -> Result<RootColumn, String> {
        let mut leaf_types = Vec::new();
        let levels = Levels {
            definition: 0,
            repetition: 0,
        };
        let node = field_node(field, levels, &mut leaf_types)?;
        Ok(RootColumn {
            node,
            leaf_types,
            first_leaf,
        })
    }
}

/// How many leaf columns of the file a field has.
pub(super) fn leaf_count(field: &Type) -> usize {
    match field.is_group() {
        true => field
            .get_fields()
            .iter()
            .map(|field| leaf_count(field))
            .sum(),
        false => 1,
    }
}

fn field_node(field: &Type, above: Levels, leaves: &mut Vec<LeafType>) -> Result<Node, String> {
    match field.get_basic_info().repetition() {
        Repetition::REQUIRED => value_node(field, above, leaves),
        Repetition::OPTIONAL => value_node(field, above.optional(), leaves),
        // A repeated field outside of a list is one, which is never NULL.
        Repetition::REPEATED => list_node(above, leaves, |levels, leaves| {
            value_node(field, levels, leaves)
        }),
    }
}

/// A field, whose own repetition is in the levels already.
fn value_node(field: &Type, levels: Levels, leaves: &mut Vec<LeafType>) -> Result<Node, String> {
    let first = leaves.len();
    if field.is_primitive() {
        leaves.push(LeafType::of(field)?);
        return Ok(Node {
            kind: NodeKind::Leaf,
            leaves: first..leaves.len(),
            present: levels.definition,
        });
    }
    match field.get_basic_info().converted_type() {
        ConvertedType::LIST => annotated_list(field, levels, leaves),
        ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => map_node(field, levels, leaves),
        _ => {
            let fields = field.get_fields().iter().map(|child| {
                let node = field_node(child, levels, leaves)?;
                Ok((Arc::from(child.name()), node))
            });
            let fields = fields.collect::<Result<Vec<_>, String>>()?;
            if fields.is_empty() {
                return Err(malformed(field, "is a group without fields"));
            }
            Ok(Node {
                kind: NodeKind::Record(fields),
                leaves: first..leaves.len(),
                present: levels.definition,
            })
        }
    }
}

fn list_node(
    above: Levels,
    leaves: &mut Vec<LeafType>,
    item: impl FnOnce(Levels, &mut Vec<LeafType>) -> Result<Node, String>,
) -> Result<Node, String> {
    let first = leaves.len();
    let levels = above.repeated();
    let item = Box::new(item(levels, leaves)?);
    Ok(Node {
        kind: NodeKind::List {
            items: levels.of_items(),
            item,
        },
        leaves: first..leaves.len(),
        present: above.definition,
    })
}

fn annotated_list(list: &Type, levels: Levels, leaves: &mut Vec<LeafType>) -> Result<Node, String> {
    let repeated = repeated_child(list)?;
    list_node(levels, leaves, |levels, leaves| {
        match repeated_is_item(list, repeated) {
            true => value_node(repeated, levels, leaves),
            false => field_node(&repeated.get_fields()[0], levels, leaves),
        }
    })
}

/// Whether the repeated field is the item itself, as older writers have it, and not a group around the item.
fn repeated_is_item(list: &Type, repeated: &Type) -> bool {
    if repeated.is_primitive() {
        return true;
    }
    let [only] = repeated.get_fields() else {
        return true;
    };
    let annotated = repeated.get_basic_info().converted_type() == ConvertedType::LIST;
    let nested = only.get_basic_info().repetition() == Repetition::REPEATED;
    let named =
        repeated.name() == "array" || repeated.name().strip_suffix("_tuple") == Some(list.name());
    named && !annotated && !nested
}

fn map_node(map: &Type, levels: Levels, leaves: &mut Vec<LeafType>) -> Result<Node, String> {
    let repeated = repeated_child(map)?;
    if repeated.is_primitive() {
        return Err(malformed(map, "is a map without keys"));
    }
    let [key, value] = repeated.get_fields() else {
        // Values may be left out, and what remains is a list of keys.
        return annotated_list(map, levels, leaves);
    };
    let first = leaves.len();
    let below = levels.repeated();
    let key = Box::new(field_node(key, below, leaves)?);
    let value = Box::new(field_node(value, below, leaves)?);
    Ok(Node {
        kind: NodeKind::Map {
            entries: below.of_items(),
            key,
            value,
        },
        leaves: first..leaves.len(),
        present: levels.definition,
    })
}

fn repeated_child(field: &Type) -> Result<&Type, String> {
    match field.get_fields() {
        [child] if child.get_basic_info().repetition() == Repetition::REPEATED => Ok(child),
        _ => Err(malformed(
            field,
            "is a list or map without one repeated field",
        )),
    }
}

fn malformed(field: &Type, reason: &str) -> String {
    format!("its column `{}` {reason}", field.name())
}
