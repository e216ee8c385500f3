//! The users of a block device of this machine, as the kernel reports them without opening the
//! device: the last one to close a device writes to it, which the process that serves it must not
//! wait for.

use std::fs;
use std::path::Path;

/// The users of the block device called `name` (`ublkb0`) or of a partition of it, in words: file
/// systems, swap, and devices made of it. Empty if the kernel reports none.
pub fn users(name: &str) -> Vec<String> {
    let folder = Path::new("/sys/class/block").join(name);
    let mut found = of_one(name, &folder);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.path().join("partition").exists()) {
        found.extend(of_one(&entry.file_name().to_string_lossy(), &entry.path()));
    }
    found
}

fn of_one(name: &str, folder: &Path) -> Vec<String> {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let number = read(&folder.join("dev"));
    let mut found = mounts(&read(Path::new("/proc/self/mountinfo")), number.trim());
    let swap = format!("/dev/{name} ");
    if read(Path::new("/proc/swaps")).lines().any(|line| line.starts_with(&swap)) {
        found.push(format!("/dev/{name} is swap"));
    }
    let holders = fs::read_dir(folder.join("holders")).into_iter().flatten().flatten();
    found.extend(holders.map(|holder| format!("{} is made of it", holder.file_name().to_string_lossy())));
    found
}

/// Where the device with this number (`259:0`) is mounted, by the text of `mountinfo`.
fn mounts(text: &str, number: &str) -> Vec<String> {
    let mut fields = text.lines().map(|line| line.split(' ').skip(2));
    let place = |mut fields: std::iter::Skip<std::str::Split<'_, char>>| {
        let is_it = fields.next()? == number;
        is_it.then(|| fields.nth(1)).flatten().map(|place| format!("mounted at {place}"))
    };
    if number.is_empty() { Vec::new() } else { fields.by_ref().filter_map(place).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_the_number_of_its_device() {
        let text = "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/ublkb0p1 rw\n\
                    90 22 259:0 / /mnt/far rw - ext4 /dev/ublkb0 rw\n\
                    91 22 0:5 / /proc rw - proc proc rw\n";
        assert_eq!(mounts(text, "259:0"), ["mounted at /mnt/far"]);
        assert_eq!(mounts(text, "259:1"), ["mounted at /"]);
        assert!(mounts(text, "8:0").is_empty() && mounts(text, "").is_empty());
        assert!(mounts("259:0", "259:0").is_empty());
    }

    #[test]
    fn a_device_that_is_not_there_has_no_users() {
        assert!(users("no-such-device").is_empty());
    }
}
