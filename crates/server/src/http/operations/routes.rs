//! Finds the operation for a method and a path.
//!
//! The paths of the table are a tree of segments, built once. A literal segment is tried before a variable, so
//! `/queues/q/messages` is a queue and `/queues/messages` the hub `queues` of an Event Hubs client. A literal with a
//! capital letter or a dollar sign, as clients of Service Bus have them, matches in any case. Finding a route allocates
//! nothing and looks at a handful of segments, because it is paid for by every posted event.

use std::sync::LazyLock;

use hyper::Method;

use super::{Operation, operations};

/// More than any path of the table has.
const VARIABLES_MAX: usize = 4;

pub(in crate::http) static ROUTES: LazyLock<Routes> = LazyLock::new(|| {
    let mut root = Node::default();
    for (_, operation) in operations() {
        root.add(operation.path.strip_prefix('/'), operation);
    }
    Routes { root }
});

pub(in crate::http) struct Routes {
    root: Node,
}

/// An operation, and the variables of its path.
pub(in crate::http) struct Route<'p> {
    pub(in crate::http) operation: &'static Operation,
    pub(in crate::http) variables: Variables<'p>,
}

/// The values of a path for the variables of its template, in order.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::http) struct Variables<'p> {
    values: [&'p str; VARIABLES_MAX],
    count: usize,
}

/// No operation has this path and method.
#[derive(Debug, Default)]
pub(in crate::http) struct NoRoute {
    /// The methods of operations with this path; none for an unknown path.
    pub(in crate::http) allow: Vec<Method>,
}

impl<'p> Variables<'p> {
    pub(in crate::http) fn first(&self) -> Option<&'p str> {
        self.values[..self.count].first().copied()
    }

    /// All of them. The handler knows how many its path has.
    pub(in crate::http) fn all<const N: usize>(&self) -> [&'p str; N] {
        debug_assert_eq!(N, self.count, "the template has other variables");
        std::array::from_fn(|at| self.values[at])
    }

    fn push(&mut self, value: &'p str) {
        self.values[self.count] = value;
        self.count += 1;
    }
}

impl Routes {
    pub(in crate::http) fn find<'p>(
        &self,
        method: &Method,
        path: &'p str,
    ) -> Result<Route<'p>, NoRoute> {
        let mut search = Search {
            method,
            variables: Variables::default(),
        };
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        match self.root.find(Some(path), &mut search) {
            Some(operation) => Ok(Route {
                operation,
                variables: search.variables,
            }),
            None => Err(self.allowed(path)),
        }
    }

    #[cold]
    fn allowed(&self, path: &str) -> NoRoute {
        let mut allow = Vec::new();
        self.root.methods(Some(path), &mut allow);
        NoRoute { allow }
    }
}

struct Search<'m, 'p> {
    method: &'m Method,
    variables: Variables<'p>,
}

/// A segment that is no variable.
struct Literal {
    text: &'static str,
    has_any_case: bool,
}

impl Literal {
    fn new(text: &'static str) -> Literal {
        let is_mixed = |c: char| c.is_ascii_uppercase() || c == '$';
        Literal {
            text,
            has_any_case: text.contains(is_mixed),
        }
    }

    fn matches(&self, segment: &str) -> bool {
        match self.has_any_case {
            true => self.text.eq_ignore_ascii_case(segment),
            false => self.text == segment,
        }
    }
}

/// The operations of one path, and the longer paths below it.
#[derive(Default)]
struct Node {
    literals: Vec<(Literal, Node)>,
    variable: Option<Box<Node>>,
    operations: Vec<&'static Operation>,
}

/// The first segment of a path, and the rest unless it is the last.
fn split(path: &str) -> (&str, Option<&str>) {
    match path.split_once('/') {
        Some((segment, rest)) => (segment, Some(rest)),
        None => (path, None),
    }
}

impl Node {
    fn add(&mut self, path: Option<&'static str>, operation: &'static Operation) {
        let Some((segment, rest)) = path.map(split) else {
            return self.operations.push(operation);
        };
        if segment.starts_with('{') {
            return self.variable.get_or_insert_default().add(rest, operation);
        }
        let mut literals = self.literals.iter();
        let known = literals.position(|(literal, _)| literal.text == segment);
        let at = known.unwrap_or_else(|| {
            self.literals.push((Literal::new(segment), Node::default()));
            self.literals.len() - 1
        });
        self.literals[at].1.add(rest, operation);
    }

