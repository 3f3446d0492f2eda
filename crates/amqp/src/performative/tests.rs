//! Laws of the codec: decoding undoes encoding, and no bytes do harm.

use proptest::prelude::*;

use super::*;
use crate::message::{MessageReader, Section};

fn scalar() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<u8>().prop_map(Value::U8),
        any::<u16>().prop_map(Value::U16),
        any::<u32>().prop_map(Value::U32),
        (0u32..300).prop_map(Value::U32),
        any::<u64>().prop_map(Value::U64),
        (0u64..300).prop_map(Value::U64),
        any::<i8>().prop_map(Value::I8),
        any::<i16>().prop_map(Value::I16),
        any::<i32>().prop_map(Value::I32),
        (-200i32..200).prop_map(Value::I32),
        any::<i64>().prop_map(Value::I64),
        (-200i64..200).prop_map(Value::I64),
        (-1e9f32..1e9).prop_map(Value::F32),
        (-1e9f64..1e9).prop_map(Value::F64),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<[u8; 8]>().prop_map(Value::Decimal64),
        any::<[u8; 16]>().prop_map(Value::Decimal128),
        any::<u32>().prop_map(Value::Char),
        any::<i64>().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|v| Value::Binary(v.into())),
        ".{0,100}".prop_map(|v| Value::String(v.into())),
        "[a-z:-]{0,20}".prop_map(|v| Value::Symbol(v.into())),
    ]
}

fn value() -> impl Strategy<Value = Value<'static>> {
    scalar().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::List),
            prop::collection::vec((inner.clone(), inner.clone()), 0..4).prop_map(Value::Map),
            (inner.clone(), 1usize..4).prop_map(|(element, count)| {
                match element {
                    // Arrays hold values of one type; others become lists.
                    Value::Array(_) | Value::Described(_) => Value::List(vec![element; count]),
                    element => Value::Array(vec![element; count]),
                }
            }),
            (inner.clone(), inner).prop_map(|pair| Value::Described(Box::new(pair))),
        ]
    })
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of("[a-zA-Z$/0-9]{0,300}")
}

