//! One frame for a person: its fields, where in the packet each is, and the meaning of its payload.

use captures::{Held, Packet};
use nvme::wire::{AdminOpcode, CompletionQueueEntry, DataTransfer, IoOpcode, SubmissionQueueEntry};
use pcie::wire::{Completion, ConfigRequest, IoRequest, Kind, MemoryRequest, Message, Tlp, Width};
use schemars::JsonSchema;
use serde::Serialize;
use trace::fabric::Endpoint;
use trace::fields::{self, Entry};
use trace::{Direction, Step};

use super::part::{Part, Way};

/// The most bytes of a frame that are shown.
const BYTES_MAX: usize = 8192;
/// The most queue entries of one packet that are explained.
const ENTRIES_MAX: usize = 8;
/// The most PDUs of a segment whose fields are shown, and whose names are in its line.
const PDUS_MAX: usize = 64;
const NAMES_MAX: usize = 3;
/// The opcode of Fabrics commands.
const FABRICS: u8 = 0x7f;

/// All that is known of a frame.
#[derive(Serialize, JsonSchema)]
pub(super) struct Whole {
    fields: Vec<Field>,
    /// The first bytes of the packet or payload.
    hex: String,
    /// The number of bytes that `hex` leaves out.
    hidden_bytes: usize,
    /// The meaning of the payload; none if it is unknown.
    meaning: Option<Meaning>,
}

/// A field of a frame.
#[derive(Debug, Serialize, JsonSchema)]
struct Field {
    name: String,
    value: String,
    /// The place of the first byte of `hex` that has the field, and the place behind the last; none
    /// if no byte of `hex` has it.
    bytes: Option<[usize; 2]>,
}

/// The meaning of a payload.
#[derive(Serialize, JsonSchema)]
struct Meaning {
    title: &'static str,
    rows: Vec<MeaningRow>,
}

/// A name and its value.
#[derive(Serialize, JsonSchema)]
struct MeaningRow {
    name: String,
    value: String,
}

/// Names and values, with the bytes that have them: the first, and the one behind the last.
#[derive(Debug, Default)]
struct Fields {
    fields: Vec<Field>,
    /// The offset that is added to each place.
    base: usize,
}

impl Fields {
    fn add(&mut self, name: &str, value: impl ToString, (from, to): (usize, usize)) {
        let place = [self.base + from, self.base + to];
        self.fields.push(Field { name: name.to_owned(), value: value.to_string(), bytes: Some(place) });
    }

    fn add_if(&mut self, is_set: bool, name: &str, place: (usize, usize)) {
        if is_set {
            self.add(name, "yes", place);
        }
    }
}

/// One line that describes the content of a frame, which is this part of a command.
pub(super) fn line(held: &Held<'_>, part: Part) -> String {
    match held {
        Held::Packet(packet) => Tlp::<&[u8]>::new(packet.head.header, &[]).to_string(),
        Held::Segment(segment) => {
            let length = segment.bytes.len();
            let names = names(&fields::of_segment(segment, part.wanted(), NAMES_MAX));
            format!("{names}TCP {} to {}, {length} B", end(segment.from), end(segment.to))
        }
        Held::Datagram(datagram) => {
            let names = names(&fields::of_datagram(datagram, part.wanted()));
            format!("{names}RoCEv2, {} B", datagram.bytes.len())
        }
        Held::Malformed => "malformed PCIe packet".to_owned(),
        Held::Foreign => "another protocol".to_owned(),
        Held::Unknown => "a link type that is not known".to_owned(),
    }
}

/// The names of the content of a frame of a network, before the frame itself.
fn names(held: &fields::Held) -> String {
    match (held.names.as_slice(), held.untold) {
        ([], _) => String::new(),
        (names, 0) => format!("{}: ", names.join(", ")),
        (names, untold) => format!("{} and {untold} more: ", names.join(", ")),
    }
}

/// An address and a port.
fn end((address, port): Endpoint) -> std::net::SocketAddr {
    (std::net::Ipv6Addr::from(address).to_canonical(), port).into()
}

/// Which way it passes: `down` to the device, or `up` to the host.
pub(super) const fn direction(held: &Held<'_>) -> Option<Way> {
    match held {
        Held::Packet(packet) => Some(match packet.direction {
            Direction::Down => Way::Down,
            Direction::Up => Way::Up,
        }),
        _ => None,
    }
}

