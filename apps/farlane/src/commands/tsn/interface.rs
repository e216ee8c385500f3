//! The capabilities of an interface for a plan, as `ip link` and `/sys/class/net` report them.

use std::fs;
use std::path::Path;
use std::process::Command;

use network_models::tsn::taprio::{Layout, Offload};
use network_models::{Class, Rate};
use serde::Deserialize;

use crate::error::TsnError;

/// The report of `ip` about an interface, as far as it is used.
#[derive(Debug, Deserialize)]
struct LinkReport {
    ifindex: u64,
    ifname: String,
    num_tx_queues: usize,
}

/// An interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    name: String,
    /// How many transmit queues it has.
    queues: usize,
    /// The rate of its link, if it reports one.
    pub(super) rate: Option<Rate>,
    /// Whether it has a hardware clock, by which alone a card can open gates.
    has_clock: bool,
}

impl Interface {
    /// Looks at the interface `name`; `None` if there is none.
    ///
    /// # Errors
    /// When `ip` can't be run, or fails.
    pub(super) fn find(name: &str) -> Result<Option<Self>, TsnError> {
        let arguments = ["-details", "-json", "link", "show", "dev", name];
        let output = Command::new("ip").args(arguments).output().map_err(TsnError::NoTc)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let found = parse_report(name, &output.stdout, &errors)
            .map_err(|said| TsnError::NoIp { interface: name.to_owned(), said })?;
        Ok(found.map(|report| Self::of(report, &Path::new("/sys/class/net").join(name))))
    }

    /// The interface that `ip` has reported, and its place in the file system. That may show the
    /// interfaces of another network namespace: then the place is another interface's.
    fn of(report: LinkReport, place: &Path) -> Self {
        let number = |name: &str| {
            fs::read_to_string(place.join(name)).ok().and_then(|text| text.trim().parse::<u64>().ok())
        };
        let is_its = number("ifindex") == Some(report.ifindex);
        // The number of queues in use, of the queues that `ip` reports (ethtool --set-channels).
        let used = fs::read_dir(place.join("queues")).into_iter().flatten().flatten();
        let used = used.filter(|one| one.file_name().as_encoded_bytes().starts_with(b"tx-")).count();
        // A link that is down reports -1 or nothing.
        let speed = number("speed").filter(|speed| is_its && *speed > 0);
        let has_clock =
            fs::read_dir(place.join("device/ptp")).is_ok_and(|mut clocks| clocks.next().is_some());
        Self {
            name: report.ifname,
            queues: if is_its && used > 0 { used } else { report.num_tx_queues },
            rate: speed.map(Rate::from_megabits),
            has_clock: is_its && has_clock,
        }
    }

    /// How classes become queues here, for gates that are operated by `offload`, on a link of the
    /// rate `rate`, for the flow of `class`.
    ///
    /// # Errors
    /// When the interface can't keep such a plan; the error says why.
    pub(super) fn layout(
        &self,
        rate: Option<Rate>,
        class: Class,
        offload: Offload,
    ) -> Result<Layout, TsnError> {
        let refuse = |why: String, remedy: &'static str| TsnError::Interface {
            interface: self.name.clone(),
            why,
            remedy,
        };
        if let (Some(rate), Some(own)) = (rate, self.rate)
            && own < rate
        {
            let why = format!("its link carries {own}, and the plan is for {rate}");
            return Err(refuse(why, "plan for the link that there is: farlane model tsn plan --rate"));
        }
        if offload == Offload::Hardware && !self.has_clock {
            let why = "it has no hardware clock, so its card opens no gates".to_owned();
            return Err(refuse(why, "--software has the kernel open them, by its own clock"));
        }
        Layout::for_queues(self.queues, class).ok_or_else(|| {
            let why = "it has one transmit queue, in which frames can't overtake each other".to_owned();
            refuse(why, "give it more: ethtool --set-channels, or ip link add ... numtxqueues 8 type veth")
        })
    }
}

