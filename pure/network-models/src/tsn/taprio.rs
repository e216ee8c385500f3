//! A gate schedule in the form that Linux takes: the `taprio` queueing discipline (tc-taprio(8)),
//! and those that go with it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use engine::Nanos;

use super::gates::{GateSchedule, GateStates};
use super::preemption::Preemption;
use crate::{Class, Rate};

/// Link time of a frame that `tc` does not see, in bytes: preamble, gap and check sequence.
const OVERHEAD: u32 = 24;
/// The handle of the discipline at the root of an interface.
const ROOT: u16 = 100;

/// Where the gates are operated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// In the network card or the switch, by its own clock.
    #[default]
    Hardware,
    /// In the kernel, by CLOCK_TAI.
    Software,
}

/// How priorities become traffic classes, each of which has one queue of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Priority n is class n.
    Eight,
    /// The priority of one class is traffic class 1, all others are 0: for interfaces with fewer
    /// than eight queues.
    Two(Class),
}

impl Layout {
    /// The layout for an interface with this many transmit queues, whose plan is about `class`;
    /// `None` if it has only one, which nothing can overtake.
    pub const fn for_queues(queues: usize, class: Class) -> Option<Self> {
        match queues {
            0 | 1 => None,
            2..Class::COUNT => Some(Self::Two(class)),
            _ => Some(Self::Eight),
        }
    }

    /// The traffic class of `class`.
    pub fn traffic_class(self, class: Class) -> usize {
        match self {
            Self::Eight => class.index(),
            Self::Two(own) => usize::from(class == own),
        }
    }

    const fn count(self) -> usize {
        match self {
            Self::Eight => Class::COUNT,
            Self::Two(_) => 2,
        }
    }

    /// Which traffic classes may send in `states`. The one of all others may when any of them may.
    fn states(self, states: GateStates) -> GateStates {
        let open = Class::ALL.into_iter().filter(|class| states.is_open(class.index()));
        GateStates::of(open.map(|class| self.traffic_class(class)))
    }

