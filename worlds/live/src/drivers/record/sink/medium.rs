//! Properties of the medium under a file, from the system.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::drivers::record::handle::Medium;

/// The medium of the file or block device at `path`.
///
/// # Errors
/// When there is none, or its size can't be read.
pub(super) fn of_path(path: &Path) -> io::Result<Medium> {
    let metadata = fs::metadata(path)?;
    let is_device = metadata.file_type().is_block_device();
    let device = if is_device { metadata.rdev() } else { metadata.dev() };
    let bytes = match is_device {
        true => {
            use io::Seek as _;
            fs::File::open(path)?.seek(io::SeekFrom::End(0))?
        }
        false => {
            let room = rustix::fs::statvfs(path)?;
            room.f_bavail.saturating_mul(room.f_frsize)
        }
    };
    Ok(Medium { bytes, model: model(device).unwrap_or_default() })
}

/// The model of the device with this number, or of the disk of which it is a partition.
fn model(device: u64) -> Option<String> {
    let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let folder: PathBuf = ["/sys/dev/block", &numbers].iter().collect();
    let places = ["device/model", "../device/model"];
    let model = places.iter().find_map(|place| fs::read_to_string(folder.join(place)).ok())?;
    Some(model.trim().to_owned())
}
