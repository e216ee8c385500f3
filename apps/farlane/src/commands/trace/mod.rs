//! `farlane observe trace`: the meaning of a capture of PCIe packets.

mod advice;
pub(crate) mod chain;
mod compare;
pub(crate) mod dissector;
pub(crate) mod export;
mod show;
mod stats;

use crate::args::TraceAction;
use crate::error::Error;

pub(in crate::commands) use advice::of as advice;
pub(crate) use compare::Compared;

pub(crate) fn run(action: &TraceAction) -> Result<(), Error> {
    match action {
        TraceAction::Stats(args) => stats::run(args),
        TraceAction::Chain(args) => chain::run(args),
        TraceAction::Show(args) => show::run(args),
        TraceAction::Compare(args) => compare::run(args),
        TraceAction::Convert(args) => export::run(args),
        TraceAction::Dissector(args) => dissector::run(args),
    }
}
