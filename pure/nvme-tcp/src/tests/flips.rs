//! One flipped bit in transit, at every place of a connection's life: it is either noticed or
//! harmless.

use alloc::vec::Vec;

use engine::{Buffer, Engine, Pool};
use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};

use super::{NOW, READ, WRITE, entry, pattern, pool};
use crate::controller::{self, Queue, Slot};
use crate::host::{self, DigestUse};
use crate::wire::{Fault, INITIALISE_LENGTH};
use nvme::host::Data;
use nvme_fabrics::transport::{ControllerEnd, HostEnd};

/// Opcode and number of bytes of each command of a run: in the capsule, by R2Ts, to the host,
/// without data.
const COMMANDS: [(u8, u32); 6] = [(WRITE, 64), (WRITE, 600), (READ, 700), (0, 0), (READ, 100), (READ, 4)];
const CAPSULE: u32 = 128;
/// Rounds after which a run has stalled.
const ROUNDS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToController,
    ToHost,
}

/// How a run ended.
#[derive(Debug, Default)]
struct Outcome {
    /// Bytes sent in each direction.
    bytes: [usize; 2],
    /// Header and data digests as each end has agreed upon them.
    at_host: Option<(bool, bool)>,
    at_controller: Option<(bool, bool)>,
    /// An undetected defect.
    silent: Option<&'static str>,
    /// Number of commands that ended with success, and with a failure.
    ended: [usize; 2],
    /// An end of the connection has closed it.
    closed: bool,
    /// The connection was closed while there was still work to do.
    closed_early: bool,
}

struct Run {
    controller: controller::Connection,
    host: host::Connection,
    flip: Option<(Way, usize)>,
    /// Commands whose data arrive by R2T.
    pulling: Vec<(Slot, SubmissionQueueEntry)>,
    outcome: Outcome,
    pool: Pool,
}

impl Run {
    fn new(flip: Option<(Way, usize)>, success_flag: bool) -> Self {
        let digest = DigestUse::Preferred;
        let host = host::Config {
            header_digest: digest,
            data_digest: digest,
            capsule_data_max: CAPSULE,
            ready_to_transfer_max: 2,
            queue_size: 8,
            ..host::Config::new(pool())
        };
        let controller = controller::Config {
            ready_to_transfer_bytes_max: 256,
            alignment: 8,
            ..controller::Config::new(pool())
        };
        let mut run = Self {
            controller: controller::Connection::new(NOW, controller),
            host: host::Connection::new(NOW, host),
            flip,
            pulling: Vec::new(),
            outcome: Outcome::default(),
            pool: Pool::default(),
        };
        run.controller.set_queue(Queue { size: 8, capsule_data_max: CAPSULE, success_flag });
        run
    }

