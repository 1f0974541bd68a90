//! `bullpen agent`: the agent of one machine of the process fleet.
//!
//! Not here: the agent's life (`bullpen-agent`), or its machine (`bullpen_agent::machine`).

use std::path::PathBuf;

use bullpen_agent::SelfEndReason;
use bullpen_agent::machine::{self, LiveError};
use bullpen_embedded::machine::InFile;
use bullpen_embedded::system::SystemClock;

use crate::exit::Exit;
use crate::render;
use crate::workflow::Failure;

/// The machine that the agent runs on.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// The machine's directory
    #[arg(long, value_name = "DIR")]
    machine: PathBuf,
    /// The id of this boot of the machine
    #[arg(long, value_name = "BOOT")]
    boot: String,
}

/// Runs the agent until its machine is to end.
pub(crate) fn run(args: &AgentArgs) -> Exit {
    match run_agent(args) {
        Ok(_) => Exit::Done,
        Err(error) => {
            let failure = Failure::new(Exit::Failed, &error);
            render::error(&failure.what, None);
            failure.exit
        }
    }
}

/// Runs the agent with the adapter of this machine's mailbox.
fn run_agent(args: &AgentArgs) -> Result<SelfEndReason, LiveError> {
    let clock = SystemClock::new();
    #[cfg(feature = "aws")]
    if let machine::MailboxPlace::DynamoDb { .. } = machine::mailbox_place(&args.machine)? {
        let mailbox = bullpen_aws::instance::InDynamoDb;
        return machine::run(&args.machine, &args.boot, &clock, &mailbox);
    }
    machine::run(&args.machine, &args.boot, &clock, &InFile)
}
