//! Lanes of one subsystem over shared memory: engines alone, with commands that each lane's thread
//! makes itself.
//!
//! `cargo bench -p farlane-live --bench lanes` compares, in interleaved rounds, a subsystem on one
//! thread over memory of its own with one, two and four lanes over shared memory. It gives the rate
//! in wall time, and the processor time of a command, which other programs disturb less.
//!
//! `-- single 100000` and `-- lane 100000` run that many reads on one thread, for an instrument
//! that counts instructions.

#![allow(missing_docs, reason = "a program that is run by hand")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop with a panic")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant as Clock};

use engine::{Buffer, Engine, Instant, Pool, Rng};
use live::media::{Media, MediaForLane};
use live::reactor::pin;
use nvme::host::command;
use nvme::media::ram::RamDisk;
use nvme::media::{IoId, MediumId, Operation, Request};
use nvme::subsystem::{
    CommandToken, Config, ControllerConfig, ControllerKey, HostIdentity, Input, Lane, LaneId, LaneViews,
    Output, Subsystem, ToLane, ToSubsystem,
};
use nvme::wire::{CommandId, IoOpcode, NamespaceId, QueueId};

const DISK: u64 = 64 << 20;
const PAGES: u64 = DISK / 4096;
/// Commands in flight on each thread.
const DEPTH: u32 = 32;
const ROUNDS: usize = 9;
/// Stands for two lanes of two subsystems.
const APART: usize = 9;

/// The engine of a thread that executes I/O commands.
trait Executor: for<'a> Engine<Input<'a> = Input, Output = Output> {}
impl<E: for<'a> Engine<Input<'a> = Input, Output = Output>> Executor for E {}

/// Commands of one host, made where they are executed.
struct Load {
    controller: ControllerKey,
    rng: Rng,
    /// How many of 100 commands write.
    writes: u64,
    pool: Pool,
    inputs: Vec<Input>,
    /// Room for the inputs of the next step.
    room: Vec<Input>,
    done: u64,
    started: Clock,
}

impl Load {
    fn new(controller: ControllerKey, seed: u64, writes: u64) -> Self {
        let (rng, pool) = (Rng::from_seed(seed), Pool::default());
        Self {
            controller,
            rng,
            writes,
            pool,
            inputs: Vec::new(),
            room: Vec::new(),
            done: 0,
            started: Clock::now(),
        }
    }

    fn command(&mut self, token: CommandToken) {
        let write = self.writes > 0 && self.rng.below(100) < self.writes;
        let opcode = if write { IoOpcode::Write } else { IoOpcode::Read };
        let mut entry = command::on_blocks(opcode, NamespaceId(1), self.rng.below(PAGES) * 8, 8);
        entry.command_id = CommandId(u16::try_from(token.0).unwrap());
        let (controller, queue) = (self.controller, QueueId(1));
        self.inputs.push(Input::Command { controller, token, queue, entry });
    }

    /// Executes what has come, and sends a command for each that completes.
    fn step(
        &mut self,
        engine: &mut impl Executor,
        media: &mut Media,
        mut message: impl FnMut(Box<ToSubsystem>),
    ) {
        let now = Instant::from_nanos(self.done * 100);
        let mut inputs = std::mem::replace(&mut self.inputs, std::mem::take(&mut self.room));
        for input in inputs.drain(..) {
            engine.handle_input(now, input);
            while let Some(output) = engine.poll_output() {
                self.carry_out(output, media, &mut message);
            }
        }
        self.room = inputs;
    }

    fn carry_out(&mut self, output: Output, media: &mut Media, message: &mut impl FnMut(Box<ToSubsystem>)) {
        match output {
            Output::Media(request) => {
                let inputs = &mut self.inputs;
                let out = &mut |completion| inputs.push(Input::Media(completion));
                media.submit_for(Some(self.controller), request, out);
            }
            Output::PullHostData { token, length } => {
                let mut data = self.pool.take(length as usize);
                data[..8].copy_from_slice(&self.done.to_ne_bytes());
                let data = self.pool.seal(data);
                self.inputs.push(Input::HostData { token, data });
            }
            Output::PushHostData { data, .. } => {
                std::hint::black_box(data[0]);
            }
            Output::Complete { token, completion } => {
                assert!(completion.status.is_success());
                self.done += 1;
                self.command(token);
            }
            Output::ToSubsystem(report) => message(report),
            Output::Notify(_) | Output::Disowned(_) | Output::ToLane(..) => (),
        }
    }
}

