//! `farlane observe trace convert`: the commands of a capture, for other programs and for the eye.

mod events;
mod picture;
mod table;

use std::io::{BufWriter, Write};
use std::path::Path;

use captures::{Commands, Source, populations};
use schemars::JsonSchema;
use serde::Serialize;
use trace::Command;

use crate::args::{Form, Out, TraceConvertArgs};
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::whole_file::WholeFile;

/// The file, and the number of commands in it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Converted<'a> {
    to: &'a Path,
    commands: u64,
}

pub(super) fn run(args: &TraceConvertArgs) -> Result<(), Error> {
    let Out { path, form } = &args.to;
    let from = args.capture.source();
    let count = match *form {
        Form::Csv => to_file(from, path, table::Csv)?,
        Form::Events => to_file(from, path, events::Events::default())?,
        Form::Parquet => table::parquet(from, path)?,
        Form::Picture => {
            let kinds = populations(from, false)?;
            picture::draw(&kinds).write(path)?;
            kinds.values().map(|of| of.count).sum()
        }
    };
    match args.capture.output.json {
        true => print_json(&Converted { to: path, commands: count }),
        false => print(&format!("{count} commands in {}\n", path.display())),
    }
}

fn wrong(path: &Path, error: std::io::Error) -> Error {
    Error::File { path: path.to_owned(), error }
}

/// A writer of commands one after the other, so that a capture may be larger than memory.
trait Writer {
    fn begin(&mut self, out: &mut dyn Write) -> std::io::Result<()>;
    fn command(&mut self, out: &mut dyn Write, number: u64, command: &Command) -> std::io::Result<()>;
    fn end(&mut self, out: &mut dyn Write) -> std::io::Result<()>;
}

/// Shows each command of a capture. Returns how many there are, and why the capture was not read to
/// its end.
///
/// # Errors
/// Those of `show`, and that of a capture without any command before its fault.
fn each(
    commands: Commands,
    mut show: impl FnMut(u64, &Command) -> Result<(), Error>,
) -> Result<(u64, Result<(), Error>), Error> {
    let mut count = 0;
    for command in commands {
        match command {
            Ok(command) => {
                count += 1;
                show(count, &command)?;
            }
            Err(error) if count == 0 => return Err(error.into()),
            Err(error) => return Ok((count, Err(error.into()))),
        }
    }
    Ok((count, Ok(())))
}

/// Writes the commands of the capture at `from` to a file. Returns how many there are. Of a broken
/// capture, the file has the part before the fault.
fn to_file(from: Source<'_>, to: &Path, mut writer: impl Writer) -> Result<u64, Error> {
    let failed = |error| wrong(to, error);
    // A capture that can't be read replaces nothing.
    let commands = Commands::open(from)?;
    let mut out = BufWriter::new(WholeFile::begin(to).map_err(failed)?);
    writer.begin(&mut out).map_err(failed)?;
    let show = |number, command: &Command| writer.command(&mut out, number, command).map_err(failed);
    let (count, whole) = each(commands, show)?;
    writer.end(&mut out).map_err(failed)?;
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    file.keep().map_err(failed)?;
    whole.map(|()| count)
}
