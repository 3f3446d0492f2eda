//! Which statements have early rows, and which columns tell their rows apart.
//!
//! A row of a window belongs to a group and to a window. Early rows and the final row of both are revisions of one row,
//! so both must be among its columns. A group has one open session at a time, so its session needs no column. The id of
//! the window also identifies rows of `Windows(..)`.

use highwater_engine::{Chunk, ValueRef};
use highwater_query::plan::{
    AnalyticColumn, ExprKind, Key, Literal, Name, Node, NodeId, Plan, Window, WindowNode,
};
use highwater_time::Duration;

/// The identity columns of revised rows.
#[derive(Clone, Debug)]
pub(super) struct RowIdentity {
    /// Indexes of columns.
    pub columns: Vec<usize>,
    pub windows: Windows,
}

/// The windows that the rows of a statement come from.
#[derive(Clone, Debug)]
pub(super) enum Windows {
    One(WindowKind),
    /// Those of `Windows(..)`, which the text of a column tells apart. Rows of the others are complete when they come.
    Named {
        column: usize,
        kinds: Vec<(String, WindowKind)>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowKind {
    /// On a grid, of this size.
    Grid(Duration),
    Session,
}

impl WindowKind {
    /// How long after its beginning a window ends; not known of a session.
    pub(super) fn size(self) -> Option<Duration> {
        match self {
            WindowKind::Grid(size) => Some(size),
            WindowKind::Session => None,
        }
    }
}

impl Windows {
    /// The window of a row; `None` if the row is complete.
    pub(super) fn of(&self, chunk: &Chunk, row: usize) -> Option<WindowKind> {
        match self {
            Windows::One(kind) => Some(*kind),
            Windows::Named { column, kinds } => match chunk.columns[*column].get(row) {
                ValueRef::Text(id) => {
                    let mut kinds = kinds.iter();
                    kinds.find_map(|(name, kind)| (name == id).then_some(*kind))
                }
                _ => None,
            },
        }
    }

    pub(super) fn kinds(&self) -> Vec<WindowKind> {
        match self {
            Windows::One(kind) => vec![*kind],
            Windows::Named { kinds, .. } => kinds.iter().map(|(_, kind)| *kind).collect(),
        }
    }
}

/// Why rows of a statement have no identity.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IdentityError {
    /// The statement has no early rows.
    Never(&'static str),
    /// This must be selected.
    Unselected(String),
}

/// Where a column comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The key of that index.
    Key(usize),
    /// The time of the row.
    Time,
    /// The id of its window.
    WindowId,
    Other,
}

/// A window that rows come from, and its id in `Windows(..)`.
struct Branch<'p> {
    id: Option<&'p str>,
    window: &'p WindowNode,
}

/// Where the rows of a node come from.
struct RowOrigins<'p> {
    columns: Vec<Origin>,
    /// One, or those of `Windows(..)`.
    branches: Vec<Branch<'p>>,
}

impl RowIdentity {
    pub(super) fn of(
        plan: &Plan,
        node: NodeId,
        names: &[Name],
    ) -> Result<RowIdentity, IdentityError> {
        let origins = origins(plan, node).map_err(IdentityError::Never)?;
        let shown = |wanted: Origin| {
            let mut columns = origins.columns.iter().zip(names);
            columns.position(|(origin, name)| *origin == wanted && matches!(name, Name::Field(_)))
        };
        let (keys, windows) = match &origins.branches[..] {
            [Branch { id: None, window }] => {
                let kind = kind_of(plan, window).map_err(IdentityError::Never)?;
                (&window.keys[..], Windows::One(kind))
            }
            branches => {
                let kinds = named_kinds(plan, branches).map_err(IdentityError::Never)?;
                let unselected =
                    || IdentityError::Unselected("System.Window().Id AS WindowId".into());
                let column = shown(Origin::WindowId).ok_or_else(unselected)?;
                (common_keys(branches)?, Windows::Named { column, kinds })
            }
        };
        let mut columns = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let column = shown(Origin::Key(index));
            columns.push(column.ok_or_else(|| IdentityError::Unselected(key.name.clone()))?);
        }
        if windows.kinds().iter().any(|kind| kind.size().is_some()) {
            let unselected = || IdentityError::Unselected("System.Timestamp() AS WindowEnd".into());
            columns.push(shown(Origin::Time).ok_or_else(unselected)?);
        }
        if let Windows::Named { column, .. } = &windows {
            columns.push(*column);
        }
        Ok(RowIdentity { columns, windows })
    }

    /// The names of its columns.
    pub(super) fn names(&self, names: &[Name]) -> Vec<String> {
        let named = self.columns.iter().map(|column| match &names[*column] {
            Name::Field(name) | Name::Hidden(name) => name.clone(),
            Name::Spread => String::new(),
        });
        named.collect()
    }
}