/// A subsystem with a controller for each lane, over memory with contents.
struct Home {
    subsystem: Subsystem,
    controllers: Vec<ControllerKey>,
    media: Media,
}

impl Home {
    fn new(lanes: usize) -> Self {
        let mut media = Media::new();
        let medium = media.add(RamDisk::new(DISK)).unwrap();
        let data = Buffer::copy_from_slice(&vec![1; 1 << 20]);
        for offset in (0..DISK).step_by(1 << 20) {
            let operation = Operation::Write { offset, data: data.clone(), durable: false };
            media.submit(Request { id: IoId(0), medium, operation }, &mut |_| ());
        }
        let mut subsystem =
            Subsystem::new(Instant::ZERO, Config::new("BENCH").with_namespace(MediumId(0), DISK));
        let controllers = (1..=lanes.max(1)).map(|number| {
            let identifier = [u8::try_from(number).unwrap(); 16];
            let host = HostIdentity { name: format!("nqn.2014-08.org.nvmexpress:{number}"), identifier };
            let number = u16::try_from(number).unwrap();
            subsystem.add_controller(Instant::ZERO, ControllerConfig::fabrics(number, host))
        });
        let controllers = controllers.collect();
        while subsystem.poll_output().is_some() {}
        Self { subsystem, controllers, media }
    }
}

/// What a lane's thread begins with.
struct Start {
    index: usize,
    views: LaneViews,
    media: MediaForLane,
    inbox: Receiver<Box<ToLane>>,
    outbox: Sender<(usize, Box<ToSubsystem>)>,
    controller: ControllerKey,
    writes: u64,
}

/// The commands of a run, and the time that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Figure {
    commands: u64,
    /// Processor time of all threads, in nanoseconds.
    processor: f64,
    /// Wall time, in nanoseconds.
    wall: f64,
}

impl Figure {
    fn rate(&self) -> f64 {
        self.commands as f64 * 1e3 / self.wall
    }

    fn cost(&self) -> f64 {
        self.processor / self.commands as f64
    }
}

/// Processor time of this thread in nanoseconds.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Runs a load until `ends` says so. Messages of the subsystem are looked for at each turn.
fn run(
    load: &mut Load,
    engine: &mut impl Executor,
    media: &mut Media,
    (mut message, mut ends): (impl FnMut(Box<ToSubsystem>), impl FnMut(&mut Load) -> bool),
) -> Figure {
    for token in 0..DEPTH {
        load.command(CommandToken(token));
    }
    let before = processor_time();
    load.started = Clock::now();
    while !ends(load) {
        for _ in 0..16 {
            load.step(engine, media, &mut message);
        }
    }
    Figure {
        commands: load.done,
        processor: processor_time() - before,
        wall: load.started.elapsed().as_nanos() as f64,
    }
}

/// The subsystem executes all commands itself, over memory of one thread.
fn single(writes: u64, ends: impl FnMut(&mut Load) -> bool) -> Figure {
    let Home { mut subsystem, controllers, mut media } = Home::new(1);
    let mut load = Load::new(controllers[0], 1, writes);
    run(&mut load, &mut subsystem, &mut media, (|_| (), ends))
}

fn lane(start: Start, barrier: &Barrier, ends: impl Fn(&Load) -> bool) -> Figure {
    let Start { index, views, media, inbox, outbox, controller, writes } = start;
    let mut load = Load::new(controller, index as u64 + 1, writes);
    let mut engine = Lane::new(Instant::ZERO, views);
    let mut media = media.open().unwrap();
    barrier.wait();
    let send = |message| outbox.send((index, message)).unwrap();
    let ends = |load: &mut Load| {
        load.inputs.extend(inbox.try_iter().map(Input::FromSubsystem));
        ends(load)
    };
    run(&mut load, &mut engine, &mut media, (send, ends))
}

/// Several lanes, on two processors in turn; the subsystem's thread handles their messages.
fn lanes(count: usize, writes: u64, ends: impl Fn(&Load) -> bool + Send + Sync + 'static) -> Figure {
    lanes_from(0, count, writes, ends)
}

