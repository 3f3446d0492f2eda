//! The files that a project of Visual Studio lists: `<Script Include="Script.asaql" />` and others in the XML of
//! MSBuild.
//!
//! Only the attribute `Include` counts, whatever the element is called, so this is no parser of XML.

/// The values of all attributes `Include`, in the order of the file.
pub(super) fn included_files(xml: &str) -> Vec<String> {
    let xml = without_comments(xml);
    let mut files = Vec::new();
    let mut rest = &xml[..];
    while let Some(at) = rest.find("Include") {
        let before = rest[..at].chars().next_back();
        rest = &rest[at + "Include".len()..];
        if let (Some(true), Some(value)) = (before.map(char::is_whitespace), attribute_value(rest))
        {
            files.push(unescaped(value));
        }
    }
    files
}

/// The value after the name of an attribute: `= "value"`.
fn attribute_value(text: &str) -> Option<&str> {
    let text = text.trim_start().strip_prefix('=')?.trim_start();
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let text = &text[quote.len_utf8()..];
    text.find(quote).map(|end| &text[..end])
}

fn without_comments(xml: &str) -> String {
    let mut kept = String::with_capacity(xml.len());
    let mut rest = xml;
    while let Some((before, after)) = rest.split_once("<!--") {
        kept.push_str(before);
        rest = after.split_once("-->").map_or("", |(_, rest)| rest);
    }
    kept.push_str(rest);
    kept
}

/// `&amp;` last, so that `&amp;lt;` is `&lt;`.
fn unescaped(value: &str) -> String {
    let named = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    named
        .iter()
        .fold(value.to_owned(), |text, (name, c)| text.replace(name, c))
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S1
    #[test]
    fn files_are_the_values_of_include() {
        let xml = r#"<Project xmlns="x"><ItemGroup>
            <Script Include="Script.asaql" />
            <!-- <Configure Include="Old.json" /> -->
            <Configure Include = 'Inputs\A &amp; B.json'><SubType>Input</SubType></Configure>
            <Other NoInclude="x" Include="" Excluded="y"/>
            <Broken Include="never closed
        "#;
        assert_eq!(
            included_files(xml),
            ["Script.asaql", r"Inputs\A & B.json", ""]
        );
    }
}