/// The kind of a window that has early rows, or why it has none.
fn kind_of(plan: &Plan, window: &WindowNode) -> Result<WindowKind, &'static str> {
    match window.window {
        Window::Tumbling { size, .. } | Window::Hopping { size, .. } => Ok(WindowKind::Grid(size)),
        Window::Session { .. } if has_rows_to_come(plan, window.from) => Err(
            "a session over windows or over a LEFT JOIN may have several rows of a group at once",
        ),
        Window::Session { .. } => Ok(WindowKind::Session),
        Window::Sliding { .. } => Err(
            "a sliding window has a row whenever an event enters or leaves it, and is complete then",
        ),
        Window::Snapshot => Err("a snapshot window is complete as soon as time passes"),
    }
}

/// A plan has no ids if nothing selects them.
const WITHOUT_IDS: &str = "the rows of Windows(..) cannot be told apart; write Window('name', ..) for each window, and \
                           select System.Window().Id";

/// The kinds of the windows of `Windows(..)` that have early rows, by their ids.
fn named_kinds(
    plan: &Plan,
    branches: &[Branch<'_>],
) -> Result<Vec<(String, WindowKind)>, &'static str> {
    let mut kinds = Vec::new();
    let mut never = None;
    for branch in branches {
        let Some(id) = branch.id else {
            return Err(WITHOUT_IDS);
        };
        match kind_of(plan, branch.window) {
            Ok(kind) => kinds.push((id.to_owned(), kind)),
            Err(reason) => never = Some(reason),
        }
    }
    let is_session = |kind: &(String, WindowKind)| kind.1 == WindowKind::Session;
    let sessions = kinds.iter().filter(|kind| is_session(kind)).count();
    if 0 < sessions && sessions < kinds.len() {
        return Err(
            "the end of a session changes while that of the other windows tells rows apart; \
                    give sessions a statement of their own",
        );
    }
    match (kinds.is_empty(), never) {
        (true, Some(reason)) => Err(reason),
        _ => Ok(kinds),
    }
}

/// The keys that all windows have.
fn common_keys<'p>(branches: &[Branch<'p>]) -> Result<&'p [Key], IdentityError> {
    let fewest = branches
        .iter()
        .min_by_key(|branch| branch.window.keys.len());
    let keys = fewest.map_or(&[][..], |branch| &branch.window.keys[..]);
    match branches
        .iter()
        .find(|branch| branch.window.keys.len() > keys.len())
    {
        // OVER (PARTITION BY ..) of a session may have more of them.
        Some(more) => Err(IdentityError::Unselected(
            more.window.keys[keys.len()].name.clone(),
        )),
        None => Ok(keys),
    }
}

/// The origins of a node's columns, and the windows that they come from.
fn origins(plan: &Plan, node: NodeId) -> Result<RowOrigins<'_>, &'static str> {
    match &plan.nodes[node.0] {
        Node::Window(window) => {
            let keys = (0..window.keys.len()).map(Origin::Key);
            let aggregates = window.aggregates.iter().map(|_| Origin::Other);
            Ok(RowOrigins {
                columns: keys.chain(aggregates).collect(),
                branches: vec![Branch { id: None, window }],
            })
        }
        Node::Filter { from, .. } => origins(plan, *from),
        Node::Project { from, items } => {
            let below = origins(plan, *from)?;
            let columns = items.iter().map(|item| match item.expr.kind {
                ExprKind::Column(column) => below.columns[column],
                ExprKind::Timestamp => Origin::Time,
                _ => Origin::Other,
            });
            Ok(RowOrigins {
                columns: columns.collect(),
                branches: below.branches,
            })
        }
        Node::Analytic(node) => {
            let below = origins(plan, node.from)?;
            let columns = node.columns.iter().map(|column| match column {
                AnalyticColumn::Carried(column) => below.columns[*column],
                AnalyticColumn::Call(_) => Origin::Other,
            });
            Ok(RowOrigins {
                columns: columns.collect(),
                branches: below.branches,
            })
        }
        Node::Union { from, .. } => windows_of_union(plan, from),
        Node::Source { .. } => Err("without a window every row is final at once"),
        Node::Join(_) => Err("rows of a JOIN are final at once"),
        Node::Lookup(_) => Err("a JOIN with reference data may make several rows of one"),
        Node::Apply { .. } => Err("APPLY may make several rows of one"),
        Node::Match(_) => Err("a match is final at once"),
    }
}

/// The windows of `Windows(..)`: each branch of the union is a window, whose id is a hidden column.
fn windows_of_union<'p>(
    plan: &'p Plan,
    from: &'p [(NodeId, Vec<usize>)],
) -> Result<RowOrigins<'p>, &'static str> {
    const OTHER: &str = "rows of a UNION cannot be told apart by their group";
    let mut columns = Vec::new();
    let mut branches = Vec::new();
    for (node, mapping) in from {
        let Node::Project { from, items } = &plan.nodes[node.0] else {
            return Err(OTHER);
        };
        let Node::Window(window) = &plan.nodes[from.0] else {
            return Err(OTHER);
        };
        let in_order = mapping.iter().copied().eq(0..items.len());
        if !in_order
            || !items
                .iter()
                .all(|item| matches!(item.name, Name::Hidden(_)))
        {
            return Err(OTHER);
        }
        let mut id = None;
        let own = items.iter().map(|item| match &item.expr.kind {
            ExprKind::Column(column) if *column < window.keys.len() => Origin::Key(*column),
            ExprKind::Literal(literal) => {
                id = match literal {
                    Literal::Text(text) => Some(&text[..]),
                    _ => None,
                };
                Origin::WindowId
            }
            _ => Origin::Other,
        });
        columns = own.collect();
        branches.push(Branch { id, window });
    }
    Ok(RowOrigins { columns, branches })
}

