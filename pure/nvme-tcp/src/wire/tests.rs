//! Bytes written by hand from the transport specification's figures, and the result of parsing
//! every pattern.

use alloc::vec::Vec;

use engine::Buffer;
use nvme::wire::{CommandId, CompletionQueueEntry, SubmissionQueueEntry};
use proptest::prelude::*;

use super::*;
use crate::Outbox;
use crate::emit::Sender;

fn sent(sender: Sender, kind: PduKind, flags: Flags, data: &[u8], header: &[u8]) -> Vec<u8> {
    let mut outbox = Outbox::default();
    let data = Buffer::copy_from_slice(data);
    match header.len() {
        16 => sender.send(&mut outbox, kind, flags, data, |common| glue::<24>(common, header)),
        64 => sender.send(&mut outbox, kind, flags, data, |common| glue::<72>(common, header)),
        other => panic!("no header of {other} B"),
    }
    outbox.slices().flatten().copied().collect()
}

fn glue<const N: usize>(common: &CommonHeader, rest: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..8].copy_from_slice(&common.emit());
    bytes[8..].copy_from_slice(rest);
    bytes
}

const fn plain() -> Sender {
    Sender { agreement: Agreement::NONE, crc32c }
}

#[test]
fn an_initialize_request_is_as_linux_sends_it() {
    // Linux requests HPDA 0 and MAXR2T 0 (0's based: one R2T), here with both digests.
    let mut bytes = [0; 128];
    bytes[..12].copy_from_slice(&[0x00, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 0b11]);
    let request =
        InitializeRequest { alignment: 4, header_digest: true, data_digest: true, ready_to_transfer_max: 1 };
    assert_eq!(request.emit(), bytes);
    assert_eq!(InitializeRequest::parse(&bytes), Ok(request));
    // CPDA 3 (16 bytes), no digests, MAXH2CDATA of 128 KiB.
    let mut bytes = [0; 128];
    bytes[..16].copy_from_slice(&[0x01, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0]);
    let response = InitializeResponse {
        alignment: 16,
        header_digest: false,
        data_digest: false,
        host_data_max: 128 << 10,
    };
    assert_eq!(response.emit(), bytes);
    assert_eq!(InitializeResponse::parse(&bytes), Ok(response));
}

#[test]
fn a_capsule_with_data_is_laid_out_with_digest_and_padding() {
    // CPDA of 32 bytes and both digests: header of 72 bytes, digest of 4, padding up to 96, data of
    // 8, digest of 4.
    let agreement = Agreement { header_digest: true, data_digest: true, alignment: 32 };
    let data = [0xa5; 8];
    let entry = [7; 64];
    let bytes = sent(Sender { agreement, crc32c }, PduKind::CommandCapsule, Flags::NONE, &data, &entry);
    assert_eq!(bytes[..8], [0x04, 0b11, 72, 96, 108, 0, 0, 0]);
    assert_eq!(bytes[8..72], entry);
    assert_eq!(bytes[72..76], crc32c(0, &bytes[..72]).to_le_bytes());
    assert_eq!(bytes[76..96], [0; 20]);
    assert_eq!(bytes[96..104], data);
    assert_eq!(bytes[104..], crc32c(0, &data).to_le_bytes());
    let header = CommonHeader::parse(bytes.first_chunk().unwrap()).unwrap();
    let framing = Framing::check(&header, Receiver::Controller, agreement).unwrap();
    assert_eq!((framing.head(), framing.data_length, framing.tail()), (96, 8, 4));
    assert_eq!(CommandCapsule::parse(bytes.first_chunk().unwrap()).entry.emit(), entry);
}

#[test]
fn data_and_leave_to_send_them_have_their_fields_in_place() {
    let common = CommonHeader {
        kind: PduKind::HostData,
        flags: Flags::LAST_PDU,
        header_length: 24,
        data_offset: 24,
        length: 24 + 0x1000,
    };
    let pdu = DataHeader { command: CommandId(0x1122), tag: 0x3344, offset: 0x2000, length: 0x1000 };
    let bytes = pdu.emit(&common);
    let expected = [
        0x06, 0b100, 24, 24, 0x18, 0x10, 0, 0, 0x22, 0x11, 0x44, 0x33, 0, 0x20, 0, 0, 0, 0x10, 0, 0, 0, 0, 0,
        0,
    ];
    assert_eq!(bytes, expected);
    assert_eq!(DataHeader::parse(&bytes), pdu);
    let read = DataHeader { command: CommandId(5), tag: 0, offset: 512, length: 1024 };
    let common = CommonHeader { kind: PduKind::ControllerData, flags: Flags(0b1100), ..common };
    assert_eq!(read.emit(&common)[..16], [7, 12, 24, 24, 0x18, 0x10, 0, 0, 5, 0, 0, 0, 0, 2, 0, 0]);
    let leave = DataHeader { command: CommandId(5), tag: 9, offset: 4096, length: 8192 };
    let bytes = sent(
        plain(),
        PduKind::ReadyToTransfer,
        Flags::NONE,
        &[],
        &[5, 0, 9, 0, 0, 16, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0],
    );
    assert_eq!(bytes[..8], [0x09, 0, 24, 0, 24, 0, 0, 0]);
    assert_eq!(DataHeader::parse(bytes.first_chunk().unwrap()), leave);
}

