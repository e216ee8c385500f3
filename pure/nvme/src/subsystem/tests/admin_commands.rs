//! Identify, features, logs, events and Format NVM.

use engine::Nanos;

use super::super::admin::{ADMIN_COMMANDS, IO_COMMANDS};
use super::*;
use crate::wire::identify::{IdentifyController, IdentifyNamespace, NamespaceDescriptor, namespace_list};
use crate::wire::log::SmartLog;

#[test]
fn identify_controller_stands_at_the_specification_s_offsets() {
    let page = Bench::new().identify(0x01, 0);
    assert_eq!(&page[4..24], b"S1                  ");
    assert_eq!((page[77], u16_at(&page, 78), u32_at(&page, 80)), (5, 1, 0x2_0000));
    assert_eq!((u32_at(&page, 92), page[111]), (0x100, 1));
    assert_eq!((u16_at(&page, 256), page[259], page[261], page[262]), (0b1_1110, 3, 0b11_1110, 63));
    assert_eq!((page[512], page[513], u32_at(&page, 516)), (0x66, 0x44, 2));
    assert_eq!((u16_at(&page, 520), page[525]), (0b1_1101_1111, 0b111));
    assert!(page[768..].starts_with(b"nqn.2026-01.io.farlane:S1\0"));
    let parsed = IdentifyController::parse(page.first_chunk().unwrap());
    let mut again = [0; 4096];
    parsed.emit(&mut again);
    assert_eq!(again[..], page[..]);
}

#[test]
fn identify_namespace_and_lists() {
    let mut bench = Bench::new();
    let page = bench.identify(0x00, 1);
    assert_eq!((u64_at(&page, 0), u64_at(&page, 8), u64_at(&page, 16)), (2048, 2048, 2048));
    assert_eq!((page[25], page[26], u64_at(&page, 48)), (3, 0, DISK));
    assert_eq!((page[130], page[134]), (9, 12));
    let namespace = IdentifyNamespace::parse(page.first_chunk().unwrap());
    assert_eq!(namespace.block_bytes(), Some(512));
    let identity = NamespaceIdentity::derived("S1/1");
    assert_eq!((&page[104..120], &page[120..128]), (&identity.nguid[..], &identity.eui64[..]));

    for cns in [0x02, 0x07, 0x10, 0x1a] {
        let all = bench.identify(cns, 0);
        assert!(namespace_list(&all).eq([NamespaceId(1), NamespaceId(2)]));
        assert!(namespace_list(&bench.identify(cns, 1)).eq([NamespaceId(2)]));
    }
    let descriptors = bench.identify(0x03, 1);
    assert_eq!(&descriptors[..4], [1, 8, 0, 0]);
    assert!(NamespaceDescriptor::list(&descriptors).eq([
        NamespaceDescriptor::Eui64(identity.eui64),
        NamespaceDescriptor::Nguid(identity.nguid),
        NamespaceDescriptor::Uuid(identity.uuid),
        NamespaceDescriptor::CommandSet(0),
    ]));
    assert_eq!(bench.identify(0x08, 1)[14], 1);
    assert_eq!(bench.identify(0x13, 0)[..4], [1, 0, 1, 0]);
    assert_eq!(bench.identify(0x12, 2)[..4], [1, 0, 1, 0]);
    assert_eq!(bench.identify(0xffff_0000 | 0x1c, 0)[0], 1);
    assert_eq!(bench.identify(0x0001_0000 | 0x1c, 0)[0], 1);
    bench.fails(ADMIN, identify(0x0002_0000 | 0x1c, 0), StatusCode::InvalidField);
}

#[test]
fn identify_refuses_absent_structures() {
    let mut bench = Bench::new();
    for cns in [0x04, 0x09, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0xff] {
        bench.fails(ADMIN, identify(cns, 0), StatusCode::InvalidField);
    }
    for (cns, namespace) in [(0, 0), (0, 3), (0x11, u32::MAX), (3, 0), (3, 9), (2, u32::MAX), (0x12, 7)] {
        bench.fails(ADMIN, identify(cns, namespace), StatusCode::InvalidNamespaceOrFormat);
    }
    let zoned = SubmissionQueueEntry { cdw11: 2 << 24, ..identify(0x06, 0) };
    bench.fails(ADMIN, zoned, StatusCode::InvalidField);
}

