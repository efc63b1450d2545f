"""Machinery: chains of any kernel, their files, their diagnoses, and calibration by simulation."""
