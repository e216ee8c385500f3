//! The command core against what the specification says, with a RAM disk below.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use std::eprintln;

use engine::Nanos;
use proptest::prelude::*;

use super::admin::{ADMIN_COMMANDS, IO_COMMANDS};
use super::*;
use crate::media::ram::RamDisk;
use crate::media::{Completion, MediumId};
use crate::wire::feature::FeatureId;
use crate::wire::identify::{IdentifyController, IdentifyNamespace, NamespaceDescriptor, namespace_list};
use crate::wire::log::{ErrorEntry, LogPage, SmartLog};
use crate::wire::{AdminOpcode, CommandId, IoOpcode};

const ADMIN: SubmissionQueueId = SubmissionQueueId::ADMIN;
const IO: SubmissionQueueId = SubmissionQueueId(1);
const DISK: u64 = 1 << 20;

/// A controller, its disks, and a host that answers pulls.
struct Bench {
    controller: Controller,
    disks: Vec<RamDisk>,
    now: Instant,
    next: u32,
    host_data: Vec<u8>,
    completed: BTreeMap<u32, CompletionResult>,
    pushed: Vec<u8>,
    notified: Vec<Notification>,
    /// What media are to answer instead of carrying requests out.
    media_error: Option<MediaError>,
    /// Media keep their requests to themselves.
    media_stuck: bool,
    stuck: Vec<Request>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Config::new("S1").with_namespace(MediumId(0), DISK).with_namespace(MediumId(1), DISK / 2))
    }

    fn with(config: Config) -> Self {
        let disks = config.namespaces.iter().map(|namespace| RamDisk::new(namespace.bytes)).collect();
        Self {
            controller: Controller::new(Instant::ZERO, config),
            disks,
            now: Instant::ZERO,
            next: 0,
            host_data: Vec::new(),
            completed: BTreeMap::new(),
            pushed: Vec::new(),
            notified: Vec::new(),
            media_error: None,
            media_stuck: false,
            stuck: Vec::new(),
        }
    }

    /// Sends a command; returns its token.
    fn send(&mut self, queue: SubmissionQueueId, mut entry: SubmissionQueueEntry) -> CommandToken {
        let token = CommandToken(self.next % 1024);
        self.next += 1;
        entry.command_id = CommandId(u16::try_from(token.0).unwrap());
        self.pushed.clear();
        self.controller.handle_input(self.now, Input::Command { token, queue, entry });
        self.drain();
        token
    }

    fn drain(&mut self) {
        while let Some(output) = self.controller.poll_output() {
            match output {
                Output::PullHostData { token, length } => {
                    let transfer = self.controller.transfer(token);
                    assert_eq!(transfer, Some(Transfer { direction: Direction::FromHost, length }));
                    let mut data = self.host_data.clone();
                    data.resize(length as usize, 0);
                    let input = Input::HostData { token, data: Buffer::from(data) };
                    self.controller.handle_input(self.now, input);
                }
                Output::PushHostData { offset, length, data, .. } => {
                    self.pushed.resize(length as usize, 0);
                    self.pushed[offset as usize..][..data.len()].copy_from_slice(&data);
                }
                Output::Complete { token, completion } => {
                    assert!(
                        self.completed.insert(token.0, completion).is_none(),
                        "{token:?} completed twice"
                    );
                }
                Output::Media(request) => self.on_media(request),
                Output::Notify(notification) => self.notified.push(notification),
            }
        }
    }

    fn on_media(&mut self, request: Request) {
        let (controller, now) = (&mut self.controller, self.now);
        if self.media_stuck {
            self.stuck.push(request);
        } else if let Some(error) = self.media_error {
            let done = Completion::Done { id: request.id, result: Err(error) };
            controller.handle_input(now, Input::Media(done));
        } else {
            let disk = &mut self.disks[request.medium.0 as usize];
            disk.submit(request, &mut |completion| controller.handle_input(now, Input::Media(completion)));
        }
    }

    fn take(&mut self, token: CommandToken) -> CompletionResult {
        self.completed.remove(&token.0).expect("the command has not ended")
    }

    fn run(&mut self, queue: SubmissionQueueId, entry: SubmissionQueueEntry) -> CompletionResult {
        let token = self.send(queue, entry);
        self.take(token)
    }

    #[track_caller]
    fn fails(&mut self, queue: SubmissionQueueId, entry: SubmissionQueueEntry, code: StatusCode) {
        let before = self.controller.errors.count();
        let status = self.run(queue, entry).status;
        assert_eq!(status.code(), code);
        assert!(status.has_more());
        assert_eq!(self.controller.errors.count(), before + 1);
        let newest = self.controller.errors.iter().next().unwrap();
        assert_eq!((newest.status >> 1, newest.error_count), (Status::from(code).raw(), before + 1));
    }

    #[track_caller]
    fn succeeds(&mut self, queue: SubmissionQueueId, entry: SubmissionQueueEntry) -> u32 {
        let completion = self.run(queue, entry);
        assert_eq!(completion.status, Status::SUCCESS);
        completion.dw0
    }

    fn identify(&mut self, cns: u32, namespace: u32) -> Vec<u8> {
        self.succeeds(ADMIN, identify(cns, namespace));
        assert_eq!(self.pushed.len(), 4096);
        self.pushed.clone()
    }

    fn log(&mut self, page: LogPage, bytes: u32) -> Vec<u8> {
        self.succeeds(ADMIN, log(page, bytes));
        self.pushed.clone()
    }

    fn write(&mut self, lba: u64, bytes: &[u8]) -> CompletionResult {
        self.host_data = bytes.to_vec();
        let blocks = u32::try_from(bytes.len() / 512).unwrap();
        self.run(IO, io(IoOpcode::Write, 1, lba, blocks))
    }
}

