//! The demo's report: figures side by side, and a picture of where the time went.

use distribution::Distribution;
use engine::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use super::figures::{All, Figures};
use super::network::{Carried, Described, Simulated};
use crate::args::Carrier;
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::hops::Hops;
use crate::picture;

/// The result of writing data and reading it back.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Verified {
    /// Whether the data that was read back is the data that was written.
    pub(super) verified: bool,
    /// Bytes that were written.
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// Everything that the demo found out.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) carrier: Carrier,
    pub(super) verified: Verified,
    pub(super) figures: All,
    pub(super) hops: Hops,
    /// Whether the tunnel looks ahead.
    pub(super) lookahead: bool,
    /// The network between the ends, where one was emulated.
    pub(super) over: Option<Over>,
}

/// A network that was emulated between the ends.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) described: Described,
    pub(super) carried: Carried,
    pub(super) simulated: Simulated,
}

/// A row's name, and the figure that it shows.
type Latency = (&'static str, fn(&Figures) -> &Distribution);
type Rate = (&'static str, fn(&Figures) -> f64);

/// Rows that show a latency.
const LATENCIES: [Latency; 3] = [
    ("configuration read, median", |figures| &figures.config_read_ns),
    ("4 KiB read, depth 1, median", |figures| &figures.read_4k_ns),
    ("4 KiB write, depth 1, median", |figures| &figures.write_4k_ns),
];
/// Rows that show a rate.
const RATES: [Rate; 2] = [
    ("4 KiB random reads a second, 32 deep", |figures| figures.iops_qd32),
    ("128 KiB reads, MiB/s", |figures| figures.mib_s_128k),
];

/// A tunnel's figures beside those of the same SSD without it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json<'a> {
    #[serde(flatten)]
    verified: &'a Verified,
    carrier: Carrier,
    /// The tunnel's one-way latency: half of the time that the tunnel adds to a round trip.
    t_tunnel_ns: u64,
    /// Whether the tunnel looks ahead.
    lookahead: bool,
    /// The figures of raw TCP; none where a network is emulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<&'a Figures>,
    direct: &'a Figures,
    tunnel: &'a Figures,
    /// Where the time of a read of 4 KiB goes.
    hops: Vec<picture::Hop>,
    /// The largest error of the alignment of both ends' clocks; none if unknown.
    clock_error_ns: Option<u64>,
    /// The network that was emulated between the ends, if any was.
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<OverJson<'a>>,
}

/// A network that was emulated between the ends.
#[derive(Serialize, JsonSchema)]
struct OverJson<'a> {
    /// The file of the network.
    link: String,
    seed: u64,
    /// The figures that a simulation predicts.
    simulated: &'a Simulated,
    /// How late frames were written, compared with their time in the model.
    late_ns: &'a Distribution,
    frames: u64,
    lost: u64,
    /// Segments that were sent again.
    retransmitted: u64,
}

impl<'a> From<&'a Over> for OverJson<'a> {
    fn from(Over { described, carried, simulated }: &'a Over) -> Self {
        let counters = carried.counters;
        Self {
            link: described.path.display().to_string(),
            seed: described.seed,
            simulated,
            late_ns: &carried.late,
            frames: counters.there.frames + counters.back.frames,
            lost: counters.there.lost + counters.back.lost,
            retransmitted: counters.retransmitted,
        }
    }
}

impl Report {
    pub(super) fn print(&self, json: bool) -> Result<(), Error> {
        if json {
            print_json(&Json {
                verified: &self.verified,
                carrier: self.carrier,
                t_tunnel_ns: self.t_tunnel().get(),
                lookahead: self.lookahead,
                floor: self.figures.floor.as_ref(),
                direct: &self.figures.direct,
                tunnel: &self.figures.tunnel,
                hops: self.hops.pictured(),
                clock_error_ns: self.hops.clock_error.map(Nanos::get),
                over: self.over.as_ref().map(OverJson::from),
            })?;
        } else {
            print(&self.text())?;
        }
        match self.verified.verified {
            true => Ok(()),
            false => Err(Error::Corrupt("the digests differ".to_owned())),
        }
    }

    /// The tunnel's one-way latency, defined as in publications on long-range PCIe: half of the
    /// time that the tunnel adds to a round trip.
    fn t_tunnel(&self) -> Nanos {
        let [direct, tunnel] =
            [&self.figures.direct, &self.figures.tunnel].map(|subject| subject.config_read_ns.median());
        tunnel.saturating_sub(direct) / 2
    }

