//! `farlane export`: one or more far ends.

mod external_device;
mod listeners;
mod metrics;

use std::net::SocketAddr;

use assemblies::far::Far;
use clap::ArgMatches;
use engine::{Entropy, Nanos};
use live::carrier::identity::{Fingerprint, Identity};
use live::carrier::quic;
use live::carrier::tcp::{Acceptor, Listener, Options};
use live::drivers::control::Answering;
use live::drivers::far::{Event, FarDriver};
use live::media::state::Store;
use live::reactor::{Reactor, Several, Working, jobs};
use live::sys::clock::Clock;
use live::sys::digest::crc32c;
use live::sys::entropy;
use live::sys::sandbox::Needs;
use live::sys::service;
use nvme_pcie::{controller, function};
use tunnel::session::HandshakeError;

use listeners::Listeners;

use crate::args::{ExportArgs, Served, Trusted, need_served};
use crate::commands::guest::tell_commands;
use crate::commands::served::{Ssd, finish};
use crate::commands::{
    OPENED_BY_LISTENER, OPENED_BY_NAMESPACE, begin_serving, control, counted, print, print_json, status,
};
use crate::error::{CarrierError, Error};

pub(crate) fn run(args: ExportArgs, matches: &ArgMatches) -> Result<(), Error> {
    let opened = OPENED_BY_LISTENER * (1 + args.listen.len()) + OPENED_BY_NAMESPACE * args.served.media();
    begin_serving(args.spin.cpu, opened)?;
    args.sandbox.confine(needs(&args))?;
    if let Some(path) = &args.vfio_user {
        return external_device::run(&args, path);
    }
    let control = control::bind("export", args.control.control.as_ref())?;
    let clock = Clock::start();
    // Signals are handled before the address is printed: whoever reads it may end the process in
    // good order.
    let mut reactor = Reactor::new(clock, Nanos::from(args.spin.spin)).map_err(Error::Output)?;
    reactor.stop().on_signals().map_err(Error::Output)?;
    let trusted = open_trust(&args)?;
    let far_ends = args.served.clone().divide(&args.listen, matches)?;
    let tcp = args.tcp.options()?;
    let mut listeners = Listeners::open(&args, &trusted, clock.now())?;
    let (mut drivers, mut stores) = (Vec::new(), Vec::new());
    for (index, (listen, served)) in far_ends.into_iter().enumerate() {
        // Memory at two ports that the system chooses is not the same memory.
        let place = format!("{listen} {index}");
        let what = Offered { place: &place, served: &served, tcp: &tcp, trusted: &trusted, args: &args };
        let (driver, store) = far_end(clock, listen, core::mem::take(&mut listeners), &what)?;
        drivers.push(driver);
        stores.extend(store);
    }
    let of_far = |driver: &FarDriver<fn(Event)>| {
        status::of_far(clock.now(), driver, Some(driver.far().function().controller()))
    };
    let drivers: Several<_> = drivers.into_iter().collect();
    let (hirer, jobs) = jobs(reactor.stop());
    crate::metrics::serve(&args.watch, move |page| metrics::add(page, clock, &hirer))?;
    let drivers = Working::new(drivers, jobs);
    let mut drivers = Answering::new(drivers, control, |drivers: &Working<Several<_>>, line: &str| {
        status::answer(line, || status::of_far_ends(drivers.driver().iter().map(of_far).collect()))
    });
    args.sandbox.renounce()?;
    service::ready(&counted((drivers.driver().driver().iter().count(), "far end")));
    reactor.serve();
    reactor.run(&mut drivers).map_err(|error| Error::Child { what: "the far end", error })?;
    for driver in drivers.driver().driver().iter() {
        tell_commands(driver.far().function().controller().statistics());
    }
    drop(drivers);
    finish(stores)?;
    info!("the far end has shut down");
    Ok(())
}

