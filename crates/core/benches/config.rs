//! What reading a configuration costs.
//!
//! Not here: single decisions (`decisions`).

fn main() {}
