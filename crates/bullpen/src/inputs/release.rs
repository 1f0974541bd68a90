//! The inputs of `release`: the request or the run attempt to release.
//!
//! Not here: the command (`workflow`).

use bullpen_core::ids::RequestId;

use super::common::{CommonArgs, CommonInputs};
use super::given::Reader;
use super::identity::{self, Identity, IdentityArgs, RunAttempt};
use super::{Environment, UsageError};

/// Give machines back.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// The requests to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseTarget {
    /// One request.
    Request(RequestId),
    /// All requests of a run attempt.
    Run(RunAttempt),
}

/// The checked inputs of `release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseInputs {
    /// The common inputs.
    pub(crate) common: CommonInputs,
    /// The requests to release.
    pub(crate) released: ReleaseTarget,
}

impl ReleaseInputs {
    /// Reads the inputs. Without an id or a name the target is the whole run attempt; with one it
    /// is that request alone, so that two requests of a run do not release each other's machines
    /// (D32).
    pub(crate) fn read(args: &ReleaseArgs, environment: &Environment) -> Result<Self, UsageError> {
        let reader = Reader::new(environment);
        let common = CommonInputs::read(&args.common, environment)?;
        let released = match Identity::read(&args.identity, reader)? {
            Identity { request: Some(request), .. } => ReleaseTarget::Request(request),
            Identity { run, name: Some(name), .. } => {
                let run = run.map_or_else(|| identity::current_run(reader), Ok)?;
                ReleaseTarget::Request(run.request(&name))
            }
            Identity { run: Some(run), .. } => ReleaseTarget::Run(run),
            Identity { .. } => ReleaseTarget::Run(identity::current_run(reader)?),
        };
        Ok(Self { common, released })
    }
}
