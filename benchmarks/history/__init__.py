"""Benchmarks that asv runs at one commit after another."""
