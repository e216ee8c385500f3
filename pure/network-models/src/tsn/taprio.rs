//! A gate schedule in the form that Linux takes: the `taprio` queueing discipline (tc-taprio(8)).

use alloc::string::String;
use core::fmt::Write as _;

use super::gates::GateSchedule;
use super::preemption::Preemption;
use crate::Class;

/// Link time of a frame that `tc` does not see, in bytes: preamble, gap and check sequence.
const OVERHEAD: u32 = 24;

/// Where the gates are operated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// In the network card or the switch, by its own clock.
    #[default]
    Hardware,
    /// In the kernel, by CLOCK_TAI.
    Software,
}

/// The command that gives `device` this schedule. Priority n and queue n are traffic class n. The
/// schedule starts at the next multiple of its cycle plus its base.
pub fn command(
    device: &str,
    schedule: &GateSchedule,
    preemption: Option<Preemption>,
    offload: Offload,
) -> String {
    let mut text = String::new();
    let stab = match offload {
        Offload::Hardware => String::new(),
        // The kernel must know how long a frame occupies the link.
        Offload::Software => alloc::format!("stab overhead {OVERHEAD} "),
    };
    // Writing to a string does not fail.
    let _ = write!(text, "tc qdisc replace dev {device} parent root handle 100 {stab}taprio");
    let _ = write!(text, " \\\n    num_tc {}", Class::COUNT);
    let _ = write!(text, " map 0 1 2 3 4 5 6 7 queues 1@0 1@1 1@2 1@3 1@4 1@5 1@6 1@7");
    let _ =
        write!(text, " \\\n    base-time {} cycle-time {}", schedule.base().get(), schedule.cycle().get());
    for entry in schedule.entries() {
        let _ = write!(text, " \\\n    sched-entry S {:02x} {}", entry.states.bits(), entry.length.get());
    }
    if let Some(preemption) = preemption {
        text.push_str(" \\\n    fp");
        for class in Class::ALL {
            text.push_str(if preemption.express.is_open(class.index()) { " E" } else { " P" });
        }
    }
    text.push_str(match offload {
        Offload::Hardware => " \\\n    flags 0x2",
        Offload::Software => " \\\n    clockid CLOCK_TAI",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tsn::gates::{GateEntry, GateStates};
    use engine::{Instant, Nanos};

    /// The example of tc-taprio(8) for a network card that operates the gates: class 7, then 7 and
    /// 5, then all but 7 and 5, from 200 ns on.
    #[test]
    fn the_manuals_example_comes_out() {
        let entry =
            |bits, length| GateEntry { states: GateStates::from_bits(bits), length: Nanos::new(length) };
        let entries = [entry(0x80, 20_000), entry(0xa0, 20_000), entry(0x5f, 60_000)];
        let schedule = GateSchedule::new(Instant::from_nanos(100_200), entries).unwrap();
        let text = command("eth0", &schedule, None, Offload::Hardware).replace(" \\\n   ", "");
        assert_eq!(
            text,
            "tc qdisc replace dev eth0 parent root handle 100 taprio num_tc 8 map 0 1 2 3 4 5 6 7 queues 1@0 1@1 \
             1@2 1@3 1@4 1@5 1@6 1@7 base-time 200 cycle-time 100000 sched-entry S 80 20000 sched-entry S a0 20000 \
             sched-entry S 5f 60000 flags 0x2"
        );
        let express = Preemption { express: GateStates::of([7]), additional: 0 };
        let text = command("eth0", &schedule, Some(express), Offload::Software);
        assert!(text.contains("fp P P P P P P P E") && text.ends_with("clockid CLOCK_TAI"), "{text}");
        assert!(text.contains("stab overhead 24 taprio"), "{text}");
    }
}
