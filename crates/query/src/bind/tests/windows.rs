//! Windows(..) and System.Window().

use expect_test::expect;

use super::{accepts, check, rejects};

// proves S1
#[test]
fn several_windows_are_a_union_of_windows() {
    check(
        "SELECT System.Window().Id AS w, k, COUNT(*) AS n FROM input TIMESTAMP BY t
         GROUP BY k, Windows(Window('1m', Tumbling(minute, 1)), Window('1h', Hopping(minute, 60, 1))) HAVING COUNT(*) > 1",
        expect![[r#"
            output output
              select System.Window().Id AS w, k, COUNT(*) AS n
                filter COUNT(*) > 1
                  union k, System.Window().Id, COUNT(*)
                    select k (carried), '1m' (carried), COUNT(*) (carried)
                      group by TumblingWindow(Duration(minute, 1)), k computing COUNT(*)
                        #0 source input timestamp by t
                          reads t as datetime, k
                    select k (carried), '1h' (carried), COUNT(*) (carried)
                      group by HoppingWindow(Duration(hour, 1), Hop(minute, 1)), k computing COUNT(*)
                        #0 as above
        "#]],
    );
}

// proves S1
#[test]
fn windows_without_ids_have_none() {
    check(
        "SELECT System.Window() AS w, MAX(a) AS n FROM input GROUP BY Windows(Sliding(s, 1), System.Timestamp())",
        expect![[r#"
            output output
              select {Id: System.Window().Id} AS w, MAX(a) AS n
                union System.Window().Id, MAX(a)
                  select NULL (carried), MAX(a) (carried)
                    group by SlidingWindow(Duration(second, 1)) computing MAX(a)
                      #0 source input
                        reads a
                  select NULL (carried), MAX(a) (carried)
                    group by System.Timestamp() computing MAX(a)
                      #0 as above
        "#]],
    );
    check(
        "SELECT System.Window().id AS w, COUNT(*) AS n FROM input GROUP BY Tumbling(s, 1)",
        expect![[r#"
            output output
              select NULL AS w, COUNT(*) AS n
                group by TumblingWindow(Duration(second, 1)) computing COUNT(*)
                  source input
                    reads no fields
        "#]],
    );
}

// proves S1
#[test]
fn sessions_beside_other_windows_keep_their_keys_to_themselves() {
    check(
        "SELECT a, COUNT(*) AS n FROM input
         GROUP BY a, Windows(Tumbling(s, 1), Session(s, 5, 10) OVER (PARTITION BY a, k))",
        expect![[r#"
            output output
              select a, COUNT(*) AS n
                union a, COUNT(*)
                  select a (carried), COUNT(*) (carried)
                    group by TumblingWindow(Duration(second, 1)), a computing COUNT(*)
                      #0 source input
                        reads a, k
                  select a (carried), COUNT(*) (carried)
                    group by SessionWindow(Timeout(second, 5), MaxDuration(second, 10)) OVER (PARTITION BY a, k), a, k computing COUNT(*)
                      #0 as above
        "#]],
    );
}

// proves S1
#[test]
fn the_id_may_be_used_through_an_alias_in_having() {
    accepts(&[
        "SELECT System.Window().Id AS w, COUNT(*) AS n FROM input GROUP BY Windows(Window('a', Tumbling(s, 1))) HAVING w = 'a'",
        "SELECT CONCAT(System.Window().Id, k) AS w FROM input GROUP BY k, Windows(Window('a', Tumbling(s, 1)), Window('b', System.Timestamp))",
        "SELECT COUNT(*) AS n FROM input PARTITION BY PartitionId GROUP BY PartitionId, System.Timestamp(), Windows(Tumbling(s, 1))",
    ]);
}

// proves S1 S2
#[test]
fn what_windows_cannot_be() {
    rejects(
        r#"
        SELECT COUNT(*) AS n FROM input GROUP BY Windows() => Windows(..) needs windows
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(a) => expected a window function
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Windows(Tumbling(s, 1))) => Windows(..) cannot be inside Windows(..)
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Window('a', Window('b', Tumbling(s, 1)))) => Window(..) cannot be inside Window(..)
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Window('a', Tumbling(s, 1)), Tumbling(s, 2)) => either all windows have an id or none has
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Window('a', Tumbling(s, 1)), Window('A', Tumbling(s, 2))) => two windows have this id; ids ignore case
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Window(NULL, Tumbling(s, 1))) => the id of a window is a text, as in Window('1 minute', ..)
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Window(Tumbling(s, 1))) => Window takes 2 arguments
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Tumbling(day, 8)) => a window is at most 7 days long
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Tumbling(s, 1)) OVER (PARTITION BY a) => Windows(..) has no OVER
        SELECT COUNT(*) AS n FROM input GROUP BY Window('a', Tumbling(s, 1)) => Window('id', ..) is allowed only inside Windows(..)
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Tumbling(s, 1)), Tumbling(s, 1) => GROUP BY takes one window
        SELECT k, COUNT(*) AS n FROM input GROUP BY Windows(Session(s, 1, 2) OVER (PARTITION BY k)) => `k` is neither grouped nor aggregated
        SELECT COUNT(*) AS n FROM input GROUP BY Windows(Tumbling(s, 1)) HAVING System.Window().Id = 'a' => System.Window() is allowed only in the SELECT list of a grouped query
        SELECT System.Window().Id FROM input => System.Window() is allowed only in the SELECT list of a grouped query
        SELECT System.Window(1).Id FROM input GROUP BY Tumbling(s, 1) => System.Window() takes no arguments
    "#,
    );
}
