//! Section 8.3 without patterns, and cutting against lists of characters.

use highwater_query::functions::Function::{self, *};
use proptest::prelude::*;

use super::*;

/// All that a TRIM strips.
const WHITE: &str = "\u{9}\u{a}\u{b}\u{c}\u{d} \u{85}\u{a0}\u{1680}\u{2000}\u{2001}\u{2002}\u{2003}\
    \u{2004}\u{2005}\u{2006}\u{2007}\u{2008}\u{2009}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";

// proves S1
#[test]
fn numbers_bits_and_dates_are_text_where_text_is_expected() {
    check(Len, args![-1.5], 4);
    check(Left, args![12345, 2], "12");
    check(Upper, args![1e16], "1E+16");
    check(Reverse, args![true], "1");
    check(Left, args![time("2024-03-05"), 10], "2024-03-05");
    check(Replace, args![1213, 1, "x"], "x2x3");
    for value in [json("{}"), json("[]")] {
        let found = value.view().type_name();
        let message = format!(
            "argument 1 of LEN is {found}, but it takes nvarchar(max), bigint, float, bit and datetime"
        );
        fails(Len, &[value], &message);
    }
}

// proves S1
#[test]
fn null_gives_null_before_anything_fails() {
    for function in [
        Len, Lower, Upper, LTrim, RTrim, Trim, NChar, Reverse, Space, Unicode,
    ] {
        check(function, args![NULL], NULL);
    }
    for function in [Left, Right, Replicate] {
        check(function, args![NULL, -1], NULL);
        check(function, args![json("[]"), NULL], NULL);
    }
    check(Substring, args!["a", NULL, -1], NULL);
    check(Replace, args!["a", "a", NULL], NULL);
    check(Translate, args!["a", "ab", NULL], NULL);
    check(CharIndex, args!["a", "a", NULL], NULL);
    check(Stuff, args![NULL, 1, -1, "x"], NULL);
    check(Stuff, args!["a", NULL, -1, "x"], NULL);
    check(Stuff, args!["a", 1, NULL, "x"], NULL);
}

