//! Replay: to whom, from where, how often, and at what pace.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use record::format::LinkType;

use super::packets::{packet, record_packets};
use crate::support::{fail, farlane, json};

/// Receives `count` datagrams, with their times of arrival.
fn receive(socket: &UdpSocket, count: usize) -> Vec<(Instant, Vec<u8>)> {
    let mut bytes = vec![0; 65_536];
    let one = |_| {
        let length = socket.recv(&mut bytes).unwrap();
        (Instant::now(), bytes[..length].to_vec())
    };
    (0..count).map(one).collect()
}

fn socket() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    (socket, url)
}

#[test]
fn packets_are_replayed_as_the_datagrams_that_were_recorded_at_their_pace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("packets.rec").to_str().unwrap().to_owned();
    record_packets(&path, LinkType::PAYLOAD, 100, packet);
    assert_eq!(json(&["recording", "verify", &path, "--json"])["ok"], true);
    let (to, url) = socket();
    let replay = std::thread::spawn({
        let (path, url) = (path.clone(), url.clone());
        move || json(&["recording", "replay", &path, "--to", &url, "--loop", "2", "--json"])
    });
    let came = receive(&to, 200);
    let report = replay.join().unwrap();
    for (number, (_, bytes)) in (0..).zip(&came) {
        assert!(*bytes == packet(number % 100), "datagram {number}");
    }
    // No datagram is early: each pass takes 99 ms at least. Datagrams may be late, so the least
    // late one shows when the first pass began.
    let began = came[..100].iter().zip(0..).map(|((at, _), number)| *at - Duration::from_millis(number));
    assert!(came[199].0 - began.min().unwrap() > Duration::from_millis(196));
    let errors = &report["pacing_error_ns"];
    assert_eq!((&report["sends"], &errors["count"]), (&200.into(), &200.into()));
    for key in ["min", "mean", "stddev", "p50", "p90", "p99", "p999", "max"] {
        assert!(errors[key].is_number(), "{key}: {errors}");
    }
    // By time, and as one picks packets: from the 50th on, 10 ms long.
    let arguments = ["replay", &path, "--to", &url, "--from-time", "50ms", "--for", "10ms", "--json"];
    let report = json(&arguments);
    assert_eq!(report["sends"], 10, "{report}");
    assert!(receive(&to, 10)[0].1 == packet(50));
}

#[test]
fn bytes_are_replayed_from_a_place_in_pieces_and_bad_chunks_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let bytes: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(at("source"), &bytes).unwrap();
    let from = format!("file:{}", at("source"));
    json_end(&["record", "--from", &from, "--to", &at("a.rec"), "--json"]);
    let part = ["--from-offset", "200001", "--bytes", "300000", "--speed", "max", "--json"];
    let report = json(&[&["recording", "replay", &at("a.rec"), "--to", &at("part")], &part[..]].concat());
    assert_eq!(report["bytes"], 300_000);
    assert!(std::fs::read(at("part")).unwrap() == bytes[200_001..500_001]);
    let (to, url) = socket();
    let replay = std::thread::spawn({
        let path = at("a.rec");
        let words = ["--bytes", "50000", "--datagram", "999", "--json"];
        move || json(&[&["recording", "replay", &path, "--to", &url], &words[..]].concat())
    });
    let came = receive(&to, 51);
    assert_eq!(replay.join().unwrap()["sends"], 51);
    assert_eq!((came[0].1.len(), came[50].1.len()), (999, 50));
    assert!(came.iter().flat_map(|(_, piece)| piece).eq(&bytes[..50_000]));
    // A bit of the payload in slot 5 flips, the third chunk of data.
    let mut harmed = std::fs::read(at("a.rec")).unwrap();
    harmed[5 * 131_072 + 5_000] ^= 4;
    std::fs::write(at("a.rec"), harmed).unwrap();
    let report =
        json(&["recording", "replay", &at("a.rec"), "--to", &at("rest"), "--speed", "max", "--json"]);
    assert_eq!((&report["bad_chunks"], &report["bytes"]), (&1.into(), &(1_600_000 - 130_944).into()));
    let expected = [&bytes[..2 * 130_944], &bytes[3 * 130_944..]].concat();
    assert!(std::fs::read(at("rest")).unwrap() == expected);
    let refused = fail(&["recording", "replay", &at("a.rec"), "--to", "udp://nowhere", "--speed", "0"]);
    assert!(refused.contains("HOST:PORT"), "{refused}");
}

/// Runs a command whose last line is JSON.
fn json_end(arguments: &[&str]) {
    let output = farlane(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