fn admin(opcode: AdminOpcode) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: opcode.into(), ..Default::default() }
}

fn identify(cns: u32, namespace: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10: cns, namespace: NamespaceId(namespace), ..admin(AdminOpcode::Identify) }
}

fn log(page: LogPage, bytes: u32) -> SubmissionQueueEntry {
    let dwords = bytes / 4 - 1;
    let cdw10 = u32::from(u8::from(page)) | (dwords & 0xffff) << 16;
    SubmissionQueueEntry { cdw10, cdw11: dwords >> 16, ..admin(AdminOpcode::GetLogPage) }
}

fn set(feature: FeatureId, value: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { cdw10: u8::from(feature).into(), cdw11: value, ..admin(AdminOpcode::SetFeatures) }
}

fn get(feature: FeatureId, select: u32) -> SubmissionQueueEntry {
    let cdw10 = u32::from(u8::from(feature)) | select << 8;
    SubmissionQueueEntry { cdw10, ..admin(AdminOpcode::GetFeatures) }
}

fn io(opcode: IoOpcode, namespace: u32, lba: u64, blocks: u32) -> SubmissionQueueEntry {
    let namespace = NamespaceId(namespace);
    SubmissionQueueEntry { opcode: opcode.into(), namespace, cdw12: blocks - 1, ..Default::default() }
        .with_starting_lba(lba)
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(bytes[offset..offset + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

#[test]
fn identify_controller_stands_at_the_specification_s_offsets() {
    let page = Bench::new().identify(0x01, 0);
    assert_eq!(&page[4..24], b"S1                  ");
    assert_eq!((page[77], u16_at(&page, 78), u32_at(&page, 80)), (5, 1, 0x2_0000));
    assert_eq!((u32_at(&page, 92), page[111]), (0x100, 1));
    assert_eq!((u16_at(&page, 256), page[259], page[261], page[262]), (0b10, 3, 0b10_0110, 63));
    assert_eq!((page[512], page[513], u32_at(&page, 516)), (0x66, 0x44, 2));
    assert_eq!((u16_at(&page, 520), page[525]), (0b1101_1101, 0b111));
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
    assert_eq!((page[25], page[26], u64_at(&page, 48)), (1, 0, DISK));
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
fn identify_refuses_what_is_absent() {
    let mut bench = Bench::new();
    for cns in [0x04, 0x09, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0xff] {
        bench.fails(ADMIN, identify(cns, 0), StatusCode::InvalidField);
    }
    for (cns, namespace) in [(0, 0), (0, 3), (0, u32::MAX), (3, 0), (3, 9), (2, u32::MAX), (0x12, 7)] {
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
    assert_eq!((ADMIN_COMMANDS.len(), IO_COMMANDS.len()), (7, 7));
}

#[test]
fn reads_and_writes_keep_to_the_namespace_and_the_transfer_limit() {
    let mut bench = Bench::new();
    assert!(bench.write(2047, &[1; 512]).status.is_success());
    bench.fails(IO, io(IoOpcode::Read, 1, 2047, 2), StatusCode::LbaOutOfRange);
    bench.fails(IO, io(IoOpcode::Write, 1, u64::MAX, 1), StatusCode::LbaOutOfRange);
    bench.fails(IO, io(IoOpcode::WriteZeroes, 2, 1024, 1), StatusCode::LbaOutOfRange);
    bench.fails(IO, io(IoOpcode::Verify, 2, 1024, 1), StatusCode::LbaOutOfRange);
    bench.fails(IO, io(IoOpcode::Read, 1, 0, 257), StatusCode::InvalidField);
    bench.fails(IO, io(IoOpcode::Read, 3, 0, 1), StatusCode::InvalidNamespaceOrFormat);
    bench.fails(IO, io(IoOpcode::Read, 0, 0, 1), StatusCode::InvalidNamespaceOrFormat);
    let fused = SubmissionQueueEntry { flags: 1, ..io(IoOpcode::Compare, 1, 0, 1) };
    bench.fails(IO, fused, StatusCode::InvalidField);
    assert_eq!(bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 256)), 0);
    assert_eq!(bench.pushed.len(), 128 << 10);
    bench.succeeds(IO, io(IoOpcode::Verify, 1, 0, 2048));
}

#[test]
fn media_errors_become_the_statuses_of_the_specification() {
    let mut bench = Bench::new();
    let cases = [
        (MediaError::Read, IoOpcode::Read, StatusCode::UnrecoveredReadError),
        (MediaError::Read, IoOpcode::Compare, StatusCode::UnrecoveredReadError),
        (MediaError::Read, IoOpcode::Verify, StatusCode::UnrecoveredReadError),
        (MediaError::Write, IoOpcode::Write, StatusCode::WriteFault),
        (MediaError::Write, IoOpcode::Flush, StatusCode::WriteFault),
        (MediaError::NoSpace, IoOpcode::Write, StatusCode::CapacityExceeded),
        (MediaError::ReadOnly, IoOpcode::WriteZeroes, StatusCode::NamespaceWriteProtected),
        (MediaError::OutOfRange, IoOpcode::Read, StatusCode::LbaOutOfRange),
    ];
    for (error, opcode, code) in cases {
        bench.media_error = Some(error);
        bench.fails(IO, io(opcode, 1, 9, 1), code);
    }
    assert_eq!(bench.controller.counters().media_errors, 5);
    bench.media_error = None;
    let newest = bench.log(LogPage::ErrorInformation, 64);
    let newest = ErrorEntry::parse(newest.first_chunk().unwrap());
    assert_eq!((newest.lba, newest.namespace, newest.error_count), (9, 1, 8));
}

#[test]
fn a_read_only_namespace_refuses_every_write() {
    let mut config = Config::new("S").with_namespace(MediumId(0), DISK);
    config.namespaces[0].read_only = true;
    let mut bench = Bench::with(config);
    assert_eq!(bench.identify(0, 1)[99], 1);
    for opcode in [IoOpcode::Write, IoOpcode::WriteZeroes] {
        bench.fails(IO, io(opcode, 1, 0, 1), StatusCode::NamespaceWriteProtected);
    }
    let deallocate = SubmissionQueueEntry { cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
    bench.fails(IO, SubmissionQueueEntry { cdw10: 0, ..deallocate }, StatusCode::NamespaceWriteProtected);
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    bench.fails(ADMIN, format, StatusCode::NamespaceWriteProtected);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 0, 1));
    bench.succeeds(IO, io(IoOpcode::Flush, u32::MAX, 0, 1));
}

#[test]
fn the_error_log_is_newest_first_bounded_and_read_in_parts() {
    let mut bench = Bench::new();
    for _ in 0..70 {
        bench.fails(IO, io(IoOpcode::Copy, 1, 0, 1), StatusCode::InvalidCommandOpcode);
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
    // 9 x 256 blocks are 2.304 thousands, rounded up.
    assert_eq!((smart.data_units_written, smart.data_units_read), (3, 1));
    assert_eq!((smart.host_writes, smart.host_reads, smart.power_cycles), (9, 1, 1));
    assert_eq!((smart.power_on_hours, smart.error_entries, smart.temperature), (2, 1, 300));
    assert_eq!((u16_at(&page, 1), page[48], page[176]), (300, 3, 1));
    let slot = bench.log(LogPage::FirmwareSlot, 512);
    assert_eq!((slot[0], &slot[8..13]), (1, &env!("CARGO_PKG_VERSION").as_bytes()[..5]));
    let pages = bench.log(LogPage::SupportedLogPages, 1024);
    let supported: Vec<_> = (0..256).filter(|page| pages[page * 4] & 1 != 0).collect();
    assert_eq!(supported, [0, 1, 2, 3, 4, 5, 0x12, 0x13]);
}

#[test]
fn features_have_current_default_and_saved_values() {
    let mut bench = Bench::new();
    let save = |entry: SubmissionQueueEntry| SubmissionQueueEntry { cdw10: entry.cdw10 | 1 << 31, ..entry };
    bench.succeeds(ADMIN, set(FeatureId::Arbitration, 3));
    bench.succeeds(ADMIN, save(set(FeatureId::InterruptCoalescing, 0x0205)));
    let time = Nanos::from_micros(200);
    assert_eq!(bench.notified[0], Notification::Arbitration { burst: Some(8) });
    assert_eq!(*bench.notified.last().unwrap(), Notification::InterruptCoalescing { threshold: 6, time });
    assert_eq!(
        [0, 1, 2, 3].map(|select| bench.succeeds(ADMIN, get(FeatureId::Arbitration, select))),
        [3, 7, 7, 5]
    );
    bench.controller.reset(bench.now);
    bench.drain();
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::Arbitration, 0)), 7);
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::InterruptCoalescing, 0)), 0x0205);
    bench.fails(ADMIN, save(set(FeatureId::NumberOfQueues, 0)), StatusCode::FeatureNotSaveable);
    let of_namespace = SubmissionQueueEntry { namespace: NamespaceId(1), ..set(FeatureId::Arbitration, 0) };
    bench.fails(ADMIN, of_namespace, StatusCode::FeatureNotNamespaceSpecific);
    for absent in [0x03, 0x0c, 0x0d, 0x0f, 0x10, 0x82, 0xc0] {
        bench.fails(ADMIN, set(FeatureId::Other(absent), 0), StatusCode::InvalidField);
        bench.fails(ADMIN, get(FeatureId::Other(absent), 0), StatusCode::InvalidField);
    }
    bench.fails(ADMIN, get(FeatureId::Arbitration, 4), StatusCode::InvalidField);
    bench.fails(ADMIN, set(FeatureId::PowerManagement, 1), StatusCode::InvalidField);
    bench.fails(ADMIN, set(FeatureId::InterruptVectorConfiguration, 65), StatusCode::InvalidField);
    bench.fails(ADMIN, set(FeatureId::ErrorRecovery, 1), StatusCode::InvalidNamespaceOrFormat);
    let all = SubmissionQueueEntry { namespace: NamespaceId::ALL, ..set(FeatureId::ErrorRecovery, 7) };
    bench.succeeds(ADMIN, all);
    let second = SubmissionQueueEntry { namespace: NamespaceId(2), ..get(FeatureId::ErrorRecovery, 0) };
    assert_eq!(bench.succeeds(ADMIN, second), 7);
}

