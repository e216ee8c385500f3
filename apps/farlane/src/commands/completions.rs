//! `farlane setup completions`: the script by which a shell completes the command line.

use crate::args::CompletionsArgs;
use crate::commands::print;
use crate::error::Error;

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command_line(), "farlane", &mut script);
    print(&String::from_utf8_lossy(&script))
}
