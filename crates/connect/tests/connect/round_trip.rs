//! Written values read back equal.

use crate::common::{event, spelled};
use highwater_connect::json::{Batch, Decoder, Field, JsonWriter};
use highwater_engine::Chunk;
use highwater_query::plan::Name;
use proptest::prelude::*;

fn decode(fields: Vec<Field>, block: &[u8]) -> Chunk {
    let mut batch = Batch::new(fields.len());
    Decoder::new(fields).decode(block, 1, &mut batch);
    let decoded = batch.finish();
    assert!(decoded.bad.is_empty(), "{:?}", decoded.bad);
    Chunk::new(vec![0; decoded.rows].into(), decoded.columns)
}

fn write(names: Vec<Name>, chunk: &Chunk) -> Vec<u8> {
    let mut out = Vec::new();
    JsonWriter::new(names).write(chunk, &mut out);
    out
}

fn shown(chunk: &Chunk) -> Vec<String> {
    let row = |row| {
        let values: Vec<_> = chunk.columns.iter().map(|column| column.get(row)).collect();
        format!("{values:?}")
    };
    (0..chunk.rows()).map(row).collect()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{0,12}", "[ -~]{0,9}", "[\\x00-\\x22]{0,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn events_survive_being_written_and_read(
        events in prop::collection::vec(event(), 0..6),
        seed in 0..4u64,
    ) {
        let lines: Vec<String> = events.iter().map(|event| spelled(event, seed)).collect();
        let first = decode(vec![Field::Whole], lines.join("\n").as_bytes());
        let out = write(vec![Name::Spread], &first);
        for line in out.split_inclusive(|&b| b == b'\n') {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(line).is_ok());
        }
        let again = decode(vec![Field::Whole], &out);
        prop_assert_eq!(shown(&first), shown(&again));
    }

    #[test]
    fn typed_columns_survive_being_written_and_read(
        rows in prop::collection::vec(
            (any::<Option<i64>>(), any::<f64>(), text(), any::<bool>()),
            1..20,
        )
    ) {
        let fields = || ["i", "f", "s", "b"].map(|name| Field::Path(vec![name.into()])).to_vec();
        let names = || ["i", "f", "s", "b"].map(|name| Name::Field(name.into())).to_vec();
        let lines: Vec<String> = rows
            .iter()
            .map(|(i, f, s, b)| {
                let f = if f.is_finite() { *f } else { 0.5 };
                serde_json::json!({"i": i, "f": f, "s": s, "b": b}).to_string()
            })
            .collect();
        let first = decode(fields(), lines.join("\n").as_bytes());
        let out = write(names(), &first);
        prop_assert_eq!(shown(&first), shown(&decode(fields(), &out)));
        prop_assert_eq!(write(names(), &decode(fields(), &out)), out);
    }
}
