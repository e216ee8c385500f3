//! Reservations, tested against the specification's table of permitted accesses.

use super::*;

const KEY: [u64; 3] = [0xa, 0xb, 0xc];

/// Three hosts, each with a controller over fabrics: the first two are registered with namespace 1.
fn three() -> (Bench, [ControllerKey; 3]) {
    let mut bench = Bench::new();
    bench.subsystem.remove_controller(bench.now, bench.controller);
    let hosts = [1, 2, 3].map(|id| bench.connect(id));
    for (host, key) in hosts.into_iter().zip(KEY).take(2) {
        bench.of(host).reserve(IoOpcode::ReservationRegister, 0, [0, key], None);
    }
    (bench, hosts)
}

fn reservation(opcode: IoOpcode, cdw10: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: opcode.into(), namespace: NamespaceId(1), cdw10, ..Default::default() }
}

/// The contents of a report: generation, type, and for each registrant the host, the key and
/// whether it holds.
type Report = (u32, u8, Vec<(u8, u64, bool)>);

impl Bench {
    #[track_caller]
    fn reserve(&mut self, opcode: IoOpcode, cdw10: u32, keys: [u64; 2], refused: Option<StatusCode>) {
        self.host_data = keys.into_iter().flat_map(u64::to_le_bytes).collect();
        if opcode == IoOpcode::ReservationRelease {
            self.host_data.truncate(8);
        }
        match refused {
            None => drop(self.succeeds(IO, reservation(opcode, cdw10))),
            Some(code) => self.fails(IO, reservation(opcode, cdw10), code),
        }
    }

    fn acquire(&mut self, kind: u32, key: u64) {
        self.reserve(IoOpcode::ReservationAcquire, kind << 8, [key, 0], None);
    }

    fn report(&mut self) -> Report {
        let entry = reservation(IoOpcode::ReservationReport, 255);
        self.succeeds(IO, SubmissionQueueEntry { cdw11: 1, ..entry });
        let page = self.pushed.clone();
        assert_eq!(page.len(), 1024);
        let registrants = (1..=usize::from(u16_at(&page, 5))).map(|index| {
            let at = &page[index * 64..][..64];
            assert_eq!(u16_at(at, 0), 0xffff);
            (at[16], u64_at(at, 8), at[2] == 1)
        });
        (u32_at(&page, 0), page[4], registrants.collect())
    }
}

#[test]
fn identify_reports_reservations_over_fabrics() {
    let (mut bench, [first, ..]) = three();
    assert_eq!(u16_at(&bench.of(first).identify(1, 0), 520) & 1 << 5, 1 << 5);
    assert_eq!((bench.identify(0, 1)[31], bench.identify(8, 1)[2]), (0xff, 0xff));
    let mut pcie = Bench::new();
    assert_eq!((u16_at(&pcie.identify(1, 0), 520) & 1 << 5, pcie.identify(0, 1)[31]), (0, 0));
    let report = reservation(IoOpcode::ReservationReport, 15);
    pcie.fails(IO, report, StatusCode::InvalidCommandOpcode);
    bench.fails(IO, report, StatusCode::HostIdentifierInconsistentFormat);
}

