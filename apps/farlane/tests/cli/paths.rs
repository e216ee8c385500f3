//! `--second-path`, one far end over two paths at once; TCP's own options; and `--spread`, several
//! connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::support::proxy::Proxy;
use crate::support::running::Running;
use crate::support::{Export, FARLANE, fail, json};
use serde_json::Value;
use tempfile::TempDir;

/// Starts a network in front of `to`, with a link file whose text is `link`.
fn network(to: &str, link: &str) -> (Export, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("link.toml");
    std::fs::write(&path, link).unwrap();
    let mut command = Command::new(&*FARLANE);
    command.args(["model", "emulate", "--connect", to, "--json", "--link"]).arg(path);
    (Export::of(command), directory)
}

/// Starts `farlane bench` with verified reads and writes over the paths `first` and `second`.
fn bench(first: &str, second: &str, length: &str) -> Running {
    let url = format!("tcp://{first}");
    let what = ["--rw", "randrw", "--bs", "16k", "--iodepth", "8", "--size", "4MiB", "--verify", "--json"];
    Running::start(&[&["bench", &url, "--second-path", second, "--runtime", length], &what[..]].concat())
}

fn verified(bench: &Value) {
    assert!(bench["commands"].as_u64().unwrap() > 0, "{bench}");
    assert_eq!((&bench["verified"], &bench["errors"]), (&true.into(), &0.into()), "{bench}");
}

const SLOW: &str = "[link]\nlatency = \"20ms\"\nrate = \"100Mbit/s\"\n";
const FAST: &str = "[link]\nlatency = \"2ms\"\nrate = \"1Gbit/s\"\n";

#[test]
fn a_command_takes_the_time_of_the_faster_path() {
    let far = Export::start(&["--ram", "1MiB"]);
    let ((slow, _slow), (fast, _fast)) = (network(&far.address, SLOW), network(&far.address, FAST));
    for (first, second) in [(&slow, &fast), (&fast, &slow)] {
        let ping = json(&[
            "measure",
            "ping",
            &first.url(),
            "--second-path",
            &second.address,
            "--count",
            "20",
            "--json",
        ]);
        let median = ping["latency_ns"]["p50"].as_u64().unwrap();
        // The slower path alone takes 40 ms.
        assert!((4_000_000..36_000_000).contains(&median), "{ping}");
    }
}

#[test]
fn a_path_that_ends_or_stops_costs_nothing_but_itself() {
    let far = Export::start(&["--ram", "16MiB"]);
    let ((mut one, _one), (mut other, _other)) = (network(&far.address, FAST), network(&far.address, SLOW));
    let running = bench(&one.address, &other.address, "4s");
    std::thread::sleep(Duration::from_millis(1_500));
    // End the faster path for good: everything came by it.
    one.kill();
    let (reported, said) = running.json();
    verified(&reported);
    assert!(!said.contains("interrupted") && !said.contains("down"), "{said}");
    assert!(said.contains("path 1 is away"), "{said}");
    assert!(!far.said().contains("interrupted"), "{}", far.said());
    // A path that is not there at the start is no obstacle either.
    let (reported, said) = bench(&one.address, &far.address, "1s").json();
    verified(&reported);
    assert!(!said.contains("interrupted") && said.contains("path 1 is away"), "{said}");
    other.kill();
}

#[test]
fn a_path_that_flaps_joins_again() {
    let far = Export::start(&["--ram", "16MiB"]);
    let ((mut one, _one), (other, _other)) = (network(&far.address, FAST), network(&far.address, SLOW));
    let running = bench(&one.address, &other.address, "6s");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1_200));
        let address = one.address.clone();
        one.kill();
        let mut command = Command::new(&*FARLANE);
        command.args([
            "model",
            "emulate",
            "--listen",
            &address,
            "--connect",
            &far.address,
            "--json",
            "--link",
        ]);
        one = Export::of({
            command.arg(_one.path().join("link.toml"));
            command
        });
    }
    let (reported, said) = running.json();
    verified(&reported);
    assert!(!said.contains("interrupted"), "{said}");
    assert!(said.contains("path 1 is away") && said.contains("path 1 is back"), "{said}");
    let (status, said) = one.end_by("INT");
    assert_eq!(status, Some(0), "{said}");
    // Packets passed over the path after it was back.
    loop {
        let counters = one.next_line();
        if counters["end"] == true {
            assert!(counters["there"]["frames"].as_u64().unwrap() > 5, "{counters}");
            break;
        }
    }
}

