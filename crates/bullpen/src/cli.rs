//! The command line: what can be said, and which part of the runtime answers.
//!
//! Not here: doing it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing::level_filters::LevelFilter;

use crate::exit::Exit;
use crate::inputs::{CommonArgs, ProvisionArgs, RefreshArgs, ReleaseArgs, StackArgs};
#[cfg(feature = "aws")]
use crate::policies;
use crate::{
    agent, demo, doctor, explain, explore, inputs, labels, lint, log, pools, render, serve, sim,
    stand_in, stand_in_runner, supervise, workflow,
};

/// Keeps self-hosted GitHub Actions runners warm and hands one to every job in seconds.
#[derive(Debug, Parser)]
#[command(name = "bullpen", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the main job on this machine, without an account anywhere
    ///
    /// A service keeps two standby pools, and a GitHub of its own tells it of twenty jobs, in bursts,
    /// with real agents and real jobs and a state of its own; all of it is gone at the end. With
    /// --workflow three workflow runs without a service: a cold one, a warm one, and two requests at
    /// once. Exits with 0 if all of it went as it should, and with 130 or 143 if it was interrupted.
    Demo(demo::DemoArgs),
    /// Read labels as the service would
    #[command(subcommand)]
    Labels(LabelsCommand),
    /// Look at standby pools, and order something of one
    ///
    /// Without anything more it shows what each pool of the stack is to keep, what it has, what it
    /// waits on, and what was done lately. What is configured comes from where `serve` has it; with
    /// none of that it shows what the ledger remembers.
    Pools(Box<pools::PoolsArgs>),
    /// Check runs-on.yml and bullpen.toml
    ///
    /// Exits with 0 if there are no errors, with 1 if there are, and with 64 if a file cannot be
    /// read or an argument is wrong.
    Lint(lint::LintArgs),
    /// Take GitHub's webhooks and give every job a runner, until told to end
    ///
    /// Prints one line of JSON with its addresses when it listens. On SIGTERM or SIGINT it takes
    /// nothing new on, finishes what has begun or hands it back, and exits with 143 or 130. Exits
    /// with 64 if an option or a file is wrong, and with 1 or 69 if it could not begin.
    Serve(Box<serve::ServeArgs>),
    /// Get machines for a workflow, and the label that its jobs are to name
    ///
    /// Every option can be given as a variable too: --instance-count as INPUT_INSTANCE-COUNT or
    /// `INPUT_INSTANCE_COUNT`. Exits with 0 if all machines are there, with 75 if there is no room
    /// for them now, with 69 if GitHub does not answer, with 130 or 143 if it was cancelled, with 64
    /// if an option is wrong, and with 1 otherwise. Unless it is 0, everything it took goes back.
    Provision(Box<ProvisionArgs>),
    /// Give the machines of a request, or of a whole run attempt, back
    ///
    /// Every option can be given as a variable too: --request as `INPUT_REQUEST`.
    Release(Box<ReleaseArgs>),
    /// Bring the stack in order: reap, reconcile, advertise again
    ///
    /// Every option can be given as a variable too: --dry-run as INPUT_DRY-RUN or `INPUT_DRY_RUN`.
    Refresh(Box<RefreshArgs>),
    /// Show machines, requests and queues
    Status(StackArgs),
    /// Check whether this stack could work, and say what to do where it could not
    ///
    /// Changes nothing. One line for each check; exits with 1 if one failed.
    Doctor(Box<CommonArgs>),
    /// End every machine of a stack, and remove what is kept of it
    Destroy(Box<workflow::DestroyArgs>),
    /// Print who may do what at AWS, as JSON for IAM
    ///
    /// For the control plane, a workflow's steps and instances: what each needs in this stack and no
    /// more. Nothing is asked of AWS.
    #[cfg(feature = "aws")]
    Policies(Box<policies::PoliciesArgs>),
    /// Look at the ledger
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Tell why a job waited, where it is, and what happens next
    ///
    /// Reads the ledger only, whether or not the service runs. Exits with 1 if there is no such job
    /// in it, and with 64 if that is no job.
    Explain(explain::ExplainArgs),
    /// Run simulated worlds
    #[command(subcommand)]
    Sim(SimCommand),
    /// Live as the agent of a machine of the process fleet
    ///
    /// The fleet starts it. Exits with 0 if the machine is to end, and with 1 if the agent could not
    /// live and may be started again.
    Agent(agent::AgentArgs),
    /// Run a GitHub of its own on this machine, for trying things out
    ///
    /// Prints one line of JSON with its address, which is what a real GitHub's API address would be,
    /// and its token, and runs until it is interrupted. The token can have scripts run here, so it is
    /// new each time, every request needs it, and it listens on loopback only.
    StandIn(stand_in::StandInArgs),
    /// Be a runner program for the stand-in, with the official one's arguments, in this directory
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    StandInRunner(stand_in_runner::RunnerArgs),
    /// Be the supervisor of a machine of the process fleet, which starts it
    #[command(hide = true)]
    Supervise(supervise::SuperviseArgs),
}

#[derive(Debug, Subcommand)]
enum LabelsCommand {
    /// Show what a job's labels ask for, and what is wrong with them
    Parse(labels::ParseArgs),
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    /// Check every record against the invariants
    Verify(StackArgs),
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Run a range of seeds, or a scenario from a file, and check every invariant
    Run(sim::RunArgs),
    /// Visit every state of the ownership protocol in a small world
    Explore(explore::ExploreArgs),
}

/// Parses the arguments and does what they say.
pub(crate) fn main() -> ExitCode {
    if let Err(refused) = inputs::refuse_secrets(std::env::args_os().skip(1)) {
        render::error(&refused.to_string(), None);
        return Exit::Usage.into();
    }
    match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => {
            // Help and version are not errors; clap knows which stream each belongs to.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            let printed = error.print();
            if printed.is_err() { Exit::Failed } else { exit }.into()
        }
    }
}

fn run(command: Command) -> ExitCode {
    let unwatched =
        matches!(command, Command::Agent(_) | Command::Serve(_) | Command::Supervise(_));
    let level = if unwatched { LevelFilter::INFO } else { LevelFilter::OFF };
    log::begin(&inputs::environment(), level);
    let exit = match command {
        Command::Demo(args) => demo::demo(&args),
        Command::Labels(LabelsCommand::Parse(args)) => labels::parse(&args),
        Command::Pools(args) => pools::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Provision(args) => workflow::provision(&args),
        Command::Release(args) => workflow::release(&args),
        Command::Refresh(args) => workflow::refresh(&args),
        Command::Status(args) => workflow::status(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Destroy(args) => workflow::destroy(&args),
        #[cfg(feature = "aws")]
        Command::Policies(args) => policies::policies(&args),
        Command::Ledger(LedgerCommand::Verify(args)) => workflow::ledger_verify(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Sim(SimCommand::Run(args)) => sim::run(&args),
        Command::Sim(SimCommand::Explore(args)) => explore::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::StandIn(args) => stand_in::run(&args),
        Command::StandInRunner(args) => return stand_in_runner::run(args),
        Command::Supervise(args) => supervise::run(&args),
    };
    exit.into()
}
