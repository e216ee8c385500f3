//! Every source in every format: the file holds the sent data, byte by byte.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use serde_json::Value;
use sha2::Digest;

use super::sources::{Recorder, field, gvsp, record_bytes, rtp, spead, vita49};
use crate::support::{FARLANE, fail, json};

/// The recorded data.
enum Sent {
    Bytes(Vec<u8>),
    Packets(Vec<Vec<u8>>),
}

/// The packets of a pcap file with nanoseconds in network order, and its link type.
fn pcap(file: &[u8]) -> (u32, Vec<Vec<u8>>) {
    let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!(number(0), 0xa1b2_3c4d, "nanoseconds, network order");
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let length = usize::try_from(number(at + 8)).unwrap();
        packets.push(file[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    (number(20), packets)
}

/// The packets of a pcapng file in network order, and the link type of its first interface.
fn pcapng(file: &[u8]) -> (u32, Vec<Vec<u8>>) {
    let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((number(0), number(8)), (0x0a0d_0d0a, 0x1a2b_3c4d));
    let (mut at, mut link, mut packets) = (0, None, Vec::new());
    while at < file.len() {
        match number(at) {
            1 => link = link.or(Some(number(at + 8) >> 16)),
            6 => {
                let length = usize::try_from(number(at + 20)).unwrap();
                packets.push(file[at + 28..at + 28 + length].to_vec());
            }
            _ => {}
        }
        at += usize::try_from(number(at + 4)).unwrap();
    }
    (link.unwrap(), packets)
}

fn mcap_messages(file: &[u8]) -> Vec<Vec<u8>> {
    let messages = mcap::MessageStream::new(file).unwrap();
    messages.map(|message| message.unwrap().data.into_owned()).collect()
}

/// Records without their heads of 16 bytes (pure/record/format.md).
fn without_heads(mut records: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some((head, rest)) = records.split_at_checked(16) {
        let length = usize::try_from(u32::from_le_bytes(head[..4].try_into().unwrap())).unwrap();
        packets.push(rest[..length].to_vec());
        records = &rest[length..];
    }
    assert!(records.is_empty());
    packets
}

/// Whether a time is what SigMF's schema allows.
fn is_datetime(text: &str) -> bool {
    let shape: String = text.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
    let Some(fraction) = shape.strip_prefix("0000-00-00T00:00:00") else { return false };
    let fraction = fraction.strip_suffix('Z');
    fraction.is_some_and(|rest| rest.is_empty() || rest.trim_start_matches('.').chars().all(|one| one == '0'))
}

/// Checks a description by the rules of SigMF 1.2.0's schema.
fn check_sigmf(meta: &Value, data: &[u8], datatype: &str, size: u64) {
    let keys: Vec<_> = meta.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    let global = meta["global"].as_object().unwrap();
    let texts = ["core:datatype", "core:version", "core:recorder", "core:sha512", "core:description"];
    for (key, value) in global {
        match key.as_str() {
            "core:num_channels" => assert!(value.as_u64() >= Some(1)),
            "core:sample_rate" => assert!(value.as_f64() > Some(0.0)),
            key => assert!(texts.contains(&key) && value.is_string(), "{key}: {value}"),
        }
    }
    assert_eq!(
        (&meta["global"]["core:datatype"], &meta["global"]["core:version"]),
        (&datatype.into(), &"1.2.0".into())
    );
    let digest: String = sha2::Sha512::digest(data).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(meta["global"]["core:sha512"], digest);
    let samples = data.len() as u64 / size;
    assert_eq!(data.len() as u64 % size, 0, "the data are whole samples");
    for (list, has_time) in [("captures", true), ("annotations", false)] {
        let mut before = 0;
        for one in meta[list].as_array().unwrap() {
            let start = one["core:sample_start"].as_u64().unwrap();
            assert!((before..=samples).contains(&start), "{list}: {one}");
            before = start;
            assert!(!has_time || is_datetime(one["core:datetime"].as_str().unwrap()), "{one}");
        }
    }
    assert_eq!(meta["captures"][0]["core:sample_start"], 0);
}

/// Exports a recording to every format, and compares.
fn check(name: &str, directory: &tempfile::TempDir, sent: &Sent, link: u32) {
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let recording = at("a.rec");
    let export = |format: &str, more: &[&str]| {
        let to = at(format!("out.{format}").as_str());
        let words = ["recording", "convert", &recording, "--to", &to, "--format", format, "--json"];
        let report = json(&[&words[..], more].concat());
        assert_eq!((&report["bytes_lost"], &report["bad_chunks"]), (&0.into(), &0.into()), "{name} {report}");
        let written = if format == "sigmf" { at("out.sigmf-data") } else { to };
        fs::read(written).unwrap()
    };
    let all = match sent {
        Sent::Bytes(bytes) => bytes.clone(),
        Sent::Packets(packets) => packets.concat(),
    };
    assert!(export("raw", &[]) == all, "{name}: raw");
    let messages = mcap_messages(&export("mcap", &[]));
    for (datatype, size) in [("ru8", 1), ("ci16_be", 4)] {
        let data = export("sigmf", &["--datatype", datatype, "--sample-rate", "1e6"]);
        let whole = all.len() / size * size;
        assert!(data == all[..whole], "{name}: sigmf {datatype}");
        let meta: Value = serde_json::from_slice(&fs::read(at("out.sigmf-meta")).unwrap()).unwrap();
        check_sigmf(&meta, &data, datatype, size as u64);
    }
    match sent {
        Sent::Packets(packets) => {
            assert!(messages == *packets, "{name}: mcap");
            assert!(without_heads(&export("raw", &["--heads"])) == *packets, "{name}: raw with heads");
            let (pcap, pcapng) = (pcap(&export("pcap", &[])), pcapng(&export("pcapng", &[])));
            assert_eq!((pcap.0, pcapng.0), (link, link), "{name}");
            assert!(pcap.1 == *packets, "{name}: pcap");
            assert!(pcapng.1 == *packets, "{name}: pcapng");
        }
        Sent::Bytes(bytes) => {
            assert!(messages.concat() == *bytes, "{name}: mcap");
            for (format, more) in [("pcap", &[][..]), ("pcapng", &[]), ("raw", &["--heads"])] {
                let words = ["recording", "convert", &recording, "--to", &at("refused"), "--format", format];
                let why = fail(&[&words[..], more].concat());
                assert!(why.contains("packets"), "{name}: {format}: {why}");
                assert!(!directory.path().join("refused").exists(), "{name}: {format}");
            }
        }
    }
}

#[test]
fn sources_of_bytes_leave_in_every_format() {
    // Neither whole chunks nor whole samples.
    let bytes: Vec<u8> = (0..).flat_map(u64::to_le_bytes).take(100_003).collect();
    for kind in ["file", "named pipe", "standard input", "tcp-listen", "tcp-connect", "generate"] {
        let directory = record_bytes(kind, &bytes);
        check(kind, &directory, &Sent::Bytes(bytes.clone()), 0);
    }
}

#[test]
fn datagrams_with_every_kind_of_numbers_leave_in_every_format() {
    type Make = fn(u64) -> Vec<u8>;
    let odd: Make =
        |number| vec![u8::try_from(number).unwrap(); usize::try_from(number * 97 % 1400).unwrap()];
    let kinds: [(&str, Make); 7] = [
        ("buffer=1MiB", odd),
        ("sequence=rtp", rtp),
        ("sequence=vita49", vita49),
        ("sequence=gvsp", gvsp),
        ("sequence=spead", spead),
        ("sequence=spead,step:4", spead),
        ("sequence=offset:2,bytes:4,step:16,le", field),
    ];
    for (options, make) in kinds {
        let datagrams: Vec<_> = (1..200).map(make).collect();
        for payload in ["", "&payload"] {
            let from = format!("udp://127.0.0.1:0?{options}{payload}");
            let mut recorder = Recorder::start(&[&from], &["--json"]);
            recorder.send(&datagrams);
            let (_, directory) = recorder.stop();
            let sent = match payload {
                "" => Sent::Packets(datagrams.clone()),
                _ => Sent::Bytes(datagrams.concat()),
            };
            check(&from, &directory, &sent, 147);
        }
    }
}

#[test]
fn frames_of_an_interface_leave_in_every_format() {
    let probe =
        Command::new(&*FARLANE).args(["record", "--from", "packets:lo", "--to", "/dev/null"]).output();
    if String::from_utf8_lossy(&probe.unwrap().stderr).contains("CAP_NET_RAW") {
        eprintln!("SKIPPED: recording an interface takes CAP_NET_RAW");
        return;
    }
    let mut recorder = Recorder::start(&["packets:lo"], &["--json"]);
    recorder.said("recording the packets of ");
    let (sender, receiver) =
        (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = receiver.local_addr().unwrap();
    let datagrams: Vec<_> = (1..100).map(rtp).collect();
    datagrams.iter().for_each(|datagram| assert!(sender.send_to(datagram, to).is_ok()));
    let (_, directory) = recorder.stop();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    json(&["recording", "convert", &at("a.rec"), "--to", &at("all.pcap"), "--json"]);
    let (_, frames) = pcap(&fs::read(at("all.pcap")).unwrap());
    // An Ethernet header, one of IPv4, and one of UDP.
    let is_ours =
        |frame: &&Vec<u8>| frame.len() > 42 && frame[23] == 17 && frame[36..38] == to.port().to_be_bytes();
    assert!(frames.iter().filter(is_ours).map(|frame| frame[42..].to_vec()).eq(datagrams));
    check("packets:lo", &directory, &Sent::Packets(frames), 1);
}

#[test]
fn heads_stay_with_the_packets_that_a_part_has_and_no_option_is_ignored() {
    use super::packets::{START, packet, record_packets};
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    record_packets(&at("a.rec"), record::format::LinkType::PAYLOAD, 100, packet);
    // From packet 40 on, 20 of them: they begin and end within a chunk.
    let part = ["--from-time", "40ms", "--for", "20ms", "--heads", "--format", "raw", "--json"];
    let report = json(&[&["recording", "convert", &at("a.rec"), "--to", &at("part")], &part[..]].concat());
    let records = fs::read(at("part")).unwrap();
    assert_eq!(report["messages"], 20);
    assert_eq!(without_heads(&records), (40..60).map(packet).collect::<Vec<_>>());
    let time = u64::from_le_bytes(records[8..16].try_into().unwrap());
    assert_eq!((records[4], time), (2, START + 40_000_000), "the kernel's time of packet 40");
    // From the middle of packet 0's record on: it does not begin there.
    let part = ["--from-offset", "5", "--heads", "--format", "raw"];
    json(&[&["recording", "convert", &at("a.rec"), "--to", &at("part"), "--json"], &part[..]].concat());
    assert_eq!(without_heads(&fs::read(at("part")).unwrap()), (1..100).map(packet).collect::<Vec<_>>());
    for (option, value) in [("--sample-rate", "48000"), ("--datatype", "ci16_le")] {
        for format in ["raw", "pcap", "pcapng", "mcap"] {
            let words =
                ["recording", "convert", &at("a.rec"), "--to", &at("no"), "--format", format, option, value];
            let why = fail(&words);
            assert!(why.contains(option) && why.contains("--format sigmf"), "{why}");
        }
    }
}

#[test]
fn a_clock_that_was_set_back_changes_the_order_of_no_stream() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let packets: [(usize, u64, &[u8]); 6] = [
        (0, 1_000, b"first"),
        (1, 1_500, b"other"),
        (0, 2_000, b"second"),
        (0, 500, b"third"),
        (1, 2_500, b"another"),
        (0, 3_000, b"fourth"),
    ];
    super::packets::record_chunks(&at("a.rec"), 2, &packets);
    let expected: Vec<_> = packets.iter().map(|(.., bytes)| bytes.to_vec()).collect();
    for format in ["pcapng", "mcap"] {
        json(&["recording", "convert", &at("a.rec"), "--to", &at("all"), "--format", format, "--json"]);
        let file = fs::read(at("all")).unwrap();
        let found = if format == "mcap" { mcap_messages(&file) } else { pcapng(&file).1 };
        assert_eq!(found, expected, "{format}");
    }
}
