//! `farlane trace export`: the commands of a capture, for other programs and for the eye.

mod events;
mod picture;
mod table;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use captures::{Source, each_command, populations};
use serde_json::json;
use trace::Command;

use crate::args::{Form, Out, TraceExportArgs};
use crate::commands::{print, print_json};
use crate::error::Error;

pub(super) fn run(args: &TraceExportArgs) -> Result<(), Error> {
    let Out { path, form } = &args.to;
    let mut count = 0_u64;
    match *form {
        Form::Csv => to_file(args.capture.source(), path, &mut count, table::Csv)?,
        Form::Events => to_file(args.capture.source(), path, &mut count, events::Events::default())?,
        Form::Parquet => {
            let file = create(path)?;
            count = table::parquet(args.capture.source(), file, path)?;
        }
        Form::Picture => {
            let kinds = populations(args.capture.source(), false)?;
            count = kinds.values().map(|of| of.count).sum();
            picture::draw(&kinds).write(path)?;
        }
    }
    match args.capture.output.json {
        true => print_json(&json!({ "to": path, "commands": count })),
        false => print(&format!("{count} commands in {}\n", path.display())),
    }
}

fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|error| wrong(path, error))
}

fn wrong(path: &Path, error: std::io::Error) -> Error {
    Error::File { path: path.to_owned(), error }
}

/// What writes commands one after the other, so that a capture may be larger than memory.
trait Writer {
    fn begin(&mut self, out: &mut dyn Write) -> std::io::Result<()>;
    fn command(&mut self, out: &mut dyn Write, number: u64, command: &Command) -> std::io::Result<()>;
    fn end(&mut self, out: &mut dyn Write) -> std::io::Result<()>;
}

/// Writes the commands of the capture at `from` to a file.
fn to_file(from: Source<'_>, to: &Path, count: &mut u64, mut writer: impl Writer) -> Result<(), Error> {
    let mut out = BufWriter::new(create(to)?);
    let mut result = writer.begin(&mut out);
    each_command(from, |command| {
        *count += 1;
        if result.is_ok() {
            result = writer.command(&mut out, *count, &command);
        }
    })?;
    let ended = result.and_then(|()| writer.end(&mut out)).and_then(|()| out.flush());
    ended.map_err(|error| wrong(to, error))
}
