"""Helpers that know nothing of tasks, noise or models: checks of arguments, files, tables, threads, devices."""
