//! `farlane observe list`: the running daemons of this user.

use ::status::{Link, Namespace, Report, SchemaVersion, Ssd, Status};
use schemars::JsonSchema;
use serde::Serialize;

use super::text;
use crate::args::ListArgs;
use crate::commands::{control, counted, print, print_line};
use crate::device_path;
use crate::error::Error;

/// The `--json` report: the running daemons of this user, and the namespaces that they offer.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct Listed {
    schema_version: SchemaVersion,
    /// The report of each daemon.
    daemons: Vec<Listing>,
    /// The namespaces that these daemons offer, under the names of nvme list; DevicePath is
    /// URL,nsid=N.
    #[serde(rename = "Devices")]
    devices: Vec<Device>,
}

/// A daemon.
#[derive(Serialize, JsonSchema)]
struct Listing {
    /// Path of its control socket.
    socket: String,
    #[serde(flatten)]
    report: Report,
}

/// A namespace that a daemon offers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
struct Device {
    /// Namespace identifier (NSID).
    name_space: u32,
    /// URL,nsid=N, which other commands take.
    device_path: String,
    /// The same path.
    generic_path: String,
    /// Firmware revision of the SSD.
    firmware: String,
    /// Model number of the SSD.
    model_number: String,
    /// Serial number of the SSD.
    serial_number: String,
    /// Size in bytes.
    used_bytes: u64,
    /// Number of blocks.
    #[serde(rename = "MaximumLBA")]
    maximum_lba: u64,
    /// Size in bytes.
    physical_size: u64,
    /// Bytes of a block.
    sector_size: u32,
}

pub(crate) fn run(args: &ListArgs) -> Result<(), Error> {
    let mut found = control::look()?;
    if args.printing.is_json() {
        let daemons = std::mem::take(&mut found.daemons);
        let devices = daemons.iter().flat_map(|daemon| devices(&daemon.report.status)).collect();
        let listing = |daemon: control::Daemon| Listing {
            socket: daemon.socket.to_string_lossy().into_owned(),
            report: daemon.report,
        };
        let daemons = daemons.into_iter().map(listing).collect();
        print_line(&Listed { schema_version: SchemaVersion, daemons, devices })?;
    } else if found.daemons.is_empty() && found.unreadable.is_empty() {
        print(&control::nothing_runs())?;
    } else {
        let of = |daemon: &control::Daemon| rows(&daemon.report.status, &daemon.socket.to_string_lossy());
        print(&table(&found.daemons.iter().flat_map(of).collect::<Vec<_>>()))?;
    }
    found.all_read()
}

/// The offers or uses of a daemon, and its state; one row for each place where it is reached.
fn rows(status: &Status, socket: &str) -> Vec<[String; 4]> {
    let row = |place: String, state: String| [status.kind().to_owned(), place, state, socket.to_owned()];
    let own = |[place, state]: [String; 2]| vec![row(place, state)];
    match status {
        Status::Target(target) => {
            let hosts = target.subsystems.iter().map(|one| one.controllers.len()).sum();
            let subsystems = counted((target.subsystems.len(), "subsystem"));
            let state = format!("{subsystems}, {}", counted((hosts, "host")));
            let places = target.listening.iter().zip(&target.fabrics);
            places.map(|(at, fabric)| row(format!("{at} ({fabric})"), state.clone())).collect()
        }
        Status::Export(export) => export
            .far_ends
            .iter()
            .map(|far| row(format!("tcp://{}", far.listening), link(&far.link)))
            .collect(),
        Status::Attach(slot) => {
            let url = slot.url.as_deref().unwrap_or_default();
            let state = slot.link.as_ref().map(link).unwrap_or_default();
            vec![row(format!("{url} as vfio-user:{}", slot.vfio_user), state)]
        }
        Status::Nic(card) => own(text::nic(card)),
        Status::Rdma(server) => own(text::rdma(server)),
        Status::Emulate(network) => own(text::emulate(network)),
        Status::Connect(device) => own(text::connect_row(device)),
        Status::Device(slot) => {
            let state = if slot.client { "a guest is there" } else { "no guest" };
            vec![row(format!("vfio-user:{}", slot.vfio_user), state.to_owned())]
        }
        Status::Record(recorder) | Status::Replay(recorder) => {
            let model = &recorder.medium.model;
            let state = format!("{}, {} B in", recorder.state, recorder.bytes_in);
            vec![row(if model.is_empty() { "a recording" } else { model }.to_owned(), state)]
        }
    }
}

/// The namespaces that a daemon offers, under the names that nvme-cli gives their parts. Each has a
/// path of its own, which commands take for their URL.
fn devices(status: &Status) -> Vec<Device> {
    match status {
        Status::Export(export) => {
            let of = |far: &::status::FarEnd| {
                let namespaces = far.namespaces.as_deref().unwrap_or_default();
                of_ssd(&format!("tcp://{}", far.listening), (far.ssd.as_ref(), namespaces))
            };
            export.far_ends.iter().flat_map(of).collect()
        }
        // Each subsystem is at each address: the first is one way to it.
        Status::Target(target) => {
            let place = target.listening.first().zip(target.fabrics.first());
            let Some((address, fabric)) = place else { return Vec::new() };
            let scheme = if fabric.contains("RDMA") { "nvme-rdma" } else { "nvme-tcp" };
            let of = |one: &::status::Subsystem| {
                of_ssd(&format!("{scheme}://{address}/{}", one.nqn), (one.ssd.as_ref(), &one.namespaces))
            };
            target.subsystems.iter().flat_map(of).collect()
        }
        _ => Vec::new(),
    }
}

/// The namespaces of an SSD or subsystem at `path`.
fn of_ssd(path: &str, (ssd, namespaces): (Option<&Ssd>, &[Namespace])) -> Vec<Device> {
    let word = |of: fn(&Ssd) -> &String| ssd.map(of).cloned().unwrap_or_default();
    let device = |one: &Namespace| Device {
        name_space: one.nsid,
        device_path: device_path::path(path, one.nsid),
        generic_path: device_path::path(path, one.nsid),
        firmware: word(|ssd| &ssd.firmware),
        model_number: word(|ssd| &ssd.model),
        serial_number: word(|ssd| &ssd.serial),
        used_bytes: one.bytes,
        maximum_lba: one.bytes.checked_div(u64::from(one.block)).unwrap_or_default(),
        physical_size: one.bytes,
        sector_size: one.block,
    };
    namespaces.iter().map(device).collect()
}

fn link(link: &Link) -> String {
    match (&link.peer, link.connected) {
        (None, _) => "no host is connected".to_owned(),
        (Some(peer), true) => format!("connected to {peer}"),
        (Some(peer), false) => format!("{peer} is lost and held"),
    }
}

fn table(rows: &[[String; 4]]) -> String {
    let head = ["KIND", "PLACE", "STATE", "SOCKET"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let (kind, place, state) = (width(0), width(1), width(2));
    let line = |row: &&[String; 4]| {
        let [one, two, three, four] = row;
        format!("{one:kind$}  {two:place$}  {three:state$}  {four}\n")
    };
    rows.iter().map(line).collect()
}
