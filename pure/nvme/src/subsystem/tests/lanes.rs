//! Lanes beside a subsystem, with messages that arrive when a test delivers them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::*;

/// A subsystem with two namespaces and lanes, which all use the same disks.
struct Lanes {
    bench: Bench,
    lanes: Vec<(LaneId, Lane)>,
    to_lanes: VecDeque<(LaneId, Box<ToLane>)>,
    to_subsystem: VecDeque<(LaneId, Box<ToSubsystem>)>,
    /// Completions of commands of lanes, by the lane's index and the token.
    completed: BTreeMap<(usize, u32), CompletionResult>,
    pushed: Vec<u8>,
    /// Whether media keep the requests of lanes.
    stuck: bool,
    kept: Vec<(usize, Request)>,
    /// Whether hosts keep the data that lanes pull.
    pulls_wait: bool,
    pulls: Vec<(usize, CommandToken, u32)>,
}

impl Lanes {
    fn new(count: usize) -> Self {
        let mut bench = Bench::new();
        bench.connect(2);
        let now = bench.now;
        let attach = |_| {
            let (id, views) = bench.subsystem.attach_lane(now);
            (id, Lane::new(now, views))
        };
        let lanes = (0..count).map(attach).collect();
        let mut lanes = Self {
            bench,
            lanes,
            to_lanes: VecDeque::new(),
            to_subsystem: VecDeque::new(),
            completed: BTreeMap::new(),
            pushed: Vec::new(),
            stuck: false,
            kept: Vec::new(),
            pulls_wait: false,
            pulls: Vec::new(),
        };
        lanes.deliver();
        lanes
    }

    /// Sends a command to a lane, and carries out what the lane asks for.
    fn io(&mut self, lane: usize, token: u32, mut entry: SubmissionQueueEntry) {
        entry.command_id = CommandId(u16::try_from(token).unwrap());
        let (controller, token) = (self.bench.controller, CommandToken(token));
        self.input(lane, Input::Command { controller, token, queue: IO, entry });
    }

    fn input(&mut self, lane: usize, input: Input) {
        let now = self.bench.now;
        self.lanes[lane].1.handle_input(now, input);
        self.drain_lane(lane);
    }

    fn drain_lane(&mut self, lane: usize) {
        while let Some(output) = self.lanes[lane].1.poll_output() {
            match output {
                Output::PullHostData { token, length } if self.pulls_wait => {
                    self.pulls.push((lane, token, length));
                }
                Output::PullHostData { token, length } => self.give(lane, token, length),
                Output::PushHostData { offset, length, data, .. } => {
                    self.pushed.resize(length as usize, 0);
                    self.pushed[offset as usize..][..data.len()].copy_from_slice(&data);
                }
                Output::Complete { token, completion } => {
                    assert!(self.completed.insert((lane, token.0), completion).is_none(), "{token:?} twice");
                }
                Output::Media(request) if self.stuck => self.kept.push((lane, request)),
                Output::Media(request) => self.carry_out(lane, request),
                Output::ToSubsystem(message) => {
                    self.to_subsystem.push_back((self.lanes[lane].0, message));
                }
                Output::Disowned(_) => (),
                Output::Notify(_) | Output::ToLane(..) => panic!("a lane has no {output:?}"),
            }
        }
    }

    fn give(&mut self, lane: usize, token: CommandToken, length: u32) {
        let mut data = self.bench.host_data.clone();
        data.resize(length as usize, 0);
        self.input(lane, Input::HostData { token, data: Buffer::from(data) });
    }

    fn carry_out(&mut self, lane: usize, request: Request) {
        let mut completions = Vec::new();
        let disk = &mut self.bench.disks[request.medium.0 as usize];
        disk.submit(request, &mut |completion| completions.push(completion));
        completions.into_iter().for_each(|completion| self.input(lane, Input::Media(completion)));
    }

    /// Carries out the requests that media have kept.
    fn release(&mut self) {
        self.stuck = false;
        for (lane, request) in core::mem::take(&mut self.kept) {
            self.carry_out(lane, request);
        }
    }