/// What the far ends go on using.
fn needs(args: &ExportArgs) -> Needs {
    let mut needs = Needs::default();
    need_served(&mut needs, &args.served);
    args.watch.need(&mut needs);
    args.trust.need(&mut needs);
    args.tcp.need(&mut needs);
    args.shm.iter().for_each(|path| needs.change_beside(path));
    needs.sends_frames |= args.eth.is_some();
    control::need(&mut needs, "export", args.control.control.as_ref());
    needs
}

/// What a far end offers, and how.
struct Offered<'a> {
    /// Where the far end listens, which tells its memory from another's.
    place: &'a str,
    served: &'a Served,
    tcp: &'a Options,
    trusted: &'a Trusted,
    args: &'a ExportArgs,
}

/// The driver of a far end, and where its SSD's state is kept.
type FarEnd = (FarDriver<fn(Event)>, Option<Store>);

/// Opens a far end that listens, and announces it. Returns its driver, and the place of its
/// SSD's state.
fn far_end(
    clock: Clock,
    listen: SocketAddr,
    listeners: Listeners,
    what: &Offered<'_>,
) -> Result<FarEnd, Error> {
    let Offered { trusted, args, .. } = what;
    let ssd = Ssd::build(clock, what.served, what.place)?;
    let listener = Listener::bind(listen).map_err(|error| Error::Listen { address: listen, error })?;
    let listener = with_tls(listener.with(what.tcp.clone()), trusted.acceptor()?);
    let address = listener.address();

    let mut entropy = entropy::system();
    let session =
        session(args.hold.into(), &mut entropy, format!("farlane export {}", ssd.serial), "NVMe SSD");
    let device_serial = ssd.device_serial();
    let Ssd { config, media, store, serial, summary } = ssd;
    let memory_buffer_bytes = args.memory_buffer.bytes();
    let controller = controller::Config { memory_buffer_bytes, ..controller::Config::new(config) };
    let mut function = function::Config::new(controller);
    function.serial_number = device_serial;
    let far = Far::new(clock.now(), session, function, entropy);
    let places = Places::of(address, &listeners, trusted);
    announce(args.output.json, &summary, &places, &serial)?;
    let driver: FarDriver<fn(Event)> = FarDriver::new(far, listener, media, report);
    let driver = driver.with_admission(clock.now(), trusted.admission.clone());
    Ok((listeners.join(driver), store))
}

/// Settings of a far end's tunnel session, with what the far end says of itself.
fn session(hold: Nanos, entropy: &mut Entropy, name: String, device: &str) -> tunnel::session::Config {
    let (vendor, device) = ("Farlane".to_owned(), device.to_owned());
    let identity = tunnel::frame::Identity { name, vendor, device, ..tunnel::frame::Identity::default() };
    let mut session =
        tunnel::session::Config { hold, identity, crc32c, ..tunnel::session::Config::default() };
    entropy.fill(&mut session.identity.instance.0);
    session
}

/// Reads the key and the list of admitted hosts that the arguments name.
fn open_trust(args: &ExportArgs) -> Result<Trusted, Error> {
    let addresses: Vec<_> = args.listen.iter().copied().chain(args.quic.quic).chain(args.udp).collect();
    let udp = args.udp.filter(|address| !address.ip().is_loopback()).map(|it| ("--udp", it.to_string()));
    let eth = args.eth.as_ref().map(|it| ("--eth", it.to_string()));
    let is_meant = args.trust.is_insecure() || args.trust.has_list();
    if let Some((option, place)) = udp.or(eth).filter(|_| !is_meant) {
        return Err(CarrierError::Exposed { option, place }.into());
    }
    args.trust.open(&addresses, args.quic.quic.is_some())
}

fn with_tls(listener: Listener, acceptor: Option<Acceptor>) -> Listener {
    match acceptor {
        Some(acceptor) => listener.with_tls(acceptor),
        None => listener,
    }
}

fn announce(json: bool, count: &str, places: &Places, serial: &str) -> Result<(), Error> {
    if json {
        let mut said = serde_json::json!({ "serial": serial });
        places.add_to(&mut said);
        print_json(&said)?;
    } else {
        print(&format!("exporting {count} of SSD {serial} at {}\n", places.urls()))?;
    }
    places.warn("this SSD");
    Ok(())
}