#[test]
fn a_response_and_its_digest() {
    let entry = CompletionQueueEntry { command_id: CommandId(3), dw0: 0x11, ..Default::default() };
    let agreement = Agreement { header_digest: true, data_digest: true, alignment: 128 };
    let bytes = sent(Sender { agreement, crc32c }, PduKind::ResponseCapsule, Flags::NONE, &[], &entry.emit());
    assert_eq!(bytes[..8], [0x05, 0b01, 24, 0, 28, 0, 0, 0]);
    assert_eq!((bytes[8], bytes[20], bytes.len()), (0x11, 3, 28));
    assert_eq!(bytes[24..], crc32c(0, &bytes[..24]).to_le_bytes());
    assert_eq!(ResponseCapsule::parse(bytes.first_chunk().unwrap()).entry, entry);
}

#[test]
fn a_terminate_request_contains_the_faulty_header() {
    let (bytes, length) = TerminateRequest { fault: Fault::field(3) }.emit(Receiver::Host, &[0xee; 72]);
    assert_eq!(bytes[..16], [0x03, 0, 24, 0, 96, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0]);
    assert_eq!((length, bytes[24], bytes[95], bytes[96]), (96, 0xee, 0xee, 0));
    let (bytes, length) =
        TerminateRequest { fault: Fault::header_digest(0x0403_0201) }.emit(Receiver::Controller, &[1; 300]);
    assert_eq!(bytes[..16], [0x02, 0, 24, 0, 152, 0, 0, 0, 3, 0, 1, 2, 3, 4, 0, 0]);
    assert_eq!(length, TERMINATE_LENGTH_MAX);
    let parsed = TerminateRequest::parse(bytes.first_chunk().unwrap());
    assert_eq!(parsed.fault, Fault::header_digest(0x0403_0201));
}

/// The fault of each wrong byte of an ICReq or ICResp.
#[test]
fn each_illegal_parameter_of_the_connection_is_named() {
    let request = InitializeRequest {
        alignment: 4,
        header_digest: false,
        data_digest: false,
        ready_to_transfer_max: 4,
    };
    let with = |offset: usize, value: u8| {
        let mut bytes = request.emit();
        bytes[offset] = value;
        InitializeRequest::parse(&bytes)
    };
    assert_eq!(with(8, 1), Err(Fault::unsupported(8)));
    assert_eq!(with(9, 1), Err(Fault::unsupported(8)));
    for value in 32..=255 {
        assert_eq!(with(10, value), Err(Fault::field(10)));
    }
    assert_eq!(with(10, 31).unwrap().alignment, 128);
    for value in 4..=255 {
        assert_eq!(with(11, value), Err(Fault::field(11)));
    }
    assert_eq!(with(15, 255).unwrap().ready_to_transfer_max, 0xff00_0004);
    // Reserved bytes are ignored.
    assert_eq!(with(127, 255), Ok(request));
    let response = InitializeResponse {
        alignment: 4,
        header_digest: false,
        data_digest: false,
        host_data_max: MAXH2CDATA_MIN,
    };
    for (value, legal) in [(0_u32, false), (4095, false), (4096, true), (4098, false), (u32::MAX - 3, true)] {
        let mut bytes = response.emit();
        bytes[12..16].copy_from_slice(&value.to_le_bytes());
        let parsed = InitializeResponse::parse(&bytes).map(|response| response.host_data_max);
        assert_eq!(parsed, if legal { Ok(value) } else { Err(Fault::field(12)) });
    }
}

/// A valid header of each kind.
fn right(kind: PduKind, data: u32, agreement: Agreement) -> CommonHeader {
    agreement.frame(kind, data, Flags::NONE).0
}

/// Every value of each field of the common header, for every kind, receiver and agreement. An
/// illegal value gives the fault that names the field; a legal value is accepted.
#[test]
fn each_illegal_common_header_is_named() {
    let agreements =
        [(false, false, 4), (true, false, 4), (true, true, 4), (false, true, 16), (true, true, 128)];
    for (header_digest, data_digest, alignment) in agreements {
        let agreement = Agreement { header_digest, data_digest, alignment };
        for kind in PduKind::ALL {
            let receiver = if kind.is_from_host() { Receiver::Controller } else { Receiver::Host };
            let other = if kind.is_from_host() { Receiver::Host } else { Receiver::Controller };
            for data in if kind.may_have_data() { &[0_u32, 4, 64][..] } else { &[0][..] } {
                let header = right(kind, *data, agreement);
                let framing = Framing::check(&header, receiver, agreement);
                assert_eq!(framing.map(|framing| framing.data_length), Ok(*data), "{header:?}");
                assert_eq!(Framing::check(&header, other, agreement), Err(Fault::field(0)));
                each_field(header, receiver, agreement, *data);
            }
        }
    }
    let reserved = (0..=255_u8).filter(|raw| PduKind::from_raw(*raw).is_none());
    for raw in reserved {
        assert_eq!(CommonHeader::parse(&[raw, 0, 24, 0, 24, 0, 0, 0]), Err(Fault::field(0)));
    }
}

