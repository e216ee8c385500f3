//! The cpio archive that the kernel unpacks as its first root, in the "newc" format
//! (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Write};

/// The file type bits of a mode, as in stat(2).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMBOLIC_LINK: u32 = 0o120_000;

/// The name that ends an archive. The kernel accepts further archives behind it.
const TRAILER: &str = "TRAILER!!!";

/// Headers with names, and contents, begin at multiples of this many bytes.
const ALIGNMENT: usize = 4;

/// Writes one archive. A directory must be added before its contents.
pub(crate) struct Archive<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    pub(crate) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, 2, b"")
    }

    pub(crate) fn symbolic_link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.entry(name, SYMBOLIC_LINK | 0o777, 1, target.as_bytes())
    }

    /// Adds a regular file with its permission bits.
    pub(crate) fn file(&mut self, name: &str, permissions: u32, bytes: &[u8]) -> io::Result<()> {
        self.entry(name, REGULAR | permissions, 1, bytes)
    }

    /// Ends the archive. Its length is a multiple of [`ALIGNMENT`], so that another archive may
    /// follow.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, 1, b"")?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, links: u32, bytes: &[u8]) -> io::Result<()> {
        let size = u32::try_from(bytes.len())
            .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, format!("{name}: 4 GiB or more")))?;
        let name_size = u32::try_from(name.len() + 1)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a name of 4 GiB"))?;
        self.inode += 1;
        // Magic, then thirteen fields of eight hexadecimal digits: inode, mode, uid, gid, links,
        // mtime, size, four device numbers, the size of the name with its zero, and the checksum
        // (unused).
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08X}"));
        }
        header.push_str(name);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(bytes)
    }

    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        let pad = bytes.len().next_multiple_of(ALIGNMENT) - bytes.len();
        self.out.write_all(&[0; ALIGNMENT][..pad])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_entry_is_as_the_kernels_documentation_says() {
        let mut archive = Archive::new(Vec::new());
        archive.file("ab", 0o644, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        let header = "070701\
            00000001000081A400000000000000000000000100000000\
            000000050000000000000000000000000000000000000003\
            00000000ab\0";
        assert_eq!(&bytes[..header.len()], header.as_bytes());
        // 113 bytes of header and name, padded to 116.
        assert_eq!(&bytes[113..124], b"\0\0\0hello\0\0\0");
        assert_eq!(bytes.len() % ALIGNMENT, 0);
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
    }

    /// Another program reads the archive: bsdtar, GNU cpio or busybox, depending on the machine.
    #[test]
    fn another_program_reads_it_back() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("usr").unwrap();
        archive.file("usr/one", 0o755, b"1").unwrap();
        archive.symbolic_link("two", "usr/one").unwrap();
        let bytes = archive.finish().unwrap();
        for reader in [&["cpio", "-t"][..], &["bsdtar", "-tf", "-"], &["busybox", "cpio", "-t"]] {
            let Ok(mut child) = Command::new(reader[0])
                .args(&reader[1..])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
            else {
                continue;
            };
            child.stdin.take().unwrap().write_all(&bytes).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "usr\nusr/one\ntwo\n", "{reader:?}");
            return;
        }
        eprintln!("SKIPPED: neither cpio nor bsdtar nor busybox is here to read a cpio archive");
    }
}
