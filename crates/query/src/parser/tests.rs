use expect_test::{Expect, expect};

use super::parse;
use crate::ast::{ExprKind, Query, SelectItem};

fn errors(query: &str, expected: Expect) {
    let shown: String = parse(query)
        .1
        .iter()
        .map(|error| error.render(query, "q"))
        .collect();
    expected.assert_eq(&shown);
}

fn first_item(query: &str) -> ExprKind {
    let (script, diagnostics) = parse(query);
    assert_eq!(diagnostics, []);
    match &script.statements[0] {
        Query::Select(select) => match &select.items[0] {
            SelectItem::Expr { expr, .. } => expr.kind.clone(),
            star => panic!("{star:?}"),
        },
        union => panic!("{union:?}"),
    }
}

// proves S1 S2
#[test]
fn one_run_reports_every_broken_statement() {
    errors(
        "WITH a AS (SELECT x, FROM input), b AS (SELECT y FROM input WHERE)\nSELECT z FROM a;\nSELECT FROM b;\nSELECT q",
        expect![[r#"
            error[HW1002]: unexpected `FROM`
             --> q:1:22
              |
            1 | WITH a AS (SELECT x, FROM input), b AS (SELECT y FROM input WHERE)
              |                      ^^^^ expected another column
              = help: remove the comma before FROM
            error[HW1002]: unexpected `)`
             --> q:1:66
              |
            1 | WITH a AS (SELECT x, FROM input), b AS (SELECT y FROM input WHERE)
              |                                                                  ^ expected a value
            error[HW1002]: unexpected `FROM`
             --> q:3:8
              |
            3 | SELECT FROM b;
              |        ^^^^ expected a value
            error[HW1002]: every SELECT needs a FROM
             --> q:4:1
              |
            4 | SELECT q
              | ^^^^^^^^ expected FROM after this
        "#]],
    );
}

// proves S1
#[test]
fn the_whole_grammar_parses() {
    let queries = [
        "CREATE TABLE t (a bigint, b nvarchar(max)); SELECT a FROM t",
        "SELECT a FROM t TIMESTAMP BY f(x) OVER k, PartitionId PARTITION BY k INTO 8",
        "SELECT a FROM t PARTITION BY k TIMESTAMP BY x",
        "SELECT a FROM (t INNER JOIN u ON 1 = 1) LEFT OUTER JOIN v ON DATEDIFF(s, t, v) = 0",
        "SELECT TopOne() OVER (ORDER BY a ASC, b DESC) FROM t GROUP BY Windows(Window('x', Sliding(s, 1)))",
        "SELECT LAG(*, 2) OVER (PARTITION BY a LIMIT DURATION(hour, 1) WHEN b > 1) FROM t",
        "SELECT user, time, value, count, [key], state, rank, left, top, distinct FROM input WHERE timestamp = 1",
        "SELECT LEFT(a, 2), count(distinct a), all, [end].[from], x.end FROM t left",
        "SELECT a FROM t WHERE NOT NOT a = -1 AND - - b <> + ~c",
        "SELECT count = a + 1, 'b' = c, f(x).y.z FROM t UNION ALL (SELECT 1 FROM u)",
    ];
    for query in queries {
        assert_eq!(parse(query).1, [], "{query}");
    }
}

// proves S1
#[test]
fn product_binds_tighter_than_sum_and_bit_operators() {
    use crate::plan::BinaryOp::{BitAnd, Multiply};
    let ExprKind::Binary {
        op: BitAnd,
        left,
        right,
    } = first_item("SELECT a + b & c * d FROM t")
    else {
        panic!("& is the outermost operator");
    };
    assert!(matches!(
        left.kind,
        ExprKind::Binary {
            op: crate::plan::BinaryOp::Add,
            ..
        }
    ));
    assert!(matches!(right.kind, ExprKind::Binary { op: Multiply, .. }));
}

// proves S1
#[test]
fn the_smallest_bigint_is_a_literal_and_the_next_is_an_error() {
    assert!(matches!(
        first_item("SELECT -9223372036854775808 FROM t"),
        ExprKind::Int(i64::MIN)
    ));
    errors(
        "SELECT 9223372036854775808 FROM t",
        expect![[r#"
        error[HW1004]: this number does not fit into a bigint
         --> q:1:8
          |
        1 | SELECT 9223372036854775808 FROM t
          |        ^^^^^^^^^^^^^^^^^^^
          = help: write 9223372036854775808.0 for a float
    "#]],
    );
}

// proves S1 S2
#[test]
fn a_mistyped_keyword_is_recognised() {
    errors(
        "SELECT a FRM input",
        expect![[r#"
        error[HW1002]: unexpected `input`
         --> q:1:14
          |
        1 | SELECT a FRM input
          |              ^^^^^ expected `,` or FROM
          = help: did you mean FROM instead of `FRM`?
    "#]],
    );
    errors(
        "SELET a FROM input",
        expect![[r#"
        error[HW1002]: unexpected `SELET`
         --> q:1:1
          |
        1 | SELET a FROM input
          | ^^^^^ expected SELECT
          = help: did you mean SELECT instead of `SELET`?
    "#]],
    );
}

// proves S1
#[test]
fn clauses_of_other_dialects_are_named() {
    let cases = r#"
        SELECT DISTINCT a FROM t => SELECT DISTINCT
        SELECT TOP 5 a FROM t => SELECT TOP
        SELECT a FROM t ORDER BY a => ORDER BY
        SELECT a FROM t LIMIT 5 => LIMIT
        SELECT a FROM t OFFSET 5 => OFFSET
        SELECT a FROM t WHERE a = 1 FETCH NEXT 5 ROWS ONLY => FETCH
        SELECT a FROM t INTERSECT SELECT a FROM u => INTERSECT
        SELECT a FROM t EXCEPT SELECT a FROM u => EXCEPT
        SELECT a FROM t PIVOT (x) => PIVOT
        SELECT a FROM t RIGHT JOIN u ON 1 = 1 => RIGHT JOIN
        SELECT a FROM t FULL OUTER JOIN u ON 1 = 1 => FULL JOIN
        SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u) => EXISTS
        SELECT a FROM t WHERE a = ANY (SELECT 1 FROM u) => ANY
        SELECT a FROM t WHERE a > ALL (SELECT 1 FROM u) => ALL
        SELECT a FROM t WHERE a IN (SELECT 1 FROM u) => a subquery inside an expression
        SELECT (SELECT 1 FROM u) FROM t => a subquery inside an expression
        SELECT SUM(a) FILTER (WHERE a > 1) FROM t => FILTER (WHERE ..)
        SELECT a FROM t WHERE a LIKE 'x' ESCAPE 'y' => LIKE .. ESCAPE
        INSERT INTO t VALUES (1) => INSERT
        UPDATE t SET a = 1 => UPDATE
        DELETE FROM t => DELETE
        DECLARE @a int => DECLARE
        WITH RECURSIVE s AS (SELECT a FROM t) SELECT a FROM s => recursive WITH
    "#;
    for (query, name) in cases
        .lines()
        .filter_map(|line| line.trim().split_once(" => "))
    {
        let messages: Vec<String> = parse(query)
            .1
            .into_iter()
            .map(|error| error.message)
            .collect();
        let expected = format!("{name} does not exist in this language");
        assert!(messages.contains(&expected), "{query}: {messages:?}");
    }
}

// proves S1
#[test]
fn rules_that_need_no_names_are_checked_while_parsing() {
    errors(
        "SELECT CASE WHEN a = 1 THEN 2 END FROM t",
        expect![[r#"
        error[HW1402]: CASE must have an ELSE
         --> q:1:8
          |
        1 | SELECT CASE WHEN a = 1 THEN 2 END FROM t
          |        ^^^^^^^^^^^^^^^^^^^^^^^^^^
          = help: write ELSE NULL END if nothing else applies
    "#]],
    );
    errors(
        "SELECT CAST(a AS nvarchar(50)), TRY_CAST(b AS int) FROM t",
        expect![[r#"
            error[HW1205]: text has one type, nvarchar(max)
             --> q:1:18
              |
            1 | SELECT CAST(a AS nvarchar(50)), TRY_CAST(b AS int) FROM t
              |                  ^^^^^^^^^^^^
              = help: write nvarchar(max)
        "#]],
    );
    errors(
        "SELECT a FROM t TIMESTAMP BY x TIMESTAMP BY y",
        expect![[r#"
            error[HW1002]: this clause is repeated
             --> q:1:32
              |
            1 | SELECT a FROM t TIMESTAMP BY x TIMESTAMP BY y
              |                                ^^^^^^^^^ the second one
        "#]],
    );
    errors(
        "SELECT a FROM t WHERE a == 1",
        expect![[r#"
        error[HW1002]: unexpected `=`
         --> q:1:26
          |
        1 | SELECT a FROM t WHERE a == 1
          |                          ^ expected a value
          = help: equality is a single =
    "#]],
    );
    errors(
        "SELECT a",
        expect![[r#"
        error[HW1002]: every SELECT needs a FROM
         --> q:1:1
          |
        1 | SELECT a
          | ^^^^^^^^ expected FROM after this
    "#]],
    );
    errors(
        "-- nothing",
        expect![[r#"
        error[HW1002]: there is no SELECT in this query
         --> q:1:11
          |
        1 | -- nothing
          |           ^ expected SELECT
    "#]],
    );
    errors(
        "SELECT a FROM t; WITH s AS (SELECT a FROM t) SELECT a FROM s",
        expect![[r#"
            error[HW1002]: there is one WITH block, before the first SELECT
             --> q:1:18
              |
            1 | SELECT a FROM t; WITH s AS (SELECT a FROM t) SELECT a FROM s
              |                  ^^^^
              = help: move these steps into that block; every SELECT sees them
        "#]],
    );
    errors(
        "SELECT from FROM t",
        expect![[r#"
        error[HW1002]: unexpected `from`
         --> q:1:8
          |
        1 | SELECT from FROM t
          |        ^^^^ expected a value
    "#]],
    );
}

// proves G2
#[test]
fn a_path_is_as_deep_as_it_has_names() {
    for names in [200, 201, 20_000] {
        let path = vec!["a"; names].join(".");
        for query in [
            format!("SELECT {path} AS x FROM input"),
            format!("SELECT {path}.* FROM input"),
            format!("SELECT x FROM input WHERE {path} = 1 OR x = 2"),
        ] {
            let (_, diagnostics) = parse(&query);
            let is_refused = !diagnostics.is_empty();
            // An operator above the path counts, too.
            let is_below = names == 200 && query.contains("WHERE");
            assert_eq!(
                is_refused,
                names > 200 || is_below,
                "{names}: {diagnostics:?}"
            );
        }
    }
}
