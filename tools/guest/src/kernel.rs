//! Extracts the uncompressed kernel from a bzImage. QEMU enters it directly, which saves a guest
//! without KVM most of its boot (Linux, Documentation/arch/x86/boot.rst).

/// The offset and the bytes of the set-up header's signature.
const SIGNATURE: (usize, &[u8]) = (0x202, b"HdrS");
/// `setup_sects`: number of sectors of real-mode code behind the first sector.
const SETUP_SECTORS: usize = 0x1F1;
/// `version` of the boot protocol, two bytes. Versions since 2.08 have the position of the payload.
const PROTOCOL: usize = 0x206;
const PROTOCOL_MIN: u16 = 0x0208;
/// `payload_offset` and `payload_length`, four bytes each; the offset counts from the
/// protected-mode code.
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24C;
const SECTOR: usize = 512;
/// Length of the uncompressed size, which the kernel's build appends to the compressed stream.
const SIZE_TRAILER: usize = 4;
/// A zstd frame's magic number (RFC 8878).
const ZSTD: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Why no zstd payload was found in a bzImage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KernelError {
    #[error("not a Linux kernel image of boot protocol {PROTOCOL_MIN:#06x} or later")]
    NotABzImage,
    #[error("the payload at {offset}, {length} bytes, is not within the file of {have} bytes")]
    Truncated { offset: usize, length: usize, have: usize },
    #[error("the payload begins with {found:02x?}, which is not zstd's magic number")]
    NotZstd { found: [u8; 4] },
}

/// The zstd stream in a bzImage.
pub(crate) fn payload(image: &[u8]) -> Result<&[u8], KernelError> {
    let (at, signature) = SIGNATURE;
    if image.get(at..at + signature.len()) != Some(signature)
        || u16_at(image, PROTOCOL).is_none_or(|version| version < PROTOCOL_MIN)
    {
        return Err(KernelError::NotABzImage);
    }
    let sectors = image.get(SETUP_SECTORS).map_or(0, |&sectors| usize::from(sectors));
    // In the protocol, zero stands for four.
    let sectors = if sectors == 0 { 4 } else { sectors };
    let offset = u32_at(image, PAYLOAD_OFFSET).ok_or(KernelError::NotABzImage)?;
    let length = u32_at(image, PAYLOAD_LENGTH).ok_or(KernelError::NotABzImage)?;
    let offset = ((sectors + 1) * SECTOR).saturating_add(offset);
    let truncated = KernelError::Truncated { offset, length, have: image.len() };
    let end = offset.checked_add(length.saturating_sub(SIZE_TRAILER)).ok_or(truncated)?;
    let payload = image.get(offset..end).ok_or(truncated)?;
    let found = *payload.first_chunk().ok_or(truncated)?;
    if found == ZSTD { Ok(payload) } else { Err(KernelError::NotZstd { found }) }
}

fn u16_at(image: &[u8], at: usize) -> Option<u16> {
    image.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(image: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*image.get(at..)?.first_chunk()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR + 8];
        image[SETUP_SECTORS] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[PROTOCOL..PROTOCOL + 2].copy_from_slice(&0x020F_u16.to_le_bytes());
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&8_u32.to_le_bytes());
        let length = u32::try_from(payload.len()).unwrap();
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&length.to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn the_payload_is_found_without_its_trailer() {
        let whole = image(b"\x28\xB5\x2F\xFDstream\x10\0\0\0");
        assert_eq!(payload(&whole), Ok(&b"\x28\xB5\x2F\xFDstream"[..]));
    }

    #[test]
    fn invalid_or_incomplete_kernels_are_refused() {
        assert_eq!(payload(b"MZ"), Err(KernelError::NotABzImage));
        let mut old = image(b"");
        old[PROTOCOL] = 7;
        assert_eq!(payload(&old), Err(KernelError::NotABzImage));
        let gzip = image(b"\x1F\x8B\x08\0....\0\0\0\0");
        assert_eq!(payload(&gzip), Err(KernelError::NotZstd { found: [0x1F, 0x8B, 8, 0] }));
        let whole = image(b"\x28\xB5\x2F\xFDstream\x10\0\0\0");
        for end in 0..whole.len() - SIZE_TRAILER {
            assert!(payload(&whole[..end]).is_err(), "{end} bytes");
        }
    }
}
