//! GetMetadataPropertyValue(input, path): properties of an event outside of its payload.

use super::BindResult;
use super::expr::ExprBinder;
use super::scope::{Source, SourceKind};
use crate::Span;
use crate::ast::{self, Call, ExprKind as Ast, Ident, Quote, same_name};
use crate::diagnostic::{Diagnostic, code};
use crate::parser::ErrorReported;
use crate::plan::{Expr, Node, Read};

/// The spellings of the reference; names ignore case.
const KNOWN: [&str; 31] = [
    "EventHub",
    "IoTHub",
    "User",
    "EventId",
    "BlobName",
    "BlobLastModifiedUtcTime",
    "PartitionId",
    "EventEnqueuedUtcTime",
    "EventProcessedUtcTime",
    "Offset",
    "SequenceNumber",
    "PartitionKey",
    "Publisher",
    "IoTConnectionDeviceId",
    "IoTAuthMethod",
    "IoTAuthGenerationId",
    "IoTEnqueueTime",
    "IoTMessageSource",
    "IoTConnectionModuleId",
    "IoTInterfaceName",
    "ConnectionDeviceId",
    "AuthMethod",
    "AuthGenerationId",
    "EnqueueTime",
    "EnqueuedTime",
    "MessageSource",
    "ConnectionModuleId",
    "InterfaceName",
    "CorrelationId",
    "MessageId",
    "ConnectionDeviceGenerationId",
];

impl ExprBinder<'_, '_> {
    pub(super) fn metadata_call(&mut self, call: &Call, span: Span) -> BindResult<Expr> {
        let [of, path] = call.args.as_slice() else {
            let message = "GetMetadataPropertyValue takes an input and the path of a property";
            return Err(self.metadata_error(span, message));
        };
        let (source, input) = self.metadata_source(of)?;
        let property = self.metadata_path(path)?;
        if self.grouping.is_some() {
            let message = "a group has many events, and each has metadata of its own";
            let error = Diagnostic::error(code::UNGROUPED, span, message);
            return Err(self.report(error.help("add the call to GROUP BY, or aggregate it")));
        }
        let label = [of, path].map(|argument| self.binder.text(argument.span));
        let column = self.binder.read(input, read(property));
        let expr = Expr::column(column, span);
        Ok(self.binder.rewrite_over_scope(&source, &label, expr))
    }

    /// The input that the first argument names.
    fn metadata_source(&mut self, of: &ast::Expr) -> BindResult<(Source, usize)> {
        let name = match &of.kind {
            Ast::Path(path) => path.as_slice(),
            _ => &[],
        };
        let named = |name: &Ident| {
            let hidden = |source: &&Source| source.hidden.as_deref().is_some_and(|h| name.is(h));
            let alias = self
                .scope
                .named(name)
                .map(|index| &self.scope.sources[index]);
            alias.or_else(|| self.scope.sources.iter().find(hidden))
        };
        let [name] = name else {
            return Err(self.metadata_error(of.span, "only inputs have metadata"));
        };
        let Some(source) = named(name).cloned() else {
            let message = format!("there is no source `{}` here", name.name);
            return Err(self.metadata_error(of.span, &message));
        };
        let input = match source.of {
            SourceKind::Rows { node, .. } => match self.binder.plan.nodes[node.0] {
                Node::Source { input } if !self.binder.inputs[input].reference => Some(input),
                _ => None,
            },
            SourceKind::Element { .. } => None,
        };
        let Some(input) = input else {
            let message = format!(
                "`{}` is not an input, and only inputs have metadata",
                name.name
            );
            return Err(self.metadata_error(of.span, &message));
        };
        Ok((source, input))
    }

    fn metadata_error(&mut self, span: Span, message: &str) -> ErrorReported {
        let error = Diagnostic::error(code::ARGUMENTS, span, message);
        let help =
            "write GetMetadataPropertyValue(input, '[EventHub].[Offset]'), where the input is read";
        self.report(error.help(help))
    }

    /// A literal, also in double quotes.
    fn metadata_path(&mut self, path: &ast::Expr) -> BindResult<Vec<String>> {
        let text = match &path.kind {
            Ast::Text(text) => Some(text),
            Ast::Path(path) => match path.as_slice() {
                [only] if only.quote == Quote::Double => Some(&only.name),
                _ => None,
            },
            _ => None,
        };
        match text.and_then(|text| segments(text)) {
            Some(segments) => Ok(segments),
            None => {
                let message = "the path of a property is a text such as '[User].[name]'";
                Err(self.metadata_error(path.span, message))
            }
        }
    }
}

/// `[A].[B]` and `A.B` are equal; inside brackets `]]` is a bracket.
fn segments(text: &str) -> Option<Vec<String>> {
    let mut segments = Vec::new();
    let mut rest = text.trim();
    loop {
        let (segment, after) = segment(rest)?;
        segments.push(segment);
        match after.strip_prefix('.') {
            Some(more) => rest = more.trim_start(),
            None if after.is_empty() => return Some(segments),
            None => return None,
        }
    }
}

fn segment(text: &str) -> Option<(String, &str)> {
    let Some(mut inside) = text.strip_prefix('[') else {
        let end = text.find('.').unwrap_or(text.len());
        let name = text[..end].trim();
        return (!name.is_empty()).then(|| (name.to_string(), &text[end..]));
    };
    let mut name = String::new();
    loop {
        let end = inside.find(']')?;
        name.push_str(&inside[..end]);
        inside = &inside[end + 1..];
        match inside.strip_prefix(']') {
            Some(more) => {
                name.push(']');
                inside = more;
            }
            None => return (!name.is_empty()).then(|| (name, inside.trim_start())),
        }
    }
}

/// The column to read for a property. User properties keep their spelling.
fn read(mut path: Vec<String>) -> Read {
    let user = same_name(&path[0], "User");
    for segment in path.iter_mut().take(if user { 1 } else { usize::MAX }) {
        if let Some(known) = KNOWN.iter().find(|known| same_name(known, segment)) {
            *segment = known.to_string();
        }
    }
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    match names.as_slice() {
        ["EventHub", "EventEnqueuedUtcTime"]
        | ["EventEnqueuedUtcTime"]
        | ["IoTHub", "EnqueueTime" | "EnqueuedTime"] => Read::Arrival,
        ["EventHub", "PartitionId"] | ["PartitionId"] => Read::Partition,
        ["BlobName"] => Read::FileName,
        ["BlobLastModifiedUtcTime"] => Read::FileTime,
        _ => Read::Metadata(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves S1
    #[test]
    fn paths_are_read_in_every_spelling() {
        let split = |text: &str| segments(text).map(|s| s.join("|"));
        assert_eq!(split("[User].[a b]"), Some("User|a b".to_string()));
        assert_eq!(split("User.a"), Some("User|a".to_string()));
        assert_eq!(split("[User].a"), Some("User|a".to_string()));
        assert_eq!(split(" [x]]y] . z "), Some("x]y|z".to_string()));
        assert_eq!(split("EventId"), Some("EventId".to_string()));
        for bad in ["", ".", "a..b", "[a", "[]", "[a]b", "a."] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }
}
