//! A message whose body is in a topic: everything but the body, and only content that differs from the topic's.

use std::sync::Arc;

use highwater_codec::Writer;

use super::field::{Field, FieldReader, Read};
use crate::machine::ReferencedMessage;
use crate::message::{Content, Message};

impl Field for ReferencedMessage {
    fn write(&self, out: &mut Vec<u8>) {
        let message = &self.message;
        message.enqueued_ms.write(out);
        message.expires_ms.write(out);
        message.deliveries.write(out);
        message.state.write(out);
        message.dead_letter.write(out);
        let content = &message.content;
        content.session.write(out);
        out.bool(self.is_changed);
        if self.is_changed {
            content.id.write(out);
            content.content_type.write(out);
            content.properties.write(out);
        }
    }

    fn read(from: &mut FieldReader<'_>) -> Read<ReferencedMessage> {
        let mut message = Message {
            enqueued_ms: Field::read(from)?,
            expires_ms: Field::read(from)?,
            deliveries: Field::read(from)?,
            state: Field::read(from)?,
            dead_letter: Field::read(from)?,
            content: Arc::default(),
        };
        let mut content = Content {
            session: Field::read(from)?,
            ..Content::default()
        };
        let is_changed = from.bool()?;
        if is_changed {
            content.id = Field::read(from)?;
            content.content_type = Field::read(from)?;
            content.properties = Field::read(from)?;
        }
        message.content = Arc::new(content);
        Ok(ReferencedMessage {
            message,
            is_changed,
        })
    }
}
