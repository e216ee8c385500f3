//! Lanes of a function, used from this process over vfio-user.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant as Wall};

use assemblies::guest::{Config, Guest};
use engine::Buffer;
use nvme::host::Data;
use nvme::host::command::on_blocks;
use nvme::media::ram::RamDisk;
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_fabrics::host::multipath::Request;
use nvme_pcie::controller;
use nvme_pcie::function::{self, Function};

use super::*;
use crate::client::{Controller, Event, Options, Url};
use crate::drivers::guest::{self, GuestDriver};
use crate::media::{self, Media};
use crate::reactor::{JobSender, WithJobs, jobs};
use crate::sys::unix::Listener;

const DISK: u64 = 4 << 20;
const BLOCK: u32 = 512;
const PATIENCE: Nanos = Nanos::from_secs(60);

type Driver = GuestDriver<Box<dyn FnMut(guest::Event)>>;

/// A function on a thread, with lanes. It has a namespace in memory and one in a file.
struct Running {
    folder: tempfile::TempDir,
    sender: JobSender<Driver>,
    stop: Stop,
    failed: Arc<AtomicUsize>,
    thread: JoinHandle<io::Result<()>>,
}

fn start(lanes: usize, doorbells: bool) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let (socket, file) = (folder.path().join("ssd"), folder.path().join("file"));
    let failed = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&failed);
    let (said, heard) = channel();
    let thread = std::thread::spawn(move || {
        let clock = Clock::start();
        let mut reactor = Reactor::new(clock, Nanos::ZERO)?;
        let mut media = Media::new();
        let ram = media.add(RamDisk::new(DISK)).unwrap();
        let options = media::Options { size: Some(DISK), ..media::Options::default() };
        let file = media.add(media::open(&file, &options).unwrap()).unwrap();
        let core = nvme::subsystem::Config::new("LANES").with_namespace(ram, DISK).with_namespace(file, DISK);
        let function = Function::new(clock.now(), function::Config::new(controller::Config::new(core)));
        let guest = Guest::direct(Config { doorbells, ..Config::default() }, clock.now());
        let report: Box<dyn FnMut(guest::Event)> = Box::new(move |event| {
            if matches!(event, guest::Event::LaneFailed) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut driver =
            GuestDriver::direct(guest, function, media, Listener::bind(&socket).unwrap(), report);
        let stop = reactor.stop();
        let threads = Threads { clock, spin: Nanos::ZERO, processor: None, home: stop.clone() };
        assert_eq!(driver.spread(lanes, &threads)?, lanes);
        let (sender, taken) = jobs(stop.clone());
        said.send((sender, stop)).unwrap();
        reactor.run(&mut WithJobs::new(driver, taken)).map(|_| ())
    });
    let (sender, stop) = heard.recv().unwrap();
    Running { folder, sender, stop, failed, thread }
}

impl Running {
    fn host(&self, queues: u16) -> Controller {
        let url = Url::VfioUser(self.folder.path().join("ssd"));
        let options = Options { queues, ..Options::new("test") };
        let mut host = Controller::open(&url.resolve().unwrap(), &options).unwrap();
        host.wait_ready(PATIENCE).unwrap();
        host
    }

    fn lanes(&self) -> Vec<LaneStatus> {
        self.sender.run(|driver| driver.lanes()).unwrap()
    }

    fn end(self) {
        self.stop.ask();
        self.thread.join().unwrap().unwrap();
    }
}

/// Carries out a command on an I/O queue. Returns its data, or `None` if it failed.
fn ask(host: &mut Controller, queue: u16, opcode: IoOpcode, at: (u32, u64), data: Data) -> Option<Buffer> {
    let (namespace, block) = at;
    let entry = on_blocks(opcode, NamespaceId(namespace), block, 8);
    let (now, deadline) = (host.now(), host.now() + PATIENCE);
    host.submit_io(now, Request { cookie: 1, entry, data, queue }).ok()?;
    loop {
        match host.next_event(Some(deadline)).unwrap().expect("the command ends") {
            Event::Completed(completed) if completed.cookie == 1 => {
                return completed.status.is_success().then_some(completed.data);
            }
            Event::Failed { .. } => return None,
            _ => {}
        }
    }
}

/// Writes by each queue what the next one reads.
fn use_queues(host: &mut Controller, queues: u16, seed: u8) {
    for namespace in [1, 2] {
        for queue in 0..queues {
            let (fill, at) = (seed.wrapping_add(queue.to_le_bytes()[0]), (namespace, 8 * u64::from(queue)));
            let bytes = Buffer::copy_from_slice(&[fill; 8 * BLOCK as usize]);
            assert!(ask(host, queue, IoOpcode::Write, at, Data::Write(bytes)).is_some());
            let next = (queue + 1) % queues;
            let read = ask(host, next, IoOpcode::Read, at, Data::Read(8 * BLOCK)).expect("a read succeeds");
            assert!(read.iter().all(|byte| *byte == fill), "queue {queue} of namespace {namespace}");
        }
    }
}

#[test]
fn queues_on_several_threads_read_what_others_wrote() {
    for (lanes, doorbells) in [(0, false), (1, false), (1, true), (3, false), (3, true)] {
        let running = start(lanes, doorbells);
        for client in 0..2 {
            let mut host = running.host(4);
            use_queues(&mut host, 4, 100 + client);
            let status = running.lanes();
            assert_eq!(status.len(), lanes);
            // The home has a share, too.
            let shares = if lanes == 0 { Vec::new() } else { vec![4 / (lanes as u64 + 1); lanes] };
            assert_eq!(status.iter().map(|lane| lane.queues).collect::<Vec<_>>(), shares);
            assert!(status.iter().all(|lane| lane.commands > 0 && lane.interrupts > 0), "{status:?}");
            host.close().unwrap();
        }
        running.end();
    }
}

#[test]
fn a_lane_that_fails_ends_its_queues_and_the_function_goes_on_after_a_reset() {
    let running = start(2, false);
    let mut host = running.host(3);
    use_queues(&mut host, 3, 1);
    running.sender.run(|driver| driver.plant_panic(0)).unwrap();
    // The host finds the fatal status, resets the controller, and goes on with the threads left.
    let began = Wall::now();
    let fill = Buffer::copy_from_slice(&[9; 8 * BLOCK as usize]);
    for queue in 0..3 {
        while ask(&mut host, queue, IoOpcode::Write, (1, 0), Data::Write(fill.clone())).is_none() {
            assert!(began.elapsed() < Duration::from_secs(60), "the function works again");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    use_queues(&mut host, 3, 50);
    assert_eq!(running.failed.load(Ordering::Relaxed), 1);
    assert_eq!(running.lanes().len(), 1);
    host.close().unwrap();
    running.end();
}
