//! A stack with the configuration of its pools, for the subcommands of `bullpen pools`.
//!
//! The configuration has the same source as in `bullpen serve`, and so has every number that a plan
//! depends on: both make the same plan.
//!
//! Not here: the subcommands themselves.

use bullpen_core::config::Stack as StackFile;
use bullpen_core::ids::PoolName;
use bullpen_core::pool::Blueprints;
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::spelling;
use bullpen_engine::Stack;
use bullpen_engine::pools::known;

use crate::exit::Exit;
use crate::inputs::{CommonArgs, CommonInputs, Environment, files};
use crate::runtime::{self, Command, GithubAccess, Runtime, RuntimePlan};
use crate::serve::{Source, bound};
use crate::workflow::{Failure, Loaded, load, must_exist};

/// A stack, and the configuration of its pools.
pub(super) struct PoolsView<P> {
    /// The stack.
    pub(super) stack: Stack<P>,
    /// The configured pools; `None` without a configuration; an error if it is unreadable.
    pub(super) configured: Result<Option<Blueprints>, Failure>,
    /// The configuration's file or repository, for people.
    pub(super) place: String,
    /// Whether the command prints its result as JSON.
    pub(super) json: bool,
}

/// A subcommand that works on a stack's pools.
pub(super) trait PoolsCommand {
    /// Runs it.
    async fn run<P: Ports<Forge = GithubAccess>>(self, view: PoolsView<P>)
    -> Result<Exit, Failure>;
}

/// Runs a subcommand on the pools of the stack that the arguments name.
pub(super) async fn run(
    args: &CommonArgs,
    environment: &Environment,
    command: impl PoolsCommand,
) -> Result<Exit, Failure> {
    let common = CommonInputs::read(args, environment)?;
    must_exist(&common.stack)?;
    let Loaded { common, file } = if common.stack.config.is_some() {
        // The file is the whole configuration: the command reads no credential for GitHub.
        Loaded { file: files::stack(&common.stack, environment)?, common }
    } else {
        load(&common, environment)?
    };
    let plan = RuntimePlan { common: &common, config: None, file: &file, environment };
    runtime::run(&plan, InRuntime { common: &common, file: &file, command }).await?
}

struct InRuntime<'a, C> {
    common: &'a CommonInputs,
    file: &'a StackFile,
    command: C,
}

impl<C: PoolsCommand> Command for InRuntime<'_, C> {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let Self { common, file, command } = self;
        let Runtime { mut stack, foundation, .. } = runtime;
        bound(&mut stack.ceilings, file, &common.stack);
        let source = Source::of(&common.stack, &common.github);
        let config = source.once(stack.ports.forge().manager()).await;
        let blueprints = |config| Blueprints::of(&file.env, &config, &foundation);
        let configured = config.map(|config| config.map(blueprints));
        let view = PoolsView { stack, configured, place: source.place(), json: common.stack.json };
        command.run(view).await
    }
}

/// Every pool that is configured, valid or not, or has a journal, in the order of their names.
pub(super) async fn names<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
) -> Result<Vec<PoolName>, Fault> {
    let mut names = known(stack, configured).await?;
    names.extend(configured.unbuildable.keys().cloned());
    names.sort();
    Ok(names)
}

/// The failure for a pool that is neither configured nor has a journal.
pub(super) fn unknown(wanted: &str, names: &[PoolName]) -> Failure {
    let near = spelling::nearest(wanted, names.iter().map(PoolName::as_str));
    let what = format!("there is no pool {wanted:?}{}", spelling::hint(&near));
    let names: Vec<&str> = names.iter().map(PoolName::as_str).collect();
    let hint = if names.is_empty() {
        "the ledger has no pools; --config FILE names a file that configures some".to_owned()
    } else {
        format!("pools: {}", names.join(", "))
    };
    Failure { exit: Exit::Usage, what, hint: Some(hint) }
}

/// The failure for a ledger or a cloud that could not be read.
pub(super) fn unreadable(fault: &Fault) -> Failure {
    Failure::of("could not read the pools", fault)
}
