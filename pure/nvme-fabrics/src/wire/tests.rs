//! Fields are at the positions of the specification, and every emitted structure parses to the same
//! value.

use alloc::string::{String, ToString};
use alloc::vec;

use nvme::wire::SubmissionQueueEntry;
use proptest::prelude::*;

use super::*;

/// The Connect command and data that Linux sends for the Admin Queue, as Linux lays out its
/// structures.
fn linux_connect() -> ([u8; 64], [u8; 1024]) {
    let mut command = [0; 64];
    command[0] = 0x7f;
    command[4] = 0x01;
    // SQSIZE 31, KATO 5,000 ms.
    command[44..46].copy_from_slice(&31_u16.to_le_bytes());
    command[48..52].copy_from_slice(&5000_u32.to_le_bytes());
    let mut data = [0; 1024];
    data[0..16].copy_from_slice(&[7; 16]);
    data[16..18].copy_from_slice(&0xffff_u16.to_le_bytes());
    data[256..256 + 36].copy_from_slice(Nqn::DISCOVERY.as_bytes());
    data[512..519].copy_from_slice(b"nqn.a:b");
    (command, data)
}

#[test]
fn a_connect_of_linux_is_understood() {
    let (command, data) = linux_connect();
    let parsed = FabricsCommand::parse(&SubmissionQueueEntry::parse(&command)).unwrap();
    let connect = ConnectCommand {
        record_format: 0,
        queue: QueueId::ADMIN,
        submission_queue_size: 31,
        attributes: ConnectAttributes(0),
        keep_alive_timeout: 5000,
    };
    assert_eq!(parsed, FabricsCommand::Connect(connect));
    assert_eq!(parsed.emit().emit(), command);
    let parsed = ConnectData::parse(&data).unwrap();
    assert_eq!(parsed.host_id, HostId([7; 16]));
    assert_eq!(ControllerChoice::from(parsed.controller), ControllerChoice::Dynamic);
    assert!(parsed.subsystem.is_discovery());
    assert_eq!(parsed.emit(), data);
}

#[test]
fn a_host_without_a_name_goes_by_its_identifier() {
    let (_, mut data) = linux_connect();
    data[512..768].fill(0);
    let host = ConnectData::parse(&data).unwrap().host;
    assert_eq!(host.as_str(), "nqn.2014-08.org.nvmexpress:uuid:07070707-0707-0707-0707-070707070707");
    data[256..512].fill(0);
    assert_eq!(ConnectData::parse(&data).unwrap_err().1, Parameter::SUBSYSTEM);
}

#[test]
fn a_wrong_name_is_pointed_at() {
    let (_, mut data) = linux_connect();
    data[512..768].fill(b'x');
    let (error, parameter) = ConnectData::parse(&data).unwrap_err();
    assert_eq!((parameter, parameter.dw0()), (Parameter::HOST, 0x1_0200));
    assert_eq!(error.to_string(), "HOSTNQN: an NQN has at most 223 bytes, ended by a NUL");
    assert_eq!(parameter.to_string(), "HOSTNQN in the data");
    let (error, _) = ConnectData::parse(&data[..1000]).unwrap_err();
    assert_eq!(error, WireError::Length { structure: "the data of Connect", expected: 1024, found: 1000 });
}

#[test]
fn properties_have_4_or_8_bytes() {
    // Property Get of CAP as nvme-cli's show-regs sends it.
    let mut command = [0; 64];
    command[0] = 0x7f;
    command[4] = 0x04;
    command[40] = 1;
    let entry = SubmissionQueueEntry::parse(&command);
    let get = PropertyGet { size: PropertySize::Quad, offset: property::CAPABILITIES };
    assert_eq!(FabricsCommand::parse(&entry), Ok(FabricsCommand::PropertyGet(get)));
    command[40] = 2;
    let wrong = FabricsCommand::parse(&SubmissionQueueEntry::parse(&command));
    assert_eq!(wrong, Err(WireError::Reserved { field: "ATTRIB", found: 2 }));
}

#[test]
fn an_entry_stands_as_linux_reads_it() {
    let entry = DiscoveryEntry {
        address: "192.0.2.7:4420".parse::<core::net::SocketAddr>().unwrap().into(),
        subsystem_type: SubsystemType::Nvm,
        requirements: TransportRequirements {
            secure_channel: SecureChannel::NotRequired,
            flow_control_can_be_disabled: true,
        },
        port: PortId(3),
        controller: 0xffff,
        admin_queue_size: 32,
        flags: EntryFlags::DUPLICATE.and(EntryFlags::PERSISTENT),
        subsystem: "nqn.2026-01.io.farlane:disk".parse().unwrap(),
        security: SecurityType::None,
    };
    let bytes = entry.emit();
    assert_eq!(bytes[..12], [3, 1, 2, 6, 3, 0, 0xff, 0xff, 32, 0, 3, 0]);
    assert_eq!(bytes[32..38], *b"4420  ");
    assert_eq!(bytes[512..522], *b"192.0.2.7 ");
    assert_eq!(DiscoveryEntry::parse(&bytes), Ok(entry));
    let mut wrong = bytes;
    wrong[515] = 7;
    let error = DiscoveryEntry::parse(&wrong).unwrap_err();
    assert_eq!(error, WireError::Text { field: "TRADDR", at: 3, byte: 7 });
}

fn any_text(longest: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(0x21_u8..0x7f, 0..=longest)
        .prop_map(|bytes| bytes.into_iter().map(char::from).collect())
}

proptest! {
    #[test]
    fn commands_round_trip(raw: [u8; 32], kind in prop::sample::select(vec![0_u8, 1, 4, 5, 6, 8, 0xc0])) {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&raw);
        bytes[32..].copy_from_slice(&raw);
        bytes[0] = FABRICS_OPCODE;
        bytes[4] = kind;
        let entry = SubmissionQueueEntry::parse(&bytes);
        if let Ok(command) = FabricsCommand::parse(&entry) {
            prop_assert_eq!(FabricsCommand::parse(&command.emit()), Ok(command));
        }
    }

    #[test]
    fn headers_round_trip(generation: u64, records: u64) {
        let header = DiscoveryHeader { generation, records, record_format: 0 };
        prop_assert_eq!(DiscoveryHeader::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn entries_round_trip(
        raw: [u8; 12], is_rdma: bool, specific: [u8; 2], service in any_text(32), address in any_text(256), name in "[a-z]{1,223}",
    ) {
        let mut bytes = [0; 1024];
        bytes[..12].copy_from_slice(&raw);
        bytes[0] = if is_rdma { 1 } else { raw[0] };
        bytes[256..256 + name.len()].copy_from_slice(name.as_bytes());
        bytes[768..770].copy_from_slice(&specific);
        let entry = DiscoveryEntry::parse(&bytes).unwrap();
        let entry = DiscoveryEntry { address: TransportAddress { service, address, ..entry.address }, ..entry };
        prop_assert_eq!(DiscoveryEntry::parse(&entry.emit()), Ok(entry));
    }

    #[test]
    fn responses_round_trip(dw0: u32) {
        prop_assert_eq!(ConnectResponse::from_dw0(dw0).dw0(), dw0);
        prop_assert_eq!(Parameter::from_dw0(dw0).dw0(), dw0 & 0x1_ffff);
    }
}
