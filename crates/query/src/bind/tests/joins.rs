use expect_test::expect;

use super::{accepts, check, rejects, rejects_one, table};

fn on(on: &str) -> String {
    format!("SELECT a.x, b.y FROM input a JOIN orders b ON {on}")
}

// proves S1
#[test]
fn on_is_split_into_bounds_keys_and_the_rest() {
    check(
        "SELECT o.id, p.amount AS paid FROM input o TIMESTAMP BY t
         LEFT JOIN orders p TIMESTAMP BY u
         ON o.id = p.id AND DATEDIFF(minute, o, p) BETWEEN 0 AND 30 AND p.amount > o.least AND p.r.k + 1 = o.k
         WHERE p.id IS NULL",
        expect![[r#"
            output output
              select o.id AS id, p.amount AS paid
                filter p.id IS NULL
                  left join within [0 .. 30 minutes], o.id = p.id, o.k = p.r.k + 1, p.amount > o.least
                    select id (carried), least (carried), k (carried)
                      source input timestamp by t
                        reads t as datetime, id, least, k
                    select id (carried), amount (carried), r.k (carried)
                      source orders timestamp by u
                        reads u as datetime, id, amount, r.k
        "#]],
    );
}

// proves S1
#[test]
fn distances_are_elapsed_time_in_ticks() {
    let cases = [
        "DATEDIFF(s, a, b) BETWEEN 0 AND 5",
        "DATEDIFF(s, a, b) > -1 AND 5 > DATEDIFF(s, a, b)",
        "DATEDIFF(minute, b, a) >= 0 AND DATEDIFF(ms, b, a) <= 1.5",
        "DATEDIFF(week, a, b) = 1",
        "(DATEDIFF(s, a, b) >= -3 AND a.k = b.k) AND DATEDIFF(s, a, b) <= 0",
    ];
    let mut shown = String::new();
    for condition in cases {
        let plan = super::plan(&on(condition));
        let join = plan.lines().find(|line| line.contains("join"));
        shown += &format!("{condition}: {}\n", join.unwrap_or(&plan).trim());
    }
    expect![[r#"
        DATEDIFF(s, a, b) BETWEEN 0 AND 5: join within [0 .. 5 seconds]
        DATEDIFF(s, a, b) > -1 AND 5 > DATEDIFF(s, a, b): join within [-999999.9 microseconds .. 4999999.9 microseconds]
        DATEDIFF(minute, b, a) >= 0 AND DATEDIFF(ms, b, a) <= 1.5: join within [-1500 microseconds .. 0]
        DATEDIFF(week, a, b) = 1: join within [7 days .. 7 days]
        (DATEDIFF(s, a, b) >= -3 AND a.k = b.k) AND DATEDIFF(s, a, b) <= 0: join within [-3 seconds .. 0], a.k = b.k
    "#]].assert_eq(&shown);
}

// proves S1
#[test]
fn a_self_join_reads_the_input_once() {
    check(
        "SELECT a.id, b.id AS next, b.v - a.v AS d FROM input a TIMESTAMP BY t JOIN input b TIMESTAMP BY t
         ON a.id = b.id AND DATEDIFF(s, a, b) BETWEEN 1 AND 10",
        expect![[r#"
            output output
              select a.id AS id, b.id AS next, b.v - a.v AS d
                join within [1 second .. 10 seconds], a.id = b.id
                  select id (carried), v (carried)
                    #0 source input timestamp by t
                      reads t as datetime, id, v
                  select id (carried), v (carried)
                    #0 as above
        "#]],
    );
    check(
        "SELECT COUNT(*) AS n FROM input a JOIN input b ON DATEDIFF(s, a, b) = 0 GROUP BY Tumbling(s, 1)",
        expect![[r#"
            output output
              select COUNT(*) AS n
                group by TumblingWindow(Duration(second, 1)) computing COUNT(*)
                  join within [0 .. 0]
                    select System.Timestamp() (carried)
                      #0 source input
                        reads no fields
                    select System.Timestamp() (carried)
                      #0 as above
        "#]],
    );
}

// proves S1
#[test]
fn three_sources_measure_from_each_others_own_time() {
    check(
        "SELECT a.x, b.x AS bx, c.x AS cx FROM input a
         JOIN orders b ON DATEDIFF(s, a, b) BETWEEN 2 AND 10 AND a.k = b.k
         LEFT JOIN input c ON DATEDIFF(s, a, c) BETWEEN 0 AND 5 AND DATEDIFF(s, b, c) < 0 AND c.k = b.k",
        expect![[r#"
            output output
              select a.x AS x, b.x AS bx, c.x AS cx
                left join within [-10 seconds .. -0.1 microseconds], from time of a [0 .. 5 seconds], from time of b [ .. -0.1 microseconds], b.k = c.k
                  join within [2 seconds .. 10 seconds], a.k = b.k
                    select System.Timestamp() (carried), k (carried), x (carried)
                      #0 source input
                        reads k, x
                    select System.Timestamp() (carried), k (carried), x (carried)
                      source orders
                        reads k, x
                  select k (carried), x (carried)
                    #0 as above
        "#]],
    );
}

// proves S1
#[test]
fn a_join_in_parentheses_is_one_side() {
    check(
        "SELECT a.x, c.x AS y FROM input a JOIN (orders b JOIN input c ON DATEDIFF(s, b, c) BETWEEN 0 AND 3)
         ON DATEDIFF(s, a, b) BETWEEN 0 AND 5 AND a.k = c.k",
        expect![[r#"
            output output
              select a.x AS x, c.x AS y
                join within [0 .. 8 seconds], a.k = c.k, time of b >= DATEADD(second, 0, time of a) AND time of b <= DATEADD(second, 5, time of a)
                  select System.Timestamp() (carried), k (carried), x (carried)
                    #0 source input
                      reads k, x
                  join within [0 .. 3 seconds]
                    select System.Timestamp() (carried)
                      source orders
                        reads no fields
                    select k (carried), x (carried)
                      #0 as above
        "#]],
    );
}

// proves S1
#[test]
fn distances_that_bound_nothing_are_still_tested() {
    check(
        "SELECT a.x FROM input a JOIN orders b ON DATEDIFF(s, a, b) BETWEEN 0 AND 60
         AND (DATEDIFF(s, a, b) < 5 OR a.urgent = 1) AND NOT DATEDIFF(ms, b, a) BETWEEN 0.5 AND 1 AND DATEDIFF(s, a, b) <> 7",
        expect![[r#"
            output output
              select a.x AS x
                join within [0 .. 1 minute], (time of b < DATEADD(second, 5, time of a) OR a.urgent = 1) AND NOT (time of a >= DATEADD(microsecond, 500, time of b) AND time of a <= DATEADD(millisecond, 1, time of b)) AND time of b <> DATEADD(second, 7, time of a)
                  select System.Timestamp() (carried), urgent (carried), x (carried)
                    source input
                      reads urgent, x
                  select System.Timestamp() (carried)
                    source orders
                      reads no fields
        "#]],
    );
    let cases = r#"
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 AND DATEDIFF(s, a, b) IN (1, 2) => DATEDIFF over sources can only be compared with a constant
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 AND DATEDIFF(s, a, b) < a.x => DATEDIFF over sources can only be compared with a constant
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 AND (DATEDIFF(s, a, b) < 1.00000005 OR a.x = 1) => this distance is not a whole number of microseconds
    "#;
    for (condition, message) in table(cases) {
        rejects_one(&on(condition), message);
    }
    rejects(
        r#"
        SELECT DATEDIFF(s, a, b) AS d FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0 => DATEDIFF over sources is allowed only in ON
    "#,
    );
}

// proves S1
#[test]
fn groups_and_whole_events_of_a_join() {
    check(
        "SELECT a.k, COUNT(b) AS matched, COUNT(a) AS n, MAX(b.v) AS most FROM input a
         LEFT JOIN orders b ON a.k = b.k AND DATEDIFF(s, a, b) BETWEEN 0 AND 5
         WHERE a.v > 1 GROUP BY a.k, Tumbling(s, 10) HAVING COUNT(*) > 1",
        expect![[r#"
            output output
              select k, COUNT(b) AS matched, COUNT(*) AS n, MAX(b.v) AS most
                filter COUNT(*) > 1
                  group by TumblingWindow(Duration(second, 10)), a.k AS k computing COUNT(b), COUNT(*), MAX(b.v)
                    filter a.v > 1
                      left join within [0 .. 5 seconds], a.k = b.k
                        select k (carried), v (carried)
                          source input
                            reads k, v
                        select k (carried), * (carried), v (carried)
                          source orders
                            reads k, the whole event, v
        "#]],
    );
    check(
        "SELECT a AS first, b.* FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0",
        expect![[r#"
            output output
              select a AS first, b.*
                join within [0 .. 0]
                  select * (carried)
                    source input
                      reads the whole event
                  select * (carried)
                    source orders
                      reads the whole event
        "#]],
    );
}

// proves S1
#[test]
fn steps_are_joined_by_the_time_of_their_rows() {
    check(
        "WITH s AS (SELECT k, COUNT(*) AS n FROM input GROUP BY k, Tumbling(s, 10)),
              r AS (SELECT * FROM orders WHERE v > 1)
         SELECT n, r.v, r AS row, s AS step FROM s JOIN r ON DATEDIFF(s, s, r) BETWEEN 0 AND 10 AND s.k = r.k",
        expect![[r#"
            output output
              select s.n AS n, r.v AS v, r AS row, s AS step
                join within [0 .. 10 seconds], s.k = r.k
                  select k (carried), n (carried), {k: k, n: n} (carried)
                    select k, COUNT(*) AS n
                      group by TumblingWindow(Duration(second, 10)), k computing COUNT(*)
                        source input
                          reads k
                  select k (carried), v (carried), * (carried)
                    select *, k (carried), v (carried)
                      filter v > 1
                        source orders
                          reads v, the whole event, k
        "#]],
    );
    check(
        "WITH j AS (SELECT a.*, b.v FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0) SELECT x, v, PartitionId FROM j",
        expect![[r#"
            output output
              select x, v, PartitionId
                select b.v AS v, x (carried), PartitionId (carried)
                  join within [0 .. 0]
                    select x (carried), COALESCE(PartitionId, partition) (carried)
                      source input
                        reads x, PartitionId, partition
                    select v (carried)
                      source orders
                        reads v
        "#]],
    );
}

// proves S1
#[test]
fn a_bare_name_must_belong_to_one_source_for_sure() {
    check(
        "SELECT x FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0",
        expect![[r#"
            error[HW1203]: `x` does not say which source it is a column of
             --> q:1:8
              |
            1 | SELECT x FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0
              |        ^
              = help: write a.x or b.x
        "#]],
    );
    let with = "WITH s AS (SELECT k, n FROM input), t AS (SELECT k, m FROM orders)";
    let from = "FROM s JOIN t ON DATEDIFF(s, s, t) = 0";
    accepts(&[&format!("{with} SELECT n, m {from} WHERE N > m")]);
    rejects_one(
        &format!("{with} SELECT k {from}"),
        "several sources have a column `k`",
    );
    rejects_one(
        &format!("{with} SELECT mm {from}"),
        "there is no column `mm`",
    );
    rejects(
        r#"
        SELECT input.x FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0 => `input` has the alias `a` here
        SELECT input.x FROM input JOIN input ON DATEDIFF(s, input, input) = 0 => two sources are called `input`
        SELECT a.x FROM input a JOIN orders A ON DATEDIFF(s, a, A) = 0 => two sources are called `A`
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
    let cases = r#"
        DATEDIFF(s, a, b) < 5 => this JOIN bounds how late events may be, but not how early
        0 <= DATEDIFF(s, a, b) => this JOIN bounds how early events may be, but not how late
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 OR a.x = 1 => a JOIN of streams needs a bound in time
        DATEDIFF(s, a.t, b.t) BETWEEN 0 AND 5 => a JOIN of streams needs a bound in time
        DATEDIFF(year, a, b) BETWEEN 0 AND 5 => a JOIN of streams needs a bound in time
        DATEDIFF(day, a, b) BETWEEN 0 AND 8 => joined events are at most 7 days apart
        DATEDIFF(s, a, b) BETWEEN 0 AND 5 LEFT JOIN input c ON DATEDIFF(s, b, c) > 5 => this JOIN bounds how early events may be, but not how late
        DATEDIFF(day, a, b) BETWEEN 0 AND 7 JOIN input c ON DATEDIFF(day, b, c) BETWEEN 0 AND 7 => the sources of this JOIN can be more than 7 days apart
        DATEDIFF(s, a, b) BETWEEN 5 AND 0 => no two events can be as far apart as this JOIN asks
        DATEDIFF(s, a, b) = 0 AND COUNT(*) > 1 => ON cannot use COUNT
    "#;
    for (condition, message) in table(cases) {
        rejects_one(&on(condition), message);
    }
    accepts(&[
        &on("DATEDIFF(s, b, a) = 0 AND a.x = b.x"),
        &on(
            "DATEDIFF(s, a, b) BETWEEN 0 AND 5 LEFT JOIN input c ON DATEDIFF(s, b, c) BETWEEN 0 AND 5",
        ),
    ]);
    rejects(
        r#"
        SELECT * FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0 => SELECT * cannot be used with JOIN
        SELECT a.x FROM input a, orders b => a comma cannot join two sources
    "#,
    );
}

// proves S1
#[test]
fn partitions_are_joined_one_by_one() {
    check(
        "SELECT a.PartitionId, COUNT(*) AS n FROM input a PARTITION BY PartitionId JOIN orders b PARTITION BY b.PartitionId
         ON a.PartitionId = b.PartitionId AND DATEDIFF(s, a, b) BETWEEN 0 AND 5
         GROUP BY a.PartitionId, Tumbling(s, 10)",
        expect![[r#"
            output output
              select PartitionId, COUNT(*) AS n
                group by TumblingWindow(Duration(second, 10)), a.PartitionId AS PartitionId computing COUNT(*)
                  join within [0 .. 5 seconds], a.PartitionId = b.PartitionId
                    select COALESCE(PartitionId, partition) (carried)
                      source input
                        reads PartitionId, partition
                    select COALESCE(PartitionId, partition) (carried)
                      source orders
                        reads PartitionId, partition
        "#]],
    );
    accepts(&[
        "SELECT a.x FROM input a PARTITION BY k JOIN orders b PARTITION BY j ON b.j = a.k AND DATEDIFF(s, a, b) = 0",
        "SELECT a.x FROM input a PARTITION BY k JOIN orders b ON DATEDIFF(s, a, b) = 0",
    ]);
    rejects(
        r#"
        SELECT a.x FROM input a PARTITION BY k JOIN orders b PARTITION BY k ON DATEDIFF(s, a, b) = 0 => the partition keys of a JOIN must be equated in ON
        SELECT a.x FROM input a PARTITION BY k INTO 4 JOIN orders b PARTITION BY k INTO 5 ON a.k = b.k AND DATEDIFF(s, a, b) = 0 => the sources of this JOIN are partitioned differently
    "#,
    );
}

// proves S1
#[test]
fn substream_keys_are_equated_in_every_join() {
    accepts(&[
        "SELECT a.k, COUNT(*) FROM input a TIMESTAMP BY t OVER k JOIN orders b TIMESTAMP BY t OVER j
         ON a.k = b.j AND DATEDIFF(s, a, b) = 0 GROUP BY a.k, Tumbling(s, 1)",
        "SELECT a.x FROM input a TIMESTAMP BY t OVER k, l JOIN orders b TIMESTAMP BY t OVER k, l
         ON a.l = b.l AND a.k = b.k AND DATEDIFF(s, a, b) = 0",
        "SELECT a.k, COUNT(*) FROM input a TIMESTAMP BY t OVER k LEFT JOIN orders b TIMESTAMP BY t OVER k
         ON a.k = b.k AND DATEDIFF(s, a, b) = 0 GROUP BY a.k, Tumbling(s, 1)",
    ]);
    rejects(
        r#"
        SELECT a.k FROM input a TIMESTAMP BY t OVER k JOIN input b TIMESTAMP BY t OVER k ON a.x = b.k AND DATEDIFF(s, a, b) = 0 => `k` must be equated in ON, because `input` has a timeline per `k`
        SELECT a.x FROM input a TIMESTAMP BY t OVER k JOIN orders b TIMESTAMP BY t OVER j ON a.k = b.x AND a.x = b.j AND DATEDIFF(s, a, b) = 0 => `k` must be equated in ON, because `input` has a timeline per `k`
        SELECT a.x FROM input a TIMESTAMP BY t OVER k, l JOIN orders b TIMESTAMP BY t OVER k, l ON a.k = b.l AND a.l = b.k AND DATEDIFF(s, a, b) = 0 => `k` must be equated in ON, because `input` has a timeline per `k`
        SELECT a.x FROM input a TIMESTAMP BY t OVER k JOIN orders b TIMESTAMP BY t OVER k, l ON a.k = b.k AND DATEDIFF(s, a, b) = 0 => `input` and `orders` are joined, but not OVER the same number of columns
        SELECT b.k, COUNT(*) FROM input a TIMESTAMP BY t OVER k LEFT JOIN orders b TIMESTAMP BY t OVER k ON a.k = b.k AND DATEDIFF(s, a, b) = 0 GROUP BY b.k, Tumbling(s, 1) => `k` must be a key here, because `input` has a timeline per `k`
        SELECT a.x FROM input a TIMESTAMP BY t OVER k JOIN input b TIMESTAMP BY t OVER k ON a.k = b.k AND DATEDIFF(s, a, b) = 0 GROUP BY a.x, Tumbling(s, 1) => `k` must be a key here, because `input` has a timeline per `k`
        SELECT a.x FROM input a TIMESTAMP BY t JOIN input b ON DATEDIFF(s, a, b) = 0 => `input` is read here without the TIMESTAMP BY it has elsewhere
    "#,
    );
}

// proves S1
#[test]
fn analytic_functions_look_at_one_source_before_it_is_joined() {
    check(
        "SELECT a.x, LAG(b.y) OVER (PARTITION BY b.k LIMIT DURATION(s, 9)) AS before FROM input a
         LEFT JOIN orders b ON DATEDIFF(s, a, b) BETWEEN 0 AND 5 AND a.k = LAST(b.k) OVER (LIMIT DURATION(s, 9))",
        expect![[r#"
            output output
              select a.x AS x, LAG(b.y) OVER (PARTITION BY b.k LIMIT DURATION(s, 9)) AS before
                left join within [0 .. 5 seconds], a.k = LAST(b.k) OVER (LIMIT DURATION(s, 9))
                  select k (carried), x (carried)
                    source input
                      reads k, x
                  select LAST(k) OVER (LIMIT DURATION(second, 9)) (carried), LAG(y, 1) OVER (PARTITION BY k LIMIT DURATION(second, 9)) (carried)
                    compute LAST(k) OVER (LIMIT DURATION(second, 9)), LAG(y, 1) OVER (PARTITION BY k LIMIT DURATION(second, 9))
                      source orders
                        reads k, y
        "#]],
    );
    rejects(
        r#"
        SELECT LAG(a.x + b.y) OVER (LIMIT DURATION(s, 9)) AS l FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0 => LAG looks at the events of one source, before the JOIN
        SELECT LAG(d.x) OVER (LIMIT DURATION(s, 9)) AS l FROM input a JOIN devices d ON a.k = d.k => LAG needs events in time order, and reference data has none
    "#,
    );
}
