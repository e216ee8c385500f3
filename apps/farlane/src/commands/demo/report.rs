//! What the demo tells: figures side by side, and a picture of where the time went.

use engine::Nanos;
use machine::near::Hop;
use serde::Serialize;

use super::measure::{All, Figures, Hops};
use crate::commands::{print, print_json};
use crate::distribution::Distribution;
use crate::error::Error;
use crate::picture;

/// What was written and read back.
#[derive(Debug, Serialize)]
pub(super) struct Verified {
    pub(super) verified: bool,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// Everything.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) verified: Verified,
    pub(super) figures: All,
    pub(super) hops: Hops,
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    verified: &'a Verified,
    t_tunnel_ns: u64,
    floor: &'a Figures,
    direct: &'a Figures,
    tunnel: &'a Figures,
    hops: Vec<picture::Hop>,
    clock_error_ns: Option<u64>,
}

impl Report {
    pub(super) fn print(&self, json: bool) -> Result<(), Error> {
        if json {
            print_json(&Json {
                verified: &self.verified,
                t_tunnel_ns: self.t_tunnel().get(),
                floor: &self.figures.floor,
                direct: &self.figures.direct,
                tunnel: &self.figures.tunnel,
                hops: self.hops(),
                clock_error_ns: self.hops.clock_error.map(Nanos::get),
            })?;
        } else {
            print(&self.text())?;
        }
        match self.verified.verified {
            true => Ok(()),
            false => Err(Error::Corrupt("the digests differ".to_owned())),
        }
    }

    /// One-way tunnel latency, as published for long-range PCIe: half of what the tunnel adds to a round trip.
    fn t_tunnel(&self) -> Nanos {
        let [direct, tunnel] =
            [&self.figures.direct, &self.figures.tunnel].map(|subject| subject.config_read_ns.median());
        tunnel.saturating_sub(direct) / 2
    }

    fn hops(&self) -> Vec<picture::Hop> {
        let describe = |(hop, length): &(Hop, Nanos)| {
            let (place, name) = match hop {
                Hop::Issue => ("near", "command queued, doorbell sent"),
                Hop::DoorbellDown => ("tunnel", "doorbell goes down"),
                Hop::Dispatch => ("far", "controller asks for the command"),
                Hop::FetchUp => ("tunnel", "its read goes up"),
                Hop::HostMemory => ("near", "host memory answers"),
                Hop::EntryDown => ("tunnel", "the command goes down"),
                Hop::Controller => ("far", "controller and medium"),
                Hop::DataUp => ("tunnel", "data and completion go up"),
                Hop::Completion => ("near", "completion is seen"),
            };
            picture::Hop { place, name, length: *length }
        };
        self.hops.medians.iter().map(describe).collect()
    }

    fn text(&self) -> String {
        let All { floor, direct, tunnel, .. } = &self.figures;
        let mut text =
            format!("{:<34}{:>14}{:>14}{:>14}{:>12}\n", "", "raw TCP", "direct", "tunnel", "tunnel/TCP");
        for (name, of) in [
            (
                "configuration read, median",
                (|figures| &figures.config_read_ns) as fn(&Figures) -> &Distribution,
            ),
            ("4 KiB read, depth 1, median", |figures| &figures.read_4k_ns),
            ("4 KiB write, depth 1, median", |figures| &figures.write_4k_ns),
        ] {
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
        for (name, of) in [
            ("4 KiB random reads a second, 32 deep", (|figures| figures.iops_qd32) as fn(&Figures) -> f64),
            ("128 KiB reads, MiB/s", |figures| figures.mib_s_128k),
        ] {
            let [floor, direct, tunnel] = [floor, direct, tunnel].map(of);
            text.push_str(&format!(
                "{name:<34}{floor:>14.0}{direct:>14.0}{tunnel:>14.0}{:>11.2}x\n",
                tunnel / floor
            ));
        }
        text.push_str(&format!(
            "\nThe floor is raw TCP between two spinning processes: the round trips of each operation with its sizes,\n\
             or a stream. The SSD that is measured keeps its bytes in memory. {} samples a latency or more.\n\
             \nOne way through the tunnel: T_tunnel = (RTT through - RTT direct) / 2 = {}\n",
            self.fewest_samples(),
            self.t_tunnel()
        ));
        if !self.hops.medians.is_empty() {
            let error = self.hops.clock_error.map(|error| format!(", clocks aligned to +/- {error}"));
            text.push_str(&format!(
                "\nWhere the time of a 4 KiB read goes (medians{}):\n\n{}",
                error.unwrap_or_default(),
                picture::draw(&self.hops())
            ));
        }
        text
    }

    fn fewest_samples(&self) -> u64 {
        let All { floor, direct, tunnel, .. } = &self.figures;
        [floor, direct, tunnel]
            .iter()
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
