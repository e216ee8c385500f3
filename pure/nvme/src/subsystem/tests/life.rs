//! The Persistent Event log and Telemetry: the device's records and reports about itself.

use super::*;
use crate::wire::log::{PersistentEventHeader, TelemetryHeader};

/// Get Log Page of the Persistent Event log with an action.
fn events(action: u32, bytes: u32) -> SubmissionQueueEntry {
    let entry = log(LogPage::PersistentEvent, bytes);
    SubmissionQueueEntry { cdw10: entry.cdw10 | action << 8, ..entry }
}

/// The types and data of the events in a log, newest first.
fn list(log: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut rest = &log[512..usize::try_from(u64_at(log, 8)).unwrap()];
    let mut list = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk()
        && list.len() < u32_at(log, 4) as usize
    {
        let header = PersistentEventHeader::parse(header);
        assert_eq!((header.revision, header.header_length, header.controller), (1, 21, 1));
        let (data, after) = after.split_at(header.length.into());
        list.push((header.kind, data.to_vec()));
        rest = after;
    }
    list
}

#[test]
fn events_are_read_in_a_context() {
    let mut bench = Bench::new();
    assert_eq!(u32_at(&bench.identify(0x01, 0), 352), 1);
    bench.fails(ADMIN, events(0, 512), StatusCode::CommandSequenceError);
    bench.succeeds(ADMIN, events(2, 512));
    bench.succeeds(ADMIN, events(1, 4096));
    let page = bench.pushed.clone();
    assert_eq!((page[0], u32_at(&page, 4), page[16], u16_at(&page, 18)), (0x0d, 2, 2, 492));
    assert_eq!((u64_at(&page, 44), &page[56..59], u16_at(&page, 372)), (1, &b"S1 "[..], 1));
    assert!(page[116..].starts_with(b"nqn.2026-01.io.farlane:S1\0"));
    assert_eq!(page[480..482], [0b1101_1110, 0b111]);
    let found = list(&page);
    assert_eq!(found.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [1, 4]);
    assert_eq!((found[0].1.len(), found[1].1.len()), (512, 44));
    bench.fails(ADMIN, events(1, 512), StatusCode::CommandSequenceError);
    // Events after the establishment are not in the context.
    bench.host_data = 77_u64.to_le_bytes().to_vec();
    bench.succeeds(ADMIN, set(FeatureId::Timestamp, 0));
    bench.succeeds(ADMIN, SubmissionQueueEntry { cdw12: 512, ..events(0, 64) });
    assert_eq!(bench.pushed, page[512..576]);
    bench.succeeds(ADMIN, events(2, 512));
    bench.fails(ADMIN, events(0, 512), StatusCode::CommandSequenceError);
    bench.succeeds(ADMIN, events(3, 512));
    assert_eq!((u32_at(&bench.pushed, 4), u16_at(&bench.pushed, 372)), (3, 2));
    bench.succeeds(ADMIN, events(0, 4096));
    let newest = list(&bench.pushed)[0].clone();
    assert_eq!((newest.0, newest.1.len(), newest.1[0]), (3, 16, 0));
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    bench.fails(ADMIN, events(0, 512), StatusCode::CommandSequenceError);
    let reset = PersistentEventHeader::parse(bench.recorded.last().unwrap().bytes().first_chunk().unwrap());
    assert_eq!((reset.kind, reset.timestamp), (4, 77 | 0b10 << 48), "a reset has its time");
    assert_eq!(u32_at(&bench.log(LogPage::SupportedLogPages, 1024), 0x0d * 4), 1 | 1 << 16);
}

