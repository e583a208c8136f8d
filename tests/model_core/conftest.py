from pathlib import Path

from hypothesis import settings

# The first call of a kernel compiles it: the time of one example says nothing.
settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")


def drop_stale_kernels() -> None:
    """numba's cache watches the file that a kernel stands in, not those of the functions compiled into it."""
    package = Path(__file__).resolve().parents[2] / "model_core"
    newest = max(source.stat().st_mtime for source in package.rglob("*.py"))
    for cached in package.rglob("*.nb[ic]"):
        if cached.stat().st_mtime < newest:
            cached.unlink(missing_ok=True)


drop_stale_kernels()