    /// Sends an admin command of the bench's controller.
    fn admin(&mut self, entry: SubmissionQueueEntry) -> CommandToken {
        let token = CommandToken(self.bench.next);
        self.bench.next += 1;
        let (controller, now) = (self.bench.controller, self.bench.now);
        let command = Input::Command { controller, token, queue: ADMIN, entry };
        self.bench.subsystem.handle_input(now, command);
        self.drain_subsystem();
        token
    }

    fn drain_subsystem(&mut self) {
        let now = self.bench.now;
        while let Some(output) = self.bench.subsystem.poll_output() {
            match output {
                Output::ToLane(lane, message) => self.to_lanes.push_back((lane, message)),
                Output::PushHostData { data, .. } => self.pushed = data.to_vec(),
                Output::Complete { token, completion } => {
                    self.bench.completed.insert(token.0, completion);
                }
                Output::Media(request) => {
                    let (disks, subsystem) = (&mut self.bench.disks, &mut self.bench.subsystem);
                    disks[request.medium.0 as usize].submit(request, &mut |completion| {
                        subsystem.handle_input(now, Input::Media(completion));
                    });
                }
                _ => (),
            }
        }
    }

    /// Delivers messages until there are none.
    fn deliver(&mut self) {
        self.drain_subsystem();
        loop {
            if let Some((lane, message)) = self.to_lanes.pop_front() {
                let lane = self.lanes.iter().position(|(id, _)| *id == lane).unwrap();
                self.input(lane, Input::FromSubsystem(message));
            } else if let Some((lane, message)) = self.to_subsystem.pop_front() {
                let now = self.bench.now;
                self.bench.subsystem.handle_input(now, Input::FromLane(lane, message));
                self.drain_subsystem();
            } else {
                return;
            }
        }
    }

    #[track_caller]
    fn status(&self, lane: usize, token: u32) -> StatusCode {
        self.completed.get(&(lane, token)).expect("the command has not ended").status.code()
    }

    fn has_ended(&self, lane: usize, token: u32) -> bool {
        self.completed.contains_key(&(lane, token))
    }

    fn admin_has_ended(&self, token: CommandToken) -> bool {
        self.bench.completed.contains_key(&token.0)
    }
}

const SUCCESS: StatusCode = StatusCode::SuccessfulCompletion;

#[test]
fn lanes_share_the_media_and_the_logs_count_their_commands() {
    let mut lanes = Lanes::new(2);
    lanes.bench.host_data = vec![7; 512];
    lanes.io(0, 0, io(IoOpcode::Write, 1, 3, 1));
    lanes.io(1, 0, io(IoOpcode::Read, 1, 3, 1));
    assert_eq!((lanes.status(0, 0), lanes.status(1, 0)), (SUCCESS, SUCCESS));
    assert_eq!(lanes.pushed, [7; 512]);
    lanes.io(1, 1, io(IoOpcode::Read, 1, DISK / 512, 1));
    assert_eq!(lanes.status(1, 1), StatusCode::LbaOutOfRange);
    assert!(lanes.to_subsystem.is_empty(), "no message for commands that need none");
    let health = lanes.admin(log(LogPage::Smart, 512));
    assert!(!lanes.admin_has_ended(health), "lanes are asked for their counts");
    lanes.deliver();
    assert!(lanes.admin_has_ended(health));
    assert_eq!([64, 80, 176].map(|at| u64_at(&lanes.pushed, at)), [1, 1, 1], "reads, writes, errors");
    lanes.admin(log(LogPage::ErrorInformation, 64));
    lanes.deliver();
    assert_eq!(u64_at(&lanes.pushed, 16), DISK / 512, "the block of the failure");
    let (_, tally) = lanes.bench.subsystem.tallies().next().unwrap();
    assert_eq!((tally.of(Kind::Write).bytes, tally.of(Kind::Read).errors), (512, 1));
    let host = lanes.bench.subsystem.host_tally(lanes.bench.controller).unwrap();
    assert_eq!(host.of(Kind::Read).operations, 1);
}

