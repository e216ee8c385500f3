//! `farlane export`: one or more far ends.

mod client;
mod external_device;
mod listeners;
mod reload;
pub(crate) mod request;
mod save;
mod server;
mod succession;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ::status::Report;
use assemblies::far::Seats;
use clap::ArgMatches;
use daemon::{Daemon, Opening, Reply, Settings};
use engine::{Entropy, Instant, Nanos};
use live::carrier::Acceptor;
use live::carrier::identity::{Fingerprint, Identity};
use live::carrier::tcp::{Listener, Options};
use live::carrier::{datagrams, quic};
use live::drivers::far::{Event, FarDriver};
use live::media::state::Store;
use live::reactor::{JobSender, Stop};
use live::sys::clock::Clock;
use live::sys::digest::crc32c;
use live::sys::entropy;
use live::sys::hand_over::HandOver;
use live::sys::sandbox::Needs;
use nvme::subsystem::NAMESPACE_ID_MAX;
use nvme_pcie::{controller, function};
use serde_json::Value;
use tunnel::frame::NetworkTime;
use tunnel::session::HandshakeError;

use listeners::Listeners;
use request::Request;
use server::{File, Offered, Server};
use succession::{Memories, Taken};

use crate::args::{ExportArgs, MediumSpec, Served, Trusted, daemon_settings, need_served};
use crate::commands::capture::Captures;
use crate::commands::guest::log_commands;
use crate::commands::listening::Listening;
use crate::commands::served::{Ssd, finish, room};
use crate::commands::{OPENED_BY_LISTENER, OPENED_BY_NAMESPACE, counted, print, print_json, status};
use crate::counters;
use crate::error::{CarrierError, Error};

/// How many namespaces may be added above the highest identifier of the start. Firmware asks for
/// each identifier that there may be, one round trip after the other.
const ROOM: u32 = 31;

pub(crate) fn run(args: ExportArgs, matches: &ArgMatches) -> Result<(), Error> {
    match args.action {
        Some(action) => client::run(action),
        None => offer(&args, matches),
    }
}

fn offer(args: &ExportArgs, matches: &ArgMatches) -> Result<(), Error> {
    check(args, matches)?;
    let config = matches.get_one::<PathBuf>("config");
    match &args.vfio_user {
        Some(path) => daemon::run(external_device::External::new(args, path, config)),
        None => daemon::run(Export {
            args,
            matches,
            config,
            time: None,
            announcements: Vec::new(),
            stores: Vec::new(),
            memories: Vec::new(),
        }),
    }
}

/// Far ends that offer SSDs of this process.
struct Export<'a> {
    args: &'a ExportArgs,
    matches: &'a ArgMatches,
    config: Option<&'a PathBuf>,
    /// The network's time by the clock.
    time: Option<NetworkTime>,
    /// Each far end's offer, its places, and its SSD's serial number.
    announcements: Vec<(String, Places, String)>,
    /// Where states are kept.
    stores: Vec<Store>,
    /// Contents of memories of each far end, while a successor may go on with them.
    memories: Vec<Memories>,
}

