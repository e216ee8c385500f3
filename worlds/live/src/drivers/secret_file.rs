//! Secrets of DH-HMAC-CHAP and keys of TLS in files that only their owner may read.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nvme_fabrics::interchange::{KEY_TEXT_MAX, KeyFault, KeyTextError};
use zeroize::Zeroizing;

use crate::sys::durable::sync_folder_of;
use crate::sys::secrets::keep_from_dumps;

/// The permissions of a file that its owner alone may use.
const NOT_OTHERS: u32 = 0o077;
/// Most bytes that are read of a file: a secret, and the white space around it.
const FILE_BYTES_MAX: usize = 4 * KEY_TEXT_MAX;

/// Why a file gives no secret.
#[derive(Debug)]
pub struct SecretFileError {
    /// The file.
    pub path: PathBuf,
    /// Its fault.
    pub why: Why,
}

/// The fault of a file that should hold a secret.
#[derive(Debug)]
pub enum Why {
    /// The file can't be read.
    Io(io::Error),
    /// Others than the file's owner may use it. Holds its permissions.
    Permissions(u32),
    /// The file's text is no secret.
    Secret(KeyTextError),
}

impl SecretFileError {
    /// Whether the file holds a text of another form than was expected.
    pub fn is_of_another_form(&self) -> bool {
        matches!(&self.why, Why::Secret(KeyTextError { fault: KeyFault::Prefix, .. }))
    }
}

impl fmt::Display for SecretFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Io(error) => write!(f, "{path}: {error}"),
            Why::Permissions(mode) => {
                write!(f, "{path}: others may use this secret (mode {mode:04o}); chmod 600 {path}")
            }
            Why::Secret(error) => write!(f, "{path}: {error}"),
        }
    }
}

impl std::error::Error for SecretFileError {}

/// Reads a secret in the form that `nvme gen-dhchap-key` prints, or a key in the form that `nvme
/// gen-tls-key` prints. The file may be a pipe or a descriptor (`/dev/fd/3`). From then on, the
/// process leaves no core dump.
///
/// # Errors
/// When the file can't be read, when its group or others may use it, or when it holds no secret.
pub fn read<T: FromStr<Err = KeyTextError>>(path: &Path) -> Result<T, SecretFileError> {
    parse(path).map_err(|why| SecretFileError { path: path.to_owned(), why })
}

/// Writes the text of a new secret or key to a file that only its owner may use, without a newline
/// at the end: SPDK takes that for a part of the text.
///
/// # Errors
/// When there is such a file already, or the file can't be written.
pub fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(text.as_bytes());
    let synced = written.and_then(|()| file.sync_all()).and_then(|()| sync_folder_of(path));
    // A part of a secret is useless, and would prevent the writing of a whole one here.
    synced.inspect_err(|_| drop(std::fs::remove_file(path)))
}

fn parse<T: FromStr<Err = KeyTextError>>(path: &Path) -> Result<T, Why> {
    keep_from_dumps();
    let mut file = File::open(path).map_err(Why::Io)?;
    // Of the open file: its name may soon belong to another.
    let mode = file.metadata().map_err(Why::Io)?.mode() & 0o7777;
    if mode & NOT_OTHERS != 0 {
        return Err(Why::Permissions(mode));
    }
    let mut bytes = Zeroizing::new([0; FILE_BYTES_MAX]);
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Why::Io(error)),
        }
    }
    // Bytes that are no text are no key either, like no text at all.
    let text = std::str::from_utf8(&bytes[..length]).unwrap_or_default();
    text.parse().map_err(Why::Secret)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use nvme_fabrics::authentication::Secret;

    use super::*;

    #[test]
    fn a_secret_is_read_from_a_file_of_ones_own() {
        let path = std::env::temp_dir().join(format!("farlane-secret-{}", std::process::id()));
        let reported = |mode, text: &[u8]| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read::<Secret>(&path).map_err(|error| error.to_string())
        };
        let text = b"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n";
        assert!(reported(0o600, text).is_ok() && reported(0o400, text).is_ok());
        assert!(crate::sys::secrets::are_kept());
        fs::remove_file(&path).unwrap();
        create(&path, std::str::from_utf8(text).unwrap().trim()).unwrap();
        assert_eq!(create(&path, "another").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(read::<Secret>(&path).is_ok(), "the former contents stay");
        assert!(fs::read(&path).unwrap().ends_with(b":"), "SPDK reads a newline as a part of the key");
        for mode in [0o640, 0o604, 0o620, 0o666] {
            let error = reported(mode, text).unwrap_err();
            assert!(error.contains(&format!("mode {mode:04o}")) && error.contains("chmod 600"), "{error}");
        }
        for text in [&b""[..], b"secret", &[b'A'; 100_000], &[0xff; 59]] {
            assert!(reported(0o600, text).unwrap_err().starts_with(path.to_str().unwrap()));
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(read::<Secret>(&path).unwrap_err().why, Why::Io(_)));
    }
}