#[test]
fn features_with_data_and_the_number_of_queues() {
    let mut bench = Bench::new();
    assert_eq!(bench.succeeds(ADMIN, set(FeatureId::NumberOfQueues, 0x0003_ffee)), 0x0003_003f);
    let queues = Notification::NumberOfQueues { submission: 64, completion: 4 };
    assert_eq!(bench.notified, [queues]);
    bench.fails(ADMIN, set(FeatureId::NumberOfQueues, 0xffff), StatusCode::InvalidField);
    bench.controller.set_io_queues_exist(true);
    bench.fails(ADMIN, set(FeatureId::NumberOfQueues, 0), StatusCode::CommandSequenceError);

    bench.host_data = 1_700_000_000_000_u64.to_le_bytes().to_vec();
    bench.succeeds(ADMIN, set(FeatureId::Timestamp, 0));
    bench.now = bench.now + Nanos::from_millis(5);
    bench.succeeds(ADMIN, get(FeatureId::Timestamp, 0));
    assert_eq!(u64_at(&bench.pushed, 0), 1_700_000_000_005 | 0b10 << 48);

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
    bench.controller.resize_namespace(bench.now, NamespaceId(2), DISK / 4);
    bench.drain();
    assert!(bench.completed.is_empty(), "notices are off by default");
    bench.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 0x1ff));
    assert_eq!(bench.succeeds(ADMIN, get(FeatureId::AsynchronousEventConfiguration, 0)), 0x11f);
    bench.controller.resize_namespace(bench.now, NamespaceId(2), DISK / 2);
    bench.drain();
    assert_eq!(bench.take(first).dw0, 0x0004_0002);
    bench.controller.set_read_only(bench.now, NamespaceId(1), true);
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
    bench.controller.raise_event(bench.now, AsynchronousEvent::InvalidDoorbellValue);
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
    bench.controller.reset(bench.now);
    bench.controller.raise_event(bench.now, AsynchronousEvent::InvalidDoorbellValue);
    bench.drain();
    assert!(bench.completed.is_empty());
}

