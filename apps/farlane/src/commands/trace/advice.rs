//! The step that takes most of the time of a kind of command, in words, and how to shorten it.

use captures::Population;
use trace::Step;

/// A step with less of the time than this dominates nothing.
const LEAST: f64 = 0.25;

/// The step that dominates the time until the completion of the commands of `population`. `None` if
/// no step does.
pub(in crate::commands) fn of(population: &Population) -> Option<String> {
    let until = population.latency.mean() / population.whole.mean();
    // Where the whole takes no time, nothing dominates.
    let share = |step: &Step| if until > 0.0 { population.share(*step) / until } else { 0.0 };
    // The host's work behind the completion delays no command.
    let steps = population.steps.keys().filter(|step| **step <= Step::Completion);
    let step = *steps.max_by(|a, b| share(a).total_cmp(&share(b)))?;
    if share(&step) < LEAST {
        return None;
    }
    let packets = population.steps[&step].packets as f64 / population.count as f64;
    let each = population.bytes as f64 / population.steps[&step].packets.max(1) as f64;
    let why = match step {
        Step::Capsule => "is the way of the command's capsule from its first byte to its last".to_owned(),
        Step::ReadyToTransfer => {
            "passes until the controller asks for the data (R2T): a round trip, which data in \
                                  the capsule save"
                .to_owned()
        }
        Step::Doorbell => "is the host's, which rings for several commands at once".to_owned(),
        Step::Fetch => "passes until the device fetches the entry: the doorbell's way there, and the device \
                        itself"
            .to_owned(),
        Step::Entry => "is the way of the entry: a round trip, which lookahead saves".to_owned(),
        Step::List => "passes until the device asks for the list of pages".to_owned(),
        Step::Listed => {
            "is the way of the list of pages: a round trip, which lookahead saves, and shorter transfers"
                .to_owned()
        }
        Step::Data => format!("is the medium, and {packets:.0} packets of {each:.0} B"),
        Step::DataArrived => format!(
            "is {packets:.0} completions of {each:.0} B: a larger Max_Payload_Size or Max_Read_Request_Size \
             makes them fewer, and lookahead saves their round trip"
        ),
        Step::Completion => "passes until the completion once all data have passed: the device's".to_owned(),
        // These are behind the completion.
        Step::Interrupt | Step::HeadDoorbell => return None,
    };
    Some(format!("{:.0} % of the time until completion {why} ({})", share(&step) * 100.0, step.name()))
}
