//! Which statements have early rows, and which columns tell their rows apart.
//!
//! A row of a window belongs to a group and to a window. Early rows and the final row of both are revisions of one row,
//! so both must be among its columns. A group has one open session at a time, so its session needs no column.

use highwater_query::plan::{
    AnalyticColumn, ExprKind, Name, Node, NodeId, Plan, Window, WindowNode,
};
use highwater_time::Duration;

/// What rows with early revisions are known by.
#[derive(Clone, Debug)]
pub(super) struct RowIdentity {
    /// Indexes of columns.
    pub columns: Vec<usize>,
    /// The size of windows on a grid; `None` for sessions.
    pub window_size: Option<Duration>,
}

/// Why rows of a statement cannot be told apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoIdentity {
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
    Other,
}

impl RowIdentity {
    pub(super) fn of(plan: &Plan, node: NodeId, names: &[Name]) -> Result<RowIdentity, NoIdentity> {
        let (origins, window) = origins(plan, node).map_err(NoIdentity::Never)?;
        let window_size = match window.window {
            Window::Tumbling { size, .. } | Window::Hopping { size, .. } => Some(size),
            Window::Session { .. } if has_rows_to_come(plan, window.from) => {
                return Err(NoIdentity::Never(
                    "a session over windows or over a LEFT JOIN may have several rows of a group at once",
                ));
            }
            Window::Session { .. } => None,
            Window::Sliding { .. } => {
                return Err(NoIdentity::Never(
                    "a sliding window has a row whenever an event enters or leaves it, and is complete then",
                ));
            }
            Window::Snapshot => {
                return Err(NoIdentity::Never(
                    "a snapshot window is complete as soon as time passes",
                ));
            }
        };
        let shown = |wanted: Origin| {
            let mut columns = origins.iter().zip(names);
            columns.position(|(origin, name)| *origin == wanted && matches!(name, Name::Field(_)))
        };
        let mut columns = Vec::new();
        for (index, key) in window.keys.iter().enumerate() {
            let column = shown(Origin::Key(index));
            columns.push(column.ok_or_else(|| NoIdentity::Unselected(key.name.clone()))?);
        }
        if window_size.is_some() {
            let unselected = || NoIdentity::Unselected("System.Timestamp() AS WindowEnd".into());
            columns.push(shown(Origin::Time).ok_or_else(unselected)?);
        }
        Ok(RowIdentity {
            columns,
            window_size,
        })
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

/// The origins of a node's columns, and the window that they come from.
fn origins(plan: &Plan, node: NodeId) -> Result<(Vec<Origin>, &WindowNode), &'static str> {
    match &plan.nodes[node.0] {
        Node::Window(window) => {
            let keys = (0..window.keys.len()).map(Origin::Key);
            let aggregates = window.aggregates.iter().map(|_| Origin::Other);
            Ok((keys.chain(aggregates).collect(), window))
        }
        Node::Filter { from, .. } => origins(plan, *from),
        Node::Project { from, items } => {
            let (below, window) = origins(plan, *from)?;
            let columns = items.iter().map(|item| match item.expr.kind {
                ExprKind::Column(column) => below[column],
                ExprKind::Timestamp => Origin::Time,
                _ => Origin::Other,
            });
            Ok((columns.collect(), window))
        }
        Node::Analytic(node) => {
            let (below, window) = origins(plan, node.from)?;
            let columns = node.columns.iter().map(|column| match column {
                AnalyticColumn::Carried(column) => below[*column],
                AnalyticColumn::Call(_) => Origin::Other,
            });
            Ok((columns.collect(), window))
        }
        Node::Source { .. } => Err("without a window every row is final at once"),
        Node::Join(_) => Err("rows of a JOIN are final at once"),
        Node::Lookup(_) => Err("a JOIN with reference data may make several rows of one"),
        Node::Apply { .. } => Err("APPLY may make several rows of one"),
        Node::Match(_) => Err("a match is final at once"),
        Node::Union { .. } => Err("rows of a UNION cannot be told apart by their group"),
    }
}

/// Whether the node gives rows with later times than its last event when its input ends.
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

    fn identity(query: &str) -> Result<(Vec<String>, bool), NoIdentity> {
        let compiled = compile(query, &Catalog::streams(["a", "b"])).unwrap();
        let node = compiled.plan.outputs[0].from;
        let names = compiled.plan.column_names(node);
        let identity = RowIdentity::of(&compiled.plan, node, &names)?;
        Ok((identity.names(&names), identity.window_size.is_some()))
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
        let session = "SELECT k, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY k, SessionWindow(minute, 5, 60)";
        assert_eq!(identity(session), Ok((names(&["k"]), false)));
    }

    #[test]
    fn what_is_missing_among_the_columns_is_named() {
        let group = "FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 1)";
        let unselected = |column: &str| Err(NoIdentity::Unselected(column.into()));
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
    }

    #[test]
    fn statements_without_early_rows_say_why() {
        let never = [
            "SELECT k INTO x FROM a TIMESTAMP BY t",
            "SELECT k, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY k, SlidingWindow(minute, 1)",
            "SELECT k, COUNT(*) AS n INTO x FROM a TIMESTAMP BY t GROUP BY k, System.Timestamp()",
            "SELECT k, LAG(v) OVER (LIMIT DURATION(minute, 1)) AS l INTO x FROM a TIMESTAMP BY t",
            "WITH s AS (SELECT k, COUNT(*) AS n FROM a TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 1)) \
             SELECT k, COUNT(*) AS n INTO x FROM s GROUP BY k, SessionWindow(minute, 1, 5)",
            "SELECT l.k INTO x FROM a l TIMESTAMP BY t JOIN b r TIMESTAMP BY t ON DATEDIFF(minute, l, r) BETWEEN 0 AND 1",
        ];
        for query in never {
            assert!(
                matches!(identity(query), Err(NoIdentity::Never(_))),
                "{query}: {:?}",
                identity(query)
            );
        }
    }
}
