//! The status of a target, as JSON and as text.
//!
//! What belongs to subsystems is told in one piece. Hosts may be thousands: another thread takes
//! them from the cores in small jobs.

use std::collections::HashMap;

use assemblies::fabric::Parameters;
use assemblies::target::{AssociationStatus, ConnectionStatus, MemoryStatus, StrangersStatus};
use live::drivers::fabrics::target::TargetDriver;
use live::reactor::Hirer;
use nvme::subsystem::NamespaceConfig;
use nvme_fabrics::target::{DiscoveryAccess, Subsystem};
use serde_json::{Map, Value, json};

use super::core::Core;
use super::hosts_told::each_host;
use crate::commands::activity;
use crate::commands::status::{count_of, space_errors, space_text, ssd};

/// What one core tells, but for hosts.
pub(super) fn of<F: FnMut(live::drivers::fabrics::target::Event)>(driver: &TargetDriver<F>) -> Value {
    let target = driver.target();
    let subsystem = |one: &Subsystem| {
        let core = target.subsystem(one.key);
        let errors = core.map(space_errors).unwrap_or_default();
        let namespaces = core.into_iter().flat_map(|core| core.namespaces());
        let namespace = |one: NamespaceConfig| {
            json!({ "nsid": one.id.0, "bytes": one.bytes, "block": one.block.bytes(), "readonly": one.read_only,
                "space_errors": count_of(one.id, &errors) })
        };
        let namespaces: Vec<_> = namespaces.map(namespace).collect();
        let hosts = match &one.hosts {
            nvme_fabrics::target::Hosts::Any => Value::Null,
            nvme_fabrics::target::Hosts::Listed(hosts) => {
                hosts.iter().map(|host| json!(host.as_str())).collect()
            }
        };
        json!({
            "nqn": one.name.as_str(),
            "hosts": hosts,
            "ssd": core.map(|core| ssd(core.config())),
            "namespaces": namespaces,
            "space_errors": core.map(|core| core.counters().space_errors),
            "activity": core.map(|core| activity::of_namespaces(core.tallies())),
            "controllers": [],
        })
    };
    let listening: Vec<_> = driver.addresses().map(|(_, address)| address.to_string()).collect();
    let carries: Vec<_> = driver.addresses().map(|(fabric, _)| fabric.to_string()).collect();
    json!({
        "kind": "target",
        "pid": std::process::id(),
        "listening": listening,
        "fabrics": carries,
        "generation": target.directory().generation,
        "connections": target.connection_count(),
        "memory": memory(target.memory()),
        "strangers": strangers(&target.strangers()),
        "discovery_access": match target.directory().discovery {
            DiscoveryAccess::Open => "open",
            DiscoveryAccess::Keyed => "keyed",
            DiscoveryAccess::Closed => "closed",
        },
        "subsystems": target.directory().subsystems.iter().filter(|one| one.is_here).map(subsystem).collect::<Vec<_>>(),
        "discovery": [],
    })
}

/// Adds to `all` what another core reports of its own subsystems.
pub(super) fn join(all: &mut Value, other: Value) {
    let Value::Object(mut other) = other else { return };
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    all["connections"] = json!(number(&all["connections"]) + number(&other["connections"]));
    for key in ["budget_bytes", "used_bytes", "waiting"] {
        let more = number(&other["memory"][key]);
        all["memory"][key] = json!(number(&all["memory"][key]) + more);
    }
    join_strangers(&mut all["strangers"], &other["strangers"]);
    if let (Some(subsystems), Some(Value::Array(more))) =
        (all["subsystems"].as_array_mut(), other.remove("subsystems"))
    {
        subsystems.extend(more);
    }
}

