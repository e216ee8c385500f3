//! `farlane target`: offers subsystems over NVMe/TCP.

mod client;
mod config;
mod core;
mod cores;
mod each_host;
mod hosts;
pub(crate) mod request;
mod save;
mod server;
mod status;
mod values;

use std::path::{Path, PathBuf};

use ::status::{Report, Status};
use assemblies::fabric::Fabric;
use assemblies::target::{PROOF_MAX, STRANGERS_MAX};
use daemon::{Daemon, Opening, Reply, Settings};
use engine::{Instant, Nanos};
use live::carrier::tcp;
use live::client::AttachError;
use live::drivers::fabrics::target::{StrangerLimits, WORK_SHARE};
use live::drivers::mdns::Announcer;
use live::reactor::{JobSender, Stop, jobs};
use live::sys::descriptors;
use live::sys::sandbox::Needs;
use nvme_fabrics::target::{ControllerModel, HostTerms};
use serde_json::Value;

use crate::args::{
    Backing, Control, Discovery, HostSpec, MediumSpec, OfferArgs, daemon_settings, need_far, need_served,
};
use crate::commands::capture::Captures;
use crate::commands::served::{finish, room};
use crate::commands::{OPENED_BY_LISTENER, OPENED_BY_NAMESPACE};
use crate::error::Error;
use config::{Offer, PortSpec, Source, SubsystemSpec};
use core::Core;
use cores::Cores;
use request::Request;
use server::Server;

/// The part of descriptors and memory for connections whose hosts have not authenticated.
const STRANGERS_SHARE: u64 = 8;
/// The most memory of such a connection, in bytes: its received bytes, bytes that wait for it, and
/// a handshake.
const STRANGER_BYTES: u64 = 64 << 10;

pub(crate) fn run(args: OfferArgs) -> Result<(), Error> {
    match args.action {
        Some(action) => client::run(action),
        None => offer(&args),
    }
}

/// Checks the file at `path` without offering anything.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    config::read(path)?.check()
}

/// The offer of a target with these options.
///
/// # Errors
/// When a file can't be read, or options contradict each other.
fn offered(args: &OfferArgs) -> Result<Offer, Error> {
    let mut offer = match &args.config {
        Some(path) => config::read(path)?,
        None => given(args)?,
    };
    offer.insecure |= args.insecure;
    offer.discovery = args.discovery.or(offer.discovery);
    offer.check()?;
    room::check(offer.memory())?;
    args.memory_max.map_or(Ok(()), |bytes| room::check_limit("--memory-max", bytes))?;
    if args.mdns && offer.discovery == Some(Discovery::Closed) {
        return Err(Error::NothingToAnnounce);
    }
    Ok(offer)
}

/// Checks options that contradict each other, and the files that they name.
#[cfg(test)]
pub(crate) fn check_options(args: &OfferArgs) -> Result<(), Error> {
    offered(args).map(drop)
}

fn offer(args: &OfferArgs) -> Result<(), Error> {
    let offer = offered(args)?;
    daemon::run(Offering { args, offer: Some(offer), senders: Vec::new() })
}

/// The daemon of a target.
struct Offering<'a> {
    args: &'a OfferArgs,
    /// The offer, until the server has it.
    offer: Option<Offer>,
    /// The ways to all cores.
    senders: Vec<JobSender<Core>>,
}