#[test]
fn a_crossed_temperature_threshold_is_a_warning_and_one_event() {
    let mut bench = Bench::new();
    bench.succeeds(ADMIN, set(FeatureId::AsynchronousEventConfiguration, 0x02));
    let request = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.controller.set_temperature(bench.now, 342);
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
        (2, StatusCode::InvalidFormat),
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
        .controller
        .handle_input(bench.now, Input::Media(Completion::Done { id, result: Err(MediaError::Write) }));
    bench.drain();
    assert_eq!(bench.take(pending).status.code(), StatusCode::WriteFault);
    bench.media_stuck = false;
    bench.succeeds(IO, io(IoOpcode::Read, 1, 2047, 1));
}

#[test]
fn compare_and_dataset_management_read_host_data() {
    let mut bench = Bench::new();
    bench.write(8, &[3; 8192]);
    bench.succeeds(IO, io(IoOpcode::Compare, 1, 8, 16));
    bench.host_data[8191] = 4;
    bench.fails(IO, io(IoOpcode::Compare, 1, 8, 16), StatusCode::CompareFailure);
    let range = |blocks: u32, lba: u64| [&[0; 4][..], &blocks.to_le_bytes(), &lba.to_le_bytes()].concat();
    let manage = SubmissionQueueEntry { cdw10: 2, cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
    bench.host_data = [range(1, 8), range(0, 0), range(2, 10)].concat();
    bench.succeeds(IO, manage);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 8, 4));
    let firsts: Vec<_> = bench.pushed.chunks(512).map(|block| block[0]).collect();
    assert_eq!(firsts, [0, 3, 0, 0]);
    bench.host_data = [range(1, 9), range(1, 2048), range(0, 0)].concat();
    bench.fails(IO, manage, StatusCode::LbaOutOfRange);
    bench.succeeds(IO, io(IoOpcode::Read, 1, 9, 1));
    assert_eq!(bench.pushed[0], 3, "nothing is deallocated when one range is wrong");
}

