//! A far end that a host of this process reaches through shared memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Nanos, Rng};
use nvme::media::ram::RamDisk;
use nvme_pcie::{controller, function};

use super::*;
use crate::client::{Address, Controller, Event as HostEvent, Options};
use crate::reactor::{Outcome, Reactor};
use crate::sys::clock::Clock;

const DISK_BYTES: u64 = 1 << 20;
const PATIENCE: Nanos = Nanos::from_secs(30);
/// How often the host reads a register before it leaves, at least: it goes on as long as its reads
/// find the far end asleep, as on a machine with other work.
const READS: u32 = 1000;

/// Counts the glances of a driver by their results.
struct Counted<D> {
    driver: D,
    nothing: u32,
    done: u32,
    /// Whether a host was there.
    hosts: bool,
    /// Whether glances have found something and nothing.
    is_seen: Arc<AtomicBool>,
}

impl<F: FnMut(Event)> Driver for Counted<FarDriver<F>> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.driver.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let turn = self.driver.turn(context);
        self.hosts |= !self.driver.shell.peers.is_empty();
        turn
    }
    fn glance(&mut self, context: &Context<'_>) -> Glance {
        let glance = self.driver.glance(context);
        assert!(glance == Glance::Blind || !self.driver.shell.peers.is_empty(), "no peer is there");
        self.nothing += u32::from(glance == Glance::Nothing);
        self.done += u32::from(glance == Glance::Done);
        self.is_seen.store(self.done > 0 && self.nothing > 0, Ordering::Relaxed);
        glance
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.driver.poll_timeout()
    }
    fn on_stop(&mut self, now: Instant) {
        self.driver.on_stop(now);
    }
}

#[test]
fn what_comes_through_shared_memory_is_found_by_glances() {
    let folder = tempfile::tempdir().unwrap();
    let lines = shm::Listener::bind(&folder.path().join("far")).unwrap();
    let address = Address::Far(format!("shm:{}", lines.path().display()));
    let clock = Clock::start();
    let mut media = Media::new();
    let medium = media.add(RamDisk::new(DISK_BYTES)).unwrap();
    let core = nvme::subsystem::Config::new("GLANCED").with_namespace(medium, DISK_BYTES);
    let function = function::Config::new(controller::Config::new(core));
    let far = Far::new(clock.now(), tunnel::session::Config::default(), function, Rng::from_seed(1));
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let driver = FarDriver::new(far, listener, media, |_| ()).with_shm(lines);
    let is_seen = Arc::new(AtomicBool::new(false));
    let mut far_end = Counted { driver, nothing: 0, done: 0, hosts: false, is_seen: is_seen.clone() };
    let mut reactor = Reactor::new(clock, PATIENCE).unwrap();
    let stop = reactor.stop();
    let host = std::thread::spawn(move || {
        let options = Options { spin: PATIENCE, ..Options::new("test") };
        let mut host = Controller::open(&address, &options).unwrap();
        host.wait_ready(PATIENCE).unwrap();
        let (start, mut reads) = (host.now(), 0);
        while reads < READS || !is_seen.load(Ordering::Relaxed) && host.now() - start < PATIENCE {
            reads += 1;
            let now = host.now();
            host.probe(now).unwrap();
            while !matches!(host.next_event(Some(now + PATIENCE)).unwrap(), Some(HostEvent::Probed(Ok(_)))) {}
        }
        stop.ask();
    });
    assert_eq!(reactor.run(&mut far_end).unwrap(), Outcome::Done);
    host.join().unwrap();
    let Counted { nothing, done, hosts, .. } = far_end;
    assert!(hosts && done > 0 && nothing > 0, "{done} glances of {} found something", nothing + done);
}
