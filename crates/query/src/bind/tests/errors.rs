use expect_test::expect;

use super::{check, rejects, rejects_one, table};

// proves S1 S2
#[test]
fn conditions_are_not_values_and_values_are_not_conditions() {
    check(
        "SELECT a > 1 FROM input WHERE flag",
        expect![[r#"
        error[HW1401]: a condition is not a value
         --> q:1:8
          |
        1 | SELECT a > 1 FROM input WHERE flag
          |        ^^^^^ this is true or false
          = help: write CASE WHEN a > 1 THEN 1 ELSE 0 END
        error[HW1401]: a value is not a condition
         --> q:1:31
          |
        1 | SELECT a > 1 FROM input WHERE flag
          |                               ^^^^ expected a condition
          = help: compare it: flag = 1
    "#]],
    );
    rejects(
        r#"
        SELECT a AS x FROM input WHERE a + 1 => a value is not a condition
        SELECT CASE WHEN a THEN 1 ELSE 0 END AS x FROM input => a value is not a condition
        SELECT CASE a WHEN b > 1 THEN 1 ELSE 0 END AS x FROM input => a condition is not a value
        SELECT x = a = b FROM input => a condition is not a value
        SELECT (a IS NULL) + 1 AS x FROM input => a condition is not a value
    "#,
    );
}

// proves S1 S2
#[test]
fn functions_not_there_yet_are_told_apart_from_typos() {
    check(
        "SELECT DATEADD(day, 1, t) AS x, DATEAD(day, 1, t) AS y FROM input",
        expect![[r#"
            error[HW1102]: DATEADD is not supported yet
             --> q:1:8
              |
            1 | SELECT DATEADD(day, 1, t) AS x, DATEAD(day, 1, t) AS y FROM input
              |        ^^^^^^^ part of the language, but not there yet
            error[HW1204]: unknown function `DATEAD`
             --> q:1:33
              |
            1 | SELECT DATEADD(day, 1, t) AS x, DATEAD(day, 1, t) AS y FROM input
              |                                 ^^^^^^
              = help: did you mean DATEADD?
        "#]],
    );
    rejects(
        r#"
        SELECT frobnicate(a) FROM input => unknown function `frobnicate`
        SELECT udf.f(a) FROM input => the user-defined function udf.f is not supported yet
        SELECT uda.f(a) FROM input => the user-defined function uda.f is not supported yet
        SELECT x.ABS(a) FROM input => the built-in function ABS takes no prefix
        SELECT system.f(a) FROM input => there is no function `system.f`
        SELECT STDEV(a) FROM input GROUP BY Tumbling(s, 1) => STDEV is not supported yet
        SELECT COUNT(DISTINCT a) FROM input GROUP BY Tumbling(s, 1) => COUNT(DISTINCT ..) is not supported yet
        SELECT SUM(a) OVER (LIMIT DURATION(s, 1)) FROM input => SUM with OVER is not supported yet
        SELECT LAG(a) OVER (LIMIT DURATION(s, 1)) FROM input => LAG is not supported yet
        SELECT ISFIRST(minute, 1) FROM input => ISFIRST is not supported yet
        SELECT System.Window().Id FROM input GROUP BY Tumbling(s, 1) => System.Window() is not supported yet
        CREATE TABLE input (a bigint, b nvarchar(max)); SELECT a FROM input => CREATE TABLE (the declared types of `input`) is not supported yet
    "#,
    );
}

// proves S1
#[test]
fn what_is_illegal_is_said_before_what_is_missing() {
    rejects(
        r#"
        SELECT LAG(a) OVER (PARTITION BY b) FROM input => LAG needs OVER (.. LIMIT DURATION(unit, n))
        SELECT LAG(a, 0) OVER (LIMIT DURATION(s, 1)) FROM input => LAG looks back at least one event
        SELECT LAST(LAG(a) OVER (LIMIT DURATION(s, 1))) OVER (LIMIT DURATION(s, 1)) FROM input => LAST cannot take another analytic or user-defined function
        SELECT System.Window().Id FROM input => System.Window() stands only in the SELECT list of a grouped query
        SELECT GetArrayElements(a) FROM input => GetArrayElements makes rows, so it stands only behind APPLY
        SELECT Tumbling(s, 1) FROM input => Tumbling stands only in GROUP BY
        SELECT Duration(s, 1) FROM input => Duration(..) stands only inside a window function
        SELECT System.Timestamp(1) FROM input => System.Timestamp() takes no arguments
    "#,
    );
}

// proves S1 S2
#[test]
fn a_join_of_streams_needs_a_bound_in_time_on_both_sides() {
    check(
        "SELECT a.x FROM input a\nJOIN orders b ON a.id = b.id",
        expect![[r#"
            error[HW1507]: a JOIN of streams needs a bound in time
             --> q:2:6
              |
            2 | JOIN orders b ON a.id = b.id
              |      ^^^^^^^^ this would keep its events for ever
              = help: add to ON: DATEDIFF(second, a, b) BETWEEN 0 AND 10
        "#]],
    );
    let join = |on: &str| format!("SELECT a.x FROM input a JOIN orders b ON {on}");
    let cases = r#"
        DATEDIFF(s, a, b) < 5 => this JOIN bounds how late events may be, but not how early
        0 <= DATEDIFF(s, a, b) => this JOIN bounds how early events may be, but not how late
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 OR a.x = 1 => a JOIN of streams needs a bound in time
        DATEDIFF(s, a.t, b.t) BETWEEN 0 AND 5 => a JOIN of streams needs a bound in time
        DATEDIFF(day, a, b) BETWEEN 0 AND 8 => joined events are at most 7 days apart
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 => JOIN is not supported yet
        DATEDIFF(s, b, a) = 0 AND a.x = b.x => JOIN is not supported yet
        DATEDIFF(s, a, b) > 0 AND 5 > DATEDIFF(s, a, b) => JOIN is not supported yet
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 LEFT JOIN input c ON DATEDIFF(s, b, c) BETWEEN 0 AND 5 => JOIN is not supported yet
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 LEFT JOIN input c ON DATEDIFF(s, b, c) > 5 => this JOIN bounds how early events may be, but not how late
    "#;
    for (on, message) in table(cases) {
        rejects_one(&join(on), message);
    }
    rejects(
        r#"
        SELECT * FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0 => SELECT * cannot be used with JOIN
        SELECT a.* FROM input a CROSS APPLY GetArrayElements(a.l) AS e => APPLY is not supported yet
        SELECT * FROM input OUTER APPLY GetRecordProperties(r) e => APPLY is not supported yet
        SELECT a.x FROM input a CROSS APPLY Foo(a.l) AS e => `Foo` makes no rows for APPLY
        SELECT a.x FROM input a, orders b => a comma cannot join two sources
    "#,
    );
}

// proves S1
#[test]
fn reference_data_has_rules_of_its_own() {
    rejects(
        r#"
        SELECT d.x FROM devices d JOIN input i ON d.k = i.k => reference data stands on the right of a JOIN
        SELECT x FROM devices TIMESTAMP BY t => `devices` is reference data and has no timestamps
        SELECT COUNT(*) FROM devices GROUP BY Tumbling(s, 1) => `devices` is reference data and cannot be windowed on its own
        SELECT x FROM devices => reading the reference input `devices` is not supported yet
        SELECT i.x FROM input i JOIN devices d TIMESTAMP BY t ON i.k = d.k => reference data has no timestamps
        SELECT i.x FROM input i JOIN devices d ON DATEDIFF(s, i, d) = 0 => reference data has no time to measure from
        SELECT i.x FROM input i JOIN devices d ON i.k = d.k => JOIN is not supported yet
    "#,
    );
}

// proves S1
#[test]
fn patterns_are_recognised_but_cannot_run_yet() {
    let pattern = |items: &str, skip: &str| {
        format!(
            "SELECT {items} INTO alerts FROM input TIMESTAMP BY t MATCH_RECOGNIZE (
               LIMIT DURATION (minute, 5) PARTITION BY id
               MEASURES First(Up.v) AS v0, Classifier() AS vars
               AFTER MATCH SKIP {skip}
               PATTERN (Up+ (Hot | .)? Hot*) DEFINE Up AS Up.v > 10, Hot AS Hot.v > 90 ) AS m"
        )
    };
    let alone = "MATCH_RECOGNIZE stands alone in SELECT * FROM source MATCH_RECOGNIZE (..)";
    rejects_one(
        &pattern("*", "TO NEXT ROW"),
        "MATCH_RECOGNIZE is not supported yet",
    );
    rejects_one(
        &pattern("*", "PAST LAST ROW"),
        "matches only skip to the next row",
    );
    rejects_one(&pattern("v0", "TO NEXT ROW"), alone);
}
