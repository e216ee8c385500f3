//! The journal's socket as a stream of entries.

use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Where the journal listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// A socket on which each write is one entry.
pub(super) struct Journal(UnixDatagram);

impl Journal {
    /// Connects to the journal at `path`. Later, a sandbox may forbid it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self(socket))
    }
}

impl Write for Journal {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        match self.0.send(entry) {
            // A journal that restarts is back soon. An entry for it is no reason to end.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(entry.len()),
            sent => sent.map(|_| entry.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_is_an_entry_and_a_journal_that_is_gone_stops_no_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let listener = UnixDatagram::bind(&path).unwrap();
        let mut journal = Journal::open(&path).unwrap();
        journal.write_all(b"MESSAGE=a\n").unwrap();
        journal.write_all(b"MESSAGE=b\n").unwrap();
        let mut bytes = [0; 64];
        let mut next = || listener.recv(&mut bytes).map(|length| bytes[..length].to_vec());
        assert_eq!((next().unwrap(), next().unwrap()), (b"MESSAGE=a\n".to_vec(), b"MESSAGE=b\n".to_vec()));
        drop(listener);
        journal.write_all(b"MESSAGE=c\n").unwrap();
        assert!(Journal::open(Path::new("/nowhere/journal")).is_err());
    }
}
