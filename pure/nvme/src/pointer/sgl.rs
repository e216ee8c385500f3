//! Scatter Gather Lists: descriptors and segments.

use super::{Direction, List, PointerFault, Segment, Step, Walk};

/// The most descriptors of one command's SGL that a walk follows. A longer SGL fails with Invalid
/// Number of SGL Descriptors.
pub const SGL_DESCRIPTORS_MAX: u32 = 2048;
/// The longest SGL segment that a walk reads at once: a page of descriptors.
const SGL_SEGMENT_BYTES_MAX: u32 = 4096;

pub(super) const DESCRIPTOR_BYTES: usize = 16;
/// The alignment of an SGL segment: a quad word.
const SGL_SEGMENT_ALIGNMENT: u64 = 8;

impl Walk {
    pub(super) fn on_descriptors(
        &mut self,
        bytes: &[u8],
        last_segment: bool,
        found: &mut impl FnMut(Segment),
    ) -> Step {
        let (descriptors, _) = bytes.as_chunks();
        let first = matches!(self.list, List::None);
        for (index, descriptor) in descriptors.iter().enumerate() {
            self.descriptors += 1;
            if self.descriptors > SGL_DESCRIPTORS_MAX {
                return Step::Failed(PointerFault::SglDescriptorCount);
            }
            let descriptor = Descriptor::parse(descriptor);
            let at_end = index + 1 == descriptors.len();
            match descriptor.kind {
                Descriptor::DATA_BLOCK => {
                    let length = self.length(descriptor.length);
                    if length > 0 {
                        self.find(Some(descriptor.address), length, found);
                    }
                }
                Descriptor::BIT_BUCKET => {
                    let length = self.length(descriptor.length);
                    if length > 0 && self.direction == Direction::ToHost {
                        self.find(None, length, found);
                    }
                }
                // The last segment may not point to another one. The descriptor in the command
                // itself is not part of a segment.
                Descriptor::SEGMENT | Descriptor::LAST_SEGMENT if last_segment && !first => {
                    return Step::Failed(PointerFault::SglSegment);
                }
                Descriptor::SEGMENT | Descriptor::LAST_SEGMENT if !at_end => {
                    return Step::Failed(PointerFault::SglDescriptorCount);
                }
                Descriptor::SEGMENT | Descriptor::LAST_SEGMENT => return self.read_sgl_segment(descriptor),
                _ => return Step::Failed(PointerFault::SglType),
            }
            if self.left == 0 {
                return Step::Done;
            }
        }
        Step::Failed(if last_segment { PointerFault::SglLength } else { PointerFault::SglSegment })
    }

    fn read_sgl_segment(&mut self, descriptor: Descriptor) -> Step {
        let length = descriptor.length;
        let is_aligned = descriptor.address.is_multiple_of(SGL_SEGMENT_ALIGNMENT);
        let is_whole = u64::from(length).is_multiple_of(DESCRIPTOR_BYTES as u64);
        if length == 0 || !is_whole || !is_aligned {
            return Step::Failed(PointerFault::SglSegment);
        }
        if length > SGL_SEGMENT_BYTES_MAX {
            return Step::Failed(PointerFault::SglDescriptorCount);
        }
        self.list = List::Sgl { last: descriptor.kind == Descriptor::LAST_SEGMENT };
        Step::ReadList { address: descriptor.address, length }
    }
}

/// An SGL descriptor: 16 bytes, the last of which has the type and subtype.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    length: u32,
    /// SGL Descriptor Type in bits 7:4 and subtype in bits 3:0. Subtype 0 means an address.
    kind: u8,
}

impl Descriptor {
    const DATA_BLOCK: u8 = 0x00;
    const BIT_BUCKET: u8 = 0x10;
    const SEGMENT: u8 = 0x20;
    const LAST_SEGMENT: u8 = 0x30;

    const fn parse(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, _, _, _, kind] = *bytes;
        Self {
            address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            kind,
        }
    }
}
