//! `farlane model tsn plan`: a gate schedule, the delays that it promises, and the commands that
//! set it up on Linux.

use std::fmt::Write as _;

use engine::Nanos;
use network_models::Class;
use network_models::ethernet::PortSettings;
use network_models::ethernet::medium::{Cable, Medium, PortLatency};
use network_models::tsn::bound::{self, Flow};
use network_models::tsn::plan::{Plan, Request};
use network_models::tsn::taprio::{self, Layout, Offload};
use network_models::tsn::traffic::Envelope;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::PlanArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// Bytes of a frame beside its payload: header, tag and check sequence.
const HEADERS: u32 = 22;
/// Columns that the picture gives one cycle.
const WIDTH: u64 = 64;
/// Most frames of others that a simulation may take: some seconds of work.
const SIMULATED_FRAMES_MAX: u64 = 4_000_000;

/// Gate schedules of each hop, and the longest delay. Times are in nanoseconds, rates in bits per
/// second.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Report {
    cycle: u64,
    rate: u64,
    class: u8,
    /// The longest frame of any traffic in bytes, with header and check sequence.
    frame_max: u32,
    clock_error: u64,
    preemption: bool,
    /// Whether the kernel opens the gates instead of the card.
    software: bool,
    messages_per_cycle: u64,
    share_of_cycle: f64,
    simulated_messages: u64,
    hops: Vec<HopReport>,
    delays: Vec<Delay>,
}

/// The gate schedule of a hop.
#[derive(Debug, Serialize, JsonSchema)]
struct HopReport {
    device: String,
    base_time: u64,
    window: u64,
    guard: u64,
    entries: Vec<EntryReport>,
    command: String,
}

/// An entry of a gate control list.
#[derive(Debug, Serialize, JsonSchema)]
struct EntryReport {
    gate_mask: u8,
    interval: u64,
}

/// A way to send, with its computed bound and the delays that a run of the models showed. Times are
/// in nanoseconds.
#[derive(Debug, Serialize, JsonSchema)]
struct Delay {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_min: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_median: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_max: Option<u64>,
    /// The longest delay that is possible; `None` where there is no bound.
    worst_case: Option<u64>,
}

pub(super) fn run(args: &PlanArgs) -> Result<(), Error> {
    let hops = usize::from(args.hops);
    if !args.device.is_empty() && args.device.len() != hops {
        return Err(Error::Devices { count: args.device.len(), hops });
    }
    let plan = Plan::new(request(args)).map_err(Error::Plan)?;
    let report = report(args, &plan);
    if args.output.json { print_json(&report) } else { print(&text(&plan, &report)) }
}

fn request(args: &PlanArgs) -> Request {
    let port = |hop: u16| PortSettings {
        mtu: args.mtu,
        latency: PortLatency::of_rate(args.rate),
        cable: Cable::metres(Medium::TwistedPair, args.cable),
        // The sender has no forwarding decision to make.
        processing: if hop == 0 { Nanos::ZERO } else { args.processing.into() },
        ..PortSettings::new(args.rate)
    };
    let cycle = args.cycle.into();
    Request {
        class: Class::new(args.class).unwrap_or(Class::HIGHEST),
        frames: args.frame.clone(),
        period: args.period.map_or(cycle, Nanos::from),
        cycle,
        ports: (0..args.hops).map(port).collect(),
        others_mtu: args.mtu,
        preemption: args.preemption,
        clock_error: args.clock_error.into(),
    }
}

fn report(args: &PlanArgs, plan: &Plan) -> Report {
    let hops = plan.hops.iter().enumerate().map(|(index, hop)| {
        let device = args.device.get(index).cloned().unwrap_or_else(|| format!("hop{}", index + 1));
        let schedule = &hop.schedule;
        let entries = schedule.entries().iter();
        HopReport {
            command: taprio::command(&taprio::arguments(
                &device,
                schedule,
                plan.request.preempting(),
                args.offload(),
                Layout::Eight,
            )),
            device,
            base_time: schedule.base().get(),
            window: hop.window.get(),
            guard: hop.guard.get(),
            entries: entries
                .map(|entry| EntryReport { gate_mask: entry.states.bits(), interval: entry.length.get() })
                .collect(),
        }
    });
    Report {
        cycle: plan.request.cycle.get(),
        rate: args.rate.bits(),
        class: args.class,
        frame_max: args.mtu + HEADERS,
        clock_error: plan.request.clock_error.get(),
        preemption: args.preemption,
        software: args.offload() == Offload::Software,
        messages_per_cycle: plan.messages,
        share_of_cycle: fraction(plan.share()),
        simulated_messages: simulated(args, plan),
        hops: hops.collect(),
        delays: delays(args, plan),
    }
}

