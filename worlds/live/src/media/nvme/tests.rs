//! The NVMe medium over our own controller, whose registers and memory are in this process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::iter::empty;
use std::rc::Rc;
use std::time;

use engine::{Buffer, drain};
use nvme::media::ram::RamDisk;
use nvme::media::{IoId, MediaError, MediumId, Operation};
use nvme::subsystem::{BlockSize, Config as Core};
use nvme_pcie::controller::{self, Controller};
use nvme_pcie::host::Config;
use pcie::device::{Dma, DmaResult};
use pcie::memory::Ram;

use super::open::ARENA_LENGTH;
use super::*;

const BASE: u64 = 0x1_0000_0000;
/// Bytes of the two namespaces, which have blocks of 512 and of 4,096 bytes.
const SIZES: [u64; 2] = [3 << 20, 5 << 20];
/// An upper bound on how long any operation here takes.
const LONGEST: time::Duration = time::Duration::from_secs(20);

/// The faults, and the requests to the controller.
#[derive(Default)]
struct Scene {
    /// Commands are not answered, but registers are.
    stuck: bool,
    /// Neither commands nor registers are answered.
    dead: bool,
    /// A reset by the driver ends `stuck`.
    heals: bool,
    /// The error with which media answer requests, if any.
    error: Option<MediaError>,
    /// The kinds of requests seen: durable writes, zeroes that give space back, all others,
    /// and flushes.
    seen: Vec<&'static str>,
}

struct Fake {
    controller: Controller,
    memory: Ram,
    disks: Vec<RamDisk>,
    clock: Clock,
    scene: Rc<RefCell<Scene>>,
}

impl Fake {
    fn serve(&mut self, request: Request) -> Vec<Completion> {
        let mut scene = self.scene.borrow_mut();
        match &request.operation {
            Operation::Write { durable: true, .. } => scene.seen.push("durable write"),
            Operation::WriteZeroes { deallocate: true, .. } => scene.seen.push("zeroes, given back"),
            Operation::WriteZeroes { .. } => scene.seen.push("zeroes"),
            Operation::Deallocate { .. } => scene.seen.push("deallocate"),
            Operation::Flush => scene.seen.push("flush"),
            _ => {}
        }
        if let Some(error) = scene.error {
            return vec![Completion::Done { id: request.id, result: Err(error) }];
        }
        let mut completions = Vec::new();
        let disk = &mut self.disks[request.medium.0 as usize];
        disk.submit(request, &mut |completion| completions.push(completion));
        completions
    }

    fn settle(&mut self) {
        if self.scene.borrow().stuck {
            return;
        }
        let now = self.clock.now();
        let mut outputs = Vec::new();
        loop {
            drain(&mut self.controller, |output| outputs.push(output));
            if outputs.is_empty() {
                return;
            }
            for output in std::mem::take(&mut outputs) {
                match output {
                    controller::Output::Dma(Dma::Read { id, address, length }) => {
                        let data =
                            Buffer::copy_from_slice(self.memory.slice(address, length as usize).unwrap());
                        let result = DmaResult::Data { id, offset: 0, data, last: true };
                        self.controller.handle_input(now, controller::Input::Dma(result));
                    }
                    controller::Output::Dma(Dma::Write { address, data }) => {
                        self.memory.write(address, &data).unwrap();
                    }
                    controller::Output::Media(request) => {
                        for completion in self.serve(request) {
                            self.controller.handle_input(now, controller::Input::Media(completion));
                        }
                    }
                    controller::Output::Dma(Dma::Interrupt { .. }) | controller::Output::Notify(_) => {}
                    controller::Output::ToLane(..) | controller::Output::ToHome(_) => {
                        unreachable!("no lane is attached")
                    }
                }
            }
        }
    }
}

