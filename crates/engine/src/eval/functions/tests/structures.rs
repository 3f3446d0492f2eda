//! GetType, JSON_PARSE and section 10.

use highwater_query::functions::Function::*;
use highwater_query::plan::Name;

use super::*;

// proves S1
#[test]
fn gettype_names_the_types_of_the_language() {
    for (value, name) in [
        (Value::Int(1), "bigint"),
        (Value::Float(1.0), "float"),
        (Value::text("2024-01-01"), "nvarchar(max)"),
        (time("2024-01-01"), "datetime"),
        (Value::Bit(true), "bit"),
        (json("{}"), "record"),
        (json("[]"), "array"),
    ] {
        check(GetType, &[value], name);
    }
    check(GetType, args![NULL], NULL);
}

// proves S1
#[test]
fn json_parse_gives_a_record_or_null() {
    check(
        JsonParse,
        args![r#"{"a":1,"b":[true],"a":2}"#],
        json(r#"{"a":2,"b":[true]}"#),
    );
    for text in ["", "{", "[1]", "1", "\"a\"", "null", "{\"a\":1} x"] {
        check(JsonParse, args![text], NULL);
    }
    check(JsonParse, args![5], NULL);
    check(JsonParse, args![json("{}")], NULL);
    check(JsonParse, args![NULL], NULL);
}

// proves S1
#[test]
fn elements_count_from_0_and_are_null_where_there_are_none() {
    let array = || json(r#"[7,"x",{"a":1},null]"#);
    check(GetArrayElement, args![array(), 0], 7);
    check(GetArrayElement, args![array(), 1.9], "x");
    check(GetArrayElement, args![array(), 2], json(r#"{"a":1}"#));
    for index in [3, 4, -1, i64::MIN, i64::MAX] {
        check(GetArrayElement, args![array(), index], NULL);
    }
    check(GetArrayElement, args![array(), NULL], NULL);
    check(GetArrayElement, args![NULL, 0], NULL);
    check(GetArrayLength, args![array()], 4);
    check(GetArrayLength, args![json("[]")], 0);
    check(GetArrayLength, args![NULL], NULL);
    fails(
        GetArrayElement,
        args![json("{}"), 0],
        "argument 1 of GetArrayElement is record, but it takes array",
    );
    fails(
        GetArrayLength,
        args!["[]"],
        "argument 1 of GetArrayLength is nvarchar(max), but it takes array",
    );
}

// proves S1
#[test]
fn properties_are_found_by_name_then_but_for_case() {
    let record = || json(r#"{"a":1,"B":2,"c":3,"C":4,"n":null}"#);
    for (name, expected) in [
        ("a", Value::Int(1)),
        ("A", Value::Int(1)),
        ("b", Value::Int(2)),
        ("c", Value::Int(3)),
        ("C", Value::Int(4)),
        ("n", NULL),
        ("x", NULL),
    ] {
        check(GetRecordPropertyValue, args![record(), name], expected);
    }
    check(
        GetRecordPropertyValue,
        args![json(r#"{"c":3,"C":4}"#), "c"],
        3,
    );
    check(
        GetRecordPropertyValue,
        args![json(r#"{"ab":3,"AB":4}"#), "Ab"],
        NULL,
    );
    check(GetRecordPropertyValue, args![NULL, "a"], NULL);
    check(GetRecordPropertyValue, args![record(), NULL], NULL);
    fails(
        GetRecordPropertyValue,
        args![json("[]"), "a"],
        "argument 1 of GetRecordPropertyValue is array, but it takes record",
    );
}

// proves S1
#[test]
fn records_hold_the_values_of_their_row() {
    let names = [
        &Name::Field("a".to_string()),
        &Name::Spread,
        &Name::Field("b".to_string()),
    ];
    let mut faults = Faults::new(2);
    let rows = Rows::all(2);
    let mut make = |values: &[Datum]| {
        let context = &mut KernelContext {
            span: Span::default(),
            rows: &rows,
            faults: &mut faults,
        };
        super::super::record(&names, values, context).into_column(2)
    };
    let column = |values: &[Value]| Datum::Column(column(values));
    let display_value = |column: &Column, at: usize| format!("{:?}", column.get(at).to_value());
    let wanted = |text: &str| format!("{:?}", json(text));
    let result = make(&[
        column(args![1, NULL]),
        column(&[json(r#"{"c":1,"b":2,"a":3}"#), Value::text("no record")]),
        Datum::Scalar(Value::text("x")),
    ]);
    assert_eq!(display_value(&result, 0), wanted(r#"{"a":1,"c":1,"b":2}"#));
    assert_eq!(display_value(&result, 1), wanted(r#"{"a":null,"b":"x"}"#));
    let same = make(&[1, 2, 3].map(|int| Datum::Scalar(Value::Int(int))));
    assert_eq!(display_value(&same, 1), wanted(r#"{"a":1,"b":3}"#));
}