    /// Runs the handshake, the commands, and a Terminate Connection Request from `last`.
    fn play(mut self, last: Way) -> Outcome {
        self.settle();
        for (cookie, (opcode, length)) in (0_u32..).zip(COMMANDS) {
            let data = match opcode {
                WRITE => Data::Write(Buffer::from(pattern(cookie, length))),
                READ => Data::Read(length),
                _ => Data::None,
            };
            // A connection that is over rejects commands.
            if self.host.submit(u64::from(cookie), entry(opcode, cookie, length, false), data).is_err() {
                break;
            }
            if cookie > 2 {
                self.settle();
            }
        }
        self.settle();
        self.outcome.closed_early = self.outcome.closed;
        match last {
            Way::ToController => self.host.terminate(Fault::LIMIT),
            Way::ToHost => self.controller.terminate(Fault::LIMIT),
        }
        self.settle();
        self.outcome
    }

    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let towards: Vec<u8> = self.host.outbox().slices().flatten().copied().collect();
            self.host.sent(towards.len());
            let moved = self.carry(Way::ToController, towards);
            while let Some(output) = self.controller.poll_output() {
                self.on_controller(output);
            }
            let back: Vec<u8> = self.controller.outbox().slices().flatten().copied().collect();
            self.controller.sent(back.len());
            let moved = self.carry(Way::ToHost, back) || moved;
            while let Some(output) = self.host.poll_output() {
                self.on_host(output);
            }
            if !moved {
                return;
            }
        }
        panic!("the ends have no end");
    }

    fn carry(&mut self, way: Way, mut bytes: Vec<u8>) -> bool {
        if bytes.is_empty() {
            return false;
        }
        let begin = core::mem::replace(&mut self.outcome.bytes[way as usize], 0);
        self.outcome.bytes[way as usize] = begin + bytes.len();
        if let Some((of, bit)) = self.flip
            && of == way
            && let Some(byte) = (bit / 8).checked_sub(begin).and_then(|at| bytes.get_mut(at))
        {
            *byte ^= 1 << (bit % 8);
        }
        let bytes = Buffer::from(bytes);
        match way {
            Way::ToController => self.controller.handle_input(NOW, controller::Input::Received(bytes)),
            Way::ToHost => self.host.handle_input(NOW, host::Input::Received(bytes)),
        }
        true
    }

    fn on_controller(&mut self, output: controller::Output) {
        match output {
            controller::Output::Initialized(agreed) => {
                self.outcome.at_controller = Some((agreed.header_digest, agreed.data_digest));
            }
            controller::Output::Command { slot, entry } => self.on_command(slot, entry),
            controller::Output::HostData { slot, data } => {
                let index = self.pulling.iter().position(|(other, _)| *other == slot);
                let (_, entry) = self.pulling.remove(index.expect("data of a command in flight"));
                self.on_written(slot, &entry, &data);
            }
            controller::Output::HostDataFailed { slot, status } => {
                self.controller.complete(slot, CompletionQueueEntry::default().with_status(status, false));
            }
            controller::Output::Closed(_) => self.outcome.closed = true,
        }
    }

    fn on_command(&mut self, slot: Slot, entry: SubmissionQueueEntry) {
        let sent = usize::try_from(entry.cdw10).ok().and_then(|index| COMMANDS.get(index));
        if sent != Some(&(entry.opcode, entry.cdw12)) {
            self.outcome.silent = Some("a command is another one than was sent");
        }
        match entry.opcode {
            WRITE => match self.controller.pull(slot, entry.cdw12) {
                Ok(Some(data)) => self.on_written(slot, &entry, &data),
                Ok(None) => self.pulling.push((slot, entry)),
                Err(status) => {
                    let failed = CompletionQueueEntry::default().with_status(status, false);
                    self.controller.complete(slot, failed);
                }
            },
            READ => {
                let bytes = pattern(entry.cdw10, entry.cdw12);
                let data = self.pool.copy(&bytes);
                let pushed = self.controller.push(slot, 0, entry.cdw12, data);
                let status = pushed.err().unwrap_or(nvme::wire::Status::SUCCESS);
                self.controller.complete(slot, CompletionQueueEntry::default().with_status(status, false));
            }
            _ => self.controller.complete(slot, CompletionQueueEntry::default()),
        }
    }

    fn on_written(&mut self, slot: Slot, entry: &SubmissionQueueEntry, data: &[u8]) {
        if *data != *pattern(entry.cdw10, entry.cdw12) {
            self.outcome.silent = Some("a write wrote something else");
        }
        self.controller.complete(slot, CompletionQueueEntry::default());
    }

    fn on_host(&mut self, output: host::Output) {
        match output {
            host::Output::Initialized(agreed) => {
                self.outcome.at_host = Some((agreed.header_digest, agreed.data_digest));
            }
            host::Output::Completed(completed) => {
                let is_good = completed.entry.status().is_success();
                self.outcome.ended[usize::from(!is_good)] += 1;
                let cookie = u32::try_from(completed.cookie).unwrap();
                let (opcode, length) = COMMANDS[cookie as usize];
                if is_good && opcode == READ && *completed.data != *pattern(cookie, length) {
                    self.outcome.silent = Some("a read read something else");
                }
            }
            host::Output::Closed(_) => self.outcome.closed = true,
        }
    }
}