/// Bytes of payload.
pub(super) const fn payload_bytes(held: &Held<'_>) -> usize {
    match held {
        Held::Packet(packet) => packet.head.header.payload_len(),
        Held::Segment(segment) => segment.bytes.len(),
        Held::Datagram(datagram) => datagram.bytes.len(),
        _ => 0,
    }
}

/// All that is known of a frame, which is this part of a command. Places of fields count from the
/// first byte of `hex`.
pub(super) fn whole(held: &Held<'_>, frame: &[u8], part: Part) -> Whole {
    let (fields, bytes, meaning) = match held {
        Held::Packet(packet) => {
            // The bytes before the packet in its frame belong to the capture.
            let length = packet.head.encoded_len() + packet.payload.len();
            let after = if packet.head.digest { 4 } else { 0 };
            let start = frame.len().saturating_sub(length + after);
            let meaning = part.step.and_then(|step| meaning(packet, step, part.is_admin));
            (packet_fields(packet), &frame[start..], meaning)
        }
        Held::Segment(segment) => {
            let found = fields::of_segment(segment, part.wanted(), PDUS_MAX);
            let rows = [
                ("from", end(segment.from).to_string()),
                ("to", end(segment.to).to_string()),
                ("sequence number", segment.sequence.to_string()),
                ("bytes", segment.bytes.len().to_string()),
                ("bytes that were not captured", segment.missing.to_string()),
            ];
            (network_fields(&rows, &found), segment.bytes, carried(&found, part))
        }
        Held::Datagram(datagram) => {
            let found = fields::of_datagram(datagram, part.wanted());
            let [from, to] = [datagram.from, datagram.to].map(|address| end((address, 0)).ip().to_string());
            (network_fields(&[("from", from), ("to", to)], &found), datagram.bytes, carried(&found, part))
        }
        Held::Malformed | Held::Foreign | Held::Unknown => (Vec::new(), frame, None),
    };
    let shown = &bytes[..bytes.len().min(BYTES_MAX)];
    Whole { fields, hex: hex(shown), hidden_bytes: bytes.len() - shown.len(), meaning }
}

/// The fields of a network's frame: the fields that distinguish it from others, and the fields of
/// its content.
fn network_fields(rows: &[(&str, String)], held: &fields::Held) -> Vec<Field> {
    let of_frame =
        |name: &str, value: &str| Field { name: name.to_owned(), value: value.to_owned(), bytes: None };
    let rows = rows.iter().map(|(name, value)| of_frame(name, value));
    let within = held.fields.iter().map(|field| Field {
        name: field.name.to_owned(),
        value: field.value.clone(),
        bytes: Some([field.place.start, field.place.end]),
    });
    let rest = (held.untold > 0).then(|| of_frame("further PDUs", &held.untold.to_string()));
    rows.chain(within).chain(rest).collect()
}

/// The queue entry of the command that a network's frame carries.
fn carried(held: &fields::Held, part: Part) -> Option<Meaning> {
    match held.entry.as_ref()? {
        Entry::Submission(entry) => titled("submission queue entry", submission(entry, part.is_admin)),
        Entry::Completion(entry) => titled("completion queue entry", completed(entry)),
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| DIGITS[usize::from(digit)]).collect()
}

