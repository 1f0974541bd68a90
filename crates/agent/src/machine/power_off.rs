//! The watchdog of an EC2 machine: systemd timers that power it off.
//!
//! The agent never changes the timer that the boot script arms. For an earlier end it adds a timer.
//! The earliest timer ends the machine, so arming a timer twice, or again after the agent's death,
//! changes nothing.
//!
//! Not here: the timer of the boot (the boot script), or what powering off does to the instance.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use bullpen_core::ports::Clock;
use bullpen_core::time::Timestamp;

use crate::host::Watchdog;

/// The program that arms a timer.
const PROGRAM: &str = "systemd-run";

/// A watchdog of one-off timers.
#[derive(Debug)]
pub struct PowerOff<C> {
    clock: C,
    program: PathBuf,
    armed: Mutex<Option<Timestamp>>,
}

impl<C: Clock> PowerOff<C> {
    /// Uses the `systemd-run` in the agent's `PATH`.
    pub fn new(clock: C) -> Self {
        Self { clock, program: PathBuf::from(PROGRAM), armed: Mutex::new(None) }
    }

    fn command(&self, to: Timestamp) -> Command {
        // Round up: a timer that is due at once could power off before the agent has ended.
        let seconds = to.since(self.clock.now()).as_millis().div_ceil(1_000).max(1);
        let mut command = Command::new(&self.program);
        command
            .args(["--quiet", "--collect", "--timer-property=AccuracySec=1s"])
            .arg(format!("--on-active={seconds}s"))
            .args(["systemctl", "poweroff"])
            .stdin(Stdio::null());
        command
    }
}

impl<C: Clock> Watchdog for PowerOff<C> {
    async fn shorten(&self, to: Timestamp) -> io::Result<()> {
        let is_armed = |armed: &mut Option<Timestamp>| armed.is_some_and(|armed| armed <= to);
        if is_armed(&mut self.armed.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        let mut command = self.command(to);
        // The program returns when the timer is armed, and heartbeats must not wait for that.
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output = output.map_err(io::Error::other).flatten()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let text = format!("{PROGRAM}: {}: {}", output.status, stderr.trim());
            return Err(io::Error::other(text));
        }
        *self.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::system::SystemClock;
    use crate::test_program;

    /// A watchdog with a fake program that records its arguments and exits with this code.
    fn pretend(directory: &Path, exit: u8) -> PowerOff<SystemClock> {
        let program = directory.join(PROGRAM);
        let log = directory.join("calls");
        let script = format!("#!/bin/sh\necho \"$@\" >>{}\nexit {exit}\n", log.display());
        test_program::install(&program, &script);
        PowerOff { program, ..PowerOff::new(SystemClock::new()) }
    }

    #[tokio::test]
    async fn only_an_earlier_end_is_one_more_timer() {
        let directory = tempfile::tempdir().unwrap();
        let watchdog = pretend(directory.path(), 0);
        let now = watchdog.clock.now();
        for seconds in [60, 300, 60, 0] {
            watchdog.shorten(now.after(Duration::from_secs(seconds))).await.unwrap();
        }
        let calls = fs::read_to_string(directory.path().join("calls")).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        assert!(matches!(calls[..], [_, _]), "{calls:?}");
        assert!(calls[0].contains("--on-active=60s systemctl poweroff"), "{calls:?}");
        assert!(calls[1].contains("--on-active=1s "), "{calls:?}");
    }

    #[tokio::test]
    async fn a_timer_that_could_not_be_armed_is_an_error_and_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let watchdog = pretend(directory.path(), 1);
        let soon = watchdog.clock.now().after(Duration::from_secs(60));
        for _ in 0..2 {
            watchdog.shorten(soon).await.unwrap_err();
        }
        let calls = fs::read_to_string(directory.path().join("calls")).unwrap();
        assert_eq!(calls.lines().count(), 2, "{calls}");
    }
}
