//! `farlane model tsn`: plans for Time-Sensitive Networking; whether an interface keeps to one.

pub(crate) mod apply;
pub(crate) mod check;
mod interface;
pub(crate) mod plan;

use crate::args::TsnAction;
use crate::error::Error;

pub(crate) fn run(action: &TsnAction) -> Result<(), Error> {
    match action {
        TsnAction::Plan(args) => plan::run(args),
        TsnAction::Apply(args) => apply::run(args),
        TsnAction::Audit(args) => check::run(args),
    }
}
