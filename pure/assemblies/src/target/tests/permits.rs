//! What single hosts may do in a subsystem: which namespaces they see, and how fast they are.

use engine::Engine;
use nvme::rate::Rate;
use nvme::subsystem::Permit;
use nvme_fabrics::target::HostTerms;

use super::*;

/// A bench whose host may do what `permit` says, with two controllers of one I/O queue each.
fn bench_with(permit: Permit) -> (TestBench, [usize; 2]) {
    let mut bench = TestBench::new(permitting(permit));
    let queues = [1, 2].map(|controller| {
        let host = bench.admin_queue(DISK).unwrap();
        bench.enable(host);
        bench.io_queue(DISK, 1, controller).unwrap()
    });
    (bench, queues)
}

fn permitting(permit: Permit) -> Directory {
    let mut directory = directory();
    let terms = HostTerms { permit, ..HostTerms::default() };
    directory.subsystems[0].terms = Vec::from([(HOST.parse().unwrap(), terms)]);
    directory
}

fn rate(operations: Option<u64>, bytes: Option<u64>) -> Permit {
    Permit { rate: Rate { operations, bytes }, ..Permit::default() }
}

/// How many reads of 4 KiB, many under way in each queue, end within a second.
fn reads_in_a_second(bench: &mut TestBench, queues: [usize; 2]) -> u64 {
    let mut pending = Vec::new();
    let (mut count, end) = (0, bench.now + Nanos::from_secs(1));
    loop {
        for queue in queues {
            while pending.iter().filter(|(of, _)| *of == queue).count() < 8 {
                let cookie = bench.submit(queue, io(IoOpcode::Read, 0, 8), Data::Read(4096));
                pending.push((queue, cookie));
            }
        }
        bench.run();
        let before = pending.len();
        pending.retain(|(queue, cookie)| bench.completed(*queue, *cookie).is_none());
        count += (before - pending.len()) as u64;
        if before == pending.len() {
            // Nothing goes on before a deadline.
            let next = bench.target.poll_timeout().unwrap();
            assert!(next > bench.now, "a ceiling opens in the future");
            bench.now = next;
            if next >= end {
                return count;
            }
            bench.target.handle_timeout(next);
        }
    }
}

#[test]
fn controllers_of_one_host_share_its_ceiling() {
    for (permit, expected) in [
        (rate(Some(500), None), 500),
        (rate(None, Some(400 << 12)), 400),
        (rate(Some(300), Some(1 << 30)), 300),
    ] {
        let (mut bench, queues) = bench_with(permit);
        let count = reads_in_a_second(&mut bench, queues);
        // A burst and the 16 commands under way come on top.
        assert!((expected - 1..expected + expected / 40 + 17).contains(&count), "{count} of {expected}");
    }
}

#[test]
fn a_reload_changes_what_connected_hosts_may_do() {
    let (mut bench, queues) = bench_with(Permit::default());
    let write = |bench: &mut TestBench| {
        let data = Data::Write(Buffer::from(alloc::vec![7; 4096]));
        bench.ask(queues[0], io(IoOpcode::Write, 0, 8), data).entry.status()
    };
    assert!(write(&mut bench).is_success());
    let read_only = Permit { read_only: true, ..Permit::default() };
    bench.target.set_directory(bench.now, permitting(read_only));
    bench.run();
    let refused = write(&mut bench);
    assert_eq!(refused.code(), StatusCode::NamespaceWriteProtected);
    assert!(!bench.is_closed(queues[0]), "the host stays connected");

    bench.target.set_directory(bench.now, permitting(rate(Some(200), None)));
    let count = reads_in_a_second(&mut bench, queues);
    assert!((199..210).contains(&count), "{count}");
    // A ceiling that is taken away lets the host go on at once.
    bench.target.set_directory(bench.now, permitting(Permit::default()));
    bench.run();
    assert!(write(&mut bench).is_success());
}
