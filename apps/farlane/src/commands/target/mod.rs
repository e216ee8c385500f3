//! `farlane target`: offers subsystems over NVMe/TCP.

mod client;
mod config;
mod core;
mod cores;
mod hosts;
mod hosts_told;
mod metrics;
mod request;
mod server;
mod status;
mod teller;

pub(crate) use config::{Listed, listed_in};
pub(crate) use status::text as status_text;

use std::path::{Path, PathBuf};

use assemblies::fabric::Fabric;
use assemblies::target::{PROOF_MAX, STRANGERS_MAX};
use engine::Nanos;
use live::carrier::tcp;
use live::client::AttachError;
use live::drivers::fabrics::target::StrangerLimits;
use live::drivers::mdns::Announcer;
use live::reactor::{Reactor, jobs};
use live::sys::clock::Clock;
use live::sys::descriptors;
use live::sys::sandbox::Needs;
use nvme_fabrics::target::{ControllerModel, HostTerms};

use crate::args::{Backing, Discovery, HostSpec, MediumSpec, OfferArgs, need_far, need_served};
use crate::commands::control::{self, Questions};
use crate::commands::served::{finish, room};
use crate::commands::{OPENED_BY_LISTENER, OPENED_BY_NAMESPACE, begin_serving};
use crate::error::Error;
use config::{Offer, PortSpec, Source, SubsystemSpec};
use cores::Cores;
use server::Server;
use teller::Teller;

/// The part of descriptors and memory for connections whose hosts have not proved who they are.
const STRANGERS_SHARE: u64 = 8;
/// What such a connection may hold, in bytes: what it has said, what waits for it, and a handshake.
const STRANGER_BYTES: u64 = 64 << 10;

pub(crate) fn run(args: OfferArgs) -> Result<(), Error> {
    match args.action {
        Some(action) => client::run(action),
        None => offer(args),
    }
}

/// Checks the file at `path` without offering anything.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    config::read(path)?.check()
}

/// What a target with these options offers.
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

fn offer(args: OfferArgs) -> Result<(), Error> {
    let offer = offered(&args)?;
    let loops = offer.ports.len() + args.cores;
    let opened = OPENED_BY_LISTENER * loops + OPENED_BY_NAMESPACE * offer.media();
    begin_serving(args.spin.cpu, opened)?;
    args.sandbox.confine(needs(&args, &offer))?;
    let clock = Clock::start();
    let mut reactor = Reactor::new(clock, Nanos::from(args.spin.spin)).map_err(Error::System)?;
    let memory_max = args.memory_max.unwrap_or_else(live::sys::memory::budget_default);
    let proof_max = args.prove_within.or(offer.prove_within).map_or(PROOF_MAX, Nanos::from);
    let strangers = StrangerLimits { places: places(memory_max), proof_max, one_of: args.cores };
    let cores = Cores::start(clock, &reactor.stop(), &args.spin, strangers, memory_max)?;
    let announcer = args.mdns.then(|| Announcer::new(args.mdns_port)).transpose()?;
    let options = tcp::Options { precedence: args.precedence.precedence(), ..tcp::Options::default() };
    options.check()?;
    let mut server = Server::new(cores, args.config.clone(), announcer, options, offer)?;
    if args.discovery.is_some() {
        server.keep_discovery();
    }
    if let Some(control) = control::bind("target", args.control.as_ref())? {
        server.ask_by(Questions::new(control, clock));
    }
    if args.config.is_some() {
        server.reload_on(reactor.stop().on_signals_but_hang_up().map_err(Error::System)?);
    } else {
        reactor.stop().on_signals().map_err(Error::System)?;
    }
    let (first, first_jobs) = jobs(reactor.stop());
    let hirers = server.hire(first, first_jobs);
    server.tell_by(Teller::start(hirers.clone()).map_err(Error::System)?);
    crate::metrics::serve(&args.watch, move |page| metrics::add(page, &hirers))?;
    server.announce(args.output.json)?;
    args.sandbox.renounce()?;
    server.tell_ready();
    reactor.serve();
    let ended = reactor.run(&mut server);
    let stores = server.stores();
    let ended = ended.and_then(|_| server.join());
    ended.map_err(|error| Error::Child { what: "the target", error })?;
    finish(stores)?;
    info!("the target has shut down");
    Ok(())
}

/// How many connections may wait for the proof of who their hosts are: an eighth of the
/// descriptors, and no more than hold an eighth of the memory.
fn places(memory_max: u64) -> usize {
    let descriptors = descriptors::limit() / STRANGERS_SHARE;
    let memory = memory_max / STRANGERS_SHARE / STRANGER_BYTES;
    usize::try_from(descriptors.min(memory)).unwrap_or(STRANGERS_MAX).min(STRANGERS_MAX)
}

/// What the target goes on using. A reload may name further files in the folders of those that the
/// file names already.
fn needs(args: &OfferArgs, offer: &Offer) -> Needs {
    let mut needs = Needs::default();
    need_served(&mut needs, &args.served);
    args.watch.need(&mut needs);
    args.config.iter().for_each(|path| needs.read_beside(path));
    control::need(&mut needs, "target", args.control.as_ref());
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
                Backing::Medium(MediumSpec::Far(spec)) => need_far(&mut needs, spec.secrets()),
                Backing::Ram(_) => {}
            }
        }
    }
    args.precedence.need(&mut needs);
    if offer.ports.iter().any(|port| port.fabric == Fabric::Verbs) {
        needs.folders.push(PathBuf::from("/dev/infiniband"));
    }
    // What is added while the target runs may be at the far end of a network.
    needs.dials = true;
    needs
}

/// What the command line offers: one subsystem, or nothing without a name.
fn given(args: &OfferArgs) -> Result<Offer, Error> {
    let Some(nqn) = args.nqn.clone() else { return Ok(Offer::default()) };
    let told = |index: usize| args.advertise.get(index).copied();
    let port = |(index, (listen, fabric))| PortSpec { listen, fabric, advertise: told(index) };
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
