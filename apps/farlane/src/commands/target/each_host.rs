//! The hosts of a core, sent to another thread in jobs so small that they hold up no command.

use assemblies::target::{AssociationStatus, ConnectionStatus, GuestStatus};
use live::reactor::JobSender;
use live::sys::tcp_info::TcpInfo;
use nvme_fabrics::target::AssociationKey;

use super::core::Core;

/// The most hosts of one job, which then takes a loop less than 100 µs. The status of a host names
/// its queues, and the kernel is asked for each of them.
const PER_JOB: usize = 32;

/// Calls `each` with every host of a core, and with the result of `also`, which runs on the core's
/// own thread. A core that ends has no further hosts.
pub(super) fn each_host<T: Send + 'static>(
    core: &JobSender<Core>,
    also: impl Fn(&Core, &AssociationStatus) -> T + Copy + Send + 'static,
    mut each: impl FnMut(AssociationStatus, T),
) {
    let mut from = AssociationKey(0);
    let ask = |from| {
        core.run(move |core| {
            let next = core.driver.target().status_from(from, PER_JOB);
            next.into_iter().map(|one| (also(core, &one), one)).collect::<Vec<_>>()
        })
    };
    while let Some(next) = ask(from) {
        let Some((_, last)) = next.last() else { return };
        from = AssociationKey(last.key.0 + 1);
        for (found, one) in next {
            each(one, found);
        }
    }
}

/// The queues that a host has on a core that is not the home of its subsystem.
pub(super) struct Guest {
    /// NQN of the subsystem, while it is offered.
    pub(super) subsystem: Option<String>,
    /// Identifier of the controller.
    pub(super) controller: u16,
    /// Bytes held for the host.
    pub(super) memory: u64,
    pub(super) queues: Vec<ConnectionStatus>,
    pub(super) tcp: Vec<TcpInfo>,
}

impl Guest {
    fn of(core: &Core, guest: GuestStatus) -> Self {
        let target = core.driver.target();
        let of = |connection: &ConnectionStatus| core.driver.tcp_info(connection.id);
        Self {
            subsystem: target.offered(guest.subsystem).map(|one| one.name.to_string()),
            controller: guest.controller.0,
            memory: guest.memory,
            tcp: guest.connections.iter().filter_map(of).collect(),
            queues: guest.connections,
        }
    }
}

/// Calls `each` with the queues of each host on a core that is not the home of their subsystem.
/// A core that ends has no further queues.
pub(super) fn each_guest(core: &JobSender<Core>, mut each: impl FnMut(Guest)) {
    let mut from = Some(0);
    let ask = |place| {
        core.run(move |core| {
            let (guests, next) = core.driver.target().guests_from(place, PER_JOB);
            (guests.into_iter().map(|guest| Guest::of(core, guest)).collect::<Vec<_>>(), next)
        })
    };
    while let Some((guests, next)) = from.and_then(ask) {
        guests.into_iter().for_each(&mut each);
        from = next;
    }
}