#[test]
fn no_flipped_bit_is_silent() {
    let mut undigested = 0;
    for (success_flag, last) in [(false, Way::ToController), (true, Way::ToHost)] {
        let whole = Run::new(None, success_flag).play(last);
        assert_eq!((whole.ended, whole.closed, whole.silent), ([COMMANDS.len(), 0], true, None));
        assert_eq!((whole.at_host, whole.at_controller), (Some((true, true)), Some((true, true))));
        for way in [Way::ToController, Way::ToHost] {
            for bit in 0..whole.bytes[way as usize] * 8 {
                let outcome = Run::new(Some((way, bit)), success_flag).play(last);
                let context = || std::format!("bit {bit} {way:?}, {last:?}: {outcome:?}");
                assert!(outcome.silent.is_none(), "{}", context());
                // Commands that have not ended have lost their connection: no end waits for missing
                // bytes for ever.
                let ended: usize = outcome.ended.iter().sum();
                assert!(ended == COMMANDS.len() || outcome.closed_early, "{}", context());
                assert!(outcome.closed, "{}", context());
                if outcome.at_host.is_some_and(|agreed| agreed != (true, true)) {
                    // Only bits that arrive before digests are used can disable the digests, and
                    // the host notices.
                    assert!(bit < INITIALISE_LENGTH * 8, "{}", context());
                    let agrees = outcome.at_controller == outcome.at_host;
                    assert!(agrees || (outcome.closed && outcome.ended == [0, 0]), "{}", context());
                    undigested += 1;
                }
            }
        }
    }
    // The digest bits of ICReq and of ICResp, in both runs.
    assert_eq!(undigested, 8);
}

/// A connection whose digests a flipped bit has disabled ends at its ICResp, if the digests are
/// required or if the Admin Queue of the association has them.
#[test]
fn a_flip_that_takes_digests_away_ends_the_connection_that_must_have_them() {
    use crate::wire::{InitializeRequest, InitializeResponse};
    let required = |config: &mut host::Config| config.header_digest = DigestUse::Required;
    let agreed = |config: &mut host::Config| config.agreed_digests = Some((true, true));
    let none = |config: &mut host::Config| config.agreed_digests = Some((false, true));
    type Change<'a> = &'a dyn Fn(&mut host::Config);
    let cases: [(Change<'_>, bool, Option<host::Closed>); 6] = [
        (&required, false, Some(host::Closed::DigestRefused)),
        (&agreed, false, Some(host::Closed::DigestsDiffer)),
        (&none, true, Some(host::Closed::DigestsDiffer)),
        (&required, true, None),
        (&agreed, true, None),
        (&none, false, None),
    ];
    for (change, header_digest, why) in cases {
        let digest = DigestUse::Preferred;
        let mut config =
            host::Config { header_digest: digest, data_digest: digest, ..host::Config::new(pool()) };
        change(&mut config);
        let mut host = host::Connection::new(NOW, config);
        let request: Vec<u8> = host.outbox().slices().flatten().copied().collect();
        let request = InitializeRequest::parse(request.first_chunk().unwrap()).unwrap();
        assert!(request.header_digest && request.data_digest);
        host.sent(INITIALISE_LENGTH);
        let response =
            InitializeResponse { alignment: 4, header_digest, data_digest: true, host_data_max: 4096 };
        host.handle_input(NOW, host::Input::Received(Buffer::copy_from_slice(&response.emit())));
        match (host.poll_output(), why) {
            (Some(host::Output::Initialized(_)), None) => assert!(host.is_ready()),
            (Some(host::Output::Closed(closed)), Some(why)) => {
                assert_eq!(closed, why);
                // The fault reported to the controller: Unsupported Parameter, at the byte of the
                // digests.
                let sent: Vec<u8> = host.outbox().slices().flatten().copied().collect();
                assert_eq!((sent[0], &sent[8..14]), (2, &[6, 0, 11, 0, 0, 0][..]));
            }
            other => panic!("{other:?}"),
        }
    }
}
