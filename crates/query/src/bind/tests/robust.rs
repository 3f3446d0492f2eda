//! Compiling any text ends, in a plan or in errors with a position.

use proptest::prelude::*;

use super::{accepts, catalog, rejects_one, robust_joins};
use crate::plan::{
    Analytic, AnalyticColumn, AnalyticNode, Expr, ExprKind, MatchNode, MatchRef, Node, Plan, Pred,
};
use crate::{Catalog, compile, explain, functions, lookback};

const WORDS: &str = "SELECT FROM WHERE GROUP BY HAVING UNION ALL JOIN LEFT ON AND OR NOT CASE WHEN THEN ELSE END \
    AS INTO WITH OVER NULL IN LIKE BETWEEN IS CAST TRY_CAST TIMESTAMP PARTITION System Timestamp Window Windows \
    Tumbling Hopping Session Duration Hop Offset second COUNT SUM MIN MAX LAG LIMIT DURATION CROSS APPLY \
    DATEADD LEN COALESCE NULLIF Collect TopOne CollectTop PERCENTILE_CONT ISFIRST LAST udf. uda. ORDER DESC Id \
    MEASURES AFTER MATCH SKIP TO NEXT ROW PATTERN DEFINE First Classifier ( ? { } \
    MATCH_RECOGNIZE CREATE TABLE DISTINCT TOP input orders devices s a b c PartitionId bigint nvarchar max DATEDIFF \
    ( ( ( ) ) ) , , . . * + - / % = <> < > <= !< ~ & | ^ ; ' \" [ ] -- /* */ 1 0 2.5 1e3 'text' [x] \"y\" @ ä \u{0}";

const QUERIES: [&str; 9] = [
    "WITH s AS (SELECT a, x.*, COUNT(*) AS n FROM input TIMESTAMP BY t OVER k WHERE a > 1 GROUP BY a, x, k, Tumbling(s, 5)) \
     SELECT * INTO o FROM s WHERE n BETWEEN 1 AND 2 UNION SELECT * FROM s",
    "SELECT CASE a WHEN 1 THEN 'x' ELSE CAST(b.c AS float) END AS y, * FROM input i PARTITION BY PartitionId INTO 4 HAVING y LIKE 'a%'",
    "WITH u AS (SELECT * FROM input UNION SELECT * FROM orders), v AS (SELECT p + 1 AS p, * FROM u WHERE q IN (1, 2)) \
     SELECT p, MAX(r.z), System.Timestamp() AS t FROM v GROUP BY p, SessionWindow(minute, 1, 2) OVER (PARTITION BY k) HAVING COUNT(*) > 1",
    "SELECT a.x FROM input a LEFT JOIN orders b ON DATEDIFF(s, a, b) BETWEEN 0 AND 1 CROSS APPLY GetArrayElements(a.l) AS e",
    "SELECT LAG(a) OVER (PARTITION BY b LIMIT DURATION(s, 1) WHEN c > 1) AS l FROM (SELECT * FROM input) d TIMESTAMP BY d.t",
    "SELECT * , LAG( * , 2 ) OVER ( LIMIT DURATION( s , 1 ) ) .x AS l , SUM( a ) OVER ( PARTITION BY b LIMIT DURATION( s , 1 ) ) AS n \
     FROM input WHERE ISFIRST( mi , 5 ) = 1 AND LAST( a , 0 ) OVER ( LIMIT DURATION( s , 1 ) WHEN b > 1 ) > 1",
    "SELECT System . Window( ) .Id AS w , TopOne( ) OVER ( ORDER BY a DESC ) AS t , CollectTop( 2 , b ) OVER ( ORDER BY a , b ) AS c , \
     PERCENTILE_CONT( 0.5 ) OVER ( ORDER BY a ) AS p , COUNT( DISTINCT a ) AS d , uda.f( a ) AS u FROM input \
     GROUP BY k , Windows( Window( 'a' , Tumbling( s , 1 ) ) , Window( 'b' , Session( s , 1 , 2 ) OVER ( PARTITION BY l ) ) )",
    "SELECT * FROM input MATCH_RECOGNIZE ( LIMIT DURATION( s , 5 ) PARTITION BY k MEASURES First( A.x ) AS x , Classifier( ) AS c \
     AFTER MATCH SKIP TO NEXT ROW PATTERN ( A+ ( B | . ) ? ) DEFINE A AS A.x > 1 , B AS B.x > Max( A.x ) ) AS m",
    "SELECT DATEADD( day , LEN( a ) , t ) AS x , COALESCE( a , NULLIF( b , 1 ) ) AS y , udf.f( input , GetType( c ) ) AS z FROM input",
];

