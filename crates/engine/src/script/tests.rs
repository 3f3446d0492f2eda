use std::sync::Arc;
use std::time::Duration;

use highwater_time::Instant;

use super::{Calls, Scripts, aggregate};
use crate::eval::EvalError;
use crate::value::{Record, Value, ValueRef};

fn scripts(source: &str) -> Arc<Scripts> {
    let functions = [("f".to_string(), source.to_string())];
    Scripts::new(functions).expect("the script is whole")
}

fn noon() -> Instant {
    Instant::parse_iso(b"2026-11-15T12:00:00.250Z").expect("a time")
}

fn call(name: &str, args: &[ValueRef<'_>], time: Instant) -> Result<Value, EvalError> {
    let mut result = None;
    super::call(Calls {
        name,
        rows: &[0],
        arguments: &|_, given| given.extend_from_slice(args),
        time: &|_| time,
        done: &mut |_, outcome| result = Some(outcome),
    });
    result.expect("every call ends")
}

/// A row that fails, even one that breaks the interpreter, changes nothing for the other rows of the chunk.
#[test]
fn rows_of_a_chunk_fail_alone() {
    let scripts = scripts(
        "var calls = 0; function main(x) { calls += 1; if (x === 3) throw new Error('three'); if (x === 5) for (;;) { } \
         return [x, calls]; }",
    );
    let _entered = scripts.enter();
    let mut results = Vec::new();
    super::call(Calls {
        name: "f",
        rows: &[1, 3, 4, 5, 6, 8],
        arguments: &|row, given| given.push(ValueRef::Int(row as i64)),
        time: &|_| noon(),
        done: &mut |row, outcome| {
            let outcome = outcome.map(|value| format!("{value:?}"));
            results.push((row, outcome.unwrap_or_else(|error| error.to_string())));
        },
    });
    let rows: Vec<usize> = results.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, [1, 3, 4, 5, 6, 8]);
    let texts: Vec<&str> = results.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts[0], "Array([Int(1), Int(1)])");
    assert!(texts[1].contains("three"), "{}", texts[1]);
    assert_eq!(texts[2], "Array([Int(4), Int(3)])");
    assert!(texts[3].contains("too many steps"), "{}", texts[3]);
    assert_eq!(
        texts[4..],
        ["Array([Int(6), Int(1)])", "Array([Int(8), Int(2)])"]
    );
}

fn run(source: &str, args: &[Value]) -> Result<Value, String> {
    let scripts = scripts(source);
    let _entered = scripts.enter();
    let args: Vec<ValueRef<'_>> = args.iter().map(Value::view).collect();
    call("f", &args, noon()).map_err(|error| error.to_string())
}

fn shown(source: &str, args: &[Value]) -> String {
    match run(source, args) {
        Ok(value) => format!("{value:?}"),
        Err(message) => message,
    }
}

fn record(fields: &[(&str, Value)]) -> Value {
    let fields = fields
        .iter()
        .map(|(name, value)| ((*name).into(), value.clone()));
    Value::Record(Arc::new(Record::from_fields(fields.collect())))
}

#[test]
fn values_go_in_and_come_back() {
    let same = "function main(x) { return x; }";
    for value in [
        Value::Null,
        Value::Bit(true),
        Value::Int(7),
        Value::Int(-(1 << 53)),
        Value::Float(2.5),
        Value::text("grüße 🦀"),
        Value::Time(noon()),
        Value::Array([Value::Int(1), Value::Null, Value::text("x")].into()),
        record(&[
            ("a", Value::Int(1)),
            ("B", record(&[("c", Value::Bit(false))])),
        ]),
    ] {
        assert_eq!(
            shown(same, std::slice::from_ref(&value)),
            format!("{value:?}")
        );
    }
    // A Number without fraction is a bigint, and time has milliseconds.
    assert_eq!(shown(same, &[Value::Float(3.0)]), "Int(3)");
    let fine = Instant::from_ticks(noon().ticks() + 9_999);
    assert_eq!(
        shown(same, &[Value::Time(fine)]),
        format!("{:?}", Value::Time(noon()))
    );
}

