//! Lines of a file that tracers wrote in words.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// The longest line that is read, in bytes. What is behind it is a line of its own.
const LINE_MAX: u64 = 64 << 10;

/// Shows each line of the file at `path` to `show`. Bytes that are no UTF-8 are replaced.
///
/// # Errors
/// The system's.
pub(crate) fn each_line(path: &Path, mut show: impl FnMut(&str)) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while file.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? > 0 {
        show(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(())
}
