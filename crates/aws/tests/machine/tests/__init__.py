"""Tests of the machine: the behaviour that it plays, and the refusal of everything else."""
