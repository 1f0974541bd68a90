//! The adapters for one host: SQLite behind the `Ledger`, `Queues` and `Mailbox` ports, processes
//! behind the `Fleet` port ([`fleet`]), and the agents' connection to a mailbox ([`machine`]).
//!
//! `ledger.db` (records, job rows, queues) survives power cuts; `mailbox.db` (orders, reports)
//! survives processes. The host's processes wake each other (module `wake`) and take turns with the
//! `-door` files (module `write_gate`).
//!
//! Not here: decisions (`bullpen-core`), or several hosts: no lock here reaches across a network.

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
mod watch;
mod write_gate;

#[cfg(test)]
mod testing;

pub use ledger::SqliteLedger;
pub use mailbox::SqliteMailbox;
pub use open::{OpenError, check_private};
pub use queues::SqliteQueues;
pub use watch::{StoreLost, StoreWatch};
