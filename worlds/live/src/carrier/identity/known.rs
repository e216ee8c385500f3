//! The far ends that a near end remembers, as SSH remembers hosts.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tunnel::Fingerprint;

use super::key::Identity;
use crate::sys::files::{Kind, Place, Replacement, open_ours};

/// The most bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a far end's key can't be looked up or remembered.
#[derive(Debug)]
pub enum KnownError {
    /// The file can't be read or written.
    File(PathBuf, io::Error),
    /// This line of the file, counted from 1, is not a name and a fingerprint.
    Line(PathBuf, usize),
    /// Another key is remembered for this name.
    Other {
        /// The name of the far end.
        name: String,
        /// The key that is remembered.
        known: Fingerprint,
        /// The key that was to be remembered.
        given: Fingerprint,
    },
}

impl fmt::Display for KnownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Line(path, line) => {
                write!(f, "{}, line {line}: expected HOST:PORT and a fingerprint", path.display())
            }
            Self::Other { name, known, given } => {
                write!(f, "the key remembered for {name} is {known} and not {given}")
            }
        }
    }
}

impl std::error::Error for KnownError {}

impl KnownError {
    /// The remedy, as a sentence.
    pub const fn help(&self) -> &'static str {
        match self {
            Self::File(..) => "check the permissions of the file and its directory",
            Self::Line(..) => "correct the line or remove it",
            Self::Other { .. } => {
                "ask the far end's owner which key it has; --replace remembers the new key instead"
            }
        }
    }
}

/// A file with a line for each far end: `HOST:PORT`, a space, the fingerprint of its key. Lines
/// that begin with `#` say nothing.
#[derive(Clone, Debug)]
pub struct KnownEnds {
    path: PathBuf,
}

impl KnownEnds {
    /// The file of this user: `known-ends` beside [`Identity::default_path`].
    pub fn of_user() -> Self {
        Self::at(Identity::default_path().with_file_name("known-ends"))
    }

    /// The file at `path`, which need not exist.
    pub const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key that is remembered for the far end at `name` (`HOST:PORT`).
    ///
    /// # Errors
    /// When there is a file and it can't be read or understood.
    pub fn find(&self, name: &str) -> Result<Option<Fingerprint>, KnownError> {
        Ok(self.read()?.into_iter().find(|(known, _)| known == name).map(|(_, key)| key))
    }

    /// All that is remembered, in the order of the file.
    ///
    /// # Errors
    /// As [`KnownEnds::find`].
    pub fn read(&self) -> Result<Vec<(String, Fingerprint)>, KnownError> {
        self.parse(&self.text()?)
    }

    /// The text of the file; empty if there is none.
    fn text(&self) -> Result<String, KnownError> {
        let text = match texts::read(&self.path, FILE_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            read => read,
        };
        text.map_err(|error| KnownError::File(self.path.clone(), error))
    }

    fn parse(&self, text: &str) -> Result<Vec<(String, Fingerprint)>, KnownError> {
        let read = |(index, line): (usize, &str)| {
            let pair = pair(line).and_then(|(name, key)| Some((name.to_owned(), key.trim().parse().ok()?)));
            pair.ok_or_else(|| KnownError::Line(self.path.clone(), index + 1))
        };
        text.lines().enumerate().filter(|(_, line)| says(line)).map(read).collect()
    }

    /// Remembers `key` for the far end at `name`. A key that is remembered already is replaced only
    /// if `replace` says so. All other lines of the file stay as they are.
    ///
    /// # Errors
    /// When another key is remembered, or the file can't be read or written.
    pub fn remember(&self, name: &str, key: Fingerprint, replace: bool) -> Result<(), KnownError> {
        if self.find(name)? == Some(key) {
            return Ok(());
        }
        // Another process that remembers a key now reads the file after this process has written
        // it.
        let _lock = self.lock().map_err(|error| KnownError::File(self.path.clone(), error))?;
        let text = self.text()?;
        let known = self.parse(&text)?;
        let known = known.iter().find(|(other, _)| other == name).map(|(_, key)| *key);
        if let Some(known) = known.filter(|known| *known != key && !replace) {
            return Err(KnownError::Other { name: name.to_owned(), known, given: key });
        }
        let new = format!("{name} {key}");
        let is_its = |line: &str| says(line) && pair(line).is_some_and(|(other, _)| other == name);
        let kept = text.lines().map(|line| if is_its(line) { new.as_str() } else { line });
        let added = known.is_none().then_some(new.as_str());
        let text: String = kept.chain(added).flat_map(|line| [line, "\n"]).collect();
        self.write(&text).map_err(|error| KnownError::File(self.path.clone(), error))
    }