#[test]
fn an_inactive_identifier_reads_as_zeroes() {
    let mut config = Config::new("S").with_namespace(MediumId(0), DISK);
    config.namespaces[0].id = NamespaceId(5);
    let mut bench = Bench::with(config);
    assert_eq!(bench.identify(0, 2), vec![0; 4096]);
    assert!(namespace_list(&bench.identify(2, 0)).eq([NamespaceId(5)]));
}

#[test]
fn every_command_of_the_tables_is_known_and_no_other() {
    let mut bench = Bench::new();
    let effects = bench.log(LogPage::CommandEffects, 4096);
    for opcode in 0..=u8::MAX {
        for (queue, base) in [(ADMIN, 0), (IO, 1024)] {
            let supported = u32_at(&effects, base + usize::from(opcode) * 4) & 1 != 0;
            let queue_command = queue == ADMIN && [0, 1, 4, 5].contains(&opcode);
            let token = bench.send(queue, SubmissionQueueEntry { opcode, ..Default::default() });
            let code = bench.completed.remove(&token.0).map(|completion| completion.status.code());
            let known = code != Some(StatusCode::InvalidCommandOpcode);
            assert_eq!(known, supported && !queue_command, "{queue:?} {opcode:#x}");
        }
    }
    assert_eq!((ADMIN_COMMANDS.len(), IO_COMMANDS.len()), (15, 13));
}

#[test]
fn the_error_log_is_newest_first_bounded_and_read_in_parts() {
    let mut bench = Bench::new();
    for _ in 0..70 {
        bench.fails(IO, io(IoOpcode::ReservationReport, 1, 0, 1), StatusCode::InvalidCommandOpcode);
    }
    let whole = bench.log(LogPage::ErrorInformation, 4096 + 64);
    let counts: Vec<_> = whole.chunks(64).map(|entry| u64_at(entry, 0)).collect();
    assert_eq!((counts[0], counts[63], counts[64]), (70, 7, 0));
    assert_eq!((u16_at(&whole, 8), u16_at(&whole, 12) >> 1, u16_at(&whole, 14)), (1, 0x4001, 0));
    bench.succeeds(ADMIN, SubmissionQueueEntry { cdw12: 64, ..log(LogPage::ErrorInformation, 64) });
    assert_eq!(u64_at(&bench.pushed, 0), 69);
    for bad in [
        SubmissionQueueEntry { cdw12: 3, ..log(LogPage::ErrorInformation, 64) },
        SubmissionQueueEntry { cdw12: 5000, ..log(LogPage::ErrorInformation, 64) },
        SubmissionQueueEntry { cdw14: 1 << 23, ..log(LogPage::ErrorInformation, 64) },
        log(LogPage::ErrorInformation, (128 << 10) + 4),
        SubmissionQueueEntry { namespace: NamespaceId(1), ..log(LogPage::Smart, 512) },
    ] {
        bench.fails(ADMIN, bad, StatusCode::InvalidField);
    }
    bench.fails(ADMIN, log(LogPage::Other(0x70), 64), StatusCode::InvalidLogPage);
}

#[test]
fn the_health_log_counts() {
    let mut bench = Bench::new();
    for _ in 0..9 {
        bench.write(0, &[5; 128 << 10]);
    }
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    bench.now = Instant::ZERO + Nanos::from_secs(7300);
    bench.fails(IO, io(IoOpcode::Read, 9, 0, 1), StatusCode::InvalidNamespaceOrFormat);
    let page = bench.log(LogPage::Smart, 512);
    let smart = SmartLog::parse(page.first_chunk().unwrap());
    // 9 x 256 blocks are 2.304 thousand units, rounded up.
    assert_eq!((smart.data_units_written, smart.data_units_read), (3, 1));
    assert_eq!((smart.host_writes, smart.host_reads, smart.power_cycles), (9, 1, 1));
    assert_eq!((smart.power_on_hours, smart.error_entries, smart.temperature), (2, 1, 300));
    assert_eq!((u16_at(&page, 1), page[48], page[176]), (300, 3, 1));
    let slot = bench.log(LogPage::FirmwareSlot, 512);
    assert_eq!((slot[0], &slot[8..13]), (1, &env!("CARGO_PKG_VERSION").as_bytes()[..5]));
    let pages = bench.log(LogPage::SupportedLogPages, 1024);
    let supported: Vec<_> = (0..256).filter(|page| pages[page * 4] & 1 != 0).collect();
    assert_eq!(supported, [0, 1, 2, 3, 4, 5, 6, 7, 8, 0xd, 0x12, 0x13, 0x81]);
}

