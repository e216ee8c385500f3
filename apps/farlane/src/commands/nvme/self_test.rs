//! `farlane nvme device-self-test` and `self-test-log`.

use engine::Nanos;
use indicatif::ProgressBar;
use nvme::wire::log::{LogPage, SELF_TEST_RESULTS, SelfTestLog, SelfTestResult};
use nvme::wire::{AdminOpcode, NamespaceId, SubmissionQueueEntry};
use serde_json::{Value, json};

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
        return done(&args.at, &text(&log, RESULTS), &json_of(&log, RESULTS));
    }
    let text = match args.self_test_code {
        2 => "Extended Device self-test started\n",
        ABORT => "Aborting device self-test operation\n",
        _ => "Device self-test taken\n",
    };
    done(&args.at, text, &json!({ "self_test_code": args.self_test_code }))
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
    show_list(args.at.printing, &data, || json_of(&log, most), || text(&log, most))
}

/// The entries that were used, at most `most`.
fn results(log: &SelfTestLog, most: usize) -> impl Iterator<Item = &SelfTestResult> {
    log.results.iter().filter(|one| one.status & 0xf != SelfTestResult::UNUSED).take(most)
}

/// The log under the names that nvme-cli gives its parts.
fn json_of(log: &SelfTestLog, most: usize) -> Value {
    let one = |one: &SelfTestResult| {
        let mut json = json!({ "Self test result": one.status & 0xf, "Self test code": one.status >> 4,
            "Segment number": one.segment, "Valid Diagnostic Information": one.valid,
            "Power on hours": one.power_on_hours });
        let valid = [
            ("Namespace Identifier", json!(one.namespace)),
            ("Failing LBA", json!(one.failing_lba)),
            ("Status Code Type", json!(one.status_code_type)),
            ("Status Code", json!(one.status_code)),
        ];
        for (bit, (name, value)) in valid.into_iter().enumerate() {
            if one.valid >> bit & 1 == 1 {
                json[name] = value;
            }
        }
        json
    };
    json!({
        "Current Device Self-Test Operation": log.current_operation,
        "Current Device Self-Test Completion": log.current_completion,
        "List of Valid Reports": results(log, most).map(one).collect::<Vec<_>>() })
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
