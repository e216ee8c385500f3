//! The statistics of a whole capture: counts, and the commands of each opcode.

use std::collections::BTreeMap;

use distribution::Distribution;
use serde_json::{Map, Value, json};
use trace::Command;

use crate::Analysis;

/// Length of a logical block in bytes, if a capture does not contain it.
const BLOCK: u64 = 512;
/// The weight of a command inferred from data alone, compared with one whose entry was read.
const WORTH_OF_INFERENCE: f64 = 0.5;

/// The commands of one opcode.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// How many there are.
    pub count: u64,
    /// Logical blocks of all these commands.
    pub blocks: u64,
    /// Bytes of data of all these commands.
    pub bytes: u64,
    /// How many completed with something else than success.
    pub errors: u64,
    /// The times until the device posted the completion.
    pub latencies: Distribution,
}

impl Group {
    /// Adds a command.
    pub fn add(&mut self, command: &Command) {
        self.count += 1;
        self.bytes += command.bytes;
        self.blocks += command.blocks.map_or(command.bytes / BLOCK, u64::from);
        self.errors += u64::from(command.status.is_some_and(|status| status & 0x7ff != 0));
        self.latencies.record(command.latency());
    }
}

/// The commands of a capture, by the names of their kinds ([`of_kind`](crate::of_kind)).
pub type Groups = BTreeMap<String, Group>;

/// How sure the commands are, from 0 to 1: the share of the devices' packets, and of the PDUs of
/// NVMe/TCP, that have a place in a command. Packets of inferred commands count half.
pub fn confidence(analysis: &Analysis, groups: &Groups) -> f64 {
    let Analysis { statistics, fabric, .. } = analysis;
    let all = statistics.of_devices + fabric.pdus;
    if all == 0 {
        // Trace output is unambiguous, if there is any.
        return if groups.is_empty() { 0.0 } else { 1.0 };
    }
    // PDUs without a command are no evidence of commands: without commands, the share is unknown.
    let pdus = if groups.is_empty() { 0 } else { fabric.pdus.saturating_sub(fabric.unexpected) };
    let known = statistics.known + pdus;
    (known as f64 + statistics.inferred as f64 * WORTH_OF_INFERENCE) / all as f64
}

/// How many commands have failed.
pub fn failed(groups: &Groups) -> u64 {
    groups.values().map(|group| group.errors).sum()
}

/// The statistics of a capture for machines: `trace stats --json` prints them.
pub fn as_json(analysis: &Analysis, groups: &Groups) -> Value {
    let Analysis { statistics, fabric, words, flaws } = analysis;
    let group = |group: &Group| {
        json!({ "count": group.count, "blocks": group.blocks, "bytes": group.bytes, "errors": group.errors,
            "latency_ns": group.latencies })
    };
    let commands: Map<_, _> = groups.iter().map(|(name, one)| (name.to_lowercase(), group(one))).collect();
    let count = groups.values().map(|group| group.count).sum::<u64>();
    let unknown: Vec<_> =
        flaws.unknown.each().map(|(link, frames)| json!({ "link_type": link, "frames": frames })).collect();
    json!({
        "tlps": statistics.packets, "bytes": statistics.bytes, "errors": statistics.errors,
        "probes": statistics.probes, "failed": failed(groups),
        "commands": commands,
        "confidence": confidence(analysis, groups),
        "pdus": fabric.pdus, "gaps": fabric.gaps,
        "known": count.saturating_sub(statistics.inferred_commands), "inferred": statistics.inferred_commands,
        "unfinished": statistics.unfinished + fabric.unfinished + words.1,
        "waiting": statistics.waiting + fabric.waiting,
        "unexpected_completions": statistics.unexpected + fabric.unexpected + words.0,
        "unanswered": statistics.unanswered, "orphan_completions": statistics.orphans,
        "skipped": { "foreign": flaws.foreign, "malformed": flaws.malformed, "unknown_links": unknown },
        "dropped": statistics.dropped + fabric.dropped + words.2,
        "lost": flaws.lost,
        "time_ran_back": flaws.backwards,
    })
}
