//! `farlane-gateware bench`: a host with an NVMe driver behind the circuit's upstream role.

use std::collections::VecDeque;
use std::io;
use std::process::ExitCode;

use assemblies::near::{Config, ControllerIndex, Event as HostEvent, Input, Near, Output};
use clap::Args;
use engine::{Engine, Instant};
use nvme::wire::{IoOpcode, NamespaceId};
use nvme_pcie::host::{Completed, Data, QueueId, Submission};

use super::wire::{Event, Peer, Wire};

/// What to read and write.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The far end: tcp://HOST:PORT. Its namespace 1 is overwritten with --verify.
    url: String,
    /// Write each block before it is read, and compare.
    #[arg(long)]
    verify: bool,
    /// Commands of each kind.
    #[arg(long, default_value_t = 200)]
    count: u64,
    /// Break the connection this many times.
    #[arg(long, default_value_t = 0)]
    cut: u64,
    /// Bytes of each command.
    #[arg(long, default_value_t = 4096)]
    size: u32,
    /// Blocks of the namespace have this many bytes.
    #[arg(long, default_value_t = 512)]
    block: u32,
}

/// The host behind the circuit, and the run's state.
struct Bench {
    near: Option<Near>,
    completed: VecDeque<Completed>,
    ready: bool,
    failed: Option<String>,
    resumed: u64,
}

/// The contents of command `number`'s data.
fn pattern(number: u64, bytes: &mut [u8]) {
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place as u64).to_le_bytes();
    }
}

impl Bench {
    fn on_wire(&mut self, now: Instant, event: Event) {
        match event {
            Event::LinkUp => self.near = Some(Near::direct(Config::default(), now)),
            Event::Tlp(packet) => {
                if let Some(near) = &mut self.near {
                    near.handle_input(now, Input::Packet(packet));
                }
            }
            Event::LinkDown => self.failed = Some("the link went down".into()),
            Event::Resumed => self.resumed += 1,
            Event::Interrupted | Event::Reset => {}
        }
    }

    /// Handles the host's deadlines and outputs. Returns whether any packet went out.
    fn settle(&mut self, wire: &mut Wire) -> bool {
        let Some(near) = &mut self.near else { return false };
        let now = wire.now();
        if near.poll_timeout().is_some_and(|at| at <= now) {
            near.handle_timeout(now);
        }
        let mut sent = false;
        while let Some(output) = near.poll_output() {
            match output {
                Output::Packet(packet) => {
                    wire.port.send(now, &packet);
                    sent = true;
                }
                Output::Event(HostEvent::Ready { .. }) => self.ready = true,
                Output::Event(HostEvent::Completed { completed, .. }) => self.completed.push_back(completed),
                Output::Event(HostEvent::Failed(failure)) => self.failed = Some(failure.to_string()),
                _ => {}
            }
        }
        sent
    }

    /// Drives circuit and host until `done` returns something.
    fn drive<T>(&mut self, wire: &mut Wire, mut done: impl FnMut(&mut Self) -> Option<T>) -> io::Result<T> {
        loop {
            loop {
                wire.settle(|_, now, event| self.on_wire(now, event));
                if !self.settle(wire) {
                    break;
                }
            }
            if let Some(error) = self.failed.take() {
                return Err(io::Error::other(format!("{error}; {}", wire.port.describe())));
            }
            if let Some(result) = done(self) {
                return Ok(result);
            }
            wire.wait(self.near.as_ref().and_then(Engine::poll_timeout))?;
        }
    }

    /// Runs one command, and returns when it was submitted and when it ended, in nanoseconds.
    fn command(
        &mut self,
        wire: &mut Wire,
        opcode: IoOpcode,
        number: u64,
        arguments: &Arguments,
    ) -> io::Result<u64> {
        let Some(near) = &mut self.near else { return Err(io::Error::other("there is no host")) };
        let controller = ControllerIndex(0);
        let region = near.driver(controller).map(|driver| driver.data_region());
        let Some(region) = region else { return Err(io::Error::other("no NVMe controller was found")) };
        let data = Data { address: region.base, length: arguments.size };
        let length = usize::try_from(arguments.size).expect("a command's data fit the address space");
        let memory = near.memory_mut().slice_mut(region.base, length).map_err(io::Error::other)?;
        if opcode == IoOpcode::Write {
            pattern(number, memory)
        } else {
            memory.fill(0)
        }
        let blocks = arguments.size / arguments.block;
        let lba = number * u64::from(blocks);
        let submission = Submission::on_blocks(opcode, QueueId(1), NamespaceId(1), lba, blocks, data, number);
        near.submit(wire.now(), controller, submission).map_err(io::Error::other)?;
        let completed = self.drive(wire, |bench| bench.completed.pop_front())?;
        if !completed.status.is_success() {
            return Err(io::Error::other(format!("command {number} ended with {}", completed.status)));
        }
        if opcode == IoOpcode::Read && arguments.verify {
            let near = self.near.as_mut().ok_or_else(|| io::Error::other("there is no host"))?;
            let found = near.memory_mut().slice_mut(region.base, length).map_err(io::Error::other)?;
            let mut expected = vec![0; length];
            pattern(number, &mut expected);
            if *found != *expected {
                return Err(io::Error::other(format!(
                    "block {lba} was read with other contents than written"
                )));
            }
        }
        Ok((completed.completed - completed.submitted).get())
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farlane-gateware bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> io::Result<()> {
    let address = arguments.url.strip_prefix("tcp://").ok_or_else(|| {
        io::Error::other(format!("{:?} is no URL of a far end; expected tcp://HOST:PORT", arguments.url))
    })?;
    if arguments.size == 0 || !arguments.size.is_multiple_of(arguments.block.max(1)) || arguments.block == 0 {
        return Err(io::Error::other(format!(
            "{} B are no multiple of blocks of {} B; give another --size or --block",
            arguments.size, arguments.block
        )));
    }
    let mut wire = Wire::new(Peer::Dialled(address.to_owned()), "circuit");
    let mut bench = Bench { near: None, completed: VecDeque::new(), ready: false, failed: None, resumed: 0 };
    bench.drive(&mut wire, |bench| bench.ready.then_some(()))?;
    println!("circuit: link up, controller ready after {} cycles", wire.port.cycles());

    let mut times = [Vec::new(), Vec::new()];
    let every = arguments.count.checked_div(arguments.cut + 1).unwrap_or(0).max(1);
    let (mut cuts, begin) = (0, wire.port.cycles());
    for number in 0..arguments.count {
        if arguments.verify {
            times[0].push(bench.command(&mut wire, IoOpcode::Write, number, arguments)?);
        }
        if cuts < arguments.cut && number % every == every - 1 {
            wire.cut();
            cuts += 1;
        }
        times[1].push(bench.command(&mut wire, IoOpcode::Read, number, arguments)?);
    }
    let cycles = wire.port.cycles() - begin;
    for (name, times) in ["write", "read"].into_iter().zip(&mut times).filter(|(_, times)| !times.is_empty())
    {
        times.sort_unstable();
        let median = times[times.len() / 2];
        println!(
            "{name}: {} commands of {} B, median {median} ns of this machine's time",
            times.len(),
            arguments.size
        );
    }
    println!(
        "{}{cuts} cuts, {} resumptions, {cycles} cycles of the model (a model takes some hundred times as long as a circuit)",
        if arguments.verify { "every block was read as it was written; " } else { "" },
        bench.resumed
    );
    let now = wire.now();
    wire.port.close(now);
    wire.settle(|_, _, _| ());
    Ok(())
}
