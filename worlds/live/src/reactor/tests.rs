//! The loop, with drivers that count.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant as Wall};

use engine::{Buffer, Pool};

use super::*;
use crate::carrier::Received;
use crate::carrier::tcp::{Connection, Dialer, Dialled, Listener, Options};

/// Sends back received bytes, until the connection ends.
struct Echo {
    listener: Listener,
    connection: Option<Connection>,
    pool: Pool,
    turns: u64,
    wake: Option<Instant>,
    /// Whether the driver ends when it is asked to stop.
    obedient: bool,
    stopped: bool,
}

impl Echo {
    fn new() -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let pool = Pool::default();
        Self { listener, connection: None, pool, turns: 0, wake: None, obedient: true, stopped: false }
    }
}

impl Driver for Echo {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        assert_eq!(self.turns, 0, "a driver starts before its first turn");
        // A second start would add the listener twice, which is an error.
        sources.add(self.listener.as_raw_fd(), Attention::OnNews)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        self.turns += 1;
        if self.stopped && self.obedient {
            return Ok(Turn::Done);
        }
        let mut turn = Turn::Idle;
        if self.wake.is_some_and(|at| at <= context.now) {
            self.wake = None;
            turn = Turn::Busy;
        }
        if context.news
            && let Some(connection) = self.listener.accept()?
        {
            context.sources().add(connection.as_raw_fd(), Attention::EachTurn)?;
            self.connection = Some(connection);
            turn = Turn::Busy;
        }
        if let Some(connection) = &mut self.connection {
            match connection.receive(&mut self.pool)? {
                Received::Data(data) => {
                    connection.send(data).unwrap();
                    turn = Turn::Busy;
                }
                Received::Nothing => {}
                Received::Closed => self.connection = None,
            }
        }
        if let Some(connection) = &mut self.connection
            && connection.flush()? > 0
        {
            turn = Turn::Busy;
        }
        Ok(turn)
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.wake
    }
    fn on_stop(&mut self, _now: Instant) {
        self.stopped = true;
    }
}

fn reactor(spin_micros: u64) -> (Reactor, Echo) {
    let reactor = Reactor::new(Clock::start(), Nanos::from_micros(spin_micros)).unwrap();
    let echo = Echo::new();
    (reactor, echo)
}

#[test]
fn a_driver_is_started_once_however_often_its_loop_runs() {
    let (mut reactor, mut echo) = reactor(0);
    let now = Some(reactor.clock().now());
    for _ in 0..2 {
        assert_eq!(reactor.run_until(&mut echo, now, |_| false).unwrap(), Outcome::TimedOut);
        reactor.step(&mut echo).unwrap();
    }
    assert_eq!(echo.turns, 4);
}

