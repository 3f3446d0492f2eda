//! The scalar functions on text.

use super::scalar::{nulls, scalar, takes, takes_many};
use super::{Category::Text, Function, FunctionInfo};

pub(super) static STRING: [FunctionInfo; 23] = [
    takes(
        2,
        3,
        scalar(
            Function::CharIndex,
            Text,
            "CHARINDEX(find, s [, start])",
            "bigint",
            "Where a text stands in another, counted from 1; 0 if nowhere.",
            &[
                ("CHARINDEX('b', 'abcb', 3)", "4"),
                ("CHARINDEX('b', 'abcb')", "2"),
                ("CHARINDEX('b', 'abcb', -7)", "2"),
                ("CHARINDEX('x', 'abcb')", "0"),
            ],
        ),
    ),
    nulls(
        "NULL counts as empty text",
        takes_many(
            2,
            scalar(
                Function::Concat,
                Text,
                "CONCAT(a, b, ..)",
                "nvarchar(max)",
                "All arguments as one text.",
                &[("CONCAT('a', NULL, 1)", "a1"), ("CONCAT(NULL, NULL)", "")],
            ),
        ),
    ),
    nulls(
        "NULL values are left out with their separator; a NULL separator is empty",
        takes_many(
            3,
            scalar(
                Function::ConcatWs,
                Text,
                "CONCAT_WS(separator, a, b, ..)",
                "nvarchar(max)",
                "All arguments as one text, with the separator between them.",
                &[
                    ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
                    ("CONCAT_WS('-', NULL, NULL)", ""),
                    ("CONCAT_WS(NULL, 'a', 'b')", "ab"),
                ],
            ),
        ),
    ),
    nulls(
        "NULL for whatever is not the text of a JSON object",
        scalar(
            Function::JsonParse,
            Text,
            "JSON_PARSE(s)",
            "record",
            "The record that a JSON text describes; never an error.",
            &[
                ("JSON_PARSE('{\"a\":1}').a", "1"),
                ("JSON_PARSE('{\"a\":')", "NULL"),
                ("JSON_PARSE('[1]')", "NULL"),
                ("JSON_PARSE(5)", "NULL"),
            ],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::Left,
            Text,
            "LEFT(s, n)",
            "nvarchar(max)",
            "The first n characters; a negative n is an error.",
            &[("LEFT('abc', 2)", "ab"), ("LEFT('abc', 9)", "abc")],
        ),
    ),
    scalar(
        Function::Len,
        Text,
        "LEN(s)",
        "bigint",
        "How many characters a text has, blanks at its end not counted.",
        &[("LEN('ab  ')", "2"), ("LEN('  ab')", "4")],
    ),
    scalar(
        Function::Lower,
        Text,
        "LOWER(s)",
        "nvarchar(max)",
        "The text in lower case.",
        &[("LOWER('aB')", "ab")],
    ),
    scalar(
        Function::LTrim,
        Text,
        "LTRIM(s)",
        "nvarchar(max)",
        "The text without white space at its start.",
        &[("LTRIM('  a ')", "a ")],
    ),
    nulls(
        "NULL if n is NULL or no code point",
        scalar(
            Function::NChar,
            Text,
            "NCHAR(n)",
            "nvarchar(max)",
            "The character with this code point.",
            &[
                ("NCHAR(97)", "a"),
                ("NCHAR(-1)", "NULL"),
                ("NCHAR(1114112)", "NULL"),
            ],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::PatIndex,
            Text,
            "PATINDEX('%pattern%', s)",
            "bigint",
            "Where a LIKE pattern first matches, counted from 1; 0 if nowhere. Without % it matches at the ends only.",
            &[
                ("PATINDEX('%1_%', 'ab12')", "3"),
                ("PATINDEX('b%', 'abc')", "0"),
                ("PATINDEX('a%', 'abc')", "1"),
            ],
        ),
    ),
    takes(
        2,
        2,
        scalar(
            Function::RegexMatch,
            Text,
            "REGEXMATCH(s, pattern)",
            "bigint",
            "Where a regular expression first matches, ignoring case, counted from 1; 0 if nowhere or if it is invalid.",
            &[
                ("REGEXMATCH('aB7', 'b[0-9]')", "2"),
                ("REGEXMATCH('aB7', '(')", "0"),
                ("REGEXMATCH('aB7', NULL)", "NULL"),
            ],
        ),
    ),
    takes(
        3,
        3,
        scalar(
            Function::Replace,
            Text,
            "REPLACE(s, find, by)",
            "nvarchar(max)",
            "The text with every occurrence of one text replaced by another.",
            &[
                ("REPLACE('abab', 'ab', 'x')", "xx"),
                ("REPLACE('abab', '', 'x')", "abab"),
            ],
        ),
    ),
    nulls(
        "NULL if an argument is NULL or n is negative",
        takes(
            2,
            2,
            scalar(
                Function::Replicate,
                Text,
                "REPLICATE(s, n)",
                "nvarchar(max)",
                "The text n times in a row.",
                &[
                    ("REPLICATE('0', 3)", "000"),
                    ("REPLICATE('0', 0)", ""),
                    ("REPLICATE('0', -1)", "NULL"),
                ],
            ),
        ),
    ),
    scalar(
        Function::Reverse,
        Text,
        "REVERSE(s)",
        "nvarchar(max)",
        "The text backwards.",
        &[("REVERSE('abc')", "cba")],
    ),
    takes(
        2,
        2,
        scalar(
            Function::Right,
            Text,
            "RIGHT(s, n)",
            "nvarchar(max)",
            "The last n characters; a negative n is an error.",
            &[("RIGHT('abc', 2)", "bc"), ("RIGHT('abc', 9)", "abc")],
        ),
    ),
    scalar(
        Function::RTrim,
        Text,
        "RTRIM(s)",
        "nvarchar(max)",
        "The text without white space at its end.",
        &[("RTRIM(' a  ')", " a")],
    ),
    nulls(
        "NULL if n is NULL or negative",
        scalar(
            Function::Space,
            Text,
            "SPACE(n)",
            "nvarchar(max)",
            "n blanks.",
            &[("SPACE(2)", "  "), ("SPACE(-1)", "NULL")],
        ),
    ),
    nulls(
        "NULL if an argument is NULL, except that a NULL insert only deletes",
        takes(
            4,
            4,
            scalar(
                Function::Stuff,
                Text,
                "STUFF(s, start, length, insert)",
                "nvarchar(max)",
                "The text with a stretch of it replaced; a negative length is an error.",
                &[
                    ("STUFF('abcd', 2, 2, 'X')", "aXd"),
                    ("STUFF('abcd', 2, 0, 'X')", "aXbcd"),
                    ("STUFF('abcd', 2, 99, 'X')", "aX"),
                    ("STUFF('abcd', 5, 1, 'X')", ""),
                    ("STUFF('abcd', 2, 2, NULL)", "ad"),
                ],
            ),
        ),
    ),
    takes(
        3,
        3,
        scalar(
            Function::Substring,
            Text,
            "SUBSTRING(s, start, length)",
            "nvarchar(max)",
            "A stretch of the text, counted from 1; a negative length is an error.",
            &[
                ("SUBSTRING('abc', 2, 9)", "bc"),
                ("SUBSTRING('abc', 0, 2)", "a"),
                ("SUBSTRING('abc', 4, 1)", ""),
            ],
        ),
    ),
    takes(
        3,
        3,
        scalar(
            Function::Translate,
            Text,
            "TRANSLATE(s, from, to)",
            "nvarchar(max)",
            "The text with each character of one list replaced by that of the other; the lists are of equal length.",
            &[
                ("TRANSLATE('[a]', '[]', '()')", "(a)"),
                ("TRANSLATE('ab', 'ab', 'ba')", "ba"),
            ],
        ),
    ),
    scalar(
        Function::Trim,
        Text,
        "TRIM(s)",
        "nvarchar(max)",
        "The text without white space at both ends.",
        &[("TRIM(' a ')", "a")],
    ),
    nulls(
        "NULL if the text is NULL or empty",
        scalar(
            Function::Unicode,
            Text,
            "UNICODE(s)",
            "bigint",
            "The code point of the first character.",
            &[("UNICODE('a')", "97"), ("UNICODE('')", "NULL")],
        ),
    ),
    scalar(
        Function::Upper,
        Text,
        "UPPER(s)",
        "nvarchar(max)",
        "The text in upper case.",
        &[("UPPER('ab')", "AB")],
    ),
];