#[test]
fn each_type_permits_its_commands() {
    // For each type: whether the holder, another registrant and a third host may read and write.
    let table = [
        (1, [(true, true), (true, false), (true, false)]),
        (2, [(true, true), (false, false), (false, false)]),
        (3, [(true, true), (true, true), (true, false)]),
        (4, [(true, true), (true, true), (false, false)]),
        (5, [(true, true), (true, true), (true, false)]),
        (6, [(true, true), (true, true), (false, false)]),
    ];
    for (kind, rights) in table {
        let (mut bench, hosts) = three();
        bench.of(hosts[0]).acquire(kind, KEY[0]);
        for (host, (reads, writes)) in hosts.into_iter().zip(rights) {
            let mut check = |queue, entry, allowed| {
                bench.host_data = vec![0; 512];
                if allowed {
                    bench.of(host).succeeds(queue, entry);
                } else {
                    bench.of(host).fails(queue, entry, StatusCode::ReservationConflict);
                }
            };
            for opcode in [IoOpcode::Read, IoOpcode::Compare, IoOpcode::Verify] {
                check(IO, io(opcode, 1, 0, 1), reads);
            }
            for opcode in [IoOpcode::Write, IoOpcode::WriteZeroes, IoOpcode::Flush] {
                check(IO, io(opcode, 1, 0, 1), writes);
            }
            let dataset = SubmissionQueueEntry { cdw11: 4, ..io(IoOpcode::DatasetManagement, 1, 0, 1) };
            check(IO, dataset, writes);
            let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
            check(ADMIN, format, writes);
            check(IO, io(IoOpcode::Write, 2, 0, 1), true);
            check(
                IO,
                SubmissionQueueEntry {
                    cdw10: 255,
                    cdw11: 1,
                    ..reservation(IoOpcode::ReservationReport, 255)
                },
                true,
            );
        }
    }
}

#[test]
fn registrations_have_keys() {
    use IoOpcode::ReservationRegister as Register;
    let (mut bench, [first, second, third]) = three();
    let conflict = Some(StatusCode::ReservationConflict);
    assert_eq!(bench.of(first).report(), (2, 0, vec![(1, 0xa, false), (2, 0xb, false)]));
    bench.reserve(Register, 0, [0, 0xa], None);
    assert_eq!(bench.report().0, 3, "every registration counts");
    bench.reserve(Register, 0, [0, 0xd], conflict);
    bench.of(third).reserve(Register, 0, [0, 0], Some(StatusCode::InvalidField));
    bench.reserve(Register, 1, [0, 0], conflict);
    bench.reserve(Register, 2, [0xc, 0xd], conflict);
    bench.reserve(Register, 1 | 1 << 3, [0, 0], conflict);
    bench.of(second).reserve(Register, 2, [0xf, 0xd], conflict);
    bench.reserve(Register, 2, [0xb, 0], Some(StatusCode::InvalidField));
    bench.reserve(Register, 2, [0xb, 0xd], None);
    bench.reserve(Register, 2 | 1 << 3, [0xf, 0xe], None);
    assert_eq!(bench.report(), (5, 0, vec![(1, 0xa, false), (2, 0xe, false)]));
    bench.reserve(Register, 1, [0xe, 0], None);
    assert_eq!(bench.report(), (6, 0, vec![(1, 0xa, false)]));
    // With Ignore Existing Key, a host that was not registered can register.
    bench.of(third).reserve(Register, 2 | 1 << 3, [0, 0xc], None);
    assert_eq!(bench.report(), (7, 0, vec![(1, 0xa, false), (3, 0xc, false)]));
    bench.reserve(Register, 1, [0xc, 0], None);
    bench.reserve(Register, 3, [0, 1], Some(StatusCode::InvalidField));
    bench.reserve(Register, 1 << 30, [0, 1], Some(StatusCode::InvalidField));
    // When its holder unregisters, the reservation ends.
    bench.of(first).acquire(1, 0xa);
    assert_eq!(bench.report(), (8, 1, vec![(1, 0xa, true)]));
    bench.reserve(Register, 1 | 1 << 3, [0, 0], None);
    assert_eq!(bench.report(), (9, 0, vec![]));
}

