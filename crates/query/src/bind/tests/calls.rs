//! Scalar functions, and calls in general.

use expect_test::expect;

use super::{accepts, check, rejects, warns};
use crate::functions::{self, Kind};
use crate::{Catalog, compile};

// proves S1
#[test]
fn scalar_functions_become_calls() {
    check(
        "SELECT DATEADD(hours, -1, t) AS a, DATEDIFF(wk, a.t, b) AS b, LEN(TRIM(s)) AS c,
            COALESCE(x, y, 1) AS d, NULLIF(x, 0) AS e, GetRecordPropertyValue(r, \"name\") AS f, udf.f(input, a) AS g
         FROM input",
        expect![[r#"
            output output
              select DATEADD(hour, -1, t) AS a, DATEDIFF(week, a.t, b) AS b, LEN(TRIM(s)) AS c, COALESCE(x, y, 1) AS d, CASE WHEN x = 0 THEN NULL ELSE x END AS e, GetRecordPropertyValue(r, 'name') AS f, udf.f(*, a) AS g
                source input
                  reads t, a.t, b, s, x, y, r, the whole event, a
        "#]],
    );
}

// proves S1
#[test]
fn dateparts_have_their_abbreviations() {
    let parts = "year yy yyyy quarter qq q month mm m dayofyear dy y day dd d week wk ww weekday dw w \
         hour hh minute mi n second ss s millisecond ms microsecond mcs years Days HOURS";
    for part in parts.split_whitespace() {
        accepts(&[&format!("SELECT DATEPART({part}, t) AS x FROM input")]);
    }
}

// proves S1 S2
#[test]
fn a_call_that_does_not_fit_shows_how_it_is_written() {
    check(
        "SELECT ROUND(x) AS a, DATEADD(dya, 1, t) AS b FROM input",
        expect![[r#"
            error[HW1403]: ROUND takes 2 arguments
             --> q:1:8
              |
            1 | SELECT ROUND(x) AS a, DATEADD(dya, 1, t) AS b FROM input
              |        ^^^^^^^^ here is one
              = help: write ROUND(x, n)
            error[HW1403]: `dya` is not a datepart
             --> q:1:31
              |
            1 | SELECT ROUND(x) AS a, DATEADD(dya, 1, t) AS b FROM input
              |                               ^^^
              = help: did you mean day?
        "#]],
    );
    rejects(
        r#"
        SELECT LEN() AS x FROM input => LEN takes one argument
        SELECT LEN(a, b) AS x FROM input => LEN takes one argument
        SELECT LEN(*) AS x FROM input => LEN takes one argument
        SELECT CHARINDEX(a) AS x FROM input => CHARINDEX takes 2 to 3 arguments
        SELECT CONCAT(a) AS x FROM input => CONCAT takes at least 2 arguments
        SELECT COALESCE(a) AS x FROM input => COALESCE takes at least 2 arguments
        SELECT NULLIF(a, b, c) AS x FROM input => NULLIF takes 2 arguments
        SELECT ABS(DISTINCT a) AS x FROM input => DISTINCT exists for COUNT only
        SELECT ABS(a) OVER (PARTITION BY b) AS x FROM input => ABS has no OVER
        SELECT DATEPART('day', t) AS x FROM input => the datepart is a bare word: day
        SELECT DATEPART(fortnight, t) AS x FROM input => `fortnight` is not a datepart
        SELECT DATEPART(1, t) AS x FROM input => `1` is not a datepart
        SELECT [CAST](a) AS x FROM input => CAST takes a value and a type
        SELECT Classifier() AS x FROM input => Classifier is allowed only inside MATCH_RECOGNIZE
        SELECT First(a.x) AS x FROM input => First is allowed only inside MATCH_RECOGNIZE
        SELECT [System.Timestamp](a) AS x FROM input => unknown function `System.Timestamp`
        SELECT frobnicate(a) FROM input => unknown function `frobnicate`
        SELECT x.ABS(a) FROM input => the built-in function ABS takes no prefix
        SELECT system.f(a) FROM input => there is no function `system.f`
        SELECT a.udf.f(a) FROM input => there is no function `a.f`
        SELECT udf.f(*) AS x FROM input => udf.f takes no `*`
        SELECT udf.f(DISTINCT a) AS x FROM input => DISTINCT exists for COUNT only
        SELECT udf.f(a) OVER (LIMIT DURATION(s, 1)) AS x FROM input => udf.f is a function of values, so it has no OVER
    "#,
    );
}

// proves S1
#[test]
fn double_quotes_are_text_only_as_the_name_of_a_property() {
    warns(
        "SELECT GetRecordPropertyValue(r, \"name\") AS x FROM input",
        expect![[""]],
    );
    warns(
        "SELECT LEN(\"name\") AS x FROM input",
        expect![[r#"
            warning[HW1208]: "name" is the name of a column, not a text
             --> q:1:12
              |
            1 | SELECT LEN("name") AS x FROM input
              |            ^^^^^^
              = help: write 'name' for the text, [name] for the column
        "#]],
    );
}

// proves S1
#[test]
fn a_declared_column_in_double_quotes_needs_no_warning() {
    warns(
        "CREATE TABLE input (name nvarchar(max)); SELECT LEN(\"name\") AS x FROM input",
        expect![[""]],
    );
}

// proves S1
#[test]
fn a_ring_of_constants_that_is_open_is_closed_with_a_warning() {
    let polygon = |end: &str| {
        format!(
            "SELECT CreatePolygon(CreatePoint(0, -1), p, CreatePoint(1, 1), {end}) AS x FROM input"
        )
    };
    warns(&polygon("CreatePoint(0.0, -1.0)"), expect![[""]]);
    warns(&polygon("p"), expect![[""]]);
    warns(
        &polygon("CreatePoint(1, 0)"),
        expect![[r#"
        warning[HW1403]: this ring does not end where it began, so it is closed
         --> q:1:8
          |
        1 | SELECT CreatePolygon(CreatePoint(0, -1), p, CreatePoint(1, 1), CreatePoint(1, 0)) AS x FROM input
          |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          = help: repeat the first point at the end
    "#]],
    );
    let within = |area: &str| format!("SELECT ST_WITHIN(p, '{area}') AS x FROM input");
    warns(&within("POLYGON ((0 0, 1 0, 1 1, 0.0 0))"), expect![[""]]);
    warns(&within("LINESTRING (0 0, 1 0, 1 1)"), expect![[""]]);
    warns(
        &within("multipolygon(((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6)))"),
        expect![[r#"
        warning[HW1403]: this ring does not end where it began, so it is closed
         --> q:1:21
          |
        1 | SELECT ST_WITHIN(p, 'multipolygon(((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6)))') AS x FROM input
          |                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          = help: repeat the first point at the end
    "#]],
    );
}

// proves S1 S2
#[test]
fn nested_nullif_does_not_explode() {
    let mut value = "a".to_string();
    for _ in 0..60 {
        value = format!("NULLIF({value}, 1)");
    }
    super::rejects_one(
        &format!("SELECT {value} AS x FROM input"),
        "this CASE is too large",
    );
}

// proves S1
#[test]
fn every_example_of_the_table_binds() {
    for info in functions::table() {
        for (example, _) in info.examples {
            let query = format!("SELECT {example} AS x FROM input");
            if let Err(errors) = compile(&query, &Catalog::streams(["input"])) {
                panic!("{example}: {errors:?}");
            }
        }
    }
}

// proves S1
#[test]
fn scalar_calls_of_every_shape_bind_or_say_how_many_they_take() {
    let scalars = functions::table()
        .iter()
        .filter_map(|info| match info.kind {
            Kind::Scalar(function) => Some((info, function)),
            _ => None,
        });
    for (info, function) in scalars {
        let (least, most) = info.arguments;
        for count in 0..10 {
            let mut args = vec!["a"; count];
            if let Some(first) = args.first_mut().filter(|_| function.takes_part()) {
                *first = "day";
            }
            let query = format!("SELECT {}({}) AS x FROM input", info.name, args.join(", "));
            let fits = count >= least && most.is_none_or(|most| count <= most);
            match compile(&query, &Catalog::open()) {
                Ok(_) => assert!(fits, "{query}"),
                Err(errors) => {
                    assert!(!fits, "{query}");
                    let help = errors[0].help.as_deref().unwrap_or_default();
                    assert_eq!(help, format!("write {}", info.signature));
                }
            }
        }
    }
}
