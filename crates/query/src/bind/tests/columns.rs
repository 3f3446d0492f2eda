use expect_test::expect;

use super::{accepts, check, rejects, warns};

// proves S1
#[test]
fn a_star_over_an_input_is_the_whole_event() {
    check(
        "SELECT * FROM input",
        expect![[r#"
        output output
          select *
            source input
              reads the whole event
    "#]],
    );
}

// proves S1
#[test]
fn a_star_over_a_step_with_known_columns_lists_them() {
    check(
        "WITH s AS (SELECT a, b + 1 AS c FROM input) SELECT * FROM s",
        expect![[r#"
            output output
              select a, c
                select a, b + 1 AS c
                  source input
                    reads a, b
        "#]],
    );
}

// proves S1
#[test]
fn a_star_over_a_star_passes_it_on_and_left_wins() {
    check(
        "WITH s AS (SELECT x + 1 AS x, * FROM input) SELECT y AS x, * FROM s",
        expect![[r#"
            output output
              select y AS x, *
                select *, y (carried)
                  source input
                    reads the whole event, y
        "#]],
    );
}

// proves S1
#[test]
fn a_name_goes_through_stars_down_to_the_event() {
    check(
        "WITH s AS (SELECT * FROM input WHERE a > 1), t AS (SELECT b AS c, * FROM s)
         SELECT t.c, d.e, A FROM t",
        expect![[r#"
            output output
              select c, d.e AS e, A
                select b AS c, d.e (carried), A (carried)
                  select b (carried), d.e (carried), A (carried)
                    filter a > 1
                      source input
                        reads a, b, d.e, A
        "#]],
    );
}

// proves S1
#[test]
fn a_name_through_a_union_is_asked_of_every_branch() {
    check(
        "WITH u AS (SELECT * FROM input UNION ALL SELECT * FROM orders) SELECT a FROM u WHERE b = 1",
        expect![[r#"
            output output
              select a
                filter b = 1
                  union b, a
                    select b (carried), a (carried)
                      source input
                        reads b, a
                    select b (carried), a (carried)
                      source orders
                        reads b, a
        "#]],
    );
}

// proves S1
#[test]
fn a_record_spreads_and_its_fields_are_found_behind_the_spread() {
    check(
        "WITH s AS (SELECT id, payload.* FROM input), t AS (SELECT id, CAST(x AS record) AS r FROM s)
         SELECT t.r.*, id, r.y FROM t WHERE t.id = 1",
        expect![[r#"
            output output
              select r.*, id, r.y AS y
                filter id = 1
                  select id, CAST(x AS record) AS r
                    select id, payload.x (carried)
                      source input
                        reads id, payload.x
        "#]],
    );
}

// proves S1
#[test]
fn source_metadata_stands_behind_a_field_of_that_name() {
    check(
        "SELECT EVENTENQUEUEDUTCTIME AS t, IoTHub.EnqueuedTime AS u, PartitionId, BlobName,
         input.BlobLastModifiedUtcTime FROM input",
        expect![[r#"
            output output
              select COALESCE(EVENTENQUEUEDUTCTIME, arrival) AS t, COALESCE(IoTHub.EnqueuedTime, arrival) AS u, COALESCE(PartitionId, partition) AS PartitionId, COALESCE(BlobName, file name) AS BlobName, COALESCE(BlobLastModifiedUtcTime, file time) AS BlobLastModifiedUtcTime
                source input
                  reads EVENTENQUEUEDUTCTIME, arrival, IoTHub.EnqueuedTime, PartitionId, partition, BlobName, file name, BlobLastModifiedUtcTime, file time
        "#]],
    );
}

// proves S1
#[test]
fn the_name_of_the_source_is_the_event_as_a_record() {
    check(
        "SELECT i AS e, i.a FROM input i",
        expect![[r#"
        output output
          select * AS e, a
            source input
              reads the whole event, a
    "#]],
    );
}

// proves S1
#[test]
fn items_without_alias_are_named_after_what_they_are() {
    check(
        "SELECT a.b, a + 1, COUNT(*), CAST(a AS bigint), System.Timestamp FROM input
         GROUP BY a, a.b, Tumbling(s, 1)",
        expect![[r#"
            output output
              select b, a + 1 AS expr2, COUNT(*) AS count, CAST(a AS bigint) AS expr4, System.Timestamp() AS timestamp
                group by TumblingWindow(Duration(second, 1)), a, a.b AS b computing COUNT(*)
                  source input
                    reads a, a.b
        "#]],
    );
}

// proves S1
#[test]
fn every_form_of_alias_works() {
    check(
        "SELECT a AS b, c d, e = f, 'g' = h, i AS 'j', k [l m], \"n\" = o FROM input",
        expect![[r#"
            output output
              select a AS b, c AS d, f AS e, h AS g, i AS j, k AS [l m], o AS n
                source input
                  reads a, c, f, h, i, k, o
        "#]],
    );
}

// proves S1
#[test]
fn columns_of_a_step_are_found_exactly_then_ignoring_case() {
    check(
        "WITH s AS (SELECT a AS ab, b AS AB, c FROM input) SELECT AB, C FROM s",
        expect![[r#"
            output output
              select AB, c AS C
                select b AS AB, c
                  source input
                    reads b, c
        "#]],
    );
    rejects(
        r#"
        WITH s AS (SELECT a AS ab, b AS AB FROM input) SELECT Ab FROM s => there is no column `Ab`
    "#,
    );
}

// proves S1 S2
#[test]
fn a_column_that_a_step_does_not_have_is_an_error_with_the_nearest_name() {
    check(
        "WITH s AS (SELECT deviceId, temperature FROM input)\nSELECT temprature FROM s",
        expect![[r#"
            error[HW1203]: there is no column `temprature`
             --> q:2:8
              |
            2 | SELECT temprature FROM s
              |        ^^^^^^^^^^
              = help: did you mean `temperature`?
        "#]],
    );
}

// proves S1
#[test]
fn two_columns_of_one_name_are_an_error() {
    check(
        "SELECT a AS x, b AS x FROM input",
        expect![[r#"
        error[HW1302]: there are two columns called `x`
         --> q:1:21
          |
        1 | SELECT a AS x, b AS x FROM input
          |                     ^ the second one
          = help: give it another name with AS
    "#]],
    );
    rejects(
        r#"
        SELECT COUNT(*), COUNT(a) FROM input GROUP BY Tumbling(s, 1) => there are two columns called `count`
    "#,
    );
    accepts(&["SELECT a, A FROM input"]);
}

// proves S1
#[test]
fn a_column_behind_a_star_that_has_it_is_ignored_with_a_warning() {
    warns(
        "SELECT *, x + 1 AS x FROM input",
        expect![[r#"
        warning[HW1302]: this `x` is ignored: the `*` to its left has a column of that name
         --> q:1:20
          |
        1 | SELECT *, x + 1 AS x FROM input
          |                    ^
          = help: the leftmost column wins; put this one before the `*`
    "#]],
    );
    check(
        "SELECT *, x + 1 AS x FROM input",
        expect![[r#"
        output output
          select *
            source input
              reads the whole event
    "#]],
    );
    check(
        "WITH s AS (SELECT a FROM input) SELECT *, 1 AS a FROM s",
        expect![[r#"
            output output
              select a
                select a
                  source input
                    reads a
        "#]],
    );
    warns("SELECT *, x + 1 AS y FROM input", expect![[""]]);
}

// proves S1
#[test]
fn likely_mistakes_about_names_are_warned_about() {
    warns(
        "SELECT arr[0] FROM input",
        expect![[r#"
        warning[HW1208]: [0] gives the column the name `0`; it takes no array element
         --> q:1:11
          |
        1 | SELECT arr[0] FROM input
          |           ^^^
          = help: for the element write GetArrayElement(arr, 0)
    "#]],
    );
    warns(
        "SELECT a FROM input WHERE kind = \"start\"",
        expect![[r#"
        warning[HW1208]: "start" is the name of a column, not a text
         --> q:1:34
          |
        1 | SELECT a FROM input WHERE kind = "start"
          |                                  ^^^^^^^
          = help: write 'start' for the text, [start] for the column
    "#]],
    );
    warns(
        "SELECT input.a FROM input i",
        expect![[r#"
        warning[HW1208]: `input` has the alias `i` here, so this is a field named `input`
         --> q:1:8
          |
        1 | SELECT input.a FROM input i
          |        ^^^^^
          = help: write i.a
    "#]],
    );
}

// proves S1
#[test]
fn casting_to_text_is_remembered_through_steps() {
    check(
        "WITH s AS (SELECT CAST(a AS nvarchar(max)) AS t, a FROM input),
              u AS (SELECT t AS v, a FROM s UNION SELECT t AS v, a FROM s WHERE a > 1)
         SELECT MAX(v), MIN(a), COUNT(v) AS n FROM u GROUP BY Tumbling(s, 1)",
        expect![[r#"
            output output
              select MAX(v) as text AS max, MIN(a) AS min, COUNT(v) AS n
                group by TumblingWindow(Duration(second, 1)) computing MAX(v) as text, MIN(a), COUNT(v)
                  union v, a
                    select t AS v, a
                      #1 select CAST(a AS nvarchar(max)) AS t, a
                        source input
                          reads a
                    select t AS v, a
                      filter a > 1
                        #1 as above
        "#]],
    );
}
