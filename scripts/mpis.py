"""The MPI libraries of mpis.toml: where they are, and how programs are built and run with them."""

from __future__ import annotations

import os
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Mpi:
    """One table of mpis.toml."""

    name: str
    table: dict

    @property
    def title(self) -> str:
        return self.table["title"]

    @property
    def home(self) -> Path:
        """The virtual environment that it is installed in, if it comes from packages."""
        return ROOT / "target" / "mpi" / self.name

    @property
    def packages(self) -> list[str]:
        return self.table.get("pip", [])

    @property
    def like(self) -> str | None:
        return self.table.get("like")

    def _filled(self, text: str) -> str:
        return text.replace("{home}", str(self.home)).replace("{PATH}", os.environ.get("PATH", ""))

    @property
    def cc(self) -> str:
        return self._filled(self.table["cc"])

    @property
    def fortran(self) -> str | None:
        return self._filled(self.table["fortran"]) if "fortran" in self.table else None

    @property
    def mpiexec(self) -> list[str]:
        return [self._filled(part) for part in self.table["exec"]]

    @property
    def missing(self) -> str | None:
        """The name of a program that is missing, if one is."""
        return next((tool for tool in (self.cc, self.mpiexec[0]) if shutil.which(tool) is None), None)

    def environment(self, ranks: int = 1) -> dict[str, str]:
        """Variables that its tools, and the programs of a job of so many ranks, need in addition to the caller's."""
        variables = dict(self.table.get("env", {}))
        if os.geteuid() == 0:
            variables |= self.table.get("root_env", {})
        if ranks > len(os.sched_getaffinity(0)):
            variables |= self.table.get("oversubscribed_env", {})
        return {name: self._filled(value) for name, value in variables.items()}

    def command(self, ranks: int, forwarded: list[str]) -> list[str]:
        """The command line, up to the program's name, that starts so many ranks with the variables `forwarded`."""
        forward = [part for name in sorted(forwarded) for part in ("-x", name)] if self.table.get("forward") else []
        return [*self.mpiexec, *forward, "-n", str(ranks)]


def read_mpis() -> dict[str, Mpi]:
    """All MPIs by name, in the order of the file."""
    with open(Path(__file__).with_name("mpis.toml"), "rb") as file:
        return {name: Mpi(name, table) for name, table in tomllib.load(file).items()}