    /// Waits until no other process changes the file, and keeps others from changing it until the
    /// result is dropped. The lock is on a file beside it, because each change replaces the file.
    fn lock(&self) -> io::Result<File> {
        if let Some(directory) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let place = Place::of_name(&self.path.with_extension("lock"))?;
        let file = open_ours(&place, Kind::Private)?;
        file.lock()?;
        Ok(file)
    }

    /// Writes the whole file anew, so that a crash leaves the former one.
    fn write(&self, text: &str) -> io::Result<()> {
        let mut new = Replacement::begin(Place::find(&self.path)?, Kind::Private)?;
        new.write_all(text.as_bytes())?;
        new.keep()
    }
}

/// Whether a line of the file is about a far end.
fn says(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with('#')
}

/// The far end's name, and the rest of its line.
fn pair(line: &str) -> Option<(&str, &str)> {
    line.trim().split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_and_replaced_only_on_request() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownEnds::at(directory.path().join("deep/known-ends"));
        assert_eq!(known.find("far:1").unwrap(), None);
        let (one, two) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        known.remember("far:1", one, false).unwrap();
        known.remember("far:1", one, false).unwrap();
        known.remember("other:1", two, false).unwrap();
        assert_eq!(known.find("far:1").unwrap(), Some(one));
        let error = known.remember("far:1", two, false).unwrap_err().to_string();
        assert!(error.contains(&one.to_string()) && error.contains(&two.to_string()), "{error}");
        known.remember("far:1", two, true).unwrap();
        assert_eq!(known.read().unwrap(), [("far:1".to_owned(), two), ("other:1".to_owned(), two)]);
    }

    #[test]
    fn the_other_lines_stay_as_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownEnds::at(directory.path().join("known-ends"));
        let (one, two) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        fs::write(known.path(), format!("# mine\n\nfar:1  {one}\n# others\nother:1 {one}")).unwrap();
        known.remember("other:1", two, true).unwrap();
        known.remember("third:1", two, false).unwrap();
        let text = format!("# mine\n\nfar:1  {one}\n# others\nother:1 {two}\nthird:1 {two}\n");
        assert_eq!(fs::read_to_string(known.path()).unwrap(), text);
    }

    #[test]
    fn several_remember_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownEnds::at(directory.path().join("known-ends"));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let known = &known;
                scope.spawn(move || {
                    known.remember(&format!("far:{number}"), Fingerprint([number; 32]), false).unwrap();
                });
            }
        });
        assert_eq!(known.read().unwrap().len(), 8);
    }

    #[test]
    fn a_line_that_says_nothing_sensible_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownEnds::at(directory.path().join("known-ends"));
        fs::write(known.path(), "# mine\n\nfar:1 SHA256:short\n").unwrap();
        assert!(matches!(known.find("far:1"), Err(KnownError::Line(_, 3))));
    }

    #[test]
    fn no_name_beside_the_file_leads_to_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let known = KnownEnds::at(at("known-ends"));
        fs::write(at("victim"), "the victim's").unwrap();
        for end in ["new", "lock"] {
            let planted = known.path().with_extension(end);
            std::os::unix::fs::symlink(at("victim"), &planted).unwrap();
            let _ = std::os::unix::fs::lchown(&planted, Some(65_534), None);
        }
        let key = Fingerprint([1; 32]);
        known.remember("far:1", key, false).unwrap();
        assert_eq!(known.find("far:1").unwrap(), Some(key));
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "the victim's");
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(known.path()).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }
}
