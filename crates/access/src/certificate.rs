//! Client certificates (mutual TLS): the names by which a key lists a certificate.

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, Reader, SliceReader, Tag, Tagged};

/// The object identifier 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The object identifier 2.5.29.17.
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The part of a client certificate that authentication needs. TLS has verified the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The common name of the subject, then the DNS names, URIs and e-mail addresses among the alternative names.
    pub names: Vec<String>,
    /// Milliseconds since 1970.
    pub expires_ms: i64,
}

impl ClientCertificate {
    /// Reads a certificate in DER form (RFC 5280, section 4.1).
    pub fn parse(der: &[u8]) -> Option<ClientCertificate> {
        let certificate = items(AnyRef::from_der(der).ok()?)?;
        let fields = items(*certificate.first()?)?;
        let fields = match context_number(*fields.first()?) {
            Some(_version) => &fields[1..],
            None => &fields[..],
        };
        let [_, _, _, validity, subject, _, optional @ ..] = fields else {
            return None;
        };
        let mut names = common_names(*subject)?;
        let extensions = optional
            .iter()
            .find(|field| context_number(**field) == Some(3));
        if let Some(extensions) = extensions {
            names.extend(alternative_names(*items(*extensions)?.first()?)?);
        }
        let expires_ms = time_ms(*items(*validity)?.get(1)?)?;
        Some(ClientCertificate { names, expires_ms })
    }
}

/// The items of a sequence, a set or a tagged value.
fn items(of: AnyRef<'_>) -> Option<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(of.value()).ok()?;
    let mut items = Vec::new();
    while !reader.is_finished() {
        items.push(reader.decode().ok()?);
    }
    Some(items)
}

/// The number of a context-specific tag.
fn context_number(item: AnyRef<'_>) -> Option<u32> {
    match item.tag() {
        Tag::ContextSpecific { number, .. } => Some(number.value()),
        _ => None,
    }
}

fn common_names(subject: AnyRef<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for relative_name in items(subject)? {
        for attribute in items(relative_name)? {
            let [kind, value] = items(attribute)?[..] else {
                return None;
            };
            let is_text = matches!(value.tag(), Tag::Utf8String | Tag::PrintableString);
            if kind.value() == COMMON_NAME && is_text {
                names.push(text(value)?);
            }
        }
    }
    Some(names)
}

fn alternative_names(extensions: AnyRef<'_>) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for extension in items(extensions)? {
        // Identifier, whether it is critical, and the value in an octet string.
        let parts = items(extension)?;
        if parts.first()?.value() != SUBJECT_ALTERNATIVE_NAME {
            continue;
        }
        for name in items(AnyRef::from_der(parts.last()?.value()).ok()?)? {
            // E-mail address, DNS name, URI.
            if matches!(context_number(name), Some(1 | 2 | 6)) {
                names.push(text(name)?);
            }
        }
    }
    Some(names)
}

fn text(item: AnyRef<'_>) -> Option<String> {
    let text = std::str::from_utf8(item.value()).ok()?;
    Some(text.to_owned())
}

fn time_ms(time: AnyRef<'_>) -> Option<i64> {
    let since_1970 = match time.tag() {
        Tag::UtcTime => time.decode_as::<UtcTime>().ok()?.to_unix_duration(),
        _ => time.decode_as::<GeneralizedTime>().ok()?.to_unix_duration(),
    };
    i64::try_from(since_1970.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    const CLIENT: &str = include_str!("../../server/tests/server/http/client.pem");

    // proves G4
    #[test]
    fn a_certificate_has_the_names_of_its_subject() {
        let lines = CLIENT.lines().filter(|line| !line.starts_with('-'));
        let der = STANDARD.decode(lines.collect::<String>()).unwrap();
        let certificate = ClientCertificate::parse(&der).unwrap();
        let expected = [
            "billing",
            "billing.example",
            "spiffe://example/billing",
            "billing@example.org",
        ];
        assert_eq!(certificate.names, expected);
        assert_eq!(certificate.expires_ms, 4_948_451_691_000);
        for length in 0..der.len() {
            assert_eq!(ClientCertificate::parse(&der[..length]), None);
        }
        for at in 0..der.len() {
            let mut changed = der.clone();
            changed[at] ^= 0x40;
            // It may still be a certificate, but must not panic.
            ClientCertificate::parse(&changed);
        }
    }
}
