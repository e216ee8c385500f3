//! The statistics of a whole capture: counts, and the commands of each opcode.

use std::collections::BTreeMap;

use distribution::Distribution;
use schemars::JsonSchema;
use serde::Serialize;
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

/// Requests, PDUs of fabrics and NVMe commands in a capture: `trace stats --json` prints them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Packets.
    pub tlps: u64,
    /// Bytes of their data.
    pub bytes: u64,
    /// Completions without success.
    pub errors: u64,
    /// Configuration requests without success, as enumeration makes them.
    pub probes: u64,
    /// Commands that failed.
    pub failed: u64,
    /// The commands of each opcode.
    pub commands: BTreeMap<String, GroupReport>,
    /// How sure the commands are, from 0 to 1.
    pub confidence: f64,
    /// PDUs and messages of NVMe over fabrics.
    pub pdus: u64,
    /// How often bytes of a connection are missing, or are no PDU.
    pub gaps: u64,
    /// Commands whose entries were read.
    pub known: u64,
    /// Commands that were inferred from the sizes and addresses of data.
    pub inferred: u64,
    /// Commands under way at the end.
    pub unfinished: u64,
    /// Requests under way at the end.
    pub waiting: u64,
    /// Completions and data of no command of the capture.
    pub unexpected_completions: u64,
    /// Requests without their last completion.
    pub unanswered: u64,
    /// Completions without their request.
    pub orphan_completions: u64,
    /// Frames that were skipped.
    pub skipped: Skipped,
    /// Things without room, not followed.
    pub dropped: u64,
    /// Packets that passed and were lost in the capture.
    pub lost: u64,
    /// Packets with an earlier time than the one before.
    pub time_ran_back: u64,
}

/// The commands of one opcode in a report.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GroupReport {
    /// How many there are.
    pub count: u64,
    /// Logical blocks of all these commands.
    pub blocks: u64,
    /// Bytes of data of all these commands.
    pub bytes: u64,
    /// How many completed with something else than success.
    pub errors: u64,
    /// The times until the device posted the completion.
    pub latency_ns: Distribution,
}

/// Frames that were skipped.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Skipped {
    /// Frames without a packet or PDU.
    pub foreign: u64,
    /// Frames with a malformed packet.
    pub malformed: u64,
    /// Frames of links that are not known.
    pub unknown_links: Vec<UnknownLink>,
}

/// Frames of a link that is not known.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UnknownLink {
    /// The link's type in captures; none for all further types.
    pub link_type: Option<u32>,
    /// How many frames there are.
    pub frames: u64,
}

impl From<&Group> for GroupReport {
    fn from(group: &Group) -> Self {
        Self {
            count: group.count,
            blocks: group.blocks,
            bytes: group.bytes,
            errors: group.errors,
            latency_ns: group.latencies.clone(),
        }
    }
}

impl Report {
    /// The report of a capture.
    pub fn of(analysis: &Analysis, groups: &Groups) -> Self {
        let Analysis { statistics, fabric, words, flaws } = analysis;
        let count = groups.values().map(|group| group.count).sum::<u64>();
        let unknown = flaws.unknown.each().map(|(link_type, frames)| UnknownLink { link_type, frames });
        Self {
            tlps: statistics.packets,
            bytes: statistics.bytes,
            errors: statistics.errors,
            probes: statistics.probes,
            failed: failed(groups),
            commands: groups.iter().map(|(name, one)| (name.to_lowercase(), one.into())).collect(),
            confidence: confidence(analysis, groups),
            pdus: fabric.pdus,
            gaps: fabric.gaps,
            known: count.saturating_sub(statistics.inferred_commands),
            inferred: statistics.inferred_commands,
            unfinished: statistics.unfinished + fabric.unfinished + words.1,
            waiting: statistics.waiting + fabric.waiting,
            unexpected_completions: statistics.unexpected + fabric.unexpected + words.0,
            unanswered: statistics.unanswered,
            orphan_completions: statistics.orphans,
            skipped: Skipped {
                foreign: flaws.foreign,
                malformed: flaws.malformed,
                unknown_links: unknown.collect(),
            },
            dropped: statistics.dropped + fabric.dropped + words.2,
            lost: flaws.lost,
            time_ran_back: flaws.backwards,
        }
    }
}
