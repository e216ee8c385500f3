//! The commands on recordings, and their common parts.

pub(crate) mod account;
pub(crate) mod ctl;
mod each;
pub(crate) mod export;
mod gaps;
mod part;
mod raw;
pub(crate) mod recorder;
pub(crate) mod replay;
mod ring;
mod rules;
pub(crate) mod sessions;
mod sources;
pub(crate) mod survey;
pub(crate) mod trigger;
pub(crate) mod view;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use live::carrier::route::Way;
use live::client::Url;
use live::drivers::record::{Part, ReadError, Recording};
use live::sys::sandbox::Needs;
use record::Algorithm;

use super::medium::far;
use super::{print, print_json};
use crate::args::{FarSpec, need_far};
use crate::error::{Error, NvmeError};

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A digest and the name of its algorithm, for a person.
fn digest_text(algorithm: Algorithm, digest: &[u8; 32]) -> String {
    match algorithm {
        Algorithm::Sha256 => format!("SHA-256 {}", hex(digest)),
        Algorithm::Blake3 => format!("BLAKE3 {}", hex(digest)),
        Algorithm::None => "no digest (--digest none)".to_owned(),
    }
}

/// Whether both paths lead to one file or device.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Refuses to write over the recording that is read.
fn check_output(recording: &[PathBuf], to: &Path) -> Result<(), Error> {
    match recording.iter().any(|part| is_same_file(part, to)) {
        true => Err(Error::OverItself { path: to.to_owned() }),
        false => Ok(()),
    }
}

pub(super) fn unreadable(path: &Path, error: ReadError) -> Error {
    match error {
        ReadError::NoRecording if FarSpec::is_url(&path.to_string_lossy()) => {
            NvmeError::NoRecording { url: path.display().to_string() }.into()
        }
        ReadError::Io(error) => Error::File { path: path.to_owned(), error },
        ReadError::Contradiction(doubt) => Error::Contradiction { path: path.to_owned(), doubt },
        ReadError::NoRecording | ReadError::InUse | ReadError::Members(_) => {
            Error::Recording { path: path.to_owned(), why: error.to_string() }
        }
    }
}

/// The error that a recording has ended and the medium has not taken its certificate.
fn not_certified(path: &Path) -> Error {
    Error::NotProved { path: path.to_owned(), why: record::Doubt::NoCertificate.to_string() }
}

/// Adds the medium that `path` names to the needs of a confined process.
fn need_medium(needs: &mut Needs, path: &Path) {
    let text = path.to_string_lossy();
    if let Some(spec) = FarSpec::is_url(&text).then(|| FarSpec::of_any(&text).ok()).flatten() {
        need_far(needs, spec.secrets());
        needs.sends_frames |= matches!(&spec.url, Url::Far(far) if far.way() == Way::Eth);
        return;
    }
    needs.files.push(path.to_owned());
    // A file may be made anew. The folder of a device has the devices of all users.
    if !path.starts_with("/dev") {
        needs.change_beside(path);
    }
}

/// The media of a recording, wherever they are. If `change`, it can be repaired.
fn parts(paths: &[PathBuf], change: bool) -> Result<Vec<Part>, Error> {
    let open = |path: &PathBuf| {
        let part = match far(path)? {
            Some(far) => Part::far(far),
            None => Part::open(path, change),
        };
        part.map_err(|error| unreadable(path, error))
    };
    paths.iter().map(open).collect()
}

/// Reads a whole recording. If `change`, it can be repaired.
fn read_recording(paths: &[PathBuf], change: bool) -> Result<Recording, Error> {
    Recording::read_parts(parts(paths, change)?).map_err(|error| unreadable(first(paths), error))
}

/// Opens a recording without reading its payloads.
fn open_recording(paths: &[PathBuf]) -> Result<Recording, Error> {
    Recording::open_parts(parts(paths, false)?).map_err(|error| unreadable(first(paths), error))
}

/// The path that stands for a recording in messages: the first of its media.
fn first(paths: &[PathBuf]) -> &Path {
    paths.first().map_or(Path::new(""), PathBuf::as_path)
}
