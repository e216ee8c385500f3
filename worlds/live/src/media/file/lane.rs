//! A file or block device on several threads.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{FileMedium, Opened, Options};

/// A [`FileMedium`] on its way to another thread, which shares the open file and its lock.
#[derive(Clone, Debug)]
pub struct FileForLane {
    path: PathBuf,
    file: Arc<File>,
    size: u64,
    regular: bool,
    direct: Option<usize>,
    options: Options,
}

impl FileMedium {
    /// The same file for another thread.
    pub fn for_lane(&self) -> FileForLane {
        FileForLane {
            path: self.path.clone(),
            file: Arc::clone(self.kernel.file()),
            size: self.size,
            regular: self.regular,
            direct: self.direct,
            options: self.options,
        }
    }

    /// Takes note of a new size that another thread has given to the file.
    pub(in super::super) const fn set_size(&mut self, size: u64) {
        self.size = size;
    }
}

impl FileForLane {
    /// The file as this thread uses it, with a ring and a descriptor of its own.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn open(self) -> io::Result<FileMedium> {
        let Self { path, file, size, regular, direct, options } = self;
        let opened = Opened { file: file.try_clone()?, size, regular, direct, notes: Vec::new() };
        Ok(FileMedium::new(&path, opened, &options))
    }
}
