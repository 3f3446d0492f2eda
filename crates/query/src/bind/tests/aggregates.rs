//! Aggregates of groups.

use expect_test::expect;

use super::{accepts, check, rejects};

// proves S1
#[test]
fn aggregates_of_every_kind() {
    check(
        "SELECT COUNT(DISTINCT a) AS a, COUNT(DISTINCT input) AS b, STDEV(x) AS c, STDEVP(x) AS d, VAR(x) AS e, VARP(x) AS f,
            PERCENTILE_CONT(0.9) OVER (ORDER BY x) AS g, PERCENTILE_DISC(1) OVER (ORDER BY x DESC) AS h,
            Collect() AS i, Collect(x) AS j, CollectTop(2) OVER (ORDER BY x) AS k,
            CollectTop(3, y) OVER (ORDER BY x DESC, y ASC) AS l, TopOne() OVER (ORDER BY x) AS m,
            TopOne(y) OVER (ORDER BY x) AS n, uda.f(x + 1) AS o
         FROM input GROUP BY Tumbling(s, 1)",
        expect![[r#"
            output output
              select COUNT(DISTINCT a) AS a, COUNT(DISTINCT *) AS b, STDEV(x) AS c, STDEVP(x) AS d, VAR(x) AS e, VARP(x) AS f, PERCENTILE_CONT(0.9) OVER (ORDER BY x) AS g, PERCENTILE_DISC(1.0) OVER (ORDER BY x DESC) AS h, Collect(*) AS i, Collect(x) AS j, CollectTop(2, *) OVER (ORDER BY x) AS k, CollectTop(3, y) OVER (ORDER BY x DESC, y) AS l, TopOne(*) OVER (ORDER BY x) AS m, TopOne(y) OVER (ORDER BY x) AS n, uda.f(x + 1) AS o
                group by TumblingWindow(Duration(second, 1)) computing COUNT(DISTINCT a), COUNT(DISTINCT *), STDEV(x), STDEVP(x), VAR(x), VARP(x), PERCENTILE_CONT(0.9) OVER (ORDER BY x), PERCENTILE_DISC(1.0) OVER (ORDER BY x DESC), Collect(*), Collect(x), CollectTop(2, *) OVER (ORDER BY x), CollectTop(3, y) OVER (ORDER BY x DESC, y), TopOne(*) OVER (ORDER BY x), TopOne(y) OVER (ORDER BY x), uda.f(x + 1)
                  source input
                    reads a, the whole event, x, y
        "#]],
    );
}

// proves S1
#[test]
fn an_aggregate_with_another_order_is_another_aggregate() {
    check(
        "SELECT TopOne(y) OVER (ORDER BY x) AS a, TopOne(y) OVER (ORDER BY x DESC) AS b, TopOne(y) OVER (ORDER BY x ASC) AS c
         FROM input GROUP BY Tumbling(s, 1)",
        expect![[r#"
            output output
              select TopOne(y) OVER (ORDER BY x) AS a, TopOne(y) OVER (ORDER BY x DESC) AS b, TopOne(y) OVER (ORDER BY x) AS c
                group by TumblingWindow(Duration(second, 1)) computing TopOne(y) OVER (ORDER BY x), TopOne(y) OVER (ORDER BY x DESC)
                  source input
                    reads y, x
        "#]],
    );
}

// proves S1
#[test]
fn the_row_of_a_step_is_collected_as_a_record() {
    check(
        "WITH s AS (SELECT a, b + 1 AS c FROM input) SELECT Collect() AS all, COUNT(DISTINCT s) AS n FROM s GROUP BY Tumbling(s, 1)",
        expect![[r#"
            output output
              select Collect({a: a, c: c}) AS all, COUNT(DISTINCT {a: a, c: c}) AS n
                group by TumblingWindow(Duration(second, 1)) computing Collect({a: a, c: c}), COUNT(DISTINCT {a: a, c: c})
                  select a, b + 1 AS c
                    source input
                      reads a, b
        "#]],
    );
}

// proves S1 S2
#[test]
fn what_aggregates_cannot_do() {
    let rejects = |cases: &str| {
        let full: String = cases
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let (call, message) = line.split_once(" => ").unwrap_or((line, ""));
                format!("SELECT {call} AS x FROM input GROUP BY Tumbling(s, 1) => {message}\n")
            })
            .collect();
        rejects(&full);
    };
    rejects(
        r#"
        SUM(DISTINCT a) => DISTINCT exists for COUNT only
        Collect(DISTINCT a) => DISTINCT exists for COUNT only
        uda.f(DISTINCT a) => DISTINCT exists for COUNT only
        SUM(a, b) => SUM takes one argument
        Collect(*) => Collect takes at most one argument
        TopOne() => TopOne needs OVER (ORDER BY ..)
        TopOne() OVER (PARTITION BY a) => TopOne needs OVER (ORDER BY ..)
        TopOne() OVER (PARTITION BY a ORDER BY b) => TopOne of a group takes OVER (ORDER BY ..) alone
        TopOne() OVER (ORDER BY b WHEN a = 1) => TopOne of a group takes OVER (ORDER BY ..) alone
        TopOne() OVER (ORDER BY 1) => ORDER BY takes a column, not a constant
        CollectTop() OVER (ORDER BY b) => CollectTop takes 1 to 2 arguments
        CollectTop(0) OVER (ORDER BY b) => CollectTop takes a constant number of values, at least 1
        CollectTop(a) OVER (ORDER BY b) => CollectTop takes a constant number of values, at least 1
        CollectTop(1.5) OVER (ORDER BY b) => CollectTop takes a constant number of values, at least 1
        PERCENTILE_CONT(0.5) => PERCENTILE_CONT needs OVER (ORDER BY ..)
        PERCENTILE_CONT(1.1) OVER (ORDER BY b) => PERCENTILE_CONT takes a constant from 0 to 1
        PERCENTILE_CONT(a) OVER (ORDER BY b) => PERCENTILE_CONT takes a constant from 0 to 1
        PERCENTILE_DISC(0.5) OVER (ORDER BY b, c) => PERCENTILE_DISC is over one value
        PERCENTILE_DISC(0.5) OVER (ORDER BY b LIMIT DURATION(s, 1)) => PERCENTILE_DISC of a group takes OVER (ORDER BY ..) alone
        STDEV(a) OVER (LIMIT DURATION(s, 1)) => STDEV has no OVER
        Collect(SUM(a)) => SUM cannot be inside another aggregate
        TopOne(a) OVER (ORDER BY SUM(b)) => SUM cannot be inside another aggregate
        uda.f(uda.g(a)) => uda.g cannot be inside another aggregate
        uda.f(a, b) => uda.f takes one argument
        uda.f(a) OVER (LIMIT DURATION(s, 1)) => uda.f has no OVER
        Collect(DISTINCT) + SUM(a, 1) => SUM takes one argument
    "#,
    );
    super::rejects(
        r#"
        SELECT uda.f(a) AS x FROM input => uda.f needs a GROUP BY with a window
        SELECT a AS x FROM input WHERE uda.f(a) > 1 => WHERE cannot use uda.f
        SELECT a AS x FROM input WHERE Collect() IS NULL => WHERE cannot use Collect
        SELECT a AS x FROM input TIMESTAMP BY MAX(a) => TIMESTAMP BY cannot use MAX
    "#,
    );
}

// proves S1
#[test]
fn user_functions_stand_wherever_values_do() {
    accepts(&[
        "SELECT udf.f(a) AS x FROM input TIMESTAMP BY udf.t(a) WHERE udf.g(input, 1) = 1",
        "SELECT MAX(udf.f(a)) AS x, udf.g(k) AS y FROM input GROUP BY k, Tumbling(s, 1) HAVING udf.h(COUNT(*)) > 1",
        "SELECT udf.f(k) AS x FROM input GROUP BY udf.f(k), Tumbling(s, 1)",
    ]);
}