/// Thousandths of a whole as a fraction.
fn fraction(thousandths: u64) -> f64 {
    f64::from(u32::try_from(thousandths).unwrap_or(u32::MAX)) / 1_000.0
}

/// How many messages are simulated: each may meet a cycle's worth of others' frames at each hop.
fn simulated(args: &PlanArgs, plan: &Plan) -> u64 {
    let frame = args.rate.time_of(u64::from(args.mtu) + 38).get().max(1);
    let met = (plan.request.cycle.get() / frame).max(1) * u64::from(args.hops);
    args.messages.min((SIMULATED_FRAMES_MAX / met).max(1))
}

fn delays(args: &PlanArgs, plan: &Plan) -> Vec<Delay> {
    let run = |name, synchronised, bound: Nanos| {
        let mut simulated = plan.simulate(simulated(args, plan), synchronised, args.seed);
        simulated.sort_unstable();
        let at = |index: usize| simulated.get(index).map(|delay| delay.get());
        Delay {
            name,
            simulated_min: at(0),
            simulated_median: at(simulated.len() / 2),
            simulated_max: at(simulated.len().saturating_sub(1)),
            worst_case: Some(bound.get()),
        }
    };
    let without = |name, preemption: bool| Delay {
        name,
        simulated_min: None,
        simulated_median: None,
        simulated_max: None,
        worst_case: without_gates(&plan.request, preemption),
    };
    vec![
        run("gates, sender synchronised", true, plan.synchronised),
        run("gates, sender not synchronised", false, plan.unsynchronised),
        without("priority only", false),
        without("priority and preemption", true),
    ]
}

/// The bound in nanoseconds of the same flow through the same ports, with the highest priority and
/// without gates.
fn without_gates(request: &Request, preemption: bool) -> Option<u64> {
    let express = Request { preemption: true, ..request.clone() }.preempting();
    let ports: Vec<_> = request
        .ports
        .iter()
        .map(|port| PortSettings {
            background: request.others(),
            preemption: express.filter(|_| preemption),
            ..port.clone()
        })
        .collect();
    // Class 0 is the lowest without gates: no flow would use it.
    let class = if request.class == Class::BEST_EFFORT { return None } else { request.class };
    let wire = |length: &u32| u64::from((*length).max(64)) + 20;
    let bytes: u64 = request.frames.iter().map(wire).sum();
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    let rate = u64::try_from(bits.div_ceil(u128::from(request.period.get().max(1)))).ok()?;
    let flow = Flow {
        class,
        frame_min: request.frames.iter().copied().min()?,
        frame_max: request.frames.iter().copied().max()?,
        envelope: Envelope { burst: bytes, rate },
    };
    bound::worst_case(&flow, &ports).ok().map(|bound| bound.total.get())
}

