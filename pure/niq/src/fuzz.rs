//! Fuzz targets: each accepts any bytes and must not panic.

use engine::fuzz::Source;
use pcie::memory::{Memory, Ram};

use crate::host::{Credits, HOST_MEMORY_BYTES, Host, HostConfig};
use crate::layout::{QUEUES, WINDOW_BYTES, line_at, slot_at};
use crate::line::{PACKET_MAX, PACKET_MIN};
use crate::{Card, registers};

/// A packet to all stations.
const PACKET: [u8; 100] = [0xff; 100];

/// Lets a host write anything to registers and lines while packets arrive from the wire. Each step
/// takes a byte that chooses the event.
///
/// # Panics
/// When the card sends a packet of an invalid length.
pub fn card(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let mut card = Card::new([2, 0, 0, 0, 0, 1]);
    let (mut window, mut memory) = (Ram::new(0, WINDOW_BYTES), Ram::new(0, HOST_MEMORY_BYTES));
    let mut packet = [0; PACKET_MAX];
    while !source.is_empty() {
        let step = source.byte();
        let queue = usize::from(step >> 4) % QUEUES;
        match step & 0xf {
            0..=3 => {
                let offset = u64::from(source.half() % 0x600);
                card.register_write(&mut window, offset, &source.word().to_le_bytes());
            }
            4 => {
                if let Ok(start) = Host::new(HostConfig { queue, ..HostConfig::default() }).start(&mut memory)
                {
                    for (register, value) in start {
                        card.register_write(&mut window, register.into(), &value.to_le_bytes());
                    }
                }
            }
            5 | 6 => write_line(&mut window, slot_at(queue, source.byte().into()), &mut source),
            7 => write_line(&mut window, line_at(queue, source.byte().into()), &mut source),
            8 => write_line(&mut window, u64::from(source.word()) % WINDOW_BYTES as u64, &mut source),
            9 => card.set_link(step & 0x10 != 0),
            10 | 11 => {
                let length = usize::from(source.byte()).min(PACKET.len());
                card.receive(&mut window, &mut memory, &PACKET[..length]);
            }
            12 => {
                let mut word = [0; 8];
                card.register_read(source.half().into(), &mut word);
            }
            13 => {
                card.sleep(&mut window, step & 0x10 != 0);
                assert!(card.poll_interrupt(&window).is_none_or(|vector| vector < QUEUES));
            }
            _ => {
                if let Some(length) = card.poll_transmit(&mut window, &mut memory, &mut packet) {
                    assert!((PACKET_MIN..=PACKET_MAX).contains(&length), "{length} B");
                }
            }
        }
    }
    let mut identity = [0; 4];
    card.register_read(registers::ID.into(), &mut identity);
    assert_eq!(u32::from_le_bytes(identity), registers::ID_VALUE, "the card is still there");
}

/// Lets a card write anything into its window while a host uses it.
///
/// # Panics
/// When the host receives a packet of an invalid length.
pub fn host(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let credits = if source.byte() & 1 == 0 { Credits::Read } else { Credits::Pushed };
    let mut host = Host::new(HostConfig { credits, ..HostConfig::default() });
    let (mut window, mut memory) = (Ram::new(0, WINDOW_BYTES), Ram::new(0, HOST_MEMORY_BYTES));
    let mut packet = [0; PACKET_MAX];
    while !source.is_empty() {
        let step = source.byte();
        match step & 7 {
            0 | 1 => write_line(&mut window, line_at(0, (step >> 3).into()), &mut source),
            2 => write_line(&mut window, u64::from(source.half()), &mut source),
            3 => write_line(&mut memory, u64::from(source.half()), &mut source),
            4 | 5 => {
                let _ = host.send(&mut window, &mut memory, &packet[..step.into()], step & 8 != 0);
            }
            _ => {
                if let Ok(Some(received)) = host.receive(&mut window, &mut memory, &mut packet) {
                    assert!((PACKET_MIN..=PACKET_MAX).contains(&received.length), "{received:?}");
                }
            }
        }
        let _ = host.poll_completed(&window, &memory);
        let _ = host.poll_wake(&window);
    }
}

/// Writes a line whose header, its last 4 bytes, comes first in the source.
fn write_line(memory: &mut Ram, address: u64, source: &mut Source<'_>) {
    let mut line = [0; 64];
    line[60..].copy_from_slice(&source.word().to_le_bytes());
    let control = source.byte();
    if control & 1 != 0 {
        line[..8].copy_from_slice(&source.long().to_le_bytes());
        line[8..12].copy_from_slice(&source.word().to_le_bytes());
    }
    // Writes outside have no effect.
    let _ = memory.write(address, &line);
}
