//! The inputs of `release`: whose machines are given back.
//!
//! Not here: giving them back (`workflow`).

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

/// Whose machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseTarget {
    /// One request's.
    Request(RequestId),
    /// Those of all requests of a run attempt.
    Run(RunAttempt),
}

/// What `release` is told; checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseInputs {
    /// What every command is told.
    pub(crate) common: CommonInputs,
    /// Whose machines.
    pub(crate) released: ReleaseTarget,
}

impl ReleaseInputs {
    /// Reads them. With nothing said it is the whole run attempt; a request is released on its own by
    /// its id or name, so that two requests of a run do not take each other's machines (D32).
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
