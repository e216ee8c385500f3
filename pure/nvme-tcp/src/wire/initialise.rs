//! Initialize Connection Request and Response (ICReq, ICResp).

use super::{Agreement, CommonHeader, Fault, Flags, PduKind, u16_at, u32_at};

/// Length of an ICReq or an ICResp in bytes.
pub const INITIALISE_LENGTH: usize = 128;
/// The largest alignment of data, in bytes.
pub const ALIGNMENT_MAX: u8 = 128;
/// The least that a controller may offer as MAXH2CDATA, in bytes.
pub const MAXH2CDATA_MIN: u32 = 4096;

/// PDU Format Version (PFV).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The version of the transport specification 1.0.
    V1_0,
    /// Another version.
    Other(u16),
}

const VERSION: usize = 8;
const ALIGNMENT: usize = 10;
const DIGESTS: usize = 11;
const LIMIT: usize = 12;

const HEADER_DIGEST: u8 = 1 << 0;
const DATA_DIGEST: u8 = 1 << 1;

/// The parameters that a host requests (ICReq).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitializeRequest {
    /// Alignment in bytes of data towards the host (HPDA): 4..=128, a multiple of 4.
    pub alignment: u8,
    /// Whether the host requests header digests (HDGST_ENABLE).
    pub header_digest: bool,
    /// Whether the host requests data digests (DDGST_ENABLE).
    pub data_digest: bool,
    /// Maximum number of R2Ts of one command that the host accepts at a time (MAXR2T), at least 1.
    /// The field is 0's based.
    pub ready_to_transfer_max: u64,
}

impl InitializeRequest {
    /// Decodes the header of an ICReq whose framing was checked.
    ///
    /// # Errors
    /// The fault to answer with.
    pub fn parse(bytes: &[u8; INITIALISE_LENGTH]) -> Result<Self, Fault> {
        let (alignment, header_digest, data_digest) = parse_common(bytes)?;
        let ready_to_transfer_max = u64::from(u32_at(bytes, LIMIT)) + 1;
        Ok(Self { alignment, header_digest, data_digest, ready_to_transfer_max })
    }

    /// Encodes the whole PDU.
    pub fn emit(&self) -> [u8; INITIALISE_LENGTH] {
        let zeros_based = u32::try_from(self.ready_to_transfer_max.saturating_sub(1)).unwrap_or(u32::MAX);
        emit_common(
            PduKind::InitializeRequest,
            self.alignment,
            (self.header_digest, self.data_digest),
            zeros_based,
        )
    }
}

/// The parameters that a controller grants (ICResp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitializeResponse {
    /// Alignment in bytes of data towards the controller (CPDA): 4..=128, a multiple of 4.
    pub alignment: u8,
    /// Whether header digests are used (HDGST_ENABLE).
    pub header_digest: bool,
    /// Whether data digests are used (DDGST_ENABLE).
    pub data_digest: bool,
    /// Maximum length of the data in one H2CData PDU (MAXH2CDATA), in bytes.
    pub host_data_max: u32,
}

impl InitializeResponse {
    /// Decodes the header of an ICResp whose framing was checked.
    ///
    /// # Errors
    /// The fault to answer with.
    pub fn parse(bytes: &[u8; INITIALISE_LENGTH]) -> Result<Self, Fault> {
        let (alignment, header_digest, data_digest) = parse_common(bytes)?;
        let host_data_max = u32_at(bytes, LIMIT);
        if host_data_max < MAXH2CDATA_MIN || !host_data_max.is_multiple_of(4) {
            return Err(Fault::field(12));
        }
        Ok(Self { alignment, header_digest, data_digest, host_data_max })
    }

    /// Encodes the whole PDU.
    pub fn emit(&self) -> [u8; INITIALISE_LENGTH] {
        let digests = (self.header_digest, self.data_digest);
        emit_common(PduKind::InitializeResponse, self.alignment, digests, self.host_data_max)
    }
}

fn parse_common(bytes: &[u8; INITIALISE_LENGTH]) -> Result<(u8, bool, bool), Fault> {
    if u16_at(bytes, VERSION) != 0 {
        return Err(Fault::unsupported(8));
    }
    // The field is 0's based, in double words.
    let alignment = (u16::from(bytes[ALIGNMENT]) + 1) * 4;
    let alignment = u8::try_from(alignment).ok().filter(|bytes| *bytes <= ALIGNMENT_MAX);
    let alignment = alignment.ok_or(Fault::field(10))?;
    let digests = bytes[DIGESTS];
    if digests & !(HEADER_DIGEST | DATA_DIGEST) != 0 {
        return Err(Fault::field(11));
    }
    Ok((alignment, digests & HEADER_DIGEST != 0, digests & DATA_DIGEST != 0))
}

fn emit_common(
    kind: PduKind,
    alignment: u8,
    (header_digest, data_digest): (bool, bool),
    limit: u32,
) -> [u8; INITIALISE_LENGTH] {
    let (header, _) = Agreement::NONE.frame(kind, 0, Flags::NONE);
    let mut bytes = [0; INITIALISE_LENGTH];
    bytes[..CommonHeader::LENGTH].copy_from_slice(&header.emit());
    bytes[ALIGNMENT] = (alignment / 4).saturating_sub(1);
    bytes[DIGESTS] =
        Flags::NONE.with(Flags(HEADER_DIGEST), header_digest).with(Flags(DATA_DIGEST), data_digest).0;
    bytes[LIMIT..LIMIT + 4].copy_from_slice(&limit.to_le_bytes());
    bytes
}
