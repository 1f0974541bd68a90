//! The agent with real processes: the stand-in runner `Runner.Listener` beside this file, real jobs,
//! real scripts. Time is real, but no test waits for anything but what a process does.

mod place;
mod runners;
mod scripts;
mod users;