fn text(plan: &Plan, report: &Report) -> String {
    let mut text = String::new();
    let cycle = Nanos::new(report.cycle);
    let messages = if report.messages_per_cycle == 1 { "message" } else { "messages" };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "A cycle of {cycle} with room for {} {messages}; windows and guard bands take {:.1} % of it.\n",
        report.messages_per_cycle,
        report.share_of_cycle * 100.0
    );
    for (hop, planned) in report.hops.iter().zip(&plan.hops) {
        let bar: String = (0..WIDTH)
            .map(|column| symbol(planned.window, planned.guard, hop.base_time, report.cycle, column))
            .collect();
        let _ = writeln!(
            text,
            "  {:<8} opens {:>11} for {:>11}  |{bar}|",
            hop.device,
            Nanos::new(hop.base_time).to_string(),
            Nanos::new(hop.window).to_string()
        );
    }
    let _ = writeln!(text, "\n  █ the flow   ░ all other traffic   · no new frame: frames in progress end\n");
    let _ =
        writeln!(text, "  {:<31} {:>34}   {:>12}", "one way", "simulated: least / median / most", "at most");
    for delay in &report.delays {
        let time =
            |time: Option<u64>| time.map_or_else(|| "-".to_owned(), |time| Nanos::new(time).to_string());
        let simulated = match delay.simulated_max {
            None => String::new(),
            most => {
                format!("{} / {} / {}", time(delay.simulated_min), time(delay.simulated_median), time(most))
            }
        };
        let _ = writeln!(text, "  {:<31} {simulated:>38}   {:>12}", delay.name, time(delay.worst_case));
    }
    text.push('\n');
    for hop in &report.hops {
        let _ = writeln!(text, "{}\n", hop.command);
    }
    if plan.request.preemption {
        for hop in &report.hops {
            let _ = writeln!(
                text,
                "ethtool --set-mm {} pmac-enabled on tx-enabled on verify-enabled on",
                hop.device
            );
        }
    }
    text
}

/// The meaning of a column of a hop's bar: the classes that may send at the middle of the column,
/// or that the flow's window lies somewhere in it.
fn symbol(window: Nanos, guard: Nanos, base: u64, cycle: u64, column: u64) -> char {
    let start = column * cycle / WIDTH;
    let end = ((column + 1) * cycle / WIDTH).max(start + 1);
    // From here on, times are relative to the window's opening.
    let from = (start + cycle - base % cycle) % cycle;
    let length = end - start;
    if from < window.get() || from + length > cycle {
        '█'
    } else if from + length / 2 >= cycle - guard.get() {
        '·'
    } else {
        '░'
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, ModelCommand, TsnAction};
    use clap::Parser as _;

    fn reported(arguments: &[&str]) -> (Plan, Report) {
        let cli = Cli::try_parse_from([&["farlane", "model", "tsn", "plan"], arguments].concat()).unwrap();
        let Command::Model(ModelCommand::Tsn(TsnAction::Plan(args))) = cli.command else { panic!("{cli:?}") };
        let plan = Plan::new(request(&args)).unwrap();
        let report = report(&args, &plan);
        (plan, report)
    }

    #[test]
    fn what_was_simulated_stays_within_what_was_promised() {
        let (plan, report) =
            reported(&["--rate", "100Mbit/s", "--hops", "3", "--frame", "512", "--clock-error", "1us"]);
        let gated = &report.delays[..2];
        assert!(
            gated
                .iter()
                .all(|delay| delay.simulated_max.is_some() && delay.simulated_max <= delay.worst_case)
        );
        let bounds: Vec<_> = report.delays.iter().map(|delay| delay.worst_case.unwrap()).collect();
        // A sender that is not synchronised is better off with preemption than with gates.
        assert!(bounds[0] < bounds[3] && bounds[3] < bounds[2] && bounds[2] < bounds[1], "{bounds:?}");
        let text = text(&plan, &report);
        assert!(text.contains("tc qdisc replace dev hop3") && text.contains('█'), "{text}");
    }

    #[test]
    fn a_long_cycle_is_simulated_with_fewer_messages() {
        let (_, report) =
            reported(&["--rate", "10Gbit/s", "--cycle", "1s", "--hops", "2", "--messages", "1000"]);
        assert_eq!(report.simulated_messages, 2);
    }

    #[test]
    fn the_picture_shows_the_window_where_it_is() {
        let bar = |base| -> String {
            (0..WIDTH).map(|column| symbol(Nanos::new(16), Nanos::new(4), base, 64, column)).collect()
        };
        assert_eq!(bar(0), format!("{}{}{}", "█".repeat(16), "░".repeat(44), "·".repeat(4)));
        assert_eq!(bar(56), format!("{}{}{}{}", "█".repeat(8), "░".repeat(44), "·".repeat(4), "█".repeat(8)));
        // A window that is shorter than a column is shown nevertheless.
        let bar: String =
            (0..WIDTH).map(|column| symbol(Nanos::new(2), Nanos::ZERO, 500, 6_400, column)).collect();
        assert_eq!(bar.matches('█').count(), 1);
    }
}
