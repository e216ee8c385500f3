//! `farlane observe trace chain`: where the time of a command went.

use captures::{Ordered, Population, Times, name, populations};
use distribution::Distribution;
use engine::Nanos;
use schemars::JsonSchema;
use serde::Serialize;
use trace::{Command, Kind, Step};

use super::advice;
use crate::args::ChainArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// Columns of the longest bar.
const BAR: usize = 30;

/// The steps of one NVMe command in a capture.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Chain {
    command: String,
    queue: Option<u16>,
    id: Option<u16>,
    nsid: Option<u32>,
    lba: Option<u64>,
    blocks: Option<u32>,
    bytes: u64,
    /// The status of the completion.
    status: Option<u16>,
    /// Whether the command is inferred from the sizes and addresses of data.
    inferred: bool,
    /// The time until the completion.
    latency_ns: u64,
    /// The time until the last packet.
    whole_ns: u64,
    hops: Vec<ChainHop>,
}

/// A step of a command.
#[derive(Serialize, JsonSchema)]
struct ChainHop {
    step: &'static str,
    ns: u64,
    packets: u32,
}

/// The steps of all commands, by kind.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Chains<'a> {
    chains: Vec<KindChain<'a>>,
}

/// The steps of the commands of a kind.
#[derive(Serialize, JsonSchema)]
struct KindChain<'a> {
    command: &'a str,
    count: u64,
    latency_ns: &'a Distribution,
    whole_ns: &'a Distribution,
    hops: Vec<KindHop<'a>>,
    /// The step that takes most of the time, in words.
    dominates: Option<String>,
}

/// A step of the commands of a kind.
#[derive(Serialize, JsonSchema)]
struct KindHop<'a> {
    step: &'static str,
    ns: &'a Distribution,
}

impl<'a> KindChain<'a> {
    fn of(command: &'a str, of: &'a Population) -> Self {
        let hop = |(step, one): (&Step, &'a Times)| KindHop { step: step.name(), ns: &one.times };
        Self {
            command,
            count: of.count,
            latency_ns: &of.latency,
            whole_ns: &of.whole,
            hops: of.steps.iter().map(hop).collect(),
            dominates: advice::of(of),
        }
    }
}

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
        return print_json(&Chain::of(&command));
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

impl Chain {
    fn of(command: &Command) -> Self {
        let packets =
            |step: Step| command.hops.iter().find(|hop| hop.step == step).map_or(0, |hop| hop.packets);
        let hop = |(step, length): (Step, Nanos)| ChainHop {
            step: step.name(),
            ns: length.get(),
            packets: packets(step),
        };
        Self {
            command: name(command.kind),
            queue: command.queue,
            id: command.id,
            nsid: command.namespace,
            lba: command.lba,
            blocks: command.blocks,
            bytes: command.bytes,
            status: command.status,
            inferred: matches!(command.kind, Kind::InferredRead | Kind::InferredWrite),
            latency_ns: command.latency().get(),
            whole_ns: command.length().get(),
            hops: command.chain().into_iter().map(hop).collect(),
        }
    }
}

/// The chains of all commands, by kind.
fn all(args: &ChainArgs) -> Result<(), Error> {
    let kinds = populations(args.capture.source(), args.three_sigma)?;
    if kinds.is_empty() {
        captures::refuse_empty(args.capture.source())?;
    }
    if args.capture.output.json {
        let chains = kinds.iter().map(|(name, of)| KindChain::of(name, of)).collect();
        return print_json(&Chains { chains });
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
