use expect_test::expect;

use super::{check, rejects};

// proves S1
#[test]
fn an_element_is_a_record_beside_the_columns_of_its_row() {
    check(
        "SELECT id, e.ArrayIndex AS n, e.ArrayValue.temp, PartitionId, System.Timestamp() AS t FROM input TIMESTAMP BY t
         CROSS APPLY GetArrayElements(readings) AS e WHERE e.ArrayValue.temp > 9",
        expect![[r#"
            output output
              select id, element.ArrayIndex AS n, element.ArrayValue.temp AS temp, COALESCE(PartitionId, partition) AS PartitionId, System.Timestamp() AS t
                filter element.ArrayValue.temp > 9
                  cross apply GetArrayElements(readings)
                    source input timestamp by t
                      reads t as datetime, readings, id, PartitionId, partition
        "#]],
    );
    check(
        "SELECT * FROM input i OUTER APPLY GetRecordProperties(i.r) AS p",
        expect![[r#"
            output output
              select *, element AS p
                outer apply GetRecordProperties(r)
                  source input
                    reads r, the whole event
        "#]],
    );
    check(
        "SELECT i.*, p.*, P.PropertyName AS n FROM input i OUTER APPLY GetRecordProperties(i) p",
        expect![[r#"
            output output
              select *, element.*, element.PropertyName AS n
                outer apply GetRecordProperties(*)
                  source input
                    reads the whole event
        "#]],
    );
}

// proves S1
#[test]
fn applies_follow_each_other() {
    check(
        "SELECT a.ArrayIndex AS i, b.ArrayValue AS v FROM input CROSS APPLY GetArrayElements(l) AS a
         CROSS APPLY GetArrayElements(a.ArrayValue) AS b",
        expect![[r#"
            output output
              select element.ArrayIndex AS i, element.ArrayValue AS v
                cross apply GetArrayElements(element.ArrayValue)
                  cross apply GetArrayElements(l)
                    source input
                      reads l
        "#]],
    );
    check(
        "WITH s AS (SELECT * FROM input CROSS APPLY GetArrayElements(l) AS e)
         SELECT e.ArrayValue AS v, x, PartitionId FROM s WHERE y = 1",
        expect![[r#"
            output output
              select e.ArrayValue AS v, x, PartitionId
                filter y = 1
                  select element AS e, y (carried), x (carried), COALESCE(PartitionId, partition) (carried)
                    cross apply GetArrayElements(l)
                      source input
                        reads l, y, x, PartitionId, partition
        "#]],
    );
}

// proves S1
#[test]
fn what_apply_makes_is_grouped_and_joined() {
    check(
        "SELECT e.ArrayValue.k, COUNT(*) AS n FROM input CROSS APPLY GetArrayElements(l) AS e
         GROUP BY e.ArrayValue.k, Tumbling(s, 1)",
        expect![[r#"
            output output
              select k, COUNT(*) AS n
                group by TumblingWindow(Duration(second, 1)), element.ArrayValue.k AS k computing COUNT(*)
                  cross apply GetArrayElements(l)
                    source input
                      reads l
        "#]],
    );
    check(
        "SELECT e, e.ArrayIndex AS i, COUNT(*) AS n FROM input CROSS APPLY GetArrayElements(l) AS e
         GROUP BY e, Tumbling(s, 1)",
        expect![[r#"
            output output
              select e, e.ArrayIndex AS i, COUNT(*) AS n
                group by TumblingWindow(Duration(second, 1)), element AS e computing COUNT(*)
                  cross apply GetArrayElements(l)
                    source input
                      reads l
        "#]],
    );
    check(
        "SELECT e.ArrayValue AS v, o.x FROM input i CROSS APPLY GetArrayElements(i.l) AS e
         LEFT JOIN orders o ON o.k = e.ArrayValue AND DATEDIFF(s, i, o) BETWEEN 0 AND 1
         OUTER APPLY GetArrayElements(o.m) AS f WHERE f.ArrayIndex IS NULL",
        expect![[r#"
            output output
              select e.ArrayValue AS v, o.x AS x
                filter element.ArrayIndex IS NULL
                  outer apply GetArrayElements(o.m)
                    left join within [0 .. 1 second], e.ArrayValue = o.k
                      select element (carried)
                        cross apply GetArrayElements(l)
                          source input
                            reads l
                      select k (carried), m (carried), x (carried)
                        source orders
                          reads k, m, x
        "#]],
    );
}

// proves S1
#[test]
fn apply_has_rules_of_its_own() {
    rejects(
        r#"
        SELECT a.x FROM input a CROSS APPLY Foo(a.l) AS e => `Foo` returns no rows for APPLY
        SELECT e FROM input CROSS APPLY GetArrayElements(GetArrayElement(l, 0)) AS e => APPLY works on a column, not on an expression
        SELECT e FROM input CROSS APPLY GetArrayElements(l) AS input => two sources are called `input`
        SELECT e FROM input CROSS APPLY GetArrayElements(l) AS e CROSS APPLY GetArrayElements(m) AS E => two sources are called `E`
        SELECT e FROM input TIMESTAMP BY e.ArrayValue CROSS APPLY GetArrayElements(l) AS e => TIMESTAMP BY cannot use the result of APPLY
        SELECT GetArrayElements(l) FROM input => GetArrayElements returns rows, so it is allowed only after APPLY
        WITH s AS (SELECT e FROM input CROSS APPLY GetArrayElements(l) AS e) SELECT e FROM s TIMESTAMP BY e.ArrayValue => TIMESTAMP BY works on the fields of an input, not on the columns of a step
        SELECT * FROM input CROSS APPLY GetArrayElements(l) AS e GROUP BY Tumbling(s, 1) => a group has no `*`
    "#,
    );
}