impl Daemon for Export<'_> {
    const KIND: &'static str = "export";
    const WHAT: &'static str = "the far end";
    type Driver = Server;
    type Request = Request;
    type Status = Report;
    type Captures = Captures;
    type Error = Error;

    fn settings(&self) -> Settings {
        settings(self.args)
    }

    fn prepare(&mut self, clock: Clock) -> Result<(), Error> {
        self.time = prepare(self.args, clock)?;
        Ok(())
    }

    fn needs(&self, needs: &mut Needs) {
        need(needs, self.args, self.config);
    }

    fn open(&mut self, opening: &Opening) -> Result<Server, Error> {
        let (args, clock) = (self.args, opening.clock);
        let trusted = open_trust(args)?;
        let far_ends = args.served.clone().divide(&args.listen, self.matches)?;
        let tcp = args.tcp.options()?;
        let mut listeners = Listeners::open(args, &trusted, clock.now())?;
        let inherited = opening.hand_over.take().map(succession::inherited).transpose()?;
        let mut inherited = inherited.unwrap_or_default().into_iter();
        let (mut drivers, mut offered) = (Vec::new(), Vec::new());
        for (index, (listen, served)) in far_ends.into_iter().enumerate() {
            let place = place_of(listen, index);
            let (served, tcp, trusted) = (&served, &tcp, &trusted);
            let what = Offer { place: &place, served, tcp, trusted, time: self.time, args };
            let far_end = far_end(clock, listen, core::mem::take(&mut listeners), inherited.next(), &what)?;
            drivers.push(far_end.driver);
            offered.push(far_end.offered);
            self.stores.extend(far_end.store);
            self.announcements.push(far_end.announcement);
        }
        let file = self.config.map(|path| File { path: path.clone(), matches: self.matches.clone() });
        Ok(Server { clock, far_ends: drivers.into_iter().collect(), offered, file })
    }

    fn announce(&mut self, _driver: &mut Server) -> Result<(), Error> {
        let mut announcements = self.announcements.iter();
        announcements.try_for_each(|(summary, places, serial)| {
            announce(self.args.output.json, summary, places, serial)
        })
    }

    fn summary(&self, driver: &Server) -> String {
        counted((driver.offered.len(), "far end"))
    }

    /// A thread beside the loop adds the counts of namespaces, of which there may be thousands.
    fn status(&mut self, driver: &mut Server, now: Instant, sender: &JobSender<Server>) -> Reply<Report> {
        let (mut far_ends, sender) = (driver.status(now), sender.clone());
        Reply::Later(Box::new(move || {
            for (index, far_end) in far_ends.iter_mut().enumerate() {
                let next = move |server: &mut Server, after| server.next_tallies(index, after);
                far_end.activity = Some(counters::activity(&sender, next)?);
            }
            Some(status::of_far_ends(far_ends))
        }))
    }

    fn answer(&mut self, driver: &mut Server, request: Request, _stop: &Stop) -> Result<Value, String> {
        driver.answer(request)
    }

    fn has_configuration(&self) -> bool {
        self.config.is_some()
    }

    fn reload(&mut self, driver: &mut Server) -> Result<Value, String> {
        driver.reload()
    }

    fn leave(&mut self, driver: &mut Server) -> Result<HandOver, String> {
        let hand_over = succession::leave(driver)?;
        self.memories = succession::let_go(driver);
        let saved = finish(core::mem::take(&mut self.stores));
        match saved {
            Ok(()) => Ok(hand_over),
            Err(error) => {
                self.go_on(driver)?;
                Err(error.to_string())
            }
        }
    }

    fn go_on(&mut self, driver: &mut Server) -> Result<(), String> {
        let failed = |error: Error| error.to_string();
        let far_ends = self.args.served.clone().divide(&self.args.listen, self.matches).map_err(failed)?;
        let memories = core::mem::take(&mut self.memories).into_iter();
        let all = far_ends.into_iter().zip(memories).zip(driver.far_ends.iter_mut());
        for (index, (((listen, served), memories), far_end)) in all.enumerate() {
            let mut ssd = Ssd::build(driver.clock, &served, &place_of(listen, index)).map_err(failed)?;
            succession::recall(&mut ssd.media, memories)?;
            far_end.exchange_media(ssd.media);
            far_end.wake();
            self.stores.extend(ssd.store);
        }
        Ok(())
    }

    fn end(self, driver: Server) -> Result<(), Error> {
        for driver in driver.far_ends.iter() {
            for seat in driver.far().seats() {
                log_commands(seat.function().controller().statistics());
            }
        }
        drop(driver);
        finish(self.stores)
    }
}

/// The place of a far end. Memory at two ports that the system chooses is not the same memory.
fn place_of(listen: SocketAddr, index: usize) -> String {
    format!("{listen} {index}")
}

/// The options that every daemon has.
fn settings(args: &ExportArgs) -> Settings {
    let opened = OPENED_BY_LISTENER * (1 + args.listen.len()) + OPENED_BY_NAMESPACE * args.served.media();
    daemon_settings(&args.spin, opened, &args.sandbox, &args.control, &args.watch)
}

/// Checks that there is room for the offer. Returns the network's time by the clock.
fn prepare(args: &ExportArgs, clock: Clock) -> Result<Option<NetworkTime>, Error> {
    room::check(args.served.memory())?;
    args.ptp.network_time(&clock)
}

/// The resources that the far ends go on using. A reload may name further files in the folders of
/// files that the configuration names already.
fn need(needs: &mut Needs, args: &ExportArgs, config: Option<&PathBuf>) {
    if let Some(path) = config {
        needs.read_beside(path);
        let media = args.served.namespace.iter();
        let files = media.filter_map(|spec| match spec {
            MediumSpec::File(spec) => Some(&spec.path),
            MediumSpec::Far(_) => None,
        });
        // The folder of a device has the devices of all users.
        let files = files.filter(|path| !path.starts_with("/dev"));
        files.for_each(|path| needs.change_beside(path));
        // So may a device at the far end of a network.
        needs.dials = true;
    }
    need_served(needs, &args.served);
    args.trust.need(needs);
    args.tcp.need(needs);
    args.launch.need(needs);
    args.shm.iter().for_each(|path| needs.change_beside(path));
    needs.sends_frames |= args.eth.is_some();
    needs.avoids_stack |= args.eth.as_ref().is_some_and(|place| place.xdp);
}

