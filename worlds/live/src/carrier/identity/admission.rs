//! The hosts that a far end admits: a list that is given at the start, and a file that is read
//! again when it changes.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::str::FromStr;

use assemblies::far::Admitted;
use nvme::subsystem::Permit;
use tunnel::Fingerprint;

use super::permit;

/// The most bytes of a file with admitted keys.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most bytes of a host's name in the list.
const NAME_BYTES_MAX: usize = 64;

/// A key that is admitted: `FINGERPRINT[,name=TEXT][,nsid=N[+N…]][,readonly][,iops=N]
/// [,bandwidth=SIZE]`. Sizes are bytes a second: `100MiB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fingerprint of the key.
    pub key: Fingerprint,
    /// The name of the host that has the key.
    pub name: Option<String>,
    /// The rights of the host.
    pub permit: Permit,
}

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let key = parts.next().unwrap_or_default();
        let key = key.parse().map_err(|error| format!("'{key}': {error}"))?;
        let (mut name, mut permit) = (None, Permit::default());
        for part in parts {
            if permit::take(&mut permit, part)? {
                continue;
            }
            match part.split_once('=') {
                Some(("name", _)) if name.is_some() => return Err("name= is given twice".to_owned()),
                Some(("name", value)) if is_name(value) => name = Some(value.to_owned()),
                Some(("name", _)) => {
                    return Err(format!("a name has 1 to {NAME_BYTES_MAX} bytes without control characters"));
                }
                _ => {
                    return Err(format!(
                        "'{part}' is not one of: name=TEXT, {}; \
                         expected FINGERPRINT[,name=TEXT][,nsid=N][,readonly][,iops=N][,bandwidth=SIZE]",
                        permit::PARTS
                    ));
                }
            }
        }
        Ok(Self { key, name, permit })
    }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Why the file with admitted keys can't be used.
#[derive(Debug)]
pub enum AdmissionError {
    /// The file can't be read.
    File(PathBuf, io::Error),
    /// The line with this number, counted from 1, is no [`Grant`].
    Line(PathBuf, usize, String),
    /// A host is granted a part of a device that can only be offered whole.
    Part(Fingerprint),
}

impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Line(path, line, why) => write!(f, "{}, line {line}: {why}", path.display()),
            Self::Part(key) => write!(
                f,
                "{key} is to have a part of the device, which can only be offered whole: leave out nsid, readonly, iops \
                 and bandwidth"
            ),
        }
    }
}

impl std::error::Error for AdmissionError {}

/// The hosts that a far end admits. Without any key, it admits all hosts.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    given: Vec<Grant>,
    /// The device can only be offered whole.
    is_whole: bool,
    file: Option<Listed>,
}

/// A file of grants, one on each line. Lines that begin with `#` say nothing.
#[derive(Clone, Debug)]
struct Listed {
    path: PathBuf,
    grants: Vec<Grant>,
    /// The state that the file had before it was read; `None` if there was no file.
    state: Option<State>,
}

/// The values that distinguish one state of a file from the next. The time of the last modification
/// alone does not: another file in its place may have the same, and a change of the permissions
/// leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Device and inode.
    file: (u64, u64),
    bytes: u64,
    /// Seconds and nanoseconds. The second pair is the kernel's own, which no program sets.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Admission {
    /// Admits the hosts of `given`, and those of the file at `path` if there is one.
    ///
    /// # Errors
    /// When the file can't be read or understood.
    pub fn new(given: Vec<Grant>, path: Option<PathBuf>) -> Result<Self, AdmissionError> {
        let mut admission = Self { given, is_whole: false, file: None };
        if let Some(path) = path {
            admission.file = Some(Listed { path, grants: Vec::new(), state: None });
            admission.look()?;
        }
        Ok(admission)
    }

    /// Lets no host have a part of the device, now or when the file changes: the device has no
    /// parts.
    ///
    /// # Errors
    /// When a host is granted a part.
    pub fn only_whole(mut self) -> Result<Self, AdmissionError> {
        self.is_whole = true;
        self.grants().try_for_each(check_whole)?;
        Ok(self)
    }

    /// Whether the list is read from a file, which may change.
    pub const fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether hosts must prove a key.
    pub const fn has_list(&self) -> bool {
        !self.given.is_empty() || self.file.is_some()
    }

    /// The list as the engine takes it: the hosts to admit, or nothing if all are admitted.
    pub fn admitted(&self) -> Option<Vec<Admitted>> {
        let admitted = |grant: &Grant| Admitted { key: grant.key, permit: grant.permit.clone() };
        self.has_list().then(|| self.grants().map(admitted).collect())
    }

    /// The name of the host with this key.
    pub fn name_of(&self, key: Fingerprint) -> Option<&str> {
        self.grants().find(|grant| grant.key == key)?.name.as_deref()
    }

    fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.given.iter().chain(self.file.iter().flat_map(|file| &file.grants))
    }

    /// Reads the file again if it has changed. Returns whether the list is another one. After an
    /// error, the former list stays in force.
    ///
    /// # Errors
    /// When the file has changed and can't be read or understood; reported once for each change.
    pub fn look(&mut self) -> Result<bool, AdmissionError> {
        let Some(file) = &mut self.file else { return Ok(false) };
        let metadata = fs::metadata(&file.path);
        let state = metadata.as_ref().ok().map(State::of);
        if state == file.state && state.is_some() {
            return Ok(false);
        }
        let is_first_failure = file.state.is_some() || file.grants.is_empty();
        file.state = state;
        let read = metadata.and_then(|_| texts::read(&file.path, FILE_BYTES_MAX));
        let text = match read {
            Ok(text) => text,
            Err(_) if !is_first_failure => return Ok(false),
            Err(error) => return Err(AdmissionError::File(file.path.clone(), error)),
        };
        let mut grants = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                let explain = |why| AdmissionError::Line(file.path.clone(), index + 1, why);
                grants.push(line.parse().map_err(explain)?);
            }
        }
        if self.is_whole {
            grants.iter().try_for_each(check_whole)?;
        }
        Ok(core::mem::replace(&mut file.grants, grants) != file.grants)
    }
}

