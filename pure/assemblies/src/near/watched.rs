//! Work of a near host that only a watcher needs.

use engine::Watch;
use nvme::wire::CommandId;
use nvme_pcie::host::{Submission, SubmitError};

use super::{ControllerIndex, Event, Near, Output};
use crate::watch::{Direction, Port, Seen};

impl Near {
    /// The watchers of this host's packets, commands and bytes.
    pub const fn watch(&mut self) -> &mut Watch<Port> {
        self.port.watch()
    }

    /// Submits a command and shows it, if the driver has taken it.
    #[cold]
    pub(super) fn submit_watched(
        &mut self,
        controller: ControllerIndex,
        submission: Submission,
    ) -> Result<CommandId, SubmitError> {
        let driver = &mut self.drivers[controller.0].host;
        let command = driver.submit(self.now, &mut self.memory, submission)?;
        let submission = &submission;
        self.port.watch().show(self.now, move || Seen::Submitted { controller, command, submission });
        Ok(command)
    }

    /// Shows an output to the watchers, as it leaves.
    #[cold]
    pub(super) fn show(&mut self, output: Option<&Output>) {
        match output {
            Some(Output::Transmit(connection, bytes)) => {
                self.port.show_bytes(self.now, Direction::Down, *connection, bytes)
            }
            Some(Output::Event(Event::Completed { controller, completed })) => {
                let controller = *controller;
                self.port.watch().show(self.now, || Seen::Completed { controller, completed });
            }
            _ => {}
        }
    }
}
