//! Analytic functions: over every event of a source, before anything else.

use expect_test::expect;

use super::{accepts, check, rejects};

// proves S1
#[test]
fn calls_are_computed_above_the_source_and_below_the_filter() {
    check(
        "SELECT id, LAG(v) OVER (PARTITION BY id LIMIT DURATION(hour, 1)) AS before FROM input TIMESTAMP BY t
         WHERE v > 100 AND lag(input.v, 1) OVER (PARTITION BY id LIMIT DURATION(hh, 1)) <= 100",
        expect![[r#"
            output output
              select id, LAG(v, 1) OVER (PARTITION BY id LIMIT DURATION(hour, 1)) AS before
                filter v > 100 AND LAG(v, 1) OVER (PARTITION BY id LIMIT DURATION(hour, 1)) <= 100
                  compute LAG(v, 1) OVER (PARTITION BY id LIMIT DURATION(hour, 1))
                    source input timestamp by t
                      reads t as datetime, v, id
        "#]],
    );
}

// proves S1
#[test]
fn calls_of_every_kind() {
    check(
        "SELECT LAG(a, 2, 0) OVER (LIMIT DURATION(week, 1)) AS a, LAG(*) OVER (LIMIT DURATION(s, 1)) AS b,
            LAG(*, 3) OVER (LIMIT DURATION(s, 1)).x AS c
         FROM input",
        expect![[r#"
            output output
              select LAG(a, 2, 0) OVER (LIMIT DURATION(day, 7)) AS a, LAG(*, 1) OVER (LIMIT DURATION(second, 1)) AS b, LAG(*, 3) OVER (LIMIT DURATION(second, 1)).x AS c
                compute LAG(a, 2, 0) OVER (LIMIT DURATION(day, 7)), LAG(*, 1) OVER (LIMIT DURATION(second, 1)), LAG(*, 3) OVER (LIMIT DURATION(second, 1))
                  source input
                    reads a, the whole event
        "#]],
    );
    check(
        "SELECT LAST(a, 'x') OVER (PARTITION BY k, l LIMIT DURATION(s, 1.5) WHEN b > 1) AS a, ISFIRST(minute, 10) AS b,
            ISFIRST(mi, 10) OVER (PARTITION BY k WHEN a > 1) AS c, COUNT(*) OVER (LIMIT DURATION(s, 1)) AS d,
            SUM(a) OVER (LIMIT DURATION(s, 1)) + 1 AS e, Collect() OVER (LIMIT DURATION(s, 1)) AS f,
            CollectTop(2, a) OVER (PARTITION BY k ORDER BY b DESC LIMIT DURATION(s, 1)) AS g,
            TopOne() OVER (ORDER BY b LIMIT DURATION(s, 1) WHEN a = 1) AS h
         FROM input",
        expect![[r#"
            output output
              select LAST(a, 'x') OVER (PARTITION BY k, l LIMIT DURATION(millisecond, 1500) WHEN b > 1) AS a, ISFIRST(minute, 10) AS b, ISFIRST(minute, 10) OVER (PARTITION BY k WHEN a > 1) AS c, COUNT(*) OVER (LIMIT DURATION(second, 1)) AS d, SUM(a) OVER (LIMIT DURATION(second, 1)) + 1 AS e, Collect(*) OVER (LIMIT DURATION(second, 1)) AS f, CollectTop(2, a) OVER (PARTITION BY k ORDER BY b DESC LIMIT DURATION(second, 1)) AS g, TopOne(*) OVER (ORDER BY b LIMIT DURATION(second, 1) WHEN a = 1) AS h
                compute LAST(a, 'x') OVER (PARTITION BY k, l LIMIT DURATION(millisecond, 1500) WHEN b > 1), ISFIRST(minute, 10), ISFIRST(minute, 10) OVER (PARTITION BY k WHEN a > 1), COUNT(*) OVER (LIMIT DURATION(second, 1)), SUM(a) OVER (LIMIT DURATION(second, 1)), Collect(*) OVER (LIMIT DURATION(second, 1)), CollectTop(2, a) OVER (PARTITION BY k ORDER BY b DESC LIMIT DURATION(second, 1)), TopOne(*) OVER (ORDER BY b LIMIT DURATION(second, 1) WHEN a = 1)
                  source input
                    reads a, k, l, b, the whole event
        "#]],
    );
    check(
        "SELECT AnomalyDetection_SpikeAndDip(a, 95, 120, 'spikesAndDips') OVER (LIMIT DURATION(s, 120)).Score AS a,
            AnomalyDetection_ChangePoint(CAST(a AS float), 80.5, 1200) OVER (PARTITION BY k LIMIT DURATION(mi, 20)) AS b
         FROM input",
        expect![[r#"
            output output
              select AnomalyDetection_SpikeAndDip(a, 95, 120, 'spikesAndDips') OVER (LIMIT DURATION(minute, 2)).Score AS a, AnomalyDetection_ChangePoint(CAST(a AS float), 80.5, 1200) OVER (PARTITION BY k LIMIT DURATION(minute, 20)) AS b
                compute AnomalyDetection_SpikeAndDip(a, 95, 120, 'spikesAndDips') OVER (LIMIT DURATION(minute, 2)), AnomalyDetection_ChangePoint(CAST(a AS float), 80.5, 1200) OVER (PARTITION BY k LIMIT DURATION(minute, 20))
                  source input
                    reads a, k
        "#]],
    );
}

// proves S1
#[test]
fn they_stand_wherever_values_do() {
    check(
        "SELECT LAG(a) OVER (LIMIT DURATION(s, 1)) AS l, SUM(CASE WHEN ISFIRST(s, 1) = 1 THEN 1 ELSE 0 END) AS n
         FROM input GROUP BY LAG(a) OVER (LIMIT DURATION(second, 1)), Tumbling(s, 1)",
        expect![[r#"
            output output
              select lag AS l, SUM(CASE WHEN ISFIRST(second, 1) = 1 THEN 1 ELSE 0 END) AS n
                group by TumblingWindow(Duration(second, 1)), LAG(a, 1) OVER (LIMIT DURATION(second, 1)) AS lag computing SUM(CASE WHEN ISFIRST(second, 1) = 1 THEN 1 ELSE 0 END)
                  compute LAG(a, 1) OVER (LIMIT DURATION(second, 1)), ISFIRST(second, 1)
                    source input
                      reads a
        "#]],
    );
    check(
        "SELECT * FROM input WHERE ISFIRST(s, 1) = 1",
        expect![[r#"
            output output
              select *
                filter ISFIRST(second, 1) = 1
                  compute ISFIRST(second, 1)
                    source input
                      reads the whole event
        "#]],
    );
    check(
        "WITH s AS (SELECT *, LAG(a) OVER (LIMIT DURATION(s, 1)) AS l FROM input)
         SELECT a, b, PartitionId, l, LAST(c) OVER (LIMIT DURATION(s, 1)) AS c FROM s",
        expect![[r#"
            output output
              select a, b, PartitionId, l, LAST(c) OVER (LIMIT DURATION(second, 1)) AS c
                compute LAST(c) OVER (LIMIT DURATION(second, 1))
                  select LAG(a, 1) OVER (LIMIT DURATION(second, 1)) AS l, a (carried), b (carried), COALESCE(PartitionId, partition) (carried), c (carried)
                    compute LAG(a, 1) OVER (LIMIT DURATION(second, 1))
                      source input
                        reads a, b, PartitionId, partition, c
        "#]],
    );
}

// proves S1
#[test]
fn over_a_join_they_look_at_one_source() {
    check(
        "SELECT i.a, LAG(o.b) OVER (PARTITION BY o.k LIMIT DURATION(s, 1)) AS l
         FROM input i JOIN orders o ON DATEDIFF(s, i, o) BETWEEN 0 AND 1 AND i.k = o.k",
        expect![[r#"
            output output
              select i.a AS a, LAG(o.b) OVER (PARTITION BY o.k LIMIT DURATION(s, 1)) AS l
                join within [0 .. 1 second], i.k = o.k
                  select k (carried), a (carried)
                    source input
                      reads k, a
                  select k (carried), LAG(b, 1) OVER (PARTITION BY k LIMIT DURATION(second, 1)) (carried)
                    compute LAG(b, 1) OVER (PARTITION BY k LIMIT DURATION(second, 1))
                      source orders
                        reads k, b
        "#]],
    );
    let over = "OVER (LIMIT DURATION(s, 1))";
    let join = "FROM input i JOIN orders o ON DATEDIFF(s, i, o) BETWEEN 0 AND 1";
    for (call, message) in [
        (
            "LAG(i.a + o.b)",
            "LAG looks at the events of one source, before the JOIN",
        ),
        (
            "COUNT(*)",
            "COUNT names no column, so it could be about any source",
        ),
        (
            "LAG(*)",
            "LAG names no column, so it could be about any source",
        ),
    ] {
        super::rejects_one(&format!("SELECT {call} {over} AS x {join}"), message);
    }
    accepts(&[
        &format!("SELECT LAG(DATEPART(day, i.t)) {over} AS x {join}"),
        &format!("SELECT i.a {join} AND LAG(o.b) {over} = 1"),
        &format!(
            "SELECT i.a FROM input i LEFT JOIN devices d ON i.k = d.k AND LAG(i.b) {over} = 1"
        ),
        &format!(
            "SELECT LAG(i.b) {over} AS l, e.ArrayValue FROM input i CROSS APPLY GetArrayElements(i.a) AS e"
        ),
    ]);
    super::rejects_one(
        &format!(
            "SELECT LAG(e.ArrayValue) {over} AS x FROM input i CROSS APPLY GetArrayElements(i.a) AS e"
        ),
        "LAG is computed before APPLY, so it sees no elements",
    );
    super::rejects_one(
        &format!("SELECT LAG(d.x) {over} AS x FROM input i JOIN devices d ON i.k = d.k"),
        "LAG needs events in time order, and reference data has none",
    );
}

// proves S1
#[test]
fn what_partitions_the_source_partitions_the_calls() {
    check(
        "SELECT LAG(a) OVER (LIMIT DURATION(s, 1)) AS x, LAG(a) OVER (PARTITION BY k LIMIT DURATION(s, 1)) AS y
         FROM input PARTITION BY k",
        expect![[r#"
            output output
              select LAG(a, 1) OVER (PARTITION BY k LIMIT DURATION(second, 1)) AS x, LAG(a, 1) OVER (PARTITION BY k LIMIT DURATION(second, 1)) AS y
                compute LAG(a, 1) OVER (PARTITION BY k LIMIT DURATION(second, 1))
                  source input
                    reads k, a
        "#]],
    );
    let query = "SELECT ISFIRST(s, 1) AS x FROM input PARTITION BY PartitionId";
    let compiled = crate::compile(query, &super::catalog()).unwrap_or_else(|e| panic!("{e:?}"));
    let apart =
        compiled.plan.nodes.iter().any(
            |node| matches!(node, crate::plan::Node::Analytic(analytic) if analytic.by_partition),
        );
    assert!(apart);
}

// proves S1 S2
#[test]
fn what_analytic_functions_cannot_do() {
    check(
        "SELECT LAG(a) OVER (PARTITION BY b) AS x, SUM(a) OVER (LIMIT DURATION(month, 1)) AS y FROM input",
        expect![[r#"
            error[HW1509]: LAG needs OVER (.. LIMIT DURATION(unit, n))
             --> q:1:8
              |
            1 | SELECT LAG(a) OVER (PARTITION BY b) AS x, SUM(a) OVER (LIMIT DURATION(month, 1)) AS y FROM input
              |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ how far back may it look?
              = help: for example OVER (LIMIT DURATION(minute, 5))
            error[HW1504]: a month has no fixed length
             --> q:1:71
              |
            1 | SELECT LAG(a) OVER (PARTITION BY b) AS x, SUM(a) OVER (LIMIT DURATION(month, 1)) AS y FROM input
              |                                                                       ^^^^^
              = help: count in days or shorter units; 7 days at most
        "#]],
    );
    rejects(
        r#"
        SELECT LAG(a) FROM input => LAG needs OVER (.. LIMIT DURATION(unit, n))
        SELECT SUM(a) OVER (PARTITION BY b) FROM input => SUM needs OVER (.. LIMIT DURATION(unit, n))
        SELECT LAG(a) OVER (LIMIT DURATION(fortnight, 1)) FROM input => `fortnight` is not a unit for a window
        SELECT LAG(a) OVER (LIMIT DURATION(day, 8)) FROM input => the lookback is at most 7 days
        SELECT LAG(a) OVER (LIMIT DURATION(day, 0)) FROM input => the lookback must be positive
        SELECT LAG(a) OVER (LIMIT DURATION(day, -1)) FROM input => the lookback must be positive
        SELECT LAG(a) OVER (LIMIT DURATION(day, b)) FROM input => the lookback must be a constant
        SELECT LAG(a) OVER (LIMIT DURATION(mcs, 0.01)) FROM input => this is shorter than a tick of 100 ns
        SELECT LAG(a) OVER (LIMIT DURATION(year, 1)) FROM input => a year has no fixed length
        SELECT LAG(a) OVER (ORDER BY b LIMIT DURATION(s, 1)) FROM input => LAG takes no ORDER BY
        SELECT SUM(a) OVER (ORDER BY b LIMIT DURATION(s, 1)) FROM input => SUM takes no ORDER BY
        SELECT TopOne() OVER (LIMIT DURATION(s, 1)) FROM input => TopOne needs an ORDER BY in its OVER
        SELECT LAG(a, 0) OVER (LIMIT DURATION(s, 1)) FROM input => LAG looks back at least one event
        SELECT LAG(a, -1) OVER (LIMIT DURATION(s, 1)) FROM input => LAG looks back at least one event
        SELECT LAG(a, b) OVER (LIMIT DURATION(s, 1)) FROM input => the offset of LAG is a constant whole number
        SELECT LAG(a, 1, 2, 3) OVER (LIMIT DURATION(s, 1)) FROM input => LAG takes 1 to 3 arguments
        SELECT LAG(CAST(a AS float), 1, 'x') OVER (LIMIT DURATION(s, 1)) FROM input => the default of LAG has another type than its value
        SELECT LAST(1, 1.5) OVER (LIMIT DURATION(s, 1)) FROM input => the default of LAST has another type than its value
        SELECT LAST(LAG(a) OVER (LIMIT DURATION(s, 1))) OVER (LIMIT DURATION(s, 1)) FROM input => LAST cannot take another analytic or user-defined function
        SELECT LAG(udf.f(a)) OVER (LIMIT DURATION(s, 1)) FROM input => LAG cannot take another analytic or user-defined function
        SELECT SUM(SUM(a) OVER (LIMIT DURATION(s, 1))) OVER (LIMIT DURATION(s, 1)) FROM input => SUM cannot take another analytic or user-defined function
        SELECT SUM(MAX(a)) OVER (LIMIT DURATION(s, 1)) FROM input => an analytic function cannot use MAX
        SELECT LAG(a) OVER (LIMIT DURATION(s, 1) WHEN ISFIRST(s, 1) = 1) FROM input => ISFIRST cannot be inside another analytic function
        SELECT LAG(a) OVER (PARTITION BY ISFIRST(s, 1) LIMIT DURATION(s, 1)) FROM input => ISFIRST cannot be inside another analytic function
        SELECT LAG(a) OVER (LIMIT DURATION(s, 1) WHEN b) FROM input => a value is not a condition
        SELECT LAG(DISTINCT a) OVER (LIMIT DURATION(s, 1)) FROM input => DISTINCT exists for COUNT only
        SELECT COUNT(DISTINCT a) OVER (LIMIT DURATION(s, 1)) FROM input => COUNT(DISTINCT ..) cannot have an OVER
        SELECT ISFIRST(s) FROM input => ISFIRST takes 2 arguments
        SELECT ISFIRST('s', 1) FROM input => the unit is a bare word: s
        SELECT ISFIRST(1, 1) FROM input => `1` is not a unit for a window
        SELECT ISFIRST(s, 1) OVER (LIMIT DURATION(s, 1)) FROM input => ISFIRST takes no LIMIT DURATION
        SELECT COUNT(*) AS n, ISFIRST(s, 1) AS f FROM input GROUP BY Tumbling(s, 1) => `ISFIRST(s, 1)` is neither grouped nor aggregated
        SELECT a FROM input TIMESTAMP BY (LAG(a) OVER (LIMIT DURATION(s, 1))) => TIMESTAMP BY cannot use LAG
        SELECT ISFIRST(s, 1) FROM input PARTITION BY ISFIRST(s, 1) => PARTITION BY cannot use ISFIRST
        SELECT AnomalyDetection_SpikeAndDip(a, 0.5, 120, 'dips') OVER (LIMIT DURATION(s, 1)) FROM input => the confidence of AnomalyDetection_SpikeAndDip is from 1 to 100
        SELECT AnomalyDetection_SpikeAndDip(a, 95, b, 'dips') OVER (LIMIT DURATION(s, 1)) FROM input => AnomalyDetection_SpikeAndDip learns from a constant number of events
        SELECT AnomalyDetection_SpikeAndDip(a, 95, 120, 'up') OVER (LIMIT DURATION(s, 1)) FROM input => the mode is 'spikes', 'dips' or 'spikesanddips'
        SELECT AnomalyDetection_SpikeAndDip(a, 95, 120) OVER (LIMIT DURATION(s, 1)) FROM input => AnomalyDetection_SpikeAndDip takes 4 arguments
        SELECT AnomalyDetection_ChangePoint(*, 95, 120) OVER (LIMIT DURATION(s, 1)) FROM input => AnomalyDetection_ChangePoint takes 3 arguments
        SELECT AnomalyDetection_ChangePoint(a, 95, 120) FROM input => AnomalyDetection_ChangePoint needs OVER (.. LIMIT DURATION(unit, n))
    "#,
    );
}
