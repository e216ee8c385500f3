//! Nanoseconds per 4 KiB read at depth 32, with host, controller and RAM disk in one thread,
//! directly and through TLPs.
//!
//! `direct` serves the controller's DMA from host memory at once, and `tlp` uses a root complex and
//! an endpoint. Both include the only copy of the data, into host memory; `copy` measures that copy
//! alone. A disk of 1 MiB stays in the processor's caches and shows the cost of the engines. A disk
//! of 64 MiB adds the cost of memory.

use std::time::Instant as Clock;

use engine::{Buffer, Engine, Instant, Pool};
use farlane_nvme_pcie::controller::{self, Controller};
use farlane_nvme_pcie::function::{self, Function};
use farlane_nvme_pcie::host::{self, Data, Host, QueueId, Submission};
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, MediumId};
use nvme::wire::{IoOpcode, NamespaceId};
use pcie::config::ClassCode;
use pcie::device::{Dma, DmaResult};
use pcie::memory::{Memory, Ram};
use pcie::requester::Answer;
use pcie::root_complex::{self, Plan, RootComplex};

const BASE: u64 = 0x1_0000_0000;
/// Lengths of the disks in bytes.
const DISKS: [u64; 2] = [1 << 20, 64 << 20];
const DEPTH: u64 = 32;
const ROUNDS: usize = 5;
const COMMANDS: u64 = 400_000;

fn main() {
    // `cargo test` runs benches too, to see that they work.
    let commands = if std::env::args().any(|argument| argument == "--bench") { COMMANDS } else { 2_000 };
    println!("4 KiB reads, depth {DEPTH}, {commands} commands, median of {ROUNDS} interleaved runs");
    for bytes in DISKS {
        measure(bytes, commands);
    }
}

fn measure(bytes: u64, commands: u64) {
    let mut direct = Vec::new();
    let mut tlp = Vec::new();
    let mut copy = Vec::new();
    for _ in 0..ROUNDS {
        direct.push(run(&mut Direct::new(bytes), bytes, commands));
        tlp.push(run(&mut Linked::new(bytes), bytes, commands));
        copy.push(copies(bytes, commands));
    }
    println!("disk of {} MiB", bytes >> 20);
    for (name, mut figures) in [("direct", direct), ("tlp", tlp), ("copy", copy)] {
        figures.sort_by(f64::total_cmp);
        let median = figures[ROUNDS / 2];
        println!("{name:>7}: {median:7.1} ns a read, {:6.3} M IOPS", 1_000.0 / median);
    }
}

/// The copy alone, over the same addresses.
fn copies(bytes: u64, commands: u64) -> f64 {
    let mut memory = Ram::new(BASE, 16 << 20);
    let pages: Vec<Buffer> = (0..bytes / 4096).map(|_| Buffer::copy_from_slice(&[1; 4096])).collect();
    let start = Clock::now();
    for command in 0..commands {
        let page = usize::try_from(lba(bytes, command) / 8).expect("a page of the disk");
        memory.write(BASE + command % DEPTH * 4096, &pages[page]).expect("mapped");
        std::hint::black_box(&memory);
    }
    start.elapsed().as_secs_f64() * 1e9 / commands as f64
}

fn lba(bytes: u64, command: u64) -> u64 {
    command.wrapping_mul(7_919) % (bytes / 4096) * 8
}

trait Machine {
    fn host(&mut self) -> (&mut Host, &mut Ram);
    /// Moves everything that can be moved, and adds the number of completed commands to
    /// `completed`.
    fn step(&mut self, completed: &mut u64);
}

fn submission(host: &Host, bytes: u64, command: u64) -> Submission {
    let data = Data { address: host.data_region().base + command % DEPTH * 4096, length: 4096 };
    Submission::on_blocks(IoOpcode::Read, QueueId(1), NamespaceId(1), lba(bytes, command), 8, data, command)
}

fn run(machine: &mut impl Machine, bytes: u64, commands: u64) -> f64 {
    let (mut submitted, mut completed) = (0, 0);
    let start = Clock::now();
    while completed < commands {
        let (host, memory) = machine.host();
        while submitted < commands && submitted - completed < DEPTH {
            let submission = submission(host, bytes, submitted);
            host.submit(Instant::ZERO, memory, submission).expect("there is room");
            submitted += 1;
        }
        machine.step(&mut completed);
    }
    start.elapsed().as_secs_f64() * 1e9 / commands as f64
}

fn host_config() -> host::Config {
    host::Config::new(BASE, 16 << 20)
}

fn controller_config(bytes: u64) -> controller::Config {
    controller::Config::new(nvme::subsystem::Config::new("BENCH").with_namespace(MediumId(0), bytes))
}

fn disk(bytes: u64) -> RamDisk {
    let mut disk = RamDisk::new(bytes);
    for page in 0..bytes / 4096 {
        let data = Buffer::copy_from_slice(&[1; 4096]);
        let operation = nvme::media::Operation::Write { offset: page * 4096, data, durable: false };
        let request = nvme::media::Request { id: nvme::media::IoId(0), medium: MediumId(0), operation };
        disk.submit(request, &mut |_| ());
    }
    disk
}

struct Direct {
    host: Host,
    memory: Ram,
    controller: Controller,
    disk: RamDisk,
    pool: Pool,
    answers: Vec<Completion>,
}

impl Direct {
    fn new(bytes: u64) -> Self {
        let mut direct = Self {
            host: Host::new(host_config()).expect("the arena is large enough"),
            memory: Ram::new(BASE, 16 << 20),
            controller: Controller::new(Instant::ZERO, controller_config(bytes)),
            disk: disk(bytes),
            pool: Pool::default(),
            answers: Vec::new(),
        };
        direct.host.start(Instant::ZERO);
        while !direct.host.is_ready() {
            direct.step(&mut 0);
        }
        direct
    }
}

