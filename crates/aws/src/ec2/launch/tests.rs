//! Launches as EC2 is asked for them.