#[test]
fn features_have_current_default_and_saved_values() {
    let mut bench = Bench::new();
    let save = |entry: SubmissionQueueEntry| SubmissionQueueEntry { cdw10: entry.cdw10 | 1 << 31, ..entry };
    bench.succeeds(ADMIN, set(FeatureId::Arbitration, 3));
    bench.succeeds(ADMIN, save(set(FeatureId::InterruptCoalescing, 0x0205)));
    let time = Nanos::from_micros(200);
    assert_eq!(
        bench.notified[0],
        Notification::Arbitration { controller: ControllerKey(0), burst: Some(8), weights: [1; 3] }
    );
    assert_eq!(
        *bench.notified.last().unwrap(),
        Notification::InterruptCoalescing { controller: ControllerKey(0), threshold: 6, time }
    );
    assert_eq!(
        [0, 1, 2, 3].map(|select| bench.succeeds(ADMIN, get(FeatureId::Arbitration, select))),
        [3, 7, 7, 5]
    );
    bench.subsystem.reset(bench.now, bench.controller);
    bench.drain();
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::Arbitration, 0)), 7);
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::InterruptCoalescing, 0)), 0x0205);
    bench.fails(ADMIN, save(set(FeatureId::NumberOfQueues, 0)), StatusCode::FeatureNotSaveable);
    let of_namespace = SubmissionQueueEntry { namespace: NamespaceId(1), ..set(FeatureId::Arbitration, 0) };
    bench.fails(ADMIN, of_namespace, StatusCode::FeatureNotNamespaceSpecific);
    for absent in [0x03, 0x0c, 0x0d, 0x10, 0x82, 0xc0] {
        bench.fails(ADMIN, set(FeatureId::Other(absent), 0), StatusCode::InvalidField);
        bench.fails(ADMIN, get(FeatureId::Other(absent), 0), StatusCode::InvalidField);
    }
    bench.fails(ADMIN, get(FeatureId::Arbitration, 4), StatusCode::InvalidField);
    bench.fails(ADMIN, set(FeatureId::PowerManagement, 1), StatusCode::InvalidField);
    bench.fails(ADMIN, set(FeatureId::InterruptVectorConfiguration, 65), StatusCode::InvalidField);
}

/// NSID 0 means every namespace, as it did when the feature was the controller's, and as SPDK's
/// compliance test sends it.
#[test]
fn error_recovery_of_every_namespace_is_one_value_or_none() {
    let mut bench = Bench::new();
    let of = |namespace, entry| SubmissionQueueEntry { namespace, ..entry };
    for (value, every) in [(1, NamespaceId::NONE), (7, NamespaceId::ALL)] {
        bench.succeeds(ADMIN, of(every, set(FeatureId::ErrorRecovery, value)));
        for namespace in [NamespaceId::NONE, NamespaceId::ALL, NamespaceId(1), NamespaceId(2)] {
            let get = of(namespace, get(FeatureId::ErrorRecovery, 0));
            assert_eq!(bench.succeeds(ADMIN, get), value, "{namespace}");
        }
    }
    bench.succeeds(ADMIN, of(NamespaceId(2), set(FeatureId::ErrorRecovery, 9)));
    for every in [NamespaceId::NONE, NamespaceId::ALL] {
        let get = of(every, get(FeatureId::ErrorRecovery, 0));
        bench.fails(ADMIN, get, StatusCode::InvalidNamespaceOrFormat);
    }
}

#[test]
fn features_with_data_and_the_number_of_queues() {
    let mut bench = Bench::new();
    assert_eq!(bench.succeeds(ADMIN, set(FeatureId::NumberOfQueues, 0x0003_ffee)), 0x0003_003f);
    let queues = Notification::NumberOfQueues { controller: ControllerKey(0), submission: 64, completion: 4 };
    assert_eq!(bench.notified, [queues]);
    bench.fails(ADMIN, set(FeatureId::NumberOfQueues, 0xffff), StatusCode::InvalidField);
    bench.subsystem.set_io_queues_exist(bench.controller, true);
    bench.fails(ADMIN, set(FeatureId::NumberOfQueues, 0), StatusCode::CommandSequenceError);

    bench.host_data = 1_700_000_000_000_u64.to_le_bytes().to_vec();
    bench.succeeds(ADMIN, set(FeatureId::Timestamp, 0));
    bench.now = bench.now + Nanos::from_millis(5);
    bench.succeeds(ADMIN, get(FeatureId::Timestamp, 0));
    assert_eq!(u64_at(&bench.pushed, 0), 1_700_000_000_005 | 0b10 << 48);

    // Linux's value for a controller with extended formats: LBAFEE alone.
    let mut behavior = vec![0; 512];
    behavior[2] = 1;
    bench.host_data.clone_from(&behavior);
    bench.succeeds(ADMIN, set(FeatureId::HostBehavior, 0));
    bench.succeeds(ADMIN, get(FeatureId::HostBehavior, 0));
    assert_eq!(bench.pushed, behavior);
    bench.succeeds(ADMIN, get(FeatureId::HostBehavior, 1));
    assert_eq!(bench.pushed, [0; 512], "the default");
    bench.host_data[0] = 2;
    bench.fails(ADMIN, set(FeatureId::HostBehavior, 0), StatusCode::InvalidField);

    bench.host_data = vec![7; 16];
    bench.succeeds(ADMIN, set(FeatureId::HostIdentifier, 1));
    bench.host_data = vec![8; 16];
    bench.fails(ADMIN, set(FeatureId::HostIdentifier, 1), StatusCode::CommandSequenceError);
    bench.succeeds(ADMIN, SubmissionQueueEntry { cdw11: 1, ..get(FeatureId::HostIdentifier, 0) });
    assert_eq!(bench.pushed, [7; 16]);
}

