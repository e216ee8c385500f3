//! The node of an SSD on a PCIe link: a real function, and a model of how long its parts take.

use engine::{Buffer, Engine, Instant, Nanos};
use nvme::media::ram::RamDisk;
use nvme::media::{Completion, IoId, Operation, Request};
use nvme_pcie::controller::{self, Controller};
use nvme_pcie::function::{self, Function};
use pcie::device::{Dma, DmaResult};
use pcie::endpoint::{self, BarToken, Endpoint};
use pcie::wire::{Kind, Packet};
use sim::Context;
use sim::models::ssd::Ssd;

use super::Cargo;
use super::later::Later;
use super::port::Port;

/// What waits for its time.
#[derive(Debug)]
enum Due {
    /// A completion of a configuration request.
    Send(Packet),
    /// A register is read.
    Register(BarToken, u32, u32),
    /// The controller reaches host memory.
    Dma(Dma),
    /// The entry has been looked at.
    Entry(DmaResult),
    /// The medium answers.
    Medium(Completion),
}

/// See the module.
#[derive(Debug)]
pub(super) struct SsdNode {
    endpoint: Endpoint,
    controller: Controller,
    model: Ssd,
    disk: RamDisk,
    port: Port,
    due: Later<Due>,
}

impl SsdNode {
    pub(super) fn new(config: function::Config, bytes: u64, model: Ssd, port: Port) -> Self {
        let (endpoint, controller) = Function::parts(Instant::ZERO, config);
        Self { endpoint, controller, model, disk: RamDisk::new(bytes), port, due: Later::default() }
    }

    /// A packet has come over the link.
    pub(super) fn receive(&mut self, context: &mut Context<'_, Cargo>, packet: Packet) {
        let now = context.now();
        self.port.receive(now, &packet);
        let config = matches!(packet.header.kind, Kind::Config(_));
        self.endpoint.handle_input(now, packet);
        if config {
            // What the endpoint says now is the answer.
            let at = now + self.model.config_response();
            while let Some(output) = self.endpoint.poll_output() {
                match output {
                    endpoint::Output::Packet(packet) => self.due.put(at, Due::Send(packet)),
                    other => self.on_endpoint(context, other),
                }
            }
        }
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_, Cargo>) -> Option<Instant> {
        let now = context.now();
        while let Some(due) = self.due.take(now) {
            self.on_due(context, due);
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        if self.controller.poll_timeout().is_some_and(|at| at <= now) {
            self.controller.handle_timeout(now);
        }
        loop {
            if let Some(output) = self.endpoint.poll_output() {
                self.on_endpoint(context, output);
                continue;
            }
            match self.controller.poll_output() {
                Some(controller::Output::Dma(dma)) => self.on_dma(now, dma),
                Some(controller::Output::Media(request)) => self.on_request(now, request),
                Some(controller::Output::Notify(_)) => {}
                None => break,
            }
        }
        let timers = [self.endpoint.poll_timeout(), self.controller.poll_timeout(), self.due.next()];
        timers.into_iter().flatten().min()
    }

    fn on_due(&mut self, context: &mut Context<'_, Cargo>, due: Due) {
        let now = context.now();
        match due {
            Due::Send(packet) => {
                self.port.send(context, packet);
            }
            Due::Register(token, offset, length) => {
                let mut bytes = [0; 4096];
                let bytes = &mut bytes[..length as usize];
                self.controller.read_register(offset, bytes);
                self.endpoint.bar_read_done_bytes(token, bytes);
            }
            Due::Dma(dma) => self.endpoint.dma(now, dma),
            Due::Entry(result) => self.controller.handle_input(now, controller::Input::Dma(result)),
            Due::Medium(completion) => {
                self.controller.handle_input(now, controller::Input::Media(completion));
            }
        }
    }

    fn on_endpoint(&mut self, context: &mut Context<'_, Cargo>, output: endpoint::Output) {
        let now = context.now();
        match output {
            endpoint::Output::Packet(packet) => {
                self.port.send(context, packet);
            }
            endpoint::Output::BarRead { token, offset, length, .. } => {
                let offset = u32::try_from(offset).expect("BAR0 is short");
                let at = now + self.model.parameters().register_response;
                self.due.put(at, Due::Register(token, offset, length));
            }
            endpoint::Output::BarWrite { offset, data, .. } => {
                let offset = u32::try_from(offset).expect("BAR0 is short");
                self.controller.handle_input(now, controller::Input::RegisterWrite { offset, bytes: &data });
            }
            endpoint::Output::Dma(result) => self.on_result(now, result),
            endpoint::Output::Reset(_) => {
                self.controller.reset();
                self.due.clear();
            }
        }
    }

    /// The controller reaches host memory: at once, but for an entry, which it finds some time after the doorbell.
    fn on_dma(&mut self, now: Instant, dma: Dma) {
        match &dma {
            Dma::Read { id, .. } if self.controller.is_fetch(*id) => {
                self.due.put(now + self.model.parameters().fetch, Due::Dma(dma));
            }
            _ => self.endpoint.dma(now, dma),
        }
    }

    /// Host memory answers: an entry is looked at by the firmware first.
    fn on_result(&mut self, now: Instant, result: DmaResult) {
        let (DmaResult::Data { id, .. } | DmaResult::Failed { id }) = &result;
        if self.controller.is_fetch(*id) {
            self.due.put(now + self.model.parameters().firmware, Due::Entry(result));
        } else {
            self.controller.handle_input(now, controller::Input::Dma(result));
        }
    }

    fn on_request(&mut self, now: Instant, request: Request) {
        let id = request.id;
        let completion = self.model.parameters().completion;
        let done = match &request.operation {
            Operation::Read { offset, length } => {
                let (offset, length) = (*offset, *length);
                return self.read(now, request, offset, length, completion);
            }
            Operation::Write { data, .. } => self.model.write(now, data.len() as u64) + completion,
            Operation::Flush => self.model.flush(now) + completion,
            Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => now + completion,
        };
        let due = &mut self.due;
        self.disk.submit(request, &mut |answer| {
            if let Completion::Done { result, .. } = answer {
                due.put(done, Due::Medium(Completion::Done { id, result }));
            }
        });
    }

    fn read(&mut self, now: Instant, request: Request, offset: u64, length: u32, completion: Nanos) {
        let id = request.id;
        let mut pages: Vec<(u32, Buffer)> = Vec::new();
        let mut outcome = Ok(());
        self.disk.submit(request, &mut |answer| match answer {
            Completion::Data { offset, data, .. } => pages.push((offset, data)),
            Completion::Done { result, .. } => outcome = result,
        });
        let due = &mut self.due;
        let end = self.model.read(now, offset, length.into(), |at, start, length| {
            if let Some(completion) = piece(id, &pages, start, length) {
                due.put(at, Due::Medium(completion));
            }
        });
        due.put(end + completion, Due::Medium(Completion::Done { id, result: outcome }));
    }
}

/// Bytes `start..start + length` of a read whose bytes are in `pages`.
fn piece(id: IoId, pages: &[(u32, Buffer)], start: u64, length: u64) -> Option<Completion> {
    let (offset, data) = pages.iter().find(|(offset, data)| {
        let offset = u64::from(*offset);
        offset <= start && start + length <= offset + data.len() as u64
    })?;
    let from = usize::try_from(start - u64::from(*offset)).expect("within a page");
    let data = data.slice(from..from + usize::try_from(length).expect("within a page"));
    Some(Completion::Data { id, offset: u32::try_from(start).expect("within a read"), data })
}