#[test]
fn a_connection_of_neither_path_nor_session_is_refused_and_does_no_harm() {
    let far = Export::start(&["--ram", "16MiB"]);
    let running = bench(&far.address, &far.address, "2s");
    let send = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(&far.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = socket.write_all(bytes);
        let mut answer = Vec::new();
        // The connection may be reset, which loses the unread bytes.
        let _ = socket.read_to_end(&mut answer);
        answer
    };
    let preamble = |version: u8, path: u8, token: u8| {
        [&b"FARPATH\n"[..], &[version, path, 0, 0, 0, 0, 0, 0], &[9; 16], &[token; 8]].concat()
    };
    // A session refuses what is no session: kind 3.
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), preamble(2, 0, 0), preamble(1, 4, 0)] {
        assert_eq!(send(&bytes).first(), Some(&3), "{bytes:?}");
    }
    // A path of a stream that does not exist is closed without an answer.
    assert!(send(&preamble(1, 0, 7)).is_empty());
    // A path whose records are invalid is closed. Its preamble may be answered first.
    let answer = send(&[preamble(1, 1, 0), vec![0xff; 100]].concat());
    assert!(answer.is_empty() || answer.starts_with(b"FARPATH\n\x01\x01"), "{answer:?}");
    let (reported, said) = running.json();
    verified(&reported);
    assert!(!said.contains("interrupted"), "{said}");
}

#[test]
fn options_of_tcp_do_no_harm_and_what_the_kernel_lacks_is_refused() {
    let far = Export::start(&["--ram", "16MiB", "--thin", "--congestion", "reno"]);
    let url = far.url();
    let what = ["--rw", "randwrite", "--runtime", "300ms", "--verify", "--json"];
    let reported = json(&[&["bench", &url, "--thin", "--congestion", "cubic"], &what[..]].concat());
    assert!(reported.is_object(), "{reported}");
    let output = crate::support::farlane(&[&["bench", &url, "--rto-min", "5ms"], &what[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("rto_min 5ms"), "{said}");
    let said = fail(&["measure", "ping", &url, "--congestion", "pigeon"]);
    assert!(said.contains("--congestion") && said.contains("tcp_pigeon"), "{said}");
    let said = fail(&["observe", "lspci", &url, &url, "--second-path", "127.0.0.1:1"]);
    assert!(said.contains("--second-path"), "{said}");
    let four = ["--second-path", "127.0.0.1:1"].repeat(4);
    let said = fail(&[&["measure", "ping", &url][..], &four].concat());
    assert!(said.contains("at most 4"), "{said}");
    for (url, second, named) in [
        (&*url, &["--second-path", "127.0.0.1:1"][..], "--second-path"),
        ("quic://127.0.0.1:1?key=any", &[], "quic://"),
        ("vfio-user:/nowhere", &[], "vfio-user:"),
        (&*url, &["--no-lookahead"], "--no-lookahead"),
    ] {
        let said = fail(&[&["nvme", "identify", url, "--spread", "3"], second].concat());
        assert!(said.contains("--spread") && said.contains(named), "{said}");
    }
    let said = fail(&["attach", "quic://127.0.0.1:1?key=any", "--vfio-user", "/nowhere/s", "--spread", "3"]);
    assert!(said.contains("--spread") && said.contains("quic://"), "{said}");
    for count in ["0", "9"] {
        let said = fail(&["bench", &url, "--spread", count]);
        assert!(said.contains("--spread") && said.contains("1..=8"), "{said}");
    }
}

/// Starts `farlane bench` with verified reads and writes over `count` connections.
fn spread(url: &str, count: &str, length: &str) -> Running {
    let what = ["--rw", "randrw", "--iodepth", "16", "--size", "4MiB", "--verify", "--json"];
    Running::start(&[&["bench", url, "--spread", count, "--runtime", length], &what[..]].concat())
}

#[test]
fn queues_are_spread_over_connections() {
    let far = Export::start(&["--ram", "16MiB"]);
    for count in ["2", "5", "8"] {
        let (reported, _) = spread(&far.url(), count, "300ms").json();
        verified(&reported);
        let connections = reported["connections"].as_array().unwrap();
        assert_eq!(connections.len(), count.parse::<usize>().unwrap(), "{reported}");
        assert!(connections.iter().all(|of| of["packets_received"].as_u64().unwrap() > 10), "{reported}");
    }
}

#[test]
fn a_connection_of_several_that_is_cut_goes_unnoticed() {
    let far = Export::start(&["--ram", "16MiB"]);
    // Cut the third connection, and the first one that takes its place.
    let network = Proxy::to(&far.address, |number, _| [2, 4].contains(&number).then_some(200_000));
    let (reported, said) = spread(&network.url(), "4", "2s").json();
    verified(&reported);
    assert_eq!(network.cuts(), 2, "{reported}");
    assert!(!said.contains("interrupted") && !said.contains("down"), "{said}");
    assert!(!far.said().contains("interrupted"), "{}", far.said());
    // Cut any of the connections, including the main one.
    let network = Proxy::cutting(&far.address, 12, 1 << 20, 6);
    let (reported, said) = spread(&network.url(), "4", "4s").json();
    verified(&reported);
    assert!(network.cuts() >= 12 && !said.contains("down"), "{} {said}", network.cuts());
}
