//! `farlane trace stats`: what a capture has.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use trace::{Command, Statistics};

use super::{Flaws, each_command, name};
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
struct Group {
    count: u64,
    blocks: u64,
    bytes: u64,
    errors: u64,
    latencies: Distribution,
}

impl Group {
    fn add(&mut self, command: &Command) {
        self.count += 1;
        self.bytes += command.bytes;
        self.blocks += command.blocks.map_or(command.bytes / BLOCK, u64::from);
        self.errors += u64::from(command.status.is_some_and(|status| status & 0x7ff != 0));
        self.latencies.record(command.latency());
    }
}

pub(super) fn run(args: &CaptureArgs) -> Result<(), Error> {
    let mut groups = BTreeMap::<String, Group>::new();
    let (analyser, flaws) =
        each_command(&args.file, |command| groups.entry(name(command.kind)).or_default().add(&command))?;
    let statistics = analyser.statistics();
    if args.output.json {
        print_json(&as_json(&statistics, flaws, &groups))
    } else {
        print(&text(&statistics, flaws, &groups))
    }
}

/// How sure the commands are, from 0 to 1: the share of the devices' packets that have a place in a
/// command, where those of inferred commands count half.
fn confidence(statistics: &Statistics) -> f64 {
    if statistics.of_devices == 0 {
        return 0.0;
    }
    let worth = statistics.known as f64 + statistics.inferred as f64 * WORTH_OF_INFERENCE;
    worth / statistics.of_devices as f64
}

fn as_json(statistics: &Statistics, flaws: Flaws, groups: &BTreeMap<String, Group>) -> Value {
    let group = |group: &Group| {
        json!({ "count": group.count, "blocks": group.blocks, "bytes": group.bytes, "errors": group.errors,
            "latency_ns": group.latencies })
    };
    let commands: Map<_, _> = groups.iter().map(|(name, one)| (name.to_lowercase(), group(one))).collect();
    json!({
        "tlps": statistics.packets, "bytes": statistics.bytes, "errors": statistics.errors,
        "commands": commands,
        "confidence": confidence(statistics),
        "known": statistics.known_commands, "inferred": statistics.inferred_commands,
        "unfinished": statistics.unfinished, "unexpected_completions": statistics.unexpected,
        "unanswered": statistics.unanswered, "orphan_completions": statistics.orphans,
        "skipped": { "foreign": flaws.foreign, "malformed": flaws.malformed },
        "dropped": statistics.dropped,
        "time_ran_back": flaws.backwards,
    })
}

fn text(statistics: &Statistics, flaws: Flaws, groups: &BTreeMap<String, Group>) -> String {
    let mut text = format!(
        "{} packets with {} B of data, {} completions without success\n",
        statistics.packets, statistics.bytes, statistics.errors
    );
    let known = match (statistics.known_commands, statistics.inferred_commands) {
        (0, 0) => "no NVMe command was found".to_owned(),
        (0, _) => "commands are inferred from the sizes and addresses of data".to_owned(),
        (_, 0) => "commands are known from their entries".to_owned(),
        (known, inferred) => format!("{known} commands are known from their entries, {inferred} inferred"),
    };
    text += &format!("{known}; confidence {:.2}\n", confidence(statistics));
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
        (statistics.unfinished, "commands under way at the end"),
        (statistics.unexpected, "completions of no command of the capture"),
        (statistics.unanswered, "requests without their last completion"),
        (statistics.orphans, "completions without their request"),
        (flaws.foreign, "frames without a PCIe packet"),
        (flaws.malformed, "frames with a malformed packet"),
        (flaws.backwards, "packets with an earlier time than the one before"),
        (statistics.dropped, "things without room, not followed"),
    ];
    let notes = notes.iter().filter(|(count, _)| *count > 0);
    text + &notes.map(|(count, what)| format!("{what}: {count}\n")).collect::<String>()
}
