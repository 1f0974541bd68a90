//! `bullpen pools`: shows standby pools and plans for them, and gives them an operator's orders.
//!
//! Not here: planning a pool (`bullpen_core::pool`), or executing plans (`bullpen serve`).

mod order;
mod plan;
mod preview;
mod show;
mod view;
mod words;

use bullpen_core::pool::OperatorOrder;

use crate::exit::Exit;
use crate::inputs::CommonArgs;
use crate::workflow::run_command;

pub(crate) use show::{PoolSummary, pool_summaries};

/// A subcommand about pools; without one, the command shows every pool.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PoolsArgs {
    #[command(subcommand)]
    command: Option<PoolsCommand>,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Subcommand)]
enum PoolsCommand {
    /// Show what the service would do now, without doing it
    ///
    /// Exits with 0 if there is nothing to do, with 10 if there is, and with 64 if the pool does
    /// not exist or there is no configuration.
    Plan(Box<plan::PlanArgs>),
    /// Leave a pool as it is: the service launches, stops and ends no machine of it
    Pause(Box<order::OrderArgs>),
    /// Cancel a pause or a drain
    Resume(Box<order::OrderArgs>),
    /// End every machine of a pool that is not in use, and keep the pool empty
    Drain(Box<order::OrderArgs>),
    /// Show the targets of pools by their schedules, at an instant or between two instants
    Preview(preview::PreviewArgs),
}

/// Runs `bullpen pools`.
pub(crate) fn run(args: &PoolsArgs) -> Exit {
    let ordered = |args: &order::OrderArgs, order: Option<OperatorOrder>| {
        run_command(async |environment| Box::pin(order::order(args, order, environment)).await)
    };
    match &args.command {
        None => {
            run_command(async |environment| Box::pin(show::show(&args.common, environment)).await)
        }
        Some(PoolsCommand::Plan(args)) => {
            run_command(async |environment| Box::pin(plan::plan(args, environment)).await)
        }
        Some(PoolsCommand::Pause(args)) => ordered(args, Some(OperatorOrder::Pause)),
        Some(PoolsCommand::Resume(args)) => ordered(args, None),
        Some(PoolsCommand::Drain(args)) => ordered(args, Some(OperatorOrder::Drain)),
        Some(PoolsCommand::Preview(args)) => preview::preview(args),
    }
}
