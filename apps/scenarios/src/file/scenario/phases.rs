//! Operations that meet gates (802.1Qbv) at a few phases of their cycle only. Their latencies are
//! then not those of operations that begin at any time.

use engine::Nanos;

use super::{Scenario, Workload};
use crate::test_bench::{Source, Task};

/// The fewest phases of a cycle that stand for all of it.
const PHASES_MIN: u64 = 16;

impl Scenario {
    /// Reasons why the results of a task or a workload mean less than they seem to, each in a
    /// sentence.
    pub fn warnings(&self) -> Vec<String> {
        let cycles = self.link.as_ref().map(super::Link::gate_cycles).unwrap_or_default();
        let Some(longest) = cycles.iter().copied().max() else { return Vec::new() };
        let tasks = self.tasks.iter().filter_map(|(name, task)| of_task(name, *task, longest));
        let workloads = self.workloads.iter().filter_map(|workload| of_workload(workload, &cycles, longest));
        tasks.chain(workloads).collect()
    }
}

/// A task's next operation begins after a gap that varies by its own length.
fn of_task(name: &str, task: Task, cycle: Nanos) -> Option<String> {
    let (Task::ConfigReads { gap, .. } | Task::Commands { gap, .. }) = task;
    (gap < cycle).then(|| {
        format!(
            "task '{name}' is a closed loop: operations begin {gap} after the end of another, on average, and so \
             meet the gates at the same phase of their cycle of {cycle} each time. Its latencies are those of \
             this phase; gap = \"{}ns\" or more spreads operations over the cycle",
            cycle.get()
        )
    })
}

/// A workload's commands begin with the end of another one, or at a rate.
fn of_workload(workload: &Workload, cycles: &[Nanos], longest: Nanos) -> Option<String> {
    let name = &workload.name;
    let Source::Mixed(mixed) = &workload.jobs.first()?.source else { return None };
    let Some(interval) = mixed.interval else {
        return Some(format!(
            "workload '{name}' is a closed loop: a command begins when another one ends, and so meets the gates \
             at the same phases of their cycle of {longest} each time. Its latencies are those of these phases; \
             rate = N begins commands at all phases, if the interval and the cycle have no common period"
        ));
    };
    let few = cycles.iter().find(|cycle| phases(interval, **cycle) < PHASES_MIN)?;
    Some(format!(
        "workload '{name}' begins a command each {interval}, and so at {} of the phases of the gates' cycle of \
         {few} only. Its latencies are those of these phases; expected a rate whose interval and the cycle have \
         no common period",
        phases(interval, *few)
    ))
}

/// At how many phases of a cycle something happens that happens each `interval`.
fn phases(interval: Nanos, cycle: Nanos) -> u64 {
    let (mut one, mut other) = (interval.get(), cycle.get());
    while other > 0 {
        (one, other) = (other, one % other);
    }
    cycle.get() / one.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "[link]\nclass = 7\n[[link.hop]]\nkind = \"ethernet\"\nrate = \"1Gbit/s\"\n[link.hop.tsn]\n\
        gates = [{ open = [7], time = \"100us\" }, { open = [0, 1, 2, 3, 4, 5, 6], time = \"400us\" }]\n";

    fn warnings(text: &str) -> Vec<String> {
        Scenario::parse(text).unwrap().warnings()
    }

    #[test]
    fn a_closed_loop_is_locked_to_gates() {
        let closed = warnings(&format!("{LINK}[[workload]]\nname = \"w\"\nrw = \"randread\"\niodepth = 4\n"));
        assert_eq!(closed.len(), 1, "{closed:?}");
        assert!(closed[0].contains("workload 'w' is a closed loop"), "{closed:?}");
        assert!(closed[0].contains("500 µs"), "{closed:?}");
        let task = warnings(&format!("{LINK}[[task]]\nkind = \"read\"\n[[task]]\nkind = \"config-read\"\n"));
        assert_eq!(task.len(), 2, "{task:?}");
        assert!(task[1].contains("task 'config-read' is a closed loop"), "{task:?}");
        assert_eq!(warnings(&format!("{LINK}[[task]]\nkind = \"read\"\ngap = \"500us\"\n")), [""; 0]);
    }

    #[test]
    fn a_rate_that_shares_a_period_with_gates_sees_few_phases() {
        for (rate, expected) in
            [(2_000, Some("at 1 of")), (4_000, Some("at 2 of")), (1_000, Some("at 1 of")), (1_789, None)]
        {
            let reported = warnings(&format!("{LINK}[[workload]]\nrw = \"randread\"\nrate = {rate}\n"));
            match expected {
                Some(words) => {
                    assert!(reported.len() == 1 && reported[0].contains(words), "{rate}: {reported:?}")
                }
                None => assert_eq!(reported, [""; 0], "{rate}"),
            }
        }
        assert_eq!(phases(Nanos::from_micros(125), Nanos::from_micros(500)), 4);
        assert_eq!(phases(Nanos::new(1), Nanos::from_micros(500)), 500_000);
    }

    #[test]
    fn gates_that_are_always_open_lock_nothing() {
        let open = LINK.replace("[0, 1, 2, 3, 4, 5, 6]", "[0, 7]");
        let other = LINK.replace("class = 7", "class = 5");
        let workload = "[[workload]]\nrw = \"randread\"\n";
        assert_eq!(warnings(&format!("{open}{workload}")), [""; 0]);
        assert_eq!(warnings(&format!("{other}{workload}")).len(), 1);
        assert_eq!(warnings(&format!("[link]\nlatency = \"1ms\"\n{workload}")), [""; 0]);
    }

    /// A closed loop at a depth of 1 takes a cycle for each command, regardless of the SSD's part
    /// of it.
    #[test]
    fn what_is_warned_of_happens() {
        let text = format!("{LINK}[[workload]]\nrw = \"randread\"\ncount = 50\n");
        let played = Scenario::parse(&text).unwrap().play(1, false).unwrap();
        let times = &played.tasks[0].outcome.times;
        let cycles = times.iter().skip(1).filter(|time| time.get().is_multiple_of(500_000));
        assert!(cycles.count() > 0, "{times:?}");
    }
}
