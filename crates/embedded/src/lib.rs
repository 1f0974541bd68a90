//! The embedded engine: SQLite behind the `Ledger`, `Queues` and `Mailbox` ports, processes of this
//! host behind the `Fleet` port ([`fleet`]), and their agents' way to a mailbox ([`machine`]).
//!
//! `ledger.db` holds who owns what, the job rows and the queues, and survives power cuts;
//! `mailbox.db` holds what agents and the control plane tell each other, and survives processes.
//! Any number of processes of one host may use both files at once. The directory `wake` beside them
//! is how one process wakes another (module `wake`); the `-door` files are how they take turns
//! (module `write_gate`).
//!
//! Not here: deciding anything (`bullpen-core` does, inside the transactions), or several hosts:
//! neither SQLite's locks nor ours reach across a network.

pub mod fleet;
mod ledger;
pub mod machine;
mod mailbox;
mod open;
mod page;
mod queues;
mod statement_fault;
mod store;
pub mod system;
mod wait;
mod wake;
mod write_gate;

#[cfg(test)]
mod testing;

pub use ledger::SqliteLedger;
pub use mailbox::SqliteMailbox;
pub use open::{OpenError, check_private};
pub use queues::SqliteQueues;
