//! `farlane nvme show-hostnqn`, `gen-hostnqn`, `list-subsys` and `version`: commands that need no
//! controller.

use live::client::host_names;
use live::sys::entropy;
use nvme_fabrics::wire::HostId;
use schemars::JsonSchema;
use serde::Serialize;
use status::Status;

use crate::args::HostArgs;
use crate::commands::control::{self, Daemon};
use crate::commands::{print, print_json_of_nvme_cli};
use crate::error::Error;

pub(super) fn show_name(args: &HostArgs) -> Result<(), Error> {
    let (name, id) = host_names();
    match args.printing.is_json() {
        true => {
            print_json_of_nvme_cli(&HostName { hostnqn: name.as_str().to_owned(), hostid: id.to_string() })
        }
        false => print(&format!("{}\n", name.as_str())),
    }
}

/// Prints a name that no other host has: with a random UUID, of version 4.
pub(super) fn make_name(args: &HostArgs) -> Result<(), Error> {
    let mut id = [0; 16];
    entropy::system().fill(&mut id);
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    let (id, prefix) = (HostId(id), "nqn.2014-08.org.nvmexpress:uuid:");
    match args.printing.is_json() {
        true => {
            print_json_of_nvme_cli(&HostName { hostnqn: format!("{prefix}{id}"), hostid: id.to_string() })
        }
        false => print(&format!("{prefix}{id}\n")),
    }
}

/// Prints the program's version, as nvme-cli does its own.
pub(super) fn version(args: &HostArgs) -> Result<(), Error> {
    let version = env!("CARGO_PKG_VERSION");
    match args.printing.is_json() {
        true => print_json_of_nvme_cli(&Version { farlane: version }),
        false => print(&format!("farlane version {version}\n")),
    }
}

/// The names of a host.
#[derive(Serialize, JsonSchema)]
pub(super) struct HostName {
    /// NVMe Qualified Name.
    hostnqn: String,
    /// Host identifier.
    hostid: String,
}

/// The version of the program.
#[derive(Serialize, JsonSchema)]
pub(super) struct Version {
    /// The version.
    farlane: &'static str,
}

/// A host, and the subsystems that its daemons offer or use.
#[derive(Serialize, JsonSchema)]
pub(super) struct ListedHost {
    /// NVMe Qualified Name of the host.
    #[serde(rename = "HostNQN")]
    nqn: String,
    /// Host identifier.
    #[serde(rename = "HostID")]
    id: String,
    /// The subsystems.
    #[serde(rename = "Subsystems")]
    subsystems: Vec<ListedSubsystem>,
}

/// A subsystem.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
struct ListedSubsystem {
    /// Name of the daemon.
    name: String,
    /// NVMe Qualified Name.
    #[serde(rename = "NQN")]
    nqn: String,
    /// Its paths.
    paths: Vec<ListedPath>,
}

/// A path to a subsystem.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
struct ListedPath {
    /// Name of the path.
    name: String,
    /// Its transport.
    transport: String,
    /// Address of the controller.
    address: String,
    /// State of the path.
    state: &'static str,
}

impl From<Subsystem> for ListedSubsystem {
    fn from(Subsystem { name, nqn, paths }: Subsystem) -> Self {
        let path = |(at, (transport, address, state))| ListedPath {
            name: format!("path{at}"),
            transport,
            address,
            state,
        };
        Self { name, nqn, paths: paths.into_iter().enumerate().map(path).collect() }
    }
}

