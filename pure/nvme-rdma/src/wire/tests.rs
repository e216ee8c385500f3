use alloc::string::ToString;
use alloc::vec::Vec;

use nvme::wire::{QueueId, StatusCode, SubmissionQueueEntry};
use proptest::prelude::*;
use rdma::{Key, Remote};

use super::*;

/// The private data that Linux's host sends for its first I/O queue of 128 entries of controller 5:
/// hrqsize 128, hsqsize 127 (nvme_rdma_route_resolved).
const LINUX: [u8; 32] =
    [0, 0, 1, 0, 128, 0, 127, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_request_is_that_of_linux() {
    let request = Request { queue: QueueId(1), host_receives: 128, host_sends: 128, controller_id: 5 };
    assert_eq!(request.emit(), LINUX);
    assert_eq!(Request::parse(&LINUX), Ok(request));
    // InfiniBand and RoCE fill private data up.
    let mut long = LINUX.to_vec();
    long.resize(56, 0);
    assert_eq!(Request::parse(&long), Ok(request));
}

#[test]
fn private_data_cut_at_each_byte_are_too_short() {
    let acceptance = Acceptance { controller_receives: 128 }.emit();
    for length in 0..32 {
        assert_eq!(Request::parse(&LINUX[..length]), Err(Rejection::PrivateDataLength));
        assert_eq!(Acceptance::parse(&acceptance[..length]), Err(PrivateDataError::Length(length)));
    }
    for length in 0..Rejection::LENGTH {
        assert_eq!(Rejection::parse(&Rejection::NoResources.emit()[..length]), None);
    }
}

#[test]
fn sizes_and_formats_are_checked() {
    let with = |offset: usize, word: u16| {
        let mut bytes = LINUX;
        bytes[offset..offset + 2].copy_from_slice(&word.to_le_bytes());
        Request::parse(&bytes)
    };
    assert_eq!(with(0, 1), Err(Rejection::RecordFormat));
    assert_eq!(with(4, 0), Err(Rejection::HostReceiveQueueSize));
    assert_eq!(with(4, 126), Err(Rejection::HostReceiveQueueSize));
    // Both counted from 0.
    assert_eq!(with(4, 127).map(|request| request.host_sends), Ok(128));
    assert_eq!(with(6, 0).map(|request| request.host_sends), Ok(1));
    let all = [0, 0, 0, 0, 255, 255, 255, 255].into_iter().chain([0; 24]).collect::<Vec<u8>>();
    assert_eq!(Request::parse(&all).map(|request| request.host_sends), Ok(65536));
    assert_eq!(Acceptance::parse(&[0; 32]), Err(PrivateDataError::NoReceives));
    assert_eq!(Acceptance::parse(&[1; 32]), Err(PrivateDataError::RecordFormat(0x101)));
}

#[test]
fn every_reason_is_produced_and_understood() {
    for status in 0..=20 {
        let reason = Rejection::parse(&[0, 0, status, 0]).unwrap();
        assert_eq!(reason.status(), status.into());
        assert_eq!(reason.emit(), [0, 0, status, 0]);
        assert_eq!(matches!(reason, Rejection::Other(_)), !(1..=9).contains(&status));
        assert!(!reason.to_string().is_empty());
    }
    assert_eq!(Rejection::parse(&[0, 0, 6, 0, 9, 9]), Some(Rejection::NoResources));
    assert_eq!(Rejection::parse(&[1, 0, 6, 0]), None);
}

#[test]
fn descriptors_are_those_of_the_specification() {
    let entry = SubmissionQueueEntry::default();
    let remote = Remote { key: Key(0x1234_5678), address: 0x0102_0304_0506_0708, length: 0x01_2345 };
    // Linux's descriptors: no data; data in the capsule; a key that the response invalidates.
    let none = DataPointer::NONE.put(entry).emit();
    assert_eq!(none[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40]);
    assert_eq!(none[1], 0x40);
    let inside = DataPointer::InCapsule { offset: 0, length: 0x400 }.put(entry).emit();
    assert_eq!(inside[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0x01]);
    let keyed = DataPointer::Keyed { remote, invalidate: true }.put(entry).emit();
    let expected = [8, 7, 6, 5, 4, 3, 2, 1, 0x45, 0x23, 0x01, 0x78, 0x56, 0x34, 0x12, 0x4f];
    assert_eq!(keyed[24..40], expected);
    // A null key means that nothing is invalidated.
    let key = |remote, invalidate| DataPointer::Keyed { remote, invalidate }.key_to_invalidate();
    assert_eq!(key(remote, true), Some(remote.key));
    assert_eq!(key(remote, false), None);
    assert_eq!(key(Remote { length: 0, ..remote }, true), None);
}

#[test]
fn other_descriptors_are_refused() {
    let entry = SubmissionQueueEntry::default();
    assert_eq!(DataPointer::of(&entry), DataPointer::Invalid(StatusCode::InvalidField));
    // A data block without key, segments with and without key, a bit bucket, the transport's own.
    for identifier in [0x00_u64, 0x10, 0x20, 0x30, 0x41, 0x50, 0x5a, 0xff] {
        let entry = SubmissionQueueEntry { flags: 0x40, data_pointer: [0, identifier << 56], ..entry };
        assert_eq!(DataPointer::of(&entry), DataPointer::Invalid(StatusCode::SglDescriptorTypeInvalid));
    }
}

proptest! {
    #[test]
    fn requests_and_pointers_come_back(
        words in any::<[u16; 4]>(),
        address in any::<u64>(),
        key in any::<u32>(),
        length in 0_u32..1 << 24,
        invalidate in any::<bool>(),
    ) {
        let [queue, a, b, controller_id] = words;
        let (most, least) = (a.max(b).max(1), a.min(b));
        let request = Request {
            queue: QueueId(queue),
            host_receives: most,
            host_sends: u32::from(least) + 1,
            controller_id,
        };
        prop_assert_eq!(Request::parse(&request.emit()), Ok(request));
        let remote = Remote { key: Key(key), address, length };
        for pointer in [
            DataPointer::Keyed { remote, invalidate },
            DataPointer::InCapsule { offset: address, length: key },
        ] {
            let put = pointer.put(SubmissionQueueEntry::default());
            prop_assert_eq!(DataPointer::of(&put), pointer);
        }
    }
}
