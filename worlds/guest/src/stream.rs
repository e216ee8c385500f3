//! Bytes that come out of a guest while it runs: kept, echoed if asked, searched for their last lines.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Bytes kept of a stream; a guest that prints without end loses the rest.
const KEPT_MAX: usize = 64 << 20;
/// Bytes taken at once.
const CHUNK: usize = 16 << 10;

/// What a stream has brought so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    /// All of it, as text.
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

/// Reads `source` to its end on a thread of its own; what comes is kept, and goes to each of `copies` as well.
pub(crate) fn keep(
    mut source: impl Read + Send + 'static,
    mut copies: Vec<Box<dyn Write + Send>>,
) -> (Kept, JoinHandle<()>) {
    let kept = Kept::default();
    let into = kept.clone();
    let thread = thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        // A stream that fails has ended: whoever fed it is gone.
        while let Ok(length @ 1..) = source.read(&mut chunk) {
            into.push(&chunk[..length]);
            for copy in &mut copies {
                // A copy that cannot be written is incomplete; what is kept is not.
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