#[test]
fn what_media_answer_after_an_abort_or_a_reset_is_ignored() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    let read = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
    let write = bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    let abort =
        |token: CommandToken| SubmissionQueueEntry { cdw10: 1 | token.0 << 16, ..admin(AdminOpcode::Abort) };
    assert_eq!(bench.succeeds(ADMIN, abort(read)), 0);
    assert_eq!(bench.succeeds(ADMIN, abort(write)), 1, "a write that has begun is not aborted");
    assert_eq!(bench.take(read).status.code(), StatusCode::CommandAbortRequested);
    assert_eq!(bench.controller.abort_queue(bench.now, IO), 1);
    bench.controller.reset(bench.now);
    assert_eq!((bench.controller.media_outstanding(), bench.controller.in_flight(IO)), (2, 0));
    // The same tokens again, and only then the old answers.
    bench.next = 0;
    bench.media_stuck = false;
    let stuck: Vec<_> = bench.stuck.drain(..).collect();
    let waiting = bench.send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.media_stuck = true;
    let again = bench.send(IO, io(IoOpcode::Read, 1, 0, 1));
    for request in stuck {
        let data = Buffer::zeroed(512);
        let piece = Completion::Data { id: request.id, offset: 0, data };
        bench.controller.handle_input(bench.now, Input::Media(piece));
        let done = Completion::Done { id: request.id, result: Ok(()) };
        bench.controller.handle_input(bench.now, Input::Media(done));
    }
    bench.drain();
    assert!(bench.completed.is_empty(), "{waiting:?} and {again:?} still wait");
    assert_eq!(bench.controller.media_outstanding(), 1);
}