impl Port for Fake {
    type Memory = Ram;
    fn memory(&mut self) -> &mut Ram {
        &mut self.memory
    }
    fn read_register(&mut self, offset: u32, length: u32) -> Option<[u8; 8]> {
        if self.scene.borrow().dead {
            return Some([0xff; 8]);
        }
        let mut bytes = [0; 8];
        self.controller.read_register(offset, &mut bytes[..length as usize]);
        Some(bytes)
    }
    fn write_register(&mut self, offset: u32, bytes: &[u8]) {
        if self.scene.borrow().dead {
            return;
        }
        let enabling = offset == nvme_pcie::registers::offset::CONFIGURATION;
        if enabling && self.scene.borrow().heals {
            self.scene.borrow_mut().stuck = false;
        }
        let now = self.clock.now();
        self.controller.handle_input(now, controller::Input::RegisterWrite { offset, bytes });
        self.settle();
    }
    fn interrupts(&self) -> impl Iterator<Item = RawFd> {
        empty()
    }
}

thread_local! {
    static NOTICES: RefCell<Vec<Notice>> = const { RefCell::new(Vec::new()) };
}

fn note(notice: Notice) {
    NOTICES.with_borrow_mut(|notices| notices.push(notice));
}

fn medium_of(core: Core) -> Result<(NvmeMedium<Fake>, Rc<RefCell<Scene>>), OpenError> {
    let clock = Clock::start();
    let scene = Rc::new(RefCell::new(Scene::default()));
    let port = Fake {
        controller: Controller::new(clock.now(), controller::Config::new(core)),
        memory: Ram::new(BASE, ARENA_LENGTH),
        disks: SIZES.into_iter().map(RamDisk::new).collect(),
        clock,
        scene: Rc::clone(&scene),
    };
    let config = Config {
        command_timeout: Nanos::from_millis(20),
        retry_delay: Nanos::from_millis(1),
        resets_max: 1,
        hold: Nanos::ZERO,
        ..Config::new(BASE, ARENA_LENGTH as u64)
    };
    NOTICES.with_borrow_mut(Vec::clear);
    Ok((NvmeMedium::with(clock, port, config, note)?, scene))
}

fn medium() -> (NvmeMedium<Fake>, Rc<RefCell<Scene>>) {
    let mut core = Core::new("FAKE");
    for (index, size) in (0..).zip(SIZES) {
        core = core.with_namespace(MediumId(index), size);
    }
    core.namespaces[1].block = BlockSize::Bytes4096;
    medium_of(core).unwrap()
}

/// Runs requests together; returns the read bytes, and how each request ended.
fn run_all(
    medium: &mut NvmeMedium<Fake>,
    operations: Vec<Operation>,
) -> Vec<(Vec<u8>, Result<(), MediaError>)> {
    let lengths = operations.iter().map(|operation| match operation {
        Operation::Read { length, .. } => *length as usize,
        _ => 0,
    });
    let mut read: Vec<Vec<u8>> = lengths.map(|length| vec![0; length]).collect();
    let mut ended = HashMap::new();
    for (id, operation) in (0..).map(IoId).zip(operations) {
        medium.submit(Request { id, medium: MediumId(0), operation });
    }
    let until = time::Instant::now() + LONGEST;
    while medium.in_flight() > 0 {
        let done = medium.reap(&mut |completion| match completion {
            Completion::Data { id, offset, data } => {
                read[id.0 as usize][offset as usize..][..data.len()].copy_from_slice(&data);
            }
            Completion::Done { id, result } => assert!(ended.insert(id.0, result).is_none(), "ended twice"),
        });
        assert!(time::Instant::now() < until, "requests hang: {medium:?}");
        if done == 0 {
            assert!(medium.poll_timeout().is_some(), "no deadline would cause another look");
            thread_yield();
        }
    }
    (0..).zip(read).map(|(id, bytes)| (bytes, ended.remove(&id).expect("it ended"))).collect()
}

fn thread_yield() {
    std::thread::sleep(time::Duration::from_micros(50));
}

fn run(medium: &mut NvmeMedium<Fake>, operation: Operation) -> Result<Vec<u8>, MediaError> {
    let (bytes, result) = run_all(medium, vec![operation]).remove(0);
    result.map(|()| bytes)
}

fn memory_length(length: u64) -> usize {
    usize::try_from(length).unwrap()
}