/// A subsystem that a daemon of this user offers or uses: its name, and the ways to it.
struct Subsystem {
    name: String,
    nqn: String,
    /// Transport, address, and state.
    paths: Vec<(String, String, &'static str)>,
}

/// The subsystems of this user's targets and block devices.
pub(super) fn subsystems(args: &HostArgs) -> Result<(), Error> {
    let found: Vec<_> = control::daemons()?.iter().flat_map(subsystems_of).collect();
    if args.printing.is_json() {
        let (host, id) = host_names();
        let subsystems = found.into_iter().map(ListedSubsystem::from).collect();
        let (nqn, id) = (host.as_str().to_owned(), id.to_string());
        return print_json_of_nvme_cli(&[ListedHost { nqn, id, subsystems }]);
    }
    if found.is_empty() {
        return print("no daemon of this user offers or uses a subsystem\n");
    }
    let text = |one: &Subsystem| {
        let path = |(transport, address, state): &(String, String, &str)| {
            format!(" +- {transport} {address} {state}\n")
        };
        let paths: String = one.paths.iter().map(path).collect();
        format!("{} - NQN={}\n\\\n{paths}", one.name, one.nqn)
    };
    print(&found.iter().map(text).collect::<String>())
}

fn subsystems_of(daemon: &Daemon) -> Vec<Subsystem> {
    let name = daemon.socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match &daemon.report.status {
        Status::Target(target) => {
            let path = |(address, fabric): (&String, &String)| {
                let transport = if fabric.contains("RDMA") { "rdma" } else { "tcp" };
                (transport.to_owned(), address_of(address), "live")
            };
            let paths: Vec<_> = target.listening.iter().zip(&target.fabrics).map(path).collect();
            let nqns = target.subsystems.iter().map(|one| one.nqn.clone());
            nqns.map(|nqn| Subsystem { name: name.clone(), nqn, paths: paths.clone() }).collect()
        }
        Status::Connect(device) => {
            let Some((scheme, rest)) = device.url.split_once("://") else { return Vec::new() };
            let Some((places, nqn)) = rest.split_once('/') else { return Vec::new() };
            let Some(transport) = scheme.strip_prefix("nvme-") else { return Vec::new() };
            let state = if device.way.is_away() { "connecting" } else { "live" };
            let path = |place: &str| {
                let (transport, place) = place.split_once('@').unwrap_or((transport, place));
                (transport.to_owned(), address_of(place), state)
            };
            let nqn = nqn.split('?').next().unwrap_or_default().to_owned();
            vec![Subsystem { name, nqn, paths: places.split(',').map(path).collect() }]
        }
        _ => Vec::new(),
    }
}

/// An address and a port as nvme-cli says them.
fn address_of(place: &str) -> String {
    match place.rsplit_once(':') {
        Some((address, port)) => format!("traddr={},trsvcid={port}", address.trim_matches(['[', ']'])),
        None => format!("traddr={place}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use status::Report;

    use super::*;

    fn daemon(status: Status) -> Daemon {
        Daemon { socket: "/run/farlane/x-7.sock".into(), report: Report::of(status) }
    }

    fn connect(url: &str) -> Daemon {
        let status = json!({ "kind": "connect", "url": url, "device": null, "bytes": 0, "block": 512,
            "read_only": false, "activity": [], "over": "ublk", "far_end": "away", "under_way": 0 });
        daemon(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn targets_and_block_devices_have_subsystems() {
        let subsystem = |nqn: &str| json!({ "nqn": nqn, "namespaces": [], "controllers": [] });
        let target = json!({ "kind": "target", "listening": ["[::1]:4420", "192.0.2.1:4420"],
            "fabrics": ["NVMe/TCP", "NVMe/RDMA"], "generation": 1, "connections": 0,
            "memory": { "budget_bytes": 0, "used_bytes": 0, "waiting": 0 },
            "strangers": { "connections": 0, "most": 1, "discovery": 0, "discovery_most": 1, "refused": {},
                "dropped": {},
                "exponentiations": { "waiting": 0, "done": 0, "refused": 0, "processor_ns": 0 } },
            "discovery_access": "open", "discovery": [],
            "subsystems": [subsystem("nqn.x:a"), subsystem("nqn.x:b")] });
        let found = subsystems_of(&daemon(serde_json::from_value(target).unwrap()));
        assert_eq!(found.iter().map(|one| one.nqn.as_str()).collect::<Vec<_>>(), ["nqn.x:a", "nqn.x:b"]);
        let (transport, address, state) = &found[1].paths[1];
        assert_eq!(
            (transport.as_str(), address.as_str(), *state),
            ("rdma", "traddr=192.0.2.1,trsvcid=4420", "live")
        );
        assert_eq!(found[0].paths[0].1, "traddr=::1,trsvcid=4420");
        let url = "nvme-tcp://192.0.2.7:4420,rdma@192.0.2.8/nqn.x:c?queues=4";
        let found = subsystems_of(&connect(url));
        assert_eq!((found.len(), found[0].nqn.as_str(), found[0].name.as_str()), (1, "nqn.x:c", "x-7"));
        assert_eq!(found[0].paths[1], ("rdma".to_owned(), "traddr=192.0.2.8".to_owned(), "connecting"));
        assert!(subsystems_of(&connect("tcp://192.0.2.7:4430")).is_empty());
    }
}
