//! Signed links that resume a stopped processor.
//!
//! A link names the record that opened the circuit, and has an expiry. It is valid while that opening lasts, so it
//! works once: resuming ends the opening, and the next opening is another record. The signing key is created once and
//! stored in the data folder.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use highwater_env::disk;
use highwater_flow::CircuitTrip;
use highwater_log::Offset;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::tls::random_bytes;

const FILE: &str = "link.key";

#[derive(Clone)]
pub(crate) struct Signer(Arc<[u8; 32]>);

/// A link with a valid signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) circuit: String,
    pub(crate) opening: Offset,
    pub(crate) expires_seconds: i64,
}

impl Signer {
    /// Reads the key in the data folder, or creates it.
    pub(crate) fn open(data: &Path) -> Result<Signer, String> {
        let path = data.join(FILE);
        let wrong = |why: String| format!("the key for links in {}: {why}", path.display());
        let text = match disk::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = random_bytes::<32>().map_err(|error| wrong(error.to_string()))?;
                let text = URL_SAFE_NO_PAD.encode(key);
                let written = disk::write_private(&path, text.as_bytes());
                written.map_err(|error| wrong(error.to_string()))?;
                text
            }
            read => read.map_err(|error| wrong(error.to_string()))?,
        };
        let key = URL_SAFE_NO_PAD.decode(text.trim()).ok();
        let key = key.and_then(|key| <[u8; 32]>::try_from(key).ok());
        let key =
            key.ok_or_else(|| wrong("it is damaged; remove the file to make a new one".into()))?;
        Ok(Signer(Arc::new(key)))
    }

    pub(crate) fn sign(&self, opening: &CircuitTrip, expires_seconds: i64) -> String {
        let text = format!("{}.{expires_seconds}.{}", opening.offset, opening.circuit);
        let mac = self.mac(text.as_bytes()).finalize().into_bytes();
        format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(text),
            URL_SAFE_NO_PAD.encode(mac)
        )
    }

    /// `None` if the signature is wrong or the link expired.
    pub(crate) fn verify(&self, token: &str, now_seconds: i64) -> Option<Link> {
        let (text, mac) = token.split_once('.')?;
        let text = URL_SAFE_NO_PAD.decode(text).ok()?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        self.mac(&text).verify_slice(&mac).ok()?;
        let text = String::from_utf8(text).ok()?;
        let mut parts = text.splitn(3, '.');
        let (opening, expires) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let link = Link {
            circuit: parts.next()?.to_owned(),
            opening: Offset(opening),
            expires_seconds: expires,
        };
        (now_seconds < expires).then_some(link)
    }

    fn mac(&self, text: &[u8]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&*self.0);
        let mut mac = mac.expect("a key of any length will do");
        mac.update(text);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_log::EnqueueTime;
    use proptest::prelude::*;

    fn opening() -> CircuitTrip {
        CircuitTrip {
            circuit: "billing.v2".into(),
            offset: Offset(42),
            at: EnqueueTime(0),
            why: "it is down".into(),
        }
    }

    // proves P4
    #[test]
    fn a_link_is_valid_for_its_opening_until_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let signer = Signer::open(folder.path()).unwrap();
        let token = signer.sign(&opening(), 100);
        let link = Link {
            circuit: "billing.v2".into(),
            opening: Offset(42),
            expires_seconds: 100,
        };
        assert_eq!(signer.verify(&token, 99), Some(link.clone()));
        assert_eq!(signer.verify(&token, 100), None, "it has expired");
        let again = Signer::open(folder.path()).unwrap();
        assert_eq!(again.verify(&token, 0), Some(link), "the key is kept");
        let other = Signer::open(tempfile::tempdir().unwrap().path()).unwrap();
        assert_eq!(other.verify(&token, 0), None, "another node's");
    }

    proptest! {
        #[test]
        fn a_changed_link_is_invalid(at in 0..100usize, byte in 33..127u8) {
            let signer = Signer(Arc::new([7; 32]));
            let token = signer.sign(&opening(), 100);
            let mut changed = token.clone().into_bytes();
            let at = at % changed.len();
            prop_assume!(changed[at] != byte);
            changed[at] = byte;
            let changed = String::from_utf8(changed).unwrap();
            prop_assert_eq!(signer.verify(&changed, 0), None);
        }
    }
}
