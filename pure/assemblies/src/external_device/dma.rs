//! The server's reads of host memory, assembled from the completions that come over the link.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Buffer, BufferMut, Pool};
use pcie::device::{Dma, DmaId, DmaResult};
use vfio_user::Token;

/// Maximum number of bytes of reads under way. A read of more bytes is under way alone.
const BYTES_MAX: u64 = 8 << 20;

#[derive(Debug)]
struct Read {
    token: Token,
    bytes: BufferMut,
}

/// The server's reads that wait and that are under way. The client's limit on its server's requests
/// bounds their number.
#[derive(Debug, Default)]
pub(super) struct Reads {
    slots: Vec<Option<Read>>,
    waiting: VecDeque<(Token, u64, u32)>,
    bytes: u64,
    pool: Pool,
}

impl Reads {
    pub(super) fn push(&mut self, token: Token, address: u64, length: u32) {
        self.waiting.push_back((token, address, length));
    }

    /// The next read that may go to the endpoint.
    pub(super) fn start_next(&mut self) -> Option<Dma> {
        let (token, address, length) = *self.waiting.front()?;
        if self.bytes > 0 && self.bytes + u64::from(length) > BYTES_MAX {
            return None;
        }
        self.waiting.pop_front();
        self.bytes += u64::from(length);
        let bytes = self.pool.take(usize::try_from(length).expect("at most a message's data"));
        let read = Some(Read { token, bytes });
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(free) => {
                self.slots[free] = read;
                free
            }
            None => {
                self.slots.push(read);
                self.slots.len() - 1
            }
        };
        let id = DmaId(u32::try_from(slot).expect("as many as a client takes"));
        Some(Dma::Read { id, address, length })
    }

    /// A part of a read has come, or a read has failed. If the read has ended, returns its token,
    /// and its bytes unless it failed.
    pub(super) fn on_result(&mut self, result: DmaResult) -> Option<(Token, Option<Buffer>)> {
        match result {
            DmaResult::Data { id, offset, data, last } => {
                let read = self.slots.get_mut(id.0 as usize)?.as_mut()?;
                let start = offset as usize;
                read.bytes[start..start + data.len()].copy_from_slice(&data);
                if !last {
                    return None;
                }
                let read = self.take(id)?;
                let bytes = self.pool.seal(read.bytes);
                Some((read.token, Some(bytes)))
            }
            DmaResult::Failed { id } => self.take(id).map(|read| (read.token, None)),
        }
    }

    fn take(&mut self, id: DmaId) -> Option<Read> {
        let read = self.slots.get_mut(id.0 as usize)?.take()?;
        self.bytes -= read.bytes.len() as u64;
        Some(read)
    }

    /// Takes any read; used to give up all reads.
    pub(super) fn pop(&mut self) -> Option<Token> {
        let under_way = self.slots.iter().position(Option::is_some);
        let read = under_way.and_then(|slot| self.take(DmaId(u32::try_from(slot).ok()?)));
        read.map(|read| read.token).or_else(|| self.waiting.pop_front().map(|(token, ..)| token))
    }
}
