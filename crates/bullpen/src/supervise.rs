//! `bullpen supervise`: the supervisor of one machine of the process fleet.
//!
//! Not here: the supervisor itself (`bullpen_embedded::fleet`).

use std::path::PathBuf;
use std::sync::Arc;

use bullpen_embedded::fleet;
use bullpen_embedded::system::SystemClock;

use crate::exit::Exit;
use crate::render;

/// The machine to supervise.
#[derive(Debug, clap::Args)]
pub(crate) struct SuperviseArgs {
    /// The machine's directory
    #[arg(value_name = "DIR")]
    machine: PathBuf,
}

/// Supervises until the machine ends.
pub(crate) fn run(args: &SuperviseArgs) -> Exit {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| {
        runtime.block_on(fleet::supervise(&args.machine, Arc::new(SystemClock::new())))
    });
    match ended {
        Ok(_) => Exit::Done,
        Err(error) => {
            let machine = args.machine.display();
            render::error(&format!("could not supervise {machine}: {error}"), None);
            Exit::Failed
        }
    }
}
