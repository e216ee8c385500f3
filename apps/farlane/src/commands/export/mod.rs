//! `farlane export`: one or more far ends.

mod external_device;

use std::net::SocketAddr;

use assemblies::far::Far;
use clap::ArgMatches;
use engine::{Entropy, Nanos};
use live::carrier::quic::{self, Fingerprint};
use live::carrier::tcp::{Listener, Options};
use live::drivers::control::Answering;
use live::drivers::far::{Event, FarDriver};
use live::media::state::Store;
use live::reactor::{Reactor, Several};
use live::sys::clock::Clock;
use live::sys::digest::crc32c;
use live::sys::entropy;
use nvme_pcie::{controller, function};
use tunnel::session::HandshakeError;

use crate::args::{ExportArgs, MemoryBuffer, Served};
use crate::commands::guest::tell_commands;
use crate::commands::served::{Ssd, finish};
use crate::commands::{
    OPENED_BY_LISTENER, OPENED_BY_NAMESPACE, begin_serving, control, print, print_json, status,
};
use crate::error::Error;

pub(crate) fn run(args: ExportArgs, matches: &ArgMatches) -> Result<(), Error> {
    let opened = OPENED_BY_LISTENER * (1 + args.listen.len()) + OPENED_BY_NAMESPACE * args.served.media();
    begin_serving(args.spin.cpu, opened)?;
    if let Some(path) = &args.vfio_user {
        return external_device::run(&args, path);
    }
    let control = control::bind(args.control.control.as_ref())?;
    let clock = Clock::start();
    // Signals are handled before the address is printed: whoever reads it may end the process in
    // good order.
    let mut reactor = Reactor::new(clock, Nanos::from(args.spin.spin)).map_err(Error::Output)?;
    reactor.stop().on_signals().map_err(Error::Output)?;
    let far_ends = args.served.divide(&args.listen, matches)?;
    let tcp = args.tcp.options()?;
    let mut quic = args.quic.listen(far_ends.len(), clock.now())?;
    let (mut drivers, mut stores) = (Vec::new(), Vec::new());
    for (index, (listen, served)) in far_ends.into_iter().enumerate() {
        // Memory at two ports that the system chooses is not the same memory.
        let place = format!("{listen} {index}");
        let what = Offered { place: &place, served: &served, memory_buffer: args.memory_buffer, tcp: &tcp };
        let (driver, store) =
            far_end(clock, (listen, quic.take()), &what, args.hold.into(), args.output.json)?;
        drivers.push(driver);
        stores.extend(store);
    }
    let of_far = |driver: &FarDriver<fn(Event)>| {
        status::of_far(clock.now(), driver, Some(driver.far().function().controller().statistics()))
    };
    let drivers: Several<_> = drivers.into_iter().collect();
    let mut drivers = Answering::new(drivers, control, |drivers: &Several<_>, line: &str| {
        status::answer(line, || status::of_far_ends(drivers.iter().map(of_far).collect()))
    });
    reactor.run(&mut drivers).map_err(|error| Error::Child { what: "the far end", error })?;
    for driver in drivers.driver().iter() {
        tell_commands(driver.far().function().controller().statistics());
    }
    drop(drivers);
    finish(stores)?;
    tell!("farlane: the far end has shut down");
    Ok(())
}

/// What a far end offers, and how.
struct Offered<'a> {
    /// Where the far end listens, which tells its memory from another's.
    place: &'a str,
    served: &'a Served,
    memory_buffer: MemoryBuffer,
    tcp: &'a Options,
}

/// The driver of a far end, and where its SSD's state is kept.
type FarEnd = (FarDriver<fn(Event)>, Option<Store>);