fn each_field(header: CommonHeader, receiver: Receiver, agreement: Agreement, data: u32) {
    let check = |header: CommonHeader| Framing::check(&header, receiver, agreement);
    let kind = header.kind;
    for flags in 0..=255_u8 {
        let flags = Flags(flags);
        let legal_others = !flags.has_others_than(kind.flags());
        let header_digest = flags.has(Flags::HEADER_DIGEST) == header.flags.has(Flags::HEADER_DIGEST);
        let spare = data == 0 && agreement.data_digest && kind.may_have_data() && kind.may_have_digest();
        let data_digest = flags.has(Flags::DATA_DIGEST) == header.flags.has(Flags::DATA_DIGEST) || spare;
        let success = !flags.has(Flags::SUCCESS) || flags.has(Flags::LAST_PDU);
        let legal = legal_others && header_digest && data_digest && success;
        let result = check(CommonHeader { flags, ..header });
        assert_eq!(result.is_ok(), legal, "{flags:?} of {header:?} under {agreement:?}");
        assert!(legal || result == Err(Fault::field(1)));
    }
    for header_length in (0..=255).filter(|length| *length != header.header_length) {
        assert_eq!(check(CommonHeader { header_length, ..header }), Err(Fault::field(2)));
    }
    for data_offset in 0..=255_u8 {
        let result = check(CommonHeader { data_offset, ..header });
        let head = kind.header_length() + if header.flags.has(Flags::HEADER_DIGEST) { 4 } else { 0 };
        let legal = match (kind.may_have_digest(), data) {
            (false, _) => data_offset == 0,
            (true, 0) => true,
            (true, _) => usize::from(data_offset) >= head && data_offset.is_multiple_of(agreement.alignment),
        };
        // A legal offset may leave no room for data. Then the length is wrong.
        match result {
            Ok(_) => assert!(legal, "PDO {data_offset} of {header:?}"),
            Err(fault) if legal => assert_eq!(fault, Fault::field(4)),
            Err(fault) => assert_eq!(fault, Fault::field(3)),
        }
        if kind.may_have_digest() && data > 0 {
            let length = header.length + 300;
            let result = check(CommonHeader { data_offset, length, ..header });
            assert_eq!(result.map(Framing::length), if legal { Ok(length) } else { Err(Fault::field(3)) });
        }
    }
    for length in 0..=header.length + 200 {
        let result = check(CommonHeader { length, ..header });
        let parts = result.map(|framing| framing.length());
        assert!(parts.is_err() || parts == Ok(length), "PLEN {length} of {header:?}: {result:?}");
        if length < kind.header_length().try_into().unwrap() {
            assert!(result.is_err());
        }
    }
    let _ = check(CommonHeader { length: u32::MAX, ..header });
}

proptest! {
    /// Every emitted structure parses to the same value.
    #[test]
    fn sent_structures_are_understood(
        kind in prop::sample::select(&PduKind::ALL[4..]),
        digests: (bool, bool),
        dwords in 1_u8..=32,
        data in prop::collection::vec(any::<u8>(), 0..3000),
        entry: [u8; 32], rest: [u8; 32],
    ) {
        let agreement = Agreement { header_digest: digests.0, data_digest: digests.1, alignment: dwords * 4 };
        let data = if kind.may_have_data() { data } else { Vec::new() };
        let whole = [entry, rest].concat();
        let header = &whole[..kind.header_length() - 8];
        let bytes = sent(Sender { agreement, crc32c }, kind, Flags::NONE, &data, header);
        let common = CommonHeader::parse(bytes.first_chunk().unwrap()).unwrap();
        let receiver = if kind.is_from_host() { Receiver::Controller } else { Receiver::Host };
        let framing = Framing::check(&common, receiver, agreement).unwrap();
        prop_assert_eq!(framing.length() as usize, bytes.len());
        prop_assert_eq!(&bytes[8..kind.header_length()], header);
        prop_assert_eq!(&bytes[framing.head()..framing.head() + framing.data_length as usize], &data[..]);
        if kind == PduKind::CommandCapsule {
            let parsed = CommandCapsule::parse(bytes.first_chunk().unwrap());
            prop_assert_eq!(parsed.entry, SubmissionQueueEntry::parse(whole[..64].first_chunk().unwrap()));
        }
    }

    #[test]
    fn no_common_header_is_too_strange(bytes: [u8; 8], digests: (bool, bool), dwords in 1_u8..=32) {
        let agreement = Agreement { header_digest: digests.0, data_digest: digests.1, alignment: dwords * 4 };
        if let Ok(header) = CommonHeader::parse(&bytes) {
            prop_assert_eq!(header.emit(), bytes);
            for receiver in [Receiver::Controller, Receiver::Host] {
                if let Ok(framing) = Framing::check(&header, receiver, agreement) {
                    prop_assert_eq!(framing.length(), header.length);
                }
            }
        }
    }
}
