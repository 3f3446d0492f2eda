use expect_test::expect;

use super::{check, rejects};

// proves S1
#[test]
fn metadata_is_read_from_the_source() {
    check(
        "SELECT GetMetadataPropertyValue(input, '[EventHub].[offset]') AS o,
         GetMetadataPropertyValue(input, 'IoTHub.EnqueueTime') AS e, GetMetadataPropertyValue(Input, 'eventid') AS id,
         GetMetadataPropertyValue(input, '[User].[my Key]') AS u, GetMetadataPropertyValue(input, \"User\") AS all_of_them,
         GetMetadataPropertyValue(input, 'PartitionId') AS p, GetMetadataPropertyValue(input, 'BlobName') AS b,
         GetMetadataPropertyValue(input, 'EventHub') AS h, GetMetadataPropertyValue(input, 'EventHub.EventEnqueuedUtcTime') AS q
         FROM input",
        expect![[r#"
            output output
              select metadata EventHub.Offset AS o, arrival AS e, metadata EventId AS id, metadata User.my Key AS u, metadata User AS all_of_them, partition AS p, file name AS b, metadata EventHub AS h, arrival AS q
                source input
                  reads metadata EventHub.Offset, arrival, metadata EventId, metadata User.my Key, metadata User, partition, file name, metadata EventHub
        "#]],
    );
    check(
        "SELECT GetMetadataPropertyValue(a, 'EventId') AS x, GetMetadataPropertyValue(b, 'EventId') AS y
         FROM input a JOIN orders b ON DATEDIFF(s, a, b) = 0",
        expect![[r#"
            output output
              select a.'EventId' AS x, b.'EventId' AS y
                join within [0 .. 0]
                  select metadata EventId (carried)
                    source input
                      reads metadata EventId
                  select metadata EventId (carried)
                    source orders
                      reads metadata EventId
        "#]],
    );
}

// proves S1
#[test]
fn metadata_has_rules_of_its_own() {
    rejects(
        r#"
        WITH s AS (SELECT * FROM input) SELECT GetMetadataPropertyValue(s, 'EventId') AS x FROM s => `s` is not an input, and only inputs have metadata
        SELECT GetMetadataPropertyValue(d, 'EventId') AS x FROM input i JOIN devices d ON i.k = d.k => `d` is not an input, and only inputs have metadata
        SELECT GetMetadataPropertyValue(orders, 'EventId') AS x FROM input => there is no source `orders` here
        SELECT GetMetadataPropertyValue(input, name) AS x FROM input => the path of a property is a text such as '[User].[name]'
        SELECT GetMetadataPropertyValue(input, '[User') AS x FROM input => the path of a property is a text such as '[User].[name]'
        SELECT GetMetadataPropertyValue(input.a, 'x') AS x FROM input => only inputs have metadata
        SELECT GetMetadataPropertyValue(input, 'EventId') AS x FROM input GROUP BY Tumbling(s, 1) => a group has many events, and each has metadata of its own
    "#,
    );
}
