//! A stack with what is configured of its pools, for whoever looks at them or orders something.
//!
//! What is configured comes from where `bullpen serve` has it, and every number that a plan depends on
//! is the service's, so that both come to the same.
//!
//! Not here: what is done with it.

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

/// A stack, and its pools as they are configured.
pub(super) struct PoolsView<P> {
    /// The stack.
    pub(super) stack: Stack<P>,
    /// What is configured, if anything says so; or why that cannot be known.
    pub(super) configured: Result<Option<Blueprints>, Failure>,
    /// Where that is, for people.
    pub(super) place: String,
    /// Whether the result is told as JSON.
    pub(super) json: bool,
}

/// Something that is done with a stack's pools.
pub(super) trait PoolsCommand {
    /// Does it.
    async fn run<P: Ports<Forge = GithubAccess>>(
        self,
        sight: PoolsView<P>,
    ) -> Result<Exit, Failure>;
}

/// Has this done with the pools of the stack that the arguments name.
pub(super) async fn visit(
    args: &CommonArgs,
    environment: &Environment,
    work: impl PoolsCommand,
) -> Result<Exit, Failure> {
    let common = CommonInputs::read(args, environment)?;
    must_exist(&common.stack)?;
    let Loaded { common, file } = if common.stack.config.is_some() {
        // The file says everything: no credential is needed, and none is read.
        Loaded { file: files::stack(&common.stack, environment)?, common }
    } else {
        load(&common, environment)?
    };
    let plan = RuntimePlan { common: &common, config: None, file: &file, environment };
    runtime::run(&plan, Visit { common: &common, file: &file, work }).await?
}

struct Visit<'a, W> {
    common: &'a CommonInputs,
    file: &'a StackFile,
    work: W,
}

impl<W: PoolsCommand> Command for Visit<'_, W> {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let Self { common, file, work } = self;
        let Runtime { mut stack, foundation, .. } = runtime;
        bound(&mut stack.ceilings, file, &common.stack);
        let source = Source::of(&common.stack, &common.github);
        let config = source.once(stack.ports.forge().manager()).await;
        let blueprints = |config| Blueprints::of(&file.env, &config, &foundation);
        let configured = config.map(|config| config.map(blueprints));
        let sight = PoolsView { stack, configured, place: source.place(), json: common.stack.json };
        work.run(sight).await
    }
}

/// Every pool that is configured, well or not, or remembered, in the order of their names.
pub(super) async fn names<P: Ports>(
    stack: &Stack<P>,
    configured: &Blueprints,
) -> Result<Vec<PoolName>, Fault> {
    let mut names = known(stack, configured).await?;
    names.extend(configured.unbuildable.keys().cloned());
    names.sort();
    Ok(names)
}

/// There is no such pool, neither configured nor remembered.
pub(super) fn unknown(wanted: &str, names: &[PoolName]) -> Failure {
    let near = spelling::nearest(wanted, names.iter().map(PoolName::as_str));
    let what = format!("there is no pool {wanted:?}{}", spelling::hint(&near));
    let names: Vec<&str> = names.iter().map(PoolName::as_str).collect();
    let hint = if names.is_empty() {
        "none is remembered; --config names the file that configures some".to_owned()
    } else {
        format!("pools: {}", names.join(", "))
    };
    Failure { exit: Exit::Usage, what, hint: Some(hint) }
}

/// A ledger, or a cloud, that could not be read.
pub(super) fn unseen(fault: &Fault) -> Failure {
    Failure::of("could not look at the pools", fault)
}