/// Whether its shape is kept or not.
#[test]
fn a_record_is_the_same_however_it_is_made() {
    let text = |n: usize| Value::Text(format!("v{n}").into());
    let names = [
        vec!["a"],
        vec!["b", "a"],
        vec!["2", "z", "1"],
        vec!["", " ", "a b", "it's \"quoted\"", "back\\slash"],
        vec!["line\nbreak", "\u{2028}", "}", "//", "`${a}`"],
        vec!["__proto__", "constructor", "toString", "length"],
        vec!["a", "A", "ä", "\u{1F600}"],
        vec![],
    ];
    let records: Vec<Value> = (names.iter())
        .map(|names| {
            let fields = names.iter().enumerate();
            let fields: Vec<(&str, Value)> = fields.map(|(n, name)| (*name, text(n))).collect();
            record(&[
                ("outer", record(&fields)),
                ("list", Value::Array([text(9)].into())),
            ])
        })
        .collect();
    let make_all = |shapes_before: usize| -> Vec<String> {
        let scripts =
            scripts("function main(x) { return [x, Object.keys(x.outer), JSON.stringify(x)]; }");
        let _entered = scripts.enter();
        let call = |value: &Value| {
            let result = call("f", &[value.view()], noon());
            format!("{:?}", result.map_err(|error| error.to_string()))
        };
        for n in 0..shapes_before {
            call(&record(&[(
                "outer",
                record(&[(&format!("other{n}"), text(n))]),
            )]));
        }
        // Twice: the second time the shape is known.
        (records.iter().chain(&records)).map(call).collect()
    };
    let known = make_all(0);
    assert_eq!(known, make_all(100));
    assert!(known[0].contains("v0"), "{}", known[0]);
    assert_eq!(known[..records.len()], known[records.len()..]);
}

#[test]
fn types_are_those_of_javascript() {
    let kinds = "function main(...all) { return all.map(x => x === null ? 'null' : x instanceof Date ? 'Date' : \
                 Array.isArray(x) ? 'Array' : typeof x).join(); }";
    let args = [
        Value::Null,
        Value::Bit(false),
        Value::Int(1),
        Value::Float(0.5),
        Value::text(""),
        Value::Time(noon()),
        record(&[]),
        Value::Array([].into()),
    ];
    let expected = Value::text("null,boolean,number,number,string,Date,object,Array");
    assert_eq!(shown(kinds, &args), format!("{expected:?}"));
}

#[test]
fn what_sql_cannot_hold_is_an_error() {
    for (source, message) in [
        ("() => NaN", "the result is NaN"),
        ("() => 1 / 0", "the result is inf"),
        ("() => 1n", "BigInt"),
        ("() => Symbol('x')", "Symbol"),
        ("() => main", "function"),
        ("() => new Date('x')", "a Date that is invalid"),
        ("() => { const o = {}; o.o = o; return o; }", "nests deeper"),
        ("async () => 1", "Promise"),
        ("() => new Error('x')", "throw it instead"),
    ] {
        let error = run(&format!("var main = {source};"), &[]).expect_err(source);
        assert!(error.contains(message), "{source}: {error}");
    }
    assert_eq!(shown("function main() {}", &[]), "Null");
    assert_eq!(
        shown("function main() { return 2 ** 70; }", &[]),
        "Float(1.1805916207174113e21)"
    );
}

#[test]
fn a_throwing_function_says_why() {
    let error = shown("function main() { throw new TypeError('no level'); }", &[]);
    assert_eq!(error, "function 'f': TypeError: no level");
    assert_eq!(
        shown("function main() { throw 'x'; }", &[]),
        "function 'f': it threw 'x'"
    );
    let error = shown("function main(x) { return x.y.z; }", &[record(&[])]);
    assert!(error.contains("TypeError"), "{error}");
    let error = shown("function main() { return main(); }", &[]);
    assert!(error.contains("stack"), "{error}");
}

