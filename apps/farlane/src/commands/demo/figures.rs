//! The subjects of the demo's measurement, and their figures.

use std::net::SocketAddr;

use distribution::Distribution;
use nvme::host::Namespace;
use schemars::JsonSchema;
use serde::Serialize;

use crate::session::Session;

/// The subjects of the measurement: two sessions, and this machine's own TCP.
pub(super) struct Subjects<'a> {
    pub(super) tunnel: &'a mut Session,
    pub(super) tunnel_namespace: Namespace,
    pub(super) direct: &'a mut Session,
    pub(super) direct_namespace: Namespace,
    /// Address of the floor server. None where a network is emulated: this machine's own TCP says
    /// nothing of it.
    pub(super) floor: Option<SocketAddr>,
}

/// One subject's figures.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Figures {
    pub(super) config_read_ns: Distribution,
    pub(super) read_4k_ns: Distribution,
    pub(super) write_4k_ns: Distribution,
    /// Random reads of 4 KiB per second, 32 at once.
    pub(super) iops_qd32: f64,
    /// MiB per second of reads of 128 KiB.
    pub(super) mib_s_128k: f64,
}

/// All subjects' figures.
#[derive(Clone, Debug)]
pub(super) struct All {
    pub(super) floor: Option<Figures>,
    pub(super) direct: Figures,
    pub(super) tunnel: Figures,
}

/// One subject's slices, kind by kind.
#[derive(Default)]
pub(super) struct Slices {
    pub(super) config_read: Vec<Distribution>,
    pub(super) read: Vec<Distribution>,
    pub(super) write: Vec<Distribution>,
    pub(super) iops: Vec<f64>,
    pub(super) mib_s: Vec<f64>,
}

impl Slices {
    /// The figures of all slices together.
    pub(super) fn figures(self) -> Figures {
        let merge = |slices: Vec<Distribution>| {
            slices.into_iter().fold(Distribution::new(), |mut all, slice| {
                all.merge(&slice);
                all
            })
        };
        Figures {
            config_read_ns: merge(self.config_read),
            read_4k_ns: merge(self.read),
            write_4k_ns: merge(self.write),
            iops_qd32: median(self.iops),
            mib_s_128k: median(self.mib_s),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
