//! When frames leave, so that they keep to the windows of a gate schedule.
//!
//! A sender that waits at a closed gate has its frames late by up to a cycle, and a frame that the
//! gate would cut waits once more. A sender that knows the windows gives each frame a time of
//! launch instead, and the frames behind it follow at the rate of the link.

use engine::Nanos;

use crate::Rate;

/// The windows of a sender: one in each cycle, by the clock of the network (TAI).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The length of a cycle.
    pub cycle: Nanos,
    /// When the window of some cycle opens, counted from the beginning of the clock.
    pub base: Nanos,
    /// How long the window is open.
    pub length: Nanos,
    /// The rate of the link.
    pub rate: Rate,
}

/// Why there are no such windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowsError {
    /// The cycle or the window is empty, or the window is longer than the cycle.
    Empty,
    /// A frame of the most bytes, which takes this long, does not fit the window.
    Short {
        /// The time of the longest frame.
        frame: Nanos,
        /// The length of the window.
        window: Nanos,
    },
}

impl core::fmt::Display for WindowsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Empty => f.write_str("a window lasts longer than nothing, and no longer than its cycle"),
            Self::Short { frame, window } => {
                write!(f, "the longest frame takes {frame} of the link, and the window is open for {window}")
            }
        }
    }
}

/// Gives frames their times of launch, in the order in which they are sent.
#[derive(Clone, Debug)]
pub struct Launcher {
    windows: Windows,
    /// When the link is free again.
    free: Nanos,
    /// The least time between asking and launch, in which the system hands a frame over.
    lead: Nanos,
}

impl Launcher {
    /// Gives times at least `lead` ahead. Frames are at most `longest` bytes long on the link, with
    /// preamble and gap.
    ///
    /// # Errors
    /// When not every frame fits a window.
    pub fn new(windows: Windows, lead: Nanos, longest: u64) -> Result<Self, WindowsError> {
        if windows.length == Nanos::ZERO || windows.length > windows.cycle {
            return Err(WindowsError::Empty);
        }
        let frame = windows.rate.time_of(longest);
        if frame > windows.length {
            return Err(WindowsError::Short { frame, window: windows.length });
        }
        Ok(Self { windows, free: Nanos::ZERO, lead })
    }

    /// When a frame that is handed over at `now` leaves, and takes `bytes` of the link.
    pub fn next(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let Windows { cycle, base, length, rate } = self.windows;
        let frame = rate.time_of(bytes);
        let earliest = (now + self.lead).max(self.free);
        let since = earliest.get() % cycle.get() + cycle.get() - base.get() % cycle.get();
        let phase = Nanos::new(since % cycle.get());
        let fits = phase + frame <= length;
        let launch = if fits { earliest } else { earliest + cycle.saturating_sub(phase) };
        self.free = launch + frame;
        launch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Rng;

    fn windows() -> Windows {
        Windows {
            cycle: Nanos::from_micros(1_000),
            base: Nanos::from_micros(2_300),
            length: Nanos::from_micros(100),
            rate: Rate::from_gigabits(1),
        }
    }

    #[test]
    fn frames_follow_each_other_within_the_window() {
        let mut launcher = Launcher::new(windows(), Nanos::ZERO, 1_538).unwrap();
        let now = Nanos::from_micros(5_250);
        // 12.304 µs each: eight fit, the ninth waits for the next window.
        let times: Vec<_> = (0..9).map(|_| launcher.next(now, 1_538).get()).collect();
        assert_eq!(times[..3], [5_300_000, 5_312_304, 5_324_608]);
        assert_eq!(times[7..], [5_386_128, 6_300_000]);
        // In the middle of a window, a frame leaves at once, but for the lead.
        let mut launcher = Launcher::new(windows(), Nanos::from_micros(3), 1_538).unwrap();
        assert_eq!(launcher.next(Nanos::from_micros(7_340), 84), Nanos::from_micros(7_343));
    }

    #[test]
    fn no_frame_leaves_outside_of_a_window() {
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let cycle = 1 + rng.below(1_000_000_000);
            let windows = Windows {
                cycle: Nanos::new(cycle),
                base: Nanos::new(rng.below(4_000_000_000)),
                length: Nanos::new(1 + rng.below(cycle)),
                rate: Rate::new(10_000_000 + rng.below(100_000_000_000)),
            };
            let longest = 84 + rng.below(9_000);
            let lead = Nanos::new(rng.below(500_000));
            let Ok(mut launcher) = Launcher::new(windows, lead, longest) else { continue };
            let (mut now, mut free) = (Nanos::new(rng.below(1 << 60)), Nanos::ZERO);
            for _ in 0..200 {
                let bytes = 1 + rng.below(longest);
                let launch = launcher.next(now, bytes);
                let frame = windows.rate.time_of(bytes);
                let phase = (launch.get() + cycle - windows.base.get() % cycle) % cycle;
                assert!(phase + frame.get() <= windows.length.get(), "seed {seed}");
                assert!(launch >= now + lead && launch >= free, "seed {seed}");
                // No window is left out.
                assert!(launch <= (now + lead).max(free) + windows.cycle, "seed {seed}");
                free = launch + frame;
                now += Nanos::new(rng.below(cycle / 8 + 1));
            }
        }
    }

    #[test]
    fn windows_that_no_frame_fits_are_refused() {
        let short = Windows { length: Nanos::from_micros(10), ..windows() };
        assert!(matches!(Launcher::new(short, Nanos::ZERO, 1_538), Err(WindowsError::Short { .. })));
        let long = Windows { length: Nanos::from_secs(1), ..windows() };
        let error = Launcher::new(long, Nanos::ZERO, 84).unwrap_err();
        assert!(
            matches!(error, WindowsError::Empty)
                && std::string::ToString::to_string(&error).contains("cycle")
        );
    }
}