/// The report of `ip` about the interface `name` in its output; `None` if it reports that there is
/// none. Otherwise the error is its message.
fn parse_report(name: &str, output: &[u8], errors: &str) -> Result<Option<LinkReport>, String> {
    let missing = ["does not exist", "not a valid ifname", "Cannot find device"];
    let report: Result<Vec<LinkReport>, _> = serde_json::from_slice(output);
    let found = report.map(|report| report.into_iter().find(|one| one.ifname == name));
    match (found, errors.trim()) {
        (Ok(Some(report)), _) => Ok(Some(report)),
        (_, said) if missing.iter().any(|text| said.contains(text)) => Ok(None),
        (Ok(None), "") => Ok(None),
        (Err(error), "") => Err(error.to_string()),
        (_, said) => Err(said.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interface of this many queues uses two of them.
    const USES_TWO: usize = 16;

    fn interface(queues: usize, speed: &str, has_clock: bool) -> Interface {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("ifindex"), "7\n").unwrap();
        fs::write(place.path().join("speed"), speed).unwrap();
        for queue in ["tx-0", "tx-1", "rx-0", "rx-1", "rx-2"].iter().filter(|_| queues == USES_TWO) {
            fs::create_dir_all(place.path().join("queues").join(queue)).unwrap();
        }
        if has_clock {
            fs::create_dir_all(place.path().join("device/ptp/ptp0")).unwrap();
        }
        // The form of `ip -details -json link show`.
        let report = format!(
            r#"{{"ifindex":7,"ifname":"eth0","flags":["UP"],"mtu":1500,"num_tx_queues":{queues},"num_rx_queues":1}}"#
        );
        Interface::of(serde_json::from_str(&report).unwrap(), place.path())
    }

    #[test]
    fn a_plan_that_an_interface_can_not_keep_is_refused() {
        let class = Class::HIGHEST;
        let gigabit = Some(Rate::from_gigabits(1));
        let said = |interface: Interface, offload| {
            interface.layout(gigabit, class, offload).map_err(|error| error.to_string())
        };
        assert_eq!(said(interface(8, "1000\n", true), Offload::Hardware), Ok(Layout::Eight));
        assert_eq!(said(interface(4, "10000\n", false), Offload::Software), Ok(Layout::Two(class)));
        assert_eq!(said(interface(4, "-1\n", false), Offload::Software), Ok(Layout::Two(class)));
        assert_eq!(said(interface(USES_TWO, "1000\n", true), Offload::Hardware), Ok(Layout::Two(class)));
        let error = said(interface(8, "100\n", true), Offload::Hardware).unwrap_err();
        assert!(error.contains("its link carries 100 Mbit/s"), "{error}");
        let error = said(interface(8, "1000\n", false), Offload::Hardware).unwrap_err();
        assert!(error.contains("no hardware clock"), "{error}");
        let error = said(interface(1, "1000\n", true), Offload::Software).unwrap_err();
        assert!(error.contains("one transmit queue"), "{error}");
        for nobody in ["", "no-such-one", "../lo"] {
            assert_eq!(Interface::find(nobody).unwrap(), None);
        }
        // The file system's report about another interface of this name does not count.
        let report = LinkReport { ifindex: 8, ifname: "eth0".to_owned(), num_tx_queues: 8 };
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("ifindex"), "7").unwrap();
        fs::write(place.path().join("speed"), "10").unwrap();
        assert_eq!(Interface::of(report, place.path()).rate, None);
    }

    #[test]
    fn what_ip_says_instead_is_no_missing_interface() {
        let whole = br#"[{"ifindex":7,"ifname":"eth0","num_tx_queues":4}]"#;
        let queues = |output: &[u8], errors: &str| {
            parse_report("eth0", output, errors).map(|found| found.map(|report| report.num_tx_queues))
        };
        assert_eq!(queues(whole, ""), Ok(Some(4)));
        assert_eq!(queues(b"[]", ""), Ok(None));
        assert_eq!(queues(b"", "Device \"eth0\" does not exist.\n"), Ok(None));
        let refused = "Cannot open netlink socket: Operation not permitted";
        assert_eq!(queues(b"", refused), Err(refused.to_owned()));
        // Another program of this name, such as BusyBox's, writes no JSON.
        assert!(queues(b"7: eth0: <UP>", "").is_err());
    }
}
