//! Splits a stream into messages, with the descriptors received with each.

use alloc::vec::Vec;

use crate::limits::DESCRIPTORS_MAX;
use crate::wire::{HEADER_LENGTH, Header, HeaderError};

/// The descriptors received with a message.
#[derive(Debug)]
pub(crate) struct Descriptors<D> {
    /// The descriptors in order; none if there were too many.
    pub(crate) list: Vec<D>,
    /// Whether more than [`DESCRIPTORS_MAX`] arrived and were dropped.
    pub(crate) too_many: bool,
}

impl<D> Default for Descriptors<D> {
    fn default() -> Self {
        Self { list: Vec::new(), too_many: false }
    }
}

impl<D> Descriptors<D> {
    fn add(&mut self, more: Vec<D>) {
        if self.list.is_empty() && !self.too_many {
            self.list = more;
        } else {
            self.list.extend(more);
        }
        if self.list.len() > DESCRIPTORS_MAX || self.too_many {
            self.list.clear();
            self.too_many = true;
        }
    }
}

/// A whole message and its descriptors.
pub(crate) struct Message<'a, D> {
    pub(crate) header: Header,
    pub(crate) payload: &'a [u8],
    pub(crate) attached: Descriptors<D>,
}

/// The received bytes that are not a whole message yet.
pub(crate) struct Stream<D> {
    /// The beginning of a message, or all of it while its payload is lent out.
    partial: Vec<u8>,
    /// Whether `partial` holds a whole message that was handed out before.
    spent: bool,
    attached: Descriptors<D>,
}

impl<D> Default for Stream<D> {
    fn default() -> Self {
        Self { partial: Vec::new(), spent: false, attached: Descriptors::default() }
    }
}

/// A piece of the stream that is being cut into messages.
pub(crate) struct Piece<'a, D> {
    bytes: &'a [u8],
    descriptors: Vec<D>,
}

impl<'a, D> Piece<'a, D> {
    pub(crate) const fn new(bytes: &'a [u8], descriptors: Vec<D>) -> Self {
        Self { bytes, descriptors }
    }
}

impl<D> Stream<D> {
    /// The next complete message of the earlier bytes and `piece`. `None` if there is none, and
    /// then `piece` is used up.
    pub(crate) fn next<'s, 'p: 's>(
        &'s mut self,
        piece: &mut Piece<'p, D>,
    ) -> Result<Option<Message<'s, D>>, HeaderError> {
        if core::mem::take(&mut self.spent) {
            self.partial.clear();
        }
        let begun = !self.partial.is_empty();
        if begun {
            // Continues a message that began in an earlier piece, header first.
            self.fill(piece, HEADER_LENGTH);
        }
        let start: &[u8] = if begun { &self.partial } else { piece.bytes };
        let Some(header) = start.first_chunk() else {
            self.keep(piece);
            return Ok(None);
        };
        let header = Header::parse(header)?;
        let size = header.size as usize;
        if begun {
            self.fill(piece, size);
        } else if piece.bytes.len() < size {
            self.keep(piece);
            return Ok(None);
        }
        if begun && self.partial.len() < size {
            self.keep(piece);
            return Ok(None);
        }
        let message: &'s [u8] = if begun {
            self.spent = true;
            &self.partial
        } else {
            let (message, rest) = piece.bytes.split_at(size);
            piece.bytes = rest;
            message
        };
        if piece.bytes.is_empty() {
            self.attached.add(core::mem::take(&mut piece.descriptors));
        }
        let attached = core::mem::take(&mut self.attached);
        Ok(Some(Message { header, payload: &message[HEADER_LENGTH..], attached }))
    }

    /// Moves bytes of `piece` to `partial` until `partial` has `length` bytes.
    fn fill(&mut self, piece: &mut Piece<'_, D>, length: usize) {
        let missing = length.saturating_sub(self.partial.len()).min(piece.bytes.len());
        let (bytes, rest) = piece.bytes.split_at(missing);
        self.partial.extend_from_slice(bytes);
        piece.bytes = rest;
    }

    /// Keeps the rest of `piece` until more bytes arrive.
    fn keep(&mut self, piece: &mut Piece<'_, D>) {
        self.partial.extend_from_slice(piece.bytes);
        piece.bytes = &[];
        self.attached.add(core::mem::take(&mut piece.descriptors));
    }
}

impl<D> core::fmt::Debug for Stream<D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Stream({} B, {} descriptors)", self.partial.len(), self.attached.list.len())
    }
}
