//! The interface of the kernel's user-space block driver: commands, structures, flags.
//!
//! Source: Linux, `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst`.

/// Bytes of a sector, the unit of the block layer.
const SECTOR: u32 = 512;
/// The most requests of a queue (`UBLK_MAX_QUEUE_DEPTH`).
pub(super) const DEPTH_MAX: u16 = 4096;
/// Names no queue, in a command that is for none.
const NO_QUEUE: u16 = u16::MAX;
/// Names no device: the kernel chooses the number.
pub(super) const ANY_DEVICE: u32 = u32::MAX;

/// The encoding of a command: direction (1: to the kernel, 2: from it), length of the structure
/// that comes with it, the letter of the driver, and a number.
const fn code(direction: u32, length: u32, number: u32) -> u32 {
    direction << 30 | length << 16 | (b'u' as u32) << 8 | number
}

/// The length of the structure with a control command.
pub(super) const CONTROL_LENGTH: usize = 80;
const CONTROL_STRUCTURE: u32 = 32;
const FROM: u32 = 2;
const BOTH: u32 = 3;

/// A control command (`UBLK_U_CMD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    GetInfo,
    Add,
    Delete,
    Start,
    Stop,
    SetParameters,
    GetParameters,
    StartRecovery,
    EndRecovery,
    GetFeatures,
    UpdateSize,
}

impl Command {
    /// The command's code for the kernel.
    pub(super) const fn code(self) -> u32 {
        let (direction, number) = match self {
            Self::GetInfo => (FROM, 0x02),
            Self::Add => (BOTH, 0x04),
            Self::Delete => (BOTH, 0x05),
            Self::Start => (BOTH, 0x06),
            Self::Stop => (BOTH, 0x07),
            Self::SetParameters => (BOTH, 0x08),
            Self::GetParameters => (FROM, 0x09),
            Self::StartRecovery => (BOTH, 0x10),
            Self::EndRecovery => (BOTH, 0x11),
            Self::GetFeatures => (FROM, 0x13),
            Self::UpdateSize => (BOTH, 0x15),
        };
        code(direction, CONTROL_STRUCTURE, number)
    }

    /// The command in words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::GetInfo => "asking for the device",
            Self::Add => "adding a device",
            Self::Delete => "deleting the device",
            Self::Start => "starting the device",
            Self::Stop => "stopping the device",
            Self::SetParameters => "setting the device's limits",
            Self::GetParameters => "asking for the device's limits",
            Self::StartRecovery => "taking over the device",
            Self::EndRecovery => "continuing the device",
            Self::GetFeatures => "asking for features",
            Self::UpdateSize => "giving the device another size",
        }
    }
}

/// The structure with a control command (`struct ublksrv_ctrl_cmd`): the device, a buffer's address
/// and length, and a value.
pub(super) fn control(device: u32, address: u64, length: u16, data: u64) -> [u8; CONTROL_LENGTH] {
    let mut bytes = [0; CONTROL_LENGTH];
    bytes[0..4].copy_from_slice(&device.to_ne_bytes());
    bytes[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&length.to_ne_bytes());
    bytes[8..16].copy_from_slice(&address.to_ne_bytes());
    bytes[16..24].copy_from_slice(&data.to_ne_bytes());
    bytes
}

/// `UBLK_U_IO_FETCH_REQ` and `UBLK_U_IO_COMMIT_AND_FETCH_REQ`.
pub(super) const FETCH: u32 = code(BOTH, 16, 0x20);
pub(super) const COMMIT_AND_FETCH: u32 = code(BOTH, 16, 0x21);

