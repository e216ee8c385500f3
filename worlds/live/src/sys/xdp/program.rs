//! The program that picks the frames of a [`Lane`](super::Lane) from all that come to an interface
//! (`bpf(2)`).
//!
//! It is short enough to be written down as instructions. It leaves every frame alone that is not
//! surely ours, so that the interface goes on as before for all other frames.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{Receiver, Wanted};

/// Commands of `bpf(2)`, and kinds of maps, programs and places (`linux/bpf.h`).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_AT_INTERFACE: u32 = 6;
const PLACE_AT_INTERFACE: u32 = 37;
/// The answer of a program for the usual treatment of a frame by the kernel (`XDP_PASS`).
const PASS: i32 = 2;
/// The function that hands a frame to the socket in a map.
const REDIRECT: i32 = 51;

/// Places in the program's context (`struct xdp_md`).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;
/// Places in a frame: EtherType, and the datagram's kind and receiver behind it.
const TYPE: i16 = 12;
const KIND: i16 = 15;
const RECEIVER: i16 = 18;
/// The least length of a frame: all of these.
const LEAST: i32 = 26;

/// Codes of instructions: load 8, 16, 32 and 64 bits; move; add; call; leave.
const LOAD_8: u8 = 0x71;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const LOAD_WORD: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const ADD_NUMBER: u8 = 0x07;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Jump if a register is greater than another; and, for the lower 32 bits of one, if it is not
/// equal to a number, is less, or is greater.
const IF_GREATER: u8 = 0x2d;
const IF_NOT: u8 = 0x56;
const IF_LESS_NUMBER: u8 = 0xa6;
const IF_GREATER_NUMBER: u8 = 0x26;

/// One instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Step {
    code: u8,
    /// The target's number, and in the upper half the source's.
    registers: u8,
    offset: i16,
    number: i32,
}

const fn step(code: u8, target: u8, source: u8, offset: i16, number: i32) -> Step {
    Step { code, registers: source << 4 | target, offset, number }
}

/// The program at an interface, for as long as this lives.
#[derive(Debug)]
pub(super) struct Program {
    _link: OwnedFd,
}

