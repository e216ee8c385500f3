//! Serving with few descriptors: the hosts that are served go on, and connections beyond the limit
//! go without.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::running::{Running, Said, wait_until};
use crate::support::{Export, FARLANE, json};

const NQN: &str = "nqn.2026-01.io.farlane:bad-limits";
/// Limits of descriptors: far too few, values around the least that suffices, and what shells give.
const LIMITS: [u32; 9] = [8, 20, 32, 40, 48, 56, 64, 128, 1024];
/// How long a program may take to refuse.
const REFUSAL_MAX: Duration = Duration::from_secs(20);

/// `farlane` with `arguments`, limited to `limit` descriptors.
fn limited(limit: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\""), &FARLANE]).args(arguments);
    command
}

/// Checks that the program either says why it can't serve, or serves its host before, during and
/// after a crowd of connections. Returns whether it serves.
fn refuses_or_serves(limit: u32, arguments: &[&str], url: impl Fn(&Export) -> String) -> bool {
    let mut attempt = limited(limit, arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = Said::by(attempt.stdout.take().unwrap());
    let mut errors = Said::by(attempt.stderr.take().unwrap());
    let started = std::time::Instant::now();
    while out.so_far().is_empty() {
        if let Some(status) = attempt.try_wait().unwrap() {
            let said = errors.all().split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(status.code(), Some(1), "{limit}: {said}");
            let wanted = format!("may have {limit} descriptors");
            assert!(said.contains(&wanted) && said.contains("ulimit -n"), "{limit}: {said}");
            return false;
        }
        assert!(started.elapsed() < REFUSAL_MAX, "{limit}: neither refuses nor serves");
        std::thread::sleep(Duration::from_millis(5));
    }
    attempt.kill().unwrap();
    attempt.wait().unwrap();
    drop(out.all());

    let server = Export::of(limited(limit, arguments));
    let (url, address) = (url(&server), server.address.clone());
    let bench =
        ["bench", "--json", "--rw", "randwrite", "--verify", "--iodepth", "4", "--runtime", "1500ms", &url];
    let host = Running::start(&bench);
    crate::support::running::wait_until("the host is served", || {
        TcpStream::connect(&address).is_ok()
            && (server.said().contains("link up") || server.said().contains("has queue"))
    });
    // Silent strangers, more than there are descriptors. Each one that leaves makes room for
    // another.
    let mut strangers: Vec<TcpStream> = Vec::new();
    for number in 0..3 * limit {
        if let Ok(stranger) = TcpStream::connect(&address) {
            strangers.push(stranger);
        }
        if number % 7 == 0 && !strangers.is_empty() {
            strangers.swap_remove(number as usize % strangers.len());
        }
    }
    let (report, errors) = host.json();
    assert_eq!(report["errors"].as_u64(), Some(0), "{limit}: {report} {errors}");
    drop(strangers);
    // Now there is room again.
    crate::support::running::wait_until("the next host is served", || {
        crate::support::farlane(&["nvme", "identify", "--json", "--timeout", "5s", &url]).status.success()
    });
    let mut server = server;
    let (status, said) = server.end_by("TERM");
    assert_eq!(status, Some(0), "{limit}: {said}");
    true
}

fn every_limit(arguments: &[&str], url: impl Fn(&Export) -> String) {
    let served: Vec<_> = LIMITS.iter().map(|limit| refuses_or_serves(*limit, arguments, &url)).collect();
    assert!(served.is_sorted(), "{LIMITS:?} {served:?}");
    assert!(!served[0] && served[6], "{LIMITS:?} {served:?}");
}

#[test]
fn a_target_with_few_descriptors_refuses_or_serves() {
    let arguments = ["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "16MiB"];
    every_limit(&arguments, |target| format!("nvme-tcp://{}/{NQN}", target.address));
}

#[test]
fn a_far_end_with_few_descriptors_refuses_or_serves() {
    every_limit(&["export", "--json", "--listen", "127.0.0.1:0", "--ram", "16MiB"], Export::url);
}

/// Silent connections must not take the descriptors that the control socket needs: a thousand of
/// them used to end the target.
#[test]
fn silent_connections_do_not_keep_a_target_from_answering_its_user() {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("control");
    let path = control.to_str().unwrap();
    let arguments =
        ["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "1MiB", "--control", path];
    let target = Export::of(limited(96, &arguments));
    let strangers: Vec<_> = (0..200).map(|_| TcpStream::connect(&target.address).unwrap()).collect();
    target.wait_for("have not authenticated");
    for _ in 0..3 {
        let status = json(&["target", "status", "--json", "--control", path]);
        assert!(status["connections"].as_u64().is_some_and(|count| count <= 96 / 8), "{status}");
    }
    // The target logs that once, however many connections come.
    assert_eq!(target.said().matches("have not authenticated").count(), 1, "{}", target.said());
    drop(strangers);
}

/// The program as a terminal starts it: tests under `nohup` would make it ignore SIGHUP.
fn with_a_terminal(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", &FARLANE]).args(arguments);
    command
}

#[test]
fn a_terminal_that_is_gone_ends_what_serves_and_a_signal_alone_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link.toml");
    std::fs::write(&link, "[link]\nlatency = \"1ms\"\n").unwrap();
    let far = Export::start(&["--ram", "1MiB"]);
    let emulate = [
        "model",
        "emulate",
        "--json",
        "--link",
        link.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--connect",
    ];
    let commands: [&[&str]; 3] = [
        &["export", "--json", "--listen", "127.0.0.1:0", "--ram", "1MiB"],
        &["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "1MiB"],
        &[&emulate[..], &[&far.address]].concat(),
    ];
    for arguments in commands {
        let mut served = Export::of(with_a_terminal(arguments));
        crate::support::running::signal(served.id(), "HUP");
        served.wait_for("SIGHUP: this process has no configuration file to read again");
        assert_eq!(served.end_by("TERM").0, Some(0), "{arguments:?}");

        // The terminal goes with the program that made it.
        let control = directory.path().join("control");
        let (program, control) = (FARLANE.as_str(), control.to_str().unwrap());
        let words = [&["exec", "env", "--default-signal=HUP", program], arguments, &["--control", control]];
        let mut terminal = Command::new("script");
        let mut terminal = Export::of({
            terminal.args(["--quiet", "--command", &words.concat().join(" "), "/dev/null"]);
            terminal
        });
        let process = json(&["observe", "status", control, "--json"])["pid"].as_u64().unwrap();
        terminal.kill();
        let place = format!("/proc/{process}/cmdline");
        wait_until("what served there ends", || {
            std::fs::read(&place).is_ok_and(|line| line.is_empty()) || !std::path::Path::new(&place).exists()
        });
        assert!(!std::path::Path::new(control).exists(), "{arguments:?} ends in good order");
    }
    // Under nohup the program goes on.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", &FARLANE]).args(commands[0]);
    let mut far = Export::of(command);
    crate::support::running::signal(far.id(), "HUP");
    json(&["nvme", "identify", "--json", &far.url()]);
    assert_eq!(far.end_by("TERM").0, Some(0));
}

#[test]
fn a_target_reads_its_file_again_when_it_is_hung_up() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("target.toml");
    let offer = |ram: &str| {
        let text = format!(
            "[[port]]\nlisten = \"127.0.0.1:0\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             [[subsystem.namespace]]\nid = 1\nram = \"{ram}\"\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    offer("1MiB");
    let control = directory.path().join("control");
    let (file, control) = (file.to_str().unwrap(), control.to_str().unwrap());
    let arguments = ["target", "--json", "--config", file, "--control", control];
    let mut target = Export::of(with_a_terminal(&arguments));
    offer("2MiB");
    crate::support::running::signal(target.id(), "HUP");
    target.wait_for("namespace 1 has 2097152 B");
    std::fs::write(file, "port = 1").unwrap();
    crate::support::running::signal(target.id(), "HUP");
    target.wait_for("nothing has changed");
    assert_eq!(target.end_by("TERM").0, Some(0));
}

/// Connections beside a host at work, as far as this machine allows one process so many.
const CROWD: usize = 10_000;
/// Descriptors that a test needs for itself.
const OWN: usize = 200;
/// How much longer the host may wait beside the crowd than without it.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// How many attempts there are: other work on this machine keeps a host waiting too, but not each
/// time.
const ATTEMPTS: usize = 4;

/// The longest time that a command of a verified load took. `meanwhile` runs beside the load.
fn longest(url: &str, meanwhile: impl FnOnce()) -> Duration {
    let load = ["--rw", "randrw", "--verify", "--iodepth", "8", "--runtime", "3s"];
    let host = Running::start(&[&["bench", "--json", url][..], &load].concat());
    meanwhile();
    let (report, errors) = host.json();
    assert_eq!(report["errors"].as_u64(), Some(0), "{report} {errors}");
    Duration::from_nanos(report["latency_ns"]["max"].as_u64().unwrap())
}

#[test]
fn ten_thousand_connections_keep_a_host_from_nothing() {
    live::sys::descriptors::prepare(0).unwrap();
    let limit = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limit.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let most = line.split_ascii_whitespace().nth(3).and_then(|most| most.parse().ok()).unwrap_or(CROWD);
    let crowd = CROWD.min(most.saturating_sub(OWN));
    if crowd < CROWD {
        eprintln!(
            "LESS THAN WANTED: {crowd} connections, for a process may have {most} descriptors (ulimit -Hn)"
        );
    }
    let target = Export::of({
        let mut command = Command::new(&*FARLANE);
        command.args(["target", "--json", "--listen", "127.0.0.1:0", "--nqn", NQN, "--ram", "16MiB"]);
        command
    });
    let url = format!("nvme-tcp://{}/{NQN}", target.address);
    let mut waits = Vec::new();
    for _ in 0..ATTEMPTS {
        let alone = longest(&url, || ());
        let mut strangers = Vec::new();
        let beside = longest(&url, || {
            strangers.extend((0..crowd).map_while(|_| TcpStream::connect(&target.address).ok()));
        });
        assert_eq!(strangers.len(), crowd);
        waits.push((alone, beside));
        if beside <= alone + WAIT_MAX {
            return;
        }
    }
    panic!("alone and beside {crowd} connections, the host waited for up to {waits:?}");
}