/// Whether the node emits rows with later times than its last event when its input ends.
fn has_rows_to_come(plan: &Plan, node: NodeId) -> bool {
    let node = &plan.nodes[node.0];
    match node {
        Node::Window(_) => true,
        Node::Join(join) if join.outer => true,
        node => {
            let below = node.below();
            below.into_iter().any(|below| has_rows_to_come(plan, below))
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_query::{Catalog, compile};

    use super::*;

    fn identity(query: &str) -> Result<(Vec<String>, bool), IdentityError> {
        let compiled = compile(query, &Catalog::streams(["a", "b"])).unwrap();
        let node = compiled.plan.outputs[0].from;
        let names = compiled.plan.column_names(node);
        let identity = RowIdentity::of(&compiled.plan, node, &names)?;
        let on_grid = identity
            .windows
            .kinds()
            .iter()
            .all(|kind| kind.size().is_some());
        Ok((identity.names(&names), on_grid))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    // proves E1
    #[test]
    fn rows_are_told_apart_by_their_group_and_their_window() {
        let tumbling = "SELECT k AS plate, COUNT(*) AS n, System.Timestamp() AS at INTO x FROM a TIMESTAMP BY t \
            GROUP BY k, TumblingWindow(minute, 1) HAVING COUNT(*) > 1";
        assert_eq!(identity(tumbling), Ok((names(&["plate", "at"]), true)));
        let step = "WITH s AS (SELECT k, COUNT(*) AS n, System.Timestamp() AS at FROM a TIMESTAMP BY t \
            GROUP BY k, HoppingWindow(minute, 10, 5)) SELECT at, k AS q, n INTO x FROM s WHERE n > 2";
        assert_eq!(identity(step), Ok((names(&["q", "at"]), true)));
        let several = "SELECT System.Window().Id AS w, COUNT(*) AS n, System.Timestamp() AS at, k INTO x \
            FROM a TIMESTAMP BY t GROUP BY k, Windows(Window('one', TumblingWindow(minute, 1)), \
            Window('any', SlidingWindow(minute, 1)), Window('ten', HoppingWindow(minute, 10, 5)))";
        assert_eq!(identity(several), Ok((names(&["k", "at", "w"]), true)));
        let session = "SELECT k, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY k, SessionWindow(minute, 5, 60)";
        assert_eq!(identity(session), Ok((names(&["k"]), false)));
    }

    #[test]
    fn what_is_missing_among_the_columns_is_named() {
        let group = "FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 1)";
        let unselected = |column: &str| Err(IdentityError::Unselected(column.into()));
        assert_eq!(
            identity(&format!(
                "SELECT COUNT(*) AS n, System.Timestamp() AS w INTO x {group}"
            )),
            unselected("k")
        );
        assert_eq!(
            identity(&format!("SELECT k, COUNT(*) AS n INTO x {group}")),
            unselected("System.Timestamp() AS WindowEnd")
        );
        let windows = "SELECT k, COUNT(*) AS n, System.Timestamp() AS at INTO x FROM a TIMESTAMP BY t \
            GROUP BY k, Windows(Window('a', TumblingWindow(minute, 1)), Window('b', TumblingWindow(minute, 2)))";
        assert_eq!(identity(windows), Err(IdentityError::Never(WITHOUT_IDS)));
    }

    #[test]
    fn statements_without_early_rows_say_why() {
        let never = [
            "SELECT k INTO x FROM a TIMESTAMP BY t",
            "SELECT k, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY k, SlidingWindow(minute, 1)",
            "SELECT k, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY k, System.Timestamp()",
            "SELECT System.Window().Id AS w, k, System.Timestamp() AS at INTO x FROM a TIMESTAMP BY t \
             GROUP BY k, Windows(TumblingWindow(minute, 1), TumblingWindow(minute, 2))",
            "SELECT System.Window().Id AS w, k, System.Timestamp() AS at INTO x FROM a TIMESTAMP BY t \
             GROUP BY k, Windows(Window('a', TumblingWindow(minute, 1)), Window('b', SessionWindow(minute, 2, 5)))",
            "SELECT k, LAG(v) OVER (LIMIT DURATION(minute, 1)) AS l INTO x FROM a TIMESTAMP BY t",
            "WITH s AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 1)) \
             SELECT k, COUNT(*) AS n INTO x FROM s GROUP BY k, SessionWindow(minute, 1, 5)",
            "SELECT l.k INTO x FROM a l TIMESTAMP BY t JOIN b r TIMESTAMP BY t ON DATEDIFF(minute, l, r) BETWEEN 0 AND 1",
        ];
        for query in never {
            assert!(
                matches!(identity(query), Err(IdentityError::Never(_))),
                "{query}: {:?}",
                identity(query)
            );
        }
    }
}
