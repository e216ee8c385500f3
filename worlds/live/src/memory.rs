//! How much memory there is.

/// Of this, a process that serves holds so many parts for others, unless it is told otherwise.
const PARTS: u64 = 8;
/// What is held at least, and at most.
const BUDGET_MIN: u64 = 64 << 20;
const BUDGET_MAX: u64 = 4 << 30;

/// What a process that serves may hold for others, in bytes: an eighth of the memory that there is for it, at least 64 MiB, at
/// most 4 GiB.
pub fn budget_default() -> u64 {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    budget_of(&read("/proc/meminfo"), &read("/sys/fs/cgroup/memory.max"))
}

/// The same, of what the system says of itself and of the group of processes (cgroup) that this one is of.
fn budget_of(machine: &str, group: &str) -> u64 {
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|line| line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok());
    let machine = kibibytes.map(|kibibytes| kibibytes.saturating_mul(1024));
    let memory = machine.into_iter().chain(group.trim().parse().ok()).min();
    memory.map_or(BUDGET_MIN, |bytes| (bytes / PARTS).clamp(BUDGET_MIN, BUDGET_MAX))
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
        assert!((BUDGET_MIN..=BUDGET_MAX).contains(&budget_default()));
    }
}
