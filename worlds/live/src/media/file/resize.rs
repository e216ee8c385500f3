//! A file or block device of another length than when it was opened.

use std::io::{Seek, SeekFrom};

use super::FileMedium;
use super::open::{OpenCause, OpenError, check_size, no_space_or};

impl FileMedium {
    /// Serves `size` bytes from now on, or without one as many as there are by now; returns how many. A file is made longer
    /// or shorter where that is needed, a block device is not. What is under way beyond the end fails, or is lost.
    ///
    /// # Errors
    /// When that can't be; it then serves what it did before.
    pub fn resize(&mut self, size: Option<u64>) -> Result<u64, OpenError> {
        let result = self.try_resize(size);
        result.map_err(|cause| OpenError::new(&self.path, cause))
    }

    fn try_resize(&mut self, wanted: Option<u64>) -> Result<u64, OpenCause> {
        let mut file = self.kernel.file();
        let found =
            file.seek(SeekFrom::End(0)).map_err(|error| OpenCause::Io { doing: "find its size", error })?;
        let size = wanted.unwrap_or(found);
        check_size(size, self.block, wanted.is_none())?;
        if size != found && (!self.regular || self.readonly) && size > found {
            return Err(OpenCause::SizeDiffers { found, given: size });
        }
        if size != found && self.regular && !self.readonly {
            file.set_len(size).map_err(|error| no_space_or("set its size", size, error))?;
        }
        self.size = size;
        Ok(size)
    }
}
