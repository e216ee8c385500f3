//! Lookahead: host memory that an NVMe controller is about to read travels along with the doorbell
//! that makes the controller read it.
//!
//! [`Lookahead`] is between a PCIe switch and the links below it, as an
//! [`Interposer`](pcie::switch::Interposer). It learns the addresses of the queues from passing
//! packets. When a submission doorbell passes, it reads the new entries, and the lists and data
//! that they name. It sends this memory ahead of the doorbell over the
//! [`FarLink`](pcie::switch::FarLink) to the device. The far end of the link answers the device's
//! reads from it. All other reads go to the host as usual. `docs/lookahead.md` says when memory is
//! dropped, and why this is invisible.
//!
//! # The run loop
//! The world has the switch and the links, and calls lookahead between the two: `on_down` with each
//! packet for a link, `on_up` with each packet from a link, `on_link` and `on_reset` when the link
//! changes. `poll_packet` returns requests for the root complex, and `on_completion` accepts their
//! answers. `handle_timeout` is due at `poll_timeout`: a doorbell does not wait for long.
//!
//! Here a driver enables a controller and rings the doorbell of the admin queue.
//!
//! ```
//! use engine::{Buffer, Instant};
//! use farlane_nvme_lookahead::Lookahead;
//! use pcie::switch::{Ahead, AheadKey, FarLink, Interposer, Passage, Strand, Surroundings};
//! use pcie::wire::{Bdf, Packet, Tag};
//!
//! /// A link that records the packets sent over it.
//! #[derive(Default)]
//! struct Link {
//!     packets: Vec<Packet>,
//!     ahead: Vec<(u64, Buffer)>,
//! }
//!
//! impl FarLink for Link {
//!     fn send_on(&mut self, _: Instant, _: Strand, packet: Packet) {
//!         self.packets.push(packet);
//!     }
//!     fn send_ahead_on(&mut self, _: Strand, ahead: Ahead, bytes: Buffer) -> bool {
//!         self.ahead.push((ahead.address, bytes));
//!         true
//!     }
//!     fn forget_ahead(&mut self, _: AheadKey) {
//!         self.ahead.clear();
//!     }
//!     fn ahead_window(&self) -> u32 {
//!         1 << 20
//!     }
//!     // The other methods matter to links of several strands, or to other interposers.
//! #     fn is_open(&self) -> bool { true }
//! #     fn is_flushed(&self) -> bool { false }
//! #     fn is_spread(&self) -> bool { false }
//! #     fn strand_of_queue(&self, _: u16) -> Strand { Strand::MAIN }
//! #     fn lay(&mut self, _: Instant, _: Strand, _: Strand, _: AheadKey, _: &[(u64, u32)]) {}
//! }
//!
//! let (now, root, device) = (Instant::ZERO, Bdf::new(0, 0, 0), Bdf::new(3, 0, 0));
//! let dword = |value: u32| Buffer::copy_from_slice(&value.to_le_bytes());
//! # use engine::Engine;
//! # use pcie::config::{ClassCode, Identity};
//! # use pcie::switch::{PortId, Switch, SwitchConfig};
//! # use pcie::wire::ConfigType;
//! # let identity = Identity {
//! #     vendor: 1, device: 1, revision: 0, class: ClassCode::PCI_BRIDGE,
//! #     subsystem_vendor: 0, subsystem: 0,
//! # };
//! # let mut switch = Switch::new(&SwitchConfig {
//! #     upstream: identity, downstream: identity, ports: 1, link: Default::default(),
//! #     surprise: true, serial_number: 1,
//! # });
//! # // Bus 2 is in the switch, and bus 3 below its port. Both ports are bus masters.
//! # let ports = [(1, ConfigType::Type0, 0x03_0201), (2, ConfigType::Type1, 0x03_0302)];
//! # for (bus, kind, buses) in ports {
//! #     for (offset, value) in [(0x18, buses), (0x04, 6)] {
//! #         let target = Bdf::new(bus, 0, 0);
//! #         let write = Packet::config_write(root, Tag::new(0), target, offset, dword(value));
//! #         switch.handle_input(now, (PortId::Upstream, write.with_config_type(kind)));
//! #     }
//! # }
//! let mut links = [Link::default()];
//! let mut lookahead = Lookahead::new(links.len());
//! lookahead.on_link(0, &links[0]);
//!
//! // A controller with its registers at c000_0000h, and an admin queue at 4000_0000h.
//! let config = |at, value| Packet::config_write(root, Tag::new(0), device, at, dword(value));
//! let write = |at: u64, value| Packet::memory_write(root, 0xc000_0000 + at, dword(value));
//! let class = Packet::config_read(root, Tag::new(1), device, 0x08, 4);
//! let capabilities = Packet::memory_read(root, Tag::new(2), 0xc000_0000, 8);
//! let (doorbell, enable) = (write(0x1000, 1), write(0x14, 0x46_0001));
//! let queues = [write(0x24, 0x1f_001f), write(0x28, 0x4000_0000), write(0x30, 0x4000_1000)];
//! let found = [class, config(0x10, 0xc000_0004), config(0x04, 6), capabilities];
//! for packet in found.into_iter().chain(queues).chain([enable, doorbell.clone()]) {
//!     let mut passing = packet.clone();
//!     let mut around = Surroundings { now, switch: &switch, links: &mut links, is_clear: true };
//!     match lookahead.on_down(&mut around, 0, &mut passing) {
//!         Passage::On(strand) => links[0].send_on(now, strand, passing),
//!         Passage::Kept | Passage::Answered(_) => assert_eq!(packet, doorbell),
//!     }
//!     // The device answers reads: it is an NVMe controller, and its doorbells adjoin.
//!     let data = match packet.tag().get() {
//!         1 => dword(0x0108_0200),
//!         2 => Buffer::zeroed(8),
//!         _ => continue,
//!     };
//!     let answer = Packet::completion_with_data(device, &packet.header, 0, data);
//!     lookahead.on_up(now, 0, &answer, &mut links[0]);
//! }
//!
//! // The doorbell waits for the new entry. The root complex reads it in host memory.
//! let read = lookahead.poll_packet().expect("an entry is to go ahead");
//! let entry = Buffer::copy_from_slice(&[0x06; 64]);
//! let answer = Packet::completion_with_data(root, &read.header, 0, entry.clone());
//! let mut around = Surroundings { now, switch: &switch, links: &mut links, is_clear: true };
//! lookahead.on_completion(&mut around, &answer);
//! assert_eq!(links[0].ahead, [(0x4000_0000, entry)]);
//! assert_eq!(links[0].packets.last(), Some(&doorbell));
//! ```
//!
//! # Limits and trust
//! No bytes of a host or a device cause a panic. Lookahead ignores packets that it does not
//! understand: the controller then reads from the host, which costs only a round trip. It reads
//! only memory that the device may read, in the name of the switch's upstream port. It never sends
//! more than the [window](pcie::switch::FarLink::ahead_window) of a link. All its state has limits:
//! functions, queues, namespaces, outstanding reads, commands whose memory has gone ahead, waiting
//! packets. Beyond them, less goes ahead.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod dma;
mod follow;
#[doc(hidden)]
pub mod fuzz;
mod gather;
mod lookahead;
mod port;
mod reads;
#[cfg(test)]
mod tests;
mod transfer;
mod walk;

pub use dma::Refusals;
pub use lookahead::{Lookahead, Statistics};
