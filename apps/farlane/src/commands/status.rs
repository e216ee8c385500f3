//! `farlane observe status`: the state of either end of a running tunnel, as JSON and as text.

use std::path::Path;

use engine::Instant;
use live::carrier::datagrams::{Copies, Info};
use live::drivers::far::{self, Backing, FarDriver};
use live::drivers::guest::{self, GuestDriver};
use nvme::subsystem::{NamespaceConfig, NamespaceTally, Subsystem};
use nvme::wire::{NamespaceId, StatusCode};
use nvme_pcie::controller::Controller;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tunnel::Fingerprint;
use tunnel::downstream::Callers;
use tunnel::session::{REPLAY_BYTES_MAX, Session};
use tunnel::upstream::PortIndex;

use crate::args::{Ahead, Carried, ConfigCacheCounters, FarReads, Reach, StatusArgs};
use crate::commands::{activity, control, emulate, nic, print, print_json, rdma};
use crate::error::Error;

/// What an end of a tunnel may be asked. A target understands it too.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    /// Asks for the state.
    Status,
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Error> {
    if let Some(path) = &args.path {
        let status = control::ask(path, &Request::Status)?;
        return if args.output.json { print_json(&status) } else { print(&text(&status)) };
    }
    let daemons = control::daemons()?;
    if args.output.json && daemons.is_empty() {
        return print_json(&json!({ "daemons": [] }));
    }
    if args.output.json {
        return daemons.iter().try_for_each(|daemon| print_json(&daemon.status));
    }
    if daemons.is_empty() {
        return print(&control::nothing_runs());
    }
    let one = |daemon: &control::Daemon| format!("{}\n{}", daemon.socket.display(), text(&daemon.status));
    print(&daemons.iter().map(one).collect::<Vec<_>>().join("\n"))
}

/// The status of what serves a guest at the socket `place`. `url` is that of the far end, if there
/// is a tunnel to one.
pub(crate) fn of_guest<F: FnMut(guest::Event)>(
    now: Instant,
    place: &Path,
    url: Option<&str>,
    driver: &GuestDriver<F>,
) -> Value {
    let guest = driver.guest();
    let upstream = guest.upstream();
    let session = upstream.and_then(|upstream| upstream.session(PortIndex(0)));
    let ours = guest.statistics();
    let lookahead = upstream.and_then(Ahead::of);
    let far_reads = session.and_then(Session::tally).map(|(_, tally)| FarReads::from(tally));
    let commands = upstream
        .and_then(|upstream| upstream.interposer())
        .map(|interposer| interposer.statistics().commands);
    json!({
        "kind": if url.is_some() { "attach" } else { "device" },
        "pid": std::process::id(),
        "vfio_user": place,
        "url": url,
        "client": guest.has_client(),
        "link": session.map(|session| link(now, session)),
        "connections": Carried::by(upstream.into_iter().flat_map(|upstream| upstream.strands(PortIndex(0)))),
        "datagrams": driver.datagrams().map(datagrams).collect::<Vec<_>>(),
        "commands": commands,
        "round_trips": commands.zip(far_reads).and_then(|(commands, reads)| reads.round_trips(commands)),
        "lookahead": lookahead,
        "dma": upstream.map(Reach::of),
        "far_reads": far_reads,
        "shadow": upstream.and_then(|upstream| upstream.config_cache()).map(ConfigCacheCounters::from),
        "guest": {
            "config_accesses": ours.config_accesses,
            "register_accesses": ours.bar_accesses,
            "interrupts": ours.signals,
            "given_up": ours.given_up,
            "waited": ours.waited,
        },
    })
}

/// The status of a device's end of a tunnel. `controller` has the device's counts, if the device
/// is ours.
pub(crate) fn of_far<F: FnMut(far::Event), B: Backing>(
    now: Instant,
    driver: &FarDriver<F, B>,
    controller: Option<&Controller>,
) -> Value {
    let downstream = driver.far().downstream();
    json!({
        "listening": driver.address().to_string(),
        "admits": if driver.admission().has_list() { "listed keys" } else { "anyone" },
        "host": downstream.owner().map(|key| host(driver, key)),
        "link": link(now, downstream.session()),
        "connections": Carried::by(downstream.strands()),
        "strangers": strangers(downstream.callers()),
        "datagrams": driver.datagrams().map(datagrams).collect::<Vec<_>>(),
        "commands": controller.map(|of| of.statistics().commands),
        "space_errors": controller.map(|of| of.core().counters().space_errors),
        "ssd": controller.map(|of| ssd(of.core().config())),
        "namespaces": controller.map(|of| namespaces(of.core())),
        "activity": controller.map(|of| activity::of_namespaces(of.tallies())),
        "far_reads": FarReads::from(downstream.store().tally()),
    })
}

