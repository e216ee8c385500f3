//! The captures of a running daemon, as its control socket is asked for them.
//!
//! A client sends a descriptor with its request: of its file, or the writing end of a pipe if it
//! wants to choose. A thread of the daemon writes the capture there. A client that goes away ends
//! its capture, and a client that does not read on loses packets.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use assemblies::near::Near;
use captures::note_of;
use engine::Instant;
use live::drivers::control;
use live::drivers::far::{self, FarDriver, Server};
use live::drivers::guest::{self, GuestDriver};
use live::drivers::hot_plug::HotPlugDriver;
use live::reactor::Several;
use live::sys::clock::Clock;
use nvme::subsystem::Subsystem;
use nvme_pcie::controller::{Controller, QueuePlace};
use pcie::endpoint::Endpoint;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trace::known::{Knowledge, Ring};

use crate::capture::{Captured, Lent, Taps, Times, Wanted, What, capture, capture_reporting};
use crate::commands::control::reply;

/// The most captures of a daemon at once: each has a thread and up to 16 MiB of memory.
const CAPTURES_MAX: usize = 4;
/// How long a daemon that ends waits for the reader of a capture.
const PATIENCE: Duration = Duration::from_secs(1);
/// Configuration space: Base Address Register 0, and its bits that are no address.
const BAR0: u16 = 0x10;
const BAR_FLAGS: u64 = 0xf;
/// Bytes from a doorbell to the next: CAP.DSTRD of our controllers is 0, and our host drives
/// no others.
const STRIDE: u32 = 4;

/// The requests about captures that a daemon answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Begins a capture, which goes to the descriptor that comes with the request. Where a second
    /// one comes, a pipe's, the daemon reports there how the capture ended (an `Outcome` as JSON).
    Capture {
        /// The most bytes that are kept of a packet's data.
        snap: Option<u64>,
        /// Of a target: the queues whose connections are wanted; all, if there are none.
        queues: Vec<u16>,
    },
    /// Lists the running captures.
    Captures,
    /// Ends a capture, or all.
    StopCapture {
        /// The capture's number, as the answer to [`Request::Capture`] has it.
        id: Option<u32>,
    },
}

/// The captures of a daemon that are running.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct List {
    /// The kind of traffic that a capture has.
    pub(super) passes: Passes,
    pub(super) captures: Vec<Entry>,
}

/// The kind of traffic that a capture has.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Passes {
    /// PCIe packets.
    Packets,
    /// The bytes of connections.
    Streams,
}

/// A capture that is running, for its client.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct Entry {
    pub(super) id: u32,
    /// For how long it has been running.
    pub(super) for_s: f64,
    pub(super) packets: u64,
    /// Packets that found no room.
    pub(super) lost: u64,
}

/// The answer to [`Request::Capture`].
#[derive(Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) id: u32,
}

/// The captures of a daemon that were stopped.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Stopped {
    /// Their numbers.
    pub(super) stopped: Vec<u32>,
}

/// Something whose ports can be captured.
pub(crate) trait Capturable {
    /// The kind of traffic there.
    fn what(&self) -> What;
    /// Notes that a capture's reader needs and that a capture from now on does not contain.
    fn notes(&self) -> Vec<String>;

    /// Gives each port a tap, which shows the traffic from now on.
    ///
    /// # Errors
    /// Why nothing that passes can be shown, as a sentence.
    fn tap(&mut self, taps: &Taps) -> Result<(), String>;
}

/// A capture that is running.
struct Running {
    id: u32,
    since: Instant,
    captured: Captured,
}

/// The captures of this daemon.
pub(crate) struct Captures {
    clock: Clock,
    running: Vec<Running>,
    begun: u32,
}

impl<C: Capturable> daemon::Captures<C> for Captures {
    fn new(clock: Clock) -> Self {
        Self { clock, running: Vec::new(), begun: 0 }
    }

    fn answer(&mut self, asked: &mut control::Request<'_>, driver: &mut C) -> Option<Result<Value, String>> {
        let request = serde_json::from_str(asked.line).ok()?;
        self.running.retain(|one| !one.captured.is_over());
        Some(match request {
            Request::Capture { snap, queues } => {
                self.begin((snap, queues), std::mem::take(&mut asked.descriptors).into_iter(), driver)
            }
            Request::Captures => reply(&self.status(driver.what())),
            Request::StopCapture { id } => reply(&self.stop(id)),
        })
    }
}

impl Captures {
    fn begin<C: Capturable>(
        &mut self,
        (snap, queues): (Option<u64>, Vec<u16>),
        mut descriptors: impl Iterator<Item = std::os::fd::OwnedFd>,
        what: &mut C,
    ) -> Result<Value, String> {
        let out = descriptors.next().ok_or("a capture needs a descriptor to which it is written")?;
        if self.running.len() >= CAPTURES_MAX {
            return Err(format!(
                "{CAPTURES_MAX} captures are running, which is the most: farlane observe capture --stop ends them"
            ));
        }
        let snap = snap.map_or(usize::MAX, |snap| usize::try_from(snap).unwrap_or(usize::MAX));
        let wanted = Wanted { what: what.what(), snap, queues, notes: what.notes() };
        let (out, times) = (File::from(out), Times::OfClock(self.clock));
        let captured = match descriptors.next().map(File::from) {
            None => capture(out, times, wanted),
            Some(listener) => Lent::new(out, &listener).and_then(|out| {
                capture_reporting(out, times, wanted, move |outcome| {
                    let line = serde_json::to_string(&outcome).unwrap_or_default();
                    // A client that has gone needs no answer.
                    let _ = writeln!(&listener, "{line}");
                })
            }),
        };
        let captured = captured.map_err(|error| format!("no thread can write it: {error}"))?;
        what.tap(captured.taps()).inspect_err(|_| captured.stop())?;
        self.begun += 1;
        let id = self.begun;
        info!(capture = id, "capture {id} begins");
        self.running.push(Running { id, since: self.clock.now(), captured });
        reply(&Begun { id })
    }