    fn text(&self) -> String {
        let mut text = match (&self.figures.floor, &self.over) {
            (_, Some(over)) => self.over_text(over),
            (Some(floor), None) => self.floor_text(floor),
            (None, None) => String::new(),
        };
        text.push_str(&format!(
            "\nOne way through the tunnel: T_tunnel = (RTT through - RTT direct) / 2 = {}\n",
            self.t_tunnel()
        ));
        text.push_str(match self.lookahead {
            true => "Lookahead: entries and data went along with their doorbells (--no-lookahead shows it without).\n",
            false => "Without lookahead: the far controller fetched entries and data, each when it wanted it.\n",
        });
        if !self.hops.times.is_empty() {
            let error = self.hops.clock_error.map(|error| format!(", clocks aligned to +/- {error}"));
            // With lookahead there would be no hop between the doorbell and the data.
            let without = if self.lookahead { " without lookahead" } else { "" };
            text.push_str(&format!(
                "\nWhere the time of a 4 KiB read goes{without} (medians{}):\n\n{}",
                error.unwrap_or_default(),
                picture::draw(&self.hops.pictured())
            ));
        }
        text
    }

    /// The figures beside those of raw TCP.
    fn floor_text(&self, floor: &Figures) -> String {
        let All { direct, tunnel, .. } = &self.figures;
        let mut text =
            format!("{:<34}{:>14}{:>14}{:>14}{:>12}\n", "", "raw TCP", "direct", "tunnel", "tunnel/TCP");
        for (name, of) in LATENCIES {
            for (label, quantile) in [(name, 0.5), ("  99th percentile", 0.99)] {
                let [floor, direct, tunnel] =
                    [floor, direct, tunnel].map(|figures| of(figures).quantile(quantile));
                text.push_str(&format!(
                    "{label:<34}{:>14}{:>14}{:>14}{:>11.2}x\n",
                    floor.to_string(),
                    direct.to_string(),
                    tunnel.to_string(),
                    ratio(tunnel, floor)
                ));
            }
        }
        for (name, of) in RATES {
            let [floor, direct, tunnel] = [floor, direct, tunnel].map(of);
            text.push_str(&format!(
                "{name:<34}{floor:>14.0}{direct:>14.0}{tunnel:>14.0}{:>11.2}x\n",
                tunnel / floor
            ));
        }
        text.push_str(&format!(
            "\nThe floor is raw TCP between two spinning processes: the round trips of each operation with its sizes,\n\
             or a stream. The SSD that is measured keeps its bytes in memory. {} samples a latency or more.\n",
            self.fewest_samples(),
        ));
        text
    }

    /// The figures beside those of the simulation.
    fn over_text(&self, over: &Over) -> String {
        let All { direct, tunnel, .. } = &self.figures;
        let Over { described, carried, simulated } = over;
        let mut text = format!("{:<38}{:>14}{:>14}{:>14}\n", "", "direct", "simulated", "emulated");
        let simulated = [&simulated.config_read_ns, &simulated.read_4k_ns, &simulated.write_4k_ns];
        for ((name, of), simulated) in LATENCIES.into_iter().zip(simulated) {
            for (label, quantile) in [(name, 0.5), ("  99th percentile", 0.99)] {
                let row =
                    [of(direct), simulated, of(tunnel)].map(|times| times.quantile(quantile).to_string());
                text.push_str(&format!("{label:<38}{:>14}{:>14}{:>14}\n", row[0], row[1], row[2]));
            }
        }
        for (name, of) in RATES {
            text.push_str(&format!("{name:<38}{:>14.0}{:>14}{:>14.0}\n", of(direct), "", of(tunnel)));
        }
        let counters = carried.counters;
        text.push_str(&format!(
            "\nEmulated: over the network of {}, between processes of this machine, with an SSD in memory.\n\
             Simulated: the same network between two ends in hardware, with the SSD of the file or a Samsung 970 Pro.\n\
             {} frames, {} lost, {} segments sent again. Written after their time in the model: p50 {}, p99 {}.\n",
            described.path.display(),
            counters.there.frames + counters.back.frames,
            counters.there.lost + counters.back.lost,
            counters.retransmitted,
            carried.late.median(),
            carried.late.quantile(0.99),
        ));
        text
    }

    fn fewest_samples(&self) -> u64 {
        let All { floor, direct, tunnel, .. } = &self.figures;
        floor
            .iter()
            .chain([direct, tunnel])
            .flat_map(|figures| [&figures.config_read_ns, &figures.read_4k_ns, &figures.write_4k_ns])
            .map(Distribution::count)
            .min()
            .unwrap_or(0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio(one: Nanos, other: Nanos) -> f64 {
    one.get() as f64 / other.get().max(1) as f64
}
