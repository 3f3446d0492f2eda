//! Queries with keywords, functions, texts and comments marked, and with line numbers.

use maud::{Markup, PreEscaped, html};

/// The words that SAQL reserves or uses as clauses.
const KEYWORDS: &str = "
    SELECT INTO FROM WHERE GROUP BY HAVING TIMESTAMP OVER PARTITION WITH AS JOIN LEFT INNER OUTER
    CROSS APPLY ON UNION ALL AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT TOP
    CREATE TABLE FUNCTION RETURNS LIMIT DURATION ORDER ASC DESC MATCH_RECOGNIZE MEASURES PATTERN
    DEFINE AFTER MATCH SKIP PAST LAST ROW CAST TRY_CAST BIGINT FLOAT NVARCHAR MAX DATETIME BIT
    RECORD ARRAY
";

/// The query as numbered, coloured lines for a `<pre>`.
pub(crate) fn highlight(query: &str) -> Markup {
    let mut colours = Colours::default();
    let lines: Vec<Markup> = query
        .trim_end()
        .lines()
        .map(|line| colours.line(line))
        .collect();
    html! {
        @for (at, line) in lines.iter().enumerate() {
            span class="n" { (at + 1) } (line) "\n"
        }
    }
}

#[derive(Default)]
struct Colours {
    /// Inside `/* .. */`.
    in_comment: bool,
}

impl Colours {
    fn line(&mut self, line: &str) -> Markup {
        let mut out = String::new();
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let (class, length) = self.token(rest, first);
            let (token, after) = rest.split_at(length);
            let shown = match class {
                Some(class) => html! { span class=(class) { (token) } },
                None => html! { (token) },
            };
            out.push_str(&shown.0);
            rest = after;
        }
        PreEscaped(out)
    }

    /// The class of the token that `rest` begins with, and its length in bytes.
    fn token(&mut self, rest: &str, first: char) -> (Option<&'static str>, usize) {
        if self.in_comment || rest.starts_with("/*") {
            let end = rest.find("*/").map(|at| at + 2);
            self.in_comment = end.is_none();
            return (Some("c"), end.unwrap_or(rest.len()));
        }
        if rest.starts_with("--") {
            return (Some("c"), rest.len());
        }
        if first == '\'' {
            let end = rest[1..].find('\'').map_or(rest.len(), |at| at + 2);
            return (Some("s"), end);
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if !is_word(first) {
            return (None, first.len_utf8());
        }
        let is_name = |c: char| is_word(c) || c == '.';
        let length = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        let word = &rest[..length];
        let is_keyword = KEYWORDS
            .split_whitespace()
            .any(|known| known.eq_ignore_ascii_case(word));
        let class = if is_keyword && !calls(word, &rest[length..]) {
            Some("k")
        } else if rest[length..].trim_start().starts_with('(') {
            Some("f")
        } else {
            None
        };
        (class, length)
    }
}

/// `MAX(x)` is a function, `NVARCHAR(max)` a type.
fn calls(word: &str, after: &str) -> bool {
    ["MAX", "LAST", "LEFT"]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(word))
        && after.trim_start().starts_with('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(query: &str) -> String {
        highlight(query).into_string()
    }

    #[test]
    fn tokens_have_their_colours_and_are_escaped() {
        let html = shown("SELECT MAX(x) AS '<b>' -- it's\nFROM a.b");
        assert_eq!(
            html,
            "<span class=\"n\">1</span><span class=\"k\">SELECT</span> <span class=\"f\">MAX</span>(x) \
             <span class=\"k\">AS</span> <span class=\"s\">'&lt;b&gt;'</span> <span class=\"c\">-- it's</span>\n\
             <span class=\"n\">2</span><span class=\"k\">FROM</span> a.b\n"
        );
    }

    #[test]
    fn a_comment_of_several_lines_ends_where_it_ends() {
        let html = shown("/* a\nSELECT */ x");
        assert!(
            html.contains("<span class=\"c\">SELECT */</span> x"),
            "{html}"
        );
    }

    #[test]
    fn broken_text_is_shown_whole() {
        for query in ["'open", "/* open", "é'ü", "-- ", "\u{1F600}("] {
            let html = shown(query);
            let text: String = html
                .split('<')
                .filter_map(|part| part.split_once('>'))
                .map(|(_, text)| text)
                .collect();
            assert_eq!(
                text.replace("&lt;", "<"),
                format!("1{}\n", query.trim_end()),
                "{html}"
            );
        }
    }
}
