//! `farlane sim`: networks that are not there.

mod published;

use crate::args::{SimAction, SimArgs};
use crate::error::Error;

pub(crate) fn run(args: &SimArgs) -> Result<(), Error> {
    match &args.action {
        SimAction::Published(args) => published::run(args),
    }
}
