use expect_test::expect;

use super::{check, rejects};

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
fn a_mistyped_function_is_recognised() {
    check(
        "SELECT DATEAD(day, 1, t) AS y FROM input",
        expect![[r#"
            error[HW1204]: unknown function `DATEAD`
             --> q:1:8
              |
            1 | SELECT DATEAD(day, 1, t) AS y FROM input
              |        ^^^^^^
              = help: did you mean DATEADD?
        "#]],
    );
}

// proves S1
#[test]
fn functions_with_a_place_of_their_own_stand_only_there() {
    rejects(
        r#"
        SELECT GetArrayElements(a) FROM input => GetArrayElements returns rows, so it is allowed only after APPLY
        SELECT Tumbling(s, 1) FROM input => Tumbling is allowed only in GROUP BY
        SELECT Duration(s, 1) FROM input => Duration(..) is allowed only inside a window function
        SELECT System.Timestamp(1) FROM input => System.Timestamp() takes no arguments
    "#,
    );
}
