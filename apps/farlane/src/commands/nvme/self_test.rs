//! `farlane device-self-test` and `self-test-log`.

use engine::Nanos;
use indicatif::ProgressBar;
use nvme::wire::log::{LogPage, SelfTestLog, SelfTestResult};
use nvme::wire::{AdminOpcode, NamespaceId, SubmissionQueueEntry};
use serde_json::json;

use super::{done, entry, logs, with};
use crate::args::{At, AtArgs, SelfTestArgs};
use crate::commands::{print, print_json_of_nvme_cli};
use crate::error::Error;
use crate::session::Session;

/// Self-test Code (STC): the short self-test.
const SHORT: u8 = 1;
/// How often the log is read while a self-test is waited for.
const LOOK: Nanos = Nanos::from_millis(50);

/// Starts a self-test, and waits for the end of a short one: it would not survive the reset with
/// which a host lets go of its controller.
pub(super) fn start(args: &SelfTestArgs) -> Result<(), Error> {
    let command = SubmissionQueueEntry {
        cdw10: u32::from(args.self_test_code & 0xf),
        ..entry(AdminOpcode::DeviceSelfTest, args.namespace)
    };
    let log = with(&args.at.target, |session| {
        session.admin("Device Self-test", command, 0)?;
        if args.self_test_code == SHORT { wait(session).map(Some) } else { Ok(None) }
    })?;
    if let Some(log) = log {
        return show(&args.at, &log);
    }
    let text = match args.self_test_code {
        2 => "Extended Device self-test started\n",
        0xf => "Aborting device self-test operation\n",
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
    let length = u32::try_from(SelfTestLog::LENGTH).expect("564 bytes");
    let page = (NamespaceId::ALL, LogPage::DeviceSelfTest.into());
    let data = logs::read(session, page, (0, length), |_| ())?;
    Ok(SelfTestLog::parse(data.first_chunk().expect("as many bytes as were asked for")))
}

pub(super) fn log(args: &AtArgs) -> Result<(), Error> {
    show(&args.at, &with(&args.at.target, read)?)
}

fn show(at: &At, log: &SelfTestLog) -> Result<(), Error> {
    let used = |one: &&SelfTestResult| one.status & 0xf != SelfTestResult::UNUSED;
    let results = log.results.iter().filter(used);
    if at.is_json() {
        let one = |one: &SelfTestResult| {
            json!({ "Self test result": one.status & 0xf, "Self test code": one.status >> 4,
                "Segment number": one.segment, "Power on hours": one.power_on_hours,
                "Namespace Identifier": one.namespace, "Failing LBA": one.failing_lba })
        };
        return print_json_of_nvme_cli(&json!({
            "Current Device Self-Test Operation": log.current_operation,
            "Current Device Self-Test Completion": log.current_completion,
            "List of Valid Reports": results.map(one).collect::<Vec<_>>() }));
    }
    let present = match log.current_operation {
        0 => "no self-test is under way\n".to_owned(),
        code => format!("a self-test ({}) is under way: {} %\n", kind(code), log.current_completion),
    };
    let line = |one: &SelfTestResult| {
        let (code, result) = (one.status >> 4, one.status & 0xf);
        let ended = if result == 0 { "passed".to_owned() } else { format!("ended with result {result:#x}") };
        format!("{} {ended}, after {} h under power\n", kind(code), one.power_on_hours)
    };
    print(&(present + &results.map(line).collect::<String>()))
}

const fn kind(code: u8) -> &'static str {
    match code {
        1 => "short",
        2 => "extended",
        _ => "other",
    }
}
