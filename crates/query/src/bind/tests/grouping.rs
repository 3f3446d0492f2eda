use expect_test::expect;

use super::{accepts, check, rejects, rejects_one, table, warns};

// proves S1
#[test]
fn every_window_takes_both_forms_of_arguments() {
    let cases = r#"
        TumblingWindow(second, 10) => TumblingWindow(Duration(second, 10))
        Tumbling(minute, 60, -5) => TumblingWindow(Duration(hour, 1), Offset(minute, -5))
        tumbling(Duration(ss, 1.5), Offset(ms, -1)) => TumblingWindow(Duration(millisecond, 1500), Offset(millisecond, -1))
        HoppingWindow(mi, 10, 5) => HoppingWindow(Duration(minute, 10), Hop(minute, 5))
        Hopping(second, 10, 5, 1) => HoppingWindow(Duration(second, 10), Hop(second, 5), Offset(second, 1))
        Hopping(Duration(hh, 1), Hop(n, 1), Offset(mcs, 3)) => HoppingWindow(Duration(hour, 1), Hop(minute, 1), Offset(microsecond, 3))
        SlidingWindow(days, 7) => SlidingWindow(Duration(day, 7))
        Sliding(Duration(s, 2 * 30)) => SlidingWindow(Duration(minute, 1))
        SessionWindow(minute, 5, 10) => SessionWindow(Timeout(minute, 5), MaxDuration(minute, 10))
        Session(Timeout(s, 20), MaxDuration(mi, 1)) => SessionWindow(Timeout(second, 20), MaxDuration(minute, 1))
        System.Timestamp() => System.Timestamp()
        System.Timestamp => System.Timestamp()
    "#;
    for (written, expected) in table(cases) {
        let shown = super::plan(&format!("SELECT COUNT(*) FROM input GROUP BY {written}"));
        assert!(
            shown.contains(&format!("group by {expected} computing")),
            "{written}\n{shown}"
        );
    }
}

