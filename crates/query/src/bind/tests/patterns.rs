//! MATCH_RECOGNIZE.

use expect_test::expect;

use super::{accepts, check, rejects_one, table};

fn query(measures: &str, pattern: &str, define: &str) -> String {
    format!(
        "SELECT * FROM input TIMESTAMP BY t MATCH_RECOGNIZE (LIMIT DURATION(minute, 5) PARTITION BY id \
         MEASURES {measures} AFTER MATCH SKIP TO NEXT ROW PATTERN ({pattern}) DEFINE {define}) AS m"
    )
}

// proves S1
#[test]
fn a_pattern_becomes_a_match_over_what_it_looks_at() {
    check(
        &query(
            "First(Up.v) AS v0, Last(Hot.v) - First(up.v) AS rise, Classifier() AS vars, System.Timestamp() AS t",
            "Up+ (Hot | . Cold?)*",
            "Up AS Up.v > 10 AND Up.v > Max(Up.v), Hot AS Hot.v > Up.v AND Hot.r.x = 1 AND System.Timestamp() > '2024'",
        ),
        expect![[r#"
            output output
              select id, First(Up.v) AS v0, Last(Hot.v) - First(Up.v) AS rise, Classifier() AS vars, System.Timestamp() AS t
                match (Up+ (Hot | (. Cold?))*) within 5 minutes by id, Up: Up.v > 10 AND Up.v > Max(Up.v), Hot: Hot.v > Last(Up.v) AND Hot.r.x = 1 AND Hot.System.Timestamp() > '2024'
                  source input timestamp by t
                    reads t as datetime, id, v, r.x
        "#]],
    );
}

// proves S1
#[test]
fn matches_are_a_source_like_any_other() {
    check(
        "WITH m AS (SELECT * FROM (SELECT a + 1 AS a, k FROM input) s MATCH_RECOGNIZE (LIMIT DURATION(s, 5) PARTITION BY s.k
            MEASURES A.a AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B AS B.a > A.a) AS p)
         SELECT k, COUNT(x) AS n FROM m GROUP BY k, Tumbling(s, 1)",
        expect![[r#"
            output output
              select k, COUNT(x) AS n
                group by TumblingWindow(Duration(second, 1)), k computing COUNT(x)
                  select k, Last(A.a) AS x
                    match (A B) within 5 seconds by k, B: B.a > Last(A.a)
                      select a + 1 AS a, k
                        source input
                          reads a, k
        "#]],
    );
    accepts(&[
        "SELECT * INTO o FROM (input PARTITION BY PartitionId MATCH_RECOGNIZE (LIMIT DURATION(s, 5) MEASURES A.x AS x, 1 AS y
            AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS 1 = 1) AS m)",
    ]);
}

