//! The adapters for one host: SQLite behind the `Ledger`, `Queues` and `Mailbox` ports, processes
//! behind the `Fleet` port ([`fleet`]), and the agents' connection to a mailbox ([`machine`]).
//!
//! `ledger.db` holds the records, the job rows and the queues, and survives power cuts.
//! `mailbox.db` holds orders and reports, and survives processes. Any number of processes of one
//! host may use both files. They wake each other through the directory `wake` (module `wake`), and
//! take turns with the `-door` files (module `write_gate`).
//!
//! Not here: decisions (`bullpen-core` makes them, inside the transactions), or several hosts:
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