    /// `num_tc`, `map` and `queues`.
    fn arguments(self) -> Vec<String> {
        let numbers = |numbers: &mut dyn Iterator<Item = usize>| -> Vec<String> {
            numbers.map(|number| number.to_string()).collect()
        };
        let map = numbers(&mut Class::ALL.into_iter().map(|class| self.traffic_class(class)));
        let mut arguments = words(&["num_tc", &self.count().to_string(), "map"]);
        arguments.extend(map);
        arguments.push("queues".into());
        arguments.extend((0..self.count()).map(|queue| format!("1@{queue}")));
        arguments
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// The arguments of `tc` that give `device` this schedule. The schedule starts at the next multiple
/// of its cycle plus its base.
pub fn arguments(
    device: &str,
    schedule: &GateSchedule,
    preemption: Option<Preemption>,
    offload: Offload,
    layout: Layout,
) -> Vec<String> {
    let mut list = words(&["qdisc", "replace", "dev", device, "parent", "root", "handle"]);
    list.push(ROOT.to_string());
    if offload == Offload::Software {
        // The kernel must know how long a frame occupies the link.
        list.extend(words(&["stab", "overhead", &OVERHEAD.to_string()]));
    }
    list.push("taprio".into());
    list.extend(layout.arguments());
    let (base, cycle) = (schedule.base().get().to_string(), schedule.cycle().get().to_string());
    list.extend(words(&["base-time", &base, "cycle-time", &cycle]));
    for entry in schedule.entries() {
        let mask = format!("{:02x}", layout.states(entry.states).bits());
        list.extend(words(&["sched-entry", "S", &mask, &entry.length.get().to_string()]));
    }
    if let Some(preemption) = preemption {
        let express = layout.states(preemption.express);
        list.push("fp".into());
        let express = (0..layout.count()).map(|class| if express.is_open(class) { "E" } else { "P" });
        list.extend(express.map(Into::into));
    }
    list.extend(match offload {
        Offload::Hardware => words(&["flags", "0x2"]),
        Offload::Software => words(&["clockid", "CLOCK_TAI"]),
    });
    list
}

/// The arguments of `tc` that give `device` traffic classes without gates (tc-mqprio(8)).
pub fn without_gates(device: &str, layout: Layout) -> Vec<String> {
    let mut list = words(&["qdisc", "replace", "dev", device, "parent", "root", "handle"]);
    list.extend([ROOT.to_string(), "mqprio".into()]);
    list.extend(layout.arguments());
    list.extend(words(&["hw", "0"]));
    list
}

/// The arguments of `tc` that limit `class` to `rate` of a link of the rate `link`, whose frames
/// are at most `frame` bytes long (tc-cbs(8); IEEE 802.1Q-2018, annex L, has the credits).
pub fn shaper(device: &str, layout: Layout, class: Class, rate: Rate, link: Rate, frame: u32) -> Vec<String> {
    let credit = |rate: u64| u64::from(frame).saturating_mul(rate).div_ceil(link.bits());
    let rest = link.bits().saturating_sub(rate.bits());
    let mut list = child(device, layout, class);
    list.extend(words(&["cbs", "idleslope", &(rate.bits() / 1_000).to_string()]));
    list.extend(words(&["sendslope", &format!("-{}", rest / 1_000)]));
    list.extend(words(&["hicredit", &credit(rate.bits()).to_string()]));
    list.extend(words(&["locredit", &format!("-{}", credit(rest)), "offload", "0"]));
    list
}

/// The arguments of `tc` that hold frames of `class` until `delta` before their times of launch
/// (tc-etf(8)).
pub fn launches(device: &str, layout: Layout, class: Class, delta: Nanos, offload: Offload) -> Vec<String> {
    let mut list = child(device, layout, class);
    list.extend(words(&["etf", "clockid", "CLOCK_TAI", "delta", &delta.get().to_string()]));
    if offload == Offload::Hardware {
        list.push("offload".into());
    }
    list
}

/// The arguments of `tc` that take all of this from `device`.
pub fn removal(device: &str) -> Vec<String> {
    words(&["qdisc", "del", "dev", device, "root"])
}

fn child(device: &str, layout: Layout, class: Class) -> Vec<String> {
    let parent = format!("{ROOT}:{}", layout.traffic_class(class) + 1);
    words(&["qdisc", "replace", "dev", device, "parent", &parent])
}

/// A command of `tc` with these arguments, in lines as people write it.
pub fn command(arguments: &[String]) -> String {
    let mut text = String::from("tc");
    for (index, word) in arguments.iter().enumerate() {
        let begins = ["num_tc", "base-time", "sched-entry", "fp", "flags"].contains(&&**word)
            || word == "clockid" && !arguments[..index].iter().any(|word| word == "etf");
        text.push_str(if begins { " \\\n    " } else { " " });
        text.push_str(word);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tsn::gates::GateEntry;
    use engine::Instant;

    fn schedule() -> GateSchedule {
        let entry =
            |bits, length| GateEntry { states: GateStates::from_bits(bits), length: Nanos::new(length) };
        let entries = [entry(0x80, 20_000), entry(0xa0, 20_000), entry(0x5f, 60_000)];
        GateSchedule::new(Instant::from_nanos(100_200), entries).unwrap()
    }

    /// The example of tc-taprio(8) for a network card that operates the gates: class 7, then 7 and
    /// 5, then all but 7 and 5, from 200 ns on.
    #[test]
    fn the_manuals_example_comes_out() {
        let list = arguments("eth0", &schedule(), None, Offload::Hardware, Layout::Eight);
        assert_eq!(
            command(&list).replace(" \\\n   ", ""),
            "tc qdisc replace dev eth0 parent root handle 100 taprio num_tc 8 map 0 1 2 3 4 5 6 7 queues 1@0 1@1 \
             1@2 1@3 1@4 1@5 1@6 1@7 base-time 200 cycle-time 100000 sched-entry S 80 20000 sched-entry S a0 20000 \
             sched-entry S 5f 60000 flags 0x2"
        );
        let express = Preemption { express: GateStates::of([7]), additional: 0 };
        let text = command(&arguments("eth0", &schedule(), Some(express), Offload::Software, Layout::Eight));
        assert!(text.contains("fp P P P P P P P E") && text.ends_with("clockid CLOCK_TAI"), "{text}");
        assert!(text.contains("stab overhead 24 taprio"), "{text}");
    }

    #[test]
    fn two_queues_are_enough_for_a_class_and_the_others() {
        let class = Class::new(5).unwrap();
        assert_eq!(Layout::for_queues(1, class), None);
        assert_eq!(Layout::for_queues(8, class), Some(Layout::Eight));
        let layout = Layout::for_queues(4, class).unwrap();
        let list = arguments("eth0", &schedule(), None, Offload::Software, layout);
        let text = command(&list).replace(" \\\n   ", "");
        assert!(text.contains("num_tc 2 map 0 0 0 0 0 1 0 0 queues 1@0 1@1 base-time"), "{text}");
        assert!(
            text.contains("sched-entry S 01 20000 sched-entry S 03 20000 sched-entry S 01 60000"),
            "{text}"
        );
        let text = command(&launches("eth0", layout, class, Nanos::from_micros(200), Offload::Software));
        assert_eq!(text, "tc qdisc replace dev eth0 parent 100:2 etf clockid CLOCK_TAI delta 200000");
    }

    /// 802.1Q-2018, L.3: hiCredit grows during the longest frame of others, loCredit is spent by
    /// the longest own one. 100 Mbit/s of 1 Gbit/s, frames of 1,500 bytes: a tenth, nine tenths.
    #[test]
    fn credits_are_shares_of_the_longest_frame() {
        let (link, rate) = (Rate::from_gigabits(1), Rate::from_megabits(100));
        let list = shaper("eth0", Layout::Eight, Class::new(2).unwrap(), rate, link, 1_500);
        assert_eq!(
            command(&list),
            "tc qdisc replace dev eth0 parent 100:3 cbs idleslope 100000 sendslope -900000 hicredit 150 \
             locredit -1350 offload 0"
        );
    }
}
