//! The options that daemons have in common.

use clap::Args;
use daemon::Settings;

use super::{Control, MetricsArgs, Sandbox, Spin};

/// The options of a daemon for its control socket, its figures, its rights and its processor.
#[derive(Debug, Args)]
pub(crate) struct DaemonOptions {
    #[command(flatten)]
    pub(crate) control: Control,
    #[command(flatten)]
    pub(crate) watch: MetricsArgs,
    #[command(flatten)]
    pub(crate) sandbox: Sandbox,
    #[command(flatten)]
    pub(crate) spin: Spin,
}

impl DaemonOptions {
    /// The settings of a daemon that is about to open `opened` descriptors for its offer; too low a
    /// limit is reported at the start, not to clients.
    pub(crate) fn settings(&self, opened: usize) -> Settings {
        let Self { control, watch, sandbox, spin } = self;
        daemon_settings(spin, opened, sandbox, control, watch)
    }
}

/// As [`DaemonOptions::settings`], where the help has other options between these.
pub(crate) fn daemon_settings(
    spin: &Spin,
    opened: usize,
    sandbox: &Sandbox,
    control: &Control,
    watch: &MetricsArgs,
) -> Settings {
    Settings {
        cpu: spin.cpu,
        spin: spin.spin.into(),
        descriptors: opened as u64,
        confinement: sandbox.confinement(),
        control: control.control.clone(),
        metrics: watch.metrics,
    }
}
