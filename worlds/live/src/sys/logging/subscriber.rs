//! From `tracing`'s events to lines in the queue.

use std::fmt::{self, Write};
use std::io;
use std::path::Path;
use std::sync::PoisonError;
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::journal::{self, Journal};
use super::{CHOSEN, Form, Item, Line, Streams, errors};

/// The field of an event that says that its line is written even if others are like it.
const EACH: &str = "each";

/// Logs this process' events from now on: those that pass `filter`, written in this form.
///
/// This must come before the first event, and before the process gives up its reach.
///
/// # Errors
/// When the journal is asked for and is not there.
pub fn begin(filter: Targets, form: Form) -> io::Result<()> {
    let lines = match form {
        Form::Journal => Some(Box::new(Journal::open(Path::new(journal::SOCKET))?) as Box<_>),
        Form::Text { .. } | Form::Json => None,
    };
    let streams = Streams { lines, form, ..Streams::new(Box::new(io::stderr())) };
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(streams.with_these_processors());
    let subscriber = tracing_subscriber::registry().with(ToQueue.with_filter(filter));
    // A second call changes nothing.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

struct ToQueue;

impl<S: Subscriber> Layer<S> for ToQueue {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        errors().send(Item::Line(line(event)));
    }
}

fn line(event: &Event<'_>) -> Line {
    let metadata = event.metadata();
    let mut line = Line {
        at: SystemTime::now(),
        level: *metadata.level(),
        module: metadata.module_path().unwrap_or_default(),
        text: String::new(),
        fields: Vec::new(),
        repeated: 0,
        each: false,
    };
    event.record(&mut Fields(&mut line));
    // A line may quote a peer's bytes.
    line.text = texts::clean(&line.text);
    line.fields.iter_mut().for_each(|(_, value)| *value = texts::clean(value));
    line
}

/// Takes an event's values over into a line.
struct Fields<'a>(&'a mut Line);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let Self(line) = self;
        match field.name() {
            "message" => drop(write!(line.text, "{value:?}")),
            name => line.fields.push((name, format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let Self(line) = self;
        match field.name() {
            "message" => line.text.push_str(value),
            name => line.fields.push((name, value.to_owned())),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        let Self(line) = self;
        match field.name() {
            EACH => line.each = value,
            name => line.fields.push((name, value.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Keeps lines instead of queueing them.
    struct Kept(Arc<Mutex<Vec<Line>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(line(event));
        }
    }

    #[test]
    fn an_event_becomes_a_line_if_the_filter_lets_it() {
        let kept = Arc::default();
        let filter: Targets = "info,loud=debug".parse().unwrap();
        let subscriber = tracing_subscriber::registry().with(Kept(Arc::clone(&kept)).with_filter(filter));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(peer = %"10.0.0.1:7", text = "as it is", tries = 3, "{} is {}", "link", "down");
            tracing::debug!("not asked for");
            tracing::debug!(target: "loud", "asked for");
            tracing::info!(each = true, "of each");
            let (red, title) = ("\u{1b}[31mred\u{1b}[0m", "x\u{1b}]0;title\u{7}y");
            tracing::info!(title, "host '{red}' is there");
            tracing::info!("host '{}' is there", "x ".repeat(1_000_000));
        });
        let lines = kept.lock().unwrap();
        assert_eq!((&*lines[3].text, &*lines[3].fields[0].1), ("host 'red' is there", "xy"));
        assert!(lines[4].text.len() < 300, "{}", lines[4].text);
        let lines = &lines[..3];
        let texts: Vec<_> = lines.iter().map(|line| (line.text.as_str(), line.each)).collect();
        assert_eq!(texts, [("link is down", false), ("asked for", false), ("of each", true)]);
        let field = |name, value: &str| (name, value.to_owned());
        assert_eq!(
            lines[0].fields,
            [field("peer", "10.0.0.1:7"), field("text", "as it is"), field("tries", "3")]
        );
        assert_eq!(lines[0].level, tracing::Level::WARN);
        assert!(lines[2].fields.is_empty());
    }
}
