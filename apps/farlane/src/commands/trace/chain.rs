//! `farlane observe trace chain`: where the time of a command went.

use captures::{Ordered, Population, Times, name, populations};
use engine::Nanos;
use serde_json::{Value, json};
use trace::{Command, Kind, Step};

use super::advice;
use crate::args::ChainArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// Columns of the longest bar.
const BAR: usize = 30;

pub(super) fn run(args: &ChainArgs) -> Result<(), Error> {
    match args.command {
        Some(number) => one(args, number),
        None => all(args),
    }
}

/// The chain of one command.
fn one(args: &ChainArgs, number: u64) -> Result<(), Error> {
    let (mut count, mut found) = (0, None);
    for command in Ordered::open(args.capture.source())? {
        let command = command?;
        count += 1;
        if count == number {
            found = Some(command);
        }
    }
    let Some(command) = found else {
        let expected = format!("1 to {count}, as the capture has {count} commands");
        return Err(Error::Range { what: "--command", value: number, expected });
    };
    if args.capture.output.json {
        return print_json(&as_json(&command));
    }
    let whole = command.length();
    let mut text = format!(
        "{}, {} B, {} packets\ncompleted after {}, done after {whole}\n",
        title(&command),
        command.bytes,
        command.packets(),
        command.latency()
    );
    for (step, length) in command.chain() {
        let packets = command.hops.iter().find(|hop| hop.step == step).map_or(0, |hop| hop.packets);
        let line = format!(
            "  {:14} {:>12} {:5.1} % {:>4} packets  {}",
            step.name(),
            length.to_string(),
            share(length, whole) * 100.0,
            packets,
            bar(share(length, whole))
        );
        text += &format!("{}\n", line.trim_end());
    }
    print(&text)
}

fn share(length: Nanos, whole: Nanos) -> f64 {
    if whole == Nanos::ZERO { 0.0 } else { length.get() as f64 / whole.get() as f64 }
}

fn bar(share: f64) -> String {
    let filled = (0..BAR).take_while(|at| (*at as f64 + 0.5) / BAR as f64 <= share);
    "#".repeat(filled.count())
}

fn title(command: &Command) -> String {
    let queue = match (command.queue, command.id) {
        (Some(queue), Some(id)) => format!(" {id:#06x} of queue {queue}"),
        _ => " (inferred)".to_owned(),
    };
    let place = match (command.namespace, command.lba, command.blocks) {
        (Some(namespace), Some(lba), Some(blocks)) => {
            format!(", namespace {namespace}, LBA {lba}, {blocks} blocks")
        }
        (Some(namespace), ..) => format!(", namespace {namespace}"),
        _ => String::new(),
    };
    format!("{}{queue}{place}", name(command.kind))
}

fn as_json(command: &Command) -> Value {
    let packets = |step: Step| command.hops.iter().find(|hop| hop.step == step).map_or(0, |hop| hop.packets);
    let hop = |(step, length): (Step, Nanos)| json!({ "step": step.name(), "ns": length.get(), "packets": packets(step) });
    json!({
        "command": name(command.kind), "queue": command.queue, "id": command.id,
        "nsid": command.namespace, "lba": command.lba, "blocks": command.blocks, "bytes": command.bytes,
        "status": command.status, "inferred": matches!(command.kind, Kind::InferredRead | Kind::InferredWrite),
        "latency_ns": command.latency().get(), "whole_ns": command.length().get(),
        "hops": command.chain().into_iter().map(hop).collect::<Vec<_>>(),
    })
}

/// The chains of all commands, by kind.
fn all(args: &ChainArgs) -> Result<(), Error> {
    let kinds = populations(args.capture.source(), args.three_sigma)?;
    if kinds.is_empty() {
        captures::refuse_empty(args.capture.source())?;
    }
    if args.capture.output.json {
        let kind = |(name, of): (&String, &Population)| {
            let steps = of.steps.iter().map(|(step, one)| json!({ "step": step.name(), "ns": one.times }));
            json!({ "command": name, "count": of.count, "latency_ns": of.latency, "whole_ns": of.whole,
                "hops": steps.collect::<Vec<_>>(), "dominates": advice::of(of) })
        };
        return print_json(&json!({ "chains": kinds.iter().map(kind).collect::<Vec<_>>() }));
    }
    let mut text = String::new();
    for (name, of) in &kinds {
        let mean = of.whole.mean();
        let [completed, done] = [of.latency.mean(), mean].map(|nanos| format!("{:.3} µs", nanos / 1e3));
        text += &format!(
            "{name}: {} of them, completed after {completed}, done after {done} (means)\n",
            of.count
        );
        for (step, Times { times: one, .. }) in &of.steps {
            let share = of.share(*step);
            let line = format!(
                "  {:14} {:>12} median, {:>12} p99 {:5.1} %  {}",
                step.name(),
                one.median().to_string(),
                one.quantile(0.99).to_string(),
                share * 100.0,
                bar(share)
            );
            text += &format!("{}\n", line.trim_end());
        }
        text += &advice::of(of).map(|words| format!("  {words}\n")).unwrap_or_default();
    }
    print(if text.is_empty() { "the capture has no NVMe command\n" } else { &text })
}