#[test]
fn a_change_completes_once_all_lanes_have_seen_it() {
    let mut lanes = Lanes::new(2);
    lanes.pulls_wait = true;
    lanes.io(0, 0, io(IoOpcode::Write, 1, 0, 1));
    let protect = set(FeatureId::WriteProtection, 1);
    let protect = lanes.admin(SubmissionQueueEntry { namespace: NamespaceId(1), ..protect });
    lanes.deliver();
    assert!(lanes.admin_has_ended(protect));
    let (lane, token, length) = lanes.pulls.remove(0);
    lanes.give(lane, token, length);
    assert_eq!(lanes.status(0, 0), StatusCode::NamespaceWriteProtected, "its data came after the change");
    let free = set(FeatureId::WriteProtection, 0);
    let free = lanes.admin(SubmissionQueueEntry { namespace: NamespaceId(1), ..free });
    assert!(!lanes.admin_has_ended(free));
    let second = lanes.to_lanes.pop_back().unwrap();
    lanes.deliver();
    assert!(!lanes.admin_has_ended(free), "the second lane has not seen it");
    lanes.to_lanes.push_back(second);
    lanes.deliver();
    assert!(lanes.admin_has_ended(free));
}

#[test]
fn a_format_waits_until_lanes_are_quiet_and_holds_the_other_namespaces() {
    let mut lanes = Lanes::new(2);
    lanes.stuck = true;
    lanes.bench.host_data = vec![7; 512];
    lanes.io(0, 0, io(IoOpcode::Write, 1, 0, 1));
    let format = SubmissionQueueEntry { namespace: NamespaceId(1), ..admin(AdminOpcode::FormatNvm) };
    let format = lanes.admin(format);
    lanes.deliver();
    lanes.stuck = false;
    lanes.io(1, 0, io(IoOpcode::Read, 1, 0, 1));
    lanes.io(1, 1, io(IoOpcode::Read, 2, 0, 1));
    assert_eq!(lanes.status(1, 0), StatusCode::FormatInProgress);
    assert!(!lanes.has_ended(1, 1) && !lanes.admin_has_ended(format));
    lanes.release();
    lanes.deliver();
    assert_eq!((lanes.status(0, 0), lanes.status(1, 1)), (SUCCESS, SUCCESS));
    assert!(lanes.admin_has_ended(format));
    lanes.io(1, 2, io(IoOpcode::Read, 1, 0, 1));
    assert_eq!((lanes.status(1, 2), &lanes.pushed[..]), (SUCCESS, &[0; 512][..]));
}

#[test]
fn the_subsystem_executes_what_lanes_hand_over() {
    let mut lanes = Lanes::new(1);
    lanes.pulls_wait = true;
    lanes.bench.host_data = vec![7; 512];
    // The data of this write arrives when only the subsystem may execute it.
    lanes.io(0, 0, io(IoOpcode::Write, 1, 4, 1));
    lanes.io(0, 1, io(IoOpcode::WriteUncorrectable, 1, 4, 2));
    lanes.deliver();
    assert_eq!(lanes.status(0, 1), SUCCESS);
    let (lane, token, length) = lanes.pulls.remove(0);
    lanes.give(lane, token, length);
    lanes.io(0, 2, io(IoOpcode::Read, 1, 5, 1));
    lanes.deliver();
    assert_eq!((lanes.status(0, 0), lanes.status(0, 2)), (SUCCESS, StatusCode::UnrecoveredReadError));
    lanes.io(0, 3, io(IoOpcode::Read, 1, 4, 1));
    lanes.deliver();
    assert_eq!((lanes.status(0, 3), &lanes.pushed[..]), (SUCCESS, &[7; 512][..]));
    // A fused pair, and a first half that no second one follows.
    lanes.pulls_wait = false;
    lanes.io(0, 4, SubmissionQueueEntry { flags: 1, ..io(IoOpcode::Compare, 2, 0, 1) });
    lanes.bench.host_data = vec![0; 512];
    lanes.io(0, 5, SubmissionQueueEntry { flags: 2, ..io(IoOpcode::Write, 2, 0, 1) });
    lanes.io(0, 6, SubmissionQueueEntry { flags: 1, ..io(IoOpcode::Compare, 2, 0, 1) });
    lanes.io(0, 7, io(IoOpcode::Read, 2, 0, 1));
    lanes.deliver();
    assert_eq!([4, 5, 7].map(|token| lanes.status(0, token)), [SUCCESS; 3]);
    assert_eq!(lanes.status(0, 6), StatusCode::AbortedMissingFused);
}

