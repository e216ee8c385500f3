//! Secrets of DH-HMAC-CHAP in files that nobody else may read.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nvme_fabrics::authentication::{SECRET_TEXT_MAX, Secret, SecretError};
use zeroize::Zeroizing;

/// The permissions of a file that its owner alone may use.
const NOT_OTHERS: u32 = 0o077;
/// Most bytes that are read of a file: a secret, and the white space around it.
const FILE_BYTES_MAX: usize = 4 * SECRET_TEXT_MAX;

/// Why a file gives no secret.
#[derive(Debug)]
pub struct SecretFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: Why,
}

/// What is wrong with a file that should hold a secret.
#[derive(Debug)]
pub enum Why {
    /// The file can't be read.
    Io(io::Error),
    /// Others than the file's owner may use it. Holds its permissions.
    Permissions(u32),
    /// The file's text is no secret.
    Secret(SecretError),
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

/// Reads a secret in the form that `nvme gen-dhchap-key` prints. The file may be a pipe or a
/// descriptor (`/dev/fd/3`).
///
/// # Errors
/// When the file can't be read, when its group or others may use it, or when it holds no secret.
pub fn read(path: &Path) -> Result<Secret, SecretFileError> {
    parse(path).map_err(|why| SecretFileError { path: path.to_owned(), why })
}

fn parse(path: &Path) -> Result<Secret, Why> {
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
    let text = std::str::from_utf8(&bytes[..length]).map_err(|_| Why::Secret(SecretError::Shape))?;
    text.parse().map_err(Why::Secret)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_read_from_a_file_of_ones_own() {
        let path = std::env::temp_dir().join(format!("farlane-secret-{}", std::process::id()));
        let told = |mode, text: &[u8]| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path).map_err(|error| error.to_string())
        };
        let text = b"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n";
        assert!(told(0o600, text).is_ok() && told(0o400, text).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o666] {
            let error = told(mode, text).unwrap_err();
            assert!(error.contains(&format!("mode {mode:04o}")) && error.contains("chmod 600"), "{error}");
        }
        for text in [&b""[..], b"secret", &[b'A'; 100_000], &[0xff; 59]] {
            assert!(told(0o600, text).unwrap_err().starts_with(path.to_str().unwrap()));
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&path).unwrap_err().why, Why::Io(_)));
    }
}
