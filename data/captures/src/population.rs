//! All commands of a kind together: how long each step took.

use std::collections::BTreeMap;

use distribution::Distribution;
use trace::{Command, Step};

use crate::{Error, Source, each_command, of_kind};

/// One step of the commands that take it.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// How long it took, from the end of the step before it.
    pub times: Distribution,
    /// Packets of all these commands.
    pub packets: u64,
}

/// The commands of one kind.
#[derive(Clone, Debug, Default)]
pub struct Population {
    /// How many there are.
    pub count: u64,
    /// Bytes of data of all these commands.
    pub bytes: u64,
    /// The times until the device posted the completion.
    pub latency: Distribution,
    /// The times until the last packet.
    pub whole: Distribution,
    /// The steps that they take.
    pub steps: BTreeMap<Step, Times>,
}

impl Population {
    /// Adds a command.
    pub fn add(&mut self, command: &Command) {
        self.count += 1;
        self.bytes += command.bytes;
        self.latency.record(command.latency());
        self.whole.record(command.length());
        for (step, length) in command.chain() {
            let of = self.steps.entry(step).or_default();
            of.times.record(length);
            let packets =
                command.hops.iter().filter(|hop| hop.step == step).map(|hop| u64::from(hop.packets));
            of.packets += packets.sum::<u64>();
        }
    }

    /// The share of a step in the time of all commands, from 0 to 1. A step that not all commands
    /// take has its share of all.
    pub fn share(&self, step: Step) -> f64 {
        let whole = self.whole.mean() * self.whole.count() as f64;
        let part = self.steps.get(&step).map_or(0.0, |of| of.times.mean() * of.times.count() as f64);
        if whole > 0.0 { part / whole } else { 0.0 }
    }

    /// Removes from each distribution the values that are further from the mean than three standard
    /// deviations.
    pub fn filter(&mut self) {
        let steps = self.steps.values_mut().map(|of| &mut of.times);
        for times in steps.chain([&mut self.latency, &mut self.whole]) {
            *times = times.within_deviations(3.0);
        }
    }
}

/// The commands of a capture, by the names of their kinds ([`of_kind`]); with `three_sigma` without
/// outliers, as published measurements have them.
///
/// # Errors
/// Those of [`Commands`](crate::Commands).
pub fn populations(from: Source<'_>, three_sigma: bool) -> Result<BTreeMap<String, Population>, Error> {
    let mut kinds = BTreeMap::<String, Population>::new();
    each_command(from, |command| of_kind(&mut kinds, command.kind).add(&command))?;
    if three_sigma {
        kinds.values_mut().for_each(Population::filter);
    }
    Ok(kinds)
}
