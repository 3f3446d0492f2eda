//! Rules that published queries asked for (section 15 of the specification).

use expect_test::expect;

use super::{accepts, catalog, rejects, warns};
use crate::plan::{Node, Plan};

fn compiled(query: &str) -> Plan {
    let compiled = super::compile(query, &catalog());
    compiled
        .unwrap_or_else(|errors| panic!("{query}: {errors:?}"))
        .plan
}

// proves S1
#[test]
fn names_of_over_ignore_case() {
    accepts(&[
        "SELECT DEVICE, COUNT(*) AS n FROM input TIMESTAMP BY t OVER device GROUP BY Device, Tumbling(s, 1)",
        "SELECT a INTO x FROM input TIMESTAMP BY t OVER k SELECT b INTO y FROM input TIMESTAMP BY T OVER K",
        "SELECT i.a AS a FROM input i TIMESTAMP BY t OVER k JOIN orders o TIMESTAMP BY t OVER K \
         ON i.K = o.k AND DATEDIFF(s, i, o) BETWEEN 0 AND 1",
    ]);
    rejects(
        "SELECT k FROM input TIMESTAMP BY t OVER device GROUP BY k, Tumbling(s, 1) => `device` must be a key here, because `input` has a timeline per `device`",
    );
}

// proves S1
#[test]
fn the_partition_travels_with_the_rows() {
    let by_partition = |query: &str| {
        let nodes = compiled(query).nodes;
        let windows = nodes.iter().filter_map(|node| match node {
            Node::Window(window) => Some(window.by_partition),
            _ => None,
        });
        windows.collect::<Vec<_>>()
    };
    let step = "WITH a AS (SELECT v, COUNT(*) AS n FROM input PARTITION BY PartitionId GROUP BY v, PartitionId, Tumbling(s, 1))";
    let last = "PARTITION BY PartitionId GROUP BY PartitionId, Tumbling(s, 2)";
    assert_eq!(
        by_partition(&format!("{step} SELECT SUM(n) AS n FROM a {last}")),
        [true, true]
    );
    let union = "WITH a AS (SELECT v FROM input), b AS (SELECT v FROM orders), u AS (SELECT v FROM a UNION SELECT v FROM b)";
    assert_eq!(
        by_partition(&format!("{union} SELECT COUNT(*) AS n FROM u {last}")),
        [true]
    );
    let joined = "WITH j AS (SELECT i.v AS v FROM input i JOIN devices d ON i.k = d.k)";
    assert_eq!(
        by_partition(&format!(
            "{joined} SELECT MAX(partitionid) AS p FROM j GROUP BY Tumbling(s, 1)"
        )),
        [false]
    );
    rejects(
        "WITH a AS (SELECT COUNT(*) AS n FROM input GROUP BY Tumbling(s, 1)) SELECT n FROM a PARTITION BY PartitionId => there is no column `PartitionId`",
    );
}

// proves S1
#[test]
fn cross_join_looks_rows_up_by_the_equalities_of_where() {
    let keys = |query: &str| {
        let nodes = compiled(query).nodes;
        let lookup = nodes.iter().find_map(|node| match node {
            Node::Lookup(lookup) => Some(lookup.keys.len()),
            _ => None,
        });
        lookup.expect("a lookup")
    };
    let query = "SELECT i.a AS a FROM input i CROSS JOIN devices d";
    assert_eq!(keys(query), 0);
    assert_eq!(keys(&format!("{query} WHERE i.k = d.k AND d.b = i.b")), 2);
    assert_eq!(keys(&format!("{query} WHERE i.k = d.k OR d.b = i.b")), 0);
    assert_eq!(keys(&format!("{query} WHERE i.k > d.k AND d.b = 1")), 0);
    let query = format!("{query} CROSS JOIN devices e WHERE d.k = e.k AND i.k = d.k");
    assert_eq!(
        keys(&query),
        1,
        "the first table knows nothing of the second"
    );
    rejects(
        "SELECT i.a FROM input i CROSS JOIN orders o => CROSS JOIN takes reference data, and this is a stream",
    );
}

// proves S1 S2
#[test]
fn odd_text_and_names_are_warned_of() {
    warns(
        "SELECT i.a AS a, \"two words\" AS b, \"\" AS c FROM input i JOIN devices d ON i.k = d.k",
        expect![[r#"
            warning[HW1208]: "two words" is taken for a text
             --> q:1:18
              |
            1 | SELECT i.a AS a, "two words" AS b, "" AS c FROM input i JOIN devices d ON i.k = d.k
              |                  ^^^^^^^^^^^
              = help: write 'two words' for the text
        "#]],
    );
    rejects(
        "SELECT i.a AS a, \"word\" AS b FROM input i JOIN devices d ON i.k = d.k => `word` does not say which source it is a column of",
    );
    warns(
        "SELECT a, CURRENT_TIMESTAMP AS now FROM input",
        expect![[r#"
            warning[HW1208]: `CURRENT_TIMESTAMP` is read as a column of that name
             --> q:1:11
              |
            1 | SELECT a, CURRENT_TIMESTAMP AS now FROM input
              |           ^^^^^^^^^^^^^^^^^
              = help: the time of an event or result is System.Timestamp()
        "#]],
    );
}

// proves S1
#[test]
fn counts_of_patterns_are_written_out() {
    let pattern = |pattern: &str| {
        let query = format!(
            "SELECT * FROM input MATCH_RECOGNIZE (LIMIT DURATION(minute, 1) MEASURES A.x AS x \
             AFTER MATCH SKIP TO NEXT ROW PATTERN ({pattern}) DEFINE A AS A.x > 1) AS m"
        );
        let nodes = compiled(&query).nodes;
        let pattern = nodes.into_iter().find_map(|node| match node {
            Node::Match(node) => Some(node.pattern),
            _ => None,
        });
        pattern.expect("a pattern")
    };
    for (counted, written) in [
        ("A{1}", "A"),
        ("A{3}", "A A A"),
        ("A{0,}", "A*"),
        ("A{1,}", "A+"),
        ("A{2,}", "A A+"),
        ("A{,1}", "A?"),
        ("A{,2}", "(A A?)?"),
        ("A{2,4}", "A A (A A?)?"),
        ("(A .){1,2}", "A . (A .)?"),
    ] {
        let flat = |text: String| text.replace("Sequence([", "").replace("])", "");
        let [counted, written] = [counted, written].map(|of| flat(format!("{:?}", pattern(of))));
        assert_eq!(counted, written);
    }
}

/// The state of live jobs is tied to the text of their plan: plans of earlier versions must not change.
// proves R3
#[test]
fn settings_that_are_new_do_not_show_in_plans() {
    let query = "SELECT MIN(v) AS v, TopOne(a) OVER (ORDER BY CAST(b AS nvarchar(max)) DESC) AS a FROM input GROUP BY Tumbling(s, 1)";
    let text = format!("{:?}", compiled(query));
    assert!(!text.contains("strict_types"), "{text}");
    assert!(text.contains("descending: true }]"), "{text}");
    assert!(text.contains("as_text: false, span:"), "{text}");
    let mut strict = catalog();
    strict.strict_types = true;
    let plan = super::compile(query, &strict).expect("it is fine").plan;
    assert!(format!("{plan:?}").contains("as_text: false, strict_types: true, span:"));
}