#[test]
fn endless_and_greedy_scripts_are_stopped_and_others_go_on() {
    let source = "function main(x) { if (x === 1) for (;;) {} if (x === 2) { const a = []; for (;;) a.push('x'.repeat(1e6) + \
                  a.length); } if (x === 3) return /^(a+)+$/.test('a'.repeat(40) + 'b'); return x; }";
    let scripts = scripts(source);
    let _entered = scripts.enter();
    let with = |x: i64| match call("f", &[ValueRef::Int(x)], noon()) {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    };
    for _ in 0..2 {
        assert_eq!(
            with(1),
            "function 'f': it took too many steps and was stopped"
        );
        assert_eq!(with(7), "Int(7)");
        assert_eq!(with(2), "function 'f': it ran out of memory (64 MB)");
        assert_eq!(with(8), "Int(8)");
        assert_eq!(
            with(3),
            "function 'f': it took too many steps and was stopped"
        );
        assert_eq!(with(9), "Int(9)");
    }
}

// proves G2
#[test]
fn no_kind_of_value_gets_past_the_memory_limit() {
    for greedy in [
        "new Uint8Array(1e9).length",
        "new ArrayBuffer(2 ** 30).byteLength",
        "new Array(1e8).fill(0).length",
        "'x'.repeat(2 ** 28).length",
        "JSON.stringify('\\0'.repeat(2 ** 24)).length",
        "[...Array(1e7).keys()].length",
    ] {
        let source = format!("function main() {{ return {greedy}; }}");
        let error = run(&source, &[]).expect_err(greedy);
        assert_eq!(
            error, "function 'f': it ran out of memory (64 MB)",
            "{greedy}"
        );
    }
}

// proves G2
#[test]
fn a_result_that_grows_when_it_is_copied_is_refused() {
    let doubled =
        "function main(x) { let a = x; for (let i = 0; i < 40; i++) a = [a, a]; return a; }";
    let error = run(doubled, &[Value::Int(1)]).expect_err("2^40 numbers");
    assert_eq!(error, "function 'f': the result is larger than 64 MB");
    let texts = "function main() { const text = 'x'.repeat(2 ** 24); return Array(8).fill(text); }";
    let error = run(texts, &[]).expect_err("128 MB of text");
    assert_eq!(error, "function 'f': the result is larger than 64 MB");
}

/// Takes some seconds inside of one native function, where no step is counted.
const NATIVE: &str = "[].reverse.call({ length: 5e7 }).length";

// proves G2
#[test]
fn a_call_that_does_not_return_is_given_up() {
    let functions = [
        (
            "e".to_string(),
            "function main(x) { return x; }".to_string(),
        ),
        (
            "f".to_string(),
            format!("function main() {{ return {NATIVE}; }}"),
        ),
    ];
    let scripts = Scripts::new(functions).expect("the scripts are whole");
    assert_eq!(scripts.overdue_call(Duration::ZERO, Duration::ZERO), None);
    let own = scripts.clone();
    let thread = std::thread::spawn(move || {
        let _entered = own.enter();
        call("e", &[ValueRef::Int(1)], noon()).expect("it returns");
        call("f", &[], noon()).map(|_| ()).is_ok()
    });
    let limit = Duration::from_secs(5);
    let overdue = (1..).find_map(|seconds| {
        std::thread::yield_now();
        scripts.overdue_call(Duration::from_secs(seconds), limit)
    });
    // The clock moves by hand, so `e` may have been seen for as long.
    assert!(matches!(overdue, Some("e" | "f")), "{overdue:?}");
    while !scripts.has_given_up_call() && !thread.is_finished() {
        scripts.overdue_call(Duration::MAX, limit);
    }
    assert!(thread.join().is_ok());
    assert!(!scripts.has_given_up_call(), "it has returned");
}

// proves G2
#[test]
fn a_script_that_does_not_end_is_refused_with_its_name() {
    let endless = "[].reverse.call({ length: 2 ** 53 - 1 });";
    let functions = [
        (
            "e".to_string(),
            "function main(x) { return x; }".to_string(),
        ),
        (
            "f".to_string(),
            format!("{endless} function main(x) {{ return x; }}"),
        ),
    ];
    let error = Scripts::new(functions).expect_err("it does not end");
    assert_eq!(
        error.to_string(),
        "function 'f': the script did not end within 5 s"
    );
}

#[test]
fn there_is_nothing_to_reach() {
    let names = "function main() { return ['require', 'process', 'fetch', 'XMLHttpRequest', 'std', 'os', 'print', \
                 'console', 'setTimeout', 'performance', 'WeakRef', 'Deno', 'load'].filter(n => n in globalThis); }";
    assert_eq!(shown(names, &[]), "Array([])");
    let import = "function main() { return String(import('std')); }";
    assert!(
        !shown(import, &[]).contains("Module"),
        "{}",
        shown(import, &[])
    );
}

