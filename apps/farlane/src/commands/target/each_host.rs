//! The hosts of a core, sent to another thread in jobs so small that they hold up no command.

use assemblies::target::AssociationStatus;
use live::reactor::JobSender;
use nvme_fabrics::target::AssociationKey;

use super::core::Core;

/// The most hosts of one job, which then takes a loop less than 100 µs. The status of a host names
/// its queues, and the kernel is asked for each of them.
const PER_JOB: usize = 32;

/// Calls `each` with every host of a core, and with the result of `also`, which runs on the core's
/// own thread. `None` when the core has ended.
pub(super) fn each_host<T: Send + 'static>(
    core: &JobSender<Core>,
    also: impl Fn(&Core, &AssociationStatus) -> T + Copy + Send + 'static,
    mut each: impl FnMut(AssociationStatus, T),
) -> Option<()> {
    let mut from = AssociationKey(0);
    loop {
        let next = core.run(move |core| {
            let next = core.driver.target().status_from(from, PER_JOB);
            next.into_iter().map(|one| (also(core, &one), one)).collect::<Vec<_>>()
        })?;
        let Some((_, last)) = next.last() else { return Some(()) };
        from = AssociationKey(last.key.0 + 1);
        for (found, one) in next {
            each(one, found);
        }
    }
}
