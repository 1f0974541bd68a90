//! `bullpen stand-in`: runs a stand-in for GitHub on loopback, without a service.
//!
//! Not here: the stand-in itself (`bullpen_github::stand_in`).

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bullpen_core::mailbox::Secret;
use bullpen_embedded::system::{SystemClock, fresh_secret};
use bullpen_github::stand_in::{Options, StandIn};
use serde_json::json;

use crate::exit::Exit;
use crate::render;
use crate::signals::Signals;

/// The address to listen at, and the file for the token.
#[derive(Debug, clap::Args)]
pub(crate) struct StandInArgs {
    /// The loopback address to listen at; port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A new file for its token, which only this user can read [default: print the token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Runs until it is interrupted.
pub(crate) fn run(args: &StandInArgs) -> Exit {
    let token = fresh_secret();
    if let Some(path) = &args.token_file
        && let Err(error) = write(path, &token)
    {
        let what = format!("could not create {}: {error}", path.display());
        render::error(&what, Some("--token-file must name a file that does not exist yet"));
        return Exit::Failed;
    }
    let served = serve(args, token);
    if let Some(path) = &args.token_file {
        // The token is void now, so a file that stays is harmless.
        let _ = std::fs::remove_file(path);
    }
    match served {
        Ok(()) => Exit::Done,
        Err(error) => {
            let hint = "`--listen 127.0.0.1:0` takes any free port";
            render::error(&format!("could not listen at {}: {error}", args.listen), Some(hint));
            Exit::Failed
        }
    }
}

/// Writes the token to a new file. It refuses an existing file: another user could read that, or
/// could have put a link there.
fn write(path: &Path, token: &Secret) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(token.reveal().as_bytes())
}

fn serve(args: &StandInArgs, token: Secret) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Taken over before the stand-in prints its address, so that no signal is lost.
        let mut signals = Signals::take_over()?;
        let clock = Arc::new(SystemClock::new());
        let stand_in = StandIn::start(args.listen, Options::new(token), clock).await?;
        let url = stand_in.url();
        render::json(
            &match &args.token_file {
                Some(path) => json!({"url": url, "token_file": path}),
                None => json!({"url": url, "token": stand_in.token().reveal()}),
            }
            .to_string(),
        );
        signals.next().await;
        stand_in.stop().await;
        Ok(())
    })
}
