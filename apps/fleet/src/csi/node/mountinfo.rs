//! `/proc/self/mountinfo`, as proc_pid_mountinfo(5) describes it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::kernel::{Mount, Number};

/// All mounts of the file's text; `None` if a line is in no known form.
pub(super) fn parse(text: &[u8]) -> Option<Vec<Mount>> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(line).collect()
}

fn line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ').map(unescape);
    let (_identifier, _parent) = (words.next()?, words.next()?);
    let number = String::from_utf8(words.next()?).ok()?;
    let (major, minor) = number.split_once(':')?;
    let number = Number(major.parse().ok()?, minor.parse().ok()?);
    let [root, point] = [words.next()?, words.next()?].map(|one| PathBuf::from(OsString::from_vec(one)));
    let options = String::from_utf8_lossy(&words.next()?).into_owned();
    let options: Vec<_> = options.split(',').map(str::to_owned).collect();
    // Optional fields end with a hyphen.
    words.by_ref().find(|word| word == b"-")?;
    let filesystem = String::from_utf8_lossy(&words.next()?).into_owned();
    let _source = words.next()?;
    let of_filesystem = words.next().unwrap_or_default();
    let read_only = options.iter().any(|one| one == "ro");
    let frozen = of_filesystem.split(|&byte| byte == b',').any(|one| one == b"ro");
    Some(Mount { number, root, point, read_only, frozen, filesystem, options })
}

/// A word whose blanks and backslashes are octal numbers.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let byte = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match byte.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_pages_example_and_its_like() {
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            40 36 259:1 / /var/lib/kubelet/a\\040b\\134 ro,relatime - ext4 /dev/nvme0n1 rw\n\
            41 36 0:5 /nvme0n1 /x rw shared:3 propagate_from:2 - devtmpfs udev ro\n";
        let mounts = parse(text).unwrap();
        let first = Mount {
            number: Number(98, 0),
            root: "/mnt1".into(),
            point: "/mnt2".into(),
            read_only: false,
            frozen: false,
            filesystem: "ext3".to_owned(),
            options: vec!["rw".to_owned(), "noatime".to_owned()],
        };
        assert_eq!(mounts[0], first);
        assert_eq!(mounts[1].point, PathBuf::from("/var/lib/kubelet/a b\\"));
        assert!(mounts[1].read_only && !mounts[1].frozen);
        assert!(!mounts[2].read_only && mounts[2].frozen);
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn damaged_lines_are_no_mounts() {
        let good = b"36 35 98:0 / /mnt rw - ext4 /dev/x rw";
        for length in 0..good.len() {
            // The device and the options of the file system may be missing; nothing else.
            let is_whole = length >= b"36 35 98:0 / /mnt rw - ext4 ".len();
            assert_eq!(parse(&good[..length]).is_some(), length == 0 || is_whole, "{length}");
        }
        assert!(parse(b"36 35 x:0 / /mnt rw - ext4 /dev/x rw").is_none());
        assert_eq!(unescape(b"\\9\\04"), b"\\9\\04");
        assert_eq!(unescape(b"\\777"), b"\\777");
    }

    #[test]
    fn this_machines_own_file_is_read() {
        let text = std::fs::read("/proc/self/mountinfo").unwrap();
        let mounts = parse(&text).unwrap();
        assert!(mounts.iter().any(|one| one.point.as_os_str() == "/"), "{mounts:?}");
    }
}
