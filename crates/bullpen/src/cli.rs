//! The command line: the subcommands with their help, and the dispatch to their modules.
//!
//! Not here: the subcommands themselves.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing::level_filters::LevelFilter;

use crate::exit::Exit;
use crate::inputs::{CommonArgs, ProvisionArgs, RefreshArgs, ReleaseArgs, StackArgs};
#[cfg(feature = "aws")]
use crate::policies;
use crate::{
    agent, demo, doctor, explain, explore, inputs, jobs, labels, lint, log, pools, render, serve,
    sim, stand_in, stand_in_runner, supervise, workflow,
};

#[cfg(test)]
mod tests;

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
    /// A service keeps two standby pools, and a stand-in for GitHub sends it twenty jobs in bursts.
    /// Agents and jobs are real, and the demo removes its state at the end. With --workflow it
    /// plays three workflow runs without a service: a cold run, a warm run, and a run with two
    /// requests at once. Exits with 0 if nothing went wrong, and with 130 or 143 if it was
    /// interrupted.
    Demo(demo::DemoArgs),
    /// Read labels as the service would
    #[command(subcommand)]
    Labels(LabelsCommand),
    /// Show standby pools, plan them, and give them orders
    ///
    /// Without a subcommand it shows each pool's target, its machines, the notes of its plan and
    /// its last actions. The configuration has the same source as in `serve`; without one the
    /// command shows the pools in the ledger.
    Pools(Box<pools::PoolsArgs>),
    /// Check runs-on.yml and bullpen.toml
    ///
    /// Exits with 0 if there are no errors, with 1 if there are, and with 64 if a file cannot be
    /// read or an argument is wrong.
    Lint(lint::LintArgs),
    /// Receive GitHub's webhooks and give every job a runner, until a signal ends the service
    ///
    /// Prints one line of JSON with its addresses when it listens. On SIGTERM or SIGINT it starts
    /// no new work, finishes its open work or hands it back, and exits with 143 or 130. Exits with
    /// 64 if an option or a file is wrong, and with 1 or 69 if it could not start.
    Serve(Box<serve::ServeArgs>),
    /// Get machines for a workflow, and the label for its jobs
    ///
    /// Every option can be given as a variable too: --instance-count as INPUT_INSTANCE-COUNT or
    /// `INPUT_INSTANCE_COUNT`. Exits with 0 if all machines are ready, with 75 if there is no
    /// capacity for them now, with 69 if GitHub does not answer, with 130 or 143 if it was
    /// cancelled, with 64 if an option is wrong, and with 1 otherwise. Unless it exits with 0, it
    /// gives all machines back.
    Provision(Box<ProvisionArgs>),
    /// Give the machines of a request, or of a whole run attempt, back
    ///
    /// Every option can be given as a variable too: --request as `INPUT_REQUEST`.
    Release(Box<ReleaseArgs>),
    /// Bring the stack to its desired state: reap, reconcile, advertise idle machines again
    ///
    /// Every option can be given as a variable too: --dry-run as INPUT_DRY-RUN or `INPUT_DRY_RUN`.
    Refresh(Box<RefreshArgs>),
    /// Show machines, requests and queues
    Status(StackArgs),
    /// Check whether this stack can work, and print advice where it cannot
    ///
    /// Changes nothing. Prints one line for each check; exits with 1 if one failed.
    Doctor(Box<CommonArgs>),
    /// End every machine of a stack, and remove its state
    Destroy(Box<workflow::DestroyArgs>),
    /// Print a policy for AWS, as JSON for IAM
    ///
    /// A policy for the control plane, a workflow's steps or instances, with the permissions that
    /// they need in this stack and no more. The command makes no call to AWS.
    #[cfg(feature = "aws")]
    Policies(Box<policies::PoliciesArgs>),
    /// Inspect the ledger
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Show the jobs that wait and run, and what each waits for
    ///
    /// Reads the ledger only, whether or not the service runs.
    Jobs(jobs::JobsArgs),
    /// Show why a job waited, where it is, and what happens next
    ///
    /// Reads the ledger only, whether or not the service runs. Exits with 1 if the ledger does not
    /// have the job, and with 64 if the argument is not a job.
    Explain(explain::ExplainArgs),
    /// Run simulated worlds
    #[command(subcommand)]
    Sim(SimCommand),
    /// Run the agent of a machine of the process fleet
    ///
    /// The machine's supervisor starts it. Exits with 0 if the machine is to end, and with 1 if the
    /// agent failed and may be started again.
    Agent(agent::AgentArgs),
    /// Run a stand-in for GitHub on this machine, to try Bullpen out
    ///
    /// Prints one line of JSON with its token and its address, which takes the place of GitHub's
    /// API address, and runs until it is interrupted. The token allows scripts to run on this
    /// machine. So it is new at each start, every request needs it, and the stand-in listens on
    /// loopback only.
    StandIn(stand_in::StandInArgs),
    /// Run the stand-in's runner program in this directory, with the official program's arguments
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    StandInRunner(stand_in_runner::RunnerArgs),
    /// Supervise a machine of the process fleet, which starts this command
    #[command(hide = true)]
    Supervise(supervise::SuperviseArgs),
}

#[derive(Debug, Subcommand)]
enum LabelsCommand {
    /// Show what a job's labels request, and their errors
    Parse(labels::ParseArgs),
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    /// Check records, machines, jobs and GitHub's runners against the invariants
    ///
    /// Reads only. Without a credential that lists runners it says that it did not ask GitHub. Exits
    /// with 1 if an invariant is broken.
    Verify(CommonArgs),
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Run a range of seeds, or a scenario from a file, and check every invariant
    Run(sim::RunArgs),
    /// Visit every state of the ownership protocol in a small world
    Explore(explore::ExploreArgs),
}

/// Parses the arguments and runs their subcommand.
pub(crate) fn main() -> ExitCode {
    if let Err(refused) = inputs::refuse_secrets(std::env::args_os().skip(1)) {
        render::error(&refused.to_string(), None);
        return Exit::Usage.into();
    }
    match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => {
            // Help and version are not errors; clap prints each to its stream.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            let printed = error.print();
            if printed.is_err() { Exit::Failed } else { exit }.into()
        }
    }
}

fn run(command: Command) -> ExitCode {
    let is_daemon =
        matches!(command, Command::Agent(_) | Command::Serve(_) | Command::Supervise(_));
    let level = if is_daemon { LevelFilter::INFO } else { LevelFilter::OFF };
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
        Command::Jobs(args) => jobs::jobs(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Sim(SimCommand::Run(args)) => sim::run(&args),
        Command::Sim(SimCommand::Explore(args)) => explore::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::StandIn(args) => stand_in::run(&args),
        Command::StandInRunner(args) => return stand_in_runner::run(args),
        Command::Supervise(args) => supervise::run(&args),
    };
    match render::lost() {
        None => exit.into(),
        Some(error) => {
            render::error(&format!("could not write the output: {error}"), None);
            if exit == Exit::Done { Exit::Failed.into() } else { exit.into() }
        }
    }
}