/// The offer of a far end, and its settings.
struct Offer<'a> {
    /// Where the far end listens. Its place distinguishes its memory from another's.
    place: &'a str,
    served: &'a Served,
    tcp: &'a Options,
    trusted: &'a Trusted,
    /// The network's time by the clock.
    time: Option<NetworkTime>,
    args: &'a ExportArgs,
}

/// A far end that listens.
struct FarEnd {
    driver: FarDriver<fn(Event)>,
    offered: Offered,
    /// Where its SSD's state is kept.
    store: Option<Store>,
    /// Its offer, its places, and its SSD's serial number.
    announcement: (String, Places, String),
}

/// Opens a far end that listens.
fn far_end(
    clock: Clock,
    listen: SocketAddr,
    listeners: Listeners,
    inherited: Option<(OwnedFd, Taken)>,
    what: &Offer<'_>,
) -> Result<FarEnd, Error> {
    let Offer { trusted, args, .. } = what;
    let ssd = Ssd::build(clock, what.served, what.place)?;
    let (socket, taken) = inherited.unzip();
    let listener = socket.map_or_else(|| Listener::bind(listen), Listener::inherited);
    let listener = listener.map_err(|error| Error::Listen { address: listen, error })?;
    let listener = with_tls(listener.with(what.tcp.clone()), trusted.acceptor()?);
    let address = listener.address();

    let mut entropy = entropy::system();
    let name = format!("farlane export {}", ssd.serial);
    let mut session = session(args.hold.into(), &mut entropy, name, "NVMe SSD");
    session.time = what.time;
    if args.eth.is_some() {
        session = datagrams::quiet(session);
    }
    let device_serial = ssd.device_serial();
    let Ssd { mut config, mut media, store, serial, summary, listed } = ssd;
    let left = taken.map(|taken| taken.settle(&serial, &mut media)).transpose()?;
    let highest = config.namespaces.iter().map(|namespace| namespace.id.0).max().unwrap_or(0);
    config.namespaces_max = (highest + ROOM).min(NAMESPACE_ID_MAX);
    let memory_buffer_bytes = args.memory_buffer.bytes();
    let controller = controller::Config { memory_buffer_bytes, ..controller::Config::new(config) };
    let mut function = function::Config::new(controller);
    function.serial_number = device_serial;
    let far = Seats::new(clock.now(), session, function, entropy, args.hosts);
    let places = Places::of(address, &listeners, trusted);
    let media_at_start = media.count();
    let mut driver: FarDriver<fn(Event)> = FarDriver::new(far, listener, media, report);
    if let Some(left) = left {
        driver = driver.succeeding(left);
    }
    let driver = driver.with_admission(clock.now(), trusted.admission.clone());
    let announcement = (summary, places, serial.clone());
    let listed_at_start = listed.clone();
    let offered =
        Offered { listen, serial, has_state: store.is_some(), listed, listed_at_start, media_at_start };
    Ok(FarEnd { driver: listeners.join(driver), offered, store, announcement })
}

/// Settings of a far end's tunnel session, with the far end's description of itself.
fn session(hold: Nanos, entropy: &mut Entropy, name: String, device: &str) -> tunnel::session::Config {
    let (vendor, device) = ("Farlane".to_owned(), device.to_owned());
    let identity = tunnel::frame::Identity { name, vendor, device, ..tunnel::frame::Identity::default() };
    let mut session =
        tunnel::session::Config { hold, identity, crc32c, ..tunnel::session::Config::default() };
    entropy.fill(&mut session.identity.instance.0);
    session
}

/// Checks options that contradict each other. It opens no file.
///
/// # Errors
/// When a far end would have nothing to offer, or would offer it to every host.
pub(crate) fn check(args: &ExportArgs, matches: &ArgMatches) -> Result<(), Error> {
    check_exposure(args)?;
    match &args.vfio_user {
        Some(path) => external_device::check(args, path),
        None => args.served.clone().divide(&args.listen, matches).map(drop),
    }
}

/// The addresses at which hosts reach the far ends.
fn addresses(args: &ExportArgs) -> Vec<SocketAddr> {
    args.listen.iter().copied().chain(args.quic.quic).chain(args.udp).collect()
}