#[test]
fn clock_zone_and_chance_are_those_of_the_event() {
    let clock = "function main() { return [Date.now() === new Date().getTime(), new Date(), new Date().getHours(), \
                 new Date(2026, 10, 15).toISOString(), new Date('2026-11-15T12:00:00').getTimezoneOffset()]; }";
    let expected = Value::Array(
        [
            Value::Bit(true),
            Value::Time(noon()),
            Value::Int(12),
            Value::text("2026-11-15T00:00:00.000Z"),
            Value::Int(0),
        ]
        .into(),
    );
    assert_eq!(shown(clock, &[]), format!("{expected:?}"));
    let chance = "function main(x) { return [Math.random(), Math.random()]; }";
    let one = shown(chance, &[Value::Int(1)]);
    assert_eq!(
        one,
        shown(chance, &[Value::Int(1)]),
        "the same event draws the same numbers"
    );
    assert_ne!(one, shown(chance, &[Value::Int(2)]));
}

#[test]
fn a_function_is_found_under_main_its_name_or_the_first_declared() {
    for source in [
        "function main(x) { return x + 1; } // a comment at the end",
        "function f(x) { return x + 1; }",
        "function helper(x) { return x + 1; } var y = 3;",
        "'use strict'; var main = x => x + 1",
    ] {
        assert_eq!(shown(source, &[Value::Int(1)]), "Int(2)", "{source}");
    }
    let wrong =
        |source: &str| Scripts::new([("f".to_string(), source.to_string())]).expect_err(source);
    assert!(
        wrong("var x = 1;")
            .message
            .contains("neither a function main")
    );
    assert!(wrong("function main( {").message.contains("SyntaxError"));
    let endless = wrong("for (;;) {} function main() {}");
    assert!(endless.message.contains("too many steps"), "{endless}");
    assert!(call("f", &[], noon()).is_err(), "nothing was entered");
}

const TOTAL: &str = "function main() {
    this.init = function () { this.state = 0; this.seen = []; };
    this.accumulate = function (value, timestamp) { this.state += value; this.seen.push(timestamp.getUTCSeconds()); };
    this.deaccumulate = function (value, timestamp) { throw new Error('not needed'); };
    this.deaccumulateState = function (other) { throw new Error('not needed'); };
    this.computeResult = function () { return { total: this.state, seen: this.seen.join() }; };
}";

fn aggregated(source: &str, values: &[Value]) -> String {
    let scripts = scripts(source);
    let _entered = scripts.enter();
    let time = |second: usize| noon().ticks() + second as i64 * 10_000_000;
    let events: Vec<(i64, Value)> = values
        .iter()
        .cloned()
        .enumerate()
        .map(|(s, v)| (time(s), v))
        .collect();
    match aggregate("f", &events) {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_aggregate_sees_every_event_with_its_time() {
    let expected = record(&[("total", Value::Float(6.5)), ("seen", Value::text("0,1,2"))]);
    let values = [Value::Int(1), Value::Float(2.5), Value::Int(3)];
    assert_eq!(aggregated(TOTAL, &values), format!("{expected:?}"));
    // State begins anew each time.
    assert_eq!(aggregated(TOTAL, &values), format!("{expected:?}"));
}

#[test]
fn an_aggregate_lacks_nothing() {
    let error = aggregated("function main() { this.init = function () {}; }", &[]);
    assert_eq!(error, "function 'f': the aggregate has no accumulate()");
    let error = aggregated("var main = () => 1;", &[]);
    assert!(error.contains("constructor"), "{error}");
    let throws = TOTAL.replace(
        "this.state += value;",
        "throw new RangeError('level ' + value);",
    );
    assert_eq!(
        aggregated(&throws, &[Value::Int(4)]),
        "function 'f': RangeError: level 4"
    );
    let loops = TOTAL.replace("this.state += value;", "for (;;) {}");
    assert!(aggregated(&loops, &[Value::Int(4)]).contains("too many steps"));
}
