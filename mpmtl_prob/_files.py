"""NetCDF files that are either whole or not there."""

from __future__ import annotations

import os

import xarray as xr


def write_netcdf(data: xr.Dataset | xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write data to path; a file that was there stays until the new one is whole."""
    unfinished = f"{os.fspath(path)}.{os.getpid()}.unfinished"
    try:
        data.to_netcdf(unfinished, engine="h5netcdf")
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
