//! The reactors of a target. The first accepts connections and answers requests. Each subsystem is
//! at home in one of them, and its I/O queues are spread over all of them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::Nanos;
use live::drivers::fabrics::target::{Mailbox, Obituary, StrangerLimits};
use live::reactor::{JobSender, Jobs, Reactor, Stop, WithJobs, jobs, pin, processors};
use live::sys::clock::Clock;
use nvme_fabrics::target::{Directory, Subsystem, SubsystemKey};
use tracing::{error, info};

use super::core::Core;
use crate::args::Spin;
use crate::capture::Taps;
use crate::error::Error;

/// How long after its first failure a thread starts again; doubled with each further one.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often a thread that fails starts again, unless this long passes without a failure.
const AGAIN_MAX: u32 = 5;
const FORGIVEN_AFTER: Duration = Duration::from_secs(3600);

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
    /// The directory with which the core begins if its thread starts again.
    directory: Arc<Mutex<Directory>>,
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
            let directory = Arc::new(Mutex::new(Directory::default()));
            let published = Arc::clone(&directory);
            let core = move || {
                let mut core = Core::new(clock, memory_max, strangers);
                core.set_directory(published.lock().unwrap_or_else(PoisonError::into_inner).clone());
                core
            };
            let run = move || work(core, reactor, mailbox, &taken, processor, all);
            let builder = std::thread::Builder::new().name(format!("core {index}"));
            let thread = builder.spawn(run).map_err(Error::System)?;
            others.push(Other { sender, stop: own, directory, thread });
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
        // A thread that has failed was no subsystem's home: the others go on without it.
        let others: Vec<_> = self.others.iter().filter_map(|other| other.sender.run(job.clone())).collect();
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
        for (index, other) in (1..).zip(&self.others) {
            let directory = of(index);
            *other.directory.lock().unwrap_or_else(PoisonError::into_inner) = directory.clone();
            // A thread that has failed begins with this directory.
            let _ = other.sender.run(move |core| core.set_directory(directory));
        }
        self.first.set_directory(of(0));
        Ok(())
    }

    /// Offers a subsystem on each core, in the place of the one with its key if there is one; on
    /// the first core last.
    pub(super) fn put_subsystem(&mut self, subsystem: &Subsystem) -> Result<(), Error> {
        let (count, key) = (1 + self.others.len(), subsystem.key);
        let of = |core: usize| Subsystem { is_here: Mailbox::home(key, count) == core, ..subsystem.clone() };
        for (index, other) in (1..).zip(&self.others) {
            let subsystem = of(index);
            let known = subsystem.clone();
            other.change(move |directory| match directory.subsystems.iter_mut().find(|one| one.key == key) {
                Some(before) => *before = known,
                None => directory.subsystems.push(known),
            });
            let _ = other.sender.run(move |core| core.put_subsystem(subsystem));
        }
        self.first.put_subsystem(of(0));
        Ok(())
    }

    /// Offers a subsystem no longer, on the first core first: no connection for it comes to another
    /// core any more.
    pub(super) fn remove_subsystem(&mut self, key: SubsystemKey) -> Result<(), Error> {
        self.first.remove_subsystem(key);
        for other in &self.others {
            other.change(|directory| directory.subsystems.retain(|one| one.key != key));
            let _ = other.sender.run(move |core| core.remove_subsystem(key));
        }
        Ok(())
    }

    /// Sets whether more is meant to be offered.
    pub(super) fn set_partial(&mut self, is_partial: bool) -> Result<(), Error> {
        for other in &self.others {
            other.change(|directory| directory.is_partial = is_partial);
        }
        self.each(move |core| core.driver.set_partial(is_partial)).map(drop)
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
    /// Changes the directory with which the core begins if its thread starts again.
    fn change(&self, change: impl FnOnce(&mut Directory)) {
        change(&mut self.directory.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn run<T: Send + 'static>(&self, job: impl FnOnce(&mut Core) -> T + Send + 'static) -> Result<T, Error> {
        let gone =
            || Error::Output(io::Error::other("a thread of the target has failed; try again in a while"));
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

/// Runs a core. If a core fails that is no subsystem's home, its connections end, and the target
/// goes on without it until it starts again.
fn work(
    core: impl Fn() -> Core,
    mut reactor: Reactor,
    mut mailbox: Mailbox,
    jobs: &Jobs<Core>,
    processor: Option<usize>,
    ending: Ending,
) -> io::Result<()> {
    if let Some(processor) = processor {
        // If there are more threads than processors, threads share a processor.
        pin(processor % processors()?.max(1)).map_err(io::Error::other)?;
    }
    let mut failures = Failures::default();
    loop {
        let obituary = mailbox.obituary();
        // All that the core has is dropped with it.
        match catch_unwind(AssertUnwindSafe(|| turn(&core, &mut reactor, mailbox, jobs))) {
            Ok(result) => return result,
            Err(panic) if obituary.is_of_home() => resume_unwind(panic),
            Err(_) => obituary.post(),
        }
        match start_again(&obituary, failures.next(Instant::now()), jobs, &reactor.stop()) {
            Some(next) => mailbox = next,
            None => {
                std::mem::forget(ending);
                return Ok(());
            }
        }
        reactor.begin_again();
    }
}

fn turn(
    core: impl Fn() -> Core,
    reactor: &mut Reactor,
    mailbox: Mailbox,
    jobs: &Jobs<Core>,
) -> io::Result<()> {
    let mut core = core();
    core.driver.set_mailbox(mailbox);
    reactor.run(&mut WithJobs::new(core, jobs))?;
    Ok(())
}

/// Waits until a core that has failed starts again. Returns the mailbox with which it does; `None`
/// if it does not.
fn start_again(
    obituary: &Obituary,
    after: Option<Duration>,
    jobs: &Jobs<Core>,
    stop: &Stop,
) -> Option<Mailbox> {
    const WHAT: &str =
        "a thread of the target has failed: its connections are closed, and the other threads go on";
    const REPORT: &str = "please report the message of the panic above";
    let Some(after) = after else {
        error!("{WHAT} without it, because it has failed too often; {REPORT}");
        return None;
    };
    error!("{WHAT}; it starts again in {after:?}; {REPORT}");
    jobs.refuse_for(after, stop);
    if stop.is_asked_for() {
        return None;
    }
    info!("the thread of the target that had failed works again");
    Some(obituary.succeed())
}

/// The failures of a thread.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    last: Option<Instant>,
}

impl Failures {
    /// How long after a failure at `now` the thread starts again; `None` if it does not.
    fn next(&mut self, now: Instant) -> Option<Duration> {
        if self.last.is_some_and(|last| now - last >= FORGIVEN_AFTER) {
            self.count = 0;
        }
        (self.count, self.last) = (self.count + 1, Some(now));
        (self.count <= AGAIN_MAX).then(|| AGAIN_AFTER * 2_u32.pow(self.count - 1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::mpsc::channel;

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
    fn a_thread_starts_again_later_each_time_and_not_for_ever() {
        let (start, mut failures) = (Instant::now(), Failures::default());
        let delays: Vec<_> = (0..6).map(|_| failures.next(start)).collect();
        let seconds = [1, 2, 4, 8, 16].map(|seconds| Some(Duration::from_secs(seconds)));
        assert_eq!((&delays[..5], delays[5]), (&seconds[..], None));
        assert_eq!(failures.next(start + FORGIVEN_AFTER), Some(AGAIN_AFTER));
    }

    #[test]
    fn a_core_that_fails_ends_alone_and_starts_again() {
        let Running { address, senders, stop, thread } = start();
        let (mut one, mut other) = (host(&address), host(&address));
        use_all_queues(&mut one);
        assert_eq!(queues(&senders), [4, 4]);
        assert!(senders[1].run::<()>(|_| panic!("a planted failure")).is_none());
        // Hosts go on with their other queues, and connect the lost ones again.
        for host in [&mut one, &mut other] {
            use_all_queues(host);
        }
        // The thread starts again, and gets queues again.
        let began = Instant::now();
        while queues(&senders).len() < 2 {
            assert!(began.elapsed() < Duration::from_secs(60), "the thread starts again");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut late = host(&address);
        use_all_queues(&mut late);
        let now = queues(&senders);
        assert!(now[1] > 0, "{now:?}");
        // It may fail once more.
        assert!(senders[1].run::<()>(|_| panic!("another planted failure")).is_none());
        assert_eq!(queues(&senders).len(), 1, "the status leaves out what is gone");
        for host in [&mut one, &mut other, &mut late] {
            use_all_queues(host);
        }
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
        let began = Instant::now();
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
