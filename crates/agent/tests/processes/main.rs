//! Tests of the agent with real processes: the stand-in runner `Runner.Listener` beside this file,
//! real jobs, real scripts. Time is real, but a test only waits for what a process does.

mod place;
mod runners;
mod scripts;
mod users;
