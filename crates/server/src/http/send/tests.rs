//! Properties of the forms: no input panics, and encoded events decode to themselves.

use proptest::prelude::*;
use serde_json::Value;

use super::{cloudevents, eventhubs, lines};

/// Any JSON, a few levels deep.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Bytes that resemble valid input, so that they pass the first checks.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"{".to_vec()),
        Just(b"}".to_vec()),
        Just(b"[".to_vec()),
        Just(b"]".to_vec()),
        Just(b",".to_vec()),
        Just(b":".to_vec()),
        Just(b"\"Body\"".to_vec()),
        Just(b"\"data\"".to_vec()),
        Just(b"\"id\"".to_vec()),
        Just(b"\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn nothing_from_outside_panics(bytes in nearly()) {
        let _ = lines::lines(&bytes);
        let _ = lines::array(&bytes);
        let _ = cloudevents::structured(&bytes);
        let _ = cloudevents::batched(&bytes);
        let _ = eventhubs::batch(&bytes);
    }

    #[test]
    fn lines_and_arrays_hold_the_same_events(values in prop::collection::vec(json(), 1..8)) {
        let text: Vec<String> = values.iter().map(Value::to_string).collect();
        let (as_lines, as_array) = (text.join("\n"), format!("[{}]", text.join(" , ")));
        let from_lines = lines::lines(as_lines.as_bytes()).unwrap();
        let from_array = lines::array(as_array.as_bytes()).unwrap();
        prop_assert_eq!(&from_lines, &from_array);
        let kept: Vec<&[u8]> = from_lines.iter().map(|event| &*event.value).collect();
        let sent: Vec<&[u8]> = text.iter().map(|text| text.as_bytes()).collect();
        prop_assert_eq!(kept, sent);
    }

    #[test]
    fn a_cloud_event_keeps_its_data(data in json(), subject in ".{0,12}") {
        let event = serde_json::json!({
            "specversion": "1.0", "id": "1", "source": "s", "type": "t", "subject": subject, "data": data,
        });
        let text = event.to_string();
        let read = cloudevents::structured(text.as_bytes()).unwrap();
        let kept: Value = serde_json::from_slice(&read.value).unwrap();
        prop_assert_eq!(kept, data);
        prop_assert_eq!(read.key.as_deref(), Some(&*subject));
    }
}
