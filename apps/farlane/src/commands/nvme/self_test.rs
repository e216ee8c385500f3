//! `farlane nvme device-self-test` and `self-test-log`.

use engine::Nanos;
use indicatif::ProgressBar;
use nvme::wire::log::{LogPage, SELF_TEST_RESULTS, SelfTestLog, SelfTestResult};
use nvme::wire::{AdminOpcode, NamespaceId, SubmissionQueueEntry};
use schemars::JsonSchema;
use serde::Serialize;

use super::{done, entry, logs, show_list, with};
use crate::args::{SelfTestArgs, SelfTestLogArgs};
use crate::error::Error;
use crate::session::Session;

/// Self-test Code (STC): the short self-test.
const SHORT: u8 = 1;
/// Self-test Code (STC): abort the self-test under way.
const ABORT: u8 = 0xf;
/// How many results a log has.
const RESULTS: usize = SELF_TEST_RESULTS;
/// How often the log is read while a self-test is waited for.
const LOOK: Nanos = Nanos::from_millis(50);

/// Starts a self-test, and waits for the end of a short one: it would not survive the reset with
/// which a host lets go of its controller.
pub(super) fn start(args: &SelfTestArgs) -> Result<(), Error> {
    let command = SubmissionQueueEntry {
        cdw10: u32::from(args.self_test_code & 0xf),
        ..entry(AdminOpcode::DeviceSelfTest, args.namespace)
    };
    let waits = args.self_test_code == SHORT || args.wait && args.self_test_code != ABORT;
    let log = with(&args.at.target, |session| {
        session.admin("Device Self-test", command, 0)?;
        if waits { wait(session).map(Some) } else { Ok(None) }
    })?;
    if let Some(log) = log {
        return done(&args.at, &text(&log, RESULTS), &SelfTests::of(&log, RESULTS));
    }
    let text = match args.self_test_code {
        2 => "Extended Device self-test started\n",
        ABORT => "Aborting device self-test operation\n",
        _ => "Device self-test taken\n",
    };
    done(&args.at, text, &Started { self_test_code: args.self_test_code })
}

/// Waits until no self-test is under way. Returns the log as it is then.
fn wait(session: &mut Session) -> Result<SelfTestLog, Error> {
    let bar = ProgressBar::new(100);
    loop {
        let log = read(session)?;
        if log.current_operation & 0xf == 0 {
            bar.finish_and_clear();
            return Ok(log);
        }
        bar.set_position(log.current_completion.into());
        session.idle_until(session.now() + LOOK)?;
    }
}

fn read(session: &mut Session) -> Result<SelfTestLog, Error> {
    let data = read_bytes(session)?;
    Ok(SelfTestLog::parse(data.first_chunk().expect("as many bytes as were asked for")))
}

fn read_bytes(session: &mut Session) -> Result<Vec<u8>, Error> {
    let length = u32::try_from(SelfTestLog::LENGTH).expect("564 bytes");
    let page = (NamespaceId::ALL, LogPage::DeviceSelfTest.into());
    logs::read(session, page, (0, length), |_| ())
}

pub(super) fn log(args: &SelfTestLogArgs) -> Result<(), Error> {
    let data = with(&args.at.target, read_bytes)?;
    let log = SelfTestLog::parse(data.first_chunk().expect("as many bytes as were asked for"));
    let most = usize::from(args.dst_entries);
    show_list(args.at.printing, &data, || SelfTests::of(&log, most), || text(&log, most))
}

/// The entries that were used, at most `most`.
fn results(log: &SelfTestLog, most: usize) -> impl Iterator<Item = &SelfTestResult> {
    log.results.iter().filter(|one| one.status & 0xf != SelfTestResult::UNUSED).take(most)
}

/// A self-test that was started, or aborted.
#[derive(Serialize, JsonSchema)]
pub(super) struct Started {
    /// Self-test Code.
    self_test_code: u8,
}

/// The Device Self-test log under nvme-cli's names.
#[derive(Serialize, JsonSchema)]
pub(super) struct SelfTests {
    /// The operation that is under way; 0 for none.
    #[serde(rename = "Current Device Self-Test Operation")]
    operation: u8,
    /// Its progress in percent.
    #[serde(rename = "Current Device Self-Test Completion")]
    completion: u8,
    /// The results, newest first.
    #[serde(rename = "List of Valid Reports")]
    reports: Vec<TestReport>,
}

/// The result of a self-test. Of the last four fields, only valid ones are there.
#[derive(Serialize, JsonSchema)]
struct TestReport {
    /// The result; 0 if the test passed.
    #[serde(rename = "Self test result")]
    result: u8,
    /// The operation.
    #[serde(rename = "Self test code")]
    code: u8,
    /// The segment that failed.
    #[serde(rename = "Segment number")]
    segment: u8,
    /// A bit for each of the last four fields that is valid.
    #[serde(rename = "Valid Diagnostic Information")]
    valid: u8,
    /// Hours under power at the end of the test.
    #[serde(rename = "Power on hours")]
    power_on_hours: u64,
    /// Namespace of the failing block.
    #[serde(rename = "Namespace Identifier", skip_serializing_if = "Option::is_none")]
    namespace: Option<u32>,
    /// A logical block at which the test failed.
    #[serde(rename = "Failing LBA", skip_serializing_if = "Option::is_none")]
    failing_lba: Option<u64>,
    /// Status Code Type of the failure.
    #[serde(rename = "Status Code Type", skip_serializing_if = "Option::is_none")]
    status_code_type: Option<u8>,
    /// Status Code of the failure.
    #[serde(rename = "Status Code", skip_serializing_if = "Option::is_none")]
    status_code: Option<u8>,
}

impl From<&SelfTestResult> for TestReport {
    fn from(one: &SelfTestResult) -> Self {
        let is_valid = |bit: u8| one.valid >> bit & 1 == 1;
        Self {
            result: one.status & 0xf,
            code: one.status >> 4,
            segment: one.segment,
            valid: one.valid,
            power_on_hours: one.power_on_hours,
            namespace: is_valid(0).then_some(one.namespace),
            failing_lba: is_valid(1).then_some(one.failing_lba),
            status_code_type: is_valid(2).then_some(one.status_code_type),
            status_code: is_valid(3).then_some(one.status_code),
        }
    }
}

impl SelfTests {
    /// At most so many of the newest results of `log`.
    fn of(log: &SelfTestLog, most: usize) -> Self {
        Self {
            operation: log.current_operation,
            completion: log.current_completion,
            reports: results(log, most).map(TestReport::from).collect(),
        }
    }
}

fn text(log: &SelfTestLog, most: usize) -> String {
    let present = match log.current_operation {
        0 => "no self-test is under way\n".to_owned(),
        code => format!("a self-test ({}) is under way: {} %\n", kind(code), log.current_completion),
    };
    let line = |one: &SelfTestResult| {
        let (code, result) = (one.status >> 4, one.status & 0xf);
        let ended = if result == 0 { "passed".to_owned() } else { format!("ended with result {result:#x}") };
        format!("{} {ended}, after {} h under power\n", kind(code), one.power_on_hours)
    };
    present + &results(log, most).map(line).collect::<String>()
}

const fn kind(code: u8) -> &'static str {
    match code {
        1 => "short",
        2 => "extended",
        _ => "other",
    }
}
