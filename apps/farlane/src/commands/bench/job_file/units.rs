//! Sizes and times as fio writes them in a job file.

use std::time::Duration;

/// `text` with each size in it, such as `4k` or `1mib`, as bytes. The characters by which fio
/// divides a value stay: `,` `/` `:` `-` `%`.
pub(super) fn sizes(text: &str, kb_base: u64) -> Result<String, String> {
    let (mut done, mut rest) = (String::new(), text.trim());
    while let Some(first) = rest.chars().next() {
        if matches!(first, ',' | '/' | ':' | '-' | '%' | ' ') {
            done.push(first);
            rest = &rest[1..];
            continue;
        }
        let end = rest.find([',', '/', ':', '-', '%', ' ']).unwrap_or(rest.len());
        done.push_str(&size(&rest[..end], kb_base)?.to_string());
        rest = &rest[end..];
    }
    Ok(done.replace(' ', ""))
}

/// A size in bytes. By fio's table, `k` and `kb` count as `kb_base` says, and `ki` and `kib` as it
/// doesn't.
fn size(text: &str, kb_base: u64) -> Result<u64, String> {
    let wrong = |why: &str| format!("'{text}' is no size{why}");
    let lower = text.to_lowercase();
    let (radix, digits) = lower.strip_prefix("0x").map_or((10, &*lower), |digits| (16, digits));
    let end = digits.find(|one: char| !one.is_digit(radix)).unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let number = u64::from_str_radix(number, radix).map_err(|_| wrong("; expected such as 4k or 50%"))?;
    let unit = suffix.strip_suffix('b').unwrap_or(suffix);
    let (prefix, is_other) = unit.strip_suffix('i').map_or((unit, false), |prefix| (prefix, true));
    let power = match prefix {
        "" if !is_other => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        "z" => return Err(wrong(": a namespace without zones has no number of them")),
        _ => return Err(wrong("; expected a unit such as k, m or g")),
    };
    let base: u64 = match (kb_base == 1000, is_other) {
        (true, false) | (false, true) => 1000,
        _ => 1024,
    };
    base.pow(power).checked_mul(number).ok_or_else(|| wrong(": it is more than 16 EiB"))
}

/// A time, in `unit` where it has none of its own.
pub(super) fn time(text: &str, unit: Duration) -> Result<Duration, String> {
    let lower = text.trim().to_lowercase();
    let end = lower.find(|one: char| !one.is_ascii_digit()).unwrap_or(lower.len());
    let (number, suffix) = lower.split_at(end);
    let wrong = || format!("'{text}' is no time; expected such as 10, 10s, 500ms, 20us or 5m");
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let unit = match suffix {
        "" => unit,
        "us" | "usec" => Duration::from_micros(1),
        "ms" | "msec" => Duration::from_millis(1),
        "s" | "sec" => Duration::from_secs(1),
        "m" => Duration::from_mins(1),
        "h" => Duration::from_hours(1),
        "d" => Duration::from_hours(24),
        _ => return Err(wrong()),
    };
    unit.checked_mul(number).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of fio's HOWTO for both values of `kb_base`.
    #[test]
    fn sizes_are_those_of_the_howto() {
        for (base, texts, bytes) in [
            (1000, "4096 4096b 4096B 4ki 4kib 4kiB 4Ki 4KiB", 4096),
            (1000, "1048576 1mi 1024ki", 1 << 20),
            (1000, "1000000 1m 1000k", 1_000_000),
            (1000, "1099511627776 1ti 1024gi 1048576mi", 1 << 40),
            (1024, "4096 4096b 4096B 4k 4kb 4kB 4K 4KB 0x1000", 4096),
            (1024, "1048576 1m 1024k", 1 << 20),
            (1024, "1000000 1mi 1000ki 1MiB", 1_000_000),
            (1024, "1099511627776 1t 1024g 1048576m", 1 << 40),
        ] {
            for text in texts.split(' ') {
                assert_eq!(size(text, base), Ok(bytes), "{text} with kb_base={base}");
            }
        }
    }

    #[test]
    fn sizes_in_lists_are_bytes() {
        for (text, bytes) in [
            ("4k,8k", "4096,8192"),
            ("4k/60:64k/40,1m", "4096/60:65536/40,1048576"),
            ("1k-4k", "1024-4096"),
            (",8k,", ",8192,"),
            ("50%", "50%"),
        ] {
            assert_eq!(sizes(text, 1024).unwrap(), bytes);
        }
        for wrong in ["4x", "k", "1z", "5*1024", "${BS}", "99999999999p", "-", "é"] {
            assert!(sizes(wrong, 1024).is_err() || wrong == "-", "{wrong}");
        }
    }

    #[test]
    fn times_have_their_unit_or_the_usual_one() {
        let second = Duration::from_secs(1);
        assert_eq!(time("60", second), Ok(Duration::from_mins(1)));
        assert_eq!((time("5m", second), time("1M", second)), (Ok(second * 300), Ok(second * 60)));
        assert_eq!(time("300ms", second), Ok(Duration::from_millis(300)));
        assert_eq!(time("2000", Duration::from_micros(1)), Ok(Duration::from_millis(2)));
        assert!(
            time("1-5", second).is_err() && time("", second).is_err() && time("9999999999", second).is_err()
        );
    }
}
