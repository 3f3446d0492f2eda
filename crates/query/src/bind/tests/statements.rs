use expect_test::expect;

use super::{accepts, check, rejects, warns};
use crate::{Catalog, CatalogInput, compile};

// proves S1
#[test]
fn statements_share_steps_and_need_no_semicolons() {
    accepts(&[
        "WITH s AS (SELECT a FROM input) SELECT a INTO x FROM s; SELECT a INTO x FROM s",
        "SELECT a INTO x FROM input SELECT b INTO y FROM orders",
        "(SELECT a INTO x FROM input UNION SELECT a FROM orders) UNION ALL (SELECT a FROM input)",
        "SELECT a FROM ((input))",
        "SELECT a FROM (SELECT a FROM (SELECT b AS a FROM input) x) AS y",
        "with S as (select A from INPUT) select a into X from s",
    ]);
}

// proves S1 S2
#[test]
fn an_unknown_input_is_an_error_that_says_what_there_is() {
    check(
        "SELECT a\nFROM ordrs",
        expect![[r#"
        error[HW1201]: there is no input or step `ordrs`
         --> q:2:6
          |
        2 | FROM ordrs
          |      ^^^^^
          = help: did you mean `orders`? there are `input`, `orders` and `devices`
    "#]],
    );
    check(
        "SELECT a FROM weather",
        expect![[r#"
        error[HW1201]: there is no input or step `weather`
         --> q:1:15
          |
        1 | SELECT a FROM weather
          |               ^^^^^^^
          = help: there are `input`, `orders` and `devices`
    "#]],
    );
    rejects(
        r#"
        WITH a AS (SELECT x FROM b), b AS (SELECT x FROM input) SELECT x FROM a => the step `b` is used before its definition
        WITH a AS (SELECT x FROM a) SELECT x FROM a => the step `a` is used before its definition
    "#,
    );
}

// proves S1
#[test]
fn a_step_may_take_the_name_of_the_input_it_reads() {
    check(
        "WITH input AS (SELECT a FROM input) SELECT a FROM input",
        expect![[r#"
            output output
              select a
                select a
                  source input
                    reads a
        "#]],
    );
}

// proves S1
#[test]
fn step_names_are_unique() {
    rejects(
        r#"
        WITH s AS (SELECT a FROM input), S AS (SELECT b FROM input) SELECT * FROM s => there are two steps called `s`
    "#,
    );
    warns(
        "WITH s AS (SELECT a FROM input) SELECT a FROM input",
        expect![[r#"
            warning[HW1207]: nothing reads the step `s`
             --> q:1:6
              |
            1 | WITH s AS (SELECT a FROM input) SELECT a FROM input
              |      ^
        "#]],
    );
}

// proves S1
#[test]
fn into_stands_on_the_first_select_of_a_statement() {
    check(
        "WITH s AS (SELECT a INTO x FROM input) SELECT a FROM s",
        expect![[r#"
            error[HW1301]: a step cannot write to an output
             --> q:1:26
              |
            1 | WITH s AS (SELECT a INTO x FROM input) SELECT a FROM s
              |                          ^ INTO inside a step
              = help: name the output in a SELECT after the WITH block that reads this step
        "#]],
    );
    rejects(
        r#"
        SELECT a FROM (SELECT a INTO x FROM input) d => a step cannot write to an output
        SELECT a FROM input UNION SELECT a INTO x FROM orders => INTO belongs to the first SELECT of a UNION
    "#,
    );
}

// proves S1 S2
#[test]
fn an_unknown_output_is_an_error_when_outputs_are_declared() {
    let input = CatalogInput {
        name: "input".to_string(),
        reference: false,
    };
    let catalog = Catalog {
        inputs: vec![input],
        outputs: Some(vec!["Alerts".to_string()]),
        any_input: false,
        functions: None,
        ignore_case: false,
        strict_types: false,
        older_level: None,
        without_geo: false,
    };
    let message = |query: &str| match compile(query, &catalog) {
        Ok(compiled) => format!("fine, to {}", compiled.plan.outputs[0].name),
        Err(errors) => errors[0].render(query, "q"),
    };
    expect![[r#"
        error[HW1202]: there is no output `alert`
         --> q:1:15
          |
        1 | SELECT a INTO alert FROM input
          |               ^^^^^
          = help: did you mean `Alerts`?
    "#]]
    .assert_eq(&message("SELECT a INTO alert FROM input"));
    expect![[r#"
        error[HW1202]: without INTO the result goes to `output`, and there is no such output
         --> q:1:1
          |
        1 | SELECT a FROM input
          | ^^^^^^^^
          = help: the outputs are `Alerts`
    "#]]
    .assert_eq(&message("SELECT a FROM input"));
    assert_eq!(
        message("SELECT a INTO alerts FROM input"),
        "fine, to Alerts"
    );
}

// proves S1
#[test]
fn branches_of_a_union_have_the_same_columns() {
    check(
        "SELECT a, b FROM input\nUNION SELECT a, c FROM orders",
        expect![[r#"
            error[HW1304]: column 2 of this UNION is `b` above and `c` here
             --> q:2:7
              |
            2 | UNION SELECT a, c FROM orders
              |       ^^^^^^^^^^^^^^^^^^^^^^^
              = help: write c AS b, or put the columns in the same order
        "#]],
    );
    rejects(
        r#"
        SELECT a FROM input UNION SELECT a, b FROM orders => the branches of this UNION have 1 and 2 columns
        SELECT * FROM input UNION SELECT a FROM orders => one branch of this UNION has a `*`, another lists its columns
        SELECT a, * FROM input UNION SELECT *, a AS b FROM orders => column 1 of this UNION is `a` above and `*` here
        SELECT a FROM input PARTITION BY a UNION SELECT a FROM orders PARTITION BY b => the branches of this UNION are partitioned differently
        SELECT a FROM input PARTITION BY a INTO 4 UNION SELECT a FROM orders PARTITION BY a INTO 8 => the branches of this UNION are partitioned differently
    "#,
    );
    accepts(&[
        "SELECT a, * FROM input UNION SELECT b AS A, * FROM orders PARTITION BY a",
        "SELECT a FROM input i PARTITION BY i.k UNION SELECT a FROM orders o PARTITION BY o.K INTO 4",
    ]);
}

// proves S1
#[test]
fn without_a_catalog_every_name_is_an_input() {
    let compiled = compile("SELECT a INTO b FROM anything", &Catalog::open());
    assert!(compiled.is_ok_and(|c| c.plan.inputs[0].name == "anything"));
}

// proves S1
#[test]
fn one_input_is_read_once_however_it_is_spelled() {
    let query = "SELECT a INTO x FROM Anything SELECT b INTO y FROM anything";
    for catalog in [Catalog::open(), Catalog::streams(["Anything"])] {
        assert!(compile(query, &catalog).is_ok_and(|c| c.plan.inputs.len() == 1));
    }
}