/// As [`lanes`], from a processor on.
fn lanes_from(
    processor: usize,
    count: usize,
    writes: u64,
    ends: impl Fn(&Load) -> bool + Send + Sync + 'static,
) -> Figure {
    let Home { mut subsystem, controllers, mut media } = Home::new(count);
    let (outbox, reports) = channel();
    let (barrier, ends) = (Arc::new(Barrier::new(count)), Arc::new(ends));
    let mut threads = Vec::new();
    let mut inboxes: Vec<(LaneId, Sender<Box<ToLane>>)> = Vec::new();
    for (index, controller) in controllers.into_iter().enumerate() {
        let (id, views) = subsystem.attach_lane(Instant::ZERO);
        let (to_lane, inbox) = channel();
        inboxes.push((id, to_lane));
        let (media, outbox) = (media.for_lane().unwrap().unwrap(), outbox.clone());
        let start = Start { index, views, media, inbox, outbox, controller, writes };
        let (barrier, ends) = (Arc::clone(&barrier), Arc::clone(&ends));
        threads.push(thread::spawn(move || {
            let _ = pin((processor + index) % 2);
            lane(start, &barrier, |load| ends(load))
        }));
    }
    drop(outbox);
    for (index, report) in reports {
        subsystem.handle_input(Instant::ZERO, Input::FromLane(inboxes[index].0, report));
        while let Some(output) = subsystem.poll_output() {
            if let Output::ToLane(id, message) = output
                && let Some((_, inbox)) = inboxes.iter().find(|(of, _)| *of == id)
            {
                // A lane that has ended reads no more messages.
                let _ = inbox.send(message);
            }
        }
    }
    sum(threads.into_iter().map(|thread| thread.join().unwrap()))
}

/// Two lanes of two subsystems, which share nothing: what two lanes of one could reach.
fn apart(writes: u64, ends: impl Fn(&Load) -> bool + Clone + Send + Sync + 'static) -> Figure {
    let other = ends.clone();
    let other = thread::spawn(move || lanes_from(1, 1, writes, other));
    let one = lanes_from(0, 1, writes, ends);
    sum([one, other.join().unwrap()].into_iter())
}

fn sum(figures: impl Iterator<Item = Figure>) -> Figure {
    figures.fold(Figure::default(), |sum, one| Figure {
        commands: sum.commands + one.commands,
        processor: sum.processor + one.processor,
        wall: sum.wall.max(one.wall),
    })
}

/// Lanes for some time.
fn timed(count: usize, writes: u64, time: Duration) -> Figure {
    let ends = move |load: &Load| load.started.elapsed() >= time;
    match count {
        0 => {
            // A thread of its own: those that it starts would be pinned as well.
            let alone = thread::spawn(move || {
                let _ = pin(0);
                single(writes, |load| ends(load))
            });
            alone.join().unwrap()
        }
        APART => apart(writes, ends),
        _ => lanes(count, writes, ends),
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn compare(writes: u64, time: Duration, rounds: usize) {
    let counts = [0, 1, APART, 2, 4];
    let measured: Vec<_> = (0..rounds).map(|_| counts.map(|count| timed(count, writes, time))).collect();
    println!(
        "4 KiB, {writes} % writes, {DEPTH} deep a thread, {} MiB, median of {rounds} rounds",
        DISK >> 20
    );
    for (index, count) in counts.into_iter().enumerate() {
        let of = |figure: fn(&Figure) -> f64| median(measured.iter().map(|round| figure(&round[index])));
        let scale =
            |base: usize| median(measured.iter().map(|round| round[index].rate() / round[base].rate()));
        let cost = median(measured.iter().map(|round| round[index].cost() / round[1].cost()));
        let name = match count {
            0 => "one thread".to_owned(),
            APART => "2 apart".to_owned(),
            _ => format!("{count} lanes"),
        };
        println!(
            "{name:>11}: {:6.3} M a second, {:.2} x one lane, {:.2} x two; a command {:6.1} ns, {cost:.2} x one lane",
            of(Figure::rate),
            scale(1),
            scale(3),
            of(Figure::cost),
        );
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|one| one.parse::<u64>().ok());
    let commands = number(1).unwrap_or(100_000);
    let writes = number(2).unwrap_or(0);
    match arguments.first().map(String::as_str) {
        Some("single") => println!("{:?}", single(writes, |load| load.done >= commands)),
        Some("lane") => println!("{:?}", lanes(1, writes, move |load| load.done >= commands)),
        _ => {
            // `cargo test` runs benches too, to see that they work.
            let is_bench = arguments.iter().any(|argument| argument == "--bench");
            let (time, rounds) = if is_bench { (400, ROUNDS) } else { (10, 1) };
            for writes in [0, 30] {
                compare(writes, Duration::from_millis(time), rounds);
            }
        }
    }
}