fn pattern(length: usize, seed: usize) -> Buffer {
    Buffer::from(
        (0..length)
            .map(|index| u8::try_from((index * 7 + index / 251 + seed) % 256).unwrap())
            .collect::<Vec<_>>(),
    )
}

fn write(offset: u64, data: &Buffer, durable: bool) -> Operation {
    Operation::Write { offset, data: data.clone(), durable }
}

#[test]
fn namespaces_follow_each_other_and_keep_what_is_written() {
    let (mut medium, scene) = medium();
    let blocks: Vec<_> = medium.extents().iter().map(|extent| (extent.offset, extent.block)).collect();
    assert_eq!(blocks, [(0, 512), (SIZES[0], 4096)]);
    assert_eq!(medium.size(), SIZES[0] + SIZES[1]);
    let mut model = vec![0_u8; memory_length(medium.size())];
    for (offset, length, durable) in
        [(512, 1 << 20, false), (SIZES[0] - 512, 512, true), (SIZES[0] + 4096, 300 << 10, true)]
    {
        let data = pattern(length, memory_length(offset));
        model[memory_length(offset)..][..length].copy_from_slice(&data);
        run(&mut medium, write(offset, &data, durable)).unwrap();
    }
    let zeroes =
        |offset, length, deallocate| Operation::WriteZeroes { offset, length, deallocate, durable: false };
    for (offset, length, operation) in [
        (4096, 200 << 10, zeroes(4096, 200 << 10, false)),
        (512 << 10, 1536, zeroes(512 << 10, 1536, true)),
        (SIZES[0] + 8192, 4096, Operation::Deallocate { offset: SIZES[0] + 8192, length: 4096 }),
    ] {
        model[memory_length(offset)..][..length].fill(0);
        run(&mut medium, operation).unwrap();
    }
    run(&mut medium, Operation::Flush).unwrap();
    for (offset, length) in [(0, SIZES[0]), (SIZES[0], SIZES[1]), (1024, 1536)] {
        let length_32 = u32::try_from(length).unwrap();
        let bytes = run(&mut medium, Operation::Read { offset, length: length_32 }).unwrap();
        assert!(bytes == model[memory_length(offset)..][..memory_length(length)], "{offset}");
    }
    let seen = &scene.borrow().seen;
    let count = |what| seen.iter().filter(|seen| **seen == what).count();
    // The durable write is cut into pieces of 128 KiB. Each namespace gets a flush.
    assert_eq!(count("durable write"), 1 + 3);
    assert_eq!((count("zeroes"), count("flush")), (2, 2), "{seen:?}");
    assert!(count("zeroes, given back") >= 2, "{seen:?}");
    assert_eq!(NOTICES.take(), []);
}

#[test]
fn what_the_controller_lacks_is_done_by_writing() {
    let (mut medium, scene) = medium();
    medium.commands.abilities.write_zeroes = false;
    for extent in &mut medium.commands.extents {
        extent.zeroes_deallocate = false;
        extent.deallocated_reads_zero = true;
    }
    run(&mut medium, write(0, &pattern(1 << 20, 1), false)).unwrap();
    run(&mut medium, Operation::Deallocate { offset: 512, length: 300 << 10 }).unwrap();
    let bytes = run(&mut medium, Operation::Read { offset: 0, length: 512 << 10 }).unwrap();
    assert!(bytes[512..][..300 << 10].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[..512], pattern(1 << 20, 1)[..512]);
    assert_eq!(bytes[512 + (300 << 10)..], pattern(1 << 20, 1)[512 + (300 << 10)..512 << 10]);
    assert_eq!(scene.borrow().seen, ["deallocate"]);
}