const ARGUMENTS: [&str; 14] = [
    "a",
    "i.b",
    "i",
    "day",
    "1",
    "0.5",
    "'text'",
    "NULL",
    "*",
    "\"name\"",
    "DISTINCT a",
    "System.Timestamp()",
    "ISFIRST(s, 1)",
    "MAX(a.b)",
];

const OVERS: [&str; 7] = [
    "",
    " OVER (LIMIT DURATION(s, 1))",
    " OVER (PARTITION BY a LIMIT DURATION(day, 7) WHEN i.b > 1)",
    " OVER (ORDER BY a DESC)",
    " OVER (ORDER BY i.a LIMIT DURATION(s, 1))",
    " OVER (PARTITION BY a)",
    ".Id",
];

pub(super) fn survives(query: &str) {
    for catalog in [catalog(), Catalog::open()] {
        match compile(query, &catalog) {
            Ok(compiled) => {
                well_formed(&compiled.plan);
                explain(&compiled.plan);
                lookback(&compiled.plan);
                compiled
                    .warnings
                    .iter()
                    .for_each(|w| drop(w.render(query, "q")));
            }
            Err(errors) => {
                assert!(!errors.is_empty());
                errors.iter().for_each(|e| drop(e.render(query, "q")));
            }
        }
    }
}

/// Nodes read nodes before them, and columns that these have.
fn well_formed(plan: &Plan) {
    let mut widths: Vec<usize> = Vec::new();
    for (index, node) in plan.nodes.iter().enumerate() {
        let below = node.below();
        assert!(below.iter().all(|below| below.0 < index), "{plan:?}");
        let from = below.first().map_or(0, |below| widths[below.0]);
        let width = match node {
            Node::Source { input } => {
                let input = &plan.inputs[*input];
                let exprs: Vec<&Expr> = input.timestamp.iter().chain(&input.substream).collect();
                columns_within(&exprs, input.reads.len());
                input.reads.len()
            }
            Node::Join(join) => {
                robust_joins::join_within(join, widths[join.left.0], widths[join.right.0]);
                join.columns.len()
            }
            Node::Lookup(lookup) => {
                robust_joins::lookup_within(plan, lookup, from);
                lookup.columns.len()
            }
            Node::Apply { of, columns, .. } => {
                columns_within(&[of], from);
                robust_joins::apply_within(columns, from);
                columns.len()
            }
            Node::Analytic(analytic) => {
                analytic_within(analytic, from);
                analytic.columns.len()
            }
            Node::Match(node) => {
                match_within(node, from);
                node.partition.len() + node.measures.len()
            }
            Node::Filter { keep, .. } => {
                let otherwise = Box::new(Expr {
                    kind: ExprKind::Timestamp,
                    span: keep.span,
                });
                let then = Expr {
                    kind: ExprKind::Timestamp,
                    span: keep.span,
                };
                let kind = ExprKind::Case {
                    branches: vec![(keep.clone(), then)],
                    otherwise,
                };
                columns_within(
                    &[&Expr {
                        kind,
                        span: keep.span,
                    }],
                    from,
                );
                from
            }
            Node::Project { items, .. } => {
                assert!(!items.is_empty());
                columns_within(
                    &items.iter().map(|item| &item.expr).collect::<Vec<_>>(),
                    from,
                );
                items.len()
            }
            Node::Window(window) => {
                let keys = window.keys.iter().map(|key| &key.expr);
                let arguments = window.aggregates.iter().filter_map(|a| a.argument.as_ref());
                columns_within(&keys.chain(arguments).collect::<Vec<_>>(), from);
                window.keys.len() + window.aggregates.len()
            }
            Node::Union { from, names } => {
                for (branch, map) in from {
                    assert_eq!(map.len(), names.len());
                    assert!(
                        map.iter().all(|column| *column < widths[branch.0]),
                        "{plan:?}"
                    );
                }
                names.len()
            }
        };
        widths.push(width);
    }
    assert!(
        plan.outputs
            .iter()
            .all(|output| output.from.0 < plan.nodes.len())
    );
}