#[test]
fn events_wait_for_requests_and_are_masked_until_their_log_is_read() {
    let mut bench = Bench::new();
    let request = admin(AdminOpcode::AsynchronousEventRequest);
    let first = bench.send(ADMIN, request);
    let second = bench.send(ADMIN, request);
    bench.subsystem.resize_namespace(bench.now, NamespaceId(2), DISK / 4);
    bench.drain();
    assert!(bench.completed.is_empty(), "notices are off by default");
    bench.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 0x1ff));
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::AsynchronousEventConfiguration, 0)), 0x11f);
    bench.subsystem.resize_namespace(bench.now, NamespaceId(2), DISK / 2);
    bench.drain();
    assert_eq!(bench.take(first).dw0, 0x0004_0002);
    bench.subsystem.set_read_only(bench.now, NamespaceId(1), true);
    bench.drain();
    assert!(bench.completed.is_empty(), "masked until the list is read");
    let retain = SubmissionQueueEntry {
        cdw10: 1 << 15 | log(LogPage::ChangedNamespaces, 4096).cdw10,
        ..log(LogPage::ChangedNamespaces, 4096)
    };
    bench.succeeds(ADMIN, retain);
    assert!(
        namespace_list(&bench.log(LogPage::ChangedNamespaces, 4096)).eq([NamespaceId(1), NamespaceId(2)])
    );
    assert!(namespace_list(&bench.log(LogPage::ChangedNamespaces, 4096)).eq([]));
    bench.subsystem.raise_event(bench.now, bench.controller, AsynchronousEvent::InvalidDoorbellValue);
    bench.drain();
    assert_eq!(bench.take(second).dw0, 0x0001_0100);
}

#[test]
fn event_requests_have_a_limit_can_be_aborted_and_end_with_a_reset() {
    let mut bench = Bench::new();
    let request = admin(AdminOpcode::AsynchronousEventRequest);
    let tokens: Vec<_> = (0..4).map(|_| bench.send(ADMIN, request)).collect();
    bench.fails(ADMIN, request, StatusCode::AsynchronousEventRequestLimitExceeded);
    let abort = SubmissionQueueEntry { cdw10: tokens[1].0 << 16, ..admin(AdminOpcode::Abort) };
    assert_eq!(bench.succeeds(ADMIN, abort), 0);
    assert_eq!(bench.take(tokens[1]).status.code(), StatusCode::CommandAbortRequested);
    assert_eq!(bench.succeeds(ADMIN, abort), 1, "it has ended already");
    bench.subsystem.reset(bench.now, bench.controller);
    bench.subsystem.raise_event(bench.now, bench.controller, AsynchronousEvent::InvalidDoorbellValue);
    bench.drain();
    assert!(bench.completed.is_empty());
}

#[test]
fn a_crossed_temperature_threshold_is_a_warning_and_one_event() {
    let mut bench = Bench::new();
    bench.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 0x02));
    let request = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.subsystem.set_temperature(bench.now, 342);
    bench.succeeds(ADMIN, set(FeatureId::TemperatureThreshold, 342));
    assert_eq!(bench.take(request).dw0, 0x0002_0101);
    assert_eq!(bench.log(LogPage::Smart, 512)[0], 0b10);
    bench.fails(ADMIN, set(FeatureId::TemperatureThreshold, 1 << 16), StatusCode::InvalidField);
}