proptest! {
    #[test]
    fn a_value_decodes_to_itself(value in value()) {
        let mut bytes = BytesMut::new();
        value.encode(&mut bytes);
        prop_assert_eq!(&Value::decode(&bytes), &Ok(value.clone()));
        prop_assert_eq!(value.clone().into_owned(), value);
        // A cut value is an error, never another value.
        for end in 0..bytes.len() {
            prop_assert!(Value::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn performatives_decode_to_themselves_with_every_field_written(
        name in "[a-z]{0,40}", numbers in any::<[u32; 4]>(), address in text(), flags in any::<[bool; 3]>(),
        source in value(), words in prop::collection::vec("[a-z]{1,9}", 0..3), mode in prop::option::of(any::<u8>()),
    ) {
        let role = if flags[0] { Role::Sender } else { Role::Receiver };
        let attach = Attach {
            name, handle: numbers[0], role, snd_settle_mode: mode,
            source, max_message_size: Some(numbers[1].into()), desired_capabilities: Symbols(words),
            properties: Properties(vec![(Value::symbol("k"), Value::I64(numbers[2].into()))]),
            ..Attach::default()
        };
        let mut out = BytesMut::new();
        attach.write(&mut out);
        prop_assert_eq!(field_count(&out), 14);
        let read = Performative::read(&out);
        prop_assert_eq!(read, Ok((Performative::Attach(Box::new(attach)), out.len())));

        let open = Open { container_id: "c".into(), hostname: address, max_frame_size: Some(numbers[0]), ..Open::default() };
        let mut out = BytesMut::new();
        open.write(&mut out);
        prop_assert_eq!(field_count(&out), 10);
        prop_assert_eq!(Performative::read(&out), Ok((Performative::Open(Box::new(open)), out.len())));

        let transfer = Transfer {
            handle: numbers[0], delivery_id: Some(numbers[1]), delivery_tag: Some(Bytes::from_static(b"tag")),
            message_format: Some(0x8001_3700), settled: flags[1], more: flags[2], ..Transfer::default()
        };
        let mut out = BytesMut::new();
        transfer.write(&mut out);
        prop_assert_eq!(field_count(&out), 11);
        let end = out.len();
        out.extend_from_slice(b"payload");
        prop_assert_eq!(Performative::read(&out), Ok((Performative::Transfer(Box::new(transfer)), end)));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Value::decode(&bytes);
        let _ = Performative::read(&bytes);
        for section in MessageReader::new(&bytes) {
            let _ = section;
        }
    }

    #[test]
    fn a_changed_byte_does_not_panic(value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = BytesMut::new();
        value.encode(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Value::decode(&bytes);
    }
}

/// The number of fields of a performative, as a client without defaults counts them.
fn field_count(bytes: &[u8]) -> usize {
    let mut decoder = Decoder::new(bytes);
    decoder.descriptor().unwrap();
    decoder.list().unwrap().1
}

#[test]
fn the_smaller_performatives_have_all_their_fields() {
    let mut counts = Vec::new();
    let mut count = |write: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        write(&mut out);
        counts.push(field_count(&out));
    };
    count(&|out| Begin::default().write(out));
    count(&|out| Flow::default().write(out));
    count(&|out| Disposition::default().write(out));
    count(&|out| Detach::default().write(out));
    count(&|out| End::default().write(out));
    count(&|out| Close::default().write(out));
    assert_eq!(counts, [8, 11, 6, 3, 1, 1]);
}

#[test]
fn trailing_fields_may_be_missing_and_mandatory_ones_not() {
    // Open with a container id alone, in the short list form.
    let open = [0x00, 0x53, 0x10, 0xc0, 0x04, 0x01, 0xa1, 0x01, b'c'];
    let (read, _) = Performative::read(&open).unwrap();
    let Performative::Open(open) = read else {
        panic!("{read:?}")
    };
    assert_eq!((&*open.container_id, open.max_frame_size), ("c", None));
    let empty = [0x00, 0x53, 0x10, 0x45];
    assert_eq!(
        Performative::read(&empty),
        Err(DecodeError::Missing("container_id"))
    );
    let unknown = [0x00, 0x53, 0x99, 0x45];
    assert_eq!(
        Performative::read(&unknown),
        Err(DecodeError::Descriptor(0x99))
    );
}

#[test]
fn no_count_and_no_size_is_believed() {
    // A list, a map, an array and a binary that claim gigabytes.
    for bytes in [
        &[0xd0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..],
        &[0xd0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff],
        &[0xd1, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xfe],
        &[0xc1, 2, 1, 0x40],
        &[0xb0, 0xff, 0xff, 0xff, 0xff],
        &[0xa1, 0x05, b'a'],
        &[0xc0, 0x02, 0x01],
    ] {
        assert!(Value::decode(bytes).is_err(), "{bytes:02x?}");
    }
    // An array of a billion nulls takes no bytes at all.
    let nulls = [0xf0, 0, 0, 0, 5, 0x3f, 0xff, 0xff, 0xff, 0x40];
    assert_eq!(Value::decode(&nulls), Err(DecodeError::TooComplex));
    // A list with more bytes than its elements have.
    assert_eq!(
        Value::decode(&[0xc0, 3, 1, 0x40, 0x40]),
        Err(DecodeError::Size)
    );
}

#[test]
fn nesting_is_bounded() {
    let mut lists = vec![0x45];
    for _ in 0..40 {
        let mut outer = vec![0xc0, u8::try_from(lists.len() + 1).unwrap(), 1];
        outer.extend(&lists);
        lists = outer;
    }
    assert_eq!(Value::decode(&lists), Err(DecodeError::TooComplex));
    let described = vec![0; 100_000];
    assert_eq!(Value::decode(&described), Err(DecodeError::TooComplex));
}

#[test]
fn many_elements_in_many_lists_are_bounded_together() {
    let inner = [&[0xd0, 0, 0, 0x40, 4, 0, 0, 0x40, 0][..], &[0x40; 0x4000]].concat();
    assert!(Value::decode(&inner).is_ok());
    let size = u32::try_from(2 * inner.len() + 4).unwrap().to_be_bytes();
    let two = [&[0xd0][..], &size, &2u32.to_be_bytes(), &inner, &inner].concat();
    assert_eq!(Value::decode(&two), Err(DecodeError::TooComplex));
}

#[test]
fn the_sections_of_a_message_are_read_in_their_order() {
    let mut bytes = BytesMut::new();
    let mut encoder = Encoder::new(&mut bytes);
    encoder.descriptor(Section::MESSAGE_ANNOTATIONS);
    let key = (Value::symbol("x-opt-partition-key"), Value::string("k"));
    encoder.value(&Value::Map(vec![key.clone()]));
    encoder.data_section(b"body");
    let sections: Vec<_> = MessageReader::new(&bytes).collect();
    let expected = [
        Ok(Section::MessageAnnotations(vec![key])),
        Ok(Section::Data(b"body")),
    ];
    assert_eq!(sections, expected);
    let damaged = MessageReader::new(&bytes[..bytes.len() - 1]);
    let read: Vec<_> = damaged.collect();
    assert_eq!(read.last(), Some(&Err(DecodeError::Truncated)));
}
