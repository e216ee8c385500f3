//! `farlane rdma`: a server and whoever measures with it, over both providers.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use support::{Export, FARLANE, fail, json, succeed};

fn serve(provider: &str, address: &str) -> Export {
    let mut command = Command::new(FARLANE);
    command.args(["rdma", "serve", "--json", "--provider", provider, "--listen", address]);
    Export::of(command)
}

fn address(server: &Export) -> String {
    server.announcement["listening"].as_str().unwrap().to_owned()
}

/// Measures each verb with `options`, and looks at what is told.
fn measure(server: &str, options: &[&str]) {
    for verb in ["send", "write", "read"] {
        let given = [&[server, "--verb", verb, "--iters", "200", "--json"][..], options].concat();
        let found = json(&[&["rdma", "ping"][..], &given[..]].concat());
        assert_eq!(
            (&found["rows"][0]["verb"], &found["rows"][0]["iterations"]),
            (&verb.into(), &200.into()),
            "{found}"
        );
        let at = |name: &str| found["rows"][0]["latency_ns"][name].as_f64().unwrap();
        let least = found["rows"][0]["t_min_ns"].as_f64().unwrap();
        assert!(0.0 < least && least <= at("p50") && at("p50") <= at("max"), "{found}");
        for size in ["1", "4k", "1MiB"] {
            let found = json(&[&["rdma", "bench"][..], &given[..], &["--size", size]].concat());
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
    let table = succeed(&["rdma", "ping", &address(&server), "--iters", "20"]);
    assert!(table.contains("t_typical[usec]") && table.lines().count() == 2, "{table}");
    let table = succeed(&["rdma", "bench", &address(&server), "--iters", "20", "--all"]);
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

#[test]
fn garbage_harms_nobody_and_a_killed_server_is_told() {
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
        Command::new(FARLANE).args(endless).stderr(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(client.try_wait().unwrap().is_none(), "the measurement goes on");
    server.kill();
    let ended = client.wait_with_output().unwrap();
    assert!(!ended.status.success() && String::from_utf8_lossy(&ended.stderr).contains(&at));
    let refused = fail(&["rdma", "ping", &at]);
    assert!(refused.contains("farlane rdma serve"), "{refused}");
}