fn check_whole(grant: &Grant) -> Result<(), AdmissionError> {
    if grant.permit == Permit::default() { Ok(()) } else { Err(AdmissionError::Part(grant.key)) }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use nvme::wire::NamespaceId;

    use super::*;
    use nvme::rate::Rate;

    const ONE: &str = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";

    fn two() -> Fingerprint {
        Fingerprint([2; 32])
    }

    fn keys(admission: &Admission) -> Vec<Fingerprint> {
        admission.admitted().unwrap().into_iter().map(|host| host.key).collect()
    }

    #[test]
    fn a_grant_names_a_key_and_perhaps_its_host() {
        let grant: Grant = ONE.parse().unwrap();
        assert_eq!((grant.key.to_string().as_str(), grant.name), (ONE, None));
        assert!(grant.permit.is_whole());
        let grant: Grant = format!("{ONE},nsid=1+3,readonly").parse().unwrap();
        let namespaces = Some(vec![NamespaceId(1), NamespaceId(3)]);
        assert_eq!(grant.permit, Permit { namespaces, read_only: true, rate: Rate::default() });
        let grant: Grant = format!("{ONE},iops=5000,bandwidth=100MiB").parse().unwrap();
        assert_eq!(grant.permit.rate, Rate { operations: Some(5000), bytes: Some(100 << 20) });
        let grant: Grant = format!("{ONE},name=lab 3").parse().unwrap();
        assert_eq!(grant.name.as_deref(), Some("lab 3"));
        for (text, expected) in [
            ("", "43 characters"),
            ("alice", "43 characters"),
            (&format!("{ONE},name="), "1 to 64"),
            (&format!("{ONE},root"), "'root'"),
            (&format!("{ONE},nsid=0"), "nsid=0"),
            (&format!("{ONE},iops=0"), "above 0"),
            (&format!("{ONE},nsid=1+x"), "nsid=x"),
            (&format!("{ONE},nsid=1,nsid=2"), "twice"),
            (&format!("{ONE},iops=5,iops=6"), "iops= is given twice"),
            (&format!("{ONE},bandwidth=1k,iops=5,bandwidth=2k"), "bandwidth= is given twice"),
            (&format!("{ONE},name=a,name=b"), "twice"),
        ] {
            let error = text.parse::<Grant>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_changes_and_a_bad_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        let age = |seconds| {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        };
        fs::write(&path, format!("# hosts\n\n{ONE},name=lab\n")).unwrap();
        age(1);
        let mut admission = Admission::new(Vec::new(), Some(path.clone())).unwrap();
        let first = admission.admitted();
        assert_eq!(keys(&admission), [ONE.parse().unwrap()]);
        assert_eq!(admission.name_of(ONE.parse().unwrap()), Some("lab"));
        assert!(!admission.look().unwrap());

        fs::write(&path, "nonsense\n").unwrap();
        age(2);
        assert!(matches!(admission.look(), Err(AdmissionError::Line(_, 1, _))));
        assert_eq!(admission.admitted(), first);
        assert!(!admission.look().unwrap(), "the same mistake is reported once");

        fs::write(&path, format!("{}\n", two())).unwrap();
        age(3);
        assert!(admission.look().unwrap());
        assert_eq!(keys(&admission), [two()]);
        // A file that has gone admits those that it named last.
        fs::remove_file(&path).unwrap();
        assert!(admission.look().is_err());
        assert!(!admission.look().unwrap());
        assert_eq!(keys(&admission), [two()]);
    }

    #[test]
    fn a_file_that_takes_its_place_is_read_whatever_its_age() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: String| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            path
        };
        let path = put("hosts", format!("{ONE}\n"));
        let mut admission = Admission::new(Vec::new(), Some(path.clone())).unwrap();
        fs::rename(put("next", format!("{}\n", two())), &path).unwrap();
        assert!(admission.look().unwrap());
        assert_eq!(keys(&admission), [two()]);
        assert!(!admission.look().unwrap());
    }

    #[test]
    fn a_device_that_is_only_offered_whole_is_not_offered_in_part() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        fs::write(&path, ONE).unwrap();
        let mut admission = Admission::new(Vec::new(), Some(path.clone())).unwrap().only_whole().unwrap();
        fs::write(&path, format!("{},readonly\n", two())).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(matches!(admission.look(), Err(AdmissionError::Part(key)) if key == two()));
        assert_eq!(keys(&admission), [ONE.parse().unwrap()], "the former list stays in force");
        let part = vec![format!("{ONE},iops=5").parse().unwrap()];
        assert!(Admission::new(part, None).unwrap().only_whole().is_err());
    }

    #[test]
    fn an_empty_file_admits_no_host_and_no_list_admits_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        fs::write(&path, "").unwrap();
        let admission = Admission::new(Vec::new(), Some(path)).unwrap();
        assert_eq!(admission.admitted(), Some(Vec::new()));
        assert_eq!(Admission::default().admitted(), None);
        assert!(Admission::new(Vec::new(), Some("/nowhere/hosts".into())).is_err());
    }
}
