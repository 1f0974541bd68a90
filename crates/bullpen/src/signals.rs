//! The signals that end a command, taken over so that it can clean up first.
//!
//! Not here: what is cleaned up.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Which signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndSignal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl EndSignal {
    /// The code that a command ends with then.
    pub(crate) const fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Interrupted,
            Self::Terminate => Exit::Terminated,
        }
    }
}

/// Both signals, from now on.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes them over; needs a runtime.
    pub(crate) fn take_over() -> io::Result<Self> {
        let (interrupt, terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.interrupt.recv() => EndSignal::Interrupt,
            _ = self.terminate.recv() => EndSignal::Terminate,
        }
    }
}
