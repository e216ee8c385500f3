//! Keeps the engine's list of admitted hosts as the file says.

use assemblies::far::{Device, Seats};
use engine::{Instant, Nanos};

use super::Event;
use crate::carrier::identity::Admission;

/// How often the file is looked at.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// The hosts that a far box admits.
#[derive(Debug, Default)]
pub(super) struct Doorkeeper {
    pub(super) admission: Admission,
    look: Option<Instant>,
}

impl Doorkeeper {
    pub(super) fn new<D: Device>(admission: Admission, now: Instant, far: &mut Seats<D>) -> Self {
        far.admit(now, admission.admitted());
        let look = admission.has_file().then_some(now + LOOK_EVERY);
        Self { admission, look }
    }

    /// When the file is to be looked at, if there is one.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.look
    }

    /// Looks at the file if it is time to. Returns whether the engine has a new list.
    pub(super) fn turn<D: Device>(
        &mut self,
        now: Instant,
        far: &mut Seats<D>,
        mut report: impl FnMut(Event),
    ) -> bool {
        if self.look.is_none_or(|at| at > now) {
            return false;
        }
        self.look = Some(now + LOOK_EVERY);
        match self.admission.look() {
            Ok(false) => false,
            Ok(true) => {
                far.admit(now, self.admission.admitted());
                report(Event::Admission(Ok(())));
                true
            }
            Err(error) => {
                report(Event::Admission(Err(error)));
                false
            }
        }
    }
}
