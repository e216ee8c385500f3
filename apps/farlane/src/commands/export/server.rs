//! The far ends of a process, and their answers to requests while they run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ArgMatches;
use engine::Instant;
use live::drivers::far::{Event, FarDriver};
use live::reactor::{Context, Driver, Glance, Several, Sources, Turn};
use live::sys::clock::Clock;
use nvme::wire::NamespaceId;
use serde_json::Value;

use super::request::{Changed, Request, Resized, is_at};
use crate::args::Backing;
use crate::capture::{Taps, What};
use crate::commands::capture::Capturable;
use crate::commands::control::reply;
use crate::commands::save::offer::{Exported, FarEnd, OfferedNamespace};
use crate::commands::served::Numbered;
use crate::commands::served::changes::{self, open_at_work};
use crate::commands::served::running::Running;
use crate::commands::status;
use crate::counters::{Tallies, next_tallies};

/// The offer of one far end.
pub(super) struct Offered {
    /// The address that was asked for, which names the far end in the file.
    pub(super) listen: SocketAddr,
    pub(super) serial: String,
    /// Whether the SSD keeps its state, and with it the identifiers of namespaces.
    pub(super) has_state: bool,
    /// The namespaces that were given by themselves, and those added since.
    pub(super) listed: Vec<Numbered>,
    /// The same, and the number of media, as they were at the start.
    pub(super) listed_at_start: Vec<Numbered>,
    pub(super) media_at_start: usize,
}

/// The file that far ends were started with.
pub(super) struct File {
    pub(super) path: PathBuf,
    /// The options as they were read last.
    pub(super) matches: ArgMatches,
}

type FarEnds = Several<FarDriver<fn(Event)>>;

/// Far ends that share a loop, where they take requests, and the file that describes them.
pub(super) struct Server {
    pub(super) clock: Clock,
    pub(super) far_ends: FarEnds,
    /// The offer of each far end, in the order of the far ends.
    pub(super) offered: Vec<Offered>,
    pub(super) file: Option<File>,
}

impl Server {
    /// The far ends.
    pub(super) const fn far_ends(&self) -> &FarEnds {
        &self.far_ends
    }

    /// Carries out a request.
    pub(super) fn answer(&mut self, request: Request) -> Result<Value, String> {
        match request {
            Request::Add { far_end, namespace, ram } => Backing::asked(namespace.as_deref(), ram.as_deref())
                .and_then(|backing| self.add(far_end, backing)),
            Request::Remove { far_end, nsid } => {
                self.find(far_end).and_then(|index| self.remove(index, nsid))
            }
            Request::Resize { far_end, nsid, size } => {
                self.find(far_end).and_then(|index| self.resize(index, nsid, size))
            }
            Request::Offered => self.report_offered(),
            Request::Status | Request::Reload => Err("every daemon answers it by itself".to_owned()),
        }
    }

    /// The status of each far end but for the counts of its namespaces.
    pub(super) fn status(&self, now: Instant) -> Vec<::status::FarEnd> {
        let one = |driver: &FarDriver<fn(Event)>| {
            status::of_far(now, driver, |seat| Some(seat.function().controller()))
        };
        self.far_ends().iter().map(one).collect()
    }

    /// The next tallies of namespaces of a far end; none if the far end is gone by now.
    pub(super) fn next_tallies(&self, index: usize, after: NamespaceId) -> Tallies {
        let driver = self.far_ends().iter().nth(index);
        let tallies = driver.map(|driver| driver.far().core().tallies());
        tallies.map(|tallies| next_tallies(tallies, after)).unwrap_or_default()
    }

    /// The index of a far end: of the only one, or of the listener on the address.
    fn find(&self, far_end: Option<SocketAddr>) -> Result<usize, String> {
        let Some(address) = far_end else {
            return match self.offered.len() {
                1 => Ok(0),
                _ => Err("there are several far ends: choose one with --far-end".to_owned()),
            };
        };
        // An address that the system chose is known as well as the requested one.
        let mut places = self.far_ends().iter().zip(&self.offered);
        let found =
            places.position(|(driver, one)| is_at(driver.address(), address) || one.listen == address);
        found.ok_or(format!("no far end listens on {address}"))
    }

    fn driver(&mut self, index: usize) -> Option<&mut FarDriver<fn(Event)>> {
        self.far_ends.iter_mut().nth(index)
    }

