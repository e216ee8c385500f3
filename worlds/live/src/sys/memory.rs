//! How much memory there is, and how much of it to use for others.

use std::sync::OnceLock;

/// A serving process holds one of this many parts of the memory for others, unless configured
/// otherwise.
const PARTS: u64 = 8;
/// The least and the most bytes that are held.
const BUDGET_MIN: u64 = 64 << 20;
const BUDGET_MAX: u64 = 4 << 30;

/// The system's reports of its memory, and of that of the control group (cgroup) of this process.
fn limits() -> [String; 2] {
    ["/proc/meminfo", "/sys/fs/cgroup/memory.max"]
        .map(|path| std::fs::read_to_string(path).unwrap_or_default())
}

/// The bytes of memory that this process can ever have: all of the machine's, or the limit of its
/// control group. `None` if the system does not say. The first answer stays: a process that is
/// confined later may not ask again.
pub fn total() -> Option<u64> {
    static TOTAL: OnceLock<Option<u64>> = OnceLock::new();
    *TOTAL.get_or_init(|| {
        let [machine, group] = limits();
        total_of(&machine, &group)
    })
}

/// The bytes of memory that new data may take now without others having to leave, as the system
/// estimates it. `None` if the system does not say.
pub fn available() -> Option<u64> {
    let [machine, group] = limits();
    field(&machine, "MemAvailable:").into_iter().chain(group.trim().parse().ok()).min()
}

/// How many bytes a serving process may hold for others by default: an eighth of the memory
/// available to it, at least 64 MiB and at most 4 GiB.
pub fn budget_default() -> u64 {
    let [machine, group] = limits();
    budget_of(&machine, &group)
}

/// Computes [`budget_default`] from the system's reports of itself and of the control group
/// (cgroup) of this process.
fn budget_of(machine: &str, group: &str) -> u64 {
    total_of(machine, group).map_or(BUDGET_MIN, |bytes| (bytes / PARTS).clamp(BUDGET_MIN, BUDGET_MAX))
}

fn total_of(machine: &str, group: &str) -> Option<u64> {
    field(machine, "MemTotal:").into_iter().chain(group.trim().parse().ok()).min()
}

/// The bytes that a line of /proc/meminfo states.
fn field(machine: &str, name: &str) -> Option<u64> {
    let line = machine.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_what_there_is_counts() {
        let machine = |gibibytes: u64| format!("MemTotal:  {} kB\nMemFree: 1 kB\n", gibibytes << 20);
        assert_eq!(budget_of(&machine(8), "max\n"), 1 << 30);
        assert_eq!(budget_of(&machine(8), "4294967296\n"), 512 << 20);
        assert_eq!(budget_of(&machine(1024), ""), BUDGET_MAX);
        assert_eq!(budget_of("MemTotal: much", "max"), BUDGET_MIN);
        assert_eq!(total_of(&machine(8), "1073741824\n"), Some(1 << 30));
        assert_eq!((total_of(&machine(8), "max\n"), total_of("", "")), (Some(8 << 30), None));
        assert!(available() <= total());
        assert!((BUDGET_MIN..=BUDGET_MAX).contains(&budget_default()));
    }
}
