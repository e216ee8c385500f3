//! Targets of NVMe over Fabrics.

use ::status::{Controller, Draining, Strangers, Target};
use indicatif::BinaryBytes;

use super::space;

/// A target: where it listens, its resources for hosts, its subsystems and their hosts.
pub(super) fn text(target: &Target) -> String {
    let mut text = String::new();
    for (address, fabric) in target.listening.iter().zip(&target.fabrics) {
        text += &format!("listening at {address} for {fabric}\n");
    }
    let memory = &target.memory;
    text +=
        &format!("{} of {} held for hosts", BinaryBytes(memory.used_bytes), BinaryBytes(memory.budget_bytes));
    text += &match memory.waiting {
        0 => "\n".to_owned(),
        1 => ", 1 connection waits for more\n".to_owned(),
        waiting => format!(", {waiting} connections wait for more\n"),
    };
    text += &strangers(&target.strangers);
    for subsystem in &target.subsystems {
        text += &format!("{}\n", subsystem.nqn);
        for namespace in &subsystem.namespaces {
            let (bytes, block) = (BinaryBytes(namespace.bytes), namespace.block);
            let readonly = if namespace.readonly { ", read-only" } else { "" };
            text += &format!("  namespace {}: {bytes} in blocks of {block} B{readonly}\n", namespace.nsid);
        }
        text += &space(&subsystem.namespaces, subsystem.space_errors);
        text += &subsystem.controllers.iter().map(controller).collect::<String>();
        for Draining { host, requests } in &subsystem.draining {
            text += &format!("  {host} is gone; media have not ended {requests} of its requests\n");
        }
    }
    for one in &target.discovery {
        text += &format!("discovery\n{}", controller(one));
    }
    text
}

/// Connections whose hosts have not authenticated.
fn strangers(of: &Strangers) -> String {
    let (refused, dropped) = (of.refused.values().sum::<u64>(), of.dropped.values().sum::<u64>());
    let Strangers { connections, most, discovery, discovery_most, .. } = of;
    format!(
        "{connections} of {most} connections may wait for proof ({discovery} of {discovery_most} for discovery), \
         {refused} were refused, {dropped} dropped\n"
    )
}

fn controller(of: &Controller) -> String {
    let peer = of.queues.first().map_or("nowhere", |queue| &queue.peer);
    let commands: u64 = of.queues.iter().map(|queue| queue.commands).sum();
    let entries: Vec<_> = of.queues.iter().map(|queue| queue.entries.to_string()).collect();
    let digests = match of.queues.first().map(|queue| (queue.header_digest, queue.data_digest)) {
        Some((false, false)) => "no digests",
        Some((true, false)) => "header digests",
        Some((false, true)) => "data digests",
        Some((true, true)) => "header and data digests",
        None => "no queue",
    };
    let ready = if of.ready { "" } else { ", not enabled" };
    let held = BinaryBytes(of.memory_bytes);
    format!(
        "  controller {}: {} from {peer}, queues of {} entries, {digests}, {commands} commands, {held} held{ready}\n",
        of.controller,
        of.host,
        entries.join("+"),
    )
}
