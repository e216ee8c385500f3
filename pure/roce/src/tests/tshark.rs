//! Wireshark's dissectors of RoCE and of connection management understand the packets of our
//! devices.

use std::io::Write;
use std::process::{Command, Stdio};

use super::*;
use rdma::{Exposure, Key};

/// A filter for packets that Wireshark cannot dissect, or that are in the group «malformed» of its
/// expert information.
const COMPLAINTS: &str = "_ws.malformed || _ws.expert.group == 0x07000000 || !infiniband.bth";

/// The IPv4 packet of a datagram. Its header has no checksum.
fn packet(datagram: &Datagram) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (datagram.from.ip(), datagram.to.ip()) else {
        panic!("{datagram:?} is of IPv4")
    };
    let length = |more: usize| u16::try_from(datagram.len() + more).unwrap().to_be_bytes();
    let mut bytes = [0x45, 0].to_vec();
    bytes.extend(length(28));
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend(datagram.from.port().to_be_bytes());
    bytes.extend(datagram.to.port().to_be_bytes());
    bytes.extend(length(8));
    bytes.extend([0, 0]);
    bytes.extend(datagram.slices().concat());
    bytes
}

/// A capture file of the sent datagrams.
fn capture(seen: &[(Instant, Datagram)]) -> Vec<u8> {
    const RAW_IPV4: u32 = 228;
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d, 2 | 4 << 16, 0, 0, 1 << 16, RAW_IPV4] {
        file.extend(u32::to_le_bytes(word));
    }
    for (at, datagram) in seen {
        let bytes = packet(datagram);
        let [seconds, nanoseconds] = [at.as_nanos() / 1_000_000_000, at.as_nanos() % 1_000_000_000];
        let length = bytes.len() as u64;
        for word in [seconds, nanoseconds, length, length] {
            file.extend(u32::try_from(word).unwrap().to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

/// The `fields` of the packets that match `filter`, as tshark prints them: a line for each packet.
/// `None` if tshark is not installed.
fn tshark(file: &[u8], filter: &str, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-r", "-", "-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    child.stdin.take().unwrap().write_all(file).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "tshark fails with {:?}", output.status);
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// A session with every kind of packet.
fn session() -> Vec<(Instant, Datagram)> {
    let mut net = Net::new(0, |config| config.mtu = PathMtu::B1024);
    let [mut here, mut there] = net.connect();
    let lent = there.register(Exposure::Read(Buffer::zeroed(5000))).unwrap();
    let room = there.register(Exposure::Write(5000)).unwrap();
    let send = |invalidate, immediate, length| Operation::Send {
        inline: Inline::new(&[3; 13]),
        data: Buffer::zeroed(length),
        invalidate,
        immediate,
    };
    there.post_receive(receive(0, 4096)).unwrap();
    for operation in [
        Operation::Read { remote: lent },
        Operation::Write { data: Buffer::zeroed(3001), remote: rdma::Remote { length: 3001, ..room } },
        Operation::Write { data: Buffer::zeroed(100), remote: rdma::Remote { length: 100, ..room } },
        send(None, None, 3000),
        send(None, Some(77), 3000),
        send(Some(room.key), None, 3000),
        send(None, Some(77), 10),
        send(Some(lent.key), None, 10),
    ] {
        here.post_send(SendRequest { id: 1, operation, signalled: true }).unwrap();
    }
    let mut done = 0;
    net.run("the session", |net| {
        // The peer is not ready at first; later a packet is lost.
        if net.seen.len() > 30 {
            let _ = there.post_receive(receive(0, 4096));
        }
        net.faults.lost = if (30..60).contains(&net.seen.len()) { 6 } else { 0 };
        done += completions(&mut here).len();
        done == 8
    });
    let remote = rdma::Remote { key: Key(1), address: 0, length: 4 };
    here.post_send(SendRequest { id: 1, operation: Operation::Read { remote }, signalled: true }).unwrap();
    net.pass(Nanos::from_secs(1));
    let refused = RoceEndpoint::connect(&net.devices[0], net.addresses[1], PORT + 1, b"");
    net.pass(Nanos::from_secs(1));
    drop(refused);
    net.seen
}

#[test]
fn tshark_understands_a_session() {
    let seen = session();
    let file = capture(&seen);
    let Some(complaints) = tshark(&file, COMPLAINTS, &["frame.number", "_ws.expert.message"]) else {
        eprintln!("SKIPPED: tshark is not installed, so no other program checks the packets");
        return;
    };
    assert!(complaints.is_empty(), "{complaints:?}");
    let all = tshark(&file, "infiniband.bth", &["infiniband.bth.opcode"]).unwrap();
    assert_eq!(all.len(), seen.len());
    // Each kind of packet occurs: messages, writes, reads, answers, management.
    for opcode in [0, 1, 2, 3, 5, 6, 7, 8, 10, 12, 13, 14, 15, 17, 22, 23, 100] {
        assert!(all.contains(&opcode.to_string()), "operation code {opcode} is missing in {all:?}");
    }
    // Receiver not ready, a sequence error, an access error.
    for filter in [
        "infiniband.aeth.syndrome.opcode == 1",
        "infiniband.aeth.syndrome.opcode == 3 && infiniband.aeth.syndrome.error_code == 0",
        "infiniband.aeth.syndrome.opcode == 3 && infiniband.aeth.syndrome.error_code == 2",
        "infiniband.cm.rep",
        "infiniband.cm.rtu.localcommid",
        "infiniband.cm.rej.reason == 8",
        "infiniband.cm.dreq.localcommid",
        "infiniband.cm.drsp.localcommid",
    ] {
        assert!(!tshark(&file, filter, &["frame.number"]).unwrap().is_empty(), "{filter}");
    }
    let fields = ["infiniband.cm.req.serviceid.dport", "infiniband.cm.req.ip_cm.sip4"].into_iter().chain([
        "infiniband.cm.req.ip_cm.dip4",
        "infiniband.cm.req.pppmtu",
        "infiniband.cm.req.ip_cm.ipv",
    ]);
    let fields: Vec<_> = fields.collect();
    let requests = tshark(&file, "infiniband.cm.req", &fields).unwrap();
    let fields: Vec<_> = requests[0].split('\t').collect();
    assert_eq!(fields[1..3], ["192.0.2.1", "192.0.2.2"], "{requests:?}");
    assert!(["4420", "0x1144"].contains(&fields[0]), "{requests:?}");
    assert!(["3", "0x03", "0x3"].contains(&fields[3]), "{requests:?}");
}
