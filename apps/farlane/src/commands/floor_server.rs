//! `farlane floor-server`: the other side of a raw TCP measurement.

use live::carrier::floor::Server;

use crate::args::FloorServerArgs;
use crate::commands::listening::Listening;
use crate::commands::print_json;
use crate::error::Error;

pub(crate) fn run(args: &FloorServerArgs) -> Result<(), Error> {
    let listen_error = |error| Error::Listen { address: args.listen, error };
    let server = Server::bind(args.listen).map_err(listen_error)?;
    let address = server.address().map_err(listen_error)?;
    print_json(&Listening::at(address))?;
    crate::processor::stay_on(args.cpu)?;
    loop {
        // The parent process ends this loop.
        server.serve_one().map_err(|error| Error::Child { what: "the floor's client", error })?;
    }
}