fn analytic_within(analytic: &AnalyticNode, width: usize) {
    assert!(!analytic.calls.is_empty(), "{analytic:?}");
    for column in &analytic.columns {
        match column {
            AnalyticColumn::Carried(column) => assert!(*column < width, "{analytic:?}"),
            AnalyticColumn::Call(call) => assert!(*call < analytic.calls.len(), "{analytic:?}"),
        }
    }
    for call in &analytic.calls {
        let mut exprs: Vec<&Expr> = call.partition.iter().collect();
        match &call.function {
            Analytic::Lag { of, default, .. } | Analytic::Last { of, default } => {
                exprs.push(of);
                exprs.extend(default);
            }
            Analytic::Aggregate(of) => {
                exprs.extend(&of.argument);
                exprs.extend(of.order.iter().map(|key| &key.expr));
            }
            _ => {}
        }
        columns_within(&exprs, width);
        call.when.iter().for_each(|when| pred_within(when, width));
    }
}

fn match_within(node: &MatchNode, width: usize) {
    let picked = |of: &MatchRef| match of {
        MatchRef::Picked { variable, of, .. } => {
            assert!(*variable < node.variables.len(), "{node:?}");
            columns_within(&[of], width);
        }
        MatchRef::Collected { of } => columns_within(&[of], width),
        MatchRef::Classifier => {}
    };
    node.refs.iter().for_each(picked);
    node.partition
        .iter()
        .for_each(|key| columns_within(&[&key.expr], width));
    assert_eq!(node.defines.len(), node.variables.len());
    let refs = node.refs.len();
    node.defines
        .iter()
        .flatten()
        .for_each(|define| pred_within(define, refs));
    node.measures
        .iter()
        .for_each(|measure| columns_within(&[&measure.expr], refs));
}

pub(super) fn pred_within(pred: &Pred, width: usize) {
    pred.visit(|e| columns_within(&[e], width));
}

pub(super) fn columns_within(exprs: &[&Expr], width: usize) {
    for expr in exprs {
        expr.visit(|e| {
            if let ExprKind::Column(column) = e.kind {
                assert!(column < width, "column {column} of {width}");
            }
        });
    }
}