fn packet_fields(packet: &Packet<'_>) -> Vec<Field> {
    let head = &packet.head;
    let (header, traits) = (&head.header, &head.header.traits);
    let mut fields = Fields { base: head.prefixes.encoded_len(), ..Fields::default() };
    for (place, word) in head.prefixes.words().iter().enumerate() {
        fields.fields.push(Field {
            name: "prefix".to_owned(),
            value: format!("{word:#010x}"),
            bytes: Some([place * 4, place * 4 + 4]),
        });
    }
    let text = Tlp::<&[u8]>::new(*header, &[]).to_string();
    fields.add("Fmt and Type", text.split(' ').next().unwrap_or_default(), (0, 1));
    fields.add("traffic class (TC)", traits.traffic_class(), (1, 2));
    let attributes = traits.attributes();
    fields.add_if(attributes.id_ordering, "ID-based ordering (IDO)", (1, 2));
    fields.add_if(attributes.relaxed_ordering, "relaxed ordering (RO)", (2, 3));
    fields.add_if(attributes.no_snoop, "no snoop (NS)", (2, 3));
    fields.add_if(head.digest, "digest (TD)", (2, 3));
    fields.add_if(traits.is_poisoned(), "poisoned (EP)", (2, 3));
    fields.add("length", format!("{} double words", header.length), (2, 4));
    match &header.kind {
        Kind::Memory(request) => memory(&mut fields, request),
        Kind::Io(IoRequest { requester, tag, enables, address, .. }) => {
            fields.add("requester", requester, (4, 6));
            fields.add("tag", tag, (6, 7));
            fields.add("byte enables", format!("{enables:04b}"), (7, 8));
            fields.add("address", format!("{address:#010x}"), (8, 12));
        }
        Kind::Config(ConfigRequest { requester, tag, enables, target, offset, .. }) => {
            fields.add("requester", requester, (4, 6));
            fields.add("tag", tag, (6, 7));
            fields.add("byte enables", format!("{enables:04b}"), (7, 8));
            fields.add("target", target, (8, 10));
            fields.add("register", format!("{offset:#05x}"), (10, 12));
        }
        Kind::Message(Message { routing, requester, tag, code, body, .. }) => {
            fields.add("routing", routing, (0, 1));
            fields.add("requester", requester, (4, 6));
            fields.add("tag", tag, (6, 7));
            fields.add("message code", format!("{code:#04x}"), (7, 8));
            fields.add("bytes 8 to 15", format!("{body:#018x}"), (8, 16));
        }
        Kind::Completion(completion) => answer(&mut fields, completion),
    }
    let (start, length) = (header.encoded_len(), packet.payload.len());
    if header.has_payload() {
        fields.add("payload", format!("{} B", header.payload_len()), (start, start + length));
    }
    fields.fields
}

fn memory(fields: &mut Fields, request: &MemoryRequest) {
    fields.add("requester", request.requester, (4, 6));
    fields.add("tag", request.tag, (6, 7));
    fields.add("last byte enables", format!("{:04b}", request.last_enables), (7, 8));
    fields.add("first byte enables", format!("{:04b}", request.first_enables), (7, 8));
    match request.width {
        Width::Bits32 => fields.add("address", format!("{:#010x}", request.address), (8, 12)),
        Width::Bits64 => fields.add("address", format!("{:#018x}", request.address), (8, 16)),
    }
}

fn answer(fields: &mut Fields, completion: &Completion) {
    fields.add("completer", completion.completer, (4, 6));
    fields.add("status", completion.status, (6, 7));
    fields.add_if(completion.byte_count_modified, "byte count modified (BCM)", (6, 7));
    fields.add("byte count", format!("{} B to come", completion.byte_count), (6, 8));
    fields.add("requester", completion.requester, (8, 10));
    fields.add("tag", completion.tag, (10, 11));
    fields.add("lower address", format!("{:#04x}", completion.lower_address), (11, 12));
}

/// The meaning of the payload of a packet, which is a part of `step`: a title, and rows of names
/// and values.
fn meaning(packet: &Packet<'_>, step: Step, is_admin: bool) -> Option<Meaning> {
    let payload = packet.payload;
    let (title, rows) = match step {
        Step::Doorbell | Step::HeadDoorbell => {
            let value = u32::from_le_bytes(*payload.first_chunk()?);
            let name = if step == Step::Doorbell { "tail (SQT)" } else { "head (CQH)" };
            ("doorbell", vec![(name.to_owned(), (value & 0xffff).to_string())])
        }
        Step::Entry => {
            let entries = payload.as_chunks::<{ SubmissionQueueEntry::LENGTH }>().0;
            (
                "submission queue entry",
                entries
                    .iter()
                    .take(ENTRIES_MAX)
                    .flat_map(|entry| submission(&SubmissionQueueEntry::parse(entry), is_admin))
                    .collect(),
            )
        }
        Step::Completion => {
            let entries = payload.as_chunks::<{ CompletionQueueEntry::LENGTH }>().0;
            let parsed = entries.iter().take(ENTRIES_MAX).map(CompletionQueueEntry::parse);
            ("completion queue entry", parsed.flat_map(|entry| completed(&entry)).collect())
        }
        Step::Listed => {
            let entries = payload.as_chunks::<8>().0.iter().enumerate().take(64);
            let row = |(place, entry): (usize, &[u8; 8])| {
                (format!("page {place}"), format!("{:#x}", u64::from_le_bytes(*entry)))
            };
            ("list of pages (PRP)", entries.map(row).collect::<Vec<_>>())
        }
        Step::Interrupt => {
            let value = u32::from_le_bytes(*payload.first_chunk()?);
            ("interrupt message (MSI, MSI-X)", vec![("data".to_owned(), format!("{value:#x}"))])
        }
        _ => return None,
    };
    titled(title, rows)
}