#[test]
fn many_requests_share_few_slots() {
    let (mut medium, _) = medium();
    let count = 3000_u32;
    let at = |index: u32| u64::from(index % 600) * 4096;
    let writes = (0..600).map(|index| write(at(index), &pattern(4096, index as usize), false)).collect();
    assert!(run_all(&mut medium, writes).iter().all(|(_, result)| result.is_ok()));
    let reads = (0..count).map(|index| Operation::Read { offset: at(index), length: 4096 }).collect();
    for (index, (bytes, result)) in (0..count).zip(run_all(&mut medium, reads)) {
        assert_eq!(result, Ok(()));
        assert!(bytes == *pattern(4096, (index % 600) as usize), "{index}");
    }
}

#[test]
fn commands_outside_are_refused_and_failures_are_reported() {
    let (mut medium, scene) = medium();
    let read = |offset, length| Operation::Read { offset, length };
    let end = SIZES[0] + SIZES[1];
    for (offset, length) in [(end, 512), (u64::MAX, 512), (SIZES[0] - 512, 1024), (end - 4096, 8192)] {
        assert_eq!(run(&mut medium, read(offset, length)), Err(MediaError::OutOfRange), "{offset}");
    }
    run(&mut medium, Operation::Deallocate { offset: 0, length: 0 }).unwrap();
    scene.borrow_mut().error = Some(MediaError::NoSpace);
    assert_eq!(run(&mut medium, write(0, &pattern(1 << 20, 0), false)), Err(MediaError::NoSpace));
    scene.borrow_mut().error = Some(MediaError::Read);
    assert_eq!(run(&mut medium, read(0, 1 << 20)), Err(MediaError::Read));
    scene.borrow_mut().error = None;
    run(&mut medium, read(0, 1 << 20)).unwrap();
}

#[test]
fn a_controller_that_is_stuck_is_reset_and_goes_on() {
    let (mut medium, scene) = medium();
    let data = pattern(256 << 10, 3);
    run(&mut medium, write(0, &data, false)).unwrap();
    *scene.borrow_mut() = Scene { stuck: true, heals: true, ..Scene::default() };
    let bytes = run(&mut medium, Operation::Read { offset: 0, length: 256 << 10 }).unwrap();
    assert!(bytes == *data);
    let notices = NOTICES.take();
    assert!(
        matches!(notices[..], [Notice::Resetting(ResetReason::Timeout { .. }), Notice::Back]),
        "{notices:?}"
    );
}

#[test]
fn commands_that_have_ended_unnoticed_cost_no_reset() {
    let (mut medium, scene) = medium();
    scene.borrow_mut().stuck = true;
    medium.submit(Request { id: IoId(0), medium: MediumId(0), operation: Operation::Flush });
    medium.reap(&mut |_| {});
    // Longer than a command may take: it is aborted. A flush ends all the same.
    std::thread::sleep(time::Duration::from_millis(25));
    medium.reap(&mut |_| {});
    assert_eq!(medium.host.engine().statistics().aborts, 2, "one for the flush of each namespace");
    scene.borrow_mut().stuck = false;
    medium.port.settle();
    std::thread::sleep(time::Duration::from_millis(25));
    let mut ended = Vec::new();
    medium.reap(&mut |completion| ended.push(completion));
    assert!(matches!(ended[..], [Completion::Done { id: IoId(0), result: Ok(()) }]), "{ended:?}");
    assert_eq!((NOTICES.take(), medium.host.engine().statistics().resets), (vec![], 0));
}

#[test]
fn a_controller_that_is_gone_fails_every_request() {
    for dead in [false, true] {
        let (mut medium, scene) = medium();
        *scene.borrow_mut() = Scene { stuck: true, dead, ..Scene::default() };
        let operations =
            (0..2000).map(|index| Operation::Read { offset: index * 512, length: 512 }).collect();
        let ended = run_all(&mut medium, operations);
        assert!(ended.iter().all(|(_, result)| *result == Err(MediaError::ReadFailed)));
        assert!(matches!(NOTICES.take().last(), Some(Notice::Failed(_))));
        assert_eq!(run(&mut medium, Operation::Flush), Err(MediaError::Write));
    }
}

#[test]
fn a_controller_without_namespaces_is_of_no_use() {
    let error = medium_of(Core::new("EMPTY")).err().unwrap();
    assert_eq!(error.to_string(), "the controller has no namespace");
}
