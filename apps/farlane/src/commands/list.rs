//! `farlane observe list`: the running daemons of this user.

use serde_json::{Value, json};

use super::control::{self, Daemon};
use super::{connect, emulate, nic, rdma};
use crate::args::ListArgs;
use crate::commands::{print, print_json};
use crate::device_path;
use crate::error::Error;

pub(crate) fn run(args: &ListArgs) -> Result<(), Error> {
    let daemons = control::daemons()?;
    if args.printing.is_json() {
        let with_socket = |daemon: &Daemon| {
            let mut one = daemon.status.clone();
            one["socket"] = json!(daemon.socket.to_string_lossy());
            one
        };
        let devices: Vec<_> = daemons.iter().flat_map(|daemon| devices(&daemon.status)).collect();
        let daemons: Vec<_> = daemons.iter().map(with_socket).collect();
        return print_json(&json!({ "daemons": daemons, "Devices": devices }));
    }
    if daemons.is_empty() {
        return print(&control::nothing_runs());
    }
    let rows = daemons.iter().flat_map(|daemon| rows(&daemon.status, &daemon.socket.to_string_lossy()));
    print(&table(&rows.collect::<Vec<_>>()))
}

/// What a daemon offers or uses, and how it fares; one row for each place where it is reached.
fn rows(status: &Value, socket: &str) -> Vec<[String; 4]> {
    let kind = plain(&status["kind"]);
    let row = |place: String, state: String| [kind.to_owned(), place, state, socket.to_owned()];
    let own = |[place, state]: [String; 2]| vec![row(place, state)];
    match kind {
        "target" => {
            let hosts = list(&status["subsystems"]).iter().map(|one| list(&one["controllers"]).len());
            let (subsystems, hosts) = (list(&status["subsystems"]).len(), hosts.sum());
            let state = format!("{}, {}", count(subsystems, "subsystem"), count(hosts, "host"));
            let places = list(&status["listening"]).iter().zip(list(&status["fabrics"]));
            places
                .map(|(at, fabric)| row(format!("{} ({})", plain(at), plain(fabric)), state.clone()))
                .collect()
        }
        "export" => {
            let one = |far: &Value| row(format!("tcp://{}", plain(&far["listening"])), link(&far["link"]));
            list(&status["far_ends"]).iter().map(one).collect()
        }
        "attach" => vec![row(
            format!("{} as vfio-user:{}", plain(&status["url"]), plain(&status["vfio_user"])),
            link(&status["link"]),
        )],
        "nic" => own(nic::serve::row(status)),
        "rdma" => own(rdma::serve::row(status)),
        "emulate" => own(emulate::row(status)),
        "connect" => {
            let (place, state) = connect::disconnect::row(status);
            vec![row(place, state)]
        }
        "device" => {
            let state = if status["client"] == json!(true) { "a guest is there" } else { "no guest" };
            vec![row(format!("vfio-user:{}", plain(&status["vfio_user"])), state.to_owned())]
        }
        _ => {
            let model = plain(&status["medium"]["model"]);
            let state = format!("{}, {} B in", plain(&status["state"]), status["bytes_in"]);
            vec![row(if model.is_empty() { "a recording" } else { model }.to_owned(), state)]
        }
    }
}

/// The namespaces that a daemon offers, under the names that nvme-cli gives their parts. Each has a
/// path of its own, which commands take for their URL.
fn devices(status: &Value) -> Vec<Value> {
    let scheme = |fabric: &Value| if plain(fabric).contains("RDMA") { "nvme-rdma" } else { "nvme-tcp" };
    match plain(&status["kind"]) {
        "export" => {
            let far = |far: &Value| of_ssd(&format!("tcp://{}", plain(&far["listening"])), far);
            list(&status["far_ends"]).iter().flat_map(far).collect()
        }
        // Each subsystem is at each address: the first is one way to it.
        "target" => {
            let place = list(&status["listening"]).first().zip(list(&status["fabrics"]).first());
            let Some((address, fabric)) = place else { return Vec::new() };
            let path = |nqn: &Value| format!("{}://{}/{}", scheme(fabric), plain(address), plain(nqn));
            let one = |subsystem: &Value| of_ssd(&path(&subsystem["nqn"]), subsystem);
            list(&status["subsystems"]).iter().flat_map(one).collect()
        }
        _ => Vec::new(),
    }
}

/// The namespaces of an SSD or subsystem at `path`.
fn of_ssd(path: &str, status: &Value) -> Vec<Value> {
    let ssd = &status["ssd"];
    let namespace = |one: &Value| {
        let number = |name: &str| one[name].as_u64().unwrap_or_default();
        let (bytes, block) = (number("bytes"), number("block"));
        let path = device_path::path(path, &one["nsid"]);
        json!({ "NameSpace": one["nsid"], "DevicePath": path, "GenericPath": path,
            "Firmware": plain(&ssd["firmware"]), "ModelNumber": plain(&ssd["model"]),
            "SerialNumber": plain(&ssd["serial"]), "UsedBytes": bytes,
            "MaximumLBA": bytes.checked_div(block).unwrap_or_default(), "PhysicalSize": bytes,
            "SectorSize": block })
    };
    list(&status["namespaces"]).iter().map(namespace).collect()
}

fn link(link: &Value) -> String {
    match (link["peer"].as_str(), link["connected"] == json!(true)) {
        (None, _) => "nobody is there".to_owned(),
        (Some(peer), true) => format!("connected to {peer}"),
        (Some(peer), false) => format!("{peer} is lost and held"),
    }
}

fn count(count: usize, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
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
