//! The namespaces and abilities that an NVMe device offers to a medium.

use nvme::host::Namespace;
use nvme::wire::NamespaceId;
use nvme::wire::identify::IdentifyController;

use super::PIECE_BYTES;

/// Block sizes in bytes that are served.
const BLOCKS: [u32; 2] = [512, 4096];
/// The most bytes of a namespace, so that offsets in all namespaces together fit 64 bits.
const NAMESPACE_BYTES_MAX: u64 = 1 << 54;
/// The unit of the Maximum Data Transfer Size (MDTS) in bytes, as a power of two.
const PAGE_POWER: u32 = 12;
/// Support for Dataset Management and for Write Zeroes, in Optional NVM Command Support (ONCS).
const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// A volatile write cache is there, in Volatile Write Cache (VWC).
const VWC_PRESENT: u8 = 1 << 0;
/// The field with the value that deallocated blocks read as, and its value for zeroes, in
/// Deallocate Logical Block Features (DLFEAT).
const DLFEAT_READS: u8 = 0b111;
const DLFEAT_READS_ZERO: u8 = 0b001;
/// Write Zeroes can deallocate (DLFEAT).
const DLFEAT_WRITE_ZEROES: u8 = 1 << 3;

/// A namespace of the device, and its place in the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The device's identifier of the namespace.
    pub id: NamespaceId,
    /// The offset in the medium of the namespace's first byte.
    pub offset: u64,
    /// The size of the namespace in bytes.
    pub bytes: u64,
    /// The size of a block in bytes: 512 or 4096.
    pub block: u32,
    /// Whether Write Zeroes gives the space back if asked to.
    pub(in crate::media) zeroes_deallocate: bool,
    /// Whether deallocated blocks read as zeroes.
    pub(in crate::media) deallocated_reads_zero: bool,
}

impl Extent {
    /// Describes a namespace whose first byte is at `offset` of the medium.
    pub(in crate::media) fn new(namespace: &Namespace, offset: u64) -> Self {
        let Namespace { id, blocks, block_bytes, deallocate_features, .. } = *namespace;
        Self {
            id,
            offset,
            bytes: blocks * u64::from(block_bytes),
            block: block_bytes,
            zeroes_deallocate: deallocate_features & DLFEAT_WRITE_ZEROES != 0,
            deallocated_reads_zero: deallocate_features & DLFEAT_READS == DLFEAT_READS_ZERO,
        }
    }
}

/// Why a namespace can't be served; `None` when it can.
pub(in crate::media) fn misfit(namespace: &Namespace) -> Option<String> {
    let Namespace { id, blocks, block_bytes, metadata_bytes, .. } = *namespace;
    if !BLOCKS.contains(&block_bytes) {
        Some(format!("namespace {id} has blocks of {block_bytes} bytes, where 512 and 4096 are served"))
    } else if metadata_bytes > 0 {
        Some(format!("namespace {id} has {metadata_bytes} bytes of metadata beside each block"))
    } else if blocks == 0 || blocks > NAMESPACE_BYTES_MAX / u64::from(block_bytes) {
        Some(format!("namespace {id} has {blocks} blocks"))
    } else {
        None
    }
}

/// Optional commands that the device knows, and its limits.
#[derive(Clone, Copy, Debug)]
pub(in crate::media) struct Abilities {
    pub(in crate::media) write_zeroes: bool,
    pub(in crate::media) dataset_management: bool,
    /// Whether writes are durable only after a flush, or when they ask for it.
    pub(in crate::media) volatile_cache: bool,
    /// The most bytes that one read or write moves.
    pub(in crate::media) transfer_max: u64,
    pub(in crate::media) zeroes_max: u64,
}

impl Abilities {
    /// No abilities; used before those of the device are known.
    pub(in crate::media) const NONE: Self = Self {
        write_zeroes: false,
        dataset_management: false,
        volatile_cache: true,
        transfer_max: 0,
        zeroes_max: 0,
    };

    /// The abilities of `controller`, where one command moves at most `transfer_bytes_max` bytes.
    pub(in crate::media) fn new(controller: &IdentifyController, transfer_bytes_max: u32) -> Self {
        let commands = controller.optional_nvm_commands;
        let limit = match controller.maximum_data_transfer_size {
            0 => None,
            power => 1_u64.checked_shl(u32::from(power) + PAGE_POWER),
        };
        let largest = BLOCKS[1];
        Self {
            write_zeroes: commands & ONCS_WRITE_ZEROES != 0,
            dataset_management: commands & ONCS_DATASET_MANAGEMENT != 0,
            volatile_cache: controller.volatile_write_cache & VWC_PRESENT != 0,
            transfer_max: u64::from(transfer_bytes_max.min(PIECE_BYTES) / largest * largest),
            // Write Zeroes moves no data, but controllers before 2.0 are known to apply the limit
            // of commands that do.
            zeroes_max: limit.unwrap_or(u64::MAX),
        }
    }
}
