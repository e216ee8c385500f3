//! Whole numbers in as few bytes as they need: seven bits a byte, the lowest first.

/// Appends `value`.
pub(super) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f).to_le_bytes()[0];
        value >>= 7;
        bytes.push(if value == 0 { low } else { low | 0x80 });
        if value == 0 {
            return;
        }
    }
}

/// Takes the value at the beginning of `bytes`. `None` if there is none.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_nothing_is_read_beyond_the_end() {
        let values = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let mut bytes = Vec::new();
        values.iter().for_each(|value| put(&mut bytes, *value));
        let mut rest = &bytes[..];
        assert_eq!(std::array::from_fn(|_| take(&mut rest).unwrap()), values);
        assert_eq!(take(&mut rest), None);
        assert_eq!(take(&mut &bytes[bytes.len() - 2..bytes.len() - 1]), None, "it is cut");
        assert_eq!(take(&mut &[0xff; 20][..]), None, "it is too long");
    }
}
