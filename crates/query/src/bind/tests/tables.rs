use expect_test::expect;

use super::{accepts, check, rejects, warns};

// proves S1
#[test]
fn a_declared_input_has_its_columns_and_no_others() {
    check(
        "CREATE TABLE input (Id bigint, v float, r record, t datetime);
         SELECT *, id + 1 AS next, input AS row, r.x, PartitionId FROM input TIMESTAMP BY T WHERE V > 1",
        expect![[r#"
            output output
              select Id, v, r, t, Id + 1 AS next, {Id: Id, v: v, r: r, t: t} AS row, r.x AS x, partition AS PartitionId
                filter v > 1
                  source input timestamp by t
                    reads t as datetime, v, Id, r, t, r.x, partition
        "#]],
    );
    check(
        "CREATE TABLE input (deviceId bigint, temperature float);
         SELECT temprature FROM input",
        expect![[r#"
            error[HW1203]: there is no column `temprature`
             --> q:2:17
              |
            2 |          SELECT temprature FROM input
              |                 ^^^^^^^^^^
              = help: did you mean `temperature`?
        "#]],
    );
    rejects(
        r#"
        CREATE TABLE input (a bigint); SELECT a FROM input TIMESTAMP BY t => there is no column `t`
        CREATE TABLE INPUT (a bigint); WITH s AS (SELECT * FROM input) SELECT b FROM s => there is no column `b`
        CREATE TABLE devices (k bigint); SELECT i.a FROM input i JOIN devices d ON i.k = d.kk => there is no column `kk`
        CREATE TABLE devices (k bigint); SELECT i.a, d.PartitionId FROM input i JOIN devices d ON i.k = d.k => there is no column `PartitionId`
    "#,
    );
}

// proves S1
#[test]
fn declared_columns_need_no_qualifier_in_a_join() {
    check(
        "CREATE TABLE input (a bigint, k bigint) CREATE TABLE devices (b bigint, k bigint);
         SELECT a, B, d.* FROM input i JOIN devices d ON i.k = d.k WHERE b > a",
        expect![[r#"
            output output
              select a, devices.b AS B, devices.b AS b, devices.k AS k
                filter devices.b > a
                  join reference devices, k = devices.k
                    reference devices: reads k, b
                    source input
                      reads k, a
        "#]],
    );
    rejects(
        r#"
        CREATE TABLE input (a bigint, k bigint) CREATE TABLE devices (b bigint, k bigint); SELECT a FROM input i JOIN devices d ON i.k = d.k WHERE k = 1 => several sources have a column `k`
        CREATE TABLE input (a bigint, k bigint); SELECT b FROM input i JOIN devices d ON i.k = d.k => `b` does not say which source it is a column of
    "#,
    );
}

// proves S1 S2
#[test]
fn a_table_is_declared_once_with_known_types() {
    rejects(
        r#"
        CREATE TABLE input (a bigint, a float); SELECT a FROM input => there are two columns called `a`
        CREATE TABLE input (a bigint) CREATE TABLE Input (b bigint); SELECT a FROM input => `Input` is declared twice
        CREATE TABLE input (a nvarchar(10)); SELECT a FROM input => text has one type, nvarchar(max)
        CREATE TABLE input (a int); SELECT a FROM input => there is no type `int`
    "#,
    );
    accepts(&["CREATE TABLE orders (a bigint); SELECT a FROM input"]);
    warns(
        "CREATE TABLE inptu (a bigint); SELECT b FROM input",
        expect![[r#"
            warning[HW1305]: there is no input `inptu`, so this has no effect
             --> q:1:14
              |
            1 | CREATE TABLE inptu (a bigint); SELECT b FROM input
              |              ^^^^^
              = help: CREATE TABLE declares the columns of the input of the same name
        "#]],
    );
}