// proves S1 S2
#[test]
fn a_pattern_that_is_wrong_is_told_so() {
    check(
        &query("A.x AS x", "A B", "A AS A.x > B.x, B AS B.x > 1"),
        expect![[r#"
            error[HW1510]: `B` is defined only later
             --> q:1:174
              |
            1 | ...ATCH_RECOGNIZE (LIMIT DURATION(minute, 5) PARTITION BY id MEASURES A.x AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE A AS A.x > B.x, B AS B.x > 1) AS m
              |                                                                                                                                             ^^^
              = help: a variable sees itself and those before it in DEFINE; change their order
        "#]],
    );
    let cases = r#"
        A.x AS x / A / B AS B.x > 1 => the pattern has no variable `B`
        A.x AS x / A / A AS A.x > 1, a AS A.x > 2 => `a` is defined twice
        x AS x / A / A AS A.x > 1 => `x` is not a variable of the pattern
        A AS x / A / A AS A.x > 1 => `A` is a variable; name a field of it
        First(A.x + 1) AS x / A / A AS A.x > 1 => First takes one field of one variable
        Max(A.x, A.y) AS x / A / A AS A.x > 1 => Max takes one field of one variable
        Min(ABS(A.x)) AS x / A / A AS A.x > 1 => Min takes one field of one variable
        Last(DISTINCT A.x) AS x / A / A AS A.x > 1 => Last takes one field of one variable
        SUM(A.x) AS x / A / A AS A.x > 1 => MATCH_RECOGNIZE cannot use SUM
        LAG(A.x) AS x / A / A AS A.x > 1 => MATCH_RECOGNIZE cannot use LAG
        A.x AS x / A / A AS PREV(A.x) > 1 => MATCH_RECOGNIZE cannot use PREV
        A.x AS x / A / A AS Classifier() = 'A' => Classifier() is allowed only in MEASURES
        Classifier(A) AS x / A / A AS A.x > 1 => Classifier takes no arguments
        A.x AS x, A.y AS x / A / A AS A.x > 1 => there are two columns called `x`
        A.x AS x / A / A AS A.x => a value is not a condition
        A.x > 1 AS x / A / A AS A.x > 1 => a condition is not a value
        A.x AS x / A{0} / A AS A.x > 1 => a part of a pattern is repeated at least once
        A.x AS x / A{3,2} / A AS A.x > 1 => the second count is below the first
        A.x AS x / A{2}* / A AS A.x > 1 => patterns do not have a second repetition sign
        A.x AS x / A{,} / A AS A.x > 1 => unexpected `}`
        A.x AS x / (A{16}){17} / A AS A.x > 1 => a pattern has at most 256 parts, repeated ones counted
        A.x AS x / A+? / A AS A.x > 1 => patterns do not have a second repetition sign
        A.x AS x / ^ A / A AS A.x > 1 => patterns do not have anchors
        A.x AS x / PERMUTE(A, B) / A AS A.x > 1 => patterns do not have PERMUTE
        A.x AS x / (A / A AS A.x > 1 => unexpected `DEFINE`
    "#;
    for (case, message) in table(cases) {
        let parts: Vec<&str> = case.split(" / ").collect();
        rejects_one(&query(parts[0], parts[1], parts[2]), message);
    }
}

// proves S1 S2
#[test]
fn the_clauses_stand_in_one_order() {
    let cases = r#"
        PARTITION BY a LIMIT DURATION(s, 5) PARTITION BY b MEASURES A.x AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.x = 1 => unexpected `PARTITION`
        LIMIT DURATION(s, 5) ORDER BY t MEASURES A.x AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.x = 1 => ORDER BY does not exist in this language
        LIMIT DURATION(s, 5) MEASURES A.x AS x ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.x = 1 => ONE ROW PER MATCH does not exist in this language
        LIMIT DURATION(s, 5) MEASURES A.x AS x ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.x = 1 => ALL ROWS PER MATCH does not exist in this language
        LIMIT DURATION(s, 5) MEASURES A.x AS x AFTER MATCH SKIP PAST LAST ROW PATTERN (A) DEFINE A AS A.x = 1 => matches only skip to the next row
        LIMIT DURATION(s, 5) MEASURES A.x AS x PATTERN (A) DEFINE A AS A.x = 1 => unexpected `PATTERN`
        LIMIT DURATION(s, 5) MEASURES A.x AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A) SUBSET B = (A) DEFINE A AS A.x = 1 => SUBSET does not exist in this language
        LIMIT DURATION(day, 8) MEASURES A.x AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.x = 1 => the lookback is at most 7 days
        LIMIT DURATION(s, 5) PARTITION BY a + 1 MEASURES A.x AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.x = 1 => PARTITION BY of MATCH_RECOGNIZE takes columns
        LIMIT DURATION(s, 5) PARTITION BY a, input.a MEASURES A.x AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.x = 1 => there are two columns called `a`
    "#;
    for (clauses, message) in table(cases) {
        rejects_one(
            &format!("SELECT * FROM input MATCH_RECOGNIZE ({clauses}) AS m"),
            message,
        );
    }
    let clauses = "LIMIT DURATION(s, 5) MEASURES A.x AS x AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS A.x = 1";
    let alone = "MATCH_RECOGNIZE is allowed only in SELECT * FROM source MATCH_RECOGNIZE (..)";
    rejects_one(
        &format!("SELECT x FROM input MATCH_RECOGNIZE ({clauses}) AS m"),
        alone,
    );
    rejects_one(
        &format!("SELECT * FROM input MATCH_RECOGNIZE ({clauses}) AS m WHERE x = 1"),
        alone,
    );
    rejects_one(
        &format!("SELECT * FROM devices MATCH_RECOGNIZE ({clauses}) AS m"),
        "reference data has no events in time order to match",
    );
}
