//! Clients that ask for what takes long, or for much.

use std::net::Shutdown;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::reactor::{Context, Driver, Reactor, Sources, Stop, Turn};
use crate::sys::clock::Clock;
use engine::{Instant, Nanos};
use rustix::time::timerfd_gettime;

/// Answers `late` by another thread, `never` not at all, and anything else with that many bytes.
struct Daemon {
    control: Control,
    stop: Stop,
    turns_busy: u32,
    is_over: bool,
}

impl Driver for Daemon {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.control.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        if self.is_over {
            return Ok(Turn::Done);
        }
        let stop = self.stop.clone();
        let answer = move |request: Request<'_>| match request.line {
            "late" => {
                let (sender, receiver) = channel();
                let stop = stop.clone();
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(50));
                    sender.send("here".to_owned()).unwrap();
                    stop.wake();
                });
                Reply::Later(receiver)
            }
            "never" => Reply::Later(channel().1),
            count => Reply::Now("x".repeat(count.parse().unwrap())),
        };
        let is_busy = self.control.turn(context.sources(), answer)?;
        self.turns_busy += u32::from(is_busy);
        Ok(if is_busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_stop(&mut self, _now: Instant) {
        self.is_over = true;
    }
}

/// Asks a daemon, with `ask`; returns its result, and the daemon's busy turns.
fn served<T: Send + 'static>(name: &str, ask: impl FnOnce(PathBuf) -> T + Send + 'static) -> (T, u32) {
    let path = std::env::temp_dir().join(format!("farlane-control-{name}-{}", std::process::id()));
    let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO).unwrap();
    let (control, stop) = (Control::bind(&path).unwrap(), reactor.stop());
    let mut daemon = Daemon { control, stop: stop.clone(), turns_busy: 0, is_over: false };
    let asking = thread::spawn(move || {
        let result = ask(path);
        stop.ask();
        result
    });
    reactor.run(&mut daemon).unwrap();
    (asking.join().unwrap(), daemon.turns_busy)
}

