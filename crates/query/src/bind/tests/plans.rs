use expect_test::expect;
use highwater_time::TICKS_PER_MINUTE;

use super::{accepts, check, plan};
use crate::{Catalog, compile, explain, lookback};

// proves S1
#[test]
fn a_filter_and_a_projection_read_only_what_they_name() {
    check(
        "SELECT a, b.c AS d FROM input WHERE a > 5 AND b.c IS NOT NULL",
        expect![[r#"
            output output
              select a, b.c AS d
                filter a > 5 AND b.c IS NOT NULL
                  source input
                    reads a, b.c
        "#]],
    );
}

// proves S1
#[test]
fn operators_print_back_with_the_parentheses_they_need() {
    check(
        "SELECT (a + b) * c AS x, a + b * c AS y, -(a - (b - c)) AS z, ~a | 3 AS w, a % 2 & 1 AS v
         FROM input WHERE NOT (a = 1 OR b = 2) AND (c !< 1 OR c !> 2) AND a NOT IN (1, 'it''s', NULL)
         AND d NOT LIKE 'x%' AND e NOT BETWEEN 1 AND 2.5",
        expect![[r#"
            output output
              select (a + b) * c AS x, a + b * c AS y, -(a - (b - c)) AS z, ~a | 3 AS w, a % 2 & 1 AS v
                filter NOT (a = 1 OR b = 2) AND (c >= 1 OR c <= 2) AND a NOT IN (1, 'it''s', NULL) AND d NOT LIKE 'x%' AND e NOT BETWEEN 1 AND 2.5
                  source input
                    reads a, b, c, d, e
        "#]],
    );
}

// proves S1
#[test]
fn both_forms_of_case_become_conditions() {
    check(
        "SELECT CASE a WHEN 1 THEN 'one' ELSE 'many' END AS s,
                CASE WHEN a > 1 THEN b ELSE NULL END AS t FROM input",
        expect![[r#"
            output output
              select CASE WHEN a = 1 THEN 'one' ELSE 'many' END AS s, CASE WHEN a > 1 THEN b ELSE NULL END AS t
                source input
                  reads a, b
        "#]],
    );
}

// proves S1
#[test]
fn a_grouped_query_is_window_then_having_then_list() {
    check(
        "SELECT k, COUNT(*) AS n, SUM(v) / COUNT(*) AS mean, System.Timestamp() AS t
         INTO out FROM input TIMESTAMP BY time WHERE v > 0
         GROUP BY k, TumblingWindow(second, 10) HAVING n > 3 AND MAX(v) < 100",
        expect![[r#"
            output out
              select k, COUNT(*) AS n, SUM(v) / COUNT(*) AS mean, System.Timestamp() AS t
                filter COUNT(*) > 3 AND MAX(v) < 100
                  group by TumblingWindow(Duration(second, 10)), k computing COUNT(*), SUM(v), MAX(v)
                    filter v > 0
                      source input timestamp by time
                        reads time as datetime, v, k
        "#]],
    );
}

// proves S1
#[test]
fn a_field_cast_to_datetime_is_read_once_with_the_clock() {
    check(
        "SELECT k, MIN(CAST(t AS datetime)) AS s, MAX(TRY_CAST(t AS datetime)) AS e INTO out
         FROM input TIMESTAMP BY t WHERE CAST(u AS datetime) > t GROUP BY k, Tumbling(minute, 1)",
        expect![[r#"
            output out
              select k, MIN(CAST(t AS datetime)) AS s, MAX(TRY_CAST(t AS datetime)) AS e
                group by TumblingWindow(Duration(minute, 1)), k computing MIN(CAST(t AS datetime)), MAX(TRY_CAST(t AS datetime))
                  filter CAST(u AS datetime) > t
                    source input timestamp by t
                      reads t as datetime, u as datetime, t, k
        "#]],
    );
}

// proves S1
#[test]
fn a_shared_step_is_planned_once() {
    let query = "WITH s AS (SELECT k, COUNT(*) AS n FROM input TIMESTAMP BY t GROUP BY k, Tumbling(minute, 1))
         SELECT * INTO a FROM s SELECT k INTO b FROM s WHERE n > 1";
    check(
        query,
        expect![[r#"
            output a
              select k, n
                #2 select k, COUNT(*) AS n
                  group by TumblingWindow(Duration(minute, 1)), k computing COUNT(*)
                    source input timestamp by t
                      reads t as datetime, k
            output b
              select k
                filter n > 1
                  #2 as above
        "#]],
    );
}

// proves S1
#[test]
fn an_unused_step_leaves_no_trace_in_the_plan() {
    check(
        "WITH s AS (SELECT * FROM orders) SELECT a FROM input",
        expect![[r#"
            output output
              select a
                source input
                  reads a
        "#]],
    );
}

// proves S1
#[test]
fn explain_says_what_can_run_per_partition_and_how_far_a_start_reads_back() {
    let query = "WITH s AS (SELECT k, PartitionId AS p, COUNT(*) AS n FROM input TIMESTAMP BY t
             GROUP BY k, PartitionId, Hopping(minute, 10, 1))
         SELECT k, SUM(n) AS n FROM s GROUP BY k, Sliding(minute, 5)";
    let compiled = compile(query, &Catalog::open()).unwrap_or_else(|e| panic!("{e:?}"));
    expect![[r#"
        output output
          select k, SUM(n) AS n  -- all partitions together: what it reads is merged already
            group by SlidingWindow(Duration(minute, 5)), k computing SUM(n)  -- all partitions together: groups span partitions
              select k, COUNT(*) AS n  -- per partition: row by row
                group by HoppingWindow(Duration(minute, 10), Hop(minute, 1)), k, COALESCE(PartitionId, partition) AS PartitionId computing COUNT(*)  -- per partition: PartitionId is a key
                  source input timestamp by t  -- per partition: partitions are read on their own
                    reads t as datetime, k, PartitionId, partition
        a start reads back 15 minutes
    "#]].assert_eq(&explain(&compiled.plan));
    assert_eq!(lookback(&compiled.plan).ticks(), 15 * TICKS_PER_MINUTE);
}

// proves S1
#[test]
fn lookback_takes_the_longest_way_and_bounds_sessions() {
    let minutes = |query: &str| {
        let compiled = compile(query, &Catalog::open()).unwrap_or_else(|e| panic!("{e:?}"));
        lookback(&compiled.plan).ticks() / TICKS_PER_MINUTE
    };
    assert_eq!(minutes("SELECT a FROM x"), 0);
    assert_eq!(
        minutes("SELECT COUNT(*) FROM x GROUP BY System.Timestamp()"),
        0
    );
    assert_eq!(
        minutes("SELECT COUNT(*) FROM x GROUP BY Session(minute, 5, 10)"),
        25
    );
    // A script that takes events back remembers one more length of the window.
    for (window, expected) in [
        ("Sliding(minute, 5)", 10),
        ("Hopping(minute, 5, 1)", 10),
        ("Hopping(minute, 5, 5)", 5),
        ("Tumbling(minute, 5)", 5),
    ] {
        let query = format!("SELECT uda.f(a) AS n FROM x GROUP BY {window}");
        assert_eq!(minutes(&query), expected, "{window}");
    }
    let union = "SELECT COUNT(*) AS n FROM x GROUP BY Tumbling(minute, 3)
        UNION SELECT COUNT(*) AS n FROM y GROUP BY Tumbling(minute, 7)";
    assert_eq!(minutes(union), 7);
}

// proves S1
#[test]
fn what_explain_prints_of_expressions_compiles_again() {
    let item = "CASE WHEN a = 1 OR NOT b LIKE 'x' THEN CAST(c AS float) ELSE -d * (e - 1) END";
    let printed = plan(&format!("SELECT {item} AS x FROM input"));
    let line = printed.lines().nth(1).unwrap_or_default().trim();
    assert_eq!(line, format!("select {item} AS x"));
    accepts(&[&format!("{line} FROM input")]);
}

// proves S1
#[test]
fn without_regard_to_case_literals_are_folded_and_keys_are_shown_as_they_are() {
    let catalog = Catalog {
        ignore_case: true,
        ..Catalog::open()
    };
    let query = "SELECT k, CASE WHEN MAX(v) > 'ß1t' THEN 'Low' ELSE REPLACE(k, 'x', 'Y') END AS m
         FROM input TIMESTAMP BY t WHERE s LIKE 'ab%' AND k IN ('a', 5)
         GROUP BY k, Tumbling(second, 1)";
    let compiled = compile(query, &catalog).unwrap_or_else(|e| panic!("{e:?}"));
    expect![[r#"
        output output
          select k, CASE WHEN MAX(v) > 'ß1T' THEN 'Low' ELSE REPLACE(k, 'x', 'Y', 'X') END AS m  -- all partitions together: what it reads is merged already
            group by TumblingWindow(Duration(second, 1)), k computing MAX(v)  -- all partitions together: groups span partitions
              filter s LIKE 'AB%' AND k IN ('A', 5)  -- per partition: row by row
                source input timestamp by t  -- per partition: partitions are read on their own
                  reads t as datetime, s, k, v
        text is compared without regard to case
        a start reads back 1 second
    "#]].assert_eq(&explain(&compiled.plan));
}