    fn add(&mut self, far_end: Option<SocketAddr>, backing: Backing) -> Result<Value, String> {
        let index = self.find(far_end)?;
        let id = self.add_namespace(index, backing)?;
        self.added(index, id)
    }

    pub(super) fn add_namespace(&mut self, index: usize, backing: Backing) -> Result<u32, String> {
        let (opened, now) = (open_at_work(self.clock, &backing)?, self.clock.now());
        let serial = self.offered[index].serial.clone();
        let driver = self.driver(index).ok_or("the far end is gone")?;
        let add = |core: &mut _, media: &mut _| changes::add(now, core, media, None, opened, &serial);
        let id = driver.with_namespaces(now, add)?;
        self.offered[index].listed.push(Numbered { id, backing });
        Ok(id)
    }

    /// The content of a file by which the next start offers the same.
    fn report_offered(&self) -> Result<Value, String> {
        let path = self.file.as_ref().map(|file| std::path::absolute(&file.path));
        let config = path.transpose().map_err(|error| error.to_string())?;
        let offered = |one: &Numbered| OfferedNamespace::of(one.id, &one.backing);
        let far_end = |one: &Offered| FarEnd {
            keeps_state: one.has_state,
            namespaces: one.listed.iter().map(offered).collect(),
        };
        let far_ends = self.offered.iter().map(far_end).collect();
        let is_given_beside = crate::config_file::is_given_beside(&["namespace", "ram"]);
        reply(&Exported { config, is_given_beside, far_ends })
    }
}

impl Running for Server {
    const RESIZES: &'static str = "farlane export resize";

    fn name(&self, index: usize) -> String {
        let driver = self.far_ends().iter().nth(index);
        driver.map(|driver| format!("tcp://{}", driver.address())).unwrap_or_default()
    }

    fn nqn(&self, _index: usize) -> Option<&str> {
        None
    }

    fn changed(&self, index: usize, nsid: u32) -> Result<Value, String> {
        reply(&Changed { far_end: self.name(index), nsid })
    }

    fn resized(&self, index: usize, nsid: u32, bytes: u64) -> Result<Value, String> {
        reply(&Resized { far_end: self.name(index), nsid, bytes })
    }

    fn listed(&mut self, index: usize) -> impl Iterator<Item = (u32, &mut Backing)> {
        self.offered[index].listed.iter_mut().map(|one| (one.id, &mut one.backing))
    }

    fn unlist(&mut self, index: usize, nsid: u32) {
        self.offered[index].listed.retain(|one| one.id != nsid);
    }

    fn bytes_of(&mut self, index: usize, nsid: u32) -> Result<Option<u64>, String> {
        let driver = self.far_ends().iter().nth(index);
        let core = driver.map(|driver| driver.far().core());
        Ok(core.and_then(|core| changes::find(core, nsid)).map(|one| one.bytes))
    }

    fn remove_namespace(&mut self, index: usize, nsid: u32) -> Result<(), String> {
        // The namespaces of a controller of this machine, and the pool, exist as a whole.
        if !self.offered[index].listed.iter().any(|one| one.id == nsid) {
            return Err(format!(
                "{} has no namespace {nsid} of its own that it could remove",
                self.name(index)
            ));
        }
        let now = self.clock.now();
        let driver = self.driver(index).ok_or("the far end is gone")?;
        driver.with_namespaces(now, |core, media| changes::remove(now, core, media, nsid))?;
        Ok(())
    }

    fn resize_namespace(&mut self, index: usize, nsid: u32, size: Option<u64>) -> Result<u64, String> {
        let now = self.clock.now();
        let driver = self.driver(index).ok_or("the far end is gone")?;
        driver.with_namespaces(now, |core, media| changes::resize(now, core, media, nsid, size))
    }
}

impl Capturable for Server {
    fn what(&self) -> What {
        What::Packets
    }

    fn notes(&self) -> Vec<String> {
        self.far_ends.notes()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        self.far_ends.tap(taps)
    }
}

impl Driver for Server {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.far_ends.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        self.far_ends.turn(context)
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        self.far_ends.glance(context)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.far_ends.poll_timeout()
    }

    fn on_stop(&mut self, now: Instant) {
        self.far_ends.on_stop(now);
    }
}