/// Processor time that this thread has used.
fn processor_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage`.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert_eq!(result, 0);
    // SAFETY: all zeroes is a valid `rusage`, and the kernel has overwritten it with one.
    let usage = unsafe { usage.assume_init() };
    let of = |time: libc::timeval| {
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap())
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap())
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

#[test]
fn an_idle_loop_takes_no_processor_time() {
    let (mut reactor, mut echo) = reactor(200);
    let until = reactor.clock().now() + Nanos::from_secs(1);
    // A deadline now and then, like a keep-alive.
    echo.wake = Some(reactor.clock().now() + Nanos::from_millis(500));
    let (before, start) = (processor_time(), Wall::now());
    let outcome = reactor.run_until(&mut echo, Some(until), |_| false).unwrap();
    let (used, passed) = (processor_time() - before, start.elapsed());
    assert_eq!((outcome, echo.wake), (Outcome::TimedOut, None));
    assert!(passed >= Duration::from_secs(1) && used < passed / 100, "{used:?} of {passed:?}");
}

#[test]
fn a_sleeping_loop_answers_connections() {
    for spin in [0, 50] {
        let (mut reactor, mut echo) = reactor(spin);
        let (address, stop) = (echo.listener.address(), reactor.stop());
        let client = thread::spawn(move || {
            let mut dialer = Dialer::new(vec![address], Options::default(), Instant::ZERO);
            let mut pool = Pool::default();
            let mut connection = loop {
                if let Dialled::Connected(connection) = dialer.poll(Instant::ZERO) {
                    break connection;
                }
            };
            for round in 0..50_u8 {
                // The pause is long enough for the other side to fall asleep now and then.
                thread::sleep(Duration::from_micros(u64::from(round % 3) * 400));
                let sent = Buffer::from(vec![round; 1 << (round % 18)]);
                connection.send(sent.clone()).unwrap();
                let mut arrived = Vec::new();
                while arrived.len() < sent.len() {
                    connection.flush().unwrap();
                    if let Received::Data(data) = connection.receive(&mut pool).unwrap() {
                        arrived.extend_from_slice(&data);
                    }
                }
                assert!(arrived == *sent);
            }
            stop.ask();
        });
        assert_eq!(reactor.run(&mut echo).unwrap(), Outcome::Done);
        client.join().unwrap();
    }
}

#[test]
fn a_condition_ends_a_run_and_the_next_goes_on() {
    let (mut reactor, mut echo) = reactor(0);
    let outcome = reactor.run_until(&mut echo, None, |echo| echo.turns >= 1).unwrap();
    assert_eq!((outcome, echo.turns), (Outcome::Met, 1));
    echo.wake = Some(reactor.clock().now() + Nanos::from_millis(5));
    let start = Wall::now();
    let outcome = reactor.run_until(&mut echo, None, |echo| echo.wake.is_none()).unwrap();
    assert_eq!(outcome, Outcome::Met);
    assert!(start.elapsed() >= Duration::from_millis(5));
    // The loop slept: it made a handful of turns, not thousands.
    assert!(echo.turns < 20, "{} turns", echo.turns);
}

#[test]
fn a_short_deadline_is_met_to_the_microsecond_when_spinning_is_allowed() {
    // The kernel's own timeouts would be late by up to a millisecond each time. A busy machine may
    // be later still, but not always: this thread is then given the processor again.
    assert!((0..1_000).any(|_| lateness_of_a_short_deadline() < Nanos::from_micros(500)));
}

fn lateness_of_a_short_deadline() -> Nanos {
    let (mut reactor, mut echo) = reactor(50);
    let at = reactor.clock().now() + Nanos::from_micros(300);
    echo.wake = Some(at);
    reactor.run_until(&mut echo, None, |echo| echo.wake.is_none()).unwrap();
    reactor.clock().now() - at
}

#[test]
fn a_driver_that_does_not_end_is_abandoned() {
    let (mut reactor, mut echo) = reactor(0);
    echo.obedient = false;
    reactor.stop().ask();
    let start = Wall::now();
    assert_eq!(reactor.run(&mut echo).unwrap(), Outcome::Abandoned);
    assert!(echo.stopped && start.elapsed() >= Duration::from(CLOSE_MAX));
    assert!(echo.turns < 20, "{} turns", echo.turns);
}

const CHILD: &str = "FARLANE_LIVE_TEST_REACTOR_CHILD";

/// Not a test of its own: the process that `a_signal_ends_a_sleeping_loop` signals.
#[test]
fn child_that_sleeps_until_it_is_signalled() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (mut reactor, mut echo) = reactor(0);
    reactor.stop().on_signals().unwrap();
    println!("\nready");
    assert_eq!(reactor.run(&mut echo).unwrap(), Outcome::Done);
    println!("\nended in good order");
    std::process::exit(42);
}

#[test]
fn a_signal_ends_a_sleeping_loop() {
    use std::io::{BufRead, BufReader};
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["reactor::tests::child_that_sleeps_until_it_is_signalled", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.map(Result::unwrap) {
        if line == "ready" {
            let id = libc::pid_t::try_from(child.id()).unwrap();
            // SAFETY: signals our own child, which has not been waited for; no memory is passed.
            assert_eq!(unsafe { libc::kill(id, libc::SIGTERM) }, 0);
        } else if line == "ended in good order" {
            break;
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

/// Keeps one read of a file under way at all times, and counts the completed ones.
struct Reader {
    medium: crate::media::FileMedium,
    ended: u32,
}

impl Driver for Reader {
    fn start(&mut self, _sources: &Sources) -> io::Result<()> {
        Ok(())
    }

    fn turn(&mut self, _context: &Context<'_>) -> io::Result<Turn> {
        use nvme::media::{Completion, IoId, MediumId, Operation, Request};
        if self.medium.in_flight() == 0 {
            let operation = Operation::Read { offset: u64::from(self.ended % 256) * 4096, length: 4096 };
            self.medium.submit(Request { id: IoId(self.ended), medium: MediumId(0), operation });
        }
        let mut ended = 0;
        let done = self.medium.reap(&mut |completion| {
            if let Completion::Done { result, .. } = completion {
                result.unwrap();
                ended += 1;
            }
        })?;
        self.ended += ended;
        Ok(if done > 0 { Turn::Busy } else { Turn::Idle })
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn on_stop(&mut self, _now: Instant) {}
}

#[test]
fn a_medium_ends_a_sleep() {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().join(format!("farlane-live-reactor-{}", std::process::id()));
    let options = crate::media::Options { size: Some(1 << 20), block: 4096, ..Default::default() };
    let mut medium = crate::media::open(&path, &options).unwrap();
    std::fs::remove_file(&path).unwrap();
    // The file's bytes are on the disk, so that reading them takes a while.
    let data = Buffer::zeroed(1 << 20);
    medium.submit(nvme::media::Request {
        id: nvme::media::IoId(0),
        medium: nvme::media::MediumId(0),
        operation: nvme::media::Operation::Write { offset: 0, data, durable: true },
    });
    while medium.in_flight() > 0 {
        medium.reap(&mut |_| ()).unwrap();
    }
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
    if let Some(descriptor) = medium.poll_fd() {
        reactor.sources().add(descriptor, Attention::EachTurn).unwrap();
    }
    let mut reader = Reader { medium, ended: 0 };
    let deadline = reactor.clock().now() + Nanos::from_secs(20);
    let outcome = reactor.run_until(&mut reader, Some(deadline), |reader| reader.ended >= 500).unwrap();
    assert_eq!(outcome, Outcome::Met, "{} reads ended", reader.ended);
}

#[test]
fn a_peer_that_reads_again_ends_a_sleep() {
    let (mut reactor, mut echo) = reactor(0);
    let (address, stop) = (echo.listener.address(), reactor.stop());
    let length = 8 << 20;
    let client = thread::spawn(move || {
        use std::io::{Read, Write};
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        let mut reading = socket.try_clone().unwrap();
        let writer = thread::spawn(move || socket.write_all(&vec![7; length]).unwrap());
        // By now the other side's socket is full, and the other side sleeps.
        writer.join().unwrap();
        thread::sleep(Duration::from_millis(100));
        let mut bytes = vec![0; length];
        reading.read_exact(&mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7));
        stop.ask();
    });
    assert_eq!(reactor.run(&mut echo).unwrap(), Outcome::Done);
    client.join().unwrap();
}

/// Waits for a store of another thread.
struct Watch {
    place: Arc<AtomicU32>,
    turns: u32,
    glances: u32,
    seen: bool,
}

impl Driver for Watch {
    fn start(&mut self, _sources: &Sources) -> io::Result<()> {
        Ok(())
    }

    fn turn(&mut self, _context: &Context<'_>) -> io::Result<Turn> {
        self.turns += 1;
        Ok(Turn::Idle)
    }
    fn glance(&mut self, _context: &Context<'_>) -> Glance {
        self.glances += 1;
        self.seen = self.place.load(Ordering::Acquire) > 0;
        if self.seen { Glance::Done } else { Glance::Nothing }
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn on_stop(&mut self, _now: Instant) {}
}

#[test]
fn what_a_glance_finds_needs_no_turn() {
    let mut reactor = Reactor::new(Clock::start(), Nanos::from_secs(60)).unwrap();
    let place = Arc::new(AtomicU32::new(0));
    let mut watch = Watch { place: Arc::clone(&place), turns: 0, glances: 0, seen: false };
    let storing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        place.store(1, Ordering::Release);
    });
    assert_eq!(reactor.run_until(&mut watch, None, |watch| watch.seen).unwrap(), Outcome::Met);
    storing.join().unwrap();
    assert!(watch.turns >= 1 && watch.glances > watch.turns, "{} in {}", watch.glances, watch.turns);
}

/// Sleeps until a bell rings, again and again.
struct Listening {
    bell: Bell,
    rung: Arc<AtomicU32>,
    heard: std::sync::mpsc::Sender<u32>,
    last: u32,
    rings: u32,
}

impl Driver for Listening {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.bell.listen(sources, Attention::OnNews)
    }

    fn turn(&mut self, _context: &Context<'_>) -> io::Result<Turn> {
        let rung = self.rung.load(Ordering::Acquire);
        if rung == self.last {
            return Ok(Turn::Idle);
        }
        self.last = rung;
        let _ = self.heard.send(rung);
        Ok(if rung == self.rings { Turn::Done } else { Turn::Busy })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_stop(&mut self, _now: Instant) {}
}

/// Each ring ends the sleep of each loop, although nothing reads what the bell has counted.
#[test]
fn a_bell_wakes_every_loop_that_listens() {
    const RINGS: u32 = 500;
    let (bell, rung) = (Bell::new().unwrap(), Arc::new(AtomicU32::new(0)));
    let loops: Vec<_> = (0..3)
        .map(|_| {
            let (bell, rung) = (bell.clone(), Arc::clone(&rung));
            let (heard, hears) = std::sync::mpsc::channel();
            let thread = thread::spawn(move || {
                let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
                let mut listening = Listening { bell, rung, heard, last: 0, rings: RINGS };
                reactor.run(&mut listening).unwrap()
            });
            (thread, hears)
        })
        .collect();
    for ring in 1..=RINGS {
        rung.store(ring, Ordering::Release);
        bell.ring();
        for (_, hears) in &loops {
            assert_eq!(hears.recv_timeout(Duration::from_secs(30)), Ok(ring));
        }
    }
    for (thread, _) in loops {
        assert_eq!(thread.join().unwrap(), Outcome::Done);
    }
}

/// A source that only gives is news when it has something, and never because it can be written to.
#[test]
fn an_input_is_no_news_while_it_is_silent() {
    let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let reactor = &mut Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
    reactor.sources().add_input(there.as_raw_fd(), Attention::Named(7)).unwrap();
    reactor.ask(Instant::ZERO, Duration::ZERO).unwrap();
    assert!(reactor.named.is_empty());
    std::io::Write::write_all(&mut here, b"x").unwrap();
    reactor.ask(Instant::ZERO, Duration::from_secs(30)).unwrap();
    assert_eq!(reactor.named, [7]);
    assert!(reactor.asked_at > Instant::ZERO, "the answer is as old as the end of the sleep");
}
