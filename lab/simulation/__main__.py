"""Steady simulated traffic: `python -m lab.simulation --help`."""

from __future__ import annotations

from service.runtime.kernels import choose_kernel_cache


def main() -> None:
    choose_kernel_cache()
    from lab.simulation.demo import main as demo

    demo()


if __name__ == "__main__":
    main()
