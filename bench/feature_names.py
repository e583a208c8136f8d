"""What it costs updates that the names of the most seen features are noted."""

from pathlib import Path

from bench.criteo import rows, write_bodies
from bench.http_ratio import Call, Measured, batches, compare, example
from bench.processes import service
from bench.result import Options, Result, Target
from bench.update import BATCH, LEARNED, ROWS

AGAINST = "the same with FTRL_FEATURE_NAMES=false"


def measure(options: Options) -> list[Result]:
    """Processor time of updates, of API, learner and Redis together."""
    single = write_bodies(options, "example", map(example, rows(ROWS)))
    many = write_bodies(options, "examples", batches(ROWS, BATCH))
    with service() as ours, service(FTRL_FEATURE_NAMES="false") as without:

        def compared(bodies: Path, count: int, connections: int) -> Measured:
            noting, others = (Call(server, "/update", bodies, LEARNED, count) for server in (ours, without))
            return compare(options, noting, others, connections)

        one, batch = compared(single, 1, 32), compared(many, BATCH, 4)
    return [
        Result(
            "feature-names",
            f"/update {what}, processor time a request",
            "ms",
            *measured.figures("cpu_ms"),
            against=AGAINST,
            target=Target("<=", 1.02),
            notes=measured.notes,
        )
        for what, measured in (("single", one), ("with 1,000 examples", batch))
    ]
