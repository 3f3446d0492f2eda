use expect_test::expect;

use super::{accepts, check, rejects};

// proves S1
#[test]
fn a_plain_timestamp_is_read_as_time_and_others_are_computed() {
    check(
        "SELECT a FROM input i TIMESTAMP BY i.meta.time",
        expect![[r#"
            output output
              select a
                source input timestamp by meta.time
                  reads meta.time as datetime, a
        "#]],
    );
    check(
        "SELECT a FROM input TIMESTAMP BY CASE WHEN k = 1 THEN t ELSE CAST(u AS datetime) END",
        expect![[r#"
            output output
              select a
                source input timestamp by CASE WHEN k = 1 THEN t ELSE CAST(u AS datetime) END
                  reads k, t, u, a
        "#]],
    );
    check(
        "SELECT a FROM input TIMESTAMP BY EventEnqueuedUtcTime",
        expect![[r#"
            output output
              select a
                source input timestamp by COALESCE(EventEnqueuedUtcTime, arrival)
                  reads EventEnqueuedUtcTime, arrival, a
        "#]],
    );
}

// proves S1
#[test]
fn timestamp_by_is_about_fields_of_an_input() {
    check(
        "SELECT a FROM input TIMESTAMP BY System.Timestamp()",
        expect![[r#"
            error[HW1501]: TIMESTAMP BY cannot use System.Timestamp()
             --> q:1:34
              |
            1 | SELECT a FROM input TIMESTAMP BY System.Timestamp()
              |                                  ^^^^^^^^^^^^^^^^^^ this is what TIMESTAMP BY defines
              = help: leave TIMESTAMP BY out to order events by their arrival
        "#]],
    );
    check(
        "WITH s AS (SELECT a, t FROM input) SELECT a FROM s TIMESTAMP BY t",
        expect![[r#"
            error[HW1501]: TIMESTAMP BY works on the fields of an input, not on the columns of a step
             --> q:1:52
              |
            1 | WITH s AS (SELECT a, t FROM input) SELECT a FROM s TIMESTAMP BY t
              |                                                    ^^^^^^^^^^^^^^
              = help: put TIMESTAMP BY where the input is read; steps keep the time of their events
        "#]],
    );
    rejects(
        r#"
        SELECT a FROM input TIMESTAMP BY MAX(t) => TIMESTAMP BY cannot use MAX
    "#,
    );
}

// proves S1
#[test]
fn timestamp_by_on_a_bare_step_goes_down_to_the_input() {
    check(
        "WITH s AS (SELECT * FROM input PARTITION BY k), u AS (SELECT * FROM s) SELECT a FROM u TIMESTAMP BY u.t",
        expect![[r#"
            output output
              select a
                select a (carried)
                  select a (carried)
                    source input timestamp by t
                      reads t as datetime, a
        "#]],
    );
    check(
        "SELECT a FROM (SELECT * FROM input) d TIMESTAMP BY t",
        expect![[r#"
            output output
              select a
                select a (carried)
                  source input timestamp by t
                    reads t as datetime, a
        "#]],
    );
}

// proves S1
#[test]
fn one_input_has_one_timeline() {
    check(
        "SELECT a INTO x FROM input TIMESTAMP BY t\nSELECT a INTO y FROM input TIMESTAMP BY u",
        expect![[r#"
            error[HW1501]: `input` is read with two different TIMESTAMP BY
             --> q:2:28
              |
            2 | SELECT a INTO y FROM input TIMESTAMP BY u
              |                            ^^^^^^^^^^^^^^ the second one
              = help: one input has one timeline; elsewhere it is read with TIMESTAMP BY t
        "#]],
    );
    rejects(
        r#"
        SELECT a INTO x FROM input TIMESTAMP BY t SELECT a INTO y FROM input => `input` is read here without the TIMESTAMP BY it has elsewhere
        SELECT a INTO x FROM input SELECT a INTO y FROM input TIMESTAMP BY t => `input` is read here with a TIMESTAMP BY that it does not have elsewhere
        WITH s AS (SELECT * FROM input) SELECT a INTO x FROM s TIMESTAMP BY t SELECT a INTO y FROM s => `input` is read here without the TIMESTAMP BY it has elsewhere
        SELECT * FROM input TIMESTAMP BY t UNION SELECT * FROM input => `input` is read here without the TIMESTAMP BY it has elsewhere
    "#,
    );
    accepts(&[
        "SELECT a INTO x FROM input TIMESTAMP BY t SELECT a INTO y FROM input i TIMESTAMP BY i.t WHERE a > 1",
        "WITH s AS (SELECT * FROM input) SELECT a INTO x FROM s TIMESTAMP BY t SELECT b INTO y FROM s TIMESTAMP BY t",
    ]);
}

// proves S1
#[test]
fn substream_keys_are_keys_of_every_group() {
    check(
        "SELECT k, COUNT(*) FROM input TIMESTAMP BY t OVER k GROUP BY k, Tumbling(s, 1)",
        expect![[r#"
            output output
              select k, COUNT(*) AS count
                group by TumblingWindow(Duration(second, 1)), k computing COUNT(*)
                  source input timestamp by t over k
                    reads t as datetime, k
        "#]],
    );
    accepts(&[
        "WITH s AS (SELECT k AS d, v FROM input TIMESTAMP BY t OVER k WHERE v > 1)
         SELECT d, MAX(v) FROM s GROUP BY d, Tumbling(s, 1)",
        "WITH s AS (SELECT * FROM input TIMESTAMP BY t OVER k, PartitionId),
              w AS (SELECT k, PartitionId, COUNT(*) AS n FROM s GROUP BY k, PartitionId, Tumbling(s, 1))
         SELECT SUM(n) FROM w GROUP BY k, PartitionId, System.Timestamp()",
    ]);
    check(
        "SELECT COUNT(*) FROM input TIMESTAMP BY t OVER k GROUP BY Tumbling(s, 1)",
        expect![[r#"
            error[HW1501]: `k` must be a key here, because `input` has a timeline per `k`
             --> q:1:50
              |
            1 | SELECT COUNT(*) FROM input TIMESTAMP BY t OVER k GROUP BY Tumbling(s, 1)
              |                                                  ^^^^^^^^^^^^^^^^^^^^^^^
              = help: add k to GROUP BY
        "#]],
    );
    rejects(
        r#"
        WITH s AS (SELECT k + 1 AS k, v FROM input TIMESTAMP BY t OVER k) SELECT k, MAX(v) FROM s GROUP BY k, Tumbling(s, 1) => `k` must be a key here, because `input` has a timeline per `k`
        SELECT a INTO x FROM input TIMESTAMP BY t OVER k SELECT a INTO y FROM orders TIMESTAMP BY t => `orders` has one timeline, other inputs have one per OVER key
    "#,
    );
}
