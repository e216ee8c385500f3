use std::format;
use std::string::ToString;
use std::vec::Vec;

use engine::Nanos;
use proptest::prelude::*;

use super::*;
use crate::credits::Amount;

const SEQUENCE: Sequence = Sequence::from_bits(7);
const ACKNOWLEDGE: Sequence = Sequence::from_bits(9);

fn emit(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = std::vec![0xaa; HEADER_LENGTH + BODY_MAX];
    let length = frame.emit(SEQUENCE, ACKNOWLEDGE, &mut bytes);
    bytes.truncate(length);
    bytes
}

fn parse(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let have = bytes.len();
    let (head, body) =
        bytes.split_first_chunk().ok_or(FrameError::Truncated { need: HEADER_LENGTH, have })?;
    let header = FrameHeader::parse(head)?;
    assert_eq!((header.sequence, header.acknowledge), (SEQUENCE, ACKNOWLEDGE));
    Frame::parse(&header, body)
}

fn limits() -> CreditLimits {
    let lane = |headers| Amount { headers, data: headers + 1 };
    CreditLimits::new(lane(1), lane(3), lane(5))
}

fn hello() -> Hello<'static> {
    Hello {
        version_low: 1,
        version_high: 3,
        role: Role::Upstream,
        outcome: Outcome::Asked,
        session: SessionId(5),
        instance: InstanceId([6; 16]),
        oldest: Sequence::from_bits(4),
        limits: Limits { max_payload: 512, hold: Nanos::from_secs(10), silence: Nanos::from_secs(5) },
        credits: limits(),
        name: "größer",
        vendor: "",
        device: "xyz",
        wants_stamps: true,
        secret: Some(Secret([8; 16])),
        ahead: 0x1234_5678,
        wants_tally: true,
        wants_registers: true,
        strands: 4,
        member: Some(Member { session: SessionId(9), strand: 3 }),
        digests: true,
        time: Some(NetworkTime { ahead_ns: -7, error: Nanos::new(900), grandmaster: [1; 8] }),
    }
}

fn ahead() -> Ahead {
    let (key, completer) = (AheadKey(9), pcie::wire::Bdf::new(1, 2, 3));
    Ahead { address: 0x1_0000_0040, key, completer, payload_size: 256, once: true }
}

fn registers() -> Registers {
    let registers =
        std::vec![Register { value: 0x0010_fa1a, writable: 0 }, Register { value: 6, writable: 7 }];
    Registers { function: 3, space: RegisterSpace::Bar(2), offset: 0x10, registers }
}

fn samples() -> Vec<Frame<'static>> {
    let stamps = Stamps { sent_at: Instant::from_nanos(5), received_at: Instant::from_nanos(3) };
    std::vec![
        Frame::Hello(hello()),
        Frame::Welcome(Hello { outcome: Outcome::Resumed, role: Role::Downstream, secret: None, ..hello() }),
        Frame::Refuse(RefuseCode::InUse, "in use"),
        Frame::Refuse(RefuseCode::Other(99), ""),
        Frame::Close(CloseCode::Overrun, "too much"),
        Frame::Tlp(None, &[7; 16]),
        Frame::Tlp(Some(stamps), &[7; 12]),
        Frame::Reset(ResetPhase::Request),
        Frame::Reset(ResetPhase::Done),
        Frame::Credit(limits()),
        Frame::Ahead(ahead(), &[7; 64]),
        Frame::Forget(Keys(&[0, 0, 0, 1, 0, 0, 0, 2])),
        Frame::Tally(Tally {
            hits: 1,
            misses: 2,
            bytes_answered: 3,
            bytes_received: 1 << 40,
            bytes_in_vain: 5,
            evicted: 6
        }),
        Frame::Registers(registers()),
        Frame::Ping(Instant::from_nanos(1)),
        Frame::Pong(Pong {
            ping_sent_at: Instant::from_nanos(1),
            ping_received_at: Instant::from_nanos(2),
            sent_at: Instant::from_nanos(3),
        }),
    ]
}

#[test]
fn every_frame_comes_back_as_it_went() {
    for frame in samples() {
        assert_eq!(parse(&emit(&frame)).as_ref(), Ok(&frame));
    }
}