#[test]
fn reservations_are_acquired_and_released() {
    use IoOpcode::{ReservationAcquire as Acquire, ReservationRelease as Release};
    let (mut bench, [first, second, third]) = three();
    let (conflict, invalid) = (Some(StatusCode::ReservationConflict), Some(StatusCode::InvalidField));
    bench.of(third).reserve(Acquire, 1 << 8, [0xc, 0], conflict);
    bench.of(first).reserve(Acquire, 1 << 8, [0xb, 0], conflict);
    bench.reserve(Acquire, 0, [0xa, 0], invalid);
    bench.reserve(Acquire, 7 << 8, [0xa, 0], invalid);
    bench.reserve(Acquire, 1 << 8 | 1 << 3, [0xa, 0], invalid);
    bench.acquire(3, 0xa);
    bench.acquire(3, 0xa);
    bench.reserve(Acquire, 1 << 8, [0xa, 0], conflict);
    bench.of(second).reserve(Acquire, 3 << 8, [0xb, 0], conflict);
    bench.reserve(Release, 3 << 8, [0xb, 0], None);
    assert_eq!(bench.report().1, 3, "only the holder releases");
    bench.of(first).reserve(Release, 1 << 8, [0xa, 0], invalid);
    bench.reserve(Release, 3 << 8 | 1 << 3, [0xa, 0], invalid);
    let heard = bench.of(second).send(ADMIN, admin(AdminOpcode::AsynchronousEventRequest));
    bench.of(first).reserve(Release, 3 << 8, [0xa, 0], None);
    assert_eq!(bench.take(heard).dw0, 0x0080_0006);
    let page = bench.of(second).log(LogPage::ReservationNotification, 64);
    assert_eq!((u64_at(&page, 0), page[8], page[9], u32_at(&page, 12)), (1, 2, 0, 1));
    assert_eq!(bench.log(LogPage::ReservationNotification, 64), [0; 64]);
    bench.of(third).reserve(Release, 1, [0xc, 0], conflict);
    bench.of(second).acquire(6, 0xb);
    assert_eq!(bench.report().2, [(1, 0xa, true), (2, 0xb, true)], "all registrants hold it");
    bench.of(first).reserve(Release, 1, [0xa, 0], None);
    assert_eq!(bench.report(), (3, 0, vec![]));
    assert_eq!(bench.of(second).log(LogPage::ReservationNotification, 64)[8], 3);
    bench.of(third).write(0, &[1; 512]);
}

/// Of two controllers with Host Identifier 0, each has another host.
#[test]
fn hosts_without_an_identifier_share_nothing() {
    use IoOpcode::{ReservationAcquire as Acquire, ReservationRegister as Register};
    let (mut bench, [first, ..]) = three();
    let nameless = [8, 9].map(|id| {
        let host = HostIdentity { name: "nqn.2014-08.org.nvmexpress:anonymous".into(), identifier: [0; 16] };
        bench.connect_with(ControllerConfig::fabrics(id, host))
    });
    let sequence = Some(StatusCode::CommandSequenceError);
    for host in nameless {
        bench.of(host).reserve(Register, 0, [0, 0xd], sequence);
        bench.reserve(Acquire, 2 << 8, [0xd, 0], sequence);
        bench.reserve(IoOpcode::ReservationRelease, 2 << 8, [0xd, 0], sequence);
    }
    // Exclusive Access of another host keeps them out.
    bench.of(first).acquire(2, 0xa);
    for host in nameless {
        bench.of(host).fails(IO, io(IoOpcode::Read, 1, 0, 1), StatusCode::ReservationConflict);
    }
}

#[test]
fn a_reservation_is_preempted() {
    use IoOpcode::{ReservationAcquire as Acquire, ReservationRegister as Register};
    let (mut bench, [first, second, third]) = three();
    let conflict = Some(StatusCode::ReservationConflict);
    bench.of(third).reserve(Register, 0, [0, 0xc], None);
    bench.of(first).acquire(1, 0xa);
    bench.of(second).reserve(Acquire, 1 | 1 << 8, [0xb, 0xf], conflict);
    bench.reserve(Acquire, 1 | 1 << 8, [0xb, 0], Some(StatusCode::InvalidField));
    // A registrant that does not hold the reservation loses only its registration.
    bench.reserve(Acquire, 1 | 2 << 8, [0xb, 0xc], None);
    assert_eq!(bench.report(), (4, 1, vec![(1, 0xa, true), (2, 0xb, false)]));
    assert_eq!(bench.of(third).log(LogPage::ReservationNotification, 64)[8], 1);
    // The holder loses its registration, the reservation and its commands.
    bench.media_stuck = true;
    let read = bench.of(first).send(IO, io(IoOpcode::Read, 1, 0, 1));
    bench.of(second).reserve(Acquire, 2 | 2 << 8, [0xb, 0xa], None);
    assert_eq!(bench.take(read).status.code(), StatusCode::AbortedPreempt);
    bench.release_media();
    assert_eq!(bench.report(), (5, 2, vec![(2, 0xb, true)]));
    assert_eq!(bench.of(first).log(LogPage::ReservationNotification, 64)[8], 1);
    // A host preempts its own reservation to get another type.
    bench.of(second).reserve(Acquire, 1 | 5 << 8, [0xb, 0xb], None);
    assert_eq!(bench.report(), (6, 5, vec![(2, 0xb, true)]));
    // A key of zero preempts all registrants.
    bench.of(first).reserve(Register, 0, [0, 0xa], None);
    bench.reserve(Acquire, 1 | 1 << 8, [0xa, 0], None);
    assert_eq!(bench.report(), (8, 1, vec![(1, 0xa, true)]));
    assert_eq!(bench.of(second).log(LogPage::ReservationNotification, 64)[8], 1);
}