#[test]
fn writes_are_durable_when_they_must_be_and_a_shutdown_flushes() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    let durable = |bench: &mut Bench, entry| {
        bench.send(IO, entry);
        matches!(bench.stuck.pop().unwrap().operation, Operation::Write { durable: true, .. })
    };
    let write = io(IoOpcode::Write, 1, 0, 1);
    assert!(!durable(&mut bench, write));
    assert!(durable(&mut bench, SubmissionQueueEntry { cdw12: 1 << 30, ..write }));
    bench.succeeds(ADMIN, set(FeatureId::VolatileWriteCache, 0));
    assert!(durable(&mut bench, write));
    bench.media_stuck = false;
    bench.controller.shut_down(bench.now);
    bench.drain();
    assert_eq!(bench.notified, [Notification::ShutDown { flushed: true }]);
    bench.media_error = Some(MediaError::Write);
    bench.controller.shut_down(bench.now);
    bench.drain();
    assert_eq!(bench.notified[1], Notification::ShutDown { flushed: false });
    bench.fails(IO, io(IoOpcode::Flush, u32::MAX, 0, 1), StatusCode::WriteFault);
}

#[test]
fn host_data_that_never_comes_ends_the_command() {
    let mut bench = Bench::new();
    let entry = io(IoOpcode::Write, 1, 0, 1);
    let token = CommandToken(1000);
    bench.controller.handle_input(bench.now, Input::Command { token, queue: IO, entry });
    assert!(matches!(bench.controller.poll_output(), Some(Output::PullHostData { length: 512, .. })));
    let status = StatusCode::DataTransferError.into();
    bench.controller.handle_input(bench.now, Input::HostDataFailed { token, status });
    bench.controller.handle_input(bench.now, Input::HostDataFailed { token, status });
    bench.drain();
    assert_eq!(bench.take(token).status, status.with_more());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn random_commands_agree_with_an_array(
        large in any::<bool>(),
        steps in prop::collection::vec((0..7_u8, 0..300_u64, 1..20_u32, 1..=255_u8), 1..60),
    ) {
        let mut config = Config::new("S").with_namespace(MediumId(0), DISK);
        let block = if large { BlockSize::Bytes4096 } else { BlockSize::Bytes512 };
        config.namespaces[0].block = block;
        let mut bench = Bench::with(config);
        let mut model = vec![0_u8; usize::try_from(DISK).unwrap()];
        let byte = |lba: u64| usize::try_from(lba << block.shift()).unwrap();
        for (kind, lba, blocks, value) in steps {
            let range = byte(lba)..byte(lba + u64::from(blocks));
            let valid = range.end <= model.len();
            bench.host_data = vec![value; range.len().min(128 << 10)];
            let mut expected = if valid { None } else { Some(StatusCode::LbaOutOfRange) };
            let mut entry = io(IoOpcode::Read, 1, lba, blocks);
            match kind {
                0 | 1 => entry.opcode = IoOpcode::Write.into(),
                2 => entry.opcode = IoOpcode::WriteZeroes.into(),
                3 => {
                    entry.opcode = IoOpcode::Compare.into();
                    if valid && model[range.clone()].iter().any(|byte| *byte != value) {
                        expected = Some(StatusCode::CompareFailure);
                    }
                }
                4 => {
                    bench.host_data = [&[0; 4][..], &blocks.to_le_bytes(), &lba.to_le_bytes()].concat();
                    entry = SubmissionQueueEntry { cdw10: 0, cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
                }
                5 => entry.opcode = IoOpcode::Verify.into(),
                _ => (),
            }
            let status = bench.run(IO, entry).status;
            prop_assert_eq!((!status.is_success()).then(|| status.code()), expected);
            if valid {
                match kind {
                    0 | 1 => model[range].fill(value),
                    2 | 4 => model[range].fill(0),
                    6 => prop_assert_eq!(&bench.pushed[..], &model[range]),
                    _ => (),
                }
            }
        }
    }
}

/// Not a check but a figure, for `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn the_cost_of_a_4_kib_read_and_write() {
    let mut bench = Bench::new();
    bench.write(0, &[1; 4096]);
    let data = Buffer::zeroed(4096);
    for opcode in [IoOpcode::Read, IoOpcode::Write] {
        let count = 2_000_000_u32;
        let mut done = 0;
        let start = std::time::Instant::now();
        for index in 0..count {
            let token = CommandToken(index % 1024);
            let entry = io(opcode, 1, u64::from(index % 256) * 8, 8);
            bench.controller.handle_input(bench.now, Input::Command { token, queue: IO, entry });
            while let Some(output) = bench.controller.poll_output() {
                match output {
                    Output::PullHostData { token, .. } => {
                        let input = Input::HostData { token, data: data.clone() };
                        bench.controller.handle_input(bench.now, input);
                    }
                    Output::Media(Request { id, .. }) => {
                        if opcode == IoOpcode::Read {
                            let piece = Completion::Data { id, offset: 0, data: data.clone() };
                            bench.controller.handle_input(bench.now, Input::Media(piece));
                        }
                        let end = Completion::Done { id, result: Ok(()) };
                        bench.controller.handle_input(bench.now, Input::Media(end));
                    }
                    Output::Complete { .. } => done += 1,
                    _ => (),
                }
            }
        }
        assert_eq!(done, count);
        eprintln!("{opcode}: {} ns", start.elapsed().as_nanos() / u128::from(count));
    }
}
