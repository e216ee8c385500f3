//! Fuzz entries: ordinary code that accepts any bytes and must never panic.

use alloc::vec::Vec;

use engine::fuzz::Source;
use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::{Completion, MediaError, MediumId, Operation, Request};
use nvme::wire::{IoOpcode, NamespaceId};
use pcie::device::{Dma, DmaResult};
use pcie::memory::{Memory, Ram};

use crate::controller::{Config, Controller, Input, Output};
use crate::host::{self, Host, Submission};

/// The most steps of one run.
const STEPS_MAX: usize = 512;
/// The most outputs handled after one step. A controller that has more is left waiting.
const OUTPUTS_MAX: usize = 4096;

/// Drives a controller with register writes, host memory and media as `bytes` determine. The first
/// byte of a step chooses the action.
pub fn registers(bytes: &[u8]) {
    let core = nvme::subsystem::Config::new("FUZZ").with_namespace(MediumId(0), 1 << 20);
    let core = core.with_pool(MediumId(1), 1 << 20);
    let config = Config { doorbell_buffers: true, memory_buffer_bytes: 4096, ..Config::new(core) };
    let mut controller = Controller::new(Instant::ZERO, config);
    let mut source = Source::new(bytes);
    let mut held = Vec::new();
    for step in 0..STEPS_MAX {
        if source.is_empty() {
            return;
        }
        let now = Instant::from_nanos(step as u64 * 100_000);
        write_register(&mut controller, now, &mut source);
        if controller.poll_timeout().is_some_and(|at| at <= now) {
            controller.handle_timeout(now);
        }
        for _ in 0..OUTPUTS_MAX {
            let Some(output) = controller.poll_output() else { break };
            answer(&mut controller, now, output, &mut source, &mut held);
        }
    }
}

fn write_register(controller: &mut Controller, now: Instant, source: &mut Source<'_>) {
    let value = |source: &mut Source<'_>| u64::from(source.word()).to_le_bytes();
    let (offset, bytes) = match source.byte() {
        // The steps that probably start the controller, so that the code behind them is reached.
        0 => (0x14, 0x0046_0000_u64.to_le_bytes()),
        1 => (0x24, 0x001f_001f_u64.to_le_bytes()),
        2 => (0x14, 0x0046_0001_u64.to_le_bytes()),
        // Weighted round robin. Queues at address 0 are in the controller memory buffer.
        3 => (0x14, 0x0046_0801_u64.to_le_bytes()),
        4 => (0x50, 0b11_u64.to_le_bytes()),
        5 => {
            let bytes = [source.byte(), source.byte(), source.byte(), source.byte()];
            let offset = u64::from(source.byte()) * 20;
            return controller.handle_input(now, Input::MemoryBufferWrite { offset, bytes: &bytes });
        }
        6..=127 => (0x1000 + 4 * u32::from(source.byte() & 7), u64::from(source.byte()).to_le_bytes()),
        128..=190 => (0x1000 + u32::from(source.byte()), value(source)),
        _ => (source.word() % 0x1400, value(source)),
    };
    let length = if offset < 0x1000 { 1 + usize::from(source.byte() & 7) } else { 4 };
    let length = if matches!(offset, 0x14 | 0x24 | 0x50) { 4 } else { length };
    controller.handle_input(now, Input::RegisterWrite { offset, bytes: &bytes[..length] });
    let mut read = [0; 16];
    controller.read_register(offset, &mut read);
}

fn answer(
    controller: &mut Controller,
    now: Instant,
    output: Output,
    source: &mut Source<'_>,
    held: &mut Vec<Request>,
) {
    match output {
        Output::Dma(Dma::Read { id, length, .. }) => {
            let failed = source.byte() == 255;
            let mut data = alloc::vec![0; length as usize];
            for byte in data.iter_mut().take(64) {
                *byte = source.byte();
            }
            let data = Buffer::copy_from_slice(&data);
            let result = if failed {
                DmaResult::Failed { id }
            } else {
                DmaResult::Data { id, offset: 0, data, last: true }
            };
            controller.handle_input(now, Input::Dma(result));
        }
        Output::Dma(Dma::Write { .. } | Dma::Interrupt { .. }) | Output::Notify(_) => {}
        Output::ToLane(..) | Output::ToHome(_) => unreachable!("no lane is attached"),
        Output::Media(request) => {
            held.push(request);
            if source.byte() & 1 == 0 {
                for request in held.drain(..) {
                    serve(controller, now, &request, source.byte() != 255);
                }
            }
        }
    }
}

