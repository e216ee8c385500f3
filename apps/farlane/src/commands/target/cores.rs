//! The reactors of a target. The first accepts connections and answers requests. Each subsystem is
//! at home in one of them, and its I/O queues are spread over all of them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::JoinHandle;

use engine::Nanos;
use live::drivers::fabrics::target::{Mailbox, StrangerLimits};
use live::reactor::{JobSender, Jobs, Reactor, Stop, WithJobs, jobs, pin, processors};
use live::sys::clock::Clock;
use nvme_fabrics::target::{Directory, SubsystemKey};
use tracing::error;

use super::core::Core;
use crate::args::Spin;
use crate::capture::Taps;
use crate::error::Error;

/// The cores of a target, each with a reactor and a share of the subsystems.
pub(super) struct Cores {
    /// The core of this thread.
    pub(super) first: Core,
    others: Vec<Other>,
}

/// A core that has a thread of its own.
struct Other {
    sender: JobSender<Core>,
    stop: Stop,
    thread: JoinHandle<io::Result<()>>,
}

impl Cores {
    /// Starts `count` cores, which share `strangers` and `memory_max`. The first is that of this
    /// thread, which `stop` ends.
    pub(super) fn start(
        clock: Clock,
        stop: &Stop,
        spin: &Spin,
        count: usize,
        strangers: StrangerLimits,
        memory_max: u64,
    ) -> Result<Self, Error> {
        // Each core gets the same share of the memory.
        let memory_max = memory_max / count as u64;
        let mut first = Core::new(clock, memory_max, strangers.part_of(0, count));
        let reactor = |_| Reactor::new(clock, Nanos::from(spin.spin)).map_err(Error::System);
        let reactors = (1..count).map(reactor).collect::<Result<Vec<_>, _>>()?;
        let stops = reactors.iter().map(Reactor::stop);
        let mut mailboxes = Mailbox::for_all(std::iter::once(stop.clone()).chain(stops)).into_iter();
        if let Some(mailbox) = mailboxes.next().filter(|_| count > 1) {
            first.driver.set_mailbox(mailbox);
        }
        let mut others = Vec::new();
        for (index, (reactor, mailbox)) in (1..).zip(reactors.into_iter().zip(mailboxes)) {
            let (own, all) = (reactor.stop(), Ending(stop.clone()));
            let (sender, taken) = jobs(own.clone());
            let processor = spin.cpu.map(|first| first + index);
            let strangers = strangers.part_of(index, count);
            let core = move || Core::new(clock, memory_max, strangers);
            let run = move || work(core, reactor, mailbox, taken, processor, all);
            let builder = std::thread::Builder::new().name(format!("core {index}"));
            others.push(Other { sender, stop: own, thread: builder.spawn(run).map_err(Error::System)? });
        }
        Ok(Self { first, others })
    }

    /// The number of cores.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(1 + self.others.len()).expect("cores are few")
    }

    /// Runs `job` on the core of a subsystem, between two of its turns. Returns the result of
    /// `job`.
    pub(super) fn on<T: Send + 'static>(
        &mut self,
        key: SubsystemKey,
        job: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let home = Mailbox::home(key, 1 + self.others.len());
        match home.checked_sub(1) {
            None => Ok(job(&mut self.first)),
            Some(index) => self.others[index].run(job),
        }
    }

    /// Runs `job` on each core, on the first core last. The results begin with the first core's.
    pub(super) fn each<T: Send + 'static>(
        &mut self,
        job: impl Fn(&mut Core) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Error> {
        let others = self.others.iter().filter(|other| other.is_there());
        let others = others.map(|other| other.run(job.clone())).collect::<Result<Vec<_>, _>>()?;
        let mut results = vec![job(&mut self.first)];
        results.extend(others);
        Ok(results)
    }

    /// Shows each core's connections to a capture.
    pub(super) fn watch(&mut self, taps: &Taps) -> Result<(), Error> {
        let taps = taps.clone();
        self.each(move |core| core.driver.watch().add(taps.tap(0))).map(drop)
    }

    /// Sends the current directory to each core. The first core gets it last: new connections come
    /// to it, and the others must have the directory by then.
    pub(super) fn set_directory(&mut self, directory: &Directory) -> Result<(), Error> {
        let count = 1 + self.others.len();
        let of = |core: usize| {
            let mut directory = directory.clone();
            for subsystem in &mut directory.subsystems {
                subsystem.is_here = Mailbox::home(subsystem.key, count) == core;
            }
            directory
        };
        for (index, other) in (1..).zip(&self.others).filter(|(_, other)| other.is_there()) {
            let directory = of(index);
            other.run(move |core| core.set_directory(directory))?;
        }
        self.first.set_directory(of(0));
        Ok(())
    }

    /// Has the first `count` cores execute commands of hosts. The queues of others are closed, and
    /// their hosts connect them again.
    pub(super) fn set_active(&mut self, count: usize) -> Result<(), Error> {
        self.each(move |core| core.set_active_reactors(count)).map(drop)
    }

    /// The ways to give jobs to the cores but the first.
    pub(super) fn senders(&self) -> impl Iterator<Item = JobSender<Core>> {
        self.others.iter().map(|other| other.sender.clone())
    }

    pub(super) fn stop_others(&self) {
        for other in &self.others {
            other.stop.ask();
        }
    }

    /// Ends the other cores, and waits until they have ended.
    pub(super) fn join(self) -> io::Result<()> {
        self.stop_others();
        for other in self.others {
            other.thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        }
        Ok(())
    }
}

impl Other {
    /// Whether the thread has not failed.
    fn is_there(&self) -> bool {
        !self.thread.is_finished()
    }

