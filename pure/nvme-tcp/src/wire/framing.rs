//! The layout of a PDU: header, header digest, padding, data, data digest.

use super::{CommonHeader, DIGEST_LENGTH, Fault, Flags, PduKind, TERMINATE_LENGTH_MAX};

/// The receiver of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// A controller.
    Controller,
    /// A host.
    Host,
}

impl Receiver {
    /// The receiver of this receiver's PDUs.
    pub(crate) const fn peer(self) -> Self {
        match self {
            Self::Controller => Self::Host,
            Self::Host => Self::Controller,
        }
    }
}

/// The settings that ICReq and ICResp have fixed for the PDUs of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Whether digests follow headers.
    pub header_digest: bool,
    /// Whether digests follow data.
    pub data_digest: bool,
    /// Alignment of data in bytes, 4..=128: CPDA towards a controller, HPDA towards a host.
    pub alignment: u8,
}

impl Agreement {
    /// The agreement before ICReq and ICResp: no digests, and data aligned to double words.
    pub const NONE: Self = Self { header_digest: false, data_digest: false, alignment: 4 };

    /// The common header and the layout of a PDU of `kind` with `data` bytes of data.
    #[inline]
    pub fn frame(self, kind: PduKind, data: u32, flags: Flags) -> (CommonHeader, Framing) {
        let digested = kind.may_have_digest();
        let (header_digest, data_digest) =
            (digested && self.header_digest, digested && self.data_digest && data > 0);
        let header_end = kind.header_length() + digest_bytes(header_digest);
        let data_offset =
            if digested { header_end.next_multiple_of(usize::from(self.alignment)) } else { header_end };
        let framing = Framing {
            header_length: short(kind.header_length()),
            header_digest,
            data_offset: if data == 0 { short(header_end) } else { short(data_offset) },
            data_length: data,
            data_digest,
        };
        let header = CommonHeader {
            kind,
            flags: flags.with(Flags::HEADER_DIGEST, header_digest).with(Flags::DATA_DIGEST, data_digest),
            header_length: framing.header_length,
            // A Terminate Connection Request has no PDO, although data follow.
            data_offset: if data == 0 || !digested { 0 } else { framing.data_offset },
            length: framing.length(),
        };
        (header, framing)
    }
}

/// The places of the parts of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Length of the header in bytes.
    pub header_length: u8,
    /// Whether a digest follows the header.
    pub header_digest: bool,
    /// Offset of the data in bytes; the end of the PDU if there are no data.
    pub data_offset: u8,
    /// Length of the data in bytes.
    pub data_length: u32,
    /// Whether a digest follows the data.
    pub data_digest: bool,
}

impl Framing {
    /// Checks a received common header against its kind and the agreement. The fields are checked
    /// in their order, because a fault names the first that is wrong.
    ///
    /// # Errors
    /// The fault to answer with.
    #[inline]
    pub fn check(header: &CommonHeader, receiver: Receiver, agreement: Agreement) -> Result<Self, Fault> {
        let kind = header.kind;
        if kind.is_from_host() != (receiver == Receiver::Controller) {
            return Err(Fault::field(0));
        }
        let header_digest = agreement.header_digest && kind.may_have_digest();
        if header.flags.has_others_than(kind.flags())
            || header.flags.has(Flags::HEADER_DIGEST) != header_digest
            || (header.flags.has(Flags::SUCCESS) && !header.flags.has(Flags::LAST_PDU))
        {
            return Err(Fault::field(1));
        }
        let header_length = kind.header_length();
        let header_end = header_length + digest_bytes(header_digest);
        let has_data = header.length as usize != header_end;
        let data_digest = agreement.data_digest && kind.may_have_digest() && has_data;
        let flagged = header.flags.has(Flags::DATA_DIGEST);
        // A sender may flag a digest of absent data; the digest is absent, too.
        if data_digest != flagged && (has_data || !agreement.data_digest) {
            return Err(Fault::field(1));
        }
        if usize::from(header.header_length) != header_length {
            return Err(Fault::field(2));
        }
        let data_offset = check_data_offset(header, header_end, has_data, agreement)?;
        let overhead = data_offset + digest_bytes(data_digest);
        let data_length = match (header.length as usize).checked_sub(overhead) {
            Some(0) if has_data => return Err(Fault::field(4)),
            Some(_) if has_data && !kind.may_have_data() => return Err(Fault::field(4)),
            Some(_) if !kind.may_have_digest() && header.length as usize > limit_of(kind) => {
                return Err(Fault::field(4));
            }
            // The overhead is the data offset, which fits in a byte, and at most a digest.
            Some(length) => u32::try_from(length).map_err(|_| Fault::field(4))?,
            None => return Err(Fault::field(4)),
        };
        Ok(Self {
            header_length: short(header_length),
            header_digest,
            data_offset: short(data_offset),
            data_length,
            data_digest,
        })
    }

    /// Length in bytes of the part before the data, which must arrive completely before the PDU is
    /// processed.
    #[inline]
    pub fn head(self) -> usize {
        usize::from(self.data_offset)
    }

    /// Bytes behind the data.
    #[inline]
    pub const fn tail(self) -> usize {
        digest_bytes(self.data_digest)
    }

    /// Length of the PDU in bytes (PLEN).
    #[inline]
    pub fn length(self) -> u32 {
        let digest = if self.data_digest { 4 } else { 0 };
        u32::from(self.data_offset).saturating_add(self.data_length).saturating_add(digest)
    }
}

fn check_data_offset(
    header: &CommonHeader,
    header_end: usize,
    has_data: bool,
    agreement: Agreement,
) -> Result<usize, Fault> {
    let offset = usize::from(header.data_offset);
    if !header.kind.may_have_digest() {
        // An ICReq, an ICResp or a Terminate Connection Request has no PDO; its data follow the
        // header directly.
        return if offset == 0 { Ok(header_end) } else { Err(Fault::field(3)) };
    }
    if !has_data || !header.kind.may_have_data() {
        // The field is reserved, so its value has no meaning.
        return Ok(header_end);
    }
    let aligned = offset.is_multiple_of(usize::from(agreement.alignment));
    if offset < header_end || !aligned {
        return Err(Fault::field(3));
    }
    Ok(offset)
}

const fn limit_of(kind: PduKind) -> usize {
    match kind {
        PduKind::HostTerminate | PduKind::ControllerTerminate => TERMINATE_LENGTH_MAX,
        _ => kind.header_length(),
    }
}

const fn digest_bytes(present: bool) -> usize {
    if present { DIGEST_LENGTH } else { 0 }
}

/// An offset within a PDU's head, which fits in a byte.
fn short(offset: usize) -> u8 {
    u8::try_from(offset).expect("a PDU's data start within its first 256 bytes")
}
