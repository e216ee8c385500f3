//! The figures of a block device.

use live::drivers::ublk::{Event, Kind as Asked, Tally, UblkDriver};
use live::reactor::Hirer;
use nvme::subsystem::Subsystem;

use crate::metrics::{Kind, Labels, Page, add_all_namespaces, next_namespaces};

/// Adds the figures of the requests of the block device. Returns false when the loop has ended.
pub(super) fn of_requests<F>(page: &mut Page, hirer: &Hirer<UblkDriver<F>>) -> bool
where
    F: FnMut(Event) + 'static,
{
    let tell = |driver: &mut UblkDriver<F>| {
        (*driver.tally(), driver.under_way(), driver.medium().is_here(), driver.name())
    };
    let Some((tally, under_way, is_here, name)) = hirer.run(tell) else { return false };
    let labels = vec![("device", name)];
    let gauges = [
        ("farlane_block_under_way", "Requests that were not answered yet", under_way as f64),
        ("farlane_block_far_end_here", "Whether the far end can be reached", f64::from(u8::from(is_here))),
    ];
    page.add_rows(&labels, gauges.map(|(name, help, value)| (Kind::Gauge, name, help, value)));
    add_tally(page, &labels, &tally);
    true
}

fn add_tally(page: &mut Page, labels: &Labels, tally: &Tally) {
    for asked in Asked::ALL {
        let (mut labels, one) = (labels.clone(), tally.of(asked));
        labels.push(("request", asked.name().to_owned()));
        let rows = [
            ("farlane_block_requests", "Requests that succeeded", one.operations),
            ("farlane_block_bytes", "Bytes that these were about", one.bytes),
            ("farlane_block_errors", "Requests that failed", one.errors),
        ];
        page.add_rows(&labels, rows.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
        let help = "Time from the kernel's request to the answer";
        page.family(Kind::Histogram, "farlane_block_seconds", help).add_latencies(&labels, &one.latencies);
    }
}

/// Adds the figures of the kernel's initiator, whose subsystem `core` finds in the driver. Returns
/// false when the loop has ended.
pub(super) fn of_target<D: 'static>(
    page: &mut Page,
    hirer: &Hirer<D>,
    core: fn(&D) -> Option<&Subsystem>,
) -> bool {
    let next = |after| {
        hirer.run(move |driver: &mut D| {
            core(driver).map(|core| next_namespaces(core.tallies(), after)).unwrap_or_default()
        })
    };
    add_all_namespaces(page, &Labels::new(), next).is_some()
}