#[test]
fn an_answer_may_come_later_from_another_thread() {
    let (answers, _) = served("late", |path| {
        let other = path.clone();
        let waiting = thread::spawn(move || super::ask(&other, "late"));
        // Others are answered meanwhile.
        let prompt = super::ask(&path, "3");
        (waiting.join().unwrap(), prompt, super::ask(&path, "never"))
    });
    assert_eq!((answers.0.unwrap(), answers.1.unwrap()), ("here".to_owned(), "xxx".to_owned()));
    assert_eq!(answers.2.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

/// A control socket that the test turns by hand, and the reactor whose sources it uses.
fn by_hand(name: &str) -> (Control, Reactor) {
    let path = std::env::temp_dir().join(format!("farlane-control-{name}-{}", std::process::id()));
    (Control::bind(&path).unwrap(), Reactor::new(Clock::start(), Nanos::ZERO).unwrap())
}

/// Turns `control`, which answers each request with the same line; returns whether it was busy.
fn turn(control: &mut Control, reactor: &Reactor) -> bool {
    control.turn(reactor.sources(), |_: Request<'_>| "here".to_owned()).unwrap()
}

fn connect(control: &Control) -> UnixStream {
    let client = UnixStream::connect(control.path()).unwrap();
    client.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    client
}

fn heard(client: &mut UnixStream) -> String {
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_client_that_waits_gets_the_place_of_one_that_leaves() {
    let (mut control, reactor) = by_hand("places");
    let mut clients: Vec<_> = (0..CLIENTS_MAX).map(|_| connect(&control)).collect();
    assert!(turn(&mut control, &reactor));
    let mut waiting = connect(&control);
    waiting.write_all(b"anybody?\n").unwrap();
    assert!(!turn(&mut control, &reactor), "nobody has left");
    drop(clients.pop());
    assert!(turn(&mut control, &reactor), "there is a place, so there is more to do");
    assert!(turn(&mut control, &reactor));
    assert_eq!(heard(&mut waiting), "here\n");
}

#[test]
fn a_client_that_has_said_all_is_answered() {
    let (mut control, reactor) = by_hand("ended");
    let (mut whole, mut half) = (connect(&control), connect(&control));
    whole.write_all(b"anybody?\n").unwrap();
    half.write_all(b"any").unwrap();
    for client in [&whole, &half] {
        client.shutdown(Shutdown::Write).unwrap();
    }
    assert!(turn(&mut control, &reactor));
    assert_eq!((heard(&mut whole), heard(&mut half)), ("here\n".to_owned(), String::new()));
}

#[test]
fn a_client_that_asks_nothing_loses_its_place() {
    let (mut control, reactor) = by_hand("idle");
    let (mut idle, mut late) = (connect(&control), connect(&control));
    assert!(turn(&mut control, &reactor));
    assert!(!turn(&mut control, &reactor), "they may still ask");
    assert!(timerfd_gettime(&control.timer).unwrap().it_value.tv_sec > 0, "the loop will be woken");
    for client in &mut control.clients {
        client.since -= ASK_WITHIN;
    }
    late.write_all(b"anybody?\n").unwrap();
    assert!(turn(&mut control, &reactor));
    assert_eq!((heard(&mut idle), heard(&mut late)), (String::new(), "here\n".to_owned()));
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_loses_its_place() {
    let (mut control, reactor) = by_hand("untaken");
    let turn = |control: &mut Control| {
        control.turn(reactor.sources(), |_: Request<'_>| "x".repeat(4 << 20)).unwrap()
    };
    let mut clients = [connect(&control), connect(&control)];
    clients.iter_mut().for_each(|client| client.write_all(b"much?\n").unwrap());
    while turn(&mut control) {}
    assert_eq!(control.clients.len(), 2, "they may still read");
    assert!(timerfd_gettime(&control.timer).unwrap().it_value.tv_sec > 0, "the loop will be woken");
    for client in &mut control.clients {
        client.since -= TAKE_WITHIN;
    }
    clients[0].set_nonblocking(true).unwrap();
    let mut room = vec![0; 64 << 10];
    while let Ok(1..) = clients[0].read(&mut room) {}
    turn(&mut control);
    assert_eq!(control.clients.len(), 1, "one of them has read on");
    assert!(control.clients[0].since.elapsed() < TAKE_WITHIN);
}

#[test]
fn a_program_that_takes_no_connections_is_not_waited_for_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stopped");
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match dial(&path, Duration::from_millis(20)) {
            Ok(socket) => waiting.push(socket),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(!waiting.is_empty());
}

#[test]
fn an_answer_that_never_ends_is_not_waited_for_for_ever() {
    let (socket, mut slow) = UnixStream::pair().unwrap();
    let sending = thread::spawn(move || {
        // Until the reading end is closed.
        while slow.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let mut patient = Patient { socket, until: std::time::Instant::now() + Duration::from_millis(50) };
    let error = patient.read_to_string(&mut String::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    drop(patient);
    sending.join().unwrap();
}

#[test]
fn an_answer_that_stops_is_not_waited_for_for_ever() {
    let (socket, _silent) = UnixStream::pair().unwrap();
    let mut patient = Patient { socket, until: std::time::Instant::now() + Duration::from_millis(50) };
    let error = patient.read_to_string(&mut String::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

#[test]
fn a_long_answer_is_sent_in_pieces_of_which_each_takes_a_turn() {
    // At the edges of a piece, too; and the longest that a client takes.
    let most = usize::try_from(ANSWER_BYTES_MAX).unwrap() - 1;
    let lengths = [0, 1, SENT_PER_TURN - 1, SENT_PER_TURN, SENT_PER_TURN + 1, 5 << 20, most];
    for length in lengths {
        let (answer, turns) = served(&length.to_string(), move |path| super::ask(&path, &length.to_string()));
        assert_eq!(answer.unwrap().len(), length);
        assert!(turns as usize >= length.div_ceil(SENT_PER_TURN), "{turns} turns for {length} bytes");
    }
}
