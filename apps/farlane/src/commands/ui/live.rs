//! The present activity of this user's daemons, for pages that ask every second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::commands::top::{Look, Top, top};

/// The least time between two looks. A request before that gets the last answer once more.
const PAUSE: Duration = Duration::from_millis(400);

/// The last look, and its answer.
#[derive(Default)]
pub(super) struct Live(Mutex<Option<(Instant, Look, Value)>>);

/// The activity of this user's daemons since the last look.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The time since the last look; none at the first.
    passed_s: Option<f64>,
    #[serde(flatten)]
    top: Top,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    /// The activity since the last look.
    pub(super) fn now(&self) -> Value {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, _, answer)) = &*last
            && at.elapsed() < PAUSE
        {
            return answer.clone();
        }
        let look = Look::now();
        let passed = last.as_ref().map(|(at, ..)| at.elapsed().as_secs_f64());
        let before = last.as_ref().map_or(&look, |(_, before, _)| before);
        let answer = Answer { passed_s: passed, top: top(before, &look) };
        // Numbers and text are always JSON.
        let answer = serde_json::to_value(answer).unwrap_or_default();
        *last = Some((Instant::now(), look, answer.clone()));
        answer
    }
}