/// Connections whose hosts have not proved who they are, and what became of others.
fn strangers(status: &StrangersStatus) -> Value {
    let counts = |counts: &[(&'static str, u64)]| -> Value {
        counts.iter().map(|(why, count)| ((*why).to_owned(), json!(count))).collect::<Map<_, _>>().into()
    };
    json!({
        "connections": status.count,
        "most": status.most,
        "discovery": status.discovery,
        "discovery_most": status.discovery_most,
        "refused": counts(&status.refused),
        "dropped": counts(&status.dropped),
        "exponentiations": {
            "waiting": status.work.waiting,
            "done": status.work.done,
            "refused": status.work.refused,
            "processor_ns": status.work.spent.get(),
        },
    })
}

/// Adds the numbers of `other` to those of `all`.
fn join_strangers(all: &mut Value, other: &Value) {
    match (all, other) {
        (Value::Object(all), Value::Object(other)) => {
            for (key, value) in other {
                join_strangers(
                    all.entry(key.as_str()).or_insert(match value {
                        Value::Object(_) => json!({}),
                        _ => json!(0),
                    }),
                    value,
                );
            }
        }
        (all, other) => *all = json!(all.as_u64().unwrap_or_default() + other.as_u64().unwrap_or_default()),
    }
}

/// What becomes of connections whose hosts have not proved who they are, for a person.
fn strangers_text(strangers: &Value) -> String {
    let sum = |counts: &Value| -> u64 {
        counts.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
    };
    let (refused, dropped) = (sum(&strangers["refused"]), sum(&strangers["dropped"]));
    format!(
        "{} of {} connections may wait for proof ({} of {} for discovery), {refused} were refused, {dropped} dropped\n",
        strangers["connections"], strangers["most"], strangers["discovery"], strangers["discovery_most"]
    )
}

/// Memory that the target holds for hosts.
fn memory(status: MemoryStatus) -> Value {
    json!({ "budget_bytes": status.budget, "used_bytes": status.used, "waiting": status.waiting })
}

/// Adds the hosts of all cores to what the cores have told; `None` when one has ended.
pub(super) fn add_hosts(all: &mut Value, cores: &[Hirer<Core>]) -> Option<()> {
    let name = |core: &Core, one: &AssociationStatus| {
        let subsystem = one.subsystem.and_then(|key| core.driver.target().subsystem(key));
        subsystem.map(|core| core.config().subsystem_name.clone())
    };
    let mut of_subsystem = HashMap::<Option<String>, Vec<Value>>::new();
    for core in cores {
        each_host(core, name, |one, name| of_subsystem.entry(name).or_default().push(controller(&one)))?;
    }
    all["discovery"] = of_subsystem.remove(&None).unwrap_or_default().into();
    for told in all["subsystems"].as_array_mut().into_iter().flatten() {
        let name = told["nqn"].as_str().map(str::to_owned);
        told["controllers"] = of_subsystem.remove(&name).unwrap_or_default().into();
    }
    Some(())
}

fn controller(one: &AssociationStatus) -> Value {
    json!({
        "controller": one.controller.0,
        "host": one.host.as_str(),
        "host_id": one.host_id.to_string(),
        "ready": one.is_ready,
        "memory_bytes": one.memory,
        "activity": one.tally.as_ref().map(activity::of_host),
        "keep_alive_ms": one.keep_alive.map(|timeout| timeout.get() / 1_000_000),
        "queues": one.connections.iter().map(queue).collect::<Vec<_>>(),
    })
}

fn queue(one: &ConnectionStatus) -> Value {
    let tcp = one.parameters.and_then(Parameters::tcp);
    json!({
        "queue": one.queue.0,
        "entries": one.entries,
        "peer": one.peer.to_string(),
        "header_digest": tcp.is_some_and(|agreed| agreed.header_digest),
        "data_digest": tcp.is_some_and(|agreed| agreed.data_digest),
        "commands": one.statistics.commands,
        "refused": one.statistics.refused,
        "outstanding": one.outstanding,
    })
}

/// The status as text for a person.
pub(crate) fn text(status: &Value) -> String {
    let mut text = String::new();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let plain = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (address, fabric) in list(&status["listening"]).iter().zip(list(&status["fabrics"])) {
        text += &format!("listening at {} for {}\n", plain(address), plain(&fabric));
    }
    let bytes = |value: &Value| indicatif::BinaryBytes(value.as_u64().unwrap_or_default());
    let memory = &status["memory"];
    text += &format!("{} of {} held for hosts", bytes(&memory["used_bytes"]), bytes(&memory["budget_bytes"]));
    text += &match memory["waiting"].as_u64().unwrap_or_default() {
        0 => "\n".to_owned(),
        1 => ", 1 connection waits for more\n".to_owned(),
        waiting => format!(", {waiting} connections wait for more\n"),
    };
    text += &strangers_text(&status["strangers"]);
    for subsystem in list(&status["subsystems"]) {
        text += &format!("{}\n", plain(&subsystem["nqn"]));
        for namespace in list(&subsystem["namespaces"]) {
            let bytes = indicatif::BinaryBytes(namespace["bytes"].as_u64().unwrap_or_default());
            let readonly = if namespace["readonly"] == json!(true) { ", read-only" } else { "" };
            text += &format!(
                "  namespace {}: {bytes} in blocks of {} B{readonly}\n",
                namespace["nsid"], namespace["block"]
            );
        }
        text += &space_text(&subsystem);
        for controller in list(&subsystem["controllers"]) {
            text += &controller_text(&controller);
        }
    }
    for controller in list(&status["discovery"]) {
        text += &format!("discovery\n{}", controller_text(&controller));
    }
    text
}

fn controller_text(controller: &Value) -> String {
    let queues = controller["queues"].as_array().cloned().unwrap_or_default();
    let peer = queues.first().and_then(|queue| queue["peer"].as_str()).unwrap_or("nowhere").to_owned();
    let commands: u64 = queues.iter().filter_map(|queue| queue["commands"].as_u64()).sum();
    let entries: Vec<_> = queues.iter().map(|queue| queue["entries"].to_string()).collect();
    let digests = match queues.first() {
        Some(queue) => match (queue["header_digest"] == json!(true), queue["data_digest"] == json!(true)) {
            (false, false) => "no digests",
            (true, false) => "header digests",
            (false, true) => "data digests",
            (true, true) => "header and data digests",
        },
        None => "no queue",
    };
    let ready = if controller["ready"] == json!(true) { "" } else { ", not enabled" };
    let held = indicatif::BinaryBytes(controller["memory_bytes"].as_u64().unwrap_or_default());
    format!(
        "  controller {}: {} from {peer}, queues of {} entries, {digests}, {commands} commands, {held} held{ready}\n",
        controller["controller"],
        controller["host"].as_str().unwrap_or_default(),
        entries.join("+"),
    )
}