    fn run<T: Send + 'static>(&self, job: impl FnOnce(&mut Core) -> T + Send + 'static) -> Result<T, Error> {
        let gone = || Error::Output(io::Error::other("a thread of the target has ended"));
        self.sender.run(job).ok_or_else(gone)
    }
}

/// Ends the target when a core has ended, for any reason.
struct Ending(Stop);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// Runs a core. If a core fails that is no subsystem's home, its connections end and the target
/// goes on without it.
fn work(
    core: impl FnOnce() -> Core,
    reactor: Reactor,
    mailbox: Mailbox,
    jobs: Jobs<Core>,
    processor: Option<usize>,
    ending: Ending,
) -> io::Result<()> {
    let obituary = mailbox.obituary();
    // All that the core has is dropped with it.
    let run = AssertUnwindSafe(move || turn(core, reactor, mailbox, jobs, processor));
    match catch_unwind(run) {
        Ok(result) => result,
        Err(panic) if obituary.is_of_home() => resume_unwind(panic),
        Err(_) => {
            error!(
                "a thread of the target has failed: its connections are closed, and the other threads go on; \
                 please report the message of the panic above"
            );
            std::mem::forget(ending);
            obituary.post();
            Ok(())
        }
    }
}

fn turn(
    core: impl FnOnce() -> Core,
    mut reactor: Reactor,
    mailbox: Mailbox,
    jobs: Jobs<Core>,
    processor: Option<usize>,
) -> io::Result<()> {
    if let Some(processor) = processor {
        // If there are more threads than processors, threads share a processor.
        pin(processor % processors()?.max(1)).map_err(io::Error::other)?;
    }
    let mut core = core();
    core.driver.set_mailbox(mailbox);
    reactor.run(&mut WithJobs::new(core, jobs))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use live::carrier::tcp;
    use live::client::{Controller, Options, Url};
    use nvme::wire::NamespaceId;

    use super::super::server::Server;
    use super::super::{config, status};
    use super::*;

    const OFFER: &str = r#"
        [[port]]
        listen = "127.0.0.1:0"
        [[subsystem]]
        nqn = "nqn.2026-01.io.farlane:cores"
        [[subsystem.namespace]]
        ram = "1MiB"
    "#;

    /// A target with two cores on a thread. Returns the ways to them, and the target's end.
    struct Running {
        address: String,
        senders: Vec<JobSender<Core>>,
        stop: Stop,
        thread: JoinHandle<io::Result<()>>,
    }

    fn start() -> Running {
        let (said, heard) = channel();
        let thread = std::thread::spawn(move || {
            let clock = Clock::start();
            let mut reactor = Reactor::new(clock, Nanos::ZERO).unwrap();
            let (stop, spin) = (reactor.stop(), Spin { spin: Duration::ZERO, cpu: None });
            let strangers = StrangerLimits { places: 64, proof_max: Nanos::from_secs(5), work_share: 50 };
            let cores = Cores::start(clock, &stop, &spin, 2, strangers, 64 << 20).unwrap();
            let offer = config::parse(OFFER).unwrap();
            let mut server = Server::new(cores, None, None, tcp::Options::default(), offer).unwrap();
            let (first, taken) = jobs(stop.clone());
            let senders = server.accept_jobs(first, taken);
            said.send((server.cores().first.driver.addresses().next().unwrap().1.to_string(), senders, stop))
                .unwrap();
            reactor.run(&mut server)?;
            server.join()
        });
        let (address, senders, stop) = heard.recv().unwrap();
        Running { address, senders, stop, thread }
    }

    fn host(address: &str) -> Controller {
        let url: Url = format!("nvme-tcp://{address}/nqn.2026-01.io.farlane:cores?queues=4").parse().unwrap();
        let mut host = Controller::open(&url.resolve().unwrap(), &Options::new("test")).unwrap();
        host.wait_ready(Nanos::from_secs(60)).unwrap();
        host
    }

    fn queues(senders: &[JobSender<Core>]) -> Vec<u64> {
        let target = status::of_cores(senders, HashMap::new()).unwrap();
        target.cores.iter().map(|core| core.io_queues).collect()
    }

    fn use_all_queues(host: &mut Controller) {
        for block in 0..32 {
            host.read(NamespaceId(1), block, 1).unwrap();
        }
    }

    #[test]
    fn a_core_that_fails_ends_alone() {
        let Running { address, senders, stop, thread } = start();
        let (mut one, mut other) = (host(&address), host(&address));
        use_all_queues(&mut one);
        assert_eq!(queues(&senders), [4, 4]);
        assert!(senders[1].run::<()>(|_| panic!("a planted failure")).is_none());
        // Hosts go on with their other queues, and connect the lost ones again.
        for host in [&mut one, &mut other] {
            use_all_queues(host);
        }
        let mut late = host(&address);
        use_all_queues(&mut late);
        assert_eq!(queues(&senders).len(), 1, "the status leaves out what is gone");
        for host in [one, other, late] {
            host.close().unwrap();
        }
        stop.ask();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn a_core_that_stalls_holds_up_no_other() {
        let Running { address, senders, stop, thread } = start();
        let mut host = host(&address);
        use_all_queues(&mut host);
        let stalled = senders[1].clone();
        let stall = std::thread::spawn(move || {
            stalled.run(|_| std::thread::sleep(Duration::from_secs(3)));
        });
        // The first core answers, and admits and serves a host with one queue.
        std::thread::sleep(Duration::from_millis(100));
        let began = std::time::Instant::now();
        let lag = senders[0].run(|core| core.driver.target().io_queues());
        assert_eq!(lag, Some(2));
        assert!(began.elapsed() < Duration::from_secs(2), "the first core waits for no other");
        stall.join().unwrap();
        use_all_queues(&mut host);
        host.close().unwrap();
        stop.ask();
        thread.join().unwrap().unwrap();
    }
}