    fn status(&self, what: What) -> List {
        let now = self.clock.now();
        let one = |one: &Running| {
            let tally = one.captured.tally();
            let for_s = Duration::from(now - one.since).as_secs_f64();
            Entry { id: one.id, for_s, packets: tally.seen, lost: tally.lost }
        };
        let passes = if what == What::Streams { Passes::Streams } else { Passes::Packets };
        List { passes, captures: self.running.iter().map(one).collect() }
    }

    fn stop(&mut self, id: Option<u32>) -> Stopped {
        let wanted = |one: &&Running| id.is_none_or(|id| one.id == id);
        let stopped: Vec<_> = self.running.iter().filter(wanted).map(|one| one.id).collect();
        self.running.iter().filter(wanted).for_each(|one| one.captured.stop());
        Stopped { stopped }
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.running.iter().for_each(|one| one.captured.stop());
        for Running { id, captured, .. } in self.running.drain(..) {
            if let Err(error) = captured.finish(Some(PATIENCE)) {
                warn!(capture = id, "the end of capture {id} was not written: {error}");
            }
        }
    }
}

/// A note for readers about a controller of ours: where its registers and its queues are.
fn note(endpoint: &Endpoint, controller: &Controller, core: &Subsystem) -> Option<String> {
    let ring = |of: QueuePlace| Ring { id: of.id, base: of.base, entries: of.entries };
    let half = |at: u16| u64::from(endpoint.config().read(at));
    let bar = (half(BAR0 + 4) << 32 | half(BAR0)) & !BAR_FLAGS;
    if bar == 0 {
        // Its set-up is still to come, and the capture will have it.
        return None;
    }
    note_of(&Knowledge {
        function: endpoint.id(),
        bar,
        stride: STRIDE,
        submissions: controller.submission_queues().map(ring).collect(),
        completions: controller.completion_queues().map(ring).collect(),
        blocks: core.namespaces().map(|one| (one.id.0, one.block.bytes())).collect(),
    })
}

/// Notes for readers about the controllers that a host of ours drives.
pub(crate) fn notes_of_host(near: &Near) -> Vec<String> {
    let ring = |of: QueuePlace| Ring { id: of.id, base: of.base, entries: of.entries };
    let note = |(index, function)| {
        let host = near.driver(index)?;
        let found = near.topology()?.functions().find(|one| one.bdf == function)?;
        let bar = found.bars.iter().find(|bar| bar.index == 0)?.address?;
        let (submissions, completions) = host.queues().map(|pair| (ring(pair[0]), ring(pair[1]))).unzip();
        let namespaces = host.identity()?.namespaces.iter();
        let blocks = namespaces.map(|one| (one.id.0, one.block_bytes)).collect();
        note_of(&Knowledge { function, bar, stride: STRIDE, submissions, completions, blocks })
    };
    near.controllers().filter_map(note).collect()
}

impl<F: FnMut(far::Event)> Capturable for Several<FarDriver<F>> {
    fn what(&self) -> What {
        What::Packets
    }

    fn notes(&self) -> Vec<String> {
        let note_of = |driver: &FarDriver<F>| {
            let core = driver.far().core();
            let functions = driver.far().seats().iter().map(|seat| seat.function());
            let notes = functions.filter_map(|of| note(of.endpoint(), of.controller(), core));
            notes.collect::<Vec<_>>()
        };
        self.iter().flat_map(note_of).collect()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        let mut ports = (0..=u8::MAX).chain(core::iter::repeat(u8::MAX));
        for driver in self.iter_mut() {
            for (seat, port) in (0..driver.far().seats().len()).zip(&mut ports) {
                driver.watch(seat).add(taps.tap(port));
            }
        }
        Ok(())
    }
}

impl<F: FnMut(far::Event)> Capturable for FarDriver<F, Server> {
    fn what(&self) -> What {
        What::Packets
    }

    /// This process does not know the places of the queues of another process' device.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        self.watch(0).add(taps.tap(0));
        Ok(())
    }
}

impl<F: FnMut(guest::Event)> Capturable for HotPlugDriver<F> {
    fn what(&self) -> What {
        self.slot().what()
    }

    fn notes(&self) -> Vec<String> {
        self.slot().notes()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        self.slot_mut().tap(taps)
    }
}

impl<F: FnMut(guest::Event)> Capturable for GuestDriver<F> {
    fn what(&self) -> What {
        What::Packets
    }

    fn notes(&self) -> Vec<String> {
        self.endpoint()
            .zip(self.controller())
            .and_then(|(of, controller)| note(of, controller, controller.core()))
            .into_iter()
            .collect()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        if !self.lanes().is_empty() {
            const WHY: &str = "the device serves queues on several threads, of which no packets pass";
            return Err(format!("{WHY}: start it with --cores 1 to capture it"));
        }
        self.watch().add(taps.tap(0));
        Ok(())
    }
}