/// The structure with a command of a queue (`struct ublksrv_io_cmd`). No buffer is named: data are
/// read and written by `pread` and `pwrite`.
pub(super) fn of_queue(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..2].copy_from_slice(&queue.to_ne_bytes());
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// A device outlives its server, and the kernel repeats requests that the server had not answered
/// (`UBLK_F_USER_RECOVERY`, `UBLK_F_USER_RECOVERY_REISSUE`).
pub(super) const RECOVERY: u64 = 1 << 3 | 1 << 4;
/// Commands are encoded as above (`UBLK_F_CMD_IOCTL_ENCODE`).
pub(super) const ENCODED: u64 = 1 << 6;
/// Data are read and written by `pread` and `pwrite` (`UBLK_F_USER_COPY`).
pub(super) const USER_COPY: u64 = 1 << 7;
/// A device in use gets another size by `UBLK_U_CMD_UPDATE_SIZE` (`UBLK_F_UPDATE_SIZE`), from Linux
/// 6.16 on.
pub(super) const UPDATE_SIZE: u64 = 1 << 10;

/// The value with `UBLK_U_CMD_UPDATE_SIZE`: the size in sectors.
pub(super) const fn size_value(bytes: u64) -> u64 {
    bytes / SECTOR as u64
}

/// `UBLK_S_DEV_LIVE`, `UBLK_S_DEV_QUIESCED` and `UBLK_S_DEV_FAIL_IO`.
const LIVE: u16 = 1;
const QUIESCED: u16 = 2;
const FAIL_IO: u16 = 3;

/// The state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was added, and not started, or it was stopped.
    Dead,
    /// It has a server.
    Live,
    /// It waits for a new server.
    Waiting,
}

/// The description of a device (`struct ublksrv_ctrl_dev_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The device's number, which is in the name of its block device.
    pub device: u32,
    /// The number of queues.
    pub queues: u16,
    /// The most requests of a queue.
    pub depth: u16,
    /// The most bytes of a request.
    pub request_bytes: u32,
    /// The state of the device.
    pub state: State,
    /// The process that serves it.
    pub server: i32,
    /// A number that the kernel keeps for the server, by which the server recognises the device.
    pub mark: u64,
    pub(super) flags: u64,
}

impl Info {
    /// The length of the structure in bytes.
    pub(super) const LENGTH: usize = 64;

    pub(super) fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.request_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.device.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.server.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let state = match u16_at(bytes, 4) {
            LIVE => State::Live,
            QUIESCED | FAIL_IO => State::Waiting,
            _ => State::Dead,
        };
        Self {
            queues: u16_at(bytes, 0),
            depth: u16_at(bytes, 2),
            state,
            request_bytes: u32_at(bytes, 8),
            device: u32_at(bytes, 12),
            server: u32_at(bytes, 16).cast_signed(),
            flags: u64_at(bytes, 24),
            mark: u64_at(bytes, 32),
        }
    }
}

/// `UBLK_ATTR_READ_ONLY`, `UBLK_ATTR_VOLATILE_CACHE` and `UBLK_ATTR_FUA`.
const READ_ONLY: u32 = 1 << 0;
const VOLATILE_CACHE: u32 = 1 << 2;
const FORCE_UNIT_ACCESS: u32 = 1 << 3;
/// `UBLK_PARAM_TYPE_BASIC` and `UBLK_PARAM_TYPE_DISCARD`.
const BASIC: u32 = 1 << 0;
const DISCARD: u32 = 1 << 1;

/// The limits and abilities of a device (`struct ublk_params`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The size in bytes.
    pub bytes: u64,
    /// The size of a block in bytes: a power of two, from 512 to the size of a page.
    pub block: u32,
    /// The most bytes of a request.
    pub request_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether writes are durable only after a flush, or when they ask for it.
    pub volatile_cache: bool,
    /// The most bytes of a request to give space back; 0 if the device can't.
    pub discard_bytes: u32,
    /// The most bytes of a request to write zeroes; 0 if the device can't.
    pub zeroes_bytes: u32,
}

impl Parameters {
    /// The length of the structure in bytes, without the parts that are not used.
    pub(super) const LENGTH: usize = 60;
    /// The same, as the structure itself says it.
    pub(super) const LENGTH_FIELD: [u8; 4] = 60_u32.to_ne_bytes();