fn serve(controller: &mut Controller, now: Instant, request: &Request, good: bool) {
    if let (Operation::Read { length, .. }, true) = (&request.operation, good) {
        let data = Buffer::zeroed(*length as usize);
        controller.handle_input(now, Input::Media(Completion::Data { id: request.id, offset: 0, data }));
    }
    let result = if good { Ok(()) } else { Err(MediaError::Read) };
    controller.handle_input(now, Input::Media(Completion::Done { id: request.id, result }));
}

/// Runs a driver whose device answers register reads, and writes to host memory, as `bytes`
/// determine.
pub fn host(bytes: &[u8]) {
    let mut memory = Ram::new(0, 0x2_0000);
    let config = host::Config { queue_entries: 8, ..host::Config::new(0, 0x2_0000) };
    let Ok(mut host) = Host::new(config) else { return };
    let mut source = Source::new(bytes);
    let mut now = Instant::ZERO;
    host.start(now);
    let mut asked = None;
    for step in 0..STEPS_MAX {
        if source.is_empty() {
            return;
        }
        match source.byte() {
            0..=99 => {
                if let Some((cookie, offset, length)) = asked.take() {
                    let value = register_value(offset, &mut source).to_le_bytes();
                    let bytes = value.get(..length);
                    host.handle_input(now, host::Input::RegisterRead { cookie, bytes });
                }
            }
            // The admin queues are first in the arena, with 32 entries each, then the queues of
            // pair 1.
            100..=199 => scribble(&mut memory, &mut source),
            200..=219 => now = now + Nanos::from_millis(u64::from(source.byte()) * 100),
            220..=239 => {
                let data = host::Data { address: host.data_region().base, length: 4096 };
                let queue = host::QueueId(u16::from(source.byte() & 1));
                let namespace = NamespaceId(1);
                let submission =
                    Submission::on_blocks(IoOpcode::Read, queue, namespace, 0, 8, data, step as u64);
                // A refusal is a valid answer.
                let _ = host.submit(now, &mut memory, submission);
            }
            240..=247 => host.handle_input(now, host::Input::DeviceLost),
            _ => host.handle_input(now, host::Input::DeviceBack),
        }
        if host.poll_timeout().is_some_and(|at| at <= now) {
            host.handle_timeout(now);
        }
        host.poll_completions(now, &mut memory);
        for _ in 0..OUTPUTS_MAX {
            let Some(output) = host.poll_output() else { break };
            if let host::Output::RegisterRead { cookie, offset, length } = output {
                asked = Some((cookie, offset, length as usize));
            }
        }
    }
}

/// The value of a register. Half of the values are those of a real controller, so that the driver
/// makes progress.
pub fn register_value(offset: u32, source: &mut Source<'_>) -> u64 {
    let plain = match offset {
        0 => 1 << 37 | 1 << 24 | 0x3f,
        0x1c => u64::from(source.byte() & 1),
        _ => 0,
    };
    if source.byte() & 1 == 0 { plain } else { u64::from(source.word()) << 16 | u64::from(source.word()) }
}

/// Writes an entry into the rings of a driver whose arena begins at 0, or near them.
pub fn scribble(memory: &mut impl Memory, source: &mut Source<'_>) {
    let index = u64::from(source.byte() % 32);
    let queue = if source.byte() & 7 == 0 { 0x5000 } else { 0x1000 };
    let cid = u16::from(source.byte() & 7) << 12 | u16::from(source.byte() & 3);
    let mut entry = [0; 16];
    entry[..4].copy_from_slice(&source.word().to_le_bytes());
    entry[12..14].copy_from_slice(&cid.to_le_bytes());
    entry[14] = source.byte() & 3;
    // The rings are in the arena by construction. A miss would only write elsewhere.
    let _ = memory.write(queue + index * 16, &entry);
    let _ = memory.write(0x7000 + index * 64, &entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::default())]
        #[test]
        fn no_host_makes_a_controller_panic(
            running: bool, rest in prop::collection::vec(any::<u8>(), 0..2048),
        ) {
            let mut bytes = if running { alloc::vec![1, 2] } else { Vec::new() };
            bytes.extend(rest);
            registers(&bytes);
        }

        #[test]
        fn no_device_makes_a_driver_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            host(&bytes);
        }
    }
}