#[test]
fn abort_finds_commands_of_lanes() {
    let mut lanes = Lanes::new(2);
    lanes.stuck = true;
    lanes.io(1, 9, io(IoOpcode::Read, 1, 0, 1));
    for (command, aborted) in [(9, 0), (8, 1)] {
        let abort = SubmissionQueueEntry { cdw10: command << 16 | 1, ..admin(AdminOpcode::Abort) };
        let abort = lanes.admin(abort);
        lanes.deliver();
        assert_eq!(lanes.bench.take(abort).dw0, aborted);
    }
    assert_eq!(lanes.status(1, 9), StatusCode::CommandAbortRequested);
    lanes.release();
    assert_eq!(lanes.lanes[1].1.media_outstanding(), 0);
}

#[test]
fn a_lane_that_ends_is_waited_for_until_it_is_quiet() {
    let mut lanes = Lanes::new(2);
    lanes.stuck = true;
    lanes.io(0, 0, io(IoOpcode::WriteZeroes, 1, 0, 1));
    let ending = lanes.lanes[0].0;
    lanes.bench.subsystem.detach_lane(lanes.bench.now, ending);
    lanes.deliver();
    assert_eq!(lanes.bench.subsystem.lanes().count(), 2);
    let controller = lanes.bench.controller;
    assert_eq!(lanes.lanes[0].1.in_flight(controller, IO), 0);
    lanes.release();
    lanes.deliver();
    assert_eq!(lanes.bench.subsystem.lanes().collect::<Vec<_>>(), [lanes.lanes[1].0]);
    assert!(!lanes.has_ended(0, 0), "its connection is gone");
}

#[test]
fn a_lane_whose_thread_is_gone_is_waited_for_until_it_is_declared_ended() {
    let mut lanes = Lanes::new(2);
    lanes.pulls_wait = true;
    lanes.io(0, 0, SubmissionQueueEntry { flags: 1, ..io(IoOpcode::Compare, 1, 0, 1) });
    lanes.io(0, 1, SubmissionQueueEntry { flags: 2, ..io(IoOpcode::Write, 1, 0, 1) });
    lanes.deliver();
    // The pair holds the lanes until the data of its first half arrives, which will not happen.
    lanes.io(1, 0, io(IoOpcode::Read, 1, 0, 1));
    let health = lanes.admin(log(LogPage::Smart, 512));
    let (controller, now) = (lanes.bench.controller, lanes.bench.now);
    let gone = lanes.lanes[0].0;
    lanes.to_lanes.retain(|(lane, _)| *lane != gone);
    lanes.deliver();
    assert!(!lanes.has_ended(1, 0) && !lanes.admin_has_ended(health));
    lanes.bench.subsystem.lane_gone(now, gone);
    lanes.deliver();
    assert_eq!(lanes.status(1, 0), SUCCESS);
    assert!(lanes.admin_has_ended(health));
    assert_eq!(lanes.bench.subsystem.lanes().collect::<Vec<_>>(), [lanes.lanes[1].0]);
    assert_eq!(lanes.bench.subsystem.in_flight(controller, IO), 0);
    lanes.bench.subsystem.lane_gone(now, gone);
    assert_eq!(lanes.bench.subsystem.lanes_lost(), 1, "the second time says nothing new");
}

#[test]
fn nothing_waits_for_lanes_when_none_is_left() {
    let mut lanes = Lanes::new(1);
    let (controller, now) = (lanes.bench.controller, lanes.bench.now);
    let other = lanes.bench.subsystem.controllers().next().unwrap();
    lanes.bench.subsystem.reset(now, other);
    assert_eq!(lanes.bench.subsystem.media_outstanding(other), 1);
    // Both the log page and the end of the controller's life wait for the lane.
    let token = CommandToken(lanes.bench.next);
    let entry = log(LogPage::Smart, 512);
    let command = Input::Command { controller, token, queue: ADMIN, entry };
    lanes.bench.subsystem.handle_input(now, command);
    lanes.bench.subsystem.lane_gone(now, lanes.lanes[0].0);
    lanes.drain_subsystem();
    assert!(lanes.admin_has_ended(token));
    lanes.bench.subsystem.attach_lane(now);
    assert_eq!(lanes.bench.subsystem.media_outstanding(other), 0);
}

