//! The folders that a definition may read and write.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Everywhere, or below some folders. Symbolic links are resolved, so that none leads out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderPolicy {
    /// `None`: everywhere.
    folders: Option<Arc<[PathBuf]>>,
}

impl FolderPolicy {
    /// Only below these folders; without any, nowhere.
    pub fn below(folders: impl IntoIterator<Item = PathBuf>) -> FolderPolicy {
        FolderPolicy {
            folders: Some(folders.into_iter().collect()),
        }
    }

    /// The same folders and one more.
    #[must_use]
    pub fn with(&self, folder: &Path) -> FolderPolicy {
        let folders = self.folders.as_ref().map(|folders| {
            let more = folders.iter().cloned().chain([folder.to_owned()]);
            more.collect()
        });
        FolderPolicy { folders }
    }

    /// Whether the path, which need not exist, is in one of the folders. Blocks.
    pub fn allows(&self, path: &Path) -> bool {
        let Some(folders) = &self.folders else {
            return true;
        };
        let Some(path) = real_path(path) else {
            return false;
        };
        let mut folders = folders.iter().filter_map(|folder| real_path(folder));
        folders.any(|folder| path.starts_with(folder))
    }
}

/// The path without links: its existing part resolved, and then plain names. `None` if the rest is more than names, or
/// a link that leads nowhere yet.
fn real_path(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut ancestors = path.ancestors();
    let (existing, real) =
        ancestors.find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)))?;
    let rest = path.strip_prefix(existing).ok()?;
    let mut parts = rest.components();
    if let Some(first) = parts.clone().next()
        && existing.join(first).is_symlink()
    {
        return None;
    }
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
    parts.all(is_name).then(|| real.join(rest))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make their own files")]
mod tests {
    use super::*;

    // proves G3
    #[test]
    fn nothing_outside_of_the_folders_is_allowed_by_name_link_or_dots() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("in"), root.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(inside.join("a.csv"), "").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.join("new"), inside.join("dangling")).unwrap();
        let policy = FolderPolicy::below([inside.clone()]);
        for path in ["a.csv", "new/deeper/b.csv", "", "./a.csv"] {
            assert!(policy.allows(&inside.join(path)), "{path}");
        }
        for path in [
            "../out/x",
            "link/x",
            "link",
            "dangling",
            "new/../../out/x",
            "../inside",
        ] {
            assert!(!policy.allows(&inside.join(path)), "{path}");
        }
        assert!(!policy.allows(Path::new("/etc/passwd")));
        assert!(policy.with(&outside).allows(&inside.join("link/x")));
        assert!(
            !FolderPolicy::below([]).allows(&inside) && FolderPolicy::default().allows(&inside)
        );
    }
}
