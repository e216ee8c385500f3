//! Files whose bytes are durable once they are flushed.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// A file, or a pipe or device, that is written straight. Its flush makes the written bytes
/// durable: some disks and servers report only then that they did not take them.
#[derive(Debug)]
pub(crate) struct Lasting(pub(crate) File);

impl Write for Lasting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        sync(&self.0)
    }
}

impl Seek for Lasting {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// Makes the bytes written to `file` durable.
///
/// # Errors
/// Those of the system.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, ReadOnlyFilesystem, Unsupported};
    match file.sync_all() {
        // Pipes, terminals and some file systems have nothing to make durable.
        Err(error) if matches!(error.kind(), InvalidInput | ReadOnlyFilesystem | Unsupported) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_fails_neither_on_a_file_nor_on_what_can_not_be_made_durable() {
        let mut file = Lasting(tempfile::tempfile().unwrap());
        file.write_all(b"kept").unwrap();
        file.flush().unwrap();
        let (_reader, writer) = io::pipe().unwrap();
        let mut pipe = Lasting(File::from(std::os::fd::OwnedFd::from(writer)));
        pipe.write_all(b"gone").unwrap();
        pipe.flush().unwrap();
        let mut device = Lasting(File::options().write(true).open("/dev/null").unwrap());
        device.flush().unwrap();
    }
}
