//! XML in and out: a small tree for requests, and escaped texts for responses.
//!
//! Clients choose the prefixes of namespaces freely, and each name has one meaning, so elements and attributes are
//! found by their local names. Sizes, depth and the number of elements are limited; a document type, and with it
//! entities, is refused.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// The largest document of a client.
const BYTES_MAX: usize = 256 << 10;
const DEPTH_MAX: usize = 16;
const ELEMENTS_MAX: usize = 2000;
const ATTRIBUTES_MAX: usize = 16;

/// Why a document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum XmlError {
    #[error("the document is larger than {BYTES_MAX} bytes")]
    TooLarge,
    #[error("elements are nested deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("there are more than {ELEMENTS_MAX} elements")]
    TooManyElements,
    #[error("an element has more than {ATTRIBUTES_MAX} attributes")]
    TooManyAttributes,
    #[error("document types and entities are not accepted")]
    Entity,
    #[error("the document is not well-formed: {0}")]
    Malformed(String),
    #[error("the document has no element, or more than one")]
    NoRoot,
}

/// An element with its local name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    /// The local name in the attribute `type`, such as `SqlFilter` of `i:type="SqlFilter"`.
    pub(super) kind: Option<String>,
    /// It has the attribute `nil="true"`: there is no value.
    is_nil: bool,
    /// All text directly inside.
    text: String,
    children: Vec<Element>,
}

impl Element {
    pub(super) fn parse(document: &[u8]) -> Result<Element, XmlError> {
        if document.len() > BYTES_MAX {
            return Err(XmlError::TooLarge);
        }
        let mut reader = Reader::from_reader(document);
        // The root of the stack holds the document's element.
        let mut stack = vec![Element::default()];
        let mut count = 0;
        loop {
            let event = reader.read_event().map_err(malformed)?;
            if matches!(event, Event::Start(_) | Event::Empty(_)) {
                count += 1;
                if count > ELEMENTS_MAX {
                    return Err(XmlError::TooManyElements);
                }
                if stack.len() > DEPTH_MAX {
                    return Err(XmlError::TooDeep);
                }
            }
            match event {
                Event::Start(start) => stack.push(opened(&start)?),
                Event::Empty(start) => last(&mut stack)?.children.push(opened(&start)?),
                Event::End(_) => {
                    let closed = stack.pop().unwrap_or_default();
                    last(&mut stack)?.children.push(closed);
                }
                Event::Text(text) => {
                    let text = text.decode().map_err(malformed)?;
                    last(&mut stack)?.text.push_str(&text);
                }
                Event::CData(text) => {
                    let text = text.decode().map_err(malformed)?;
                    last(&mut stack)?.text.push_str(&text);
                }
                Event::GeneralRef(reference) => {
                    last(&mut stack)?.text.push(resolved(&reference)?);
                }
                Event::DocType(_) => return Err(XmlError::Entity),
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
                Event::Eof => return root(stack),
            }
        }
    }

    /// The child of this name; `None` if it is missing or nil.
    pub(super) fn child(&self, name: &str) -> Option<&Element> {
        let mut children = self.children.iter();
        children.find(|child| child.name == name && !child.is_nil)
    }

    pub(super) fn children(&self) -> &[Element] {
        &self.children
    }

    /// The text of a child without spaces around it; `None` if it has none.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let text = self.child(name)?.text.trim();
        (!text.is_empty()).then_some(text)
    }

    /// The text as it was sent.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

fn malformed(error: impl ToString) -> XmlError {
    XmlError::Malformed(error.to_string())
}

fn last(stack: &mut [Element]) -> Result<&mut Element, XmlError> {
    stack.last_mut().ok_or(XmlError::NoRoot)
}

fn root(mut stack: Vec<Element>) -> Result<Element, XmlError> {
    if stack.len() > 1 {
        return Err(XmlError::Malformed("an element is not closed".to_owned()));
    }
    let mut children = stack.pop().unwrap_or_default().children;
    match (children.pop(), children.is_empty()) {
        (Some(root), true) => Ok(root),
        _ => Err(XmlError::NoRoot),
    }
}