// proves S1
#[test]
fn sizes_are_positive_constants_of_at_most_seven_days() {
    check(
        "SELECT COUNT(*) FROM input GROUP BY TumblingWindow(day, 8)",
        expect![[r#"
            error[HW1504]: a window is at most 7 days long
             --> q:1:57
              |
            1 | SELECT COUNT(*) FROM input GROUP BY TumblingWindow(day, 8)
              |                                                         ^ this is 8 days
        "#]],
    );
    let of = |window: &str| format!("SELECT COUNT(*) FROM input GROUP BY {window}");
    let cases = r#"
        Tumbling(s, 0) => the size of a window must be positive
        Hopping(s, 10, -5) => the size of a window must be positive
        Sliding(s, x) => the size of a window must be a constant
        Tumbling(s, 1e300) => a window is at most 7 days long
        Tumbling(s, 0.00000001) => this is shorter than a tick of 100 ns
        Session(day, 1, 8) => a window is at most 7 days long
        Tumbling(day, 1, 8) => the offset of a window is at most 7 days either way
        Tumbling(secnd, 1) => `secnd` is not a unit for a window
        Tumbling('second', 1) => the unit is a bare word: second
        Tumbling(month, 1) => `month` is not a unit for a window
        Tumbling(s) => these are not the arguments of TumblingWindow
        Tumbling() => these are not the arguments of TumblingWindow
        Hopping(s, 1) => these are not the arguments of HoppingWindow
        Sliding(Duration(s, 1), Offset(s, 1)) => these are not the arguments of SlidingWindow
        Session(Timeout(s, 1), Timeout(s, 1)) => these are not the arguments of SessionWindow
        Tumbling(s, 1) OVER (PARTITION BY k) => TumblingWindow has no OVER
        Session(s, 1, 2) OVER (ORDER BY k) => a session takes OVER (PARTITION BY ..) and nothing else
        Window('a', Tumbling(s, 1)) => Window('id', ..) is allowed only inside Windows(..)
        Windows(Windows(Tumbling(s, 1))) => Windows(..) cannot be inside Windows(..)
        Windows(Window('a', Tumbling(s, 1)), Sliding(s, 1)) => either all windows have an id or none has
        Windows(Window('a', Tumbling(s, 1)), Window('A', Sliding(s, 1))) => two windows have this id; ids ignore case
        Windows(Window(NULL, Tumbling(s, 1))) => the id of a window is a text, as in Window('1 minute', ..)
        1 + Tumbling(s, 1), Sliding(s, 1) => Tumbling cannot be part of an expression
    "#;
    for (window, message) in table(cases) {
        rejects_one(&of(window), message);
    }
}

// proves S1
#[test]
fn grouping_needs_exactly_one_window() {
    check(
        "SELECT k FROM input GROUP BY k",
        expect![[r#"
            error[HW1503]: a window must be specified in GROUP BY
             --> q:1:21
              |
            1 | SELECT k FROM input GROUP BY k
              |                     ^^^^^^^^^^ groups never end without a window
              = help: add for example TumblingWindow(second, 10), or System.Timestamp()
        "#]],
    );
    rejects(
        r#"
        SELECT k FROM input GROUP BY k, Tumbling(s, 1), Sliding(s, 1) => GROUP BY takes one window
    "#,
    );
}

// proves S1
#[test]
fn the_timestamp_beside_a_window_is_an_ordinary_key() {
    check(
        "SELECT System.Timestamp() AS t, COUNT(*) FROM input GROUP BY System.Timestamp(), Tumbling(hour, 2)",
        expect![[r#"
            output output
              select System.Timestamp() AS t, COUNT(*) AS count
                group by TumblingWindow(Duration(hour, 2)), System.Timestamp() AS timestamp computing COUNT(*)
                  source input
                    reads no fields
        "#]],
    );
}

// proves S1
#[test]
fn select_items_are_recognised_as_group_keys() {
    check(
        "SELECT a + 1 AS x, (i.A + 1) * 2 AS y, r.f.g, CASE WHEN b > 1 THEN 'x' ELSE 'y' END AS z
         FROM input i GROUP BY a + 1, r, CASE WHEN i.b > 1 THEN 'x' ELSE 'y' END, Tumbling(s, 1)",
        expect![[r#"
            output output
              select expr1 AS x, expr1 * 2 AS y, r.f.g AS g, expr3 AS z
                group by TumblingWindow(Duration(second, 1)), a + 1 AS expr1, r, CASE WHEN b > 1 THEN 'x' ELSE 'y' END AS expr3
                  source input
                    reads a, r, b
        "#]],
    );
}

// proves S1 S2
#[test]
fn what_is_neither_grouped_nor_aggregated_is_an_error() {
    check(
        "SELECT k, temperature FROM input GROUP BY k, Tumbling(second, 10)",
        expect![[r#"
            error[HW1505]: `temperature` is neither grouped nor aggregated
             --> q:1:11
              |
            1 | SELECT k, temperature FROM input GROUP BY k, Tumbling(second, 10)
              |           ^^^^^^^^^^^ a group has many values of this
              = help: add temperature to GROUP BY, or aggregate it: MAX(temperature)
        "#]],
    );
    rejects(
        r#"
        SELECT * FROM input GROUP BY k, Tumbling(s, 1) => a group has no `*`
        SELECT i.* FROM input i GROUP BY k, Tumbling(s, 1) => a group has no `*`
        SELECT input FROM input GROUP BY k, Tumbling(s, 1) => `input` is the whole event, and a group has many
        SELECT k FROM input GROUP BY k, Tumbling(s, 1) HAVING v > 1 => `v` is neither grouped nor aggregated
    "#,
    );
}

// proves S1
#[test]
fn aggregates_stand_in_select_and_having_of_grouped_queries_only() {
    rejects(
        r#"
        SELECT COUNT(*) FROM input => COUNT needs a GROUP BY with a window
        SELECT a FROM input HAVING SUM(a) > 1 => SUM needs a GROUP BY with a window
        SELECT a FROM input WHERE SUM(a) > 1 => WHERE cannot use SUM
        SELECT 1 AS x FROM input GROUP BY MAX(a), Tumbling(s, 1) => GROUP BY cannot use MAX
        SELECT SUM(AVG(a)) FROM input GROUP BY Tumbling(s, 1) => AVG cannot be inside another aggregate
        SELECT SUM(STDEV(a)) FROM input GROUP BY Tumbling(s, 1) => STDEV cannot be inside another aggregate
        SELECT SUM(DISTINCT a) FROM input GROUP BY Tumbling(s, 1) => DISTINCT exists for COUNT only
        SELECT COUNT(DISTINCT a) OVER (LIMIT DURATION(s, 1)) FROM input => COUNT(DISTINCT ..) cannot have an OVER
        SELECT SUM(a) OVER (PARTITION BY b) FROM input => SUM needs OVER (.. LIMIT DURATION(unit, n))
        SELECT SUM(*) FROM input GROUP BY Tumbling(s, 1) => SUM takes one argument
        SELECT COUNT(a, b) FROM input GROUP BY Tumbling(s, 1) => COUNT takes at most one argument
    "#,
    );
}

// proves S1
#[test]
fn all_spellings_of_counting_events_are_one_aggregate() {
    check(
        "SELECT COUNT(*) AS a, COUNT() AS b, COUNT(i) AS c, COUNT(x) AS d, COUNT(ALL x) AS e
         FROM input i GROUP BY Tumbling(s, 1) HAVING COUNT(*) > 1",
        expect![[r#"
            output output
              select COUNT(*) AS a, COUNT(*) AS b, COUNT(*) AS c, COUNT(x) AS d, COUNT(x) AS e
                filter COUNT(*) > 1
                  group by TumblingWindow(Duration(second, 1)) computing COUNT(*), COUNT(x)
                    source input
                      reads x
        "#]],
    );
}

// proves S1
#[test]
fn having_may_use_aliases_but_where_and_group_by_may_not() {
    accepts(&[
        "SELECT AVG(a) AS m FROM input GROUP BY Tumbling(s, 1) HAVING m > 1",
        "SELECT CAST(x AS bigint) AS x FROM input WHERE x > 1",
        "SELECT a AS b FROM input WHERE input.b > 1",
        "SELECT a AS b, b AS a FROM input WHERE b > 1",
        "SELECT System.Timestamp() AS time FROM input TIMESTAMP BY time WHERE time > '2024'",
    ]);
    check(
        "SELECT a + 1 AS b FROM input HAVING b > 3",
        expect![[r#"
        output output
          select a + 1 AS b
            filter a + 1 > 3
              source input
                reads a
    "#]],
    );
    check(
        "SELECT a + 1 AS b FROM input WHERE b > 3",
        expect![[r#"
        error[HW1208]: WHERE cannot use the alias `b`
         --> q:1:36
          |
        1 | SELECT a + 1 AS b FROM input WHERE b > 3
          |                                    ^ WHERE runs before the SELECT list
          = help: repeat the expression, or write input.b for a field of the event
    "#]],
    );
    rejects(
        r#"
        SELECT a + 1 AS b, COUNT(*) FROM input GROUP BY b, Tumbling(s, 1) => GROUP BY cannot use the alias `b`
    "#,
    );
}

// proves S1
#[test]
fn what_partitions_the_events_is_a_key() {
    check(
        "SELECT COUNT(*) FROM input PARTITION BY PartitionId GROUP BY Tumbling(s, 1)",
        expect![[r#"
            output output
              select COUNT(*) AS count
                group by TumblingWindow(Duration(second, 1)), COALESCE(PartitionId, partition) AS PartitionId computing COUNT(*)
                  source input
                    reads PartitionId, partition
        "#]],
    );
    warns(
        "SELECT COUNT(*) FROM input PARTITION BY k GROUP BY Tumbling(s, 1)",
        expect![[r#"
            warning[HW1502]: `k` partitions the events, so it is a group key too
             --> q:1:41
              |
            1 | SELECT COUNT(*) FROM input PARTITION BY k GROUP BY Tumbling(s, 1)
              |                                         ^
              = help: add k to GROUP BY to make that visible
        "#]],
    );
    warns(
        "SELECT k, COUNT(*) FROM input PARTITION BY k GROUP BY k, Tumbling(s, 1)",
        expect![[""]],
    );
    rejects(
        r#"
        SELECT a FROM input PARTITION BY a INTO 1 => PARTITION BY .. INTO needs at least 2 partitions
        WITH s AS (SELECT a FROM input) SELECT a FROM s PARTITION BY b => there is no column `b`
    "#,
    );
}

// proves S1
#[test]
fn only_partition_by_partition_id_keeps_partitions_apart() {
    let by_partition = |query: &str| {
        let compiled = crate::compile(query, &super::catalog()).unwrap_or_else(|e| panic!("{e:?}"));
        let mut windows = compiled.plan.nodes.iter().filter_map(|node| match node {
            crate::plan::Node::Window(window) => Some(window.by_partition),
            _ => None,
        });
        windows.next_back()
    };
    let group = "GROUP BY PartitionId, Tumbling(s, 1)";
    assert_eq!(
        by_partition(&format!(
            "SELECT COUNT(*) FROM input PARTITION BY partitionid {group}"
        )),
        Some(true)
    );
    assert_eq!(
        by_partition(&format!("SELECT COUNT(*) FROM input {group}")),
        Some(false)
    );
    let step = "WITH s AS (SELECT * FROM input)";
    assert_eq!(
        by_partition(&format!(
            "{step} SELECT COUNT(*) FROM s PARTITION BY PartitionId {group}"
        )),
        Some(true)
    );
}

// proves S1
#[test]
fn session_keys_are_group_keys() {
    check(
        "SELECT COUNT(*) FROM input GROUP BY a, Session(s, 5, 10) OVER (PARTITION BY k, a)",
        expect![[r#"
            output output
              select COUNT(*) AS count
                group by SessionWindow(Timeout(second, 5), MaxDuration(second, 10)) OVER (PARTITION BY k, a), a, k computing COUNT(*)
                  source input
                    reads a, k
        "#]],
    );
}

// proves S1
#[test]
fn a_hop_longer_than_the_window_is_odd() {
    warns(
        "SELECT COUNT(*) FROM input GROUP BY Hopping(s, 5, 10)",
        expect![[r#"
            warning[HW1504]: this hop is longer than the window, so events between windows are ignored
             --> q:1:37
              |
            1 | SELECT COUNT(*) FROM input GROUP BY Hopping(s, 5, 10)
              |                                     ^^^^^^^^^^^^^^^^^
              = help: the arguments are (unit, window size, hop size)
        "#]],
    );
}
