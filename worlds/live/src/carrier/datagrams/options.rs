//! How datagrams leave: with which precedence, and when.

use engine::Nanos;
use network_models::Class;
use network_models::tsn::launch::Windows;
use tunnel::session;

use super::ethernet::Ethernet;
use crate::sys::precedence::Precedence;

/// When datagrams leave: in the windows of a gate schedule (`SO_TXTIME`). The queueing discipline
/// etf holds them until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The windows of this end, by CLOCK_TAI.
    pub windows: Windows,
    /// How long before its launch a datagram is handed to the kernel, at least.
    pub lead: Nanos,
    /// The class whose windows these are, and whose queue etf has.
    pub class: Class,
}

/// How often an end of bare frames sends a Ping when there is nothing else, and the silence that it
/// takes for a loss. The engine of datagrams acknowledges each datagram, and so finds out sooner
/// that no peer is there ([`datagrams::SILENCE_MAX`]).
const PING_EVERY: Nanos = Nanos::from_secs(10);
const SILENCE: Nanos = Nanos::from_secs(30);

/// The settings of a session over bare frames: an idle link sends less than a frame a second, which
/// a plan of the network need not have room for.
#[must_use]
pub fn quiet(session: session::Config) -> session::Config {
    session::Config { ping_interval: PING_EVERY, silence: SILENCE, ..session }
}

/// How datagrams leave. By default, they leave as others do, at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How much sooner than others they are carried.
    pub precedence: Precedence,
    /// When they leave, if not at once.
    pub launch: Option<Launch>,
}

impl Options {
    /// Warns if datagrams to or from `end` have times of launch, and no priority that leads them
    /// into the queue where they are held until then. `place` is where they are sent as frames.
    pub fn warn_without_queue(&self, end: &str, place: Option<&Ethernet>) {
        let Some(class) = self.without_queue(place).map(Class::number) else { return };
        let or = if place.is_some() { format!(", or pcp={class} in eth:") } else { String::new() };
        tracing::warn!(
            "{end}: launch times without a priority: datagrams go by another queue than that of class {class}, \
             where the plan has its gates and etf; give --priority {class}{or}"
        );
    }

    /// The class of the launch times, if nothing says that datagrams go by its queue. Without a
    /// priority, they go by that of class 0.
    fn without_queue(&self, place: Option<&Ethernet>) -> Option<Class> {
        let class = self.launch.map(|launch| launch.class).filter(|class| *class != Class::BEST_EFFORT);
        let priority = self.precedence.priority.or(place.and_then(|place| place.priority));
        class.filter(|_| priority.is_none())
    }
}

#[cfg(test)]
mod tests {
    use network_models::Rate;

    use super::*;

    #[test]
    fn launch_times_want_a_priority_unless_their_class_is_that_of_all() {
        let (cycle, base, length) = (Nanos::from_millis(1), Nanos::ZERO, Nanos::from_micros(100));
        let windows = Windows { cycle, base, length, rate: Rate::from_gigabits(1) };
        let launch = |class| Some(Launch { windows, lead: Nanos::ZERO, class });
        let precedence = Precedence { priority: "5".parse().ok(), dscp: None };
        let place = |text: &str| Some(text.parse::<Ethernet>().unwrap());
        let (high, none) = (Class::HIGHEST, Precedence::default());
        for (launch, precedence, place, expected) in [
            (None, none, None, None),
            (launch(high), none, None, Some(high)),
            (launch(high), precedence, None, None),
            (launch(high), none, place("eth0,vlan=3"), Some(high)),
            (launch(high), none, place("eth0,pcp=7"), None),
            (launch(Class::BEST_EFFORT), none, place("eth0"), None),
        ] {
            assert_eq!(Options { precedence, launch }.without_queue(place.as_ref()), expected);
        }
    }
}
