//! `farlane trace stats`: what a capture has.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use trace::Command;

use super::{Analysis, each_command, name};
use crate::args::CaptureArgs;
use crate::commands::{print, print_json};
use crate::distribution::Distribution;
use crate::error::Error;

/// Bytes of a logical block, where a capture does not tell.
const BLOCK: u64 = 512;
/// How much a command that is inferred from data alone is worth, beside one whose entry was read.
const WORTH_OF_INFERENCE: f64 = 0.5;

/// The commands of one opcode.
#[derive(Default)]
pub(in crate::commands) struct Group {
    count: u64,
    blocks: u64,
    bytes: u64,
    errors: u64,
    latencies: Distribution,
}

impl Group {
    pub(in crate::commands) fn add(&mut self, command: &Command) {
        self.count += 1;
        self.bytes += command.bytes;
        self.blocks += command.blocks.map_or(command.bytes / BLOCK, u64::from);
        self.errors += u64::from(command.status.is_some_and(|status| status & 0x7ff != 0));
        self.latencies.record(command.latency());
    }
}

/// The commands of a capture, by the names of their opcodes.
pub(in crate::commands) type Groups = BTreeMap<String, Group>;

pub(super) fn run(args: &CaptureArgs) -> Result<(), Error> {
    let mut groups = Groups::new();
    let analysis =
        each_command(args.source(), |command| groups.entry(name(command.kind)).or_default().add(&command))?;
    if args.output.json { print_json(&as_json(&analysis, &groups)) } else { print(&text(&analysis, &groups)) }
}

/// How sure the commands are, from 0 to 1: the share of the devices' packets, and of the PDUs of
/// NVMe/TCP, that have a place in a command. Packets of inferred commands count half.
fn confidence(analysis: &Analysis, groups: &Groups) -> f64 {
    let Analysis { statistics, fabric, .. } = analysis;
    let all = statistics.of_devices + fabric.pdus;
    if all == 0 {
        // The words of tracers leave nothing to doubt, where there are any.
        return if groups.is_empty() { 0.0 } else { 1.0 };
    }
    // PDUs that are no command's tell nothing of commands: with no command found, nothing is known.
    let pdus = if groups.is_empty() { 0 } else { fabric.pdus - fabric.unexpected };
    let known = statistics.known + pdus;
    (known as f64 + statistics.inferred as f64 * WORTH_OF_INFERENCE) / all as f64
}

/// What `trace stats --json` prints.
pub(in crate::commands) fn as_json(analysis: &Analysis, groups: &Groups) -> Value {
    let Analysis { statistics, fabric, words, flaws } = analysis;
    let group = |group: &Group| {
        json!({ "count": group.count, "blocks": group.blocks, "bytes": group.bytes, "errors": group.errors,
            "latency_ns": group.latencies })
    };
    let commands: Map<_, _> = groups.iter().map(|(name, one)| (name.to_lowercase(), group(one))).collect();
    json!({
        "tlps": statistics.packets, "bytes": statistics.bytes, "errors": statistics.errors,
        "commands": commands,
        "confidence": confidence(analysis, groups),
        "pdus": fabric.pdus, "gaps": fabric.gaps,
        "known": groups.values().map(|group| group.count).sum::<u64>() - statistics.inferred_commands, "inferred": statistics.inferred_commands,
        "unfinished": statistics.unfinished + fabric.unfinished + words.1,
        "unexpected_completions": statistics.unexpected + fabric.unexpected + words.0,
        "unanswered": statistics.unanswered, "orphan_completions": statistics.orphans,
        "skipped": { "foreign": flaws.foreign, "malformed": flaws.malformed },
        "dropped": statistics.dropped + fabric.dropped + words.2,
        "lost": flaws.lost,
        "time_ran_back": flaws.backwards,
    })
}

fn text(analysis: &Analysis, groups: &Groups) -> String {
    let Analysis { statistics, fabric, words, flaws } = analysis;
    let mut text = format!(
        "{} packets with {} B of data, {} completions without success\n",
        statistics.packets, statistics.bytes, statistics.errors
    );
    if fabric.pdus > 0 {
        text += &format!("{} PDUs and messages of NVMe over fabrics\n", fabric.pdus);
    }
    let known_commands = groups.values().map(|group| group.count).sum::<u64>() - statistics.inferred_commands;
    let known = match (known_commands, statistics.inferred_commands) {
        (0, 0) => "no NVMe command was found".to_owned(),
        (0, _) => "commands are inferred from the sizes and addresses of data".to_owned(),
        (_, 0) => "commands are known from their entries".to_owned(),
        (known, inferred) => format!("{known} commands are known from their entries, {inferred} inferred"),
    };
    text += &format!("{known}; confidence {:.2}\n", confidence(analysis, groups));
    if !groups.is_empty() {
        text += &format!(
            "\n{:24} {:>8} {:>10} {:>12} {:>11} {:>11} {:>11}\n",
            "command", "count", "blocks", "bytes", "median", "p99", "max"
        );
    }
    for (name, group) in groups {
        let at = |share| group.latencies.quantile(share).to_string();
        text += &format!(
            "{name:24} {:>8} {:>10} {:>12} {:>11} {:>11} {:>11}\n",
            group.count,
            group.blocks,
            group.bytes,
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    let notes = [
        (fabric.gaps, "times that bytes of a connection are missing, or are no PDU"),
        (statistics.unfinished + fabric.unfinished + words.1, "commands under way at the end"),
        (
            statistics.unexpected + fabric.unexpected + words.0,
            "completions and data of no command of the capture",
        ),
        (statistics.unanswered, "requests without their last completion"),
        (statistics.orphans, "completions without their request"),
        (flaws.foreign, "frames without a PCIe packet or PDU, or lines without an event"),
        (flaws.malformed, "frames with a malformed packet"),
        (flaws.lost, "packets that passed and were lost by who captured"),
        (flaws.backwards, "packets with an earlier time than the one before"),
        (statistics.dropped + fabric.dropped + words.2, "things without room, not followed"),
    ];
    let notes = notes.iter().filter(|(count, _)| *count > 0);
    text + &notes.map(|(count, what)| format!("{what}: {count}\n")).collect::<String>()
}