#[test]
fn format_changes_the_block_size_and_forgets() {
    let mut bench = Bench::new();
    bench.write(0, &[9; 4096]);
    let format = |cdw10, namespace| SubmissionQueueEntry {
        cdw10,
        namespace: NamespaceId(namespace),
        ..admin(AdminOpcode::FormatNvm)
    };
    for (cdw10, code) in [
        (4, StatusCode::InvalidFormat),
        (1 | 1 << 4, StatusCode::InvalidFormat),
        (1 | 1 << 5, StatusCode::InvalidFormat),
        (1 | 2 << 9, StatusCode::InvalidField),
    ] {
        bench.fails(ADMIN, format(cdw10, 1), code);
    }
    bench.fails(ADMIN, format(1, 3), StatusCode::InvalidNamespaceOrFormat);
    bench.succeeds(ADMIN, format(1 | 1 << 9, 1));
    let formatted =
        Notification::NamespaceFormatted { namespace: NamespaceId(1), block: BlockSize::Bytes4096 };
    assert_eq!(bench.notified, [formatted]);
    let page = bench.identify(0, 1);
    assert_eq!((u64_at(&page, 0), page[26]), (256, 1));
    bench.fails(IO, io(IoOpcode::Read, 1, 256, 1), StatusCode::LbaOutOfRange);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!(bench.pushed, vec![0; 4096]);
    bench.succeeds(ADMIN, format(0, u32::MAX));
    assert_eq!((u64_at(&bench.identify(0, 1), 0), u64_at(&bench.identify(0, 2), 0)), (2048, 1024));

    bench.media_stuck = true;
    let pending = bench.send(ADMIN, format(1, 1));
    bench.fails(IO, io(IoOpcode::Read, 1, 0, 1), StatusCode::FormatInProgress);
    bench.fails(ADMIN, format(1, u32::MAX), StatusCode::FormatInProgress);
    let id = bench.stuck.pop().unwrap().id;
    bench
        .subsystem
        .handle_input(bench.now, Input::Media(Completion::Done { id, result: Err(MediaError::Write) }));
    bench.drain();
    assert_eq!(bench.take(pending).status.code(), StatusCode::WriteFault);
    bench.media_stuck = false;
    bench.succeeds(IO, io(IoOpcode::Read, 1, 2047, 1));
}

#[test]
fn effects_logs_name_the_effects_of_commands_and_features() {
    let mut bench = Bench::new();
    let commands = bench.log(LogPage::CommandEffects, 4096);
    let admin_effects = |opcode: u8| u32_at(&commands, usize::from(opcode) * 4);
    let io_effects = |opcode: u8| u32_at(&commands, 1024 + usize::from(opcode) * 4);
    // Format NVM changes content and capability, excludes other commands, and has the scope of a
    // namespace.
    assert_eq!(admin_effects(0x80), 1 | 1 << 1 | 1 << 2 | 2 << 16 | 1 << 20);
    assert_eq!(
        (admin_effects(0x06), admin_effects(0x01), admin_effects(0x84)),
        (1 | 1 << 21, 1 | 1 << 21, 0b11 | 2 << 16 | 1 << 25)
    );
    assert_eq!((io_effects(0x01), io_effects(0x02), io_effects(0x19)), (0b11, 1, 0b11));
    // nvme-cli requests those of zoned namespaces, too: the admin commands are the same.
    let zoned = SubmissionQueueEntry { cdw14: 2 << 24, ..log(LogPage::CommandEffects, 4096) };
    bench.succeeds(ADMIN, zoned);
    assert_eq!((&bench.pushed[..1024], &bench.pushed[1024..]), (&commands[..1024], &[0; 3072][..]));
    let features = bench.log(LogPage::FeatureEffects, 1024);
    assert_eq!((u32_at(&features, 0x05 * 4), u32_at(&features, 0x06 * 4)), (1 | 1 << 20, 1 | 1 << 21));
    assert_eq!((u32_at(&features, 0x03 * 4), u32_at(&features, 0x0f * 4)), (0, 0));
    assert_eq!(bench.log(LogPage::ManagementEffects, 4096), alloc::vec![0; 4096]);
    // Without a cache, the Volatile Write Cache feature does not exist.
    let mut config = Config::new("S").with_namespace(MediumId(0), DISK);
    config.volatile_write_cache = false;
    let mut bench = Bench::with(config);
    bench.fails(ADMIN, get(FeatureId::VolatileWriteCache, 0), StatusCode::InvalidField);
    assert_eq!(bench.identify(0x01, 0)[525] & 1, 0);
}
