//! Puts PDUs into an outbox: header, digest, padding, data, digest.

use engine::Buffer;

use crate::Outbox;
use crate::wire::{Agreement, CommonHeader, Crc32c, Flags, PduKind};

/// How one end sends: the agreement for its direction, and the function that computes digests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) agreement: Agreement,
    pub(crate) crc32c: Crc32c,
}

impl Sender {
    /// Sends a PDU of `kind` with `data`. `header` makes the whole header from the common header.
    #[inline]
    pub(crate) fn send<const N: usize>(
        &self,
        outbox: &mut Outbox,
        kind: PduKind,
        flags: Flags,
        data: Buffer,
        header: impl FnOnce(&CommonHeader) -> [u8; N],
    ) {
        let length = u32::try_from(data.len()).expect("a buffer is smaller than 4 GiB");
        self.send_pieces(outbox, kind, flags, (length, core::iter::once(data)), header);
    }

    /// Sends a PDU of `kind` with data in pieces, `length` bytes in all. `header` makes the whole
    /// header from the common header.
    #[inline]
    pub(crate) fn send_pieces<const N: usize>(
        &self,
        outbox: &mut Outbox,
        kind: PduKind,
        flags: Flags,
        (length, pieces): (u32, impl Iterator<Item = Buffer>),
        header: impl FnOnce(&CommonHeader) -> [u8; N],
    ) {
        let (common, framing) = self.agreement.frame(kind, length, flags);
        let header = header(&common);
        outbox.write(&header);
        let mut written = N;
        if framing.header_digest {
            outbox.write(&(self.crc32c)(0, &header).to_le_bytes());
            written += 4;
        }
        if length == 0 {
            return;
        }
        outbox.pad(framing.head() - written);
        let mut digest = 0;
        for piece in pieces {
            if framing.data_digest {
                digest = (self.crc32c)(digest, &piece);
            }
            outbox.gather(piece);
        }
        if framing.data_digest {
            outbox.write(&digest.to_le_bytes());
        }
    }
}
