//! `farlane observe trace stats`: the content of a capture.

use captures::statistics::{Report, confidence, failed};
use captures::{Analysis, Groups, each_command, of_kind};

use crate::args::CaptureArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

pub(super) fn run(args: &CaptureArgs) -> Result<(), Error> {
    let mut groups = Groups::new();
    let analysis = each_command(args.source(), |command| of_kind(&mut groups, command.kind).add(&command))?;
    match args.output.json {
        true => print_json(&Report::of(&analysis, &groups))?,
        false => print(&text(&analysis, &groups))?,
    }
    Ok(analysis.check(args.source().file, !groups.is_empty())?)
}

fn text(analysis: &Analysis, groups: &Groups) -> String {
    let Analysis { statistics, fabric, words, flaws } = analysis;
    let mut text = format!(
        "{} packets with {} B of data, {} completions without success\n",
        statistics.packets, statistics.bytes, statistics.errors
    );
    if statistics.probes > 0 {
        let probes = statistics.probes;
        text += &format!("{probes} configuration requests without success, as enumeration makes them\n");
    }
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
        text += &format!("{} commands failed\n", failed(groups));
    }
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
        (flaws.lost, "packets that passed and were lost by the capturing program"),
        (flaws.backwards, "packets with an earlier time than the one before"),
        (statistics.dropped + fabric.dropped + words.2, "things without room, not followed"),
    ];
    let notes = notes.iter().filter(|(count, _)| *count > 0);
    let notes = notes.map(|(count, what)| format!("{what}: {count}\n"));
    text + &notes.chain(analysis.flaws.unknown.lines().map(|line| line + "\n")).collect::<String>()
}