fn check_exposure(args: &ExportArgs) -> Result<(), Error> {
    let udp = args.udp.filter(|address| !address.ip().is_loopback()).map(|it| ("--udp", it.to_string()));
    let eth = args.eth.as_ref().map(|it| ("--eth", it.to_string()));
    let is_meant = args.trust.is_insecure() || args.trust.has_list();
    if let Some((option, place)) = udp.or(eth).filter(|_| !is_meant) {
        return Err(CarrierError::Exposed { option, place }.into());
    }
    args.trust.check(&addresses(args))
}

/// Reads the key and the list of admitted hosts that the arguments name.
fn open_trust(args: &ExportArgs) -> Result<Trusted, Error> {
    args.trust.open(&addresses(args), args.quic.quic.is_some())
}

fn with_tls(listener: Listener, acceptor: Option<Acceptor>) -> Listener {
    match acceptor {
        Some(acceptor) => listener.with_tls(acceptor),
        None => listener,
    }
}

fn announce(json: bool, count: &str, places: &Places, serial: &str) -> Result<(), Error> {
    if json {
        print_json(&Listening { serial: Some(serial.to_owned()), ..places.listening() })?;
    } else {
        print(&format!("exporting {count} of SSD {serial} at {}\n", places.urls()))?;
    }
    places.warn("this SSD");
    Ok(())
}

/// The addresses of a far end, and its identity there.
#[derive(Clone, Debug)]
struct Places {
    tcp: SocketAddr,
    quic: Option<SocketAddr>,
    /// Further ways to reach it: the scheme of each, without its colon, and the place.
    others: Vec<(&'static str, String)>,
    /// The carrier of bare frames, if they are a way.
    frames_by: Option<String>,
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
        let frames_by = listeners.eth.as_ref().map(datagrams::Listener::carried_by);
        let others = shm.into_iter().chain(udp).chain(eth).collect();
        Self { tcp, quic, others, frames_by, key, is_closed }
    }

    /// The URLs for people.
    fn urls(&self) -> String {
        let key = self.key.map(|key| format!("?key={key}")).unwrap_or_default();
        let asked = if self.is_closed { &key } else { "" };
        let tcp = format!("tcp://{}{asked}", self.tcp);
        let quic = self.quic.map(|address| format!(" and quic://{address}{key}"));
        let others = self.others.iter().map(|(scheme, place)| {
            let slashes = if *scheme == "udp" { "//" } else { "" };
            format!(" and {scheme}:{slashes}{place}{asked}")
        });
        let by = self.frames_by.as_ref().map(|by| format!(" ({by})"));
        core::iter::once(tcp).chain(quic).chain(others).chain(by).collect()
    }

    /// The addresses and the key for machines.
    fn listening(&self) -> Listening {
        let other = |wanted: &str| {
            let found = self.others.iter().find(|(scheme, _)| *scheme == wanted);
            found.map(|(_, place)| place.clone())
        };
        Listening {
            quic: self.quic.as_ref().map(SocketAddr::to_string),
            shm: other("shm"),
            udp: other("udp"),
            eth: other("eth"),
            frames_by: self.frames_by.clone(),
            key: self.key.as_ref().map(Fingerprint::to_string),
            ..Listening::at(self.tcp)
        }
    }

    /// Warns which hosts may use the offer.
    fn warn(&self, what: &str) {
        let addresses = core::iter::once(self.tcp).chain(self.quic);
        match addresses.into_iter().find(|address| !address.ip().is_loopback()) {
            _ if self.is_closed => note!("only hosts with an admitted key reach {what}"),
            Some(address) => {
                warn!(
                    each = true,
                    "{address} is reachable from other machines, and {what} has no authentication (--insecure)"
                );
            }
            None => {
                note!("only this machine can reach {}, which has no authentication", self.tcp);
            }
        }
    }
}

/// Logs an event on standard error.
fn report(event: Event) {
    let from = |peer: Option<SocketAddr>| peer.map(|peer| format!("{peer}: ")).unwrap_or_default();
    match event {
        // Port scanners and health checks connect and send nothing, so they are not logged.
        Event::Link(_, tunnel::Event::HandshakeFailed(HandshakeError::Disconnected)) | Event::Notify(_) => {}
        Event::Link(peer, event) => info!("{}{event}", from(peer)),
        Event::Admission(Ok(())) => info!("the list of admitted hosts was read again"),
        Event::Admission(Err(error)) => warn!("{error}; the former list stays in force"),
        Event::AcceptFailed(error) => warn!("a connection could not be accepted: {error}"),
        Event::State(notice) => warn!("{notice}"),
        Event::ExternalDevice(event) => info!("{event}"),
        Event::NoServer(error) => {
            warn!("no process serves the device: {error}; trying again until one does");
        }
        Event::NoDescriptors(error) => {
            warn!("there are no descriptors for the device's interrupts: {error}");
        }
    }
}
