//! A port and a QEMU in memory that says what QEMU 11.1.3 says.

use engine::{Engine, Instant, Nanos, Rng};
use serde_json::{Value, json};

use super::port::{Config, Event, Input, Output, Plug, Port};
use super::problem::Problem;
use super::qmp::LINE_MAX;

struct Bench {
    port: Port,
    now: Instant,
    /// What the port has sent and QEMU has not answered.
    asked: Vec<Value>,
    events: Vec<Event>,
    /// Connections that the port asked for and closed.
    connects: usize,
    closes: usize,
}

impl Bench {
    fn new() -> Self {
        let config = Config { port: "dn1".to_owned(), socket: "/run/ssd".to_owned() };
        let now = Instant::from_nanos(1);
        let port = Port::new(config);
        let mut bench = Self { port, now, asked: Vec::new(), events: Vec::new(), connects: 0, closes: 0 };
        bench.pass(Nanos::ZERO);
        bench
    }

    fn pass(&mut self, length: Nanos) {
        self.now = self.now + length;
        if self.port.poll_timeout().is_some_and(|at| at <= self.now) {
            self.port.handle_timeout(self.now);
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.port.poll_output() {
            match output {
                Output::Connect => self.connects += 1,
                Output::Send(line) => self.asked.push(serde_json::from_slice(&line).unwrap()),
                Output::Close => self.closes += 1,
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.port.handle_input(self.now, input);
        self.drain();
    }

    fn says(&mut self, message: &Value) {
        self.input(Input::Received(format!("{message}\r\n").as_bytes()));
    }

    /// The command that QEMU has now, with its arguments.
    fn command(&mut self) -> (String, Value, u64) {
        assert_eq!(self.asked.len(), 1, "{:?}", self.asked);
        let asked = self.asked.remove(0);
        let id = asked["id"].as_u64().unwrap();
        (asked["execute"].as_str().unwrap().to_owned(), asked["arguments"].clone(), id)
    }

    fn answer(&mut self, command: &str, result: &Value) {
        let (name, _, id) = self.command();
        assert_eq!(name, command);
        self.says(&json!({"return": result, "id": id}));
    }

    fn refuse(&mut self, command: &str, class: &str) {
        let (name, _, id) = self.command();
        assert_eq!(name, command);
        self.says(&json!({"error": {"class": class, "desc": "words"}, "id": id}));
    }

    fn deleted(&mut self) {
        let data = json!({"device": "farlane-dn1", "path": "/machine/peripheral/farlane-dn1"});
        self.says(&json!({"event": "DEVICE_DELETED", "data": data}));
    }

    fn function(&mut self, is_usable: Option<bool>, has_client: bool) {
        self.input(Input::Function { is_usable, has_client });
    }

    /// A port that QEMU has, with these members below it.
    fn ready(members: &Value) -> Self {
        let mut bench = Self::new();
        bench.input(Input::Connected);
        bench.says(&json!({"QMP": {"version": {}, "capabilities": ["oob"]}}));
        bench.answer("qmp_capabilities", &json!({}));
        bench.answer("qom-get", &json!(true));
        bench.answer("qom-list", members);
        bench
    }

    fn empty() -> Self {
        let mut bench = Self::ready(&json!([{"name": "hotplug-handler", "type": "link<hotplug-handler>"}]));
        assert_eq!(bench.port.plug(), Plug::Empty);
        assert_eq!(std::mem::take(&mut bench.events), [Event::Ready { by_acpi: false }]);
        bench
    }

    fn plugged() -> Self {
        let mut bench = Self::empty();
        bench.function(Some(true), false);
        assert_eq!(bench.port.plug(), Plug::Plugging);
        let (name, arguments, id) = bench.command();
        assert_eq!(name, "device_add");
        let socket = json!({"type": "unix", "path": "/run/ssd"});
        let expected =
            json!({"driver": "vfio-user-pci", "id": "farlane-dn1", "bus": "dn1", "socket": socket});
        assert_eq!(arguments, expected);
        bench.function(Some(true), true);
        bench.says(&json!({"return": {}, "id": id}));
        assert_eq!(bench.port.plug(), Plug::Plugged);
        assert_eq!(std::mem::take(&mut bench.events), [Event::Plugged]);
        bench
    }
}

#[test]
fn a_function_that_comes_and_goes_is_plugged_in_and_unplugged() {
    let mut bench = Bench::plugged();
    // A connection that is only held changes nothing.
    bench.function(None, true);
    assert!(bench.asked.is_empty());
    bench.function(Some(false), true);
    bench.answer("device_del", &json!({}));
    assert_eq!(bench.port.plug(), Plug::Unplugging);
    // The function is back before the guest has let it go.
    bench.function(Some(true), true);
    assert!(bench.asked.is_empty());
    bench.function(Some(true), false);
    bench.deleted();
    bench.answer("device_add", &json!({}));
    assert_eq!(bench.events, [Event::Unplugging, Event::Unplugged, Event::Plugged]);
    let counts = bench.port.statistics();
    assert_eq!((counts.plugs, counts.unplugs, counts.refusals), (2, 1, 0));
}

#[test]
fn a_device_that_is_deleted_before_the_answer_is_out() {
    let mut bench = Bench::plugged();
    bench.function(Some(false), true);
    bench.deleted();
    bench.answer("device_del", &json!({}));
    assert_eq!(bench.port.plug(), Plug::Empty);
    assert!(bench.asked.is_empty());
    bench.function(Some(true), false);
    bench.answer("device_add", &json!({}));
}

#[test]
fn a_guest_that_keeps_the_device_is_asked_again_and_reported_once() {
    let mut bench = Bench::plugged();
    bench.function(Some(false), true);
    bench.answer("device_del", &json!({}));
    for _ in 0..3 {
        bench.pass(Nanos::from_secs(16));
        bench.refuse("device_del", "GenericError");
    }
    assert_eq!(bench.events, [Event::Unplugging, Event::Kept("words".to_owned())]);
    bench.pass(Nanos::from_secs(16));
    bench.refuse("device_del", "DeviceNotFound");
    assert_eq!(bench.port.plug(), Plug::Empty);
}

#[test]
fn a_device_that_another_client_has_removed_stays_out_until_the_far_end_was_away() {
    let mut bench = Bench::plugged();
    bench.deleted();
    bench.function(Some(true), false);
    bench.pass(Nanos::from_secs(60));
    assert!(bench.asked.is_empty());
    bench.function(Some(false), false);
    bench.function(Some(true), false);
    bench.answer("device_add", &json!({}));
    assert_eq!(bench.events, [Event::Removed, Event::Plugged]);
}

/// A process that was killed leaves its device behind, whose connection is gone.
#[test]
fn a_device_of_a_former_process_is_unplugged_first() {
    let child = json!([{"name": "hotplug-handler"}, {"name": "child[0]", "type": "link<vfio-user-pci>"}]);
    let mut bench = Bench::ready(&child);
    bench.answer("qom-list", &json!([]));
    assert_eq!(bench.port.plug(), Plug::Plugged);
    bench.function(Some(true), false);
    bench.pass(Nanos::from_secs(3));
    bench.answer("device_del", &json!({}));
    bench.deleted();
    bench.answer("device_add", &json!({}));
    assert_eq!(bench.port.plug(), Plug::Plugged);
}

#[test]
fn a_process_that_ends_asks_for_its_device_to_be_unplugged() {
    let mut bench = Bench::plugged();
    bench.port.let_go(bench.now);
    bench.drain();
    bench.answer("device_del", &json!({}));
    bench.port.let_go(bench.now);
    bench.drain();
    assert!(bench.asked.is_empty());
}

/// An answer of QEMU.
type Answer = fn(&mut Bench);

#[test]
fn a_port_that_cannot_be_used_is_named() {
    let occupied = json!([{"name": "hotplug-handler"}, {"name": "child[0]", "type": "link<nvme>"}]);
    let mut bench = Bench::ready(&occupied);
    bench.refuse("qom-list", "DeviceNotFound");
    let expected = Problem::Occupied { port: "dn1".to_owned(), device: "nvme".to_owned() };
    assert_eq!((bench.port.problem(), bench.closes), (Some(&expected), 1));

    let cold = || Problem::NotHotPluggable("dn1".to_owned());
    let answers: [(Answer, Problem); 3] = [
        (|bench| bench.answer("qom-get", &json!(false)), cold()),
        (|bench| bench.refuse("qom-get", "GenericError"), cold()),
        (|bench| bench.refuse("qom-get", "DeviceNotFound"), Problem::NoPort("dn1".to_owned())),
    ];
    for (answer, problem) in answers {
        let mut bench = Bench::new();
        bench.input(Input::Connected);
        bench.says(&json!({"QMP": {}}));
        bench.answer("qmp_capabilities", &json!({}));
        answer(&mut bench);
        assert_eq!(bench.port.problem(), Some(&problem));
        // The program ends with it; no event says the same again.
        assert_eq!(bench.events, []);
    }
}

#[test]
fn a_socket_that_is_not_qemus_ends_in_a_problem_and_not_in_a_wait() {
    let mut bench = Bench::new();
    bench.input(Input::Disconnected(Some("No such file or directory (os error 2)".to_owned())));
    assert!(matches!(bench.port.problem(), Some(Problem::Unreachable(_))));

    let mut bench = Bench::new();
    bench.input(Input::Connected);
    bench.pass(Nanos::from_secs(6));
    assert_eq!((bench.port.problem(), bench.closes), (Some(&Problem::Silent), 1));

    for garbage in [b"SSH-2.0-OpenSSH\n".to_vec(), vec![b'x'; LINE_MAX + 1]] {
        let mut bench = Bench::new();
        bench.input(Input::Connected);
        bench.input(Input::Received(&garbage));
        assert!(matches!(bench.port.problem(), Some(Problem::Garbage(_))));
        assert_eq!(bench.closes, 1);
    }
}

#[test]
fn a_qemu_that_quits_is_waited_for() {
    let mut bench = Bench::plugged();
    bench.function(Some(false), true);
    bench.input(Input::Disconnected(None));
    assert_eq!((bench.port.plug(), bench.port.problem()), (Plug::Unknown, Some(&Problem::Ended)));
    bench.asked.clear();
    for _ in 0..5 {
        bench.pass(Nanos::from_secs(2));
        bench.input(Input::Disconnected(Some("refused".to_owned())));
    }
    assert_eq!(bench.connects, 6);
    let problems = bench.events.iter().filter(|event| matches!(event, Event::Problem(_))).count();
    assert_eq!(problems, 2, "{:?}", bench.events);
    bench.pass(Nanos::from_secs(2));
    bench.function(Some(true), false);
    bench.input(Input::Connected);
    bench.says(&json!({"QMP": {}}));
    bench.answer("qmp_capabilities", &json!({}));
    bench.answer("qom-get", &json!(true));
    bench.answer("qom-list", &json!([{"name": "hotplug-handler"}]));
    bench.answer("device_add", &json!({}));
    assert_eq!((bench.port.plug(), bench.port.problem()), (Plug::Plugged, None));
}

#[test]
fn a_qemu_that_refuses_the_device_is_asked_again_later() {
    let mut bench = Bench::empty();
    bench.function(Some(true), false);
    bench.refuse("device_add", "GenericError");
    assert!(bench.asked.is_empty());
    bench.pass(Nanos::from_secs(6));
    bench.answer("device_add", &json!({}));
    let refused = Event::Problem(Problem::Refused("words".to_owned()));
    assert_eq!(bench.events, [refused, Event::Plugged]);
}

#[test]
fn whatever_comes_in_qemus_place_is_survived() {
    for seed in 0..200 {
        let mut bytes = [0; 2000];
        Rng::from_seed(seed).fill(&mut bytes);
        super::fuzz_qmp(&bytes);
    }
}
