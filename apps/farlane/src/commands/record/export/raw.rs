//! The bytes of a stream, one behind the other.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{Chunk, Exported, Summary, Writer, create};
use crate::lasting::Lasting;

/// A file of bytes.
pub(super) struct Raw {
    file: BufWriter<Lasting>,
    summary: Summary,
}

impl Raw {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let summary = Summary { files: vec![path.to_owned()], ..Summary::default() };
        Ok(Self { file: create(path)?, summary })
    }
}

impl Writer for Raw {
    fn chunk(&mut self, _: usize, stream: &Exported, chunk: &Chunk, _: u64) -> io::Result<()> {
        let bytes = chunk.bytes(&stream.part);
        self.summary.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn finish(mut self: Box<Self>, _: &[Exported]) -> io::Result<Summary> {
        self.file.flush()?;
        Ok(self.summary)
    }
}
