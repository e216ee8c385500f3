//! Runs the initialisation script: its questions become register accesses, Admin commands and
//! waits for a time.

use alloc::boxed::Box;

use engine::{Instant, Step};
use nvme::wire::CompletionQueueEntry;
use pcie::memory::Memory;

use super::initialise::{Answer, InitError, Question};
use super::layout::PAGE;
use super::queue::{Command, Owner};
use super::{
    Awaiting, Data, Host, Identity, InitScript, Output, Pending, QueueId, RegisterBytes, State, SubmitError,
    Timer,
};

/// The bits of SGL Support (SGLS) for the support and the alignment of SGLs.
const SGL_ALIGNMENT: u32 = 0b11;
/// The value of these bits for SGLs of any alignment.
const SGL_OF_ANY: u32 = 0b01;

impl Host {
    pub(super) fn on_script_command(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        entry: CompletionQueueEntry,
    ) {
        let State::Initialising { script, awaiting } = core::mem::replace(&mut self.state, State::Idle)
        else {
            return;
        };
        let Awaiting::Admin { with_page } = awaiting else {
            self.state = State::Initialising { script, awaiting };
            return;
        };
        let page = with_page.then(|| {
            let mut page = Box::new([0; 4096]);
            // If the arena is no longer mapped, the next command reveals that.
            let _ = memory.read(self.layout.admin_page, &mut page[..]);
            page
        });
        self.advance(now, script, Answer::Completed { status: entry.status(), dw0: entry.dw0, page });
    }

    /// Answers the script's questions that need memory.
    pub(super) fn answer_from_memory(&mut self, now: Instant, memory: &mut impl Memory) {
        while let State::Initialising { awaiting: Awaiting::Memory(question), .. } = &self.state {
            let question = *question;
            let done = self.ask_memory(now, memory, question);
            let State::Initialising { script, .. } = core::mem::replace(&mut self.state, State::Idle) else {
                return;
            };
            match (question, done) {
                (Question::Admin { with_page, .. }, Ok(())) => {
                    self.state = State::Initialising { script, awaiting: Awaiting::Admin { with_page } };
                }
                (_, Ok(())) => self.advance(now, script, Answer::Value(0)),
                (_, Err(_)) => self.advance(now, script, Answer::Failed),
            }
        }
    }

    fn ask_memory(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        question: Question,
    ) -> Result<(), SubmitError> {
        match question {
            Question::RestartQueues { entries } => {
                for queue in &mut self.queues {
                    queue.limit(entries);
                    queue.restart(memory).map_err(SubmitError::Memory)?;
                }
                Ok(())
            }
            Question::Admin { entry, with_page } => {
                let page = u32::try_from(PAGE).expect("a page is small");
                let data = with_page.then_some(Data { address: self.layout.admin_page, length: page });
                let owner = Owner::Script;
                let command = Command { owner, entry, submitted: now, on_ring: true, aborted: false };
                self.place(now, memory, QueueId::ADMIN, command, data).map(|_| ())
            }
            Question::Read { .. } | Question::Write { .. } | Question::Sleep(_) => Ok(()),
        }
    }

    pub(super) fn on_step(
        &mut self,
        now: Instant,
        script: Box<InitScript>,
        step: Step<Question, Result<Identity, InitError>>,
    ) {
        let awaiting = match step {
            Step::Done(Ok(identity)) => return self.on_ready(now, identity),
            Step::Done(Err(error)) => return self.on_init_failed(now, error),
            Step::Ask(Question::Read { offset, length }) => {
                self.next_cookie += 1;
                let cookie = self.next_cookie;
                self.outputs.push_back(Output::RegisterRead { cookie, offset, length });
                self.timers.arm(Timer::Register, now + self.config.register_timeout);
                Awaiting::Register(cookie)
            }
            Step::Ask(Question::Write { offset, value, length }) => {
                // The write is posted, so it has no answer.
                let bytes = RegisterBytes::new(value, length);
                self.outputs.push_back(Output::RegisterWrite { offset, bytes });
                return self.advance(now, script, Answer::Value(0));
            }
            Step::Ask(Question::Sleep(length)) => {
                self.timers.arm(Timer::Sleep, now + length);
                Awaiting::Sleep
            }
            Step::Ask(question) => Awaiting::Memory(question),
        };
        self.state = State::Initialising { script, awaiting };
    }

    fn advance(&mut self, now: Instant, mut script: Box<InitScript>, answer: Answer) {
        let step = script.answer(answer);
        self.on_step(now, script, step);
    }

    fn on_ready(&mut self, _now: Instant, identity: Identity) {
        self.state = State::Ready;
        self.active = usize::from(identity.io_queues) + 1;
        // Data begin at double words here, but need not end there.
        self.takes_sgls = self.config.sgls && identity.controller.sgl_support & SGL_ALIGNMENT == SGL_OF_ANY;
        self.pending.push(Pending::RequestEvents);
        self.pending.push(Pending::Resubmit);
        self.identity = Some(identity.clone());
        self.outputs.push_back(Output::Ready(Box::new(identity)));
    }

    pub(super) fn on_register(&mut self, now: Instant, cookie: u64, value: Option<u64>) {
        if self.watch.takes(cookie) {
            return self.on_status(now, value);
        }
        let State::Initialising { awaiting: Awaiting::Register(awaited), .. } = &self.state else { return };
        if *awaited != cookie {
            return;
        }
        self.timers.disarm(Timer::Register);
        let State::Initialising { script, .. } = core::mem::replace(&mut self.state, State::Idle) else {
            return;
        };
        self.advance(now, script, value.map_or(Answer::Failed, Answer::Value));
    }

    pub(super) fn on_woke(&mut self, now: Instant) {
        match core::mem::replace(&mut self.state, State::Idle) {
            State::Initialising { script, awaiting: Awaiting::Sleep } => {
                self.advance(now, script, Answer::Woke(now));
            }
            other => self.state = other,
        }
    }
}
