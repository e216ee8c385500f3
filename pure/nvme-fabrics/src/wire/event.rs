//! The asynchronous event of discovery controllers.

use nvme::wire::Bits;

/// Asynchronous Event Type: Notice.
const NOTICE: u32 = 2;
/// Asynchronous Event Information: Discovery Log Page Change.
const LOG_PAGE_CHANGE: u32 = 0xf0;

/// DW0 of an Asynchronous Event Request that reports a change of the Discovery log.
pub const DISCOVERY_LOG_CHANGED: u32 = Bits::new(2, 0).put(NOTICE)
    | Bits::new(15, 8).put(LOG_PAGE_CHANGE)
    | Bits::new(23, 16).put(super::DISCOVERY_LOG_PAGE as u32);

/// Discovery Log Page Change Notification. The host enables the event by this bit of the
/// Asynchronous Event Configuration feature; Optional Asynchronous Events Supported (OAES) has the
/// same bit.
pub const DISCOVERY_LOG_CHANGED_ENABLE: Bits = Bits::bit(31);

#[cfg(test)]
mod tests {
    #[test]
    fn the_event_is_the_one_that_linux_knows() {
        assert_eq!(super::DISCOVERY_LOG_CHANGED, 0x0070_f002);
    }
}