#[test]
fn a_reset_ends_what_lanes_are_handing_over() {
    let mut lanes = Lanes::new(1);
    let (controller, now) = (lanes.bench.controller, lanes.bench.now);
    lanes.io(0, 0, SubmissionQueueEntry { flags: 1, ..io(IoOpcode::Compare, 1, 0, 1) });
    lanes.io(0, 1, io(IoOpcode::WriteUncorrectable, 1, 1, 1));
    lanes.bench.subsystem.reset(now, controller);
    lanes.deliver();
    assert_eq!(lanes.bench.subsystem.in_flight(controller, IO), 0);
    assert_eq!(lanes.bench.subsystem.media_outstanding(controller), 0);
    // A command of after the reset is executed, and finds the block as it was.
    lanes.io(0, 2, SubmissionQueueEntry { flags: 1, ..io(IoOpcode::Compare, 1, 0, 1) });
    lanes.io(0, 3, io(IoOpcode::Read, 1, 1, 1));
    lanes.deliver();
    assert_eq!([2, 3].map(|token| lanes.status(0, token)), [StatusCode::AbortedMissingFused, SUCCESS]);
    assert_eq!(lanes.completed.len(), 2);
}

#[test]
fn the_subsystem_drops_what_a_lost_queue_has_handed_over() {
    let mut lanes = Lanes::new(1);
    lanes.pulls_wait = true;
    lanes.io(0, 1, SubmissionQueueEntry { flags: 1, ..io(IoOpcode::Compare, 1, 0, 1) });
    lanes.io(0, 0, SubmissionQueueEntry { flags: 2, ..io(IoOpcode::Write, 1, 0, 1) });
    lanes.io(0, 2, io(IoOpcode::WriteUncorrectable, 1, 1, 1));
    lanes.deliver();
    let (controller, now) = (lanes.bench.controller, lanes.bench.now);
    assert_eq!(lanes.bench.subsystem.in_flight(controller, IO), 3);
    lanes.lanes[0].1.drop_queue(now, controller, IO);
    lanes.drain_lane(0);
    assert_eq!(lanes.lanes[0].1.in_flight(controller, IO), 0);
    // The half of a pair that ends first ends the other half, and what waited goes on. It takes
    // effect although its queue is dropped, because the subsystem does not know that yet.
    let (lane, message) = lanes.to_subsystem.pop_front().unwrap();
    lanes.bench.subsystem.handle_input(now, Input::FromLane(lane, message));
    lanes.drain_subsystem();
    assert_eq!(lanes.bench.subsystem.in_flight(controller, IO), 0);
    lanes.deliver();
    assert!(lanes.completed.is_empty());
}

#[test]
fn a_host_is_known_until_lanes_have_ended_its_last_request() {
    let mut lanes = Lanes::new(2);
    lanes.stuck = true;
    lanes.bench.host_data = vec![7; 512];
    lanes.io(0, 0, io(IoOpcode::Write, 1, 7, 1));
    lanes.io(1, 0, io(IoOpcode::Write, 1, 8, 1));
    let (controller, now) = (lanes.bench.controller, lanes.bench.now);
    lanes.bench.subsystem.remove_controller(now, controller);
    let draining = |lanes: &Lanes| -> Vec<usize> {
        let draining = lanes.bench.subsystem.draining();
        let of_host = draining.inspect(|(host, _)| assert_eq!(*host, "nqn.2014-08.org.nvmexpress:host2"));
        of_host.map(|(_, requests)| requests).collect()
    };
    assert_eq!(draining(&lanes), [2], "no lane has answered yet");
    lanes.deliver();
    assert_eq!(draining(&lanes), [2], "media have a request of each lane");
    let (lane, request) = lanes.kept.remove(0);
    lanes.carry_out(lane, request);
    assert_eq!(draining(&lanes), [2], "the subsystem does not know yet");
    lanes.deliver();
    assert_eq!(draining(&lanes), [1]);
    lanes.release();
    lanes.deliver();
    assert!(draining(&lanes).is_empty() && lanes.completed.is_empty());
}

#[test]
fn a_host_without_requests_is_gone_once_lanes_have_answered() {
    let mut lanes = Lanes::new(2);
    let (controller, now) = (lanes.bench.controller, lanes.bench.now);
    lanes.bench.subsystem.remove_controller(now, controller);
    assert_eq!(lanes.bench.subsystem.draining().count(), 1);
    lanes.deliver();
    assert_eq!(lanes.bench.subsystem.draining().count(), 0);
}
