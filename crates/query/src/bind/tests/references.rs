use expect_test::expect;

use super::{check, rejects};

// proves S1
#[test]
fn reference_data_is_looked_up_by_key() {
    check(
        "SELECT i.x, d.name, d.place.city FROM input i LEFT JOIN devices d ON i.id = d.id AND d.kind <> i.kind",
        expect![[r#"
            output output
              select x, devices.name AS name, devices.place.city AS city
                left join reference devices, id = devices.id, devices.kind <> kind
                  reference devices: reads id, kind, name, place.city
                  source input
                    reads id, kind, x
        "#]],
    );
    check(
        "SELECT i.x, d.*, e AS parent FROM input i JOIN devices d ON i.id = d.id JOIN devices e ON d.up = e.id",
        expect![[r#"
            output output
              select x, devices.*, devices.* AS parent
                join reference devices, devices.up = devices.id
                  reference devices: reads id, up, the whole event
                  join reference devices, id = devices.id
                    reference devices: reads id, up, the whole event
                    source input
                      reads id, x
        "#]],
    );
}

// proves S1
#[test]
fn a_step_that_picks_from_reference_data_is_reference_data() {
    check(
        "WITH r AS (SELECT id, UPPER(name) AS name, unused FROM devices WHERE kind = 'x'),
              q AS (SELECT * FROM r WHERE name <> 'b')
         SELECT i.v, q.name, q AS device INTO a FROM input i LEFT JOIN q ON q.id = i.id
         SELECT i.v, d.kind INTO b FROM input i JOIN (SELECT * FROM devices WHERE id > 1) d ON d.id = i.id",
        expect![[r#"
            output a
              select v, q.name AS name, devices.q AS device
                left join reference devices, id = q.id
                  select id (carried), name (carried), {id: id, name: name, unused: unused} (carried)
                    select id, name, unused
                      filter name <> 'b'
                        select id, UPPER(name) AS name, unused
                          filter kind = 'x'
                            reference devices: reads kind, id, name, unused
                  #0 source input
                    reads id, v
            output b
              select v, devices.kind AS kind
                join reference devices, id = devices.id
                  select id (carried), kind (carried)
                    filter id > 1
                      reference devices: reads kind, id
                  #0 as above
        "#]],
    );
}

// proves S1
#[test]
fn reference_data_joins_what_was_joined_and_goes_on() {
    check(
        "SELECT a.x, d.y, b.z FROM input a JOIN devices d ON a.id = d.id
         JOIN orders b ON DATEDIFF(s, a, b) BETWEEN 0 AND 5 AND b.place = d.place",
        expect![[r#"
            output output
              select a.x AS x, d.y AS y, b.z AS z
                join within [0 .. 5 seconds], d.place = b.place
                  select devices.place (carried), x (carried), devices.y (carried)
                    join reference devices, id = devices.id
                      reference devices: reads id, place, y
                      source input
                        reads id, x
                  select place (carried), z (carried)
                    source orders
                      reads place, z
        "#]],
    );
}

// proves S1
#[test]
fn reference_data_has_rules_of_its_own() {
    rejects(
        r#"
        SELECT d.x FROM devices d JOIN input i ON d.k = i.k => reference data must be on the right of a JOIN
        SELECT x FROM devices TIMESTAMP BY t => reference data has no timestamps
        SELECT COUNT(*) FROM devices GROUP BY Tumbling(s, 1) => reference data cannot be windowed on its own
        SELECT x FROM devices => reference data cannot be written to an output on its own
        SELECT x FROM input UNION SELECT x FROM devices => reference data cannot be part of a UNION on its own
        SELECT e.ArrayValue FROM devices d CROSS APPLY GetArrayElements(d.l) AS e => reference data takes no APPLY
        SELECT i.x FROM input i JOIN devices d TIMESTAMP BY t ON i.k = d.k => reference data has no timestamps
        SELECT i.x FROM input i JOIN devices d ON DATEDIFF(s, i, d) = 0 => reference data has no time to measure from
        SELECT i.x FROM input i JOIN devices d ON i.k = d.k AND (DATEDIFF(s, i, d) = 0 OR i.x = 1) => reference data has no time to measure from
        SELECT i.x FROM input i JOIN devices d ON i.k = d.k AND DATEDIFF(s, d, i) IN (1) => reference data has no time to measure from
        SELECT i.x FROM input i JOIN devices d ON id = d.k => `id` does not say which source it is a column of
        WITH r AS (SELECT x, System.Timestamp() AS t FROM devices) SELECT i.x FROM input i JOIN r ON i.x = r.x => reference data has no time
    "#,
    );
}
