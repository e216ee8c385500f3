//! The live view on a terminal.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Row, Table};

use super::figures::{Look, View, rows};

/// How long a key may wait.
const KEYS_EVERY: Duration = Duration::from_millis(100);

/// Shows the activity until a person ends it.
pub(super) fn show(every: Duration) -> io::Result<()> {
    let looks = watch(every);
    let mut terminal = ratatui::try_init()?;
    let mut screen = Screen { view: View::FarEnds, looks: None, first: 0 };
    let ended = loop {
        match looks.try_recv() {
            Ok(look) => screen.take(look),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break Ok(()),
        }
        if let Err(error) = terminal.draw(|frame| screen.draw(frame)) {
            break Err(error);
        }
        match keys() {
            Ok(Some(key)) if !screen.press(key) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    ratatui::try_restore()?;
    ended
}

/// Looks at the daemons on a thread of its own: a daemon that does not answer delays no key.
fn watch(every: Duration) -> Receiver<Look> {
    let (sender, looks) = channel();
    std::thread::spawn(move || {
        while sender.send(Look::now()).is_ok() {
            std::thread::sleep(every);
        }
    });
    looks
}

/// The key that was pressed, if one was.
fn keys() -> io::Result<Option<(KeyCode, KeyModifiers)>> {
    if !event::poll(KEYS_EVERY)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Some((key.code, key.modifiers)),
        _ => None,
    })
}

struct Screen {
    view: View,
    /// The last two looks.
    looks: Option<(Look, Look)>,
    /// The first row that is shown.
    first: usize,
}

impl Screen {
    fn take(&mut self, look: Look) {
        self.looks = Some(match self.looks.take() {
            Some((_, latest)) => (latest, look),
            // Nothing has happened yet between the first look and itself.
            None => (Look::now(), look),
        });
    }

    /// Returns whether the view goes on after this key.
    fn press(&mut self, (key, modifiers): (KeyCode, KeyModifiers)) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char(letter) => {
                if let Some(view) = View::ALL.into_iter().find(|view| view.key() == letter) {
                    (self.view, self.first) = (view, 0);
                }
            }
            KeyCode::Down => self.first += 1,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            _ => {}
        }
        true
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [body, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
        let rows =
            self.looks.as_ref().map(|(before, after)| rows(self.view, before, after)).unwrap_or_default();
        self.first = self.first.min(rows.len().saturating_sub(1));
        let head = self.view.head();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].len()]).max().unwrap_or(0)
        };
        let widths = (0..head.len())
            .map(|column| Constraint::Length(u16::try_from(width(column)).unwrap_or(u16::MAX)));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let table = Table::new(rows.iter().skip(self.first).map(|row| Row::new(row.clone())), widths)
            .header(Row::new(head.iter().copied()).style(bold))
            .column_spacing(2)
            .block(Block::bordered().title(format!(" farlane: {} ({}) ", self.view.title(), rows.len())));
        frame.render_widget(table, body);
        let keys = View::ALL.map(|view| format!("{} {}", view.key(), view.title())).join("   ");
        frame.render_widget(Line::from(format!(" {keys}   up, down   q end")), foot);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_key_shows_its_view_and_small_terminals_do_no_harm() {
        let activity = json!({ "nsid": 7, "reads": 0, "read_bytes": 0, "writes": 0, "written_bytes": 0,
            "others": 0, "errors": 0, "took": [] });
        let status = json!({ "kind": "target", "listening": [], "fabrics": [], "generation": 1,
            "connections": 0, "memory": { "budget_bytes": 0, "used_bytes": 0, "waiting": 0 },
            "strangers": { "connections": 0, "most": 1, "discovery": 0, "discovery_most": 1, "refused": {},
                "dropped": {},
                "exponentiations": { "waiting": 0, "done": 0, "refused": 0, "processor_ns": 0 } },
            "discovery_access": "open", "discovery": [],
            "subsystems": [{ "nqn": "nqn.x:y", "activity": [activity], "namespaces": [], "controllers": [] }] });
        let status: status::Status = serde_json::from_value(status).unwrap();
        let look = || Look::of(Instant::now(), std::slice::from_ref(&status));
        let mut screen = Screen { view: View::FarEnds, looks: Some((look(), look())), first: 9 };
        for (columns, lines) in [(100, 12), (12, 3), (1, 1), (0, 0)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
            for view in View::ALL {
                assert!(screen.press((KeyCode::Char(view.key()), KeyModifiers::NONE)));
                terminal.draw(|frame| screen.draw(frame)).unwrap();
                let text: String =
                    terminal.backend().buffer().content.iter().map(|cell| cell.symbol()).collect();
                let shown = text.contains(&format!("farlane: {} (", view.title()));
                assert_eq!(shown, columns == 100, "{text}");
                assert_eq!(text.contains("nqn.x:y  7"), columns == 100 && view == View::Namespaces, "{text}");
            }
        }
        for end in [(KeyCode::Char('q'), KeyModifiers::NONE), (KeyCode::Char('c'), KeyModifiers::CONTROL)] {
            assert!(!screen.press(end));
        }
    }
}
