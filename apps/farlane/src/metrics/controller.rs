//! The figures of an NVMe controller behind registers.

use nvme::subsystem::Counters;
use nvme_pcie::controller::{Controller, Statistics};

use super::namespaces::add_health;
use daemon::metrics::{Kind, Labels, Page};

/// The state of a controller at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControllerFigures {
    statistics: Statistics,
    counters: Counters,
}

impl ControllerFigures {
    pub(crate) fn of(controller: &Controller) -> Self {
        Self { statistics: controller.statistics(), counters: controller.counters() }
    }

    /// Adds the figures to `page`; `labels` say which controller it is.
    pub(crate) fn add(&self, page: &mut Page, labels: &Labels) {
        let Statistics { commands, fetches, pushed, interrupts, .. } = self.statistics;
        let counters = [
            ("farlane_controller_commands", "Commands that the controller took, of all queues", commands),
            ("farlane_controller_fetches", "Reads of submission queue entries in memory", fetches),
            ("farlane_controller_pushed", "Commands taken from the controller memory buffer", pushed),
            ("farlane_controller_interrupts", "Interrupts that the controller raised", interrupts),
        ];
        page.add_rows(labels, counters.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
        add_health(page, labels, &self.counters);
    }
}
