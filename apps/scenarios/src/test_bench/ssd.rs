//! The node of an SSD on a PCIe link: a real function, and a model of the times of its parts.

use engine::{Buffer, Engine, Instant, Nanos};
use network_models::trail::Part;
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
use super::chain::Place;
use super::journal::{Cause, Journal, Step};
use super::port::Port;
use sim::Later;

/// Number of bytes that the flash delivers at once, before a channel transfers them in pieces.
const FLASH_PAGE: u64 = 4096;

/// An action that waits for its time.
#[derive(Debug)]
enum Due {
    /// The endpoint sends the completion of a configuration request.
    Send(Packet),
    /// The endpoint answers the read of a register.
    Register(BarToken, u32, u32),
    /// The controller accesses host memory.
    Dma(Dma),
    /// The firmware has looked at a submission-queue entry.
    Entry(DmaResult),
    /// The medium completes a request.
    Medium(Completion),
}

/// An SSD: a real endpoint and controller, and a model of their times.
#[derive(Debug)]
pub(super) struct SsdNode {
    endpoint: Endpoint,
    controller: Controller,
    model: Ssd,
    disk: RamDisk,
    port: Port,
    due: Later<(Cause, Due)>,
    journal: Journal,
    /// The journal's mark of the event that is being handled.
    cause: Cause,
}

impl SsdNode {
    pub(super) fn new(
        config: function::Config,
        bytes: u64,
        model: Ssd,
        port: Port,
        journal: Journal,
    ) -> Self {
        let (endpoint, controller) = Function::parts(Instant::ZERO, config);
        let (disk, due) = (RamDisk::new(bytes), Later::default());
        Self { endpoint, controller, model, disk, port, due, journal, cause: None }
    }

    /// Handles a packet that has arrived over the link.
    pub(super) fn receive(&mut self, context: &mut Context<'_, Cargo>, packet: Packet, cause: Cause) {
        let now = context.now();
        self.cause = cause;
        self.port.receive(now, &packet);
        let config = matches!(packet.header.kind, Kind::Config(_));
        self.endpoint.handle_input(now, packet);
        if config {
            // The endpoint's outputs at this point are the answer.
            let at = now + self.model.config_response();
            let cause = self.work(self.cause, at, Part::Processing, "configuration space");
            while let Some(output) = self.endpoint.poll_output() {
                match output {
                    endpoint::Output::Packet(packet) => self.due.put(at, (cause, Due::Send(packet))),
                    other => self.on_endpoint(context, other),
                }
            }
        }
    }

    /// Resets the function, as a hot reset of the link does.
    pub(super) fn reset(&mut self) {
        self.endpoint.hot_reset();
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_, Cargo>) -> Option<Instant> {
        let now = context.now();
        while let Some((cause, due)) = self.due.take(now) {
            self.cause = cause;
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
                Some(controller::Output::ToLane(..) | controller::Output::ToHome(_)) => {
                    unreachable!("no lane is attached")
                }
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
                self.port.send(context, packet, self.cause);
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
                self.port.send(context, packet, self.cause);
            }
            endpoint::Output::BarRead { token, offset, length, .. } => {
                let offset = u32::try_from(offset).expect("BAR0 is short");
                let at = now + self.model.parameters().register_response;
                let cause = self.work(self.cause, at, Part::Processing, "register");
                self.due.put(at, (cause, Due::Register(token, offset, length)));
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

    /// The controller accesses host memory: at once, except that it fetches an entry only some time
    /// after the doorbell.
    fn on_dma(&mut self, now: Instant, dma: Dma) {
        match &dma {
            Dma::Read { id, .. } if self.controller.is_fetch(*id) => {
                let at = now + self.model.parameters().fetch;
                let cause = self.work(self.cause, at, Part::Processing, "from doorbell to fetch");
                self.due.put(at, (cause, Due::Dma(dma)));
            }
            _ => self.endpoint.dma(now, dma),
        }
    }

    /// Host memory has answered. The firmware looks at a fetched entry before the controller goes
    /// on.
    fn on_result(&mut self, now: Instant, result: DmaResult) {
        let (DmaResult::Data { id, .. } | DmaResult::Failed { id }) = &result;
        if self.controller.is_fetch(*id) {
            let at = now + self.model.parameters().firmware;
            let cause = self.work(self.cause, at, Part::Processing, "firmware");
            self.due.put(at, (cause, Due::Entry(result)));
        } else {
            self.controller.handle_input(now, controller::Input::Dma(result));
        }
    }

    fn on_request(&mut self, now: Instant, request: Request) {
        let id = request.id;
        let completion = self.model.parameters().completion;
        let ready = match &request.operation {
            Operation::Read { offset, length } => {
                let (offset, length) = (*offset, *length);
                return self.read(now, request, offset, length, completion);
            }
            Operation::Write { offset, data, .. } => self.model.write(now, *offset, data.len() as u64),
            Operation::Flush => self.model.flush(now),
            Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => now,
        };
        let cause = self.work(self.cause, ready, Part::Waiting, "room in the write buffer");
        let done = ready + completion;
        let cause = self.work(cause, done, Part::Processing, "completion");
        let due = &mut self.due;
        self.disk.submit(request, &mut |answer| {
            if let Completion::Done { result, .. } = answer {
                due.put(done, (cause, Due::Medium(Completion::Done { id, result })));
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
        let (due, journal, cause) = (&mut self.due, &self.journal, self.cause);
        let flash =
            |at, what| journal.mark(cause, at, Step { place: Place::Ssd, part: Part::Processing, what });
        // The end waits for the last page's transfer; the time before is that of the page itself.
        let mut last = (now, None);
        let end = self.model.read(now, offset, length.into(), |at, start, length| {
            if start % FLASH_PAGE == 0 && at >= last.0 {
                last = (at, flash(at, "flash"));
            }
            if let Some(completion) = piece(id, &pages, start, length) {
                due.put(at, (flash(at, "flash"), Due::Medium(completion)));
            }
        });
        let cause = self.work(last.1, end, Part::Processing, "flash channel");
        let cause = self.work(cause, end + completion, Part::Processing, "completion");
        let done = Completion::Done { id, result: outcome };
        self.due.put(end + completion, (cause, Due::Medium(done)));
    }

    /// Marks that the device works until `at` because of `cause`.
    fn work(&self, cause: Cause, at: Instant, part: Part, what: &'static str) -> Cause {
        self.journal.mark(cause, at, Step { place: Place::Ssd, part, what })
    }
}

/// The bytes `start..start + length` of a read whose data are in `pages`.
fn piece(id: IoId, pages: &[(u32, Buffer)], start: u64, length: u64) -> Option<Completion> {
    let (offset, data) = pages.iter().find(|(offset, data)| {
        let offset = u64::from(*offset);
        offset <= start && start + length <= offset + data.len() as u64
    })?;
    let from = usize::try_from(start - u64::from(*offset)).expect("within a page");
    let data = data.slice(from..from + usize::try_from(length).expect("within a page"));
    Some(Completion::Data { id, offset: u32::try_from(start).expect("within a read"), data })
}
