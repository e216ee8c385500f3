use std::vec::Vec;

use super::*;

fn values(state: State) -> Values {
    Values {
        media_bytes: 250_059_350_016,
        model: b"Samsung SSD 960 EVO 250GB".to_vec(),
        chunk: 131_072,
        chunks: 256,
        can_trigger: true,
        can_address: true,
        write: Some(Account {
            state,
            maximum_address: 0x1_2345_6789,
            last_address: 0x2_0000_0003,
            ..Account::default()
        }),
        read: None,
    }
}

fn word(registers: &mut Registers, offset: u32) -> u32 {
    let mut bytes = [0; 4];
    registers.read(offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn wide(registers: &mut Registers, offset: u32) -> u64 {
    let mut bytes = [0; 8];
    registers.read(offset, &mut bytes);
    u64::from_le_bytes(bytes)
}

#[test]
fn a_driver_sees_the_medium_and_the_buffer() {
    let mut registers = Registers::new(values(State::Idle));
    let mut identity = [0; 4];
    registers.read(at::IDENTITY, &mut identity);
    assert_eq!(&identity, b"FLRB");
    assert_eq!(word(&mut registers, at::VERSION), 1);
    assert_eq!(word(&mut registers, at::CAPABILITIES), at::CAN_WRITE | at::CAN_TRIGGER | at::CAN_ADDRESS);
    assert_eq!(wide(&mut registers, at::MEDIA_BYTES), 250_059_350_016);
    assert_eq!(wide(&mut registers, at::CHUNK_BYTES), 256 << 32 | 131_072);
    let mut model = [0; at::MODEL_BYTES as usize];
    registers.read(at::MODEL, &mut model);
    assert_eq!(&model, b"Samsung SSD 960 EVO 250GB               ");
    // A direction that the block has not, and all that lies outside.
    for offset in [at::READING + at::STATE, at::READING + at::BYTES, at::LENGTH, 0xffc, !3] {
        assert_eq!(word(&mut registers, offset), 0, "{offset:#x}");
    }
}

#[test]
fn both_halves_of_a_number_are_of_one_moment() {
    let mut registers = Registers::new(values(State::Running));
    let last = at::WRITING + at::LAST_ADDRESS;
    let low = word(&mut registers, last);
    let mut later = values(State::Running);
    later.write.as_mut().unwrap().last_address = 0x7_0000_0000;
    assert!(!registers.show(later));
    assert_eq!((low, word(&mut registers, last + 4)), (3, 2));
    assert_eq!(word(&mut registers, last + 4), 7, "kept for one read alone");
    assert_eq!(wide(&mut registers, last), 0x7_0000_0000);
}

#[test]
fn addresses_are_written_whole_or_by_halves_before_a_start() {
    let mut registers = Registers::new(values(State::Idle));
    let (first, maximum) = (at::WRITING + at::FIRST_ADDRESS, at::WRITING + at::MAXIMUM_ADDRESS);
    assert_eq!(registers.write(first, &0x10_0000_u64.to_le_bytes()), None);
    assert_eq!(registers.write(maximum + 4, &9_u32.to_le_bytes()), None);
    assert_eq!(wide(&mut registers, maximum), 0x9_2345_6789);
    let chunks = at::WRITING + at::CHUNKS_MAX;
    assert_eq!(
        (registers.write(chunks + 4, &3_u32.to_le_bytes()), wide(&mut registers, chunks)),
        (None, 3 << 32)
    );
    let start = at::START.to_le_bytes();
    let asked = Command::Start {
        direction: Direction::Write,
        first_address: 0x10_0000,
        maximum_address: 0x9_2345_6789,
        chunks_max: 0x3_0000_0000,
    };
    assert_eq!(registers.write(at::WRITING, &start), Some(asked));
    // While it runs, neither an address nor another start is taken.
    assert!(registers.show(values(State::Running)));
    assert_eq!(registers.write(first, &7_u64.to_le_bytes()), None);
    assert_eq!((wide(&mut registers, first), wide(&mut registers, chunks)), (0, 0));
    assert_eq!(registers.write(at::WRITING, &start), None);
    assert_eq!(registers.write(at::WRITING, &at::STOP.to_le_bytes()), Some(Command::Stop(Direction::Write)));
}

#[test]
fn what_cannot_be_obeyed_is_ignored() {
    let mut registers = Registers::new(values(State::Idle));
    for bit in [at::STOP, at::TRIGGER, 1 << 9] {
        assert_eq!(registers.write(at::WRITING, &bit.to_le_bytes()), None, "{bit:#x}");
    }
    assert_eq!(registers.write(at::READING, &at::START.to_le_bytes()), None);
    registers.show(values(State::Armed));
    assert_eq!(registers.write(at::WRITING, &at::TRIGGER.to_le_bytes()), Some(Command::Trigger));
    // Accesses that no driver should make.
    let mut bytes = Vec::new();
    for length in 0..20 {
        bytes.resize(length, 1);
        for offset in [1, 3, at::WRITING + 1, at::WRITING + 6, u32::MAX] {
            assert_eq!(registers.write(offset, &bytes), None);
            registers.read(offset, &mut bytes);
        }
    }
    registers.reset();
}