/// Opens a far end that listens, and announces it. Returns its driver, and where its SSD's state is
/// kept.
fn far_end(
    clock: Clock,
    (listen, quic): (SocketAddr, Option<quic::Listener>),
    what: &Offered<'_>,
    hold: Nanos,
    json: bool,
) -> Result<FarEnd, Error> {
    let ssd = Ssd::build(clock, what.served, what.place)?;
    let listener = Listener::bind(listen).map_err(|error| Error::Listen { address: listen, error })?;
    let listener = listener.with(what.tcp.clone());
    let address = listener.address();

    let mut entropy = entropy::system();
    let session = session(hold, &mut entropy, format!("farlane export {}", ssd.serial), "NVMe SSD");
    let device_serial = ssd.device_serial();
    let Ssd { config, media, store, serial, summary } = ssd;
    let memory_buffer_bytes = what.memory_buffer.bytes();
    let controller = controller::Config { memory_buffer_bytes, ..controller::Config::new(config) };
    let mut function = function::Config::new(controller);
    function.serial_number = device_serial;
    let far = Far::new(clock.now(), session, function, entropy);
    announce(json, &summary, address, quic.as_ref().map(QuicPlace::of), &serial)?;
    let driver: FarDriver<fn(Event)> = FarDriver::new(far, listener, media, report);
    let driver = match quic {
        Some(listener) => driver.with_quic(listener),
        None => driver,
    };
    Ok((driver, store))
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

fn announce(
    json: bool,
    count: &str,
    address: SocketAddr,
    quic: Option<QuicPlace>,
    serial: &str,
) -> Result<(), Error> {
    if json {
        let mut said = serde_json::json!({ "listening": address.to_string(), "serial": serial });
        QuicPlace::add_to(quic, &mut said);
        print_json(&said)?;
    } else {
        print(&format!(
            "exporting {count} of SSD {serial} at tcp://{address}{}\n",
            QuicPlace::and_url(quic)
        ))?;
    }
    warn(address, "this SSD");
    QuicPlace::warn(quic, "this SSD");
    Ok(())
}

/// Where the far end speaks QUIC, and with which certificate.
#[derive(Clone, Copy, Debug)]
struct QuicPlace {
    address: SocketAddr,
    certificate: Fingerprint,
}

impl QuicPlace {
    const fn of(listener: &quic::Listener) -> Self {
        Self { address: listener.address(), certificate: listener.fingerprint() }
    }

    /// The URL for people, as an addition to another URL.
    fn and_url(place: Option<Self>) -> String {
        place.map(|it| format!(" and quic://{}?cert={}", it.address, it.certificate)).unwrap_or_default()
    }

    /// Adds the address and the certificate to what machines are told.
    fn add_to(place: Option<Self>, said: &mut serde_json::Value) {
        if let Some(place) = place {
            said["quic"] = place.address.to_string().into();
            said["certificate"] = place.certificate.to_string().into();
        }
    }

    /// Warns a person who may use what is offered over QUIC.
    fn warn(place: Option<Self>, what: &str) {
        if let Some(Self { address, .. }) = place
            && !address.ip().is_loopback()
        {
            note!(
                "farlane: whoever reaches {address} by QUIC owns {what}, too: nobody is asked who they are."
            );
            note!("farlane: But nobody on the way reads or changes what passes.");
        }
    }
}

/// Warns a person who may use what is offered.
fn warn(address: SocketAddr, what: &str) {
    if address.ip().is_loopback() {
        note!("farlane: only this machine can reach {address}; nobody is asked who they are");
    } else {
        note!("farlane: whoever reaches {address} owns {what}: nobody is asked who they are, and nothing is");
        note!(
            "farlane: encrypted. Use it on a network that you trust, or inside a tunnel of your own, or --quic."
        );
    }
}

/// Tells a person about an event, on standard error.
fn report(event: Event) {
    let from = |peer: Option<SocketAddr>| peer.map(|peer| format!("{peer}: ")).unwrap_or_default();
    match event {
        // Port scanners and health checks connect and say nothing, so nothing is said of them.
        Event::Link(_, tunnel::Event::HandshakeFailed(HandshakeError::Disconnected)) | Event::Notify(_) => {}
        Event::Link(peer, event) => tell!("farlane: {}{event}", from(peer)),
        Event::AcceptFailed(error) => tell!("farlane: a connection could not be accepted: {error}"),
        Event::State(notice) => tell!("farlane: {notice}"),
        Event::ExternalDevice(event) => tell!("farlane: {event}"),
        Event::NoServer(error) => {
            tell!("farlane: nobody serves the device: {error}; trying again until somebody does");
        }
        Event::NoDescriptors(error) => {
            tell!("farlane: there are no descriptors for the device's interrupts: {error}");
        }
    }
}