    pub(super) fn emit(&self) -> [u8; Self::LENGTH] {
        let cache = if self.volatile_cache { VOLATILE_CACHE | FORCE_UNIT_ACCESS } else { 0 };
        let attributes = cache | if self.read_only { READ_ONLY } else { 0 };
        let has_discard = self.discard_bytes > 0 || self.zeroes_bytes > 0;
        let power = power_of(self.block);
        let mut bytes = [0; Self::LENGTH];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let sectors = |length: u32| (length / SECTOR).to_ne_bytes();
        put(0, &Self::LENGTH_FIELD);
        put(4, &(BASIC | if has_discard { DISCARD } else { 0 }).to_ne_bytes());
        put(8, &attributes.to_ne_bytes());
        // Logical and physical block, best and least transfer.
        let best = power_of(self.request_bytes.next_power_of_two());
        put(12, &[power, power, best, power]);
        put(16, &sectors(self.request_bytes));
        put(24, &(self.bytes / u64::from(SECTOR)).to_ne_bytes());
        if has_discard {
            put(44, &self.block.to_ne_bytes());
            put(48, &sectors(self.discard_bytes));
            put(52, &sectors(self.zeroes_bytes));
            // The driver knows requests with one range.
            put(56, &1_u16.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let attributes = u32_at(bytes, 8);
        let has_discard = u32_at(bytes, 4) & DISCARD != 0;
        let bytes_of = |at| u32_at(bytes, at).saturating_mul(SECTOR);
        let discard = |at| if has_discard { bytes_of(at) } else { 0 };
        Self {
            bytes: u64_at(bytes, 24).saturating_mul(u64::from(SECTOR)),
            block: 1_u32.checked_shl(u32::from(bytes[12])).unwrap_or(0),
            request_bytes: bytes_of(16),
            read_only: attributes & READ_ONLY != 0,
            volatile_cache: attributes & VOLATILE_CACHE != 0,
            discard_bytes: discard(48),
            zeroes_bytes: discard(52),
        }
    }
}

/// The length of the description of a request.
pub(super) const DESCRIPTION: usize = 24;
/// Force Unit Access, and zeroes whose space is kept (`UBLK_IO_F_FUA`, `UBLK_IO_F_NOUNMAP`).
const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

/// An operation of the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bytes of the device are to be put into the request's data.
    Read,
    /// The request's data are to be written.
    Write,
    /// All that was written is to be made durable.
    Flush,
    /// The range is not needed any more.
    Discard,
    /// The range is to read as zeroes. Its space may be given back unless it is `kept`.
    WriteZeroes {
        /// Whether the space of the range is to be kept.
        kept: bool,
    },
    /// An operation that was not offered.
    Other(u8),
}

/// A request of the block layer (`struct ublksrv_io_desc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name of the request until it is answered. It is below the number of requests that the
    /// device can have under way.
    pub name: u32,
    /// The requested operation.
    pub operation: Operation,
    /// Force Unit Access: whether a write must be durable before its answer.
    pub durable: bool,
    /// Byte offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

impl Request {
    pub(super) fn parse(name: u32, bytes: &[u8; DESCRIPTION]) -> Self {
        let flags = u32_at(bytes, 0);
        let operation = match flags.to_le_bytes()[0] {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::WriteZeroes { kept: flags & NO_UNMAP != 0 },
            other => Operation::Other(other),
        };
        Self {
            name,
            operation,
            durable: flags & FUA != 0,
            offset: u64_at(bytes, 8).saturating_mul(SECTOR.into()),
            length: u64::from(u32_at(bytes, 4)) * u64::from(SECTOR),
        }
    }
}

/// The position in the device's file of byte `offset` of a request's data: behind
/// `UBLKSRV_IO_BUF_OFFSET`, 25 bits of offset, 16 of the tag, 12 of the queue.
pub(super) const fn data_position(queue: u16, tag: u16, offset: u32) -> u64 {
    0x8000_0000 + ((queue as u64) << 41 | (tag as u64) << 25 | offset as u64)
}

/// The power of two that `length` is.
fn power_of(length: u32) -> u8 {
    u8::try_from(length.trailing_zeros()).expect("32 bits have at most 32 zeroes")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the C compiler makes of the kernel's header.
    #[test]
    fn commands_have_the_codes_of_the_kernels_header() {
        for (command, code) in [
            (Command::GetInfo, 0x8020_7502),
            (Command::Add, 0xc020_7504),
            (Command::Delete, 0xc020_7505),
            (Command::Start, 0xc020_7506),
            (Command::GetParameters, 0x8020_7509),
            (Command::EndRecovery, 0xc020_7511),
            (Command::GetFeatures, 0x8020_7513),
            (Command::UpdateSize, 0xc020_7515),
        ] {
            assert_eq!(command.code(), code, "{command:?}");
        }
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
    }

    #[test]
    fn another_size_is_given_in_sectors() {
        let bytes = control(3, 0, 0, size_value(5 << 30));
        assert_eq!(bytes[0..4], 3_u32.to_ne_bytes());
        assert_eq!(bytes[4..8], [0xff, 0xff, 0, 0]);
        assert_eq!(bytes[8..16], [0; 8]);
        assert_eq!(bytes[16..24], (5_u64 << 21).to_ne_bytes());
        assert_eq!(UPDATE_SIZE, 0x400);
    }

    #[test]
    fn what_a_device_is_comes_back() {
        let info = Info {
            device: 3,
            queues: 2,
            depth: 128,
            request_bytes: 131_072,
            state: State::Dead,
            server: -1,
            mark: 0x0123_4567_89ab_cdef,
            flags: RECOVERY | USER_COPY,
        };
        assert_eq!(Info::parse(&info.emit()), info);
        let mut bytes = info.emit();
        for (state, means) in [(0, State::Dead), (1, State::Live), (2, State::Waiting), (3, State::Waiting)] {
            bytes[4] = state;
            assert_eq!(Info::parse(&bytes).state, means);
        }
    }

    #[test]
    fn limits_come_back() {
        for (discard_bytes, zeroes_bytes) in [(0, 0), (1 << 30, 0), (1 << 30, 1 << 20)] {
            let parameters = Parameters {
                bytes: 1 << 40,
                block: 4096,
                request_bytes: 131_072,
                read_only: true,
                volatile_cache: true,
                discard_bytes,
                zeroes_bytes,
            };
            assert_eq!(Parameters::parse(&parameters.emit()), parameters);
        }
    }

    #[test]
    fn a_request_is_read_as_the_driver_writes_it() {
        let mut bytes = [0; DESCRIPTION];
        bytes[0..4].copy_from_slice(&(1_u32 | 1 << 13).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8_u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&100_u64.to_ne_bytes());
        let request = Request::parse(7, &bytes);
        let expected =
            Request { name: 7, operation: Operation::Write, durable: true, offset: 51_200, length: 4096 };
        assert_eq!(request, expected);
        bytes[0..4].copy_from_slice(&(5_u32 | 1 << 15).to_ne_bytes());
        assert_eq!(Request::parse(7, &bytes).operation, Operation::WriteZeroes { kept: true });
        bytes[0..4].copy_from_slice(&[15, 0, 0, 0]);
        assert_eq!(Request::parse(7, &bytes).operation, Operation::Other(15));
    }

    #[test]
    fn data_have_the_positions_of_the_kernels_header() {
        assert_eq!(data_position(0, 0, 0), 0x8000_0000);
        assert_eq!(data_position(1, 2, 3), 0x8000_0000 + (1 << 41) + (2 << 25) + 3);
    }
}
