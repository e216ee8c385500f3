//! A plan as a file: the output of `farlane model tsn plan --json`.

use std::path::{Path, PathBuf};

use engine::{Instant, Nanos};
use network_models::tsn::gates::{GateEntry, GateSchedule, GateStates};
use network_models::tsn::launch::Windows;
use network_models::tsn::preemption::Preemption;
use network_models::tsn::taprio::Offload;
use network_models::{Class, Rate};
use serde::Deserialize;

use crate::error::{Error, TsnError};
use crate::whole_file;

/// The most bytes of a file: a plan of the most hops has far fewer.
const BYTES_MAX: u64 = 16 << 20;

/// The used parts of the file.
#[derive(Debug, Deserialize)]
struct Table {
    cycle: u64,
    rate: u64,
    class: u8,
    frame_max: u32,
    #[serde(default)]
    clock_error: u64,
    #[serde(default)]
    preemption: bool,
    #[serde(default)]
    software: bool,
    hops: Vec<Hop>,
}

#[derive(Debug, Deserialize)]
struct Hop {
    base_time: u64,
    entries: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    gate_mask: u8,
    interval: u64,
}

/// A plan that was read from a file.
#[derive(Clone, Debug)]
pub(crate) struct PlanFile {
    path: PathBuf,
    /// The rate of every link.
    pub(crate) rate: Rate,
    /// The class of the flow.
    pub(crate) class: Class,
    /// The longest frame in bytes, with header and check sequence.
    pub(crate) frame_max: u32,
    pub(crate) preemption: Option<Preemption>,
    pub(crate) offload: Offload,
    /// How far off each clock may be, either way.
    clock_error: Nanos,
    schedules: Vec<GateSchedule>,
}

impl PlanFile {
    /// Reads the plan at `path`.
    ///
    /// # Errors
    /// When the file can't be read, or is no plan.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(path, &whole_file::read(path, BYTES_MAX)?)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let wrong = |why: String| wrong(path, why);
        let table: Table = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let class = Class::new(table.class);
        let class = class.ok_or_else(|| wrong(format!("class {}: expected 0 to 7", table.class)))?;
        if table.rate == 0 {
            return Err(wrong("rate 0: expected bits per second".to_owned()));
        }
        let mut schedules = Vec::new();
        for (hop, number) in table.hops.iter().zip(1..) {
            let entries = hop.entries.iter().map(|entry| GateEntry {
                states: GateStates::from_bits(entry.gate_mask),
                length: Nanos::new(entry.interval),
            });
            let schedule = GateSchedule::new(Instant::from_nanos(hop.base_time), entries);
            let schedule = schedule.map_err(|error| wrong(format!("hop {number}: {error}")))?;
            if schedule.cycle().get() != table.cycle {
                let (sum, cycle) = (schedule.cycle(), Nanos::new(table.cycle));
                return Err(wrong(format!("hop {number}: the entries take {sum}, and the cycle {cycle}")));
            }
            schedules.push(schedule);
        }
        let express = GateStates::of([class.index()]);
        Ok(Self {
            path: path.to_owned(),
            rate: Rate::new(table.rate),
            class,
            frame_max: table.frame_max,
            preemption: table.preemption.then_some(Preemption { express, additional: 0 }),
            offload: if table.software { Offload::Software } else { Offload::Hardware },
            clock_error: Nanos::new(table.clock_error),
            schedules,
        })
    }

    /// The schedule of hop `number`, from 1.
    ///
    /// # Errors
    /// When the plan has no such hop.
    pub(crate) fn schedule(&self, number: usize) -> Result<&GateSchedule, Error> {
        let found = number.checked_sub(1).and_then(|index| self.schedules.get(index));
        let count = self.schedules.len();
        found.ok_or_else(|| wrong(&self.path, format!("there is no hop {number}; it has {count}")))
    }

    /// The windows in which the flow's sender of hop `number` sends: the rest of those of the gates
    /// when its clock and theirs are wrong in opposite ways.
    ///
    /// # Errors
    /// When the plan has no such hop, or the flow no window there.
    pub(crate) fn windows(&self, number: usize) -> Result<Windows, Error> {
        let schedule = self.schedule(number)?;
        let (opens, length) = schedule.windows(self.class.index()).first().copied().ok_or_else(|| {
            wrong(&self.path, format!("hop {number}: class {} has no window", self.class.number()))
        })?;
        let (base, length) =
            (schedule.base() + opens + self.clock_error, length.saturating_sub(self.clock_error * 2));
        Ok(Windows { cycle: schedule.cycle(), base, length, rate: self.rate })
    }
}

fn wrong(path: &Path, why: String) -> Error {
    TsnError::NoPlan { path: path.to_owned(), why }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<PlanFile, String> {
        PlanFile::parse(Path::new("plan.json"), text).map_err(|error| error.to_string())
    }

    const PLAN: &str = r#"{"cycle": 1000, "rate": 1000000000, "class": 7, "frame_max": 1518, "hops": [
        {"device": "a", "base_time": 2300, "entries": [
            {"gate_mask": 127, "interval": 800}, {"gate_mask": 128, "interval": 200}]}]}"#;

    #[test]
    fn a_plan_has_windows_for_its_flow() {
        let plan = parsed(PLAN).unwrap();
        let windows = plan.windows(1).unwrap();
        assert_eq!((windows.base.get(), windows.length.get()), (1_100, 200));
        let plan = parsed(&PLAN.replace("\"class\": 7", "\"class\": 7, \"clock_error\": 50")).unwrap();
        let windows = plan.windows(1).unwrap();
        assert_eq!((windows.base.get(), windows.length.get()), (1_150, 100));
        assert!(plan.windows(2).unwrap_err().to_string().contains("no hop 2"));
        assert!(plan.windows(0).unwrap_err().to_string().contains("no hop 0"));
    }

    #[test]
    fn what_is_no_plan_is_said() {
        for (from, to, expected) in [
            ("\"class\": 7", "\"class\": 8", "expected 0 to 7"),
            ("\"rate\": 1000000000", "\"rate\": 0", "bits per second"),
            ("\"cycle\": 1000", "\"cycle\": 999", "the entries take"),
            ("\"interval\": 200", "\"interval\": -1", "line 3"),
            ("\"gate_mask\": 128", "\"gate_mask\": 256", "256"),
            ("\"hops\"", "\"hop\"", "hops"),
        ] {
            let error = parsed(&PLAN.replace(from, to)).unwrap_err();
            assert!(error.contains("plan.json") && error.contains(expected), "{to}: {error}");
        }
    }
}