/// Where a far end listens, and who it is there.
#[derive(Clone, Debug)]
struct Places {
    tcp: SocketAddr,
    quic: Option<SocketAddr>,
    /// Further ways to reach it: the scheme of each, without its colon, and the place.
    others: Vec<(&'static str, String)>,
    /// The far end's key, if it has one.
    key: Option<Fingerprint>,
    /// Whether hosts must prove a key.
    is_closed: bool,
}

impl Places {
    fn of(tcp: SocketAddr, listeners: &Listeners, trusted: &Trusted) -> Self {
        let key = trusted.identity.as_ref().map(Identity::fingerprint);
        let is_closed = trusted.admission.has_list();
        let quic = listeners.quic.as_ref().map(quic::Listener::address);
        let shm = listeners.shm.as_ref().map(|listener| ("shm", listener.path().display().to_string()));
        let udp = listeners.udp.as_ref().map(|listener| ("udp", listener.name().to_owned()));
        let eth = listeners.eth.as_ref().map(|listener| ("eth", listener.name().to_owned()));
        let others = shm.into_iter().chain(udp).chain(eth).collect();
        Self { tcp, quic, others, key, is_closed }
    }

    /// The URLs for people.
    fn urls(&self) -> String {
        let key = self.key.map(|key| format!("?key={key}")).unwrap_or_default();
        let tcp = format!("tcp://{}{}", self.tcp, if self.is_closed { &key } else { "" });
        let quic = self.quic.map(|address| format!(" and quic://{address}{key}"));
        let others = self.others.iter().map(|(scheme, place)| {
            let slashes = if *scheme == "udp" { "//" } else { "" };
            format!(" and {scheme}:{slashes}{place}")
        });
        core::iter::once(tcp).chain(quic).chain(others).collect()
    }

    /// Adds the addresses and the key to what machines are told.
    fn add_to(&self, said: &mut serde_json::Value) {
        said["listening"] = self.tcp.to_string().into();
        if let Some(address) = self.quic {
            said["quic"] = address.to_string().into();
        }
        for (scheme, place) in &self.others {
            said[*scheme] = place.as_str().into();
        }
        if let Some(key) = self.key {
            said["key"] = key.to_string().into();
        }
    }

    /// Tells a person who may use what is offered.
    fn warn(&self, what: &str) {
        let addresses = core::iter::once(self.tcp).chain(self.quic);
        match addresses.into_iter().find(|address| !address.ip().is_loopback()) {
            _ if self.is_closed => note!("only hosts with an admitted key reach {what}"),
            Some(address) => {
                warn!(
                    each = true,
                    "whoever reaches {address} owns {what}: nobody is asked who they are (--insecure)"
                );
            }
            None => {
                note!("only this machine can reach {}; nobody is asked who they are", self.tcp);
            }
        }
    }
}

/// Tells a person about an event, on standard error.
fn report(event: Event) {
    let from = |peer: Option<SocketAddr>| peer.map(|peer| format!("{peer}: ")).unwrap_or_default();
    match event {
        // Port scanners and health checks connect and say nothing, so nothing is said of them.
        Event::Link(_, tunnel::Event::HandshakeFailed(HandshakeError::Disconnected)) | Event::Notify(_) => {}
        Event::Link(peer, event) => info!("{}{event}", from(peer)),
        Event::Admission(Ok(())) => info!("the list of admitted hosts was read again"),
        Event::Admission(Err(error)) => warn!("{error}; the former list stays in force"),
        Event::AcceptFailed(error) => warn!("a connection could not be accepted: {error}"),
        Event::State(notice) => warn!("{notice}"),
        Event::ExternalDevice(event) => info!("{event}"),
        Event::NoServer(error) => {
            warn!("nobody serves the device: {error}; trying again until somebody does");
        }
        Event::NoDescriptors(error) => {
            warn!("there are no descriptors for the device's interrupts: {error}");
        }
    }
}
