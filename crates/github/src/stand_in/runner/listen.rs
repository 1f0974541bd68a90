//! `run`: listening, one job at a time, until a signal comes, the one job is done, or the
//! registration is gone.
//!
//! A server that is down or in trouble is asked again until it is back; a job goes on meanwhile.
//!
//! Not here: what a job is as a process (`job`).

use std::io::Write;
use std::pin::Pin;
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::Clock;
use hyper::Method;

use super::console::Console;
use super::files::{self, RunnerSettings};
use super::inputs::Inputs;
use super::job::{Running, runs_always};
use super::line::ServerConnection;
use super::server::{Server, ServerAnswer, ServerTrouble};
use super::{Failed, exit};
use crate::stand_in::protocol::{Completed, Conclusion, JobMessage, Message, Register, Registered};

/// How long the server may hold a question for a message, in seconds.
const WAIT_SECONDS: u64 = 50;
/// How much longer its answer may take.
const SLACK: Duration = Duration::from_secs(15);
/// The wait after a message that cannot be read: it is told again.
const UNREADABLE: Duration = Duration::from_secs(5);
/// How long the end of a job, or of the program itself, may take to be told after a signal.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(5);

/// What a runner hears.
enum Heard {
    Message(Message),
    /// The runner was deleted.
    Gone,
    /// Another session has taken its place.
    Replaced,
}

/// A connected runner.
struct Listener<'a, C, W> {
    line: ServerConnection<'a, C, W>,
    inputs: &'a Inputs,
    settings: RunnerSettings,
    session: Secret,
}

/// Connects, and listens to the end.
pub(super) async fn run<'a, C: Clock, W: Write>(
    inputs: &'a Inputs,
    clock: &'a C,
    console: &'a Console<'a, C, W>,
    mut interrupted: Pin<&mut impl Future<Output = ()>>,
) -> Result<u8, Failed> {
    let connecting = async {
        match inputs.value("jitconfig").map(Secret::new) {
            Some(jit) => by_jit(inputs, clock, console, jit).await,
            None => by_files(inputs, clock, console).await,
        }
    };
    let listener = tokio::select! {
        biased;
        () = &mut interrupted => {
            console.say("Exiting...");
            return Ok(exit::DONE);
        }
        listener = connecting => listener?,
    };
    listener.listen(interrupted).await
}

/// Registers with a JIT configuration, which is good for once.
async fn by_jit<'a, C: Clock, W: Write>(
    inputs: &'a Inputs,
    clock: &'a C,
    console: &'a Console<'a, C, W>,
    jit: Secret,
) -> Result<Listener<'a, C, W>, Failed> {
    files::unpack(&inputs.root, &jit)?;
    let settings = RunnerSettings::load(&inputs.root)?;
    let line = ServerConnection::new(Server::new(&settings.server, clock), console);
    let wish = Register { jit: Some(jit), ..Register::default() };
    let answer = line.insist(|| line.server.post("/runners/register", None, &wish, SLACK)).await;
    if answer.status != 201 {
        return Err(Failed::for_good(answer.words()));
    }
    let registered: Registered =
        serde_json::from_slice(&answer.body).map_err(std::io::Error::from)?;
    Ok(Listener { line, inputs, settings, session: registered.session })
}

/// Connects a configured runner: one question tells whether the server still knows it.
async fn by_files<'a, C: Clock, W: Write>(
    inputs: &'a Inputs,
    clock: &'a C,
    console: &'a Console<'a, C, W>,
) -> Result<Listener<'a, C, W>, Failed> {
    let settings = RunnerSettings::load(&inputs.root)?;
    let session = files::session(&inputs.root)?;
    let line = ServerConnection::new(Server::new(&settings.server, clock), console);
    let listener = Listener { line, inputs, settings, session };
    match listener.line.insist(|| listener.ask_for_message(0)).await.status {
        410 => Err(Failed::for_good(
            "Failed to create a session. The runner registration has been deleted from the server, \
             please re-configure.",
        )),
        401 => Err(conflict()),
        // A message that came with the answer is told again.
        _ => Ok(listener),
    }
}

fn conflict() -> Failed {
    Failed {
        words: String::from("A session for this runner already exists."),
        code: exit::CONFLICT,
    }
}

