//! Digests of the stored bytes, computed here or by the world.

use alloc::collections::VecDeque;

use super::{Digests, Output, Recorder};
use crate::digest::{Algorithm, Hasher};
use crate::format::{HEADER_LENGTH, Header};
use engine::Buffer;

/// The digest of a stream's stored bytes.
#[derive(Debug)]
pub(super) struct StreamDigest {
    here: Hasher,
    /// The last digest from the world.
    computed: Option<[u8; 32]>,
}

impl StreamDigest {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        Self { here: Hasher::new(algorithm), computed: None }
    }

    pub(super) fn value(&self) -> [u8; 32] {
        self.computed.unwrap_or_else(|| self.here.finalize())
    }
}

/// Chunks that the world digests.
#[derive(Debug, Default)]
pub(super) struct Digesting {
    /// The streams and blocks of chunks, the oldest first.
    chunks: VecDeque<(u32, Buffer)>,
    outputs: VecDeque<Output>,
}

impl Digesting {
    pub(super) fn is_over(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

impl Recorder {
    /// Digests a chunk that is stored, and takes back its block; at once, or once the world is done
    /// with it.
    pub(super) fn digest(&mut self, header: &Header, chunk: Buffer) {
        let payload = HEADER_LENGTH..HEADER_LENGTH + header.length as usize;
        match self.config.digests {
            // A ring has digested the chunk by itself.
            _ if self.ring.is_some() || self.config.algorithm == Algorithm::None => self.release(chunk),
            Digests::Here => {
                self.streams[header.stream as usize].digest.here.update(&chunk[payload]);
                self.release(chunk);
            }
            Digests::World => {
                let (stream, data) = (header.stream, chunk.slice(payload));
                self.digesting.outputs.push_back(Output::Digest { stream, data });
                self.digesting.chunks.push_back((stream, chunk));
            }
        }
    }

    pub(super) fn on_digested(&mut self, digest: [u8; 32]) {
        let Some((stream, chunk)) = self.digesting.chunks.pop_front() else { return };
        self.streams[stream as usize].digest.computed = Some(digest);
        self.release(chunk);
    }
}