impl Daemon for Offering<'_> {
    const KIND: &'static str = "target";
    const WHAT: &'static str = "the target";
    type Driver = Server;
    type Request = Request;
    type Status = Report;
    type Captures = Captures;
    type Error = Error;

    fn settings(&self) -> Settings {
        let args = self.args;
        let (ports, media) = self.offer.as_ref().map_or((0, 0), |offer| (offer.ports.len(), offer.media()));
        let cores = args.cores(self.offer.as_ref().and_then(|offer| offer.cores));
        let opened = OPENED_BY_LISTENER * (ports + cores) + OPENED_BY_NAMESPACE * media * cores;
        let control = Control { control: args.control.clone() };
        daemon_settings(&args.spin, opened, &args.sandbox, &control, &args.watch)
    }

    fn needs(&self, needs: &mut Needs) {
        if let Some(offer) = &self.offer {
            need(needs, self.args, offer);
        }
    }

    fn open(&mut self, opening: &Opening) -> Result<Server, Error> {
        let (args, clock) = (self.args, opening.clock);
        let offer = self.offer.take().expect("it is opened once");
        let memory_max = args.memory_max.unwrap_or_else(live::sys::memory::budget_default);
        let proof_max = args.prove_within.or(offer.prove_within).map_or(PROOF_MAX, Nanos::from);
        let strangers = StrangerLimits { places: places(memory_max), proof_max, work_share: WORK_SHARE };
        let count = args.cores(offer.cores);
        let cores = Cores::start(clock, &opening.stop, &args.spin, count, strangers, memory_max)?;
        let announcer = args.mdns.then(|| Announcer::new(args.mdns_port)).transpose()?;
        let options = tcp::Options { precedence: args.precedence.precedence(), ..tcp::Options::default() };
        options.check()?;
        let mut server = Server::new(cores, args.config.clone(), announcer, options, offer)?;
        if args.discovery.is_some() {
            server.keep_discovery();
        }
        let (first, first_jobs) = jobs(opening.stop.clone());
        self.senders = server.accept_jobs(first, first_jobs);
        Ok(server)
    }

    fn announce(&mut self, driver: &mut Server) -> Result<(), Error> {
        driver.announce(self.args.output.json)
    }

    fn summary(&self, driver: &Server) -> String {
        driver.summary()
    }

    /// A thread beside the loops asks the cores for their parts.
    fn status(&mut self, driver: &mut Server, _now: Instant, _sender: &JobSender<Server>) -> Reply<Report> {
        let (access, senders) = (driver.access(), self.senders.clone());
        Reply::Later(Box::new(move || {
            let target = status::of_cores(&senders, access)?;
            Some(Report::of(Status::Target(target)))
        }))
    }

    fn answer(&mut self, driver: &mut Server, request: Request, _stop: &Stop) -> Result<Value, String> {
        driver.answer(request)
    }

    fn has_configuration(&self) -> bool {
        self.args.config.is_some()
    }

    fn reload(&mut self, driver: &mut Server) -> Result<Value, String> {
        driver.reload()
    }

    fn end(self, driver: Server) -> Result<(), Error> {
        let stores = driver.stores();
        driver.join().map_err(|error| Error::Child { what: Self::WHAT, error })?;
        finish(stores)
    }
}

/// How many connections may wait for the authentication of their hosts: an eighth of the
/// descriptors, and no more than hold an eighth of the memory.
fn places(memory_max: u64) -> usize {
    let descriptors = descriptors::limit() / STRANGERS_SHARE;
    let memory = memory_max / STRANGERS_SHARE / STRANGER_BYTES;
    usize::try_from(descriptors.min(memory)).unwrap_or(STRANGERS_MAX).min(STRANGERS_MAX)
}

/// The resources that the target goes on using. A reload may name further files in the folders of
/// files that the configuration names already.
fn need(needs: &mut Needs, args: &OfferArgs, offer: &Offer) {
    need_served(needs, &args.served);
    args.config.iter().for_each(|path| needs.read_beside(path));
    for subsystem in &offer.subsystems {
        subsystem.state.iter().for_each(|path| needs.change_beside(path));
        for (_, terms) in &subsystem.terms {
            let tls = terms.tls.as_ref().map(|tls| &tls.origin);
            let secret = terms.credentials.as_ref().map(|credentials| &credentials.origin);
            tls.into_iter().chain(secret).for_each(|origin| needs.read_beside(Path::new(origin)));
        }
        let Source::Listed(listed) = &subsystem.source else { continue };
        for one in listed {
            match &one.backing {
                Backing::Medium(MediumSpec::File(spec)) => needs.change_beside(&spec.path),
                Backing::Medium(MediumSpec::Far(spec)) => need_far(needs, spec.secrets()),
                Backing::Ram(_) => {}
            }
        }
    }
    args.precedence.need(needs);
    if offer.ports.iter().any(|port| port.fabric == Fabric::Verbs) {
        needs.folders.push(PathBuf::from("/dev/infiniband"));
    }
    // Namespaces that are added while the target runs may be at the far end of a network.
    needs.dials = true;
}

/// The offer of the command line: one subsystem, or nothing without a name.
fn given(args: &OfferArgs) -> Result<Offer, Error> {
    let Some(nqn) = args.nqn.clone() else { return Ok(Offer::default()) };
    let reported = |index: usize| args.advertise.get(index).copied();
    let port = |(index, (listen, fabric))| PortSpec { listen, fabric, advertise: reported(index) };
    let shared = hosts::shared_terms(&args.secrets.files()).map_err(AttachError::Secret)?;
    let of = |host: &HostSpec| {
        let permit = host.permit.clone();
        (host.nqn.clone(), HostTerms { permit, ..shared.clone() })
    };
    let terms = args.host.iter().map(of).filter(|(_, terms)| *terms != HostTerms::default()).collect();
    let subsystem = SubsystemSpec {
        nqn,
        serial: args.served.serial.clone(),
        state: None,
        hosts: args.host.iter().map(|host| host.nqn.clone()).collect(),
        terms,
        ports: Vec::new(),
        model: ControllerModel::default(),
        ana_groups: args.ana_groups,
        max_transfer: args.served.max_transfer.unwrap_or_default(),
        access: Vec::new(),
        source: Source::Given(Box::new(args.served.clone())),
    };
    let ports = args.ports().into_iter().enumerate().map(port).collect();
    Ok(Offer { ports, subsystems: vec![subsystem], ..Offer::default() })
}
