//! `farlane measure rdma`: a server and its clients, over both providers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::support::{Export, FARLANE, fail, json, succeed};

fn serve(provider: &str, address: &str) -> Export {
    serve_with(provider, address, &[])
}

fn serve_with(provider: &str, address: &str, options: &[&str]) -> Export {
    let mut command = Command::new(&*FARLANE);
    command.args(["measure", "rdma", "serve", "--json", "--provider", provider, "--listen", address]);
    command.args(options);
    Export::of(command)
}

fn address(server: &Export) -> String {
    server.announcement["listening"].as_str().unwrap().to_owned()
}

/// Measures each verb with `options`, and checks the report.
fn measure(server: &str, options: &[&str]) {
    for verb in ["send", "write", "read"] {
        let given = [&[server, "--verb", verb, "--iters", "200", "--json"][..], options].concat();
        let found = json(&[&["measure", "rdma", "ping"][..], &given[..]].concat());
        assert_eq!(
            (&found["rows"][0]["verb"], &found["rows"][0]["iterations"]),
            (&verb.into(), &200.into()),
            "{found}"
        );
        let at = |name: &str| found["rows"][0]["latency_ns"][name].as_f64().unwrap();
        let least = found["rows"][0]["t_min_ns"].as_f64().unwrap();
        assert!(0.0 < least && least <= at("p50") && at("p50") <= at("max"), "{found}");
        for size in ["1", "4k", "1MiB"] {
            let found = json(&[&["measure", "rdma", "bench"][..], &given[..], &["--size", size]].concat());
            let (average, peak) = (
                found["rows"][0]["mib_s"].as_f64().unwrap(),
                found["rows"][0]["peak_mib_s"].as_f64().unwrap(),
            );
            assert!(0.0 < average && average <= peak, "{found}");
        }
    }
}

#[test]
fn iwarp_is_measured() {
    let server = serve("iwarp", "127.0.0.1:0");
    measure(&address(&server), &[]);
    let table = succeed(&["measure", "rdma", "ping", &address(&server), "--iters", "20"]);
    assert!(table.contains("t_typical[usec]") && table.lines().count() == 2, "{table}");
    let table = succeed(&["measure", "rdma", "bench", &address(&server), "--iters", "20", "--all"]);
    assert!(table.contains("BW average[MiB/sec]") && table.lines().count() == 21, "{table}");
}

#[test]
fn roce_is_measured() {
    // Addresses of the loopback interface that no other test has.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let [server, local] = [111, 112].map(|net| format!("127.{net}.{high}.{}", low.max(1)));
    let server = serve("roce", &format!("{server}:18515"));
    measure(&address(&server), &["--provider", "roce", "--local", &local]);
}

/// Measures with a server of perftest's protocol, for each test that `programs` names.
fn measure_as_perftest(provider: &str, at: &str, programs: &[&str], options: &[&str]) {
    for program in programs {
        let server = serve_with(provider, at, &["--perftest", program, "--size", "5000", "--iters", "300"]);
        let mut words = program.split('_').skip(1);
        let (verb, mode) = (words.next().unwrap(), words.next().unwrap());
        let action = if mode == "lat" { "ping" } else { "bench" };
        let test = ["--peer", "perftest", "--verb", verb, "--size", "5000", "--iters", "300", "--json"];
        for _ in 0..2 {
            let found = json(&[&["measure", "rdma", action, &address(&server)], &test[..], options].concat());
            let row = &found["rows"][0];
            assert_eq!((&row["verb"], &row["bytes"]), (&verb.into(), &5000.into()), "{found}");
        }
        // The same server still serves ours.
        let found = json(
            &[&["measure", "rdma", "ping", &address(&server), "--iters", "20", "--json"], options].concat(),
        );
        assert_eq!(found["rows"][0]["iterations"], 20, "{found}");
    }
}

#[test]
fn both_ends_speak_as_perftest_does() {
    let programs = ["ib_send_lat", "ib_send_bw", "ib_write_bw", "ib_read_lat", "ib_read_bw"];
    measure_as_perftest("iwarp", "127.0.0.1:0", &programs, &[]);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let [at, local] = [113, 114].map(|net| format!("127.{net}.{high}.{}", low.max(1)));
    let programs = [&programs[..], &["ib_write_lat"]].concat();
    measure_as_perftest(
        "roce",
        &format!("{at}:18515"),
        &programs,
        &["--provider", "roce", "--local", &local],
    );
}

#[test]
fn our_server_answers_our_rping() {
    let server = serve("iwarp", "127.0.0.1:0");
    let at = address(&server);
    let found = json(&[
        "measure", "rdma", "ping", &at, "--peer", "rping", "--size", "60000", "--iters", "50", "--json",
    ]);
    let row = &found["rows"][0];
    assert_eq!((&row["verb"], &row["iterations"]), (&"rping".into(), &50.into()), "{found}");
}

#[test]
fn what_other_peoples_programs_do_not_do_is_refused_with_a_reason() {
    let at = "127.0.0.1:1";
    for (given, why) in [
        (&["bench", at, "--peer", "rping"][..], "no bandwidth"),
        (&["ping", at, "--peer", "rping", "--verb", "read"], "no --verb"),
        (&["ping", at, "--peer", "perftest", "--all"], "after one test"),
        (&["serve", "--listen", "127.0.0.1:0", "--perftest", "ib_write_lat"], "RFC 5044"),
        (&["serve", "--listen", "127.0.0.1:0", "--size", "4"], "--perftest"),
    ] {
        let said = fail(&[&["measure", "rdma"], given].concat());
        assert!(said.contains(why), "{given:?}: {said}");
    }
    // A server of ours without its option for perftest takes its client for rping, and ends it.
    let server = serve("iwarp", "127.0.0.1:0");
    let said = fail(&["measure", "rdma", "ping", &address(&server), "--peer", "perftest", "--timeout", "5s"]);
    assert!(said.contains("with -R"), "{said}");
}

#[test]
fn garbage_does_no_harm_and_a_killed_server_is_reported() {
    let mut server = serve("iwarp", "127.0.0.1:0");
    let at = address(&server);
    for garbage in [&[0xff; 4096][..], b"GET / HTTP/1.1\r\n\r\n", b"MPA ID Req Frame\x40\x01\x00\x00"] {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        // A reset says as well as an end that the server has closed the connection.
        let _ = stream.read_to_end(&mut said);
    }
    measure(&at, &[]);
    let endless = ["rdma", "ping", &at, "--iters", "100000000", "--json"];
    let mut client =
        Command::new(&*FARLANE).args(endless).stderr(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(client.try_wait().unwrap().is_none(), "the measurement goes on");
    server.kill();
    let ended = client.wait_with_output().unwrap();
    assert!(!ended.status.success() && String::from_utf8_lossy(&ended.stderr).contains(&at));
    let refused = fail(&["measure", "rdma", "ping", &at]);
    assert!(refused.contains("farlane measure rdma serve"), "{refused}");
}
