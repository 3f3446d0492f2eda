//! The tree of simulated folders and files, and which of its entries are durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::contents::Contents;
use crate::random::Random;

pub(super) type Id = u64;

const ROOT: Id = 0;

enum Node {
    Folder(Folder),
    File(Contents),
}

#[derive(Default)]
struct Folder {
    durable: BTreeMap<String, Id>,
    current: BTreeMap<String, Id>,
}

/// An atomic change of the tree, such as a rename.
struct Change(Vec<Edit>);

struct Edit {
    folder: Id,
    name: String,
    target: Option<Id>,
}

pub(super) struct Names {
    nodes: BTreeMap<Id, Node>,
    changes: Vec<Change>,
}

impl Names {
    pub(super) fn new() -> Names {
        Names {
            nodes: BTreeMap::from([(ROOT, Node::Folder(Folder::default()))]),
            changes: Vec::new(),
        }
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Id> {
        parts(path).try_fold(ROOT, |folder, name| {
            let found = self.folder(folder)?.current.get(name);
            found.copied().ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    pub(super) fn file(&self, id: Id) -> io::Result<&Contents> {
        match self.nodes.get(&id) {
            Some(Node::File(contents)) => Ok(contents),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn file_mut(&mut self, id: Id) -> io::Result<&mut Contents> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(contents)) => Ok(contents),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn folder(&self, id: Id) -> io::Result<&Folder> {
        match self.nodes.get(&id) {
            Some(Node::Folder(folder)) => Ok(folder),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let folder = self.folder(self.find(path)?)?;
        Ok(folder.current.keys().cloned().collect())
    }

    pub(super) fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        let mut at = ROOT;
        for name in parts(path) {
            at = match self.folder(at)?.current.get(name) {
                Some(id) => *id,
                None => self.create(at, name, Node::Folder(Folder::default())),
            };
        }
        self.folder(at).map(|_| ())
    }

    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<Id> {
        let (folder, name) = self.parent_and_name(path)?;
        Ok(self.create(folder, &name, Node::File(Contents::default())))
    }

    fn create(&mut self, folder: Id, name: &str, node: Node) -> Id {
        let id = self.nodes.len() as Id;
        self.nodes.insert(id, node);
        self.change(vec![Edit {
            folder,
            name: name.to_owned(),
            target: Some(id),
        }]);
        id
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let id = self.find(from)?;
        let (from, old) = self.parent_and_name(from)?;
        let (to, new) = self.parent_and_name(to)?;
        self.change(vec![
            Edit {
                folder: from,
                name: old,
                target: None,
            },
            Edit {
                folder: to,
                name: new,
                target: Some(id),
            },
        ]);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.find(path)?;
        let (folder, name) = self.parent_and_name(path)?;
        self.change(vec![Edit {
            folder,
            name,
            target: None,
        }]);
        Ok(())
    }

    pub(super) fn remove_tree(&mut self, path: &Path) -> io::Result<()> {
        for name in self.list(path)? {
            let inner = path.join(name);
            match self.folder(self.find(&inner)?).is_ok() {
                true => self.remove_tree(&inner)?,
                false => self.remove(&inner)?,
            }
        }
        self.remove(path)
    }

    /// Makes the changes of the folder durable, with the earlier changes of the names involved.
    pub(super) fn sync(&mut self, path: &Path) -> io::Result<()> {
        let folder = self.find(path)?;
        self.folder(folder)?;
        let mut names: BTreeSet<(Id, String)> = BTreeSet::new();
        let mut chosen = vec![false; self.changes.len()];
        for (chosen, Change(edits)) in chosen.iter_mut().zip(&self.changes).rev() {
            let key = |edit: &Edit| (edit.folder, edit.name.clone());
            if edits
                .iter()
                .any(|edit| edit.folder == folder || names.contains(&key(edit)))
            {
                names.extend(edits.iter().map(key));
                *chosen = true;
            }
        }
        self.make_durable(|number| chosen[number]);
        Ok(())
    }

    /// Some of the changes survive, chosen independently, and every file is torn.
    pub(super) fn crash(&mut self, random: &mut Random) {
        let mode = random.below(4);
        let kept: Vec<bool> = (self.changes.iter())
            .map(|_| mode == 1 || mode > 1 && random.below(2) == 0)
            .collect();
        self.make_durable(|number| kept[number]);
        self.changes.clear();
        for node in self.nodes.values_mut() {
            match node {
                Node::Folder(folder) => folder.current = folder.durable.clone(),
                Node::File(contents) => contents.crash(random),
            }
        }
    }

    /// Applies the chosen changes to the durable entries and keeps the others pending.
    fn make_durable(&mut self, chosen: impl Fn(usize) -> bool) {
        for (number, change) in std::mem::take(&mut self.changes).into_iter().enumerate() {
            match chosen(number) {
                true => self.apply(&change, |folder| &mut folder.durable),
                false => self.changes.push(change),
            }
        }
    }

    fn change(&mut self, edits: Vec<Edit>) {
        let change = Change(edits);
        self.apply(&change, |folder| &mut folder.current);
        self.changes.push(change);
    }

    fn apply(&mut self, change: &Change, which: fn(&mut Folder) -> &mut BTreeMap<String, Id>) {
        for edit in &change.0 {
            if let Some(Node::Folder(folder)) = self.nodes.get_mut(&edit.folder) {
                match edit.target {
                    Some(id) => which(folder).insert(edit.name.clone(), id),
                    None => which(folder).remove(&edit.name),
                };
            }
        }
    }

    fn parent_and_name(&self, path: &Path) -> io::Result<(Id, String)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let name = parts(path).next_back().ok_or_else(invalid)?.to_owned();
        let folder = self.find(path.parent().ok_or_else(invalid)?)?;
        self.folder(folder)?;
        Ok((folder, name))
    }

    /// All files that have a name.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        self.collect(ROOT, Path::new(""), &mut files);
        files
    }

    fn collect(&self, folder: Id, path: &Path, files: &mut Vec<PathBuf>) {
        let Ok(folder) = self.folder(folder) else {
            return files.push(path.to_path_buf());
        };
        for (name, id) in &folder.current {
            self.collect(*id, &path.join(name), files);
        }
    }

    /// Total size of the files that have a name.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes_in(ROOT)
    }

    fn bytes_in(&self, id: Id) -> u64 {
        match &self.nodes[&id] {
            Node::File(contents) => contents.current().len() as u64,
            Node::Folder(folder) => folder.current.values().map(|id| self.bytes_in(*id)).sum(),
        }
    }
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = &str> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    })
}
