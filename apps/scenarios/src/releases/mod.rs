//! NVMe over 5G, release by release: scenarios whose cells follow the releases of 3GPP, each with
//! and without remedies, and the page that compares them.
//!
//! The scenarios are files of `scenarios/releases`. A comment behind each value names its source.
//! [`page`] measures all of them; the same [`Effort`] gives the same page.

mod estimate;
mod measure;
mod page;
#[cfg(test)]
mod tests;

use toml::{Table, Value};

use crate::file::scenario::Scenario;

pub use estimate::Estimate;
pub use page::{fingerprint, page};

/// A network of a release.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// The name of the scenario's file, without its ending.
    pub name: &'static str,
    /// The scenario.
    text: &'static str,
}

macro_rules! release {
    ($name:literal) => {
        Release {
            name: $name,
            text: include_str!(concat!("../../../../scenarios/releases/", $name, ".toml")),
        }
    };
}

/// All networks, from the oldest to the newest release.
pub static RELEASES: [Release; 6] = [
    release!("campus"),
    release!("rel15-embb"),
    release!("rel15-urllc"),
    release!("rel16-tdd"),
    release!("rel16-fdd"),
    release!("rel17-tdd"),
];

/// A value of a network, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The key and the value, as the scenario has them.
    pub setting: &'static str,
    /// The source: specification and clause, or an assumption with its range.
    pub source: &'static str,
}

impl Release {
    /// The sentence at the beginning of the scenario.
    pub fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("# ")
    }

    /// The values of the network, with their sources.
    pub fn elements(&self) -> Vec<Element> {
        let network = self.text.split("[[task]]").next().unwrap_or_default();
        let lines = network.lines().filter_map(|line| line.split_once(" # "));
        lines.map(|(setting, source)| Element { setting: setting.trim(), source: source.trim() }).collect()
    }

    /// The scenario with `remedy`, with these tasks in the place of its own, and with the host's
    /// `timeout` for completions (the longest, unless given).
    fn scenario(&self, remedy: Remedy, tasks: Vec<Table>, timeout: &str) -> Result<Scenario, String> {
        let mut file: Table = self.text.parse().map_err(|error| format!("{}: {error}", self.name))?;
        let of = |key: &str, value: Value| Value::Table(Table::from_iter([(key.to_owned(), value)]));
        // The simulated medium keeps what was written. A small one saves memory; no time changes.
        file.insert("ssd".into(), of("capacity", "64MiB".into()));
        file.insert("host".into(), of("completion_timeout", timeout.into()));
        file.insert("switch".into(), of("lookahead", remedy.lookahead.into()));
        if let Some(Value::Table(link)) = file.get_mut("link") {
            if remedy.short_timeout {
                link.insert("stack".into(), of("rto_floor", "5ms".into()));
            }
            if remedy.two_paths {
                let hops = link.remove("hop").unwrap_or(Value::Array(Vec::new()));
                let way = of("hop", hops);
                let both = [
                    ("kind".to_owned(), Value::from("replicated")),
                    ("way".to_owned(), Value::Array(vec![way.clone(), way])),
                ];
                link.insert("hop".into(), Value::Array(vec![Value::Table(both.into_iter().collect())]));
            }
        }
        file.insert("task".into(), Value::Array(tasks.into_iter().map(Value::Table).collect()));
        let text = toml::to_string(&file).map_err(|error| error.to_string())?;
        Scenario::parse(&text).map_err(|error| format!("{} with {}: {error}", self.name, remedy.name))
    }
}

/// Means against slow or late operations.
#[derive(Clone, Copy, Debug)]
pub struct Remedy {
    /// The name in the page's tables.
    pub name: &'static str,
    /// Whether the switch sends host memory ahead.
    lookahead: bool,
    /// Whether TCP's timeout is 5 ms at least in the place of 200 ms.
    short_timeout: bool,
    /// Whether each frame takes two networks, and the first copy counts.
    two_paths: bool,
}

impl Remedy {
    const NONE: Self = Self { name: "none", lookahead: false, short_timeout: false, two_paths: false };
}

/// All remedies, alone and together.
pub static REMEDIES: [Remedy; 5] = [
    Remedy::NONE,
    Remedy { name: "RTO floor", short_timeout: true, ..Remedy::NONE },
    Remedy { name: "lookahead", lookahead: true, ..Remedy::NONE },
    Remedy { name: "two paths", two_paths: true, ..Remedy::NONE },
    Remedy { name: "all three", lookahead: true, short_timeout: true, two_paths: true },
];

/// The number of operations behind a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Number of runs of each scenario, with the seeds 1, 2 and so on. Two at least.
    pub replications: u64,
    /// Number of register reads of each run.
    pub registers: u64,
    /// Number of 4 KiB reads of each run, and of 4 KiB writes.
    pub commands: u64,
    /// Number of MiB of the 1 GiB file that each run writes.
    pub file_mib: u64,
}

impl Effort {
    /// The effort behind the page in `apps/scenarios/releases.md`.
    pub const FULL: Self = Self { replications: 10, registers: 100_000, commands: 10_000, file_mib: 8 };
}
