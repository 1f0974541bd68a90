"""Tests of the machine: what it plays, and that what it does not play is refused."""
