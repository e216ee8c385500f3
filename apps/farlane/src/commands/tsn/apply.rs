//! `farlane model tsn apply`: gives an interface the queueing disciplines that keep a plan.

use std::io;
use std::process::{Command, Output};

use network_models::Class;
use network_models::tsn::taprio::{self, Layout, Offload};
use schemars::JsonSchema;
use serde::Serialize;

use super::interface::Interface;
use crate::args::ApplyArgs;
use crate::commands::{print, print_json};
use crate::error::{Error, TsnError};
use crate::plan_file::PlanFile;

/// The commands that set up an interface, and whether they were carried out.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Report {
    interface: String,
    /// Whether the commands were carried out.
    applied: bool,
    commands: Vec<Vec<String>>,
}

pub(super) fn run(args: &ApplyArgs) -> Result<(), Error> {
    let commands = if args.remove { vec![taprio::removal(&args.interface)] } else { commands(args)? };
    if !args.dry_run {
        carry_out(args, &commands)?;
    }
    if args.output.json {
        let with_tc = |arguments: &Vec<String>| {
            std::iter::once("tc".to_owned()).chain(arguments.iter().cloned()).collect()
        };
        let commands = commands.iter().map(with_tc).collect();
        let interface = args.interface.clone();
        return print_json(&Report { interface, applied: !args.dry_run, commands });
    }
    let lines: String = commands.iter().map(|one| taprio::command(one) + "\n").collect();
    match args.dry_run {
        true => print(&lines),
        false => print(&format!("{lines}\n{} has these queueing disciplines now\n", args.interface)),
    }
}

/// The arguments of `tc`, command by command.
fn commands(args: &ApplyArgs) -> Result<Vec<Vec<String>>, Error> {
    let plan = args.plan.as_deref().map(PlanFile::read).transpose()?;
    let rate = plan.as_ref().map(|plan| plan.rate);
    let class = plan.as_ref().map(|plan| plan.class).or_else(|| Some(args.shaper.first()?.class));
    let class = class.unwrap_or_default();
    has_places(args, class)?;
    let offload = match &plan {
        Some(plan) if !args.software => plan.offload,
        _ => Offload::Software,
    };
    let interface = match Interface::find(&args.interface) {
        // The printed commands may be for another machine.
        Err(_) if args.dry_run => None,
        found => found?,
    };
    let layout = match &interface {
        Some(interface) => interface.layout(rate, class, offload)?,
        None if args.dry_run => Layout::Eight,
        None => return Err(TsnError::NoInterface { interface: args.interface.clone() }.into()),
    };
    let device = &args.interface;
    let root = match &plan {
        Some(plan) => {
            let schedule = plan.schedule(args.hop.into())?;
            taprio::arguments(device, schedule, plan.preemption, offload, layout)
        }
        None => taprio::without_gates(device, layout),
    };
    let mut commands = vec![root];
    let link = interface.and_then(|interface| interface.rate).or(rate);
    let frame_max = plan.as_ref().map_or(FRAME_MAX, |plan| plan.frame_max);
    for shaper in &args.shaper {
        if layout.traffic_class(shaper.class) == 0 && layout != Layout::Eight && shaper.class != class {
            return Err(TsnError::Shared { class: shaper.class.number() }.into());
        }
        let link = link
            .filter(|link| *link > shaper.rate)
            .ok_or(TsnError::ShaperRate { rate: shaper.rate, link })?;
        commands.push(taprio::shaper(device, layout, shaper.class, shaper.rate, link, frame_max));
    }
    if args.launch_times {
        commands.push(taprio::launches(device, layout, class, args.delta.into(), offload));
    }
    // When a discipline is put below it, Linux resets the schedule, and its gates then stay as they
    // are. Giving it again starts it.
    if plan.is_some() && commands.len() > 1 {
        commands.push(commands[0].clone());
    }
    Ok(commands)
}

/// Whether each class gets one discipline at most below the one at the root. A second would
/// silently take the place of the first. The plan is about `class`.
fn has_places(args: &ApplyArgs, class: Class) -> Result<(), TsnError> {
    for (index, shaper) in args.shaper.iter().enumerate() {
        let second = if args.shaper[..index].iter().any(|before| before.class == shaper.class) {
            "another --shaper"
        } else if args.launch_times && shaper.class == class {
            "--launch-times"
        } else {
            continue;
        };
        return Err(TsnError::OnePlace { class: shaper.class.number(), second });
    }
    Ok(())
}

/// The longest frame of an interface with the usual MTU, in bytes.
const FRAME_MAX: u32 = 1_522;

/// Carries out the commands; if one fails, the commands before it are undone.
fn carry_out(args: &ApplyArgs, commands: &[Vec<String>]) -> Result<(), Error> {
    for (index, command) in commands.iter().enumerate() {
        let failure = match tc(command) {
            Ok(output) if output.status.success() => continue,
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                let remedy = remedy(&said, command);
                TsnError::Refused { command: taprio::command(command), said, remedy }
            }
            Err(error) => TsnError::NoTc(error),
        };
        if index > 0 {
            // A discipline that can't be removed stays; the first failure counts.
            let _ = tc(&taprio::removal(&args.interface));
        }
        return Err(failure.into());
    }
    Ok(())
}

fn tc(arguments: &[String]) -> io::Result<Output> {
    Command::new("tc").args(arguments).env("LC_ALL", "C").output()
}

/// The remedy for an error message of `tc`.
fn remedy(said: &str, command: &[String]) -> String {
    let has = |text: &str| said.contains(text);
    let kind =
        ["taprio", "mqprio", "cbs", "etf"].into_iter().find(|kind| command.iter().any(|word| word == kind));
    if let (true, Some(kind)) = (has("kind is unknown") || has("not found"), kind) {
        format!(
            "this kernel has no {kind}: modprobe sch_{kind}, or a kernel with CONFIG_NET_SCH_{}",
            kind.to_uppercase()
        )
    } else if has("not permitted") || has("Permission denied") {
        "it takes the capability CAP_NET_ADMIN: use sudo".to_owned()
    } else if has("PTP clock") || has("offload") {
        "--software has the kernel open the gates".to_owned()
    } else if has("of a running schedule") || has("Invalid qdisc name") {
        // Linux changes the times of a schedule that runs, but neither classes, clocks nor kinds.
        "farlane model tsn apply --remove removes the interface's present disciplines; then apply this"
            .to_owned()
    } else if has("handle of zero") || has("No such file") {
        "there is nothing to remove".to_owned()
    } else {
        "tc -s qdisc show dev shows the interface's disciplines".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tc_says_has_a_remedy() {
        let command = taprio::without_gates("eth0", Layout::Eight);
        for (said, expected) in [
            ("Error: Specified qdisc kind is unknown.", "sch_mqprio"),
            ("RTNETLINK answers: Operation not permitted", "sudo"),
            ("Error: Specified device has no PTP clock.", "--software"),
            (
                "Error: Changing the traffic mapping of a running schedule is not supported.",
                "tsn apply --remove",
            ),
            ("Error: Invalid qdisc name.", "tsn apply --remove"),
            ("Error: Cannot delete qdisc with handle of zero.", "nothing to remove"),
            ("Error: something else", "tc -s qdisc"),
        ] {
            assert!(remedy(said, &command).contains(expected), "{said}");
        }
    }
}