    fn find<'p>(
        &self,
        path: Option<&'p str>,
        search: &mut Search<'_, 'p>,
    ) -> Option<&'static Operation> {
        let Some((segment, rest)) = path.map(split) else {
            let mut operations = self.operations.iter();
            return operations.find(|o| o.method == *search.method).copied();
        };
        let mut literals = self.literals.iter();
        if let Some((_, node)) = literals.find(|(literal, _)| literal.matches(segment))
            && let Some(found) = node.find(rest, search)
        {
            return Some(found);
        }
        let node = self.variable.as_ref()?;
        let before = search.variables;
        search.variables.push(segment);
        let found = node.find(rest, search);
        if found.is_none() {
            search.variables = before;
        }
        found
    }

    fn methods(&self, path: Option<&str>, allow: &mut Vec<Method>) {
        let Some((segment, rest)) = path.map(split) else {
            let new = self.operations.iter().map(|operation| &operation.method);
            for method in new {
                if !allow.contains(method) {
                    allow.push(method.clone());
                }
            }
            return;
        };
        let mut literals = self.literals.iter();
        let literal = literals.find(|(literal, _)| literal.matches(segment));
        let next = literal.map(|(_, node)| node).into_iter();
        for node in next.chain(self.variable.as_deref()) {
            node.methods(rest, allow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: Method, path: &str) -> Option<(&'static str, Vec<&str>)> {
        let route = ROUTES.find(&method, path).ok()?;
        let variables = route.variables.values[..route.variables.count].to_vec();
        Some((route.operation.path, variables))
    }

    #[test]
    fn every_operation_is_found_by_its_path_alone() {
        for (_, operation) in operations() {
            let path = operation.path.replace(['{', '}'], "");
            let route = ROUTES.find(&operation.method, &path);
            let Ok(route) = route else {
                panic!("{} {path} has no route", operation.method)
            };
            assert!(std::ptr::eq(route.operation, operation), "{path}");
            let variables = operation.path.matches('{').count();
            assert_eq!(route.variables.count, variables, "{path}");
        }
    }

    #[test]
    fn a_literal_is_tried_before_a_variable() {
        let post = |path| found(Method::POST, path);
        assert_eq!(
            post("/queues/q/messages"),
            Some(("/queues/{queue}/messages", vec!["q"]))
        );
        assert_eq!(
            post("/queues/messages"),
            Some(("/{hub}/messages", vec!["queues"]))
        );
        let partition = "/{hub}/partitions/{partition}/messages";
        assert_eq!(
            post("/hubs/partitions/0/messages"),
            Some((partition, vec!["hubs", "0"]))
        );
        let letter = "/api/dead-letters/{processor}/{id}";
        let shown = found(Method::GET, "/api/dead-letters/p/replay");
        assert_eq!(shown, Some((letter, vec!["p", "replay"])));
    }

    // proves A3
    #[test]
    fn paths_of_service_bus_have_any_case_and_those_of_the_api_have_not() {
        let rule = "/{topic}/Subscriptions/{subscription}/Rules/{rule}";
        let get = |path| found(Method::GET, path);
        assert_eq!(
            get("/T/subscriptions/s/rules/r"),
            Some((rule, vec!["T", "s", "r"]))
        );
        assert_eq!(
            get("/$resources/queues"),
            Some(("/$Resources/Queues", vec![]))
        );
        assert_eq!(
            get("/t/Subscriptions/"),
            Some(("/{topic}/Subscriptions", vec!["t"]))
        );
        assert_eq!(get("/Metrics"), Some(("/{entity}", vec!["Metrics"])));
        assert_eq!(get("/metrics"), Some(("/metrics", vec![])));
        assert_eq!(get("/API/hubs"), None);
    }

    #[test]
    fn one_slash_at_the_end_is_ignored() {
        assert_eq!(
            found(Method::GET, "/api/hubs/"),
            Some(("/api/hubs", vec![]))
        );
        assert_eq!(
            found(Method::GET, "/api/hubs//"),
            Some(("/api/hubs/{hub}", vec![""]))
        );
        assert_eq!(found(Method::GET, "/"), Some(("/", vec![])));
    }

    #[test]
    fn a_path_that_exists_says_which_methods_it_takes() {
        let allow = |path| ROUTES.find(&Method::OPTIONS, path).err().unwrap().allow;
        assert_eq!(allow("/api/hubs"), [Method::GET, Method::POST]);
        assert_eq!(
            allow("/api/dead-letters/p/replay"),
            [Method::POST, Method::GET]
        );
        assert!(allow("/nothing/here").is_empty());
        assert!(allow("/1/2/3/4/5/6/7/8").is_empty());
    }
}
