//! Changing the length of a file or block device after it was opened.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use tracing::warn;

use super::FileMedium;
use super::open::{OpenCause, OpenError, check_size, no_space_or, thin};

impl FileMedium {
    /// Serves `size` bytes from now on, or without `size` as many bytes as the file or device has
    /// by now. Returns the size in bytes. A file is made longer or shorter where needed; a block
    /// device is not. Calls under way beyond the new end fail or are lost.
    ///
    /// # Errors
    /// When the size is impossible; the medium then serves the same bytes as before.
    pub fn resize(&mut self, size: Option<u64>) -> Result<u64, OpenError> {
        let result = self.try_resize(size);
        result.map_err(|cause| OpenError::new(&self.path, cause))
    }

    fn try_resize(&mut self, wanted: Option<u64>) -> Result<u64, OpenCause> {
        let mut file: &File = self.kernel.file();
        let found =
            file.seek(SeekFrom::End(0)).map_err(|error| OpenCause::Io { doing: "find its size", error })?;
        let size = wanted.unwrap_or(found);
        check_size(size, self.options.block, wanted.is_none())?;
        if size != found && (!self.regular || self.options.readonly) && size > found {
            return Err(OpenCause::SizeDiffers { found, given: size });
        }
        if size != found && self.regular && !self.options.readonly {
            file.set_len(size).map_err(|error| no_space_or("set its size", size, error))?;
            if let Some(note) = thin(file, size) {
                warn!("{}: {note}", self.path.display());
            }
        }
        self.size = size;
        Ok(size)
    }
}
