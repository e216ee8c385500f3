//! Firmware Image Download, Firmware Commit, and the slots.

use super::*;

/// Downloads `bytes` in pieces of at most 4 KiB.
fn download(bench: &mut Bench, bytes: &[u8]) {
    for (index, piece) in (0..).zip(bytes.chunks(4096)) {
        bench.host_data = piece.to_vec();
        let dwords = u32::try_from(piece.len().div_ceil(4)).unwrap();
        bench.succeeds(ADMIN, piece_of(index * 1024, dwords));
    }
}

fn piece_of(offset: u32, dwords: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10: dwords - 1, cdw11: offset, ..admin(AdminOpcode::FirmwareImageDownload) }
}

fn commit(slot: u32, action: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10: slot | action << 3, ..admin(AdminOpcode::FirmwareCommit) }
}

#[test]
fn an_image_is_downloaded_stored_and_active_after_a_reset() {
    let mut bench = Bench::new();
    let own = env!("CARGO_PKG_VERSION").as_bytes();
    let page = bench.identify(0x01, 0);
    assert_eq!((page[260], page[319]), (0b0111, 0xff));
    let image = FirmwareImage::new("R2", &[3; 10_001]);
    download(&mut bench, image.bytes());
    bench.succeeds(ADMIN, commit(2, 0));
    let log = bench.log(LogPage::FirmwareSlot, 512);
    assert_eq!((log[0], &log[8..13], &log[16..24], log[24]), (1, &own[..5], &b"R2      "[..], 0));
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    assert_eq!(&bench.identify(0x01, 0)[64..69], &own[..5], "stored is not activated");
    bench.succeeds(ADMIN, commit(2, 2));
    assert_eq!(bench.log(LogPage::FirmwareSlot, 512)[0], 0x21);
    bench.fails(
        ADMIN,
        SubmissionQueueEntry { cdw10: 2, ..admin(AdminOpcode::Sanitize) },
        StatusCode::FirmwareActivationRequiresControllerLevelReset,
    );
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    assert_eq!(&bench.identify(0x01, 0)[64..72], b"R2      ");
    assert!(bench.notified.contains(&Notification::FirmwareActivated { slot: 2 }));
    // The controller chooses a slot that is not active.
    download(&mut bench, FirmwareImage::new("R3", &[]).bytes());
    bench.succeeds(ADMIN, commit(0, 1));
    assert_eq!(bench.log(LogPage::FirmwareSlot, 512)[0], 0x32);
    // After a power cycle instead of a reset, the notifications restore the same state.
    let mut config = bench.subsystem.config().clone();
    for notification in &bench.notified {
        match notification {
            Notification::FirmwareStored { slot, image } => {
                config.firmware.images[usize::from(*slot) - 2] = Some(image.as_ref().clone());
            }
            Notification::FirmwareSelected { slot } => config.firmware.active = *slot,
            _ => (),
        }
    }
    let mut again = Bench::with(config);
    assert_eq!(&again.identify(0x01, 0)[64..72], b"R3      ");
    let log = again.log(LogPage::FirmwareSlot, 512);
    assert_eq!((log[0], &log[16..18], &log[24..26]), (3, &b"R2"[..], &b"R3"[..]));
    again.succeeds(ADMIN, commit(1, 2));
    again.subsystem.reset(again.now, again.controller);
    again.drain();
    assert_eq!(&again.identify(0x01, 0)[64..69], &own[..5]);
}

#[test]
fn invalid_images_and_slots_are_refused() {
    let mut bench = Bench::new();
    bench.fails(ADMIN, commit(2, 0), StatusCode::InvalidFirmwareImage);
    let image = FirmwareImage::new("R2", &[3; 8000]);
    let mut bad = image.bytes().to_vec();
    bad[5000] ^= 1;
    download(&mut bench, &bad);
    bench.fails(ADMIN, commit(2, 1), StatusCode::InvalidFirmwareImage);
    assert_eq!(bench.log(LogPage::FirmwareSlot, 512)[0], 1);
    download(&mut bench, image.bytes());
    bench.host_data = vec![0; 4];
    bench.fails(ADMIN, piece_of(4, 1), StatusCode::OverlappingRange);
    for (slot, action, code) in [
        (1, 0, StatusCode::InvalidFirmwareSlot),
        (4, 1, StatusCode::InvalidFirmwareSlot),
        (2, 2, StatusCode::InvalidFirmwareSlot),
        (0, 2, StatusCode::InvalidFirmwareSlot),
        (2, 3, StatusCode::InvalidField),
        (2, 7, StatusCode::InvalidField),
    ] {
        bench.fails(ADMIN, commit(slot, action), code);
    }
    bench.fails(ADMIN, piece_of(1 << 20, 1), StatusCode::InvalidField);
    bench.fails(ADMIN, piece_of(u32::MAX, 1), StatusCode::InvalidField);
    bench.fails(ADMIN, piece_of(0, (128 << 10) / 4 + 1), StatusCode::InvalidField);
    let whole = SubmissionQueueEntry { cdw10: u32::MAX, ..piece_of(0, 1) };
    bench.fails(ADMIN, whole, StatusCode::InvalidField);
    bench.succeeds(ADMIN, commit(2, 0));
    // A reset drops the download, and an image with a gap is refused.
    download(&mut bench, image.bytes());
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    bench.fails(ADMIN, commit(2, 0), StatusCode::InvalidFirmwareImage);
    bench.host_data = image.bytes()[..4096].to_vec();
    bench.succeeds(ADMIN, piece_of(0, 1024));
    bench.succeeds(ADMIN, piece_of(1025, 900));
    bench.fails(ADMIN, commit(2, 0), StatusCode::InvalidFirmwareImage);
}
