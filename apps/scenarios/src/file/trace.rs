//! A file of timed commands: CSV with the columns `at,op,offset,length`.

use super::text::{Bytes, parse as quantity};
use crate::test_bench::{Kind, Operation};

/// The columns that the first line names.
const HEADER: [&str; 4] = ["at", "op", "offset", "length"];
/// The largest number of commands in a file.
const OPERATIONS_MAX: usize = 10_000_000;
/// Length of a block in bytes.
const BLOCK: u64 = 512;
/// The largest length of a command's data in bytes.
const LENGTH_MAX: u64 = 128 << 10;

/// Reads commands for a namespace of `capacity` bytes.
///
/// # Errors
/// A message with the line, the column and the expected value.
pub fn parse(text: &str, capacity: u64) -> Result<Vec<Operation>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (_, header) = lines.next().ok_or("it is empty; expected a line at,op,offset,length")?;
    if !header.split(',').map(str::trim).eq(HEADER) {
        return Err(format!("line 1: expected {}, not '{header}'", HEADER.join(",")));
    }
    let mut operations: Vec<Operation> = Vec::new();
    for (index, line) in lines {
        let operation = operation(line, capacity).map_err(|why| format!("line {}, {why}", index + 1))?;
        if let Some(before) = operations.last().filter(|before| before.at > operation.at) {
            return Err(format!("line {}, at: expected {} or later", index + 1, before.at));
        }
        if operations.len() == OPERATIONS_MAX {
            return Err(format!("line {}: expected {OPERATIONS_MAX} commands at most", index + 1));
        }
        operations.push(operation);
    }
    if operations.is_empty() { Err("expected a command at least".into()) } else { Ok(operations) }
}

/// The command of one line.
fn operation(line: &str, capacity: u64) -> Result<Operation, String> {
    let columns: Vec<_> = line.split(',').map(str::trim).collect();
    let &[at, op, offset, length] = &columns[..] else {
        return Err(format!("expected {} columns, not {}", HEADER.len(), columns.len()));
    };
    let at = quantity(at).map_err(|why| format!("at: {why}"))?;
    let names = Kind::ALL.map(Kind::name);
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == op);
    let kind = kind.ok_or_else(|| format!("op: expected {}, not '{op}'", names.join(" or ")))?;
    if kind == Kind::Flush {
        return Ok(Operation { at, kind, offset: 0, length: 0 });
    }
    let bytes = |text: &str, column: &str| {
        let Bytes(bytes) = quantity(text).map_err(|why| format!("{column}: {why}"))?;
        let whole = bytes.is_multiple_of(BLOCK);
        whole
            .then_some(bytes)
            .ok_or_else(|| format!("{column}: expected a multiple of {BLOCK}B, not '{text}'"))
    };
    let (offset, length) = (bytes(offset, "offset")?, bytes(length, "length")?);
    if length == 0 || length > LENGTH_MAX {
        return Err(format!("length: expected {BLOCK}B to {LENGTH_MAX}B, not {length}"));
    }
    if offset.checked_add(length).is_none_or(|end| end > capacity) {
        return Err(format!(
            "offset: expected an end no later than the SSD's {capacity}, not {offset} + {length}"
        ));
    }
    let length = u32::try_from(length).map_err(|error| error.to_string())?;
    Ok(Operation { at, kind, offset, length })
}

#[cfg(test)]
mod tests {
    use engine::Nanos;

    use super::*;

    const TEXT: &str = "# four\nat, op, offset, length\n0us,read,0,4096\n1.5us,write,4KiB,512B\n\n1.5us,flush,,\n2ms,read,1MiB,128KiB\n";

    #[test]
    fn each_line_is_a_command() {
        let operations = parse(TEXT, 2 << 20).unwrap();
        assert_eq!(operations.len(), 4);
        let write = Operation { at: Nanos::new(1_500), kind: Kind::Write, offset: 4096, length: 512 };
        assert_eq!(operations[1], write);
        assert_eq!((operations[2].kind, operations[2].length), (Kind::Flush, 0));
        assert_eq!(operations[3].offset + u64::from(operations[3].length), (1 << 20) + (128 << 10));
    }

    #[test]
    fn a_mistake_is_reported_with_its_line_and_column() {
        for (good, bad, expected) in [
            ("at, op", "when, op", "line 1: expected at,op,offset,length"),
            ("0us,read", "0,read", "line 3, at: expected a time with its unit"),
            ("0us,read", "3us,read", "line 4, at: expected 3 µs or later"),
            ("0us,read", "0us,trim", "line 3, op: expected read or write or flush, not 'trim'"),
            ("4KiB,512B", "4KiB,513B", "line 4, length: expected a multiple of 512B, not '513B'"),
            ("4KiB,512B", "4KiB,0", "line 4, length: expected 512B to 131072B"),
            ("4KiB,512B", "4KiB", "line 4, expected 4 columns, not 3"),
            ("1MiB,128KiB", "2MiB,128KiB", "line 7, offset: expected an end no later than"),
            ("1MiB,128KiB", "18446744073709551104,512", "line 7, offset: expected an end no later than"),
        ] {
            assert!(TEXT.contains(good), "{good}");
            let error = parse(&TEXT.replace(good, bad), 2 << 20).unwrap_err();
            assert!(error.starts_with(expected), "{bad}: {error}");
        }
        assert!(parse("", 1 << 20).is_err() && parse("at,op,offset,length\n", 1 << 20).is_err());
    }
}