fn opened(start: &BytesStart<'_>) -> Result<Element, XmlError> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned);
    let mut element = Element {
        name: text(start.local_name().as_ref()).map_err(malformed)?,
        ..Element::default()
    };
    let mut attributes = start.attributes();
    for (count, attribute) in attributes.with_checks(false).enumerate() {
        if count >= ATTRIBUTES_MAX {
            return Err(XmlError::TooManyAttributes);
        }
        let attribute = attribute.map_err(malformed)?;
        let value = std::str::from_utf8(&attribute.value).map_err(malformed)?;
        match attribute.key.local_name().as_ref() {
            b"type" => {
                let local = value.rsplit_once(':').map_or(value, |(_, local)| local);
                element.kind = Some(local.to_owned());
            }
            b"nil" => element.is_nil = value.trim() == "true",
            _ => {}
        }
    }
    Ok(element)
}

/// The character of a reference such as `&#10;` or `&amp;`.
fn resolved(reference: &BytesRef<'_>) -> Result<char, XmlError> {
    if let Some(character) = reference.resolve_char_ref().map_err(malformed)? {
        return Ok(character);
    }
    match &reference.decode().map_err(malformed)?[..] {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(XmlError::Entity),
    }
}

/// Appends a text, without the characters that XML cannot have.
pub(super) fn push_text(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push_str(&format!("&#{};", u32::from(character))),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

/// Appends an element with a text.
pub(super) fn push_element(out: &mut String, name: &str, text: &str) {
    out.push('<');
    out.push_str(name);
    out.push('>');
    push_text(out, text);
    out.push_str("</");
    out.push_str(name);
    out.push('>');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Element, XmlError> {
        Element::parse(text.as_bytes())
    }

    // proves A3
    #[test]
    fn names_have_no_prefix_and_texts_are_unescaped() {
        let document = "<?xml version='1.0'?><ns0:entry xmlns:ns0='a'><ns0:title> a &amp; b&#x21; </ns0:title>\
            <Filter i:type='p4:SqlFilter' xmlns:i='x'><SqlExpression><![CDATA[a < 1]]></SqlExpression></Filter>\
            <Empty i:nil='true'/></ns0:entry>";
        let entry = parse(document).unwrap();
        assert_eq!(entry.name, "entry");
        assert_eq!(entry.value("title"), Some("a & b!"));
        assert_eq!(entry.child("title").unwrap().text(), " a & b! ");
        let filter = entry.child("Filter").unwrap();
        assert_eq!(filter.kind.as_deref(), Some("SqlFilter"));
        assert_eq!(filter.value("SqlExpression"), Some("a < 1"));
        assert_eq!(entry.child("Empty"), None);
    }

    // proves A3, G2
    #[test]
    fn hostile_documents_are_refused() {
        let deep = format!("{}{}", "<a>".repeat(17), "</a>".repeat(17));
        assert_eq!(parse(&deep), Err(XmlError::TooDeep));
        let wide = format!("<a>{}</a>", "<b/>".repeat(2000));
        assert_eq!(parse(&wide), Err(XmlError::TooManyElements));
        let large = format!("<a>{}</a>", " ".repeat(BYTES_MAX));
        assert_eq!(parse(&large), Err(XmlError::TooLarge));
        let attributes: String = (0..17).map(|n| format!(" a{n}='1'")).collect();
        let crowded = format!("<a{attributes}/>");
        assert_eq!(parse(&crowded), Err(XmlError::TooManyAttributes));
        let bomb = "<!DOCTYPE a [<!ENTITY x 'xxxx'>]><a>&x;</a>";
        assert_eq!(parse(bomb), Err(XmlError::Entity));
        assert_eq!(parse("<a>&x;</a>"), Err(XmlError::Entity));
        for document in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "</a>",
            "<a",
            "<a>&#0;</a>",
        ] {
            assert!(parse(document).is_err(), "{document}");
        }
        assert!(Element::parse(b"<a>\xff</a>").is_err());
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut out = String::new();
        let text = " <a> & \"b\"\r\n\t\u{1} ü";
        push_element(&mut out, "x", text);
        let read = parse(&out).unwrap();
        assert_eq!(read.text(), text.replace('\u{1}', "\u{fffd}"));
    }
}