// proves S1
#[test]
fn concat_takes_null_for_nothing_and_anything_for_text() {
    check(Concat, args!["a", NULL, 1], "a1");
    check(Concat, args![NULL, NULL], "");
    check(
        Concat,
        args![1.5, true, time("2024-01-01")],
        "1.512024-01-01T00:00:00.0000000Z",
    );
    check(
        Concat,
        args![json(r#"{"a":1.0}"#), json("[null]")],
        r#"{"a":1.0}[null]"#,
    );
    check(ConcatWs, args!["-", "a", NULL, "b"], "a-b");
    check(ConcatWs, args!["-", NULL, "a", ""], "a-");
    check(ConcatWs, args!["-", NULL, NULL], "");
    check(ConcatWs, args![NULL, "a", 2], "a2");
    check(ConcatWs, args![0, 1, 2], "102");
}

// proves S1
#[test]
fn cutting_counts_code_points() {
    for (function, text, count, expected) in [
        (Left, "abc", 2, "ab"),
        (Left, "abc", 9, "abc"),
        (Left, "abc", 0, ""),
        (Left, "é😀x", 2, "é😀"),
        (Left, "abc", i64::MAX, "abc"),
        (Right, "abc", 2, "bc"),
        (Right, "abc", 9, "abc"),
        (Right, "abc", 0, ""),
        (Right, "é😀x", 2, "😀x"),
    ] {
        check(function, args![text, count], expected);
    }
    check(Left, args!["abc", 1.9], "a");
    check(Left, args!["abc", 1e300], "abc");
    check(Left, args!["abc", "2"], "ab");
    for (start, length, expected) in [
        (2, 9, "bc"),
        (1, 2, "ab"),
        (0, 2, "a"),
        (-1, 2, ""),
        (-5, 2, ""),
        (-1, 4, "ab"),
        (4, 1, ""),
        (2, 0, ""),
        (i64::MIN, i64::MAX, ""),
        (2, i64::MAX, "bc"),
        (i64::MAX, i64::MAX, ""),
    ] {
        check(Substring, args!["abc", start, length], expected);
    }
    check(Substring, args!["é😀x", 2, 1], "😀");
    for (function, args) in [
        (Left, args!["abc", -1].as_slice()),
        (Right, args!["abc", -1]),
        (Substring, args!["abc", 1, -1]),
        (Stuff, args!["abc", 1, -1, "x"]),
    ] {
        let position = if args.len() > 2 { 3 } else { 2 };
        let name = function.name();
        let message =
            format!("argument {position} of {name} is -1, but a length cannot be negative");
        fails(function, args, &message);
    }
}

// proves S1
#[test]
fn len_leaves_out_blanks_at_the_end() {
    check(Len, args!["ab  "], 2);
    check(Len, args!["  ab"], 4);
    check(Len, args!["ab\t"], 3);
    check(Len, args!["   "], 0);
    check(Len, args![""], 0);
    check(Len, args!["é😀 "], 2);
}

// proves S1
#[test]
fn trimming_strips_all_white_space_of_unicode() {
    let text = format!("{WHITE}a b{WHITE}");
    check(Trim, args![text.as_str()], "a b");
    check(LTrim, args![text.as_str()], format!("a b{WHITE}").as_str());
    check(RTrim, args![text.as_str()], format!("{WHITE}a b").as_str());
    check(Trim, args!["\u{200b}a\u{feff}"], "\u{200b}a\u{feff}");
    check(Trim, args![WHITE], "");
    let others = ('\0'..=char::MAX).filter(|c| !WHITE.contains(*c));
    assert!(others.into_iter().all(|c| !c.is_whitespace()));
}

// proves S1
#[test]
fn casing_is_invariant_and_keeps_the_length() {
    check(Upper, args!["ab"], "AB");
    check(Lower, args!["aB"], "ab");
    check(Upper, args!["straße é"], "STRAßE É");
    check(Lower, args!["ÀΣΟΣ"], "àσοσ");
    check(Upper, args!["iıſ"], "Iıſ");
    check(Lower, args!["Iİ"], "iİ");
    check(Upper, args![""], "");
}

// proves S1
#[test]
fn characters_and_their_codes() {
    check(NChar, args![97], "a");
    check(NChar, args![0], "\0");
    check(NChar, args![0x1f600], "😀");
    check(NChar, args![97.9], "a");
    for code in [-1, 0xd800, 0x11_0000, i64::MAX] {
        check(NChar, args![code], NULL);
    }
    check(NChar, args![1e300], NULL);
    check(Unicode, args!["a"], 97);
    check(Unicode, args!["😀x"], 0x1f600);
    check(Unicode, args![""], NULL);
}

// proves S1
#[test]
fn replacing_and_repeating() {
    check(Replace, args!["abab", "ab", "x"], "xx");
    check(Replace, args!["abab", "", "x"], "abab");
    check(Replace, args!["", "ab", "x"], "");
    check(Replace, args!["aaa", "aa", "b"], "ba");
    check(Replace, args!["abab", "AB", "x"], "abab");
    check(Replace, args!["abab", "b", ""], "aa");
    // Where case does not count, what is looked for comes once more, folded.
    check(Replace, args!["aXbx", "x", "-", "X"], "a-b-");
    check(Replace, args!["aXbx", "", "-", ""], "aXbx");
    check(Replace, args!["aAa", "aa", "b", "AA"], "ba");
    // Its upper case takes more bytes than it does.
    check(
        Replace,
        args!["ɐx\u{2c6f}yɐ", "ɐ", "-", "\u{2c6f}"],
        "-x-y-",
    );
    check(Replicate, args!["0", 3], "000");
    check(Replicate, args!["ab", 0], "");
    check(Replicate, args!["ab", -1], NULL);
    check(Replicate, args!["", i64::MAX], "");
    check(Space, args![2], "  ");
    check(Space, args![0], "");
    check(Space, args![-1], NULL);
    check(Reverse, args!["abc"], "cba");
    check(Reverse, args!["é😀x"], "x😀é");
    fails(
        Replicate,
        args!["ab", i64::MAX],
        "REPLICATE would make a text of more than 1048576 bytes",
    );
    fails(
        Space,
        args![1e18],
        "SPACE would make a text of more than 1048576 bytes",
    );
    let (long, wide) = ("a".repeat(2000), "b".repeat(2000));
    fails(
        Replace,
        args![long.as_str(), "a", wide.as_str()],
        "REPLACE would make a text of more than 1048576 bytes",
    );
}

// proves S1
#[test]
fn stuff_deletes_and_inserts() {
    for (start, length, insert, expected) in [
        (2, 2, "X", "aXd"),
        (2, 0, "X", "aXbcd"),
        (2, 99, "X", "aX"),
        (2, i64::MAX, "X", "aX"),
        (5, 1, "X", ""),
        (4, 1, "X", "abcX"),
        (0, 1, "X", "Xbcd"),
        (-9, 1, "X", "Xbcd"),
        (i64::MAX, 1, "X", ""),
        (1, 4, "", ""),
    ] {
        check(Stuff, args!["abcd", start, length, insert], expected);
    }
    check(Stuff, args!["abcd", 2, 2, NULL], "ad");
    check(Stuff, args!["é😀x", 2, 1, "ü"], "éüx");
    check(Stuff, args!["", 1, 0, "X"], "");
    check(Stuff, args![1234, 2, 2, 0], "104");
}

// proves S1
#[test]
fn translate_replaces_each_character_at_most_once() {
    check(Translate, args!["[a]", "[]", "()"], "(a)");
    check(Translate, args!["ab", "ab", "ba"], "ba");
    check(Translate, args!["aé😀", "😀é", "xy"], "ayx");
    check(Translate, args!["aa", "aa", "xy"], "xx");
    check(Translate, args!["éé", "éé", "xy"], "xx");
    check(Translate, args!["ab", "", ""], "ab");
    fails(
        Translate,
        args!["ab", "ab", "x"],
        "argument 3 of TRANSLATE is 'x', but it must have as many characters as argument 2",
    );
}

// proves S1
#[test]
fn charindex_is_a_position_or_nothing() {
    for (find, text, expected) in [
        ("b", "abcb", 2),
        ("x", "abcb", 0),
        ("", "abcb", 0),
        ("B", "abcb", 0),
        ("x", "é😀x", 3),
        ("abcd", "abc", 0),
    ] {
        check(CharIndex, args![find, text], expected);
    }
    for (start, expected) in [
        (3, 4),
        (2, 2),
        (0, 2),
        (-7, 2),
        (5, 0),
        (i64::MAX, 0),
        (i64::MIN, 2),
    ] {
        check(CharIndex, args!["b", "abcb", start], expected);
    }
    check(CharIndex, args!["x", "éxéx", 3], 4);
}

/// Each function as an operation on a list of characters.
fn by_hand(function: Function, text: &str, a: i64, b: i64) -> Option<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len() as i64;
    let kept = |keep: &dyn Fn(i64) -> bool| -> String {
        (0..size)
            .filter(|at| keep(*at))
            .map(|at| chars[at as usize])
            .collect()
    };
    Some(match function {
        Left if a >= 0 => kept(&|at| at < a),
        Right if a >= 0 => kept(&|at| at >= size - a),
        Substring if b >= 0 => kept(&|at| at + 1 >= a && at + 1 < a + b),
        Stuff if b >= 0 && a > size => String::new(),
        Stuff if b >= 0 => {
            let from = a.max(1) - 1;
            kept(&|at| at < from) + "<>" + &kept(&|at| at >= from + b)
        }
        _ => return None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // proves S1
    #[test]
    fn cutting_is_what_lists_of_characters_do(
        text in "[aé😀 ]{0,8}", a in -4_i64..12, b in -2_i64..12,
    ) {
        let two = args![text.as_str(), a].to_vec();
        let three = args![text.as_str(), a, b].to_vec();
        let four = args![text.as_str(), a, b, "<>"].to_vec();
        for (function, args) in [(Left, two.clone()), (Right, two), (Substring, three), (Stuff, four)] {
            // An empty text has no place to put anything.
            if function == Stuff && text.is_empty() {
                continue;
            }
            let expected = by_hand(function, &text, a, b).map(|text| format!("{:?}", Value::text(&text)));
            prop_assert_eq!(answer(function, None, &args).ok(), expected, "{:?}", function);
        }
    }

    // proves S1
    #[test]
    fn finding_and_replacing_is_what_lists_of_characters_do(
        text in "[aé😀]{0,8}", find in "[aé😀]{0,2}", with in "[ab]{0,2}", start in -2_i64..10,
    ) {
        let chars: Vec<char> = text.chars().collect();
        let wanted: Vec<char> = find.chars().collect();
        let at = |at: usize| !wanted.is_empty() && chars[at..].starts_with(&wanted);
        let first = (0..chars.len()).find(|place| *place as i64 + 1 >= start && at(*place));
        let expected = first.map_or(0, |place| place as i64 + 1);
        check(CharIndex, args![find.as_str(), text.as_str(), start], expected);

        let (mut replaced, mut place) = (String::new(), 0);
        while place < chars.len() {
            if at(place) {
                replaced.push_str(&with);
                place += wanted.len();
            } else {
                replaced.push(chars[place]);
                place += 1;
            }
        }
        check(Replace, args![text.as_str(), find.as_str(), with.as_str()], replaced.as_str());
    }
}
