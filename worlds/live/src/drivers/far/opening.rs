//! The kind of an accepted connection: a session of its own, or one of several paths of a stream.

use assemblies::far::Input;
use engine::{Buffer, Engine, Instant};
use tunnel::downstream;
use tunnel::paths::{Opening, PREAMBLE_LENGTH, Preamble, opening};

use super::{Backing, Event, FarDriver, Peer};
use crate::carrier::JoinedPaths;
use crate::carrier::Stream;

impl<F: FnMut(Event), B: Backing> FarDriver<F, B> {
    /// Looks at the first `bytes` of the peer at `index`, and returns the engine's part of them.
    /// Until the connection's kind is known, the engine counts and times it as a connection whose
    /// Hello is awaited.
    pub(super) fn open(&mut self, now: Instant, index: usize, bytes: Buffer) -> Option<Buffer> {
        let peer = &mut self.shell.peers[index];
        let collected = peer.opening.get_or_insert_default();
        let had = collected.len();
        collected.extend_from_slice(&bytes[..bytes.len().min(PREAMBLE_LENGTH - had)]);
        let opening = opening(collected);
        if opening == Opening::Session {
            self.far.engine_mut().set_segment_max(peer.id, peer.stream.segment_max());
        }
        match opening {
            Opening::More => None,
            Opening::Session if had == 0 => {
                peer.opening = None;
                Some(bytes)
            }
            Opening::Session => {
                let whole = [&collected[..had], &bytes].concat();
                peer.opening = None;
                Some(Buffer::from(whole))
            }
            Opening::Path(preamble) => {
                peer.opening = None;
                self.join(now, index, &preamble, bytes.slice(PREAMBLE_LENGTH - had..bytes.len()));
                None
            }
        }
    }

    /// Turns the peer at `index` into a path. The first path of a stream becomes the stream; later
    /// paths join the stream.
    fn join(&mut self, now: Instant, index: usize, preamble: &Preamble, rest: Buffer) {
        let is_known = self.joined(preamble).is_some();
        if !is_known && preamble.token.is_none() {
            let peer = &mut self.shell.peers[index];
            let joined = Box::new(JoinedPaths::accepting(preamble, peer.stream.peer(), now));
            if let Stream::Tcp(first) = core::mem::replace(&mut peer.stream, Stream::Paths(joined))
                && let Stream::Paths(joined) = &mut peer.stream
            {
                joined.accept(preamble.path, first, rest);
            }
            return;
        }
        // Dropping `stream` closes a path whose stream no longer exists or has another owner.
        let Peer { id, stream, .. } = self.shell.peers.swap_remove(index);
        if let (Stream::Tcp(path), Some(joined)) = (stream, self.joined(preamble))
            && path.key() == joined.key()
        {
            joined.accept(preamble.path, path, rest);
        }
        // The engine need not know of the path.
        self.far.engine_mut().handle_input(now, Input::Network(downstream::Input::Disconnected(id)));
        self.far.exchange(now, &mut self.shell);
    }

    /// The stream that the path with `preamble` belongs to.
    fn joined(&mut self, preamble: &Preamble) -> Option<&mut JoinedPaths> {
        self.shell.peers.iter_mut().find_map(|peer| match &mut peer.stream {
            Stream::Paths(joined) if peer.closing.is_none() && joined.is_ours(preamble) => {
                Some(&mut **joined)
            }
            _ => None,
        })
    }
}
