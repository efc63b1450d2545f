"""Data files: found on disk or downloaded once, with verified checksums."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DataFile:
    """Data file that a loader reads, known by its checksum.

    Attributes:
        name: file name.
        sha256: checksum of its content.
        title: title of the data, for messages.
        source: where to get it by hand, in words.
        url: address to download it from; empty if there is none.
    """

    name: str
    sha256: str
    title: str
    source: str
    url: str = ""

    def locate(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Find or download the file, and verify its checksum.

        The search goes through ``path``, or else the folder ``MPMTL_DATA``, ``../shared/data`` and the download cache, in
        that order. Otherwise the file is downloaded (with pooch, from the extra ``data``).

        Args:
            path: path of the file, or of the folder that contains it.

        Raises:
            FileNotFoundError: the file was not found and cannot be downloaded; the message says where to put it.
            ValueError: a file with another checksum.
        """
        file = self._find(path)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest != self.sha256:
            raise ValueError(
                f"{file}: not the {self.title}; expected sha256 {self.sha256[:12]}..., got {digest[:12]}..."
            )
        return file

    def _find(self, path: str | os.PathLike[str] | None) -> Path:
        if path is not None:
            given = Path(path)
            file = given / self.name if given.is_dir() else given
            if not file.is_file():
                raise FileNotFoundError(f"path: no file {file}; expected {self.name} or the folder that holds it")
            return file
        repository = Path(__file__).resolve().parents[2]
        folders = [Path("../shared/data"), repository.parent / "shared" / "data", cache()]
        if "MPMTL_DATA" in os.environ:
            folders.insert(0, Path(os.environ["MPMTL_DATA"]))
        return (
            next((folder / self.name for folder in folders if (folder / self.name).is_file()), None) or self.download()
        )

    def download(self) -> Path:
        """Download the file to the cache, and return its path. Raises FileNotFoundError as :meth:`locate`."""
        place = f"put {self.name} ({self.source}) into a folder and set MPMTL_DATA to that folder or pass the folder as path"
        if not self.url:
            raise FileNotFoundError(f"{self.name} was not found, and there is no address to download it from: {place}.")
        try:
            import pooch
        except ImportError:
            raise FileNotFoundError(
                f"{self.name} was not found. Install the extra 'data' (pip install 'mpmtl-prob[data]') to download it, "
                f"or {place}."
            ) from None
        known = f"sha256:{self.sha256}"
        try:
            return Path(pooch.retrieve(self.url, known_hash=known, fname=self.name, path=cache(), progressbar=False))
        except Exception as error:  # after any network failure, the user needs to know where to put the file
            raise FileNotFoundError(
                f"{self.name} was not found and could not be downloaded ({error}). Or {place}."
            ) from error


def cache() -> Path:
    """Return the folder for downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mpmtl_prob"