#[test]
fn a_frame_cut_at_any_byte_is_truncated() {
    for frame in samples() {
        let bytes = emit(&frame);
        for length in 0..bytes.len() {
            let error = parse(&bytes[..length]);
            assert!(matches!(error, Err(FrameError::Truncated { .. })), "{frame:?} at {length}: {error:?}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(parse(&longer), Err(FrameError::Excess { .. })));
    }
}

/// The frame with the bytes at `offset` replaced.
fn with(frame: &Frame<'_>, offset: usize, change: &[u8]) -> Vec<u8> {
    let mut bytes = emit(frame);
    bytes[offset..][..change.len()].copy_from_slice(change);
    bytes
}

#[test]
fn each_rule_has_its_error() {
    let first = Frame::Hello(hello());
    let body = HEADER_LENGTH;
    let options = body + 48;
    let kind = FrameKind::Hello;
    let cases = [
        (with(&first, 0, &[0x47]), FrameError::UnknownKind(0x47)),
        (with(&first, 1, &[1]), FrameError::UnknownFlags { kind, flags: 1 }),
        (with(&first, 2, &[0xff, 0xfc]), FrameError::Length { kind, length: 0xfffc }),
        (with(&first, body, b"GET / HT"), FrameError::Magic(*b"GET / HT")),
        (with(&first, body + 8, &[0, 4]), FrameError::VersionRange { low: 4, high: 3 }),
        (with(&first, body + 12, &[3]), FrameError::UnknownRole(3)),
        (with(&first, body + 13, &[1]), FrameError::UnknownOutcome(1)),
        (with(&first, body + 15, &[1]), FrameError::Reserved { kind, offset: 14 }),
        (with(&first, options, &[0x81, 0]), FrameError::UnknownMandatoryOption(0x8100)),
        (with(&first, options, &[1, 0]), FrameError::MissingOption(0x8001)),
        (with(&first, options + 2, &[9, 0]), FrameError::OptionLength { option: 0x8001, length: 0x900 }),
        (with(&first, options + 4, &[0, 64]), FrameError::OptionValue(0x8001)),
        (with(&first, options + 16, &[0x80, 1]), FrameError::RepeatedOption(0x8001)),
        (with(&first, options + 48, &[7]), FrameError::Text { kind, offset: 96 }),
        (with(&first, options + 63, &[7]), FrameError::Reserved { kind, offset: 111 }),
        (with(&Frame::Reset(ResetPhase::Done), 15, &[3]), FrameError::UnknownReset(3)),
    ];
    let ahead = Frame::Ahead(ahead(), &[7; 64]);
    let kind = FrameKind::Ahead;
    let of_ahead = [
        (with(&ahead, body + 7, &[0x42]), FrameError::Reserved { kind, offset: 0 }),
        (with(&ahead, body + 8, &[0, 0, 0, 0]), FrameError::Reserved { kind, offset: 8 }),
        (with(&ahead, body + 14, &[6]), FrameError::Reserved { kind, offset: 14 }),
        (with(&ahead, body + 15, &[2]), FrameError::Reserved { kind, offset: 15 }),
        (
            with(&ahead, body, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc]),
            FrameError::Length { kind, length: 80 },
        ),
    ];
    for (bytes, error) in cases.into_iter().chain(of_ahead) {
        assert_eq!(parse(&bytes), Err(error), "{error}");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn texts_are_cut_between_characters() {
    let long = "ä".repeat(TEXT_MAX);
    let bytes = emit(&Frame::Close(CloseCode::Normal, &long));
    assert_eq!(parse(&bytes), Ok(Frame::Close(CloseCode::Normal, &long[..TEXT_MAX])));
    assert_eq!(clip("aä", 2), "a");
}

#[test]
fn instances_are_written_as_uuids() {
    let id = InstanceId(core::array::from_fn(|index| u8::try_from(index).unwrap()));
    assert_eq!(format!("{id}"), "00010203-0405-0607-0809-0a0b0c0d0e0f");
}

proptest! {
    #[test]
    fn whatever_parses_is_emitted_alike(bytes in prop::collection::vec(any::<u8>(), 12..80), kind in 0_usize..11) {
        let mut bytes = bytes;
        bytes[0] = [1, 2, 3, 4, 0x10, 0x11, 0x12, 0x13, 0x14, 0x20, 0x21][kind];
        let length = u16::try_from(bytes.len() - HEADER_LENGTH).unwrap();
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..12].copy_from_slice(&[0, 0, 0, 7, 0, 0, 0, 9]);
        if let Ok(frame) = parse(&bytes)
            && !matches!(frame, Frame::Hello(_) | Frame::Welcome(_))
        {
            prop_assert_eq!(emit(&frame), bytes);
        }
    }
}
