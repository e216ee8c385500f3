//! How long a root complex waits for completions.

use engine::Nanos;
use pcie::requester::CompletionTimeout;

/// Finds the Completion Timeout Value whose longest time is `text`.
pub(super) fn parse(text: &str) -> Result<CompletionTimeout, String> {
    let wanted = Nanos::from(super::parse_time(text)?);
    CompletionTimeout::all().find(|timeout| timeout.longest() == wanted).ok_or_else(|| {
        let known: Vec<_> = CompletionTimeout::all().map(|timeout| timeout.longest().to_string()).collect();
        format!("expected the longest time of a range that PCIe has: {}", known.join(", "))
    })
}