/// A step over one of the sources before it; some are wrong, most are not.
fn step(index: usize, pick: (usize, usize, usize, usize)) -> String {
    let (form, from, x, y) = pick;
    let names = ["a", "b", "c", "PartitionId", "r.d"];
    let (x, y) = (names[x % names.len()], names[y % names.len()]);
    let source = |of: usize| match of % (index + 2) {
        0 => "input".to_string(),
        1 => "orders".to_string(),
        step => format!("s{}", step - 2),
    };
    let (s, t) = (source(from), source(from / 7));
    match form % 14 {
        0 => format!("SELECT * FROM {s} WHERE {x} > 1"),
        1 => format!("SELECT {x} + 1 AS a, * FROM {s} WHERE {y} = 1"),
        2 => format!(
            "SELECT {x} AS a, {y} AS b, 1 AS c, System.Timestamp() AS PartitionId, r FROM {s}"
        ),
        3 => format!("SELECT * FROM {s} UNION SELECT * FROM {t} WHERE {y} IS NULL"),
        4 => format!(
            "SELECT {x} AS a, COUNT({y}) AS b, MAX({y}) AS c FROM {s} GROUP BY {x}, Tumbling(s, 5)"
        ),
        5 => format!("SELECT a, b FROM {s} UNION SELECT {x} AS a, {y} AS b FROM {t}"),
        6 => format!("SELECT r.*, {x} AS a, {y} AS b FROM {s} WHERE {x} = {y}"),
        7 => format!(
            "SELECT COUNT(*) AS a FROM {s} PARTITION BY {x} GROUP BY Hopping(s, 5, 1) HAVING SUM({y}) > 1"
        ),
        8 => format!(
            "SELECT *, LAG({x}) OVER (PARTITION BY {y} LIMIT DURATION(s, 1)) AS l FROM {s} WHERE {x} > 1"
        ),
        9 => format!(
            "SELECT ISFIRST(s, 1) AS a, SUM({x}) OVER (LIMIT DURATION(s, 1) WHEN {y} > 1) AS b, r, c FROM {s} WHERE LAST({y}) OVER (LIMIT DURATION(s, 2)) = 1"
        ),
        10 => format!(
            "SELECT {x} AS a, System.Window().Id AS b, TopOne({y}) OVER (ORDER BY {x}) AS c, Collect() AS d FROM {s} \
             GROUP BY {x}, LAG({y}) OVER (LIMIT DURATION(s, 1)), Windows(Tumbling(s, 5), Session(s, 1, 2) OVER (PARTITION BY {y}))"
        ),
        11 => format!(
            "SELECT * FROM {s} MATCH_RECOGNIZE (LIMIT DURATION(s, 5) PARTITION BY {x} MEASURES First(U.{y}) AS b, V.r.d AS c \
             AFTER MATCH SKIP TO NEXT ROW PATTERN (U+ V?) DEFINE U AS U.{y} > Max(U.{x})) AS m"
        ),
        12 => format!(
            "SELECT DATEADD(day, {x}, {y}) AS a, COALESCE({x}, NULLIF({y}, 1)) AS b, udf.f({s}, {y}) AS c FROM {s}"
        ),
        _ => format!("SELECT z.*, {x} AS e FROM (SELECT {y} AS f, * FROM {s}) z WHERE {y} < 2"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    // proves S2
    #[test]
    fn token_soup_never_panics(picks in prop::collection::vec(0usize..1000, 0..40), start in any::<bool>()) {
        let words: Vec<&str> = WORDS.split_ascii_whitespace().collect();
        let soup: Vec<&str> = picks.iter().map(|pick| words[pick % words.len()]).collect();
        survives(&format!("{}{}", if start { "SELECT a FROM input " } else { "" }, soup.join(" ")));
    }

    // proves S2
    #[test]
    fn mutated_queries_never_panic(which in 0..QUERIES.len(), cuts in prop::collection::vec((any::<u16>(), any::<u16>(), 0..4u8), 1..6)) {
        let words: Vec<&str> = WORDS.split_ascii_whitespace().collect();
        let mut tokens: Vec<String> = QUERIES[which].split(' ').map(str::to_string).collect();
        for (at, with, how) in cuts {
            let at = at as usize % tokens.len();
            let word = words[with as usize % words.len()].to_string();
            match how {
                0 if tokens.len() > 1 => drop(tokens.remove(at)),
                1 => tokens.insert(at, word),
                2 => tokens[at] = word,
                _ => {
                    let other = with as usize % tokens.len();
                    tokens.swap(at, other);
                }
            }
        }
        survives(&tokens.join(" "));
    }

    // proves S2
    #[test]
    fn plans_of_random_steps_are_well_formed(picks in prop::collection::vec(any::<(usize, usize, usize, usize)>(), 1..8)) {
        let steps: Vec<String> =
            picks.iter().enumerate().map(|(i, pick)| format!("s{i} AS ({})", step(i, *pick))).collect();
        let last = picks.len() - 1;
        let with = format!("WITH {}", steps.join(", "));
        survives(&format!("{with} SELECT * INTO x FROM s{last} SELECT a INTO y FROM s{}", last / 2));
        survives(&format!("{with} SELECT COUNT(*) FROM s{last} GROUP BY Sliding(s, 1)"));
    }

    // proves S2
    #[test]
    fn random_calls_never_panic(which in any::<prop::sample::Index>(), args in prop::collection::vec(0..ARGUMENTS.len(), 0..5),
        over in 0..OVERS.len(), group in any::<bool>()) {
        let info = which.get(functions::table());
        let args: Vec<&str> = args.into_iter().map(|arg| ARGUMENTS[arg]).collect();
        let call = format!("{}({}){}", info.name, args.join(", "), OVERS[over]);
        let group = if group { "GROUP BY a, Tumbling(s, 1)" } else { "" };
        survives(&format!("SELECT {call} AS x FROM input WHERE b > 1 {group}"));
        survives(&format!("SELECT a FROM input WHERE {call} = 1 GROUP BY {call}, a, Windows(Sliding(s, 1)) HAVING {call} > 1"));
        survives(&format!(
            "SELECT i.a, {call} AS y FROM input i JOIN orders o ON DATEDIFF(s, i, o) BETWEEN 0 AND 1 AND {call} = o.a"
        ));
        survives(&format!(
            "SELECT * FROM input MATCH_RECOGNIZE (LIMIT DURATION(s, 5) MEASURES {call} AS b AFTER MATCH SKIP TO NEXT ROW \
             PATTERN (a i) DEFINE i AS {call} > 1) AS m"
        ));
    }

    // proves S2
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,80}") {
        survives(&text);
        survives(&format!("SELECT {text} FROM input"));
    }
}

