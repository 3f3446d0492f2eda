//! References to secrets inside texts: `${env:NAME}` and `${file:path}`.
//!
//! A definition is stored, shown and logged with the reference; the secret is read each time it is used, so it can be
//! rotated and never leaves its source. Definitions of users read only variables that begin with `HIGHWATER_SECRET_`
//! and files below a folder: otherwise a job could post every variable and file of the node.

use std::borrow::Cow;
use std::path::Path;

use highwater_env::{FolderPolicy, disk};

/// Variables that definitions of users may read.
pub(crate) const VARIABLE_PREFIX: &str = "HIGHWATER_SECRET_";

/// Reads the secrets that texts refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// `None`: every variable and file.
    files: Option<FolderPolicy>,
}

/// A reference that cannot be resolved. Never has the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretError {
    /// As written.
    pub reference: String,
    pub reason: String,
}

impl std::fmt::Display for SecretError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the secret {}: {}", self.reference, self.reason)
    }
}

impl std::error::Error for SecretError {}

enum Reference<'a> {
    Variable(&'a str),
    File(&'a str),
}

impl Secrets {
    /// For definitions of users: variables with the prefix, and these files.
    pub fn restricted(files: FolderPolicy) -> Secrets {
        Secrets { files: Some(files) }
    }

    /// The text with its secrets in place of the references.
    pub fn resolve<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, SecretError> {
        self.replace(text, |reference| {
            self.check(reference)?;
            read(reference)
        })
    }

    /// Whether all references of the text are allowed. Reads none of them.
    pub fn check_text(&self, text: &str) -> Result<(), SecretError> {
        let checked = self.replace(text, |reference| {
            self.check(reference).map(|()| String::new())
        });
        checked.map(drop)
    }

    fn replace<'a>(
        &self,
        text: &'a str,
        mut secret: impl FnMut(&Reference<'_>) -> Result<String, String>,
    ) -> Result<Cow<'a, str>, SecretError> {
        let (mut resolved, mut rest) = (String::new(), text);
        while let Some((before, reference, after)) = next_reference(rest) {
            let replaced = secret(&reference).map_err(|reason| SecretError {
                reference: rest[before.len()..rest.len() - after.len()].to_owned(),
                reason,
            })?;
            resolved.push_str(before);
            resolved.push_str(&replaced);
            rest = after;
        }
        if rest.len() == text.len() {
            return Ok(Cow::Borrowed(text));
        }
        resolved.push_str(rest);
        Ok(Cow::Owned(resolved))
    }

    fn check(&self, reference: &Reference<'_>) -> Result<(), String> {
        let refused = match (&self.files, reference) {
            (Some(_), Reference::Variable(name)) if !name.starts_with(VARIABLE_PREFIX) => {
                format!("only variables that begin with {VARIABLE_PREFIX} may be read here")
            }
            (Some(files), Reference::File(path)) if !files.allows(Path::new(path)) => {
                "only files below secrets.folder may be read here".to_owned()
            }
            _ => return Ok(()),
        };
        Err(refused)
    }
}

fn read(reference: &Reference<'_>) -> Result<String, String> {
    match reference {
        Reference::Variable(name) => {
            std::env::var(name).map_err(|_| "there is no such variable".to_owned())
        }
        Reference::File(path) => {
            let text = disk::read_to_string(path).map_err(|error| error.to_string())?;
            // Editors end a file with a newline, which is no part of the secret.
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    }
}

/// The text before the next reference, the reference, and the text after it.
fn next_reference(text: &str) -> Option<(&str, Reference<'_>, &str)> {
    let mut from = 0;
    while let Some(at) = text[from..].find("${") {
        let start = from + at;
        let inside = &text[start + 2..];
        let end = inside.find('}')?;
        let reference = match inside[..end].split_once(':') {
            Some(("env", name)) => Some(Reference::Variable(name)),
            Some(("file", path)) => Some(Reference::File(path)),
            _ => None,
        };
        if let Some(reference) = reference {
            return Some((&text[..start], reference, &inside[end + 1..]));
        }
        from = start + 2;
    }
    None
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make their own files")]
mod tests {
    use super::*;

    // proves G3
    #[test]
    fn references_are_replaced_and_other_text_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "s3cret\n").unwrap();
        let text = format!("Bearer ${{file:{}}} ${{HOME}} $ ${{", file.display());
        let resolved = Secrets::default().resolve(&text).unwrap();
        assert_eq!(resolved, "Bearer s3cret ${HOME} $ ${");
        let path = std::env::var("PATH").unwrap();
        assert_eq!(Secrets::default().resolve("${env:PATH}").unwrap(), path);
        assert!(matches!(
            Secrets::default().resolve("plain"),
            Ok(Cow::Borrowed("plain"))
        ));
        let missing = Secrets::default()
            .resolve("x${env:HIGHWATER_NO_SUCH}y")
            .unwrap_err();
        assert_eq!(missing.reference, "${env:HIGHWATER_NO_SUCH}");
    }

    // proves G3
    #[test]
    fn users_read_their_variables_and_files_below_the_folder_only() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("secrets"), folder.path().join("outside"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("token"), "good").unwrap();
        std::fs::write(&outside, "other").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let user = Secrets::restricted(FolderPolicy::below([inside.clone()]));
        let of = |path: &Path| format!("${{file:{}}}", path.display());
        assert_eq!(user.resolve(&of(&inside.join("token"))).unwrap(), "good");
        for path in [&outside, &inside.join("link"), &inside.join("../outside")] {
            assert!(user.resolve(&of(path)).is_err(), "{}", path.display());
        }
        assert!(user.resolve("${env:PATH}").is_err());
        assert!(user.check_text("${env:HIGHWATER_SECRET_X}").is_ok());
        let none = Secrets::restricted(FolderPolicy::below([]));
        assert!(none.resolve(&of(&inside.join("token"))).is_err());
    }
}