#[test]
fn everything_that_matters_is_an_event_and_outlives_a_power_cycle() {
    let mut bench =
        Bench::with(Config::new("S1").with_namespace(MediumId(0), DISK).with_pool(MediumId(1), DISK));
    bench.host_data = vec![0; 4096];
    bench.host_data[0] = 8;
    bench.host_data[8] = 8;
    bench.host_data[26] = 1;
    bench.succeeds(ADMIN, admin(AdminOpcode::NamespaceManagement));
    bench.succeeds(
        ADMIN,
        SubmissionQueueEntry {
            cdw10: 1,
            namespace: NamespaceId(2),
            ..admin(AdminOpcode::NamespaceManagement)
        },
    );
    let format =
        SubmissionQueueEntry { cdw10: 1, namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    bench.succeeds(ADMIN, format);
    bench.media_error = Some(MediaError::Write);
    bench.fails(ADMIN, format, StatusCode::WriteFault);
    bench.media_error = None;
    bench.succeeds(ADMIN, SubmissionQueueEntry { cdw10: 2, ..admin(AdminOpcode::Sanitize) });
    bench.settle();
    bench.host_data = FirmwareImage::new("R9", &[]).bytes().to_vec();
    bench.succeeds(ADMIN, SubmissionQueueEntry { cdw10: 7, ..admin(AdminOpcode::FirmwareImageDownload) });
    bench.succeeds(ADMIN, SubmissionQueueEntry { cdw10: 2 | 1 << 3, ..admin(AdminOpcode::FirmwareCommit) });
    bench.subsystem.reset(bench.now, bench.controller);
    bench.subsystem.shut_down(bench.now, bench.controller);
    bench.drain();
    bench.succeeds(ADMIN, events(1, 16 << 10));
    let found = list(&bench.pushed);
    let kinds: Vec<_> = found.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [1, 4, 2, 10, 9, 8, 7, 8, 7, 6, 6, 1, 4]);
    let data = |index: usize| &found[index].1[..];
    assert_eq!((&data(1)[..2], data(1)[10]), (&b"R9"[..], 1), "the reset activated firmware");
    assert_eq!((&data(2)[8..10], &data(2)[16..22]), (&b"R9"[..], &[1, 2, 0, 0, 0, 0][..]));
    assert_eq!((u16_at(data(3), 0), u16_at(data(3), 2)), (0xffff, 1 | 1 << 8));
    assert_eq!((u32_at(data(4), 0), u32_at(data(4), 4)), (1 << 30 | 0b110, 2));
    assert_eq!((u32_at(data(5), 0), u32_at(data(5), 8)), (1, 0x280));
    assert_eq!((u32_at(data(6), 0), u32_at(data(6), 8)), (1, 1));
    assert_eq!(u32_at(data(7), 8), 0);
    let created = data(10);
    assert_eq!((created.len(), u32_at(created, 0), u64_at(created, 8), u64_at(created, 24)), (48, 0, 8, 8));
    assert_eq!((created[32], u32_at(created, 44), u32_at(data(9), 0)), (1, 2, 1));

    let mut config = Config::new("S1").with_namespace(MediumId(0), DISK);
    for event in &bench.recorded {
        assert_eq!(PersistentEvent::parse(event.bytes()), Some(event.clone()));
        config.events.insert(0, event.clone());
    }
    let mut again = Bench::with(config);
    again.succeeds(ADMIN, events(1, 16 << 10));
    assert_eq!(list(&again.pushed)[2..], found);
    assert_eq!(PersistentEvent::parse(&[0; 24]), None);
    assert_eq!(PersistentEvent::parse(&[0; 10]), None);
}

#[test]
fn the_event_log_is_bounded() {
    let mut bench = Bench::new();
    for _ in 0..2_000 {
        bench.subsystem.reset(bench.now, bench.controller);
    }
    bench.succeeds(ADMIN, events(3, 512));
    let (count, length) = (u32_at(&bench.pushed, 4), u64_at(&bench.pushed, 8));
    assert_eq!(length, 512 + u64::from(count) * 68);
    assert!(length <= 65_536 && length > 65_000);
}