// proves S2
#[test]
fn the_queries_that_are_mutated_are_understood() {
    accepts(&QUERIES);
}

// proves S2
#[test]
fn nesting_has_a_limit_instead_of_an_overflow() {
    for depth in [90, 99, 101, 5_000, 100_000] {
        let (open, close) = ("(".repeat(depth), ")".repeat(depth));
        survives(&format!("SELECT {open}a{close} AS x FROM input"));
        survives(&format!("SELECT a FROM input WHERE {open}a = 1{close}"));
        survives(&format!("SELECT a FROM {open}input{close}"));
        survives(&format!("{open}SELECT a FROM input{close}"));
        survives(&format!(
            "SELECT {} AS x FROM input",
            "CASE WHEN a = 1 THEN ".repeat(depth)
        ));
        survives(&format!("SELECT {}a FROM input", "- ".repeat(depth)));
        survives(&format!(
            "SELECT a FROM input WHERE {} a = 1",
            "NOT ".repeat(depth)
        ));
        survives(&format!(
            "SELECT {}a{close} AS x FROM input",
            "ABS(".repeat(depth)
        ));
        survives(&format!(
            "SELECT {}input{}",
            "a FROM (SELECT ".repeat(depth),
            ") d".repeat(depth)
        ));
        survives(&format!("SELECT a{} AS x FROM input", " + a".repeat(depth)));
        survives(&format!("SELECT a{} AS x FROM input", ".b".repeat(depth)));
    }
}

// proves S2
#[test]
fn a_thousand_alternatives_are_no_deep_tree() {
    let many = vec!["a = 1"; 1000].join(" OR ");
    accepts(&[&format!("SELECT a FROM input WHERE {many}")]);
}

// proves S2
#[test]
fn steps_on_steps_on_steps_neither_overflow_nor_explode() {
    let mut chain = "WITH s0 AS (SELECT * FROM input TIMESTAMP BY t WHERE a > 0)".to_string();
    for step in 1..190 {
        let from = step - 1;
        chain += &format!(
            ", s{step} AS (SELECT * FROM s{from} WHERE b{step} > 1 UNION SELECT * FROM s{from})"
        );
    }
    survives(&format!(
        "{chain} SELECT z, COUNT(*) AS n FROM s189 GROUP BY z, Tumbling(s, 1)"
    ));
}

// proves S2
#[test]
fn nested_simple_cases_do_not_explode() {
    let mut case = "a".to_string();
    for _ in 0..60 {
        case = format!("CASE {case} WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END");
    }
    rejects_one(
        &format!("SELECT {case} AS x FROM input"),
        "this CASE is too large",
    );
}

// proves S2
#[test]
fn a_text_of_many_megabytes_is_refused() {
    let query = format!("SELECT a FROM input -- {}", "x".repeat(5 << 20));
    rejects_one(&query, "the query is longer than 4194304 bytes");
}
