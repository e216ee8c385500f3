//! `farlane export`: far ends.

mod foreign;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

use clap::ArgMatches;
use engine::{Nanos, Rng};
use live::attach::random;
use live::clock::Clock;
use live::far::{Event, FarDriver};
use live::media::{Media, Options, nvme as controllers, open};
use live::reactor::{Reactor, Several};
use live::tcp::Listener;
use machine::far::Far;
use nvme::media::ram::RamDisk;
use nvme::subsystem::{BlockSize, Config};
use nvme_pcie::{controller, function};
use tunnel::session::HandshakeError;

use crate::args::{ExportArgs, Served};
use crate::commands::{print, print_json, stay_on};
use crate::error::Error;

pub(crate) fn run(args: ExportArgs, matches: &ArgMatches) -> Result<(), Error> {
    stay_on(args.spin.cpu)?;
    if let Some(path) = &args.vfio_user {
        return foreign::run(&args, path);
    }
    let clock = Clock::start();
    let far_ends = args.served.divide(&args.listen, matches)?;
    let mut drivers = Vec::new();
    for (index, (listen, mut served)) in far_ends.into_iter().enumerate() {
        // Memory at two ports of the system's choice is not the same memory.
        let serial = served.serial.take().unwrap_or_else(|| serial_of(&served, (listen, index)));
        drivers.push(far_end(clock, listen, &served, &serial, args.hold.into(), args.output.json)?);
    }
    let mut drivers: Several<_> = drivers.into_iter().collect();
    let mut reactor = Reactor::new(clock, Nanos::from(args.spin.spin)).map_err(Error::Output)?;
    reactor.stop().on_signals().map_err(Error::Output)?;
    reactor.run(&mut drivers).map_err(|error| Error::Child { what: "the far end", error })?;
    eprintln!("farlane: the far end has shut down");
    Ok(())
}

/// A far end that listens, and says so.
fn far_end(
    clock: Clock,
    listen: SocketAddr,
    served: &Served,
    serial: &str,
    hold: Nanos,
    json: bool,
) -> Result<FarDriver<fn(Event)>, Error> {
    let mut media = Media::new();
    let core = namespaces(clock, served, serial, &mut media)?;
    let count = served.count(core.namespaces.len());
    let listener = Listener::bind(listen).map_err(|error| Error::Listen { address: listen, error })?;
    let address = listener.address();

    let mut rng = random();
    let session = session(hold, &mut rng, format!("farlane export {serial}"), "NVMe SSD");
    let mut function = function::Config::new(controller::Config::new(core));
    function.serial_number = hash_of(&serial);
    let far = Far::new(clock.now(), session, function, rng.fork("sessions"));
    announce(json, &count, address, serial)?;
    Ok(FarDriver::new(far, listener, media, report))
}

/// What the tunnel's end says of itself.
fn session(hold: Nanos, rng: &mut Rng, name: String, device: &str) -> tunnel::session::Config {
    let (vendor, device) = ("Farlane".to_owned(), device.to_owned());
    let identity = tunnel::frame::Identity { name, vendor, device, ..tunnel::frame::Identity::default() };
    let mut session = tunnel::session::Config { hold, identity, ..tunnel::session::Config::default() };
    rng.fill(&mut session.identity.instance.0);
    session
}

/// The controller's namespaces: files, then memory, then those of other controllers.
pub(crate) fn namespaces(
    clock: Clock,
    served: &Served,
    serial: &str,
    media: &mut Media,
) -> Result<Config, Error> {
    let mut core = Config::new(serial);
    let add = |core: Config, medium, (offset, bytes), block: u32, read_only| {
        let mut core = core.with_namespace(medium, bytes);
        if let Some(namespace) = core.namespaces.last_mut() {
            namespace.offset = offset;
            namespace.block = if block == 4096 { BlockSize::Bytes4096 } else { BlockSize::Bytes512 };
            namespace.read_only = read_only;
        }
        core
    };
    for spec in &served.namespace {
        let options =
            Options { size: spec.size, block: spec.block, readonly: spec.readonly, ..Options::default() };
        let file = open(&spec.path, &options)?;
        for note in file.notes() {
            eprintln!("farlane: {}: {note}", spec.path.display());
        }
        let bytes = file.size();
        core = add(core, media.add(file), (0, bytes), spec.block, spec.readonly);
    }
    for spec in &served.ram {
        core = add(core, media.add(RamDisk::new(spec.size)), (0, spec.size), spec.block, false);
    }
    for address in &served.vfio {
        let controller =
            controllers::open(clock, *address, report_controller).map_err(|error| Error::Vfio { error })?;
        let extents = controller.extents().to_vec();
        let medium = media.add(controller);
        for extent in extents {
            core = add(core, medium, (extent.offset, extent.bytes), extent.block, false);
        }
    }
    if let Some(bytes) = served.pool {
        core = core.with_pool(media.add(RamDisk::new(bytes)), bytes);
    }
    Ok(core)
}

pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The same namespaces give the same serial number, so that a host knows the SSD again. Memory is told apart by
/// `place`, where it is offered.
pub(crate) fn serial_of(served: &Served, place: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    for spec in &served.namespace {
        std::path::absolute(&spec.path).unwrap_or_else(|_| spec.path.clone()).hash(&mut hasher);
    }
    for address in &served.vfio {
        address.hash(&mut hasher);
    }
    for spec in &served.ram {
        (spec.size, spec.block, &place).hash(&mut hasher);
    }
    if let Some(bytes) = served.pool {
        (bytes, &place).hash(&mut hasher);
    }
    format!("FL{:016X}", hasher.finish())
}

fn announce(json: bool, count: &str, address: SocketAddr, serial: &str) -> Result<(), Error> {
    if json {
        print_json(&serde_json::json!({ "listening": address.to_string(), "serial": serial }))?;
    } else {
        print(&format!("exporting {count} of SSD {serial} at tcp://{address}\n"))?;
    }
    warn(address, "this SSD");
    Ok(())
}

/// Says who may use what is offered.
fn warn(address: SocketAddr, what: &str) {
    if address.ip().is_loopback() {
        eprintln!("farlane: only this machine can reach {address}; nobody is asked who they are");
    } else {
        eprintln!(
            "farlane: whoever reaches {address} owns {what}: nobody is asked who they are, and nothing is"
        );
        eprintln!("farlane: encrypted. Use it on a network that you trust, or inside a tunnel of your own.");
    }
}

/// Tells a person what a controller of this machine is up to.
fn report_controller(notice: controllers::Notice) {
    eprintln!("farlane: the SSD: {notice}");
}

/// Tells a person what happens, on standard error.
fn report(event: Event) {
    let from = |peer: Option<SocketAddr>| peer.map(|peer| format!("{peer}: ")).unwrap_or_default();
    match event {
        // Port scanners and health checks: nothing was said, so nothing is answered.
        Event::Link(_, tunnel::Event::HandshakeFailed(HandshakeError::Disconnected)) | Event::Notify(_) => {}
        Event::Link(peer, event) => eprintln!("farlane: {}{event}", from(peer)),
        Event::AcceptFailed(error) => eprintln!("farlane: a connection could not be accepted: {error}"),
        Event::Foreign(event) => eprintln!("farlane: {event}"),
        Event::NoServer(error) => {
            eprintln!("farlane: nobody serves the device: {error}; trying again until somebody does");
        }
        Event::NoDescriptors(error) => {
            eprintln!("farlane: there are no descriptors for the device's interrupts: {error}");
        }
    }
}
