//! `bullpen pools`: what standby pools are like, what would be done about them, and what an operator
//! orders of them.
//!
//! Not here: deciding on a pool (`bullpen_core::pool`), or keeping one (`bullpen serve`).

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

pub(crate) use show::{Shown, look};

/// What is asked about pools; without anything more, what they are like.
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
    /// Tell what would be done now, without doing it
    ///
    /// Exits with 0 if there is nothing to do, with 10 if there is, and with 64 if there is no such
    /// pool or nothing is configured.
    Plan(Box<plan::PlanArgs>),
    /// Leave a pool as it is: nothing is launched, stopped or ended for it
    Pause(Box<order::OrderArgs>),
    /// Take a pause or a drain back
    Resume(Box<order::OrderArgs>),
    /// End every machine of a pool that nobody uses, and keep it empty
    Drain(Box<order::OrderArgs>),
    /// Show what pools keep by their schedules, at an instant or between two
    Preview(preview::PreviewArgs),
}

/// Does what is asked about pools.
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