impl<C: Clock, W: Write> Listener<'_, C, W> {
    async fn listen(
        &self,
        mut interrupted: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<u8, Failed> {
        self.line.console.say("\n√ Connected to GitHub\n");
        self.line.console.say(&format!("Current runner version: '{}'", env!("CARGO_PKG_VERSION")));
        self.line.console.line_with_time("Listening for Jobs");
        loop {
            let heard = tokio::select! {
                biased;
                () = &mut interrupted => return Ok(self.leave().await),
                heard = self.hear() => heard,
            };
            let over = match heard {
                Heard::Message(Message::Job(job)) => self.job(&job, interrupted.as_mut()).await?,
                // The job does not run here; the server must hear of its end to forget it.
                Heard::Message(Message::Cancel { job }) => {
                    self.complete(job, Conclusion::Cancelled).await;
                    None
                }
                Heard::Gone => Some(self.gone()?),
                Heard::Replaced => return Err(conflict()),
            };
            if let Some(code) = over {
                return Ok(code);
            }
        }
    }

    /// The next message. Never returns while there is none.
    async fn hear(&self) -> Heard {
        loop {
            let ask = || self.ask_for_message(WAIT_SECONDS);
            let answer = self.line.insist(ask).await;
            match answer.status {
                200 => match serde_json::from_slice(&answer.body) {
                    Ok(message) => return Heard::Message(message),
                    Err(error) => {
                        self.line.console.say(&format!("A message cannot be read: {error}"));
                        self.line.server.clock().sleep(UNREADABLE).await;
                    }
                },
                401 => return Heard::Replaced,
                404 | 410 => return Heard::Gone,
                _ => {}
            }
        }
    }

    async fn ask_for_message(&self, seconds: u64) -> Result<ServerAnswer, ServerTrouble> {
        let path = format!("/runners/{}/message?wait={seconds}", self.settings.id);
        let within = Duration::from_secs(seconds) + SLACK;
        self.line.server.ask(Method::GET, &path, &self.session, within).await
    }

    /// Runs a job. Returns the exit code if the program is over with it.
    async fn job(
        &self,
        job: &JobMessage,
        mut interrupted: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<u8>, Failed> {
        let path = format!("/runners/{}/jobs/{}/started", self.settings.id, job.job);
        let start = || self.line.server.ask(Method::POST, &path, &self.session, SLACK);
        let started = tokio::select! {
            biased;
            () = &mut interrupted => return Ok(Some(self.leave().await)),
            started = self.line.insist(start) => started,
        };
        match started.status {
            204 => {}
            401 => return Err(conflict()),
            410 => return self.gone().map(Some),
            _ => {
                self.line.console.say("Skipping message Job. It was given to another runner.");
                return Ok(None);
            }
        }
        self.line.console.line_with_time(&format!("Running job: {}", job.name));
        let (conclusion, was_interrupted) = self.work(job, interrupted).await;
        if was_interrupted {
            self.within_last_words(self.complete(job.job, conclusion)).await;
        } else {
            self.complete(job.job, conclusion).await;
        }
        let result = result_of(conclusion);
        self.line
            .console
            .line_with_time(&format!("Job {} completed with result: {result}", job.name));
        if self.settings.ephemeral {
            files::forget(&self.inputs.root)?;
            return Ok(Some(exit::DONE));
        }
        Ok(if was_interrupted { Some(self.leave().await) } else { None })
    }

    /// The job itself, and whether a signal ended it.
    async fn work(
        &self,
        job: &JobMessage,
        mut interrupted: Pin<&mut impl Future<Output = ()>>,
    ) -> (Conclusion, bool) {
        let hook = Running::hook(job, &self.settings, self.inputs).transpose();
        if let Some(hook) = hook {
            let (concluded, was_interrupted) = self.see(job, hook, interrupted.as_mut()).await;
            let goes_on = concluded == Conclusion::Success || runs_always(job);
            if !goes_on || was_interrupted {
                return (concluded, was_interrupted);
            }
        }
        let step = Running::start(job, &self.settings, self.inputs);
        self.see(job, step, interrupted).await
    }

    /// A process of the job's, to its end.
    async fn see(
        &self,
        job: &JobMessage,
        started: std::io::Result<Running>,
        interrupted: Pin<&mut impl Future<Output = ()>>,
    ) -> (Conclusion, bool) {
        let mut running = match started {
            Ok(running) => running,
            Err(error) => {
                self.line.console.say(&format!("An error occurred: {error}"));
                return (Conclusion::Failure, false);
            }
        };
        let was_interrupted = tokio::select! {
            biased;
            conclusion = running.ended() => return (conclusion, false),
            () = self.cancelled(job.job) => false,
            () = interrupted => true,
        };
        running.end(self.line.server.clock()).await;
        (Conclusion::Cancelled, was_interrupted)
    }

    /// Returns when this job is not to go on. Asking also tells the server that the runner lives.
    async fn cancelled(&self, job: u64) {
        loop {
            match self.hear().await {
                Heard::Message(Message::Cancel { job: which }) if which == job => return,
                Heard::Message(_) => {}
                Heard::Gone | Heard::Replaced => return,
            }
        }
    }

    /// Tells how a job ended, until the server has heard it, or says that it is no longer ours.
    async fn complete(&self, job: u64, conclusion: Conclusion) {
        let path = format!("/runners/{}/jobs/{job}/completed", self.settings.id);
        let body = Completed { conclusion };
        let report = || self.line.server.post(&path, Some(&self.session), &body, SLACK);
        self.line.insist(report).await;
    }

    /// A signal came: the session ends, the registration stays.
    async fn leave(&self) -> u8 {
        self.line.console.say("Exiting...");
        let path = format!("/runners/{}/session", self.settings.id);
        let end = self.line.server.ask(Method::DELETE, &path, &self.session, LAST_WORDS_WITHIN);
        // A server that does not answer finds out by itself.
        drop(end.await);
        exit::DONE
    }

    async fn within_last_words(&self, report: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = report => {}
            () = self.line.server.clock().sleep(LAST_WORDS_WITHIN) => {}
        }
    }

    fn gone(&self) -> Result<u8, Failed> {
        let words = "The runner no longer exists on the server. Cleaning up local configuration.";
        self.line.console.say(words);
        files::forget(&self.inputs.root)?;
        Ok(exit::DONE)
    }
}

const fn result_of(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Success => "Succeeded",
        Conclusion::Failure => "Failed",
        Conclusion::Cancelled => "Canceled",
    }
}