#[test]
fn a_registered_host_is_notified_of_another_type_and_keeps_its_commands() {
    use IoOpcode::{ReservationAcquire as Acquire, ReservationRegister as Register};
    let (mut bench, [first, second, third]) = three();
    bench.of(third).reserve(Register, 0, [0, 0xc], None);
    bench.of(first).acquire(1, 0xa);
    bench.media_stuck = true;
    let read = bench.of(third).send(IO, io(IoOpcode::Read, 1, 0, 1));
    bench.of(second).reserve(Acquire, 2 | 3 << 8, [0xb, 0xa], None);
    bench.release_media();
    assert_eq!(bench.take(read).status, Status::SUCCESS);
    assert_eq!(bench.of(third).log(LogPage::ReservationNotification, 64)[8], 2);
    assert_eq!(bench.of(first).log(LogPage::ReservationNotification, 64)[8], 1);
    assert_eq!(bench.of(second).log(LogPage::ReservationNotification, 64), [0; 64]);
}

#[test]
fn persistent_reservations_outlive_a_power_loss() {
    use IoOpcode::ReservationRegister as Register;
    let (mut bench, [first, second, _]) = three();
    assert!(bench.notified.is_empty());
    bench.of(first).reserve(Register, 0b11 << 30, [0, 0xa], None);
    bench.acquire(3, 0xa);
    let Some(Notification::ReservationsChanged(record)) = bench.notified.last().cloned() else {
        panic!("there was no notification");
    };
    let mut config = bench.subsystem.config().clone();
    config.reservations.push(*record);
    let mut again = Bench::with(config);
    again.subsystem.remove_controller(again.now, again.controller);
    let hosts = [1, 2, 3].map(|id| again.connect(id));
    assert_eq!(again.report(), (3, 3, vec![(1, 0xa, true), (2, 0xb, false)]));
    again.of(hosts[2]).fails(IO, io(IoOpcode::Write, 1, 0, 1), StatusCode::ReservationConflict);
    again.of(hosts[1]).succeeds(IO, io(IoOpcode::Write, 1, 0, 1));
    // The end of persistence is reported only once.
    let said = bench.notified.len();
    bench.of(second).reserve(Register, 2 | 0b10 << 30, [0xb, 0xb], None);
    bench.reserve(Register, 2, [0xb, 0xd], None);
    assert_eq!(bench.notified.len(), said + 1);
}