/// What an SSD or a subsystem says it is.
pub(crate) fn ssd(config: &nvme::subsystem::Config) -> Value {
    json!({ "serial": config.serial_number, "model": config.model_number, "firmware": config.firmware_revision })
}

fn namespaces(core: &Subsystem) -> Vec<Value> {
    let errors = space_errors(core);
    let namespace = |one: NamespaceConfig| {
        json!({ "nsid": one.id.0, "bytes": one.bytes, "block": one.block.bytes(),
            "space_errors": count_of(one.id, &errors) })
    };
    core.namespaces().map(namespace).collect()
}

/// How many commands found no space on the medium of a namespace, of all those that had any.
pub(crate) fn space_errors(core: &Subsystem) -> Vec<(NamespaceId, u64)> {
    let counts = core.tallies().map(|(id, tally)| (id, without_space(tally)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// The count of one namespace among those of [`space_errors`].
pub(crate) fn count_of(id: NamespaceId, errors: &[(NamespaceId, u64)]) -> u64 {
    errors.iter().find(|(one, _)| *one == id).map_or(0, |(_, count)| *count)
}

/// How many commands of a namespace with this tally found no space on its medium.
pub(crate) fn without_space(tally: &NamespaceTally) -> u64 {
    let full = tally.statuses().iter().find(|(status, _)| *status == StatusCode::CapacityExceeded);
    full.map_or(0, |(_, count)| *count)
}

/// The host that has the device: its key, and its name in the list.
fn host<F: FnMut(far::Event), B: Backing>(driver: &FarDriver<F, B>, key: Fingerprint) -> Value {
    json!({ "key": key.to_string(), "name": driver.admission().name_of(key) })
}

/// The status of a process that exports devices: that of each of its far ends.
pub(crate) fn of_far_ends(far_ends: Vec<Value>) -> Value {
    json!({ "kind": "export", "pid": std::process::id(), "far_ends": far_ends })
}

/// The status of the tunnel itself.
fn link(now: Instant, session: &Session) -> Value {
    let statistics = session.statistics();
    json!({
        "peer": session.peer().map(ToString::to_string),
        "connected": session.is_open(),
        "up_s": session.up_since().map(|since| (now - since).get() / 1_000_000_000),
        "round_trip_ns": session.round_trip().map(|length| length.get()),
        "packets_sent": statistics.tlps_sent,
        "packets_received": statistics.tlps_received,
        "bytes_sent": statistics.bytes_sent,
        "bytes_received": statistics.bytes_received,
        "resumptions": statistics.resumptions,
        "sent_again": statistics.frames_replayed,
        "waiting_bytes": session.queued_bytes(),
        "unacknowledged_bytes": session.unacknowledged_bytes(),
        "unacknowledged_bytes_max": REPLAY_BYTES_MAX,
    })
}

/// What became of connections whose hosts had proved nothing.
fn strangers(callers: Callers) -> Value {
    json!({
        "waiting": callers.waiting,
        "accepted": callers.accepted,
        "admitted": callers.admitted,
        "refused": callers.refused,
        "late": callers.late,
        "displaced": callers.displaced,
    })
}

/// What became of the datagrams of a connection.
fn datagrams(info: Info) -> Value {
    let path = |path: &live::carrier::datagrams::Path| {
        json!({
            "interface": path.interface,
            "dropped": path.dropped,
            "failing": path.is_failing,
            "copies": path.copies.as_ref().map(copies),
        })
    };
    json!({
        "sent": info.datagrams.sent,
        "received": info.datagrams.received,
        "lost": info.datagrams.lost,
        "again": info.datagrams.again,
        "late": info.late,
        "round_trip_ns": info.round_trip.get(),
        "window_bytes": info.window,
        "under_way_bytes": info.under_way,
        "datagram_bytes": info.datagram_bytes,
        "paths": info.paths.iter().map(path).collect::<Vec<_>>(),
        "copies": info.copies.as_ref().map(copies),
    })
}

/// What became of frames that were sent over several paths (IEEE 802.1CB).
fn copies(copies: &Copies) -> Value {
    json!({
        "passed": copies.passed,
        "eliminated": copies.discarded,
        "out_of_order": copies.out_of_order,
        "rogue": copies.rogue,
        "lost": copies.lost,
        "resets": copies.resets,
        "latent_errors": copies.latent_errors,
    })
}

/// Whom a far end admits, and who has its device.
fn admission_text(far: &Value) -> String {
    let admits = far["admits"].as_str().unwrap_or_default();
    let has = match (far["host"]["key"].as_str(), far["host"]["name"].as_str()) {
        (Some(key), Some(name)) => format!("; {name} has it ({key})"),
        (Some(key), None) => format!("; {key} has it"),
        (None, _) => String::new(),
    };
    format!("  admits: {admits}{has}\n")
}

/// What became of connections whose hosts had proved nothing, if anything is to be said of them.
fn strangers_text(far: &Value) -> String {
    let count = |key: &str| far["strangers"][key].as_u64().unwrap_or(0);
    let [waiting, refused, late, displaced] = ["waiting", "refused", "late", "displaced"].map(count);
    if waiting + refused + late + displaced == 0 {
        return String::new();
    }
    format!(
        "  strangers: {waiting} have said no Hello yet; {refused} were refused, {late} were late, {displaced} made \
         room for others\n"
    )
}

/// The status as text for a person.
pub(crate) fn text(status: &Value) -> String {
    match status["kind"].as_str() {
        Some("nic") => nic::serve::text(status),
        Some("rdma") => rdma::serve::text(status),
        Some("emulate") => emulate::text(status),
        Some("attach" | "device") => {
            let mut text = match status["link"].is_object() {
                true => link_text("the far end", &status["link"]),
                false => format!("vfio-user:{}\n", status["vfio_user"].as_str().unwrap_or_default()),
            };
            text += &connections_text(&status["connections"]);
            text += &datagrams_text(&status["datagrams"]);
            text += &reads_text(status);
            let dma = &status["dma"];
            if dma.is_object() {
                text += &format!(
                    "  dma: {}, {} reads and {} writes refused\n",
                    dma["mode"].as_str().unwrap_or("unknown"),
                    dma["refused_reads"],
                    dma["refused_writes"],
                );
            }
            let (guest, lookahead, shadow) = (&status["guest"], &status["lookahead"], &status["shadow"]);
            if lookahead.is_object() {
                text += &format!(
                    "  lookahead: {} commands went ahead in {} pieces of {} B, {} given up, {} without room\n",
                    lookahead["entries"],
                    lookahead["pieces"],
                    lookahead["bytes"],
                    lookahead["given_up"],
                    lookahead["over_budget"]
                );
            }
            if shadow.is_object() {
                text += &format!(
                    "  registers: {} and {} reads answered near, {} and {} writes by the far end, {} asked for patience\n",
                    shadow["reads_near"],
                    shadow["properties_near"],
                    shadow["reads_far"],
                    shadow["writes"],
                    shadow["retries"]
                );
            }
            text += &format!(
                "  guest: {} configuration and {} register accesses, {} waited for the far end, {} in vain; {} interrupts\n",
                guest["config_accesses"],
                guest["register_accesses"],
                guest["waited"],
                guest["given_up"],
                guest["interrupts"]
            );
            text
        }
        Some("export") => {
            let far_ends = status["far_ends"].as_array().map(Vec::as_slice).unwrap_or_default();
            let one = |one: &Value| {
                let name = format!("tcp://{}", one["listening"].as_str().unwrap_or_default());
                link_text(&name, &one["link"])
                    + &admission_text(one)
                    + &strangers_text(one)
                    + &connections_text(&one["connections"])
                    + &datagrams_text(&one["datagrams"])
                    + &reads_text(one)
                    + &space_text(one)
            };
            far_ends.iter().map(one).collect()
        }
        Some("connect") => super::connect::status_text(status),
        Some("record" | "replay") => super::record::status_text(status),
        _ => super::target::status_text(status),
    }
}

/// Writes that found no space, if there were any.
pub(crate) fn space_text(of: &Value) -> String {
    let namespaces = of["namespaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let count = |of: &Value| of["space_errors"].as_u64().filter(|count| *count > 0);
    let one = |namespace: &Value| {
        let full = |count| format!("namespace {}: {count} writes failed", namespace["nsid"]);
        count(namespace).map(full)
    };
    let named: Vec<_> = namespaces.iter().filter_map(one).collect();
    match count(of) {
        None => String::new(),
        Some(count) if named.is_empty() => {
            format!("  no space: {count} writes failed, because the medium is full\n")
        }
        Some(_) => format!("  no space: {}, because the medium is full\n", named.join("; ")),
    }
}

fn link_text(name: &str, link: &Value) -> String {
    let Some(peer) = link["peer"].as_str() else { return format!("{name}: nobody is there\n") };
    let connected =
        if link["connected"] == json!(true) { "connected" } else { "held, the connection is lost" };
    let round_trip = link["round_trip_ns"].as_u64();
    let round_trip =
        round_trip.map(|length| format!(", round trip {}", engine::Nanos::new(length))).unwrap_or_default();
    format!(
        "{name}: {peer}, {connected}, for {} s{round_trip}\n  \
         {} packets sent, {} received; {} and {} B; {} times resumed\n  \
         {} B are kept until they are acknowledged, {} B at most\n",
        link["up_s"],
        link["packets_sent"],
        link["packets_received"],
        link["bytes_sent"],
        link["bytes_received"],
        link["resumptions"],
        link["unacknowledged_bytes"],
        link["unacknowledged_bytes_max"]
    )
}

/// A line for each connection: what is said of the link counts the main connection only.
fn connections_text(connections: &Value) -> String {
    let connections = connections.as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |(number, of): (usize, &Value)| {
        let away = if of["connected"] == json!(true) { "" } else { ", not connected" };
        format!(
            "  connection {number}: {} packets sent, {} received{away}\n",
            of["packets_sent"], of["packets_received"]
        )
    };
    connections.iter().enumerate().map(one).collect()
}

/// A line for the datagrams of each connection, and one for each path where there are several.
fn datagrams_text(connections: &Value) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut text = String::new();
    for one in list(connections) {
        text += &format!(
            "  datagrams of up to {} B: {} sent, {} received, {} lost, {} came again, {} missed their launch; \
             {} of {} B under way\n",
            one["datagram_bytes"],
            one["sent"],
            one["received"],
            one["lost"],
            one["again"],
            one["late"],
            one["under_way_bytes"],
            one["window_bytes"]
        );
        for path in list(&one["paths"]) {
            let name = path["interface"].as_str().unwrap_or_default();
            text += &copies_text(name, &path["copies"]);
            if path["failing"] == json!(true) {
                text += &format!("    {name}: the path fails; other paths bring its frames\n");
            }
            if path["dropped"] != json!(0) {
                text += &format!("    {name}: {} frames found no room\n", path["dropped"]);
            }
        }
        text += &copies_text("all paths", &one["copies"]);
    }
    text
}

fn copies_text(of: &str, copies: &Value) -> String {
    if !copies.is_object() {
        return String::new();
    }
    format!(
        "    {of}: {} frames passed, {} copies eliminated, {} out of order, {} lost, {} rogue; {} times begun anew\n",
        copies["passed"],
        copies["eliminated"],
        copies["out_of_order"],
        copies["lost"],
        copies["rogue"],
        copies["resets"]
    )
}

fn reads_text(status: &Value) -> String {
    let reads = &status["far_reads"];
    if !reads.is_object() {
        return String::new();
    }
    let mut text = format!(
        "  the device's reads of memory: {} answered there, {} by the host; {} of {} B sent ahead in vain\n",
        reads["hits"], reads["misses"], reads["bytes_in_vain"], reads["bytes_ahead"]
    );
    if let Some(commands) = status["commands"].as_u64() {
        text += &format!("  {commands} commands");
        if let Some(trips) = status["round_trips"].as_f64() {
            text += &format!(", {trips:.2} round trips each");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of IEEE 802.1CB, as in the JSON.
    #[test]
    fn copies_are_told_in_the_words_of_the_standard() {
        assert_eq!(copies_text("near", &Value::Null), "");
        let copies = json!({
            "passed": 1, "eliminated": 2, "out_of_order": 3, "lost": 4, "rogue": 5, "resets": 6
        });
        assert_eq!(
            copies_text("near", &copies),
            "    near: 1 frames passed, 2 copies eliminated, 3 out of order, 4 lost, 5 rogue; 6 times begun anew\n"
        );
    }
}
