//! The output of a running guest: kept, echoed on request, and searched for its last lines.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Number of bytes kept of a stream. A guest that prints without end loses the rest.
const KEPT_MAX: usize = 64 << 20;
/// Number of bytes taken in one read.
const CHUNK: usize = 16 << 10;

/// The bytes that a stream has brought so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    /// All bytes, as text.
    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
    }

    /// The last `lines` lines.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let text = self.text();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Reads `source` to its end on a thread of its own. The bytes are kept, and copied to each of
/// `copies`.
pub(crate) fn keep(
    mut source: impl Read + Send + 'static,
    mut copies: Vec<Box<dyn Write + Send>>,
) -> (Kept, JoinHandle<()>) {
    let kept = Kept::default();
    let into = kept.clone();
    let thread = thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        // A stream that fails has ended, because its writer has ended.
        while let Ok(length @ 1..) = source.read(&mut chunk) {
            into.push(&chunk[..length]);
            for copy in &mut copies {
                // A copy that cannot be written is incomplete, but the kept bytes are not.
                let _ = copy.write_all(&chunk[..length]);
            }
        }
    });
    (kept, thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines() {
        let (kept, thread) = keep(&b"one\r\ntwo\r\nthree"[..], Vec::new());
        thread.join().unwrap();
        assert_eq!(kept.tail(2), "two\nthree");
        assert_eq!(kept.tail(9), "one\ntwo\nthree");
        assert_eq!(kept.text(), "one\ntwo\nthree");
    }
}