#[test]
fn hosts_select_notifications_and_persistence() {
    use IoOpcode::ReservationRelease as Release;
    let (mut bench, [first, second, _]) = three();
    let of = |namespace, entry| SubmissionQueueEntry { namespace: NamespaceId(namespace), ..entry };
    let (mask, persistence) = (FeatureId::ReservationMask, FeatureId::ReservationPersistence);
    bench.of(second).succeeds(ADMIN, of(1, set(mask, 0xff)));
    assert_eq!(bench.succeeds(ADMIN, of(1, get(mask, 0))), 0b1110);
    assert_eq!(bench.succeeds(ADMIN, of(2, get(mask, 0))), 0);
    bench.fails(ADMIN, of(9, get(mask, 0)), StatusCode::InvalidNamespaceOrFormat);
    assert_eq!(bench.of(first).succeeds(ADMIN, of(1, get(mask, 0))), 0, "each has its own");
    bench.acquire(3, 0xa);
    bench.reserve(Release, 3 << 8, [0xa, 0], None);
    assert_eq!(bench.of(second).log(LogPage::ReservationNotification, 64), [0; 64]);
    bench.succeeds(ADMIN, of(u32::MAX, set(mask, 0)));
    bench.of(first).acquire(3, 0xa);
    bench.reserve(Release, 3 << 8, [0xa, 0], None);
    assert_eq!(bench.of(second).log(LogPage::ReservationNotification, 64)[8], 2);
    bench.succeeds(ADMIN, of(1, set(persistence, 1)));
    assert!(matches!(bench.notified.last(), Some(Notification::ReservationsChanged(one)) if one.persistent));
    assert_eq!(bench.of(first).succeeds(ADMIN, of(1, get(persistence, 0))), 1);
    let mut pcie = Bench::new();
    pcie.fails(ADMIN, of(1, get(mask, 0)), StatusCode::InvalidField);
    pcie.fails(ADMIN, of(1, set(persistence, 1)), StatusCode::InvalidField);
}

#[test]
fn a_flush_of_all_is_of_the_namespaces_that_the_controller_has() {
    let (mut bench, [first, _, third]) = three();
    bench.of(first).acquire(2, KEY[0]);
    let flush = io(IoOpcode::Flush, u32::MAX, 0, 1);
    bench.of(third).fails(IO, flush, StatusCode::ReservationConflict);
    bench.host_data = vec![1, 0, 3, 0];
    bench.of(first).succeeds(ADMIN, detach(NamespaceId(1)));
    bench.media_stuck = true;
    let flush = bench.of(third).send(IO, flush);
    assert!(matches!(bench.stuck[..], [Request { medium: MediumId(1), .. }]));
    bench.release_media();
    assert_eq!(bench.take(flush).status, Status::SUCCESS);
}

#[test]
fn controllers_on_pcie_that_have_hosts_share_namespaces_and_keep_to_reservations() {
    let mut bench = Bench::new();
    bench.subsystem.remove_controller(bench.now, bench.controller);
    let host = |number: u8| HostIdentity { name: format!("host {number}"), identifier: [number; 16] };
    let [one, other] = [1, 2].map(|id: u8| {
        let mut config = ControllerConfig::pcie(id.into());
        if let Transport::Pcie { host: place, .. } = &mut config.transport {
            *place = Some(HostIdentity::default());
        }
        let key = bench.connect_with(config);
        bench.subsystem.set_host(bench.now, key, host(id));
        key
    });
    assert_eq!(bench.of(one).identify(1, 0)[76] & 0b10, 0b10, "CMIC: several controllers");
    assert_eq!((bench.identify(0, 1)[30], bench.identify(0, 1)[31]), (1, 0xff), "NMIC and RESCAP");
    bench.reserve(IoOpcode::ReservationRegister, 0, [0, 0xa], None);
    bench.acquire(1, 0xa);
    let write = io(IoOpcode::Write, 1, 0, 1);
    let may_write = |bench: &mut Bench, controller| {
        bench.of(controller).host_data = vec![0; 512];
        bench.run(IO, write).status.is_success()
    };
    assert!(may_write(&mut bench, one) && !may_write(&mut bench, other));
    // A reset changes nothing, and another host of the controller is not the holder.
    bench.subsystem.reset(bench.now, one);
    assert!(may_write(&mut bench, one));
    bench.subsystem.set_host(bench.now, one, host(3));
    assert!(!may_write(&mut bench, one));
    // The holder is one on every controller that it has.
    bench.subsystem.set_host(bench.now, other, host(1));
    assert!(may_write(&mut bench, other));
}