#[test]
fn telemetry_is_a_header_and_blocks() {
    let mut bench = Bench::new();
    bench.fails(IO, io(IoOpcode::Read, 9, 0, 1), StatusCode::InvalidNamespaceOrFormat);
    let page = bench.log(LogPage::TelemetryHost, 512);
    assert_eq!((page[0], u16_at(&page, 12), page[381]), (7, 0, 0), "no snapshot exists yet");
    let create = |bytes| {
        let entry = log(LogPage::TelemetryHost, bytes);
        SubmissionQueueEntry { cdw10: entry.cdw10 | 1 << 8, ..entry }
    };
    bench.succeeds(ADMIN, create(8192));
    let page = bench.pushed.clone();
    let header = TelemetryHeader::parse(page.first_chunk().unwrap());
    let [first, second, third] = header.last_blocks.map(usize::from);
    assert_eq!((second, third, header.host_generation), (first + 3, first + 4, 1));
    assert!(page[512..].starts_with(b"Farlane"));
    let text = core::str::from_utf8(&page[512..512 * (first + 1)]).unwrap();
    assert!(text.contains("\nerrors since power-on: 1\n") && text.contains("\nnamespace 2: 1024 blocks"));
    // The health log, the self-test log, and the newest error.
    assert_eq!(page[512 * (first + 1) + 3], 100);
    assert_eq!(page[512 * (first + 2) + 4], 0xf);
    assert_eq!(u64_at(&page, 512 * (second + 1)), 1);
    // Later reads return the same snapshot, in whole blocks.
    bench.write(0, &[1; 512]);
    assert_eq!(bench.log(LogPage::TelemetryHost, 8192), page);
    bench.fails(ADMIN, log(LogPage::TelemetryHost, 516), StatusCode::InvalidField);
    let crooked = SubmissionQueueEntry { cdw12: 256, ..log(LogPage::TelemetryHost, 512) };
    bench.fails(ADMIN, crooked, StatusCode::InvalidField);
    bench.fails(ADMIN, log(LogPage::TelemetryController, 64), StatusCode::InvalidField);
    bench.succeeds(ADMIN, create(512));
    assert_eq!(bench.pushed[381], 2);
}

#[test]
fn telemetry_of_many_controllers_has_a_limit() {
    let mut bench = Bench::new();
    let (wrong, status) = (io(IoOpcode::Read, 9, 0, 1), Status::from(StatusCode::InvalidField));
    for id in 2..=70 {
        let controller = bench.connect(id);
        for _ in 0..ERROR_LOG_ENTRIES {
            bench.subsystem.record_error(bench.now, controller, IO, &wrong, status);
        }
    }
    let entry = log(LogPage::TelemetryHost, 512);
    bench.succeeds(ADMIN, SubmissionQueueEntry { cdw10: entry.cdw10 | 1 << 8, ..entry });
    // 4096 entries of 64 B are 512 blocks.
    assert_eq!(u16_at(&bench.pushed, 12) - u16_at(&bench.pushed, 10), 512);
}

#[test]
fn a_fault_of_a_medium_leaves_telemetry_and_an_event() {
    let mut bench = Bench::new();
    let page = bench.log(LogPage::TelemetryController, 512);
    assert_eq!((page[0], page[382], page[383]), (8, 0, 0));
    bench.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 1 << 10));
    let event = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.media_error = Some(MediaError::Read);
    bench.fails(IO, io(IoOpcode::Read, 1, 9, 1), StatusCode::UnrecoveredReadError);
    bench.fails(IO, io(IoOpcode::Read, 1, 9, 1), StatusCode::UnrecoveredReadError);
    assert_eq!(bench.take(event).dw0, 0x0008_0202);
    assert_eq!(bench.log(LogPage::TelemetryHost, 512)[382..384], [1, 1]);
    let retain = log(LogPage::TelemetryController, 4096);
    let retain = SubmissionQueueEntry { cdw10: retain.cdw10 | 1 << 15, ..retain };
    bench.succeeds(ADMIN, retain);
    assert_eq!(bench.pushed[382..384], [1, 1], "one snapshot until it is read");
    assert!(bench.pushed[384..].starts_with(b"a medium has failed\0"));
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    bench.log(LogPage::TelemetryController, 4096);
    assert_eq!(bench.log(LogPage::TelemetryController, 512)[382..384], [0, 1]);
}

#[test]
fn a_reported_event_masks_its_type_until_its_own_log_is_read() {
    let mut bench = Bench::new();
    bench.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 1 << 10 | 1 << 8));
    let first = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    let second = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.media_error = Some(MediaError::Read);
    bench.fails(IO, io(IoOpcode::Read, 1, 9, 1), StatusCode::UnrecoveredReadError);
    assert_eq!(bench.take(first).dw0, 0x0008_0202);
    bench.subsystem.set_read_only(bench.now, NamespaceId(1), true);
    bench.drain();
    bench.log(LogPage::Smart, 512);
    assert!(!bench.completed.contains_key(&second.0), "notices are masked");
    bench.log(LogPage::TelemetryController, 512);
    assert_eq!(bench.take(second).dw0, 0x0004_0002);
}
