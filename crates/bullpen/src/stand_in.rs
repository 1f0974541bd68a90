//! `bullpen stand-in`: a GitHub of our own on loopback, alone.
//!
//! Not here: the stand-in itself (`bullpen_github::stand_in`).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::{Options, StandIn};

use crate::exit::Exit;
use crate::render;
use crate::signals::Signals;

/// Where it listens.
#[derive(Debug, clap::Args)]
pub(crate) struct StandInArgs {
    /// The loopback address to listen at; port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// Runs until it is interrupted.
pub(crate) fn run(args: &StandInArgs) -> Exit {
    match serve(args) {
        Ok(()) => Exit::Done,
        Err(error) => {
            let hint = "`--listen 127.0.0.1:0` takes any free port";
            render::error(&format!("could not listen at {}: {error}", args.listen), Some(hint));
            Exit::Failed
        }
    }
}

fn serve(args: &StandInArgs) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Taken over before anyone can know that it is there.
        let mut signals = Signals::take_over()?;
        let clock = Arc::new(SystemClock::new());
        let stand_in = StandIn::start(args.listen, Options::default(), clock).await?;
        render::data(&stand_in.url());
        signals.next().await;
        stand_in.stop().await;
        Ok(())
    })
}