impl Program {
    /// Has the frames that are `wanted` at the interface with number `index` go to `socket`, which
    /// is bound to its queue 0.
    ///
    /// # Errors
    /// When another program is there already (`EBUSY`), this process has not the right, or the
    /// interface can't have one.
    pub(super) fn attach(index: u32, wanted: &Wanted, socket: &OwnedFd) -> io::Result<Self> {
        #[repr(C)]
        struct NewEntry {
            map: u32,
            _pad: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        #[repr(C)]
        struct NewLink {
            program: u32,
            interface: u32,
            place: u32,
            flags: u32,
        }
        let map = map()?;
        let (key, value) = (0_u32, socket.as_raw_fd());
        let mut new = NewEntry {
            map: map.as_raw_fd().cast_unsigned(),
            _pad: 0,
            key: (&raw const key).addr() as u64,
            value: (&raw const value).addr() as u64,
            flags: 0,
        };
        // SAFETY: the command reads a key and a value of 4 bytes each, which outlive the call.
        unsafe { call(MAP_UPDATE, &mut new) }?;
        let program = load(&steps(wanted, map.as_raw_fd(), PASS))?;
        let program = program.as_raw_fd().cast_unsigned();
        let mut new = NewLink { program, interface: index, place: PLACE_AT_INTERFACE, flags: 0 };
        // SAFETY: the command reads the numbers of the request, and answers with a descriptor.
        Ok(Self { _link: unsafe { descriptor(LINK_CREATE, &mut new) }? })
    }
}

/// A map with room for the socket of one queue.
fn map() -> io::Result<OwnedFd> {
    #[repr(C)]
    struct NewMap {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    }
    let mut new = NewMap { kind: MAP_OF_SOCKETS, key_bytes: 4, value_bytes: 4, entries: 1 };
    // SAFETY: the command reads the numbers of the request, and answers with a descriptor.
    unsafe { descriptor(MAP_CREATE, &mut new) }
}

/// The program's instructions; `map` is the descriptor of the map with the socket. `lost` is the
/// answer for a frame that is wanted where no socket has its queue.
fn steps(wanted: &Wanted, map: i32, lost: i32) -> Vec<Step> {
    let half = |bytes: [u8; 2]| i32::from(u16::from_ne_bytes(bytes));
    let whole = |bytes: [u8; 4]| i32::from_ne_bytes(bytes);
    let [a, b, c, d, e, f] = wanted.mac;
    // Jumps that leave the frame alone get their length when it is known.
    let unless = |code, number| step(code, 5, 0, i16::MAX, number);
    let mut steps = vec![
        step(MOVE, 6, 1, 0, 0),
        step(LOAD_32, 2, 1, DATA, 0),
        step(LOAD_32, 3, 1, DATA_END, 0),
        step(MOVE, 4, 2, 0, 0),
        step(ADD_NUMBER, 4, 0, 0, LEAST),
        step(IF_GREATER, 4, 3, i16::MAX, 0),
        step(LOAD_16, 5, 2, TYPE, 0),
        unless(IF_NOT, half(wanted.ether_type.to_be_bytes())),
        step(LOAD_32, 5, 2, 0, 0),
        unless(IF_NOT, whole([a, b, c, d])),
        step(LOAD_16, 5, 2, 4, 0),
        unless(IF_NOT, half([e, f])),
        step(LOAD_8, 5, 2, KIND, 0),
        unless(IF_LESS_NUMBER, i32::from(*wanted.kinds.start())),
        unless(IF_GREATER_NUMBER, i32::from(*wanted.kinds.end())),
    ];
    match wanted.receiver {
        Receiver::Named([a, b, c, d, e, f, g, h]) => steps.extend([
            step(LOAD_32, 5, 2, RECEIVER, 0),
            unless(IF_NOT, whole([a, b, c, d])),
            step(LOAD_32, 5, 2, RECEIVER + 4, 0),
            unless(IF_NOT, whole([e, f, g, h])),
        ]),
        Receiver::Begins(names) => {
            steps.extend([step(LOAD_16, 5, 2, RECEIVER, 0), unless(IF_NOT, half(names))]);
        }
    }
    steps.extend([
        // The map's descriptor becomes its address when the program is loaded.
        step(LOAD_WORD, 1, 1, 0, map),
        step(0, 0, 0, 0, 0),
        step(LOAD_32, 2, 6, QUEUE, 0),
        step(MOVE_NUMBER, 3, 0, 0, lost),
        step(CALL, 0, 0, 0, REDIRECT),
        step(EXIT, 0, 0, 0, 0),
    ]);
    let leave_alone = steps.len();
    for (at, step) in steps.iter_mut().enumerate().filter(|(_, step)| step.offset == i16::MAX) {
        step.offset = i16::try_from(leave_alone - at - 1).expect("the program is short");
    }
    steps.extend([step(MOVE_NUMBER, 0, 0, 0, PASS), step(EXIT, 0, 0, 0, 0)]);
    steps
}

fn load(steps: &[Step]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct NewProgram {
        kind: u32,
        steps: u32,
        first: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
        kernel: u32,
        flags: u32,
        name: [u8; 16],
        device: u32,
        place: u32,
    }
    let mut new = NewProgram {
        kind: PROGRAM_AT_INTERFACE,
        steps: u32::try_from(steps.len()).unwrap_or(0),
        first: steps.as_ptr().addr() as u64,
        license: c"Apache-2.0".as_ptr().addr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel: 0,
        flags: 0,
        name: *b"farlane_lane\0\0\0\0",
        device: 0,
        place: PLACE_AT_INTERFACE,
    };
    // SAFETY: the command reads the instructions and the licence's name, which outlive the call,
    // and answers with a descriptor.
    unsafe { descriptor(PROGRAM_LOAD, &mut new) }
}

/// Calls `bpf(2)`.
///
/// # Safety
/// `request` must have the type that `command` requires, and the addresses in it must be valid for
/// the call.
unsafe fn call<T>(command: libc::c_int, request: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the caller promises that the request is of the command's type and of this length.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *request, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls `bpf(2)` for a command that answers with a new descriptor.
///
/// # Safety
/// As for [`call`], and the command must answer with a descriptor.
unsafe fn descriptor<T>(command: libc::c_int, request: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    let descriptor = unsafe { call(command, request) }?;
    let descriptor = i32::try_from(descriptor).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the command has just opened the descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: libc::c_int = 10;
    /// The answer of the program of these tests for a wanted frame: XDP_DROP.
    const WANTED: i32 = 1;

    /// The program's answer for `frame`, as the kernel returns it (`BPF_PROG_TEST_RUN`).
    fn answer(program: &OwnedFd, frame: &[u8]) -> i32 {
        #[repr(C)]
        #[derive(Default)]
        struct Run {
            program: u32,
            answer: u32,
            bytes_in: u32,
            bytes_out: u32,
            data_in: u64,
            data_out: u64,
            times: u32,
            nanoseconds: u32,
            context: [u32; 2],
            contexts: [u64; 2],
            further: [u32; 4],
        }
        let mut run = Run {
            program: program.as_raw_fd().cast_unsigned(),
            bytes_in: u32::try_from(frame.len()).unwrap(),
            data_in: frame.as_ptr().addr() as u64,
            times: 1,
            ..Run::default()
        };
        // SAFETY: the command reads the frame, which outlives the call, and writes to the request.
        unsafe { call(RUN, &mut run) }.unwrap();
        run.answer.cast_signed()
    }

    fn frame(mac: [u8; 6], ether_type: u16, kind: u8, receiver: [u8; 8]) -> Vec<u8> {
        let mut frame = [&mac[..], &[2, 0, 0, 0, 0, 9], &ether_type.to_be_bytes()].concat();
        frame.extend([&[1, kind, 0, 12][..], &receiver].concat());
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn the_kernel_runs_the_program_as_it_is_meant() {
        let (mac, ether_type) = ([2, 0xff, 0x80, 0x81, 0xfe, 0x7f], 0x88b5);
        let (near, far) = ([0x7f, 0xff, 0, 0x80, 1, 2, 3, 0x84], [0x81, 0xff, 0, 0, 0, 0, 0, 0]);
        for receiver in [Receiver::Named(near), Receiver::Begins([far[0], far[1]])] {
            let wanted = Wanted { mac, ether_type, kinds: 3..=5, receiver };
            let loaded = map().and_then(|map| load(&steps(&wanted, map.as_raw_fd(), WANTED)));
            let program = match loaded {
                Ok(program) => program,
                Err(error) => {
                    assert_ne!(error.kind(), io::ErrorKind::InvalidInput, "the kernel finds a fault");
                    eprintln!("SKIPPED: no program for interfaces can be loaded here: {error}");
                    return;
                }
            };
            let own = if receiver == Receiver::Named(near) { near } else { far };
            let expect =
                |frame: &[u8], expected| assert_eq!(answer(&program, frame), expected, "{frame:02x?}");
            for kind in 0..=255 {
                let expected = if (3..=5).contains(&kind) { WANTED } else { PASS };
                expect(&frame(mac, ether_type, kind, own), expected);
            }
            for place in 0..6 {
                let mut other = mac;
                other[place] ^= 0x80;
                expect(&frame(other, ether_type, 3, own), PASS);
            }
            for other in [0x88b6, 0x89b5, 0xb588, 0x8100, 0xf1c1] {
                expect(&frame(mac, other, 3, own), PASS);
            }
            for place in 0..8 {
                let mut other = own;
                other[place] ^= 0x80;
                // A far end has many names, of which only the beginning is known.
                let is_ours = own == far && place > 1;
                expect(&frame(mac, ether_type, 3, other), if is_ours { WANTED } else { PASS });
            }
            let whole = frame(mac, ether_type, 4, own);
            expect(&whole[..26], WANTED);
            (14..26).for_each(|length| expect(&whole[..length], PASS));
        }
    }
}
