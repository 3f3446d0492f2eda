//! Hides secrets in texts that are shown: lines of files in error messages, and URLs.
//!
//! Every hidden character becomes an asterisk, so that columns stay where they are.

use std::ops::Range;

/// Words in the names of keys whose values are secrets.
const SECRET_WORDS: [&str; 6] = [
    "secret",
    "password",
    "token",
    "authorization",
    "credential",
    "connection_string",
];

/// The URL without its password and without the values of its query.
pub fn redact_url(url: &str) -> String {
    let mut shown: Vec<char> = url.chars().collect();
    hide_in_url(&mut shown);
    shown.into_iter().collect()
}

/// A line of TOML without the values of secret keys, and with redacted URLs. A reference such as `${env:NAME}` is no
/// secret.
pub(crate) fn redact_line(line: &str) -> String {
    let mut shown: Vec<char> = line.chars().collect();
    for text in quoted_texts(&shown) {
        let is_reference = shown[text.clone()].starts_with(&['$', '{']);
        match is_secret(&key_before(&shown[..text.start - 1])) {
            _ if is_reference => {}
            true => hide(&mut shown[text]),
            false => hide_in_url(&mut shown[text]),
        }
    }
    shown.into_iter().collect()
}

/// The insides of the quoted texts of a line; the last one may be open.
fn quoted_texts(line: &[char]) -> Vec<Range<usize>> {
    let mut texts = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let quote = line[at];
        at += 1;
        match quote {
            '#' => break,
            '"' | '\'' => {
                let start = at;
                while at < line.len() && line[at] != quote {
                    at += if line[at] == '\\' && quote == '"' {
                        2
                    } else {
                        1
                    };
                }
                texts.push(start..at.min(line.len()));
                at += 1;
            }
            _ => {}
        }
    }
    texts
}

/// The name before the last `=`, if nothing but blanks follows it.
fn key_before(line: &[char]) -> String {
    let text: String = line.iter().collect();
    let Some(left) = text.trim_end().strip_suffix('=') else {
        return String::new();
    };
    let left = left.trim_end().trim_end_matches(['"', '\'']);
    let name = left.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    name.take(1).collect::<String>().to_lowercase()
}

fn is_secret(key: &str) -> bool {
    let key = key.replace('-', "_");
    SECRET_WORDS.iter().any(|word| key.contains(word))
}

fn hide_in_url(text: &mut [char]) {
    let scheme = text.windows(3).position(|part| part == [':', '/', '/']);
    let Some(host) = scheme.map(|at| at + 3) else {
        return;
    };
    let ends = |c: &char| matches!(c, '/' | '?' | '#');
    let path = text[host..].iter().position(ends);
    let path = path.map_or(text.len(), |at| host + at);
    if let Some(at) = text[host..path].iter().rposition(|c| *c == '@')
        && let Some(colon) = text[host..host + at].iter().position(|c| *c == ':')
    {
        hide(&mut text[host + colon + 1..host + at]);
    }
    let Some(query) = text[path..].iter().position(|c| *c == '?') else {
        return;
    };
    let mut in_value = false;
    for c in &mut text[path + query + 1..] {
        match *c {
            '&' => in_value = false,
            '=' if !in_value => in_value = true,
            _ if in_value => *c = '*',
            _ => {}
        }
    }
}

fn hide(text: &mut [char]) {
    text.fill('*');
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves G3
    #[test]
    fn a_url_is_shown_without_password_and_query_values() {
        for (url, shown) in [
            ("https://h/a?code=xyz&b=1", "https://h/a?code=***&b=*"),
            ("postgres://u:pä@h:5/db", "postgres://u:**@h:5/db"),
            ("https://h/a=b", "https://h/a=b"),
            ("https://h?sig=a=b", "https://h?sig=***"),
            ("no url ?a=b", "no url ?a=b"),
        ] {
            assert_eq!(redact_url(url), shown);
        }
    }

    // proves G3
    #[test]
    fn a_line_is_shown_without_the_values_of_secrets() {
        for (line, shown) in [
            ("password = \"pw\\\"x\"", "password = \"*****\""),
            (
                "a = { url = 'http://h?k=v', \"api-token\" = 't' }",
                "a = { url = 'http://h?k=*', \"api-token\" = '*' }",
            ),
            ("secret = \"never closed", "secret = \"************"),
            ("secret = \"${env:NAME}\"", "secret = \"${env:NAME}\""),
            (
                "key = \"userId\" # secret = \"x\"",
                "key = \"userId\" # secret = \"x\"",
            ),
            (
                "Authorization=\"Bearer é\" x = 1",
                "Authorization=\"********\" x = 1",
            ),
        ] {
            assert_eq!(redact_line(line), shown);
        }
    }
}