/// Rows of names and values under a title, if there are any.
fn titled(title: &'static str, rows: Vec<(String, String)>) -> Option<Meaning> {
    let row = |(name, value): (String, String)| MeaningRow { name, value };
    (!rows.is_empty()).then(|| Meaning { title, rows: rows.into_iter().map(row).collect() })
}

fn submission(entry: &SubmissionQueueEntry, is_admin: bool) -> Vec<(String, String)> {
    let name = |name: &str| name.to_owned();
    let is_fabrics = entry.opcode == FABRICS;
    let opcode = match is_admin || is_fabrics {
        true => AdminOpcode::from(entry.opcode).to_string(),
        false => IoOpcode::from(entry.opcode).to_string(),
    };
    let opcode = format!("{opcode} ({:#04x})", entry.opcode);
    let mut rows = vec![
        (name("opcode (OPC)"), opcode),
        (name("identifier (CID)"), format!("{:#06x}", entry.command_id.0)),
    ];
    rows.push(match is_fabrics {
        true => (name("Fabrics command type (FCTYPE)"), format!("{:#04x}", entry.namespace.0 & 0xff)),
        false => (name("namespace (NSID)"), entry.namespace.to_string()),
    });
    rows.push((name("metadata pointer (MPTR)"), format!("{:#x}", entry.metadata_pointer)));
    let [first, second] = entry.data_pointer;
    let has_sgl = !matches!(entry.data_transfer(), DataTransfer::Prp);
    rows.extend(match is_fabrics || has_sgl {
        true => descriptor(first, second),
        false => {
            vec![(name("PRP entry 1"), format!("{first:#x}")), (name("PRP entry 2"), format!("{second:#x}"))]
        }
    });
    let words = [entry.cdw10, entry.cdw11, entry.cdw12, entry.cdw13, entry.cdw14, entry.cdw15];
    rows.extend((10..).zip(words).map(|(number, word)| (format!("CDW{number}"), format!("{word:#010x}"))));
    rows
}

/// An SGL descriptor, by its two halves (NVMe Base Specification, SGL Descriptor Type).
fn descriptor(address: u64, rest: u64) -> Vec<(String, String)> {
    const KEYED: u64 = 4;
    let identifier = rest >> 56;
    let mut rows = vec![
        ("SGL identifier".to_owned(), format!("{identifier:#04x}")),
        ("SGL address".to_owned(), format!("{address:#x}")),
    ];
    if identifier >> 4 == KEYED {
        rows.push(("SGL length".to_owned(), format!("{} B", rest & 0xff_ffff)));
        rows.push(("SGL key".to_owned(), format!("{:#010x}", rest >> 24 & 0xffff_ffff)));
    } else {
        rows.push(("SGL length".to_owned(), format!("{} B", rest & 0xffff_ffff)));
    }
    rows
}

fn completed(entry: &CompletionQueueEntry) -> Vec<(String, String)> {
    let name = |name: &str| name.to_owned();
    vec![
        (name("identifier (CID)"), format!("{:#06x}", entry.command_id.0)),
        (name("submission queue (SQID)"), entry.submission_queue.to_string()),
        (name("head of it (SQHD)"), entry.submission_queue_head.to_string()),
        (name("status"), entry.status().to_string()),
        (name("phase tag (P)"), u8::from(entry.phase()).to_string()),
        (name("double word 0"), format!("{:#010x}", entry.dw0)),
    ]
}