impl Machine for Direct {
    fn host(&mut self) -> (&mut Host, &mut Ram) {
        (&mut self.host, &mut self.memory)
    }

    fn step(&mut self, completed: &mut u64) {
        let now = Instant::ZERO;
        self.host.poll_completions(now, &mut self.memory);
        while let Some(output) = self.host.poll_output() {
            match output {
                host::Output::RegisterRead { cookie, offset, length } => {
                    let mut bytes = [0; 8];
                    let bytes = &mut bytes[..length as usize];
                    self.controller.read_register(offset, bytes);
                    self.host.handle_input(now, host::Input::RegisterRead { cookie, bytes: Some(bytes) });
                }
                host::Output::RegisterWrite { offset, bytes } => {
                    let input = controller::Input::RegisterWrite { offset, bytes: &bytes };
                    self.controller.handle_input(now, input);
                }
                host::Output::Completed(ended) => {
                    assert!(ended.status.is_success());
                    *completed += 1;
                }
                _ => {}
            }
        }
        while let Some(output) = self.controller.poll_output() {
            match output {
                controller::Output::Dma(Dma::Read { id, address, length }) => {
                    let data = self.memory.slice(address, length as usize).expect("mapped");
                    let data = self.pool.copy(data);
                    let result = DmaResult::Data { id, offset: 0, data, last: true };
                    self.controller.handle_input(now, controller::Input::Dma(result));
                }
                controller::Output::Dma(Dma::Write { address, data }) => {
                    self.memory.write(address, &data).expect("mapped");
                }
                controller::Output::Media(request) => {
                    let answers = &mut self.answers;
                    self.disk.submit(request, &mut |completion| answers.push(completion));
                    for completion in self.answers.drain(..) {
                        self.controller.handle_input(now, controller::Input::Media(completion));
                    }
                }
                _ => {}
            }
        }
    }
}

struct Linked {
    host: Host,
    memory: Ram,
    root: RootComplex,
    function: Function,
    bar: u64,
    disk: RamDisk,
    pool: Pool,
    answers: Vec<Completion>,
}

impl Linked {
    fn new(bytes: u64) -> Self {
        let now = Instant::ZERO;
        let mut linked = Self {
            host: Host::new(host_config()).expect("the arena is large enough"),
            memory: Ram::new(BASE, 16 << 20),
            root: RootComplex::new(root_complex::Config::default()),
            function: Function::new(now, function::Config::new(controller_config(bytes))),
            bar: 0,
            disk: disk(bytes),
            pool: Pool::default(),
            answers: Vec::new(),
        };
        linked.root.enumerate(now, Plan::default());
        while linked.bar == 0 {
            linked.step(&mut 0);
        }
        linked.host.start(now);
        while !linked.host.is_ready() {
            linked.step(&mut 0);
        }
        linked
    }

    fn on_root(&mut self, output: root_complex::Output) {
        let now = Instant::ZERO;
        match output {
            root_complex::Output::Packet(packet) => {
                self.function.handle_input(now, function::Input::Packet(packet));
            }
            root_complex::Output::MemoryRead { token, address, length } => {
                let data = self.memory.slice(address, length as usize).expect("mapped");
                let data = self.pool.copy(data);
                self.root.memory_read_done(token, Some(data));
            }
            root_complex::Output::MemoryWrite { address, data } => {
                self.memory.write(address, &data).expect("mapped");
            }
            root_complex::Output::Answer(Answer::ReadData { cookie, data, .. }) => {
                self.host.handle_input(now, host::Input::RegisterRead { cookie, bytes: Some(&data) });
            }
            root_complex::Output::Enumerated(result) => {
                let topology = result.expect("the function is found");
                let function = topology.functions().find(|function| function.class == ClassCode::NVME);
                let bar = function.and_then(|function| function.bar(0)).and_then(|bar| bar.address);
                self.bar = bar.expect("BAR0 is placed");
            }
            _ => {}
        }
    }
}

impl Machine for Linked {
    fn host(&mut self) -> (&mut Host, &mut Ram) {
        (&mut self.host, &mut self.memory)
    }

    fn step(&mut self, completed: &mut u64) {
        let now = Instant::ZERO;
        self.host.poll_completions(now, &mut self.memory);
        while let Some(output) = self.host.poll_output() {
            match output {
                host::Output::RegisterRead { cookie, offset, length } => {
                    self.root.read(now, cookie, self.bar + u64::from(offset), length).expect("a free tag");
                }
                host::Output::RegisterWrite { offset, bytes } => {
                    let data = self.pool.copy(&bytes);
                    self.root.write(self.bar + u64::from(offset), &data);
                }
                host::Output::Completed(ended) => {
                    assert!(ended.status.is_success());
                    *completed += 1;
                }
                _ => {}
            }
        }
        while let Some(output) = self.root.poll_output() {
            self.on_root(output);
        }
        while let Some(output) = self.function.poll_output() {
            match output {
                function::Output::Packet(packet) => {
                    self.root.handle_input(now, root_complex::Input::Packet(packet));
                }
                function::Output::Media(request) => {
                    let answers = &mut self.answers;
                    self.disk.submit(request, &mut |completion| answers.push(completion));
                    for completion in self.answers.drain(..) {
                        self.function.handle_input(now, function::Input::Media(completion));
                    }
                }
                function::Output::Notify(_) | function::Output::ToLane(..) => {}
            }
        }
        while let Some(output) = self.root.poll_output() {
            self.on_root(output);
        }
    }
}
